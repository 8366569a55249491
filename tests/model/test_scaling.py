"""The verdicts of scaling by rate, beside a twin that says them as the document does, and the plans that follow."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.epochs import Epoch, next_epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.model.scaling import (
    LoadVerdict,
    ScalePlan,
    SegmentLoad,
    judge,
    plan_scale,
    windows_ms,
)
from tests.model.support import STREAM, history

MINUTE_MS = 60_000
TARGET = 100
OLD_MS = 60 * MINUTE_MS

Rates = tuple[float, float, float, float]
QUIET: Rates = (0.0, 0.0, 0.0, 0.0)
BUSY: Rates = (80.0, 80.0, 80.0, 80.0)
BURST: Rates = (501.0, 250.0, 150.0, 90.0)

rates = st.tuples(
    *[st.sampled_from([0.0, 10, 33, 49, 50, 51, 99, 100, 101, 200, 201, 350, 500, 501, 1000])] * 4
)
ages = st.sampled_from([0, 1, 9, 10, 11, 19, 20, 21, 60])


def loads_of(epoch: Epoch, *seen: tuple[int, Rates]) -> list[SegmentLoad]:
    return [
        SegmentLoad(segment, age * MINUTE_MS, each)
        for segment, (age, each) in zip(epoch.segments, seen, strict=True)
    ]


def stream_of(count: int) -> Epoch:
    return history(count).epochs[-1]


def plan(policy: ScalingPolicy, *seen: Rates) -> ScalePlan:
    return plan_scale(policy, loads_of(stream_of(len(seen)), *[(60, each) for each in seen]))


def twin(age_min: int, two: float, five: float, ten: float, twenty: float) -> str:
    """Say the verdict as pravega.md 7.2 does, in minutes."""
    if age_min < 10:
        return "young"
    if (two > 5 * TARGET and age_min > 2) or (five > 2 * TARGET and age_min > 5) or ten > TARGET:
        return "hot"
    if two < TARGET and five < TARGET and ten < TARGET and twenty < TARGET / 2 and age_min > 20:
        return "cold"
    return "steady"


@pytest.mark.acceptance(
    "F4",
    differs="rates are taken over windows that end now, not as moving averages; all segments at one moment",
)
@given(age=ages, seen=rates)
def test_verdicts_are_those_of_the_document(age: int, seen: Rates) -> None:
    policy = ScalingPolicy.by_event_rate(TARGET)
    (load,) = loads_of(stream_of(1), (age, seen))
    assert judge(policy, load).value == twin(age, *seen)


def test_windows_are_2_5_10_and_20_minutes_unless_a_policy_shortens_them() -> None:
    assert windows_ms(ScalingPolicy.by_event_rate(1)) == tuple(n * MINUTE_MS for n in (2, 5, 10, 20))
    assert windows_ms(ScalingPolicy.by_event_rate(1, window_ms=1000)) == (1000, 2500, 5000, 10_000)


@given(
    seen=st.lists(st.tuples(ages, rates), min_size=1, max_size=8),
    factor=st.integers(2, 5),
    least=st.integers(1, 8),
    room=st.integers(0, 10),
)
def test_every_plan_is_a_valid_scale_within_the_limits(
    seen: list[tuple[int, Rates]], factor: int, least: int, room: int
) -> None:
    epoch = stream_of(len(seen))
    least = min(least, len(seen))
    policy = ScalingPolicy.by_event_rate(
        TARGET, factor=factor, segments_min=least, segments_max=max(len(seen), least) + room
    )
    loads = loads_of(epoch, *seen)
    found = plan_scale(policy, loads)
    verdicts = {load.segment.id: twin(load.age_ms // MINUTE_MS, *load.rates) for load in loads}
    after = epoch
    if found.seal:
        after = next_epoch(
            epoch,
            stream=STREAM,
            seal=found.seal,
            ranges=found.ranges,
            now_ms=OLD_MS,
            segments_min=least,
            segments_max=policy.most,
            request_id=None,
        )
    assert {verdicts[each] for each in found.seal} <= {"hot", "cold"}
    by_id = {load.segment.id: load for load in loads}
    for opened in after.opened if found.seal else ():
        before = list(epoch.overlapping(opened.range))
        if len(before) > 1:  # merged: cold neighbours that are not hot together
            assert len(before) <= 3
            assert {verdicts[each.id] for each in before} == {"cold"}
            totals = [sum(by_id[each.id].rates[n] for each in before) for n in range(4)]
            assert max(totals) <= TARGET
        else:  # a part of a hot one
            assert verdicts[before[0].id] == "hot"
            load = by_id[before[0].id]
            assert len(after.overlapping(load.segment.range)) <= min(
                factor, max(2, max(load.rates[:3]) // TARGET)
            )
    if len(after.segments) < policy.most:
        assert {each for each, verdict in verdicts.items() if verdict == "hot"} <= set(found.seal)


def names(seal: tuple[SegmentId, ...]) -> list[int]:
    return [each & 0xFFFF_FFFF for each in seal]


@pytest.mark.acceptance(
    "B11",
    differs="coldness is not marked: all segments are looked at again each time, and merged in one scale",
)
def test_cold_neighbours_merge_down_to_the_minimum_and_not_below() -> None:
    policy = ScalingPolicy.by_event_rate(TARGET, segments_min=4)
    assert plan(policy, BUSY, QUIET, BUSY, QUIET, BUSY).seal == ()  # 1 and 3 have no cold neighbour
    assert names(plan(policy, QUIET, QUIET, BUSY, QUIET, BUSY).seal) == [0, 1]
    assert names(plan(policy, QUIET, QUIET, QUIET, QUIET, QUIET).seal) == [0, 1]  # one may be removed
    assert plan(policy, QUIET, QUIET, QUIET, QUIET).seal == ()
    found = plan(ScalingPolicy.by_event_rate(TARGET), QUIET, QUIET, QUIET, QUIET, QUIET)
    assert [str(each) for each in found.ranges] == ["0.0-0.6", "0.6-1.0"]


def test_cold_segments_that_would_be_hot_together_stay_apart() -> None:
    half: Rates = (49.0, 49.0, 49.0, 49.0)
    assert names(plan(ScalingPolicy.by_event_rate(TARGET), half, half, half).seal) == [0, 1]
    more: Rates = (90.0, 51.0, 51.0, 49.0)
    assert plan(ScalingPolicy.by_event_rate(TARGET), more, more).seal == ()


def test_a_hot_segment_splits_by_its_rate_up_to_the_factor_and_the_maximum() -> None:
    assert len(plan(ScalingPolicy.by_event_rate(TARGET), BURST).ranges) == 2
    assert len(plan(ScalingPolicy.by_event_rate(TARGET, factor=4), BURST).ranges) == 4
    assert len(plan(ScalingPolicy.by_event_rate(TARGET, factor=9), BURST).ranges) == 5
    assert len(plan(ScalingPolicy.by_event_rate(TARGET, factor=9, segments_max=3), BURST).ranges) == 3
    full = plan(ScalingPolicy.by_event_rate(TARGET, segments_max=1), BURST)
    assert full.seal == ()
    assert "1 segment is the maximum" in full.verdicts[0].reason


def test_merges_of_the_same_scale_make_room_for_splits() -> None:
    policy = ScalingPolicy.by_event_rate(TARGET, segments_min=2, segments_max=3)
    found = plan(policy, BURST, QUIET, QUIET)
    assert names(found.seal) == [0, 1, 2]
    assert len(found.ranges) == 3


def test_every_verdict_says_why() -> None:
    young, hot, cold, steady = plan_scale(
        ScalingPolicy.by_event_rate(TARGET, segments_min=4),
        loads_of(stream_of(4), (4, BURST), (60, BURST), (60, QUIET), (60, BUSY)),
    ).verdicts
    assert young.verdict is LoadVerdict.YOUNG
    assert young.reason == "young: left alone for 360 s more"
    assert hot.reason == "hot: 501 events/s over 120 s, above 5 x 100; it is split into 2"
    assert cold.reason == "cold: 0 events/s over 1,200 s, below 100 / 2; 4 segments is the minimum"
    assert steady.reason == "steady: 80 events/s over 600 s, target 100"
