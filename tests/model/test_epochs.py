"""Epochs and the scales between them, against a twin that looks at points of the key space."""

from __future__ import annotations

import pickle
from itertools import pairwise

import attrs
import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.epochs import Epoch, first_epoch, merge_ranges, next_epoch, split_ranges
from eventproc.store.model.errors import InvalidArgument, NotFound, Rejected, ScaleRefused
from eventproc.store.model.ids import SegmentId, epoch_of, number_of, segment_id
from eventproc.store.model.limits import SEGMENTS_MAX
from eventproc.store.model.ranges import KeyRange
from tests.model.support import STREAM, histories, scaled, share_a_point
from tests.support.list_history import ListHistory

FIVE = first_epoch(5, created_ms=1000)
"""Segments 0 to 4 of a fifth each; 0.2 and so on are exactly their borders."""

Ranges = list[tuple[float, float]]


def shape(epoch: Epoch) -> list[tuple[int, int, float, float]]:
    return [(number_of(s.id), epoch_of(s.id), s.range.low, s.range.high) for s in epoch.segments]


def test_a_stream_begins_with_equal_segments_numbered_from_zero() -> None:
    assert shape(first_epoch(2, created_ms=5)) == [(0, 0, 0.0, 0.5), (1, 0, 0.5, 1.0)]
    assert [segment.id for segment in FIVE.opened] == [0, 1, 2, 3, 4]


@pytest.mark.acceptance(
    "A1", differs="0.0-0.0 is refused like any other empty range; so is a scale of nothing at all"
)
@pytest.mark.parametrize(
    "seal, ranges",
    [
        ([4], []),
        ([], []),
        ([], [(0.8, 1.0)]),
        ([4], [(0.8, 0.8)]),
        ([0], [(0.0, 0.0)]),
        ([0], [(0.0, 0.0), (0.0, 0.2)]),
        ([4], [(1.0, 0.8)]),
        ([4], [(0.8, 0.9), (0.9, 0.9), (0.9, 1.0)]),
        ([4], [(0.8, 0.99)]),
        ([4], [(0.8, 0.9), (0.91, 1.0)]),
        ([4], [(0.81, 1.0)]),
        ([4], [(0.8, 0.9), (0.85, 1.0)]),
        ([4], [(0.8, 1.0), (0.8, 0.9)]),
        ([4], [(0.8, 1.0), (0.8, 1.0)]),
        ([4], [(0.8, 0.9), (0.8, 0.9), (0.9, 1.0)]),
        ([4], [(0.7, 1.0)]),
        ([4], [(0.8, 1.1)]),
        ([0], [(-0.1, 0.2)]),
        ([0, 1], [(0.0, 0.2)]),
        ([0, 1], [(0.0, 0.3), (0.2, 0.4)]),
        ([1, 3], [(0.2, 0.8)]),
        ([1, 3], [(0.2, 0.4), (0.6, 0.7)]),
        ([0], [(0.0, float("nan")), (0.1, 0.2)]),
    ],
)
def test_new_ranges_must_cover_exactly_what_is_sealed(seal: list[int], ranges: Ranges) -> None:
    with pytest.raises(InvalidArgument):
        scaled(FIVE, seal, ranges)


