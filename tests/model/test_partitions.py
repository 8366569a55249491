"""Partitions: slots, growth out of the reserve, and the partition of a key, against the definition."""

from __future__ import annotations

import math
from bisect import bisect_right

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import InvalidArgument, ScaleRefused
from eventproc.store.model.ids import number_of
from eventproc.store.model.limits import PARTITIONS_MAX, POINT_BITS
from eventproc.store.model.partitions import (
    Router,
    check_partitions,
    grow,
    growth,
    is_reserve,
    opening_epoch,
    partition_ids,
    reserve_of,
    stored_point,
    verify_growth,
)
from eventproc.store.model.policies import Partitioning, ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange

LAST = 1.0 - 2.0**-POINT_BITS
"""The highest point of a key."""

POSITIONS = st.one_of(
    st.integers(0, 2**POINT_BITS - 1).map(lambda bits: bits * 2.0**-POINT_BITS),
    st.sampled_from([0.0, LAST, 0.5, math.nextafter(0.5, 0.0)]),
)

COUNTS = st.integers(1, PARTITIONS_MAX)


def topic_epoch(count: int) -> Epoch:
    config = StreamConfig(ScalingPolicy.partitions(count), Partitioning.KEY)
    return opening_epoch(config, created_ms=1)


@given(COUNTS)
def test_a_topic_begins_with_its_partitions_and_a_reserve(count: int) -> None:
    epoch = topic_epoch(count)
    check_partitions(epoch)
    assert [number_of(each) for each in partition_ids(epoch)] == list(range(count))
    assert epoch.segments[0].range == KeyRange(0.0, 1 / 1024)
    assert reserve_of(epoch) == epoch.ids[-1]


@given(COUNTS, st.lists(st.integers(0, 400), max_size=5))
def test_growth_keeps_all_partitions_and_replaces_only_the_reserve(count: int, steps: list[int]) -> None:
    epoch = topic_epoch(count)
    for step in steps:
        before = epoch
        if len(partition_ids(epoch)) + step > PARTITIONS_MAX:
            with pytest.raises(InvalidArgument, match="at most 1,023"):
                growth(epoch, step)
            continue
        seal, ranges = growth(epoch, step)
        epoch = grow(epoch, topic="s/t", seal=seal, ranges=ranges, now_ms=0, request_id="r")
        check_partitions(epoch)
        assert partition_ids(epoch)[: len(partition_ids(before))] == partition_ids(before)
        assert set(before.ids) - set(epoch.ids) == {reserve_of(before)}
        assert len(epoch.opened) == step + 1
        assert epoch.created_ms > before.created_ms


@given(COUNTS, POSITIONS)
def test_the_partition_of_a_key_is_the_floor_of_its_position_times_n(count: int, point: float) -> None:
    number = number_of(Router(topic_epoch(count)).segment(point))
    exact, rest = divmod(int(point * 2**POINT_BITS) * count, 2**POINT_BITS)
    rounded_up = rest >= 2**POINT_BITS - 2**10 and exact + 1 < count
    assert number == exact or (rounded_up and number == exact + 1)


@given(COUNTS, POSITIONS)
def test_a_stored_position_lies_in_the_slot_of_its_partition(count: int, point: float) -> None:
    epoch = topic_epoch(count)
    for number in {0, count // 2, count - 1}:
        where = stored_point(number, point)
        assert number_of(epoch.find(where).id) == number
    assert math.isnan(stored_point(count, math.nan))


@given(COUNTS, st.lists(POSITIONS))
def test_borders_of_keys_agree_with_the_partition_of_a_key(count: int, points: list[float]) -> None:
    router = Router(topic_epoch(count))
    borders = router.key_borders
    near = [where for border in borders for where in (border, math.nextafter(border, 0.0))]
    for point in [*points, *near]:
        index = bisect_right(borders, point) - 1
        assert router.segment(point) == router.segments[index]


def test_a_topic_is_scaled_by_growth_alone() -> None:
    epoch = topic_epoch(3)
    seal, ranges = growth(epoch, 2)
    verify_growth(epoch, topic="s/t", seal=seal, ranges=ranges)
    halves = KeyRange(0.0, 0.5 / 1024), KeyRange(0.5 / 1024, 1 / 1024)
    for other_seal, other in (
        ((epoch.ids[0],), halves),
        (epoch.ids, (KeyRange(0.0, 1.0),)),
        (seal, ()),
        (seal, (ranges[0], KeyRange(ranges[1].low, 1.0))[:1]),
        (epoch.ids[:2], (KeyRange(0.0, 2 / 1024),)),
    ):
        with pytest.raises(ScaleRefused, match="add_partitions"):
            verify_growth(epoch, topic="s/t", seal=other_seal, ranges=other)
    grown = grow(epoch, topic="s/t", seal=seal, ranges=ranges, now_ms=0, request_id=None)
    with pytest.raises(ScaleRefused, match="it has 5 partitions now"):
        verify_growth(grown, topic="s/t", seal=seal, ranges=ranges)


def test_the_reserve_is_recognised_by_its_number() -> None:
    epoch = topic_epoch(2)
    assert [is_reserve(each) for each in epoch.ids] == [False, False, True]


@pytest.mark.parametrize("count", [0, -1, 1024])
def test_a_number_of_partitions_outside_the_limits_is_refused(count: int) -> None:
    with pytest.raises(InvalidArgument):
        ScalingPolicy.partitions(count)


def test_a_partition_that_does_not_exist_is_refused() -> None:
    router = Router(topic_epoch(2))
    with pytest.raises(InvalidArgument, match="s/t has the partitions 0 to 1"):
        router.partition(2, topic="s/t")
    stream = Router(opening_epoch(StreamConfig(), created_ms=1))
    with pytest.raises(InvalidArgument, match="is not a topic"):
        stream.partition(0, topic="s/t")
