"""Stream cuts: their text, which ones are valid, and how they lie to each other."""

from __future__ import annotations

import pickle
import random
from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from eventproc.store.model.cuts import (
    NOT_REACHED,
    CutOrder,
    StreamCut,
    compare_cuts,
    earlier,
    equal_or_after,
    later,
    segments_between,
    verify_cut,
)
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.ids import SegmentId, segment_id
from tests.model.support import (
    STREAM,
    STREAM_ID,
    Family,
    Standing,
    all_segments,
    cut,
    histories,
    history,
    lengths_of,
    standings,
)
from tests.support.list_history import ListHistory

MERGE = history(3, ([1, 2], [(1 / 3, 1.0)]), ([3], [(1 / 3, 0.5), (0.5, 1.0)]))
"""0, 1 and 2; then 1 and 2 became 3; then 3 became 4 and 5."""

SPLITS = history(
    2,
    ([1], [(0.5, 0.75), (0.75, 1.0)]),
    ([3], [(0.75, 0.9), (0.9, 1.0)]),
    ([2], [(0.5, 0.6), (0.6, 0.75)]),
    ([0], [(0.0, 0.2), (0.2, 0.5)]),
)
"""Epochs {0 1}, {0 2 3}, {0 2 4 5}, {0 4 5 6 7}, {4 to 9}."""


def is_valid(stream: ListHistory, candidate: StreamCut) -> bool:
    try:
        verify_cut(candidate, stream)
    except InvalidCut:
        return False
    return True


@given(
    st.dictionaries(
        st.builds(segment_id, st.integers(0, 9), st.integers(0, 9)), st.integers(-1, 99), min_size=1
    )
)
@example({segment_id(0, 0): 2**63 - 1})
def test_a_cut_survives_its_text_and_pickling(offsets: dict[SegmentId, int]) -> None:
    original = StreamCut(STREAM, STREAM_ID, offsets)
    for copy in (StreamCut.parse(str(original), STREAM), pickle.loads(pickle.dumps(original))):
        assert (copy, hash(copy), list(copy.offsets)) == (original, hash(original), sorted(offsets))


def test_the_text_of_a_cut_names_its_stream_and_its_segments_in_order() -> None:
    assert str(cut(MERGE, {3: -1, 0: 120, 2: 7})) == "7:0.0=120,2.0=7,3.1=-1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "7:",
        ":0.0=1",
        "7:0.0",
        "7:0.0=-2",
        "7:0.0=1,",
        "7:0.0=1,0.0=2",
        "7:x=1",
        "7:0.0= 1",
        "7:1.2.3=1",
        f"7:0.0={2**63}",
        f"{2**63}:0.0=1",
        "7:0.0=" + "9" * 5000,
        "7:" + "9" * 5000 + "=1",
        "9" * 5000 + ":0.0=1",
    ],
)
def test_a_malformed_cut_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InvalidCut) as refusal:
        StreamCut.parse(text, STREAM)
    assert (refusal.value.stream, refusal.value.cut) == (STREAM, text)


def test_a_cut_cannot_be_changed_and_does_not_follow_its_source() -> None:
    source = {segment_id(0, 0): 5}
    made = StreamCut(STREAM, STREAM_ID, source)
    source[segment_id(0, 0)] = 6
    assert made.offsets == {0: 5}
    with pytest.raises(TypeError):
        made.offsets[segment_id(0, 0)] = 6  # type: ignore[index]


@pytest.mark.parametrize(
    "offsets, reason",
    [
        ({}, "no segment of it covers 0.0-1.0"),
        ({0: 5}, "no segment of it covers"),
        ({0: 5, 2: 9}, "no segment of it covers"),
        ({0: 5, 1: 1, 3: 9}, "overlap"),
        ({0: 5, 1: 1, 2: 2, 3: -1}, "none of its predecessors was read to its end"),
        ({0: 5, 2: 9, 4: -1, 5: -1}, "behind it in one part of its range and not in another"),
        ({0: 5, 2: 9, 3: -1, 4: -1}, "none of its predecessors was read to its end"),
        ({0: 5, 1: -1, 2: 4}, "has no unread predecessor"),
        ({0: -1, 1: -1, 2: -1}, "has no unread predecessor"),
        ({0: 5, 4: -1, 5: 1}, "has no unread predecessor"),
        ({0: -2, 1: 0, 2: 0}, "-2 is not an offset"),
    ],
)
def test_a_cut_that_no_reader_can_stand_at_is_refused_with_the_reason(
    offsets: dict[int, int], reason: str
) -> None:
    with pytest.raises(InvalidCut) as refusal:
        verify_cut(cut(MERGE, offsets), MERGE)
    assert reason in refusal.value.reason


