"""Marks of time: what writers say about the time of their events, and the marks of a stream that follow from it.

A writer *notes* a time: all events that it writes from now on are not older. A *mark* of the stream combines the notes
of all live writers: behind the cut of the mark, no event of theirs is older than `lower`; before it, none noted a time
after `upper`. A reader compares its position with the cuts of marks, and so learns how far time has come.

What must be true: along the marks of a stream `lower` grows, `upper` never falls, and no cut is earlier than the one
before in any part of the key space. So the window of a position never goes back while the position does not.
A mark needs no history: it holds the ranges of its segments, whose epochs may have been dropped.

Source: reference pravega.md 6.7. Two intended differences: `upper` is the highest time that any writer noted so far,
instead of a live one, and so it never falls; and a writer whose last note is old is gone, whatever it said in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import reduce
from typing import Final

import attrs

from eventproc.store.model.cuts import DividedCut
from eventproc.store.model.limits import ID_CHARS_MAX

WRITER_SILENT_MS: Final = 60_000
"""How long a writer counts that notes nothing, in ms. Pravega's clients note the time every 5 s if that is automatic.
Higher: a writer that died holds the time of its stream up for longer. Lower: one that is slow is left out, so that its
events may be older than `lower`."""

WRITERS_MAX: Final = 1_000
"""Writers of a stream that count; of more, the longest silent ones are gone. Higher: a look at all notes, of 60 us for
each writer at 4 segments, takes longer; lower: in streams with many writers, events may be older than `lower`."""


@attrs.frozen
class WriterNote:
    """The last note of a writer: the time, the writer's position, and when it was noted, in wall ms."""

    time: int
    position: DividedCut
    noted_ms: int


def is_writer_name(text: str) -> bool:
    """Return whether a writer may note times under this name. PostgreSQL has no texts with a zero character."""
    return len(text) <= ID_CHARS_MAX and "\0" not in text


class NoteVerdict(StrEnum):
    """What becomes of a note."""

    ACCEPTED = "accepted"
    TIME_BACK = "time_back"
    """Its time is before that of the writer's last note."""
    POSITION_BACK = "position_back"
    """Its position is before that of the writer's last note in some part of the key space, or is none of the stream."""


def judge_note(last: WriterNote | None, note: WriterNote) -> NoteVerdict:
    """Return whether a note may follow the writer's last one. Equal times and positions may be noted again."""
    if last is None:
        return NoteVerdict.ACCEPTED
    if note.time < last.time:
        return NoteVerdict.TIME_BACK
    return NoteVerdict.ACCEPTED if note.position.reaches(last.position) else NoteVerdict.POSITION_BACK


def live_notes(notes: Mapping[str, WriterNote], now_ms: int) -> dict[str, WriterNote]:
    """Return the notes of the writers that count, the longest silent one first."""
    by_age = sorted(notes.items(), key=lambda each: each[1].noted_ms)
    return {name: note for name, note in by_age[-WRITERS_MAX:] if now_ms - note.noted_ms < WRITER_SILENT_MS}


@attrs.frozen
class TimeMark:
    """A mark: times in ms, and the cut before which all notes were made. No segment of the cut has offset -1."""

    lower: int
    upper: int
    cut: DividedCut


@attrs.frozen
class GoneWriters:
    """What counts of the writers whose notes are gone: their highest time, and a cut behind all that they wrote."""

    highest: int
    cut: DividedCut

    def add(self, other: GoneWriters) -> GoneWriters:
        """Return what counts of the writers of both."""
        return GoneWriters(max(self.highest, other.highest), self.cut.later(other.cut))


def next_mark(
    last: TimeMark | None, notes: Iterable[WriterNote], gone: GoneWriters | None = None
) -> TimeMark | None:
    """Return the mark that follows from the notes of live writers; None if the lowest time has not grown."""
    counting = list(notes)
    times = [note.time for note in counting]
    if not times or (last is not None and min(times) <= last.lower):
        return None
    cuts = [note.position for note in counting] + [each.cut for each in (last, gone) if each is not None]
    earlier = ([] if last is None else [last.upper]) + ([] if gone is None else [gone.highest])
    return TimeMark(lower=min(times), upper=max(times + earlier), cut=reduce(DividedCut.later, cuts))


@attrs.frozen
class TimeWindow:
    """Between which times of its writers a reader stands, in ms; see `GroupReader.time_window`.

    lower: no writer will write an event behind this position that is older, as far as the writers said. None: unknown,
    because no mark was passed. upper: no writer has noted a later time before this position. None: unknown, because the
    position is behind all marks.
    """

    lower: int | None
    upper: int | None


UNKNOWN: Final = TimeWindow(None, None)
"""The window in a stream without marks."""


def widest(windows: Iterable[TimeWindow]) -> TimeWindow:
    """Return the window of several streams: the lowest `lower` and the highest `upper`, unknown where one is."""
    found = list(windows)
    lowers = [each.lower for each in found if each.lower is not None]
    uppers = [each.upper for each in found if each.upper is not None]
    return TimeWindow(
        lower=min(lowers, default=None) if len(lowers) == len(found) else None,
        upper=max(uppers, default=None) if len(uppers) == len(found) else None,
    )


def first_not_passed(position: DividedCut, numbers: range, mark_at: Callable[[int], TimeMark]) -> int:
    """Return the number of the first mark that a position has not passed; the end of `numbers` if it has passed all.

    A position has passed a mark if it is before the mark's cut in no part of the key space.
    Cost: O(log n) calls of `mark_at`.
    """
    at = bisect_left(numbers, True, key=lambda number: not position.reaches(mark_at(number).cut))
    return numbers.start + at
