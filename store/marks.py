"""Marks of time of streams: the notes of writers, and the log of marks that follow from them.

The log of a stream is a client's log under a name that Pravega's readers know, "scope/_MARK<stream>": they and ours
read the same marks. A record beside it holds the last note of each writer, and the newest mark. Both begin with the
first note, and are deleted with the stream. What a mark is: `eventproc.store.model.time_marks`.

A note, and the mark that follows from it, are one transaction, so that a crash leaves both or neither. A stream gets at
most one mark in MARK_PAUSE_MS. If a note comes earlier, its mark becomes *due*, and later notes change what it will be.
The next note after the pause writes it; without one, the host does when it is due. So the last note of a burst counts
like any other. A mark that was written is never changed, because a reader may have passed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, find_stream, get_stream, tail_offsets
from eventproc.store.client_logs import (
    CLIENT_SEGMENT,
    create_client_log,
    delete_client_log,
    find_client_log,
    truncate_client_log,
)
from eventproc.store.database import Tx, Watch
from eventproc.store.model.cuts import DividedCut, StreamCut, divide_cut, verify_cut
from eventproc.store.model.errors import CorruptRecord, InvalidCut
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.mark_bytes import decode_mark, encode_mark
from eventproc.store.model.time_marks import (
    UNKNOWN,
    NoteVerdict,
    TimeMark,
    TimeWindow,
    WriterNote,
    first_not_passed,
    judge_note,
    live_notes,
    next_mark,
)
from eventproc.store.model.transactions import TxnState
from eventproc.store.records import RecordKind, create, delete, find, get, keys, replace
from eventproc.store.segments import (
    EventBlock,
    SegmentEvents,
    append,
    flush_appends,
    offset_of_number,
    read,
    segment_state,
)
from eventproc.store.transactions import TxnRecord

MARK_PREFIX: Final = "_MARK"
"""What the name of a stream follows in the name of the log with its marks."""

MARK_PAUSE_MS: Final = 1_000
"""Least time between two marks of a stream, in ms. Higher: readers learn later how far time has come. Lower: writers
that note a time with each event make a mark for each."""

MARKS_BYTES_MAX: Final = 16 * 2**20
"""Bytes of marks that a stream keeps; of more, the older half is dropped. A mark has 33 bytes, and 40 for each segment,
so that these are the marks of a day in a stream of 4 segments. Higher: more space; lower: a group that is far behind
does not know how far time has come at its position."""

_DUE: Final = "marks due"


@attrs.frozen
class CommitTime:
    """A time that a writer notes with the commit of a transaction."""

    writer: str
    time: int


@attrs.frozen(kw_only=True)
class StreamMarks:
    """What is known of the time of a stream.

    stream_id: the incarnation. writers: the last note of each writer. highest: the highest time that was ever noted.
    last: the newest mark in the log, written at marked_ms, wall clock; None before the first one. commits: what is to
    be noted when transactions that are decided are committed, by their ids.
    """

    stream_id: int
    highest: int
    writers: Mapping[str, WriterNote] = attrs.field(factory=dict)
    last: TimeMark | None = None
    marked_ms: int = 0
    commits: Mapping[str, CommitTime] = attrs.field(factory=dict)


@attrs.frozen
class DueMark:
    """A mark of a stream that is to be written at due_ms, wall clock, if no note writes it earlier."""

    due_ms: int


def _marks_may_follow(before: StreamMarks | None, after: StreamMarks) -> str | None:
    old, new = None if before is None else before.last, after.last
    if before is not None and before.stream_id != after.stream_id:
        return f"marks are deleted with their stream; {before.stream_id} -> {after.stream_id}"
    if old is None or new == old:
        return None
    if new is None or new.lower <= old.lower or new.upper < old.upper or not new.cut.reaches(old.cut):
        return f"marks move forward; {old} -> {new}"
    return None


MARKS: Final = RecordKind(name="time marks", value=StreamMarks, invariant=_marks_may_follow)
DUE: Final = RecordKind(name="due mark", value=DueMark)


def mark_log_name(stream: str) -> str:
    """Return the name of the log with the marks of "scope/stream"."""
    scope, _, local = stream.partition("/")
    return f"{scope}/{MARK_PREFIX}{local}"


def marked_stream(log: str) -> str | None:
    """Return the stream whose marks a log of this name has; None if it is no such name."""
    scope, _, local = log.partition("/")
    return f"{scope}/{local.removeprefix(MARK_PREFIX)}" if local.startswith(MARK_PREFIX) else None


def is_unmarked(tx: Tx, log: str) -> bool:
    """Return whether a log of this name would have the marks of a stream that exists, and has none yet."""
    stream = marked_stream(log)
    return stream is not None and find_client_log(tx, log) is None and find_stream(tx, stream) is not None


def has_log(tx: Tx, name: str) -> bool:
    """Return whether clients can read a log of this name: one of theirs, or marks, also where there are none yet."""
    return find_client_log(tx, name) is not None or is_unmarked(tx, name)


def note_time(
    tx: Tx, stream: StreamRecord, writer: str, time: int, offsets: Mapping[SegmentId, int]
) -> NoteVerdict:
    """Note a time of a writer at its position, and write the mark that follows, if one may be written already.

    A refused note changes nothing. Cost: one record, and with a mark a small append.
    """
    position = _position(tx, stream, offsets)
    if position is None:
        return NoteVerdict.POSITION_BACK
    note = WriterNote(time, position, tx.now_ms)
    before = _marks_of(tx, stream)
    if (verdict := judge_note(before.writers.get(writer), note)) is NoteVerdict.ACCEPTED:
        writers = live_notes({**before.writers, writer: note}, tx.now_ms)
        _advance(tx, stream.name, attrs.evolve(before, writers=writers, highest=max(before.highest, time)))
    return verdict


def note_at_tail(tx: Tx, stream: StreamRecord, writer: str, time: int) -> NoteVerdict:
    """Note a time of a writer all of whose events lie before the tail."""
    flush_appends(tx, stream.stream_id)
    return note_time(tx, stream, writer, time, tail_offsets(tx, stream))


def note_at_commit(tx: Tx, stream: StreamRecord, txn: TxnRecord, noted: CommitTime) -> None:
    """Note a time with a transaction that is decided: now, or in the transaction that commits it. May go back."""
    if txn.state is TxnState.COMMITTED:
        note_at_tail(tx, stream, noted.writer, noted.time)
    else:
        marks = _marks_of(tx, stream)
        _advance(tx, stream.name, attrs.evolve(marks, commits={**marks.commits, txn.id: noted}))


def note_commits(tx: Tx, stream: str, committed: Iterable[TxnRecord]) -> None:
    """Note the times of transactions that this one commits. One look-up for a stream without any."""
    if (found := find(tx, MARKS, stream)) is None:
        return
    commits = dict(found.value.commits)
    if noted := [commits.pop(txn.id) for txn in committed if txn.id in commits]:
        _advance(tx, stream, attrs.evolve(found.value, commits=commits))
        for each in noted:
            note_at_tail(tx, get_stream(tx, stream).value, each.writer, each.time)


def forget_writer_note(tx: Tx, stream: StreamRecord, writer: str) -> bool:
    """Leave a writer out of the marks to come; return whether it had noted a time.

    A mark that is due is written before, so that the last note of the writer counts.
    """
    before = _marks_of(tx, stream)
    if writer not in before.writers:
        return False
    marks = _advance(tx, stream.name, before, at_once=True)
    left = {name: note for name, note in marks.writers.items() if name != writer}
    _advance(tx, stream.name, attrs.evolve(marks, writers=left))
    return True


def find_window(
    tx: Tx, stream: StreamRecord, position: DividedCut, passed: int = 0
) -> tuple[TimeWindow, int]:
    """Return the window of a position, and the number of the last mark that it has passed.

    passed: the number that an earlier position of the same reader had; 0 is right for any. Saves reads.
    Cost: a read for each doubling of the number of marks behind `passed`.
    """
    log = find_client_log(tx, mark_log_name(stream.name))
    state = None if log is None else segment_state(tx, log, CLIENT_SEGMENT)
    if log is None or state is None:
        return UNKNOWN, 0
    mark_at = partial(_mark_at, tx, stream.name, log)
    first = state.head_number
    if first < passed < state.tail_number and position.reaches(mark_at(passed).cut):
        first = passed
    following = first_not_passed(position, range(first, state.tail_number), mark_at)
    has_passed, has_more = following > state.head_number, following < state.tail_number
    window = TimeWindow(
        lower=mark_at(following - 1).lower if has_passed else None,
        upper=mark_at(following).upper if has_more else None,
    )
    return window, max(following - 1, 0)


def truncate_marks(tx: Tx, stream: str, head: DividedCut) -> None:
    """Drop the marks before the last one that the head of the stream has passed, which says how far time came there."""
    if (log := find_client_log(tx, mark_log_name(stream))) is None:
        return
    flush_appends(tx, log)
    state = segment_state(tx, log, CLIENT_SEGMENT)
    assert state is not None, f"the log of {stream} has no segment"
    numbers = range(state.head_number, state.tail_number)
    _drop_before(tx, stream, log, first_not_passed(head, numbers, partial(_mark_at, tx, stream, log)) - 1)


def delete_marks(tx: Tx, stream: str) -> None:
    """Delete what is known of the time of a stream, if there is anything."""
    if (found := find(tx, MARKS, stream)) is not None:
        delete(tx, MARKS, found)
        _set_due(tx, stream, None)
        delete_client_log(tx, mark_log_name(stream))


def first_mark_due_ms(tx: Tx) -> int | None:
    """Return when the next mark is due, in wall ms; None if none is. Reads the few marks that are."""
    return min((get(tx, DUE, stream).value.due_ms for stream in keys(tx, DUE)), default=None)


DUE_MARKS: Final = Watch((_DUE,), first_mark_due_ms)
"""Notices that another mark is the next one."""


def write_due_marks(tx: Tx) -> None:
    """Write the marks that are due."""
    for stream in keys(tx, DUE):
        if get(tx, DUE, stream).value.due_ms <= tx.now_ms:
            _advance(tx, stream, get(tx, MARKS, stream).value)


def mark_violations(tx: Tx) -> list[str]:
    """Return a line for each invariant of marks that does not hold. Reads all marks."""
    found = [problem for stream in keys(tx, MARKS) for problem in _problems_of(tx, stream)]
    alone = set(keys(tx, DUE)) - set(keys(tx, MARKS))
    return found + [f"{stream} has a due mark and no notes" for stream in sorted(alone)]


def _problems_of(tx: Tx, stream: str) -> list[str]:
    marks, record = get(tx, MARKS, stream).value, find_stream(tx, stream)
    if record is None or record.value.stream_id != marks.stream_id:
        return [f"marks of stream {stream} ({marks.stream_id}), which was deleted"]
    log = find_client_log(tx, mark_log_name(stream))
    if log is None or (state := segment_state(tx, log, CLIENT_SEGMENT)) is None:
        return [f"{stream} has notes of writers, and no log of marks"]
    found: list[str] = []
    before: TimeMark | None = None
    for number in range(state.head_number, state.tail_number):
        mark = _mark_at(tx, stream, log, number)
        if before is not None and not (
            before.lower < mark.lower and before.upper <= mark.upper and mark.cut.reaches(before.cut)
        ):
            found.append(f"{stream}: mark {number} is not behind the one before: {before}, {mark}")
        before = mark
    if before != marks.last:
        found.append(f"{stream}: its newest mark is {before}, its record says {marks.last}")
    return found


def _position(tx: Tx, stream: StreamRecord, offsets: Mapping[SegmentId, int]) -> DividedCut | None:
    """Return where a writer stands; None if that is no cut of the stream with an offset in each of its segments."""
    cut, history = StreamCut(stream.name, stream.stream_id, offsets), StoredHistory(tx, stream)
    if any(offset < 0 for offset in cut.offsets.values()):
        return None
    try:
        verify_cut(cut, history)
    except InvalidCut:
        return None
    flush_appends(tx, stream.stream_id)
    for segment, offset in cut.offsets.items():
        state = segment_state(tx, stream.stream_id, segment)
        if state is not None and offset > state.tail:
            return None
    return divide_cut(cut, history)


def _marks_of(tx: Tx, stream: StreamRecord) -> StreamMarks:
    found = find(tx, MARKS, stream.name)
    if found is None:
        return StreamMarks(stream_id=stream.stream_id, highest=-(2**63))
    assert found.value.stream_id == stream.stream_id, (
        f"{stream.name} was deleted with its marks: {found.value}"
    )
    return found.value


def _advance(tx: Tx, stream: str, marks: StreamMarks, *, at_once: bool = False) -> StreamMarks:
    """Store the notes of a stream, with the mark that follows from them, or when it is due; return what was stored."""
    mark = next_mark(marks.last, live_notes(marks.writers, tx.now_ms).values(), marks.highest)
    due_ms = None if mark is None else marks.marked_ms + MARK_PAUSE_MS
    before = find(tx, MARKS, stream)
    if before is None:
        create_client_log(tx, mark_log_name(stream))
    if mark is not None and due_ms is not None and (at_once or due_ms <= tx.now_ms):
        marks, due_ms = attrs.evolve(marks, last=mark, marked_ms=tx.now_ms), None
        _append(tx, stream, mark)
    if before is None:
        create(tx, MARKS, stream, marks)
    else:
        replace(tx, MARKS, before, marks)
    _set_due(tx, stream, due_ms)
    return marks


def _set_due(tx: Tx, stream: str, due_ms: int | None) -> None:
    found = find(tx, DUE, stream)
    if due_ms is None and found is not None:
        delete(tx, DUE, found)
    elif due_ms is not None and found is None:
        create(tx, DUE, stream, DueMark(due_ms))
        tx.wake((_DUE,))


def _append(tx: Tx, stream: str, mark: TimeMark) -> None:
    name = mark_log_name(stream)
    log = find_client_log(tx, name)
    assert log is not None, f"{name} is created with the first note"
    append(tx, name, log, (SegmentEvents(CLIENT_SEGMENT, EventBlock([encode_mark(mark)]).encode()),))
    state = segment_state(tx, log, CLIENT_SEGMENT)
    if state is not None and state.tail - state.head > MARKS_BYTES_MAX:
        _drop_before(tx, stream, log, (state.head_number + state.tail_number) // 2)


def _drop_before(tx: Tx, stream: str, log: int, number: int) -> None:
    state = segment_state(tx, log, CLIENT_SEGMENT)
    if state is not None and number > state.head_number:
        offset = offset_of_number(tx, log, CLIENT_SEGMENT, number)
        truncate_client_log(tx, mark_log_name(stream), offset)


def _mark_at(tx: Tx, stream: str, log: int, number: int) -> TimeMark:
    """Return a mark that is not truncated. One look-up by number, and one extent."""
    offset = offset_of_number(tx, log, CLIENT_SEGMENT, number)
    (run, *_) = read(tx, log, {CLIENT_SEGMENT: (offset, None)}, bytes_max=1).runs
    try:
        return decode_mark(run.payloads[0])
    except ValueError as why:
        raise CorruptRecord(key=f"{mark_log_name(stream)} at {offset}", reason=str(why)) from None