@pytest.mark.parametrize("unknown", [segment_id(9, 0), segment_id(3, 9), segment_id(3, 0)])
def test_a_cut_with_an_unknown_segment_is_refused_by_its_id(unknown: SegmentId) -> None:
    with pytest.raises(InvalidCut, match=r"is not a segment of this stream"):
        verify_cut(StreamCut(STREAM, STREAM_ID, {segment_id(0, 0): 1, unknown: 1}), MERGE)


def test_a_cut_of_another_stream_is_refused() -> None:
    with pytest.raises(InvalidCut, match="a cut of shop/returns"):
        verify_cut(StreamCut("shop/returns", STREAM_ID, {segment_id(n, 0): 1 for n in range(3)}), MERGE)


def test_a_compacted_history_knows_the_segments_it_still_has() -> None:
    late = ListHistory(STREAM, MERGE.epochs[1:])
    verify_cut(cut(MERGE, {0: 5, 3: 2}), late)
    verify_cut(cut(MERGE, {0: 5, 4: 2, 5: 2}), late)
    assert not is_valid(late, cut(MERGE, {0: 5, 1: 2, 2: 2}))


@given(st.data())
def test_exactly_the_positions_of_a_reader_are_valid(data: st.DataObject) -> None:
    stream = data.draw(histories(scales_max=3))
    family = Family.of(stream)
    shapes = {family.shape(read) for read in family.positions()}
    base = dict(data.draw(st.sampled_from(sorted(map(sorted, shapes)))))
    for changed in data.draw(st.lists(st.sampled_from(sorted(all_segments(stream))), max_size=3)):
        if (has_offset := data.draw(st.sampled_from([None, False, True]))) is None:
            base.pop(changed, None)
        else:
            base[changed] = has_offset
    candidate = StreamCut(
        STREAM, STREAM_ID, {each: 3 if has_offset else NOT_REACHED for each, has_offset in base.items()}
    )
    assert is_valid(stream, candidate) == (frozenset(base.items()) in shapes)


def naive_order(stream: ListHistory, a: Standing, b: Standing) -> CutOrder:
    """Compare at a point within each of the finest pieces, by the sequence of segments there."""
    ends = sorted(
        {end for each in all_segments(stream).values() for end in (each.range.low, each.range.high)}
    )
    signs = set[int]()
    for low, high in pairwise(ends):
        chain = list(dict.fromkeys(epoch.find((low + high) / 2).id for epoch in stream.epochs))
        places = []
        for standing in (a, b):
            step = next(index for index, each in enumerate(chain) if each not in standing.read)
            places.append((step, standing.cut.offsets.get(chain[step], NOT_REACHED)))
        signs.add((places[0] > places[1]) - (places[0] < places[1]))
    if -1 not in signs:
        return CutOrder.EQUAL_OR_AFTER
    return CutOrder.OVERLAPS if 1 in signs else CutOrder.BEFORE


@given(st.data())
def test_two_cuts_are_ordered_as_their_points_are(data: st.DataObject) -> None:
    stream = data.draw(histories())
    lengths = data.draw(lengths_of(stream))
    a, b = data.draw(standings(stream, lengths)), data.draw(standings(stream, lengths))
    order = naive_order(stream, a, b)
    assert compare_cuts(a.cut, b.cut, stream) is order
    assert equal_or_after(a.cut, b.cut, stream) == (order is CutOrder.EQUAL_OR_AFTER)
    assert compare_cuts(a.cut, a.cut, stream) is CutOrder.EQUAL_OR_AFTER


@given(st.data())
def test_earlier_and_later_are_the_nearest_cuts_before_and_after_both(data: st.DataObject) -> None:
    stream = data.draw(histories())
    lengths = data.draw(lengths_of(stream))
    a, b, other = (data.draw(standings(stream, lengths)).cut for _ in range(3))
    low, high = earlier(a, b, stream), later(a, b, stream)
    verify_cut(low, stream)
    verify_cut(high, stream)
    for each in (a, b):
        assert equal_or_after(each, low, stream)
        assert equal_or_after(high, each, stream)
    if equal_or_after(a, other, stream) and equal_or_after(b, other, stream):
        assert equal_or_after(low, other, stream)
    if equal_or_after(other, a, stream) and equal_or_after(other, b, stream):
        assert equal_or_after(other, high, stream)
    assert earlier(a, a, stream) == later(a, a, stream) == a
    assert earlier(a, b, stream) == earlier(b, a, stream)


