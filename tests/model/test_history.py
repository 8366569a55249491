"""Questions to a stream's history against answers found by looking at everything."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import (
    get_segment,
    predecessors,
    successors,
)
from eventproc.store.model.ids import segment_id
from tests.model.support import STREAM, Family, all_segments, histories, history, ids_of
from tests.support.list_history import ListHistory

FOUR_SCALES = history(
    5,
    ([3, 4], [(0.6, 1.0)]),
    ([1, 2, 5], [(0.2, 0.3), (0.3, 0.4), (0.4, 1.0)]),
    ([7, 8], [(0.3, 0.35), (0.35, 0.6), (0.6, 1.0)]),
    ([9, 10, 11], [(0.3, 1.0)]),
)
"""3,4 became 5; 1 became 6,7 and 2,5 became 8; 7,8 became 9,10,11, and 10 overlaps both; these became 12."""


@pytest.mark.acceptance("A2")
@pytest.mark.parametrize(
    "number, expected",
    [
        (0, {}),
        (1, {6: [1], 7: [1]}),
        (2, {8: [2, 5]}),
        (3, {5: [3, 4]}),
        (4, {5: [3, 4]}),
        (5, {8: [2, 5]}),
        (6, {}),
        (7, {9: [7], 10: [7, 8]}),
        (8, {10: [7, 8], 11: [8]}),
        (9, {12: [9, 10, 11]}),
        (10, {12: [9, 10, 11]}),
        (11, {12: [9, 10, 11]}),
        (12, {}),
    ],
)
def test_successors_come_with_all_they_took_over_from(number: int, expected: dict[int, list[int]]) -> None:
    ids = ids_of(FOUR_SCALES)
    assert successors(FOUR_SCALES, ids[number]) == {
        ids[each]: tuple(ids[before] for before in found) for each, found in expected.items()
    }


@given(histories())
def test_successors_and_predecessors_are_what_overlaps_across_a_scale(stream: ListHistory) -> None:
    family = Family.of(stream)
    for each, segment in all_segments(stream).items():
        assert get_segment(stream, each) == segment
        assert frozenset(predecessors(stream, each)) == family.before[each]
        assert {after: frozenset(before) for after, before in successors(stream, each).items()} == {
            after: family.before[after] for after in family.after[each]
        }


@given(histories(), st.data())
def test_a_compacted_history_answers_alike_for_what_it_still_has(
    stream: ListHistory, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, stream.current))
    late = ListHistory(STREAM, stream.epochs[first:])
    kept = all_segments(late)
    for each in all_segments(stream):
        if each not in kept:
            with pytest.raises(NotFound):
                successors(late, each)
            continue
        assert late.sealed_in(each) == stream.sealed_in(each)
        assert successors(late, each) == successors(stream, each)
        oldest = each in late.epochs[0].ids
        assert predecessors(late, each) == (() if oldest else predecessors(stream, each))


@pytest.mark.parametrize("unknown", [segment_id(99, 0), segment_id(0, 1), segment_id(13, 9)])
def test_a_segment_that_never_was_is_not_taken_for_an_active_one(unknown: int) -> None:
    for question in (get_segment, ListHistory.sealed_in, successors, predecessors):
        with pytest.raises(NotFound):
            question(FOUR_SCALES, segment_id(unknown & 0xFFFF_FFFF, unknown >> 32))
