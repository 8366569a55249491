"""The configuration of a stream."""

from __future__ import annotations

import pytest

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import SEGMENTS_MAX
from eventproc.store.model.policies import ScalingKind, ScalingPolicy, StreamConfig, differing


def test_a_stream_has_one_segment_unless_more_are_wanted() -> None:
    assert StreamConfig().scaling == ScalingPolicy(kind=ScalingKind.FIXED, segments_min=1)


@pytest.mark.parametrize("segments", [-1, 0, SEGMENTS_MAX + 1])
def test_an_impossible_number_of_segments_is_refused(segments: int) -> None:
    with pytest.raises(InvalidArgument, match=f"1 to {SEGMENTS_MAX}"):
        ScalingPolicy.fixed(segments)


def test_configurations_differ_in_named_choices() -> None:
    four = StreamConfig(ScalingPolicy.fixed(4))
    assert differing(four, StreamConfig(ScalingPolicy.fixed(4))) == ()
    assert differing(four, StreamConfig(ScalingPolicy.fixed(5))) == ("scaling.segments_min",)