@pytest.mark.acceptance("A1")
@pytest.mark.parametrize(
    "seal, ranges, expected",
    [
        ([4], [(0.8, 0.9), (0.9, 1.0)], [0, 1, 2, 3, 5, 6]),
        ([0, 1], [(0.0, 0.4)], [5, 2, 3, 4]),
        ([0, 1, 3, 4], [(0.0, 0.4), (0.6, 1.0)], [5, 2, 6]),
        ([0, 1, 3], [(0.0, 0.4), (0.6, 0.65), (0.65, 0.7), (0.7, 0.75), (0.75, 0.8)], [5, 2, 6, 7, 8, 9, 4]),
        ([3, 0, 1], [(0.7, 0.8), (0.0, 0.4), (0.6, 0.7)], [6, 2, 7, 5, 4]),
        ([2], [(0.4, 0.6)], [0, 1, 5, 3, 4]),
        ([0, 1, 2, 3, 4], [(0.0, 0.33), (0.33, 1.0)], [5, 6]),
    ],
)
def test_several_merges_and_splits_in_any_order_are_one_scale(
    seal: list[int], ranges: Ranges, expected: list[int]
) -> None:
    ranges = [(FIVE_ENDS.get(low, low), FIVE_ENDS.get(high, high)) for low, high in ranges]
    epoch = scaled(FIVE, seal, ranges)
    epoch.check()
    assert [number_of(each) for each in epoch.ids] == expected
    assert {
        number_of(segment.id): (segment.range.low, segment.range.high) for segment in epoch.opened
    } == dict(enumerate(ranges, start=5))


FIVE_ENDS = {round(segment.range.high, 1): segment.range.high for segment in FIVE.segments}
"""The exact ends: 3/5 is not the double nearest to 0.6 times anything else."""


@pytest.mark.acceptance("A1")
@pytest.mark.parametrize("seal", [[5], [0, 9]])
def test_only_active_segments_can_be_sealed_and_that_is_said_first(seal: list[int]) -> None:
    with pytest.raises(ScaleRefused, match="not active in epoch 0"):
        scaled(FIVE, seal, [(0.5, 0.1)])


def test_a_segment_is_sealed_once() -> None:
    with pytest.raises(InvalidArgument, match=r"'0\.0, 4\.0, 0\.0': each may be named only once"):
        scaled(FIVE, [0, 4, 0], [(0.0, 0.2), (0.8, 1.0)])


@pytest.mark.acceptance("A1")
def test_a_scale_leaves_at_least_the_fewest_segments_wanted() -> None:
    assert len(scaled(FIVE, [0, 1], [(0.0, 0.4)], segments_min=4).segments) == 4
    with pytest.raises(ScaleRefused, match="4 segments would remain, 5 to"):
        scaled(FIVE, [0, 1], [(0.0, 0.4)], segments_min=5)


def test_a_scale_beyond_the_most_segments_is_refused() -> None:
    full = first_epoch(SEGMENTS_MAX, created_ms=0)
    seal, ranges = split_ranges(full, SegmentId(0), 2, stream="s/t")
    with pytest.raises(ScaleRefused, match="1,025 segments would remain, 1 to 1,024 are possible"):
        next_epoch(full, stream=STREAM, seal=seal, ranges=ranges, now_ms=0, segments_min=1, request_id=None)


@pytest.mark.parametrize("now_ms, created_ms", [(5000, 5000), (1001, 1001), (1000, 1001), (0, 1001)])
def test_time_grows_from_epoch_to_epoch_whatever_the_clock_does(now_ms: int, created_ms: int) -> None:
    assert scaled(FIVE, [2], [(0.4, 0.6)], now_ms=now_ms).created_ms == created_ms


@given(histories())
def test_every_epoch_tiles_and_keeps_what_it_did_not_seal(stream: ListHistory) -> None:
    for epoch in stream.epochs:
        epoch.check()
    for before, after in pairwise(stream.epochs):
        assert (after.number, after.created_ms > before.created_ms) == (before.number + 1, True)
        kept = set(before.segments) & set(after.segments)
        assert set(after.opened) == set(after.segments) - kept
        assert min(map(number_of, {s.id for s in after.opened})) > max(map(number_of, before.ids))
        splits = sum(
            sum(share_a_point(old.range, new.range) for new in after.segments) > 1 for old in before.segments
        )
        merges = sum(
            sum(share_a_point(old.range, new.range) for old in before.segments) > 1 for new in after.segments
        )
        assert (after.splits - before.splits, after.merges - before.merges) == (splits, merges)


