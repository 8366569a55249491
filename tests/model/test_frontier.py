"""The frontier of a reader of all segments, against a twin that only knows which segments were read to the end."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.cuts import StreamCut, equal_or_after, verify_cut
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.history import successors
from eventproc.store.model.ids import SegmentId
from tests.model.support import (
    STREAM,
    STREAM_ID,
    Family,
    cut,
    histories,
    history,
    ids_of,
    lengths_of,
    standings,
)

MERGE_THEN_SPLIT = history(3, ([1, 2], [(1 / 3, 1.0)]), ([3], [(1 / 3, 0.5), (0.5, 1.0)]))
"""0, 1 and 2; then 1 and 2 became 3; then 3 became 4 and 5."""


def test_a_merged_segment_opens_when_both_it_took_over_from_are_complete() -> None:
    ids = ids_of(MERGE_THEN_SPLIT)
    frontier = Frontier.from_cut(cut(MERGE_THEN_SPLIT, {0: 1, 1: 2, 2: 3}), MERGE_THEN_SPLIT)
    assert frontier.complete(ids[1], successors(MERGE_THEN_SPLIT, ids[1])) == ()
    assert frontier.offsets() == {ids[0]: 1, ids[2]: 3, ids[3]: -1}
    assert frontier.complete(ids[2], successors(MERGE_THEN_SPLIT, ids[2])) == (ids[3],)
    assert frontier.complete(ids[3], successors(MERGE_THEN_SPLIT, ids[3])) == (ids[4], ids[5])
    assert frontier.offsets() == {ids[0]: 1, ids[4]: 0, ids[5]: 0}


def test_an_offset_moves_forward_only() -> None:
    stream = history(1)
    frontier = Frontier.from_cut(cut(stream, {0: 5}), stream)
    frontier.advance(SegmentId(0), 8)
    assert frontier.held == {0: 8}
    with pytest.raises(AssertionError, match=r"0\.0 moved back from 8 to 7"):
        frontier.advance(SegmentId(0), 7)


def test_what_is_not_held_cannot_be_completed() -> None:
    with pytest.raises(KeyError):
        Frontier({}, {}).complete(SegmentId(0), {})


@given(st.data())
def test_reader_visits_each_segment_once_after_its_predecessors(
    data: st.DataObject,
) -> None:
    stream = data.draw(histories())
    family = Family.of(stream)
    start = data.draw(standings(stream, data.draw(lengths_of(stream))))
    verify_cut(start.cut, stream)
    frontier = Frontier.from_cut(start.cut, stream)
    read, before = start.read, start.cut
    while ready := sorted(frontier.held.keys() & family.sealed):
        finished = data.draw(st.sampled_from(ready))
        opened = frontier.complete(finished, successors(stream, finished))
        assert frozenset(opened) == family.ready(read | {finished}) - family.ready(read)
        read |= {finished}
        frontier.check()
        assert frontier.held.keys() == family.ready(read)
        assert frontier.waiting == {each: family.before[each] - read for each in family.waiting(read)}
        now = StreamCut(STREAM, STREAM_ID, frontier.offsets())
        verify_cut(now, stream)
        assert equal_or_after(now, before, stream)
        again = Frontier.from_cut(now, stream)
        assert (again.held, again.waiting) == (frontier.held, frontier.waiting)
        before = now
    assert read == family.sealed
    for last in stream.epochs[-1].ids:
        frontier.complete(last, {})
    assert frontier.done


@pytest.mark.parametrize("number_with_events", range(6))
def test_all_segments_at_their_ends_are_passed_in_one_step_up_to_those_with_events(
    number_with_events: int,
) -> None:
    ids = ids_of(MERGE_THEN_SPLIT)
    sealed = {ids[1], ids[2], ids[3]} - {ids[number_with_events]}
    frontier = Frontier({ids[number]: 0 for number in range(3)}, {})
    frontier.pass_ended(MERGE_THEN_SPLIT, lambda segment, _: segment in sealed)
    expected = {
        1: {ids[0]: 0, ids[1]: 0, ids[3]: -1},
        2: {ids[0]: 0, ids[2]: 0, ids[3]: -1},
        3: {ids[0]: 0, ids[3]: 0},
    }.get(number_with_events, {ids[0]: 0, ids[4]: 0, ids[5]: 0})
    assert frontier.offsets() == expected
    frontier.check()


def test_a_bounded_step_continues_where_it_stopped() -> None:
    ids = ids_of(MERGE_THEN_SPLIT)
    frontier = Frontier({ids[number]: 0 for number in range(3)}, {})
    sealed = {ids[number] for number in (1, 2, 3)}
    for _ in sealed:
        frontier.check()
        frontier.pass_ended(MERGE_THEN_SPLIT, lambda segment, _: segment in sealed, passed_max=1)
    assert frontier.offsets() == {ids[0]: 0, ids[4]: 0, ids[5]: 0}
