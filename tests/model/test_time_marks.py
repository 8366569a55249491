"""Marks of time: which notes are accepted, which mark follows, where a reader stands, and the bytes of a mark."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.cuts import NOT_REACHED, CutRange, DividedCut, divide_cut
from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.mark_bytes import decode_mark, encode_mark
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.time_marks import (
    WRITER_SILENT_MS,
    WRITERS_MAX,
    GoneWriters,
    NoteVerdict,
    TimeMark,
    TimeWindow,
    WriterNote,
    first_not_passed,
    judge_note,
    live_notes,
    next_mark,
    widest,
)
from tests.model.support import GRID, histories, lengths_of, standings

POINTS = [step / (6 * GRID) for step in range(6 * GRID)]
"""Points of the key space: ranges of `histories` begin at multiples of 1/GRID, 1/2 and 1/3."""

Places = list[tuple[int, int]]
"""The twin of a position: for each point, the segment to be written next and the offset in it."""

MALFORMED = r"ends early|bytes with the head|cover the key space"

TIMES = st.integers(-(2**63), 2**63 - 1)


def places_of(position: DividedCut) -> Places:
    owners = [(each.range, (int(each.id), each.offset)) for each in position.ranges]
    return [next(place for span, place in owners if span.low <= point < span.high) for point in POINTS]


def is_behind(a: Places, b: Places) -> bool:
    return all(own >= other for own, other in zip(a, b, strict=True))


@st.composite
def positions(draw: st.DrawFn, count: int) -> list[DividedCut]:
    """Draw positions of writers and readers in one stream, none of which waits for a segment."""
    stream = draw(histories())
    lengths = draw(lengths_of(stream))
    found = [draw(standings(stream, lengths)).cut for _ in range(count)]
    return [divide_cut(cut, stream) for cut in found if NOT_REACHED not in cut.offsets.values()]


def note(time: int, position: DividedCut, noted_ms: int = 0) -> WriterNote:
    return WriterNote(time, position, noted_ms)


def whole(offset: int) -> DividedCut:
    """Return a position in a stream of one segment."""
    return DividedCut((CutRange(range=KeyRange(0.0, 1.0), id=SegmentId(0), offset=offset),))


@given(positions(2), TIMES, TIMES)
def test_a_note_is_refused_if_its_time_or_its_position_goes_back(
    drawn: list[DividedCut], first: int, second: int
) -> None:
    for position in drawn:
        before, after = note(first, drawn[0]), note(second, position)
        if second < first:
            expected = NoteVerdict.TIME_BACK
        elif is_behind(places_of(position), places_of(drawn[0])):
            expected = NoteVerdict.ACCEPTED
        else:
            expected = NoteVerdict.POSITION_BACK
        assert judge_note(before, after) is expected
        assert judge_note(None, after) is NoteVerdict.ACCEPTED


@given(positions(6), st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_marks_follow_from_notes_as_a_twin_that_looks_at_each_point_finds(
    drawn: list[DividedCut], times: list[int]
) -> None:
    notes: dict[str, WriterNote] = {}
    last: TimeMark | None = None
    highest = -1
    for number, (position, time) in enumerate(zip(drawn, times, strict=False)):
        notes["ab"[number % 2]] = note(time, position)
        highest = max(highest, time)
        lowest = min(each.time for each in notes.values())
        gone = GoneWriters(highest, drawn[0])
        mark = next_mark(last, notes.values(), gone)
        if last is not None and lowest <= last.lower:
            assert mark is None
            continue
        assert mark is not None
        known = [places_of(each.position) for each in notes.values()] + [places_of(gone.cut)]
        known += [] if last is None else [places_of(last.cut)]
        assert places_of(mark.cut) == [max(places) for places in zip(*known, strict=True)]
        assert (mark.lower, mark.upper) == (lowest, highest)
        last = mark
    assert next_mark(last, ()) is None


@given(positions(8), st.lists(st.integers(0, 40), min_size=8, max_size=8))
def test_windows_bracket_a_position_as_a_search_from_the_begin_finds_and_never_go_back(
    drawn: list[DividedCut], times: list[int]
) -> None:
    marks: list[TimeMark] = []
    highest = 0
    for position, time in zip(drawn[::2], times, strict=False):
        highest = max(highest, time)
        mark = next_mark(marks[-1] if marks else None, [note(time, position)], GoneWriters(highest, position))
        marks += [] if mark is None else [mark]
    seen: list[int] = []
    reader: DividedCut | None = None
    for step in drawn[1::2]:
        reader = step if reader is None else reader.later(step)
        passed = [is_behind(places_of(reader), places_of(mark.cut)) for mark in marks]
        found = first_not_passed(reader, range(7, 7 + len(marks)), lambda number: marks[number - 7])
        assert found - 7 == sum(passed)
        assert passed == sorted(passed, reverse=True)
        seen.append(found)
    assert seen == sorted(seen)
    assert all(a.lower < b.lower and a.upper <= b.upper for a, b in pairwise(marks))


def test_a_writer_that_notes_nothing_for_a_minute_does_not_count() -> None:
    notes = {"old": note(1, whole(0), 0), "new": note(2, whole(0), 1)}
    assert list(live_notes(notes, WRITER_SILENT_MS - 1)) == ["old", "new"]
    assert list(live_notes(notes, WRITER_SILENT_MS)) == ["new"]


def test_of_too_many_writers_the_longest_silent_ones_do_not_count() -> None:
    notes = {str(number): note(1, whole(0), number) for number in range(WRITERS_MAX + 2)}
    assert set(notes) - set(live_notes(notes, WRITERS_MAX)) == {"0", "1"}


@pytest.mark.parametrize(
    "windows, expected",
    [
        ([TimeWindow(1, 4)], TimeWindow(1, 4)),
        ([TimeWindow(2, 3), TimeWindow(1, 9)], TimeWindow(1, 9)),
        ([TimeWindow(2, None), TimeWindow(None, 9)], TimeWindow(None, None)),
        ([], TimeWindow(None, None)),
    ],
)
def test_the_window_of_several_streams_is_the_widest(windows: list[TimeWindow], expected: TimeWindow) -> None:
    assert widest(windows) == expected


def test_a_mark_has_the_bytes_that_pravegas_readers_expect() -> None:
    halves = (
        CutRange(range=KeyRange(0.0, 0.5), id=segment_id(0, 0), offset=1),
        CutRange(range=KeyRange(0.5, 1.0), id=segment_id(2, 1), offset=258),
    )
    mark = TimeMark(lower=-2, upper=1_000, cut=DividedCut(halves))
    # Written down field by field from the classes Watermark, SegmentWithRange and VersionedSerializer of Pravega.
    expected = (
        "00 00 01"  # format of the serializer, version, number of revisions
        "00 00000061"  # revision 0, 97 bytes
        "fffffffffffffffe 00000000000003e8"  # lower and upper
        "02"  # entries of the map
        "00 00 01 00 00000018"  # a segment: revision 0, 24 bytes
        "0000000000000000 0000000000000000 3fe0000000000000"  # id, low, high
        "0000000000000001"  # offset
        "00 00 01 00 00000018"
        "0000000100000002 3fe0000000000000 3ff0000000000000"
        "0000000000000102"
    )
    assert encode_mark(mark) == bytes.fromhex(expected)
    assert decode_mark(bytes.fromhex(expected)) == mark


@pytest.mark.parametrize("count, size", [(127, "7f"), (128, "8080"), (16_383, "bfff"), (16_384, "c0004000")])
def test_the_number_of_segments_takes_one_two_or_four_bytes(count: int, size: str) -> None:
    pieces = [
        CutRange(range=KeyRange(number / count, (number + 1) / count), id=SegmentId(number), offset=0)
        for number in range(count)
    ]
    mark = TimeMark(lower=0, upper=0, cut=DividedCut(tuple(pieces)))
    data = encode_mark(mark)
    assert data[24:].startswith(bytes.fromhex(size))
    assert decode_mark(data) == mark


@given(positions(1), TIMES, TIMES)
def test_a_mark_survives_its_bytes(drawn: list[DividedCut], lower: int, upper: int) -> None:
    for position in drawn:
        mark = TimeMark(lower=lower, upper=upper, cut=position)
        assert decode_mark(encode_mark(mark)) == mark


@pytest.mark.parametrize("damage", [b"", b"\0" * 8, b"x" * 65])
def test_other_bytes_are_no_mark(damage: bytes) -> None:
    with pytest.raises(ValueError, match=MALFORMED):
        decode_mark(damage)
    good = encode_mark(TimeMark(lower=0, upper=0, cut=whole(5)))
    for data in (good[:-1], good + b"x", b"\1" + good[1:]):
        with pytest.raises(ValueError, match=MALFORMED):
            decode_mark(data)