@pytest.mark.acceptance(
    "A9", differs="a cut that waits for a segment is compared by what is next at each point, not by pairs"
)
@pytest.mark.parametrize(
    "a, b, order",
    [
        ({0: 1, 1: 1}, {0: 1, 1: 1}, CutOrder.EQUAL_OR_AFTER),
        ({0: 2, 1: 1}, {0: 1, 1: 1}, CutOrder.EQUAL_OR_AFTER),
        ({0: 1, 1: 1}, {0: 2, 1: 1}, CutOrder.BEFORE),
        ({0: 1, 1: 2}, {0: 2, 1: 1}, CutOrder.OVERLAPS),
        ({0: 1, 2: 0, 3: 0}, {0: 1, 1: 99}, CutOrder.EQUAL_OR_AFTER),
        ({0: 1, 1: 99}, {0: 1, 2: 0, 3: 0}, CutOrder.BEFORE),
        ({0: 1, 2: 0, 3: 0}, {0: 2, 1: 99}, CutOrder.OVERLAPS),
        ({0: 1, 2: 5, 4: 0, 5: 0}, {0: 1, 6: 0, 7: 0, 3: 5}, CutOrder.OVERLAPS),
        ({8: 0, 9: 0, 2: 1, 3: 1}, {0: 9, 2: 1, 3: 1}, CutOrder.EQUAL_OR_AFTER),
    ],
)
def test_cuts_before_after_and_crossing(a: dict[int, int], b: dict[int, int], order: CutOrder) -> None:
    assert compare_cuts(cut(SPLITS, a), cut(SPLITS, b), SPLITS) is order


@pytest.mark.acceptance(
    "A5", differs="the rules alone: that rows and bytes are deleted is shown with the workflow"
)
def test_each_truncation_keeps_the_segments_of_its_cut_and_none_goes_back() -> None:
    assert [{each & 0xFF for each in epoch.ids} for epoch in SPLITS.epochs] == [
        {0, 1},
        {0, 2, 3},
        {0, 2, 4, 5},
        {0, 4, 5, 6, 7},
        {4, 5, 6, 7, 8, 9},
    ]
    heads = [
        ({0: 1, 1: 1}, set[int]()),
        ({0: 1, 2: 1, 4: 1, 5: 1}, {1, 3}),
        ({2: 10, 4: 10, 5: 10, 8: 10, 9: 10}, {0, 1, 3}),  # of epochs 2, 2, 2, 4 and 4
        ({6: 10, 7: 10, 4: 10, 5: 10, 8: 10, 9: 10}, {0, 1, 2, 3}),
    ]
    cuts = [cut(SPLITS, offsets) for offsets, _ in heads]
    for index, (_, deleted) in enumerate(heads):
        head = cuts[index]
        verify_cut(head, SPLITS)
        kept = segments_between(SPLITS, head, None)
        assert {each & 0xFF for each in set(all_segments(SPLITS)) - set(kept)} == deleted
        for former in cuts[:index]:
            assert equal_or_after(head, former, SPLITS)
            assert not equal_or_after(former, head, SPLITS)


@pytest.mark.acceptance("A6")
def test_one_segment_of_any_epoch_for_each_of_a_hundred_ranges_is_a_cut() -> None:
    everything = [(index / 100, (index + 1) / 100) for index in range(100)]
    stream = history(100, *((range(100 * epoch, 100 * epoch + 100), everything) for epoch in range(10)))
    source = random.Random(6)
    for _ in range(20):
        offsets = {100 * source.randrange(11) + index: source.randrange(50) for index in range(100)}
        verify_cut(cut(stream, offsets), stream)
    with pytest.raises(InvalidCut, match="no segment of it covers"):
        verify_cut(cut(stream, {0: 0}), stream)


def test_a_tail_is_verified_from_its_own_epoch_alone() -> None:
    class OneEpoch(ListHistory):
        def epoch(self, number: int) -> Epoch:
            assert number == 4, "only the active epoch is needed"
            return super().epoch(number)

    verify_cut(cut(SPLITS, dict.fromkeys(range(4, 10), 3)), OneEpoch(STREAM, SPLITS.epochs))
