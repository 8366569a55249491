"""Options that choose how a stream is scaled: what is not given stays as an existing stream has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Cli

TUNED = (
    "--events-per-second",
    "100",
    "--factor",
    "3",
    "--segments",
    "4",
    "--segments-max",
    "16",
    "--window",
    "30",
)
POLICY = {
    "kind": "event_rate",
    "segments_min": 4,
    "target": 100,
    "factor": 3,
    "segments_max": 16,
    "window_ms": 30_000,
}
FIXED = {**dict.fromkeys(POLICY), "kind": "fixed"}


@pytest.fixture
def tuned(cli: Cli) -> Cli:
    cli("init").ok()
    cli("scope", "create", "s").ok()
    cli("stream", "create", "s/t", *TUNED).ok()
    return cli


def policy(cli: Cli) -> Any:
    return json.loads(cli("stream", "describe", "s/t", "-o", "json").ok())["config"]["scaling"]


@pytest.mark.parametrize(
    "given, changed",
    [
        (("--events-per-second", "500"), {"target": 500}),
        (("--bytes-per-second", "9000"), {"kind": "byte_rate", "target": 9000}),
        (("--segments-max", "8"), {"segments_max": 8}),
        (("--segments", "5", "--factor", "2"), {"segments_min": 5, "factor": 2}),
    ],
)
def test_an_option_changes_what_it_names_of_a_policy_by_rate(
    tuned: Cli, given: tuple[str, ...], changed: dict[str, object]
) -> None:
    tuned("stream", "update", "s/t", *given).ok()
    assert policy(tuned) == POLICY | changed


def test_a_rate_begins_with_the_number_of_segments_that_a_stream_has(tuned: Cli) -> None:
    tuned("stream", "update", "s/t", "--segments", "2").ok()
    assert policy(tuned) == FIXED | {"segments_min": 2}, "a number of segments alone ends scaling by rate"
    tuned("stream", "update", "s/t", "--bytes-per-second", "1000").ok()
    defaults = {"factor": 2, "segments_max": 1024, "window_ms": 120_000}
    assert policy(tuned) == {"kind": "byte_rate", "target": 1000, "segments_min": 2, **defaults}


def test_a_limit_alone_is_refused_for_a_fixed_number_of_segments(tuned: Cli) -> None:
    tuned("stream", "update", "s/t", "--segments", "2").ok()
    for verb in ("update", "create"):
        why = tuned("stream", verb, "s/t", "--segments-max", "8").refused(2)
        assert "segments_max" in why and "by a rate" in why
    assert policy(tuned) == FIXED | {"segments_min": 2}
    assert "exclude each other" in tuned(
        "stream", "update", "s/t", "--events-per-second", "1", "--bytes-per-second", "1"
    ).refused(2)


def test_two_updates_of_different_limits_keep_both(tuned: Cli) -> None:
    """Each is planned from what the stream has when it is recorded, not from what its caller saw."""
    for given in (("--factor", "2"), ("--segments-max", "9"), ("--keep-days", "1"), ("--offload-days", "1")):
        tuned("stream", "update", "s/t", *given).ok()
    assert policy(tuned) == POLICY | {"factor": 2, "segments_max": 9}