@given(st.data())
def test_a_scale_is_accepted_when_each_point_is_covered_as_often_as_before(data: st.DataObject) -> None:
    epoch = data.draw(histories(scales_max=2)).epochs[-1]
    seal = data.draw(st.sets(st.sampled_from(sorted(epoch.ids))))
    ends = sorted(
        {end for each in epoch.segments for end in (each.range.low, each.range.high)} | {0.25, 0.75}
    )
    pairs = st.tuples(st.sampled_from(ends), st.sampled_from(ends)).map(lambda pair: KeyRange(*pair))
    exact = [epoch.segment(each, stream="s/t").range for each in sorted(seal)]
    ranges = data.draw(st.one_of(st.lists(pairs, max_size=3), st.permutations(exact)))
    points = [(low + high) / 2 for low, high in pairwise(ends)]
    same = all(
        sum(each.contains(point) for each in ranges) == (epoch.find(point).id in seal) for point in points
    )
    wanted = bool(ranges) and all(each.low < each.high for each in ranges) and same
    try:
        following = next_epoch(
            epoch, stream=STREAM, seal=seal, ranges=ranges, now_ms=0, segments_min=1, request_id="r"
        )
    except Rejected:
        assert not wanted
    else:
        assert wanted
        following.check()
        assert following.request_id == "r"


@given(histories(), st.floats(0, 1, exclude_max=True))
def test_a_position_belongs_to_the_one_segment_that_contains_it(stream: ListHistory, point: float) -> None:
    for epoch in stream.epochs:
        (owner,) = [segment for segment in epoch.segments if segment.range.contains(point)]
        assert epoch.find(point) is owner


@given(histories(), st.floats(0, 1), st.floats(0, 1))
def test_overlapping_segments_are_those_that_share_a_point(
    stream: ListHistory, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    if low < high:
        for epoch in stream.epochs:
            expected = [
                segment for segment in epoch.segments if share_a_point(segment.range, KeyRange(low, high))
            ]
            assert list(epoch.overlapping(KeyRange(low, high))) == expected


def test_a_split_names_its_segment_and_the_halves() -> None:
    assert split_ranges(FIVE, SegmentId(0), 2, stream="s/t") == (
        (0,),
        (KeyRange(0.0, 0.1), KeyRange(0.1, 0.2)),
    )


def test_a_merge_joins_neighbours_named_in_any_order() -> None:
    one, two, three = segment_id(1, 0), segment_id(2, 0), segment_id(3, 0)
    assert merge_ranges(FIVE, [three, one, two], stream="s/t") == ((one, two, three), (KeyRange(0.2, 0.8),))
    for strangers in ([one], [one, three], [], [one, one]):
        with pytest.raises(InvalidArgument, match="touching key ranges"):
            merge_ranges(FIVE, strangers, stream="s/t")


def test_a_segment_that_is_not_active_is_not_found() -> None:
    with pytest.raises(NotFound, match=r"no segment '7\.1' of s/t in epoch 0"):
        FIVE.segment(segment_id(7, 1), stream="s/t")


def test_an_epoch_pickles_after_it_was_asked() -> None:
    FIVE.find(0.3)
    assert FIVE.segment(SegmentId(1), stream="s/t").id == 1
    assert pickle.loads(pickle.dumps(FIVE)) == FIVE


@pytest.mark.parametrize(
    "broken",
    [
        attrs.evolve(FIVE, segments=FIVE.segments[:-1]),
        attrs.evolve(FIVE, segments=FIVE.segments[::-1]),
        attrs.evolve(FIVE, segments=(*FIVE.segments[:-1], attrs.evolve(FIVE.segments[-1], id=SegmentId(0)))),
        attrs.evolve(
            FIVE, segments=(*FIVE.segments[:-1], attrs.evolve(FIVE.segments[-1], id=segment_id(4, 1)))
        ),
        attrs.evolve(FIVE, segments=()),
    ],
)
def test_a_broken_epoch_does_not_pass_its_check(broken: Epoch) -> None:
    with pytest.raises(AssertionError):
        broken.check()
