"""Which segments lie between two cuts. Sizes are shown with the stored history: tests/streams/test_queries.py."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from eventproc.store.model.cuts import equal_or_after, segments_between
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId
from tests.model.support import (
    all_segments,
    cut,
    histories,
    history,
    lengths_of,
    standings,
)
from tests.support.list_history import ListHistory

STREAM_OF_EIGHT = history(
    3,
    ([1, 2], [(1 / 3, 1.0)]),
    ([0], [(0.0, 0.2), (0.2, 1 / 3)]),
    ([3], [(1 / 3, 0.5), (0.5, 1.0)]),
)
"""Epochs {0 1 2}, {0 3}, {4 5 3}, {4 5 6 7}."""


def numbers_between(
    stream: ListHistory, start: dict[int, int] | None, end: dict[int, int] | None
) -> set[int]:
    found = segments_between(
        stream,
        None if start is None else cut(stream, start),
        None if end is None else cut(stream, end),
    )
    assert list(found) == sorted(set(found))
    return {each & 0xFFFF_FFFF for each in found}


@pytest.mark.acceptance(
    "A7", differs="on a smaller stream; a segment not reached in the later cut is included too"
)
@pytest.mark.parametrize(
    "start, end, expected",
    [
        (None, None, {0, 1, 2, 3, 4, 5, 6, 7}),
        (None, {0: 1, 1: 1, 2: 1}, {0, 1, 2}),
        (None, {0: 1, 3: 1}, {0, 1, 2, 3}),
        (None, {0: 1, 2: 1, 3: -1}, {0, 1, 2, 3}),
        ({0: 1, 2: 1, 3: -1}, {0: 1, 2: 5, 3: -1}, {0, 2, 3}),
        ({0: 1, 2: 1, 3: -1}, {4: 0, 5: 0, 6: 0, 7: 0}, {0, 2, 3, 4, 5, 6, 7}),
        ({0: 1, 3: 1}, {4: 0, 5: 0, 3: 1}, {0, 3, 4, 5}),
        ({0: 1, 1: 1, 2: 1}, {0: 1, 6: 1, 7: 1}, {0, 1, 2, 3, 6, 7}),
        ({4: 1, 5: 1, 6: 1, 7: 1}, None, {4, 5, 6, 7}),
        ({4: 1, 5: 1, 3: 1}, None, {3, 4, 5, 6, 7}),
    ],
)
def test_the_segments_between_two_cuts(
    start: dict[int, int] | None, end: dict[int, int] | None, expected: set[int]
) -> None:
    assert numbers_between(STREAM_OF_EIGHT, start, end) == expected


@pytest.mark.parametrize("end", [{0: 1, 1: 1, 2: 1}, {0: 9, 1: 9, 2: 9}])
def test_nothing_lies_between_a_cut_and_one_that_is_not_after_it(end: dict[int, int]) -> None:
    start = cut(STREAM_OF_EIGHT, {0: 5, 3: 5})
    with pytest.raises(InvalidArgument, match="it is before"):
        segments_between(STREAM_OF_EIGHT, start, cut(STREAM_OF_EIGHT, end))


@given(st.data())
def test_what_lies_between_is_what_was_read_from_one_to_the_other(data: st.DataObject) -> None:
    stream = data.draw(histories())
    lengths = data.draw(lengths_of(stream))
    start, end = data.draw(standings(stream, lengths)), data.draw(standings(stream, lengths))
    assume(equal_or_after(end.cut, start.cut, stream))
    named = {*start.cut.offsets, *end.cut.offsets}
    assert set(segments_between(stream, start.cut, end.cut)) == (end.read - start.read) | named
    assert set(segments_between(stream, None, end.cut)) == end.read | set(end.cut.offsets)
    unread = all_segments(stream).keys() - start.read
    assert set(segments_between(stream, start.cut, None)) == unread
    page = data.draw(st.integers(1, 4))
    listed: list[SegmentId] = []
    while found := segments_between(
        stream, start.cut, end.cut, after=listed[-1] if listed else None, limit=page
    ):
        listed += found
    assert tuple(listed) == segments_between(stream, start.cut, end.cut)
