"""What lies between two cuts: segments and bytes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eventproc.store.model.cuts import equal_or_after, segments_between, size_between
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.history import ListHistory
from eventproc.store.model.ids import SegmentId
from tests.model.support import (
    Standing,
    all_segments,
    cut,
    histories,
    history,
    ids_of,
    lengths_of,
    standings,
)

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


@pytest.mark.acceptance("A8")
def test_sizes_add_up_over_segments_sealed_on_the_way() -> None:
    ids = ids_of(STREAM_OF_EIGHT)
    sealed = {ids[0]: 100, ids[1]: 200, ids[2]: 300, ids[3]: 400}

    def size(start: dict[int, int] | None, end: dict[int, int]) -> int:
        before = None if start is None else cut(STREAM_OF_EIGHT, start)
        return size_between(before, cut(STREAM_OF_EIGHT, end), STREAM_OF_EIGHT, sealed)

    half_merged = {0: 10, 2: 30, 3: -1}
    assert size(None, {0: 10, 1: 20, 2: 30}) == 60
    assert size(None, half_merged) == 10 + 200 + 30
    assert size({0: 10, 1: 20, 2: 30}, half_merged) == 180
    assert size(half_merged, {4: 1, 5: 2, 6: 3, 7: 4}) == 90 + 270 + 400 + 1 + 2 + 3 + 4
    absolute = size(None, {4: 1, 5: 2, 6: 3, 7: 4})
    assert absolute == size(None, half_merged) + size(half_merged, {4: 1, 5: 2, 6: 3, 7: 4})


def test_a_missing_length_is_a_bug_and_not_a_size_of_zero() -> None:
    with pytest.raises(AssertionError, match=r"no length was given for 1\.0"):
        size_between(None, cut(STREAM_OF_EIGHT, {0: 0, 3: 0}), STREAM_OF_EIGHT, {})


def _bytes_before(standing: Standing, lengths: dict[SegmentId, int]) -> int:
    return sum(lengths[each] for each in standing.read) + sum(
        max(offset, 0) for offset in standing.cut.offsets.values()
    )


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
    size = size_between(start.cut, end.cut, stream, lengths)
    assert size == _bytes_before(end, lengths) - _bytes_before(start, lengths)
    assert size_between(None, end.cut, stream, lengths) == _bytes_before(end, lengths)
