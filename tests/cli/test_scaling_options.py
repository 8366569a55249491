"""Options that choose how a stream is scaled: what is not given stays as an existing stream has it."""

from __future__ import annotations

import click
import pytest

from eventproc.cli.scaling import ScalingChoice
from eventproc.store.model.policies import ScalingPolicy

TUNED = ScalingPolicy.by_event_rate(100, factor=3, segments_min=4, segments_max=16, window_ms=30_000)


def choice(**given: int | float) -> ScalingChoice:
    names = ("segments", "events_per_second", "bytes_per_second", "factor", "segments_max", "window_s")
    return ScalingChoice(**{name: given.get(name) for name in names})  # type: ignore[arg-type]


def test_another_rate_keeps_the_other_choices() -> None:
    wanted = ScalingPolicy.by_event_rate(500, factor=3, segments_min=4, segments_max=16, window_ms=30_000)
    assert choice(events_per_second=500).applied_to(TUNED) == wanted


def test_a_rate_of_bytes_keeps_the_other_choices() -> None:
    wanted = ScalingPolicy.by_byte_rate(9_000, factor=3, segments_min=4, segments_max=16, window_ms=30_000)
    assert choice(bytes_per_second=9_000).applied_to(TUNED) == wanted


def test_a_limit_alone_changes_the_policy_of_a_stream_that_has_one() -> None:
    wanted = ScalingPolicy.by_event_rate(100, factor=3, segments_min=4, segments_max=8, window_ms=30_000)
    assert choice(segments_max=8).applied_to(TUNED) == wanted


def test_a_limit_alone_is_refused_for_a_fixed_number_of_segments() -> None:
    with pytest.raises(click.UsageError, match="go with --events-per-second"):
        choice(segments_max=8).applied_to(ScalingPolicy.fixed(2))


def test_a_number_of_segments_alone_ends_scaling_by_rate() -> None:
    assert choice(segments=2).applied_to(TUNED) == ScalingPolicy.fixed(2)
