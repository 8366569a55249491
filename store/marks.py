"""Marks of time of streams: the notes of writers, and the log of marks that follow from them.

The log of a stream is a client's log under a name that Pravega's readers know, "scope/_MARK<stream>": they and ours
read the same marks. Beside it are a record of the stream, with the newest mark, and one of each writer, with its last
note. All begin with the first note, and are deleted with the stream. Marks: `eventproc.store.model.time_marks`.

A note, and the mark that follows from it, are one transaction, so that a crash leaves both or neither. All notes of a
stream are looked at once in LOOK_PAUSE_MS at most. If a note comes earlier, the next look becomes *due*: it is taken by
the next note after the pause, or without one by the host. So the last note of a burst counts like any other. A mark
that was written is never changed, because a reader may have passed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, find_stream, get_stream, tail_offsets
from eventproc.store.catalog.queries import tail_cut
from eventproc.store.client_logs import (
    CLIENT_SEGMENT,
    MARK_LOG_PREFIX,
    client_log_name,
    create_client_log,
    delete_client_log,
    find_client_log,
    list_client_logs,
    owner_of_log,
    truncate_client_log,
)
from eventproc.store.database import Tx
from eventproc.store.due_looks import DUE, LOOK_PAUSE_MS, pause_ms, set_due
from eventproc.store.model.cuts import DividedCut, StreamCut, divide_cut, verify_cut
from eventproc.store.model.errors import CorruptRecord, InvalidCut
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import SET_BACK_MS
from eventproc.store.model.mark_bytes import decode_mark, encode_mark
from eventproc.store.model.time_marks import (
    UNKNOWN,
    GoneWriters,
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
from eventproc.store.records import (
    RecordKind,
    Versioned,
    create,
    delete,
    delete_all,
    find,
    get,
    keys,
    replace,
)
from eventproc.store.segments import (
    READ_BYTES_MAX,
    EventBlock,
    SegmentEvents,
    append,
    flush_appends,
    known_state,
    offset_of_number,
    read,
    segment_state,
)
from eventproc.store.transactions import TxnRecord

LOOKS_MAX: Final = 100
"""Streams whose due marks are written in one transaction: some 50 ms with few writers each. Higher: other writers wait
for longer; lower: more transactions, if many streams have writers that note times."""

MARKS_BYTES_MAX: Final = 16 * 2**20
"""Bytes of marks that a stream keeps; of more, the older half is dropped. A mark has 33 bytes, and 40 for each segment,
so that these are the marks of a day in a stream of 4 segments. Higher: more space; lower: a group that is far behind
does not know how far time has come at its position."""


@attrs.frozen
class CommitTime:
    """A time that a writer notes with the commit of a transaction."""

    writer: str
    time: int


@attrs.frozen(kw_only=True)
class StreamMarks:
    """What is known of the time of a stream.

    stream_id: the incarnation. last: the newest mark in the log; None before the first one. looked_ms: when all notes
    were looked at last, wall clock. gone: what counts of the writers whose notes are gone; None if there are none.
    commits: what is to be noted when transactions that are decided are committed, by their ids.
    """

    stream_id: int
    last: TimeMark | None = None
    looked_ms: int = 0
    gone: GoneWriters | None = None
    commits: Mapping[str, CommitTime] = attrs.field(factory=dict)


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
NOTES: Final = RecordKind(name="writer note", value=WriterNote)


def mark_log_name(stream: str) -> str:
    """Return the name of the log with the marks of "scope/stream"."""
    return client_log_name(MARK_LOG_PREFIX, stream)


def marked_stream(log: str) -> str | None:
    """Return the stream whose marks a log of this name has; None if it is no such name."""
    scope, _, local = log.partition("/")
    owner = owner_of_log(local, MARK_LOG_PREFIX)
    return None if owner is None else f"{scope}/{owner}"


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

    A refused note changes nothing. Cost: one record; once in LOOK_PAUSE_MS also a read of the notes of all writers, a
    small append and another record.
    """
    position = _position(tx, stream, offsets)
    if position is None:
        return NoteVerdict.POSITION_BACK
    key, note = _note_key(stream.name, writer), WriterNote(time, position, tx.now_ms)
    before = find(tx, NOTES, key)
    verdict = judge_note(None if before is None else before.value, note)
    if verdict is NoteVerdict.ACCEPTED:
        if before is None:
            create(tx, NOTES, key, note)
        else:
            replace(tx, NOTES, before, note)
        _look(tx, _open(tx, stream))
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
        before = _open(tx, stream)
        commits = {**before.value.commits, txn.id: noted}
        replace(tx, MARKS, before, attrs.evolve(before.value, commits=commits))


def note_commits(tx: Tx, stream: str, committed: Iterable[TxnRecord]) -> None:
    """Note the times of transactions that this one commits. One look-up for a stream without any."""
    if (found := find(tx, MARKS, stream)) is None:
        return
    commits = dict(found.value.commits)
    if noted := [commits.pop(txn.id) for txn in committed if txn.id in commits]:
        replace(tx, MARKS, found, attrs.evolve(found.value, commits=commits))
        for each in noted:
            note_at_tail(tx, get_stream(tx, stream).value, each.writer, each.time)


def forget_writer_note(tx: Tx, stream: StreamRecord, writer: str) -> bool:
    """Leave a writer out of the marks to come; return whether it had noted a time.

    All notes are looked at before, so that its last one counts, unless they were since, and others remain.
    """
    if (note := find(tx, NOTES, _note_key(stream.name, writer))) is None:
        return False
    marks = get(tx, MARKS, stream.name)
    is_last = len(keys(tx, NOTES, prefix=_note_key(stream.name, ""), limit=2)) == 1
    if is_last or note.value.noted_ms >= marks.value.looked_ms:
        _look(tx, marks, at_once=True)
    if find(tx, NOTES, note.key) is not None:  # it was not too old to count
        _forget(tx, stream.name, [note])
    _look(tx, get(tx, MARKS, stream.name))
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


def truncate_marks(tx: Tx, stream: StreamRecord, head: StreamCut) -> None:
    """Drop the marks before the last one that the new head has passed, which says how far time came there."""
    if (log := find_client_log(tx, mark_log_name(stream.name))) is None:
        return
    position = divide_cut(head, StoredHistory(tx, stream))
    flush_appends(tx, log)
    state = known_state(tx, log, CLIENT_SEGMENT)
    numbers = range(state.head_number, state.tail_number)
    following = first_not_passed(position, numbers, partial(_mark_at, tx, stream.name, log))
    _drop_before(tx, stream.name, log, following - 1)


def delete_marks(tx: Tx, stream: str) -> None:
    """Delete what is known of the time of a stream, if there is anything."""
    if (found := find(tx, MARKS, stream)) is not None:
        delete(tx, MARKS, found)
        delete_all(tx, NOTES, keys(tx, NOTES, prefix=_note_key(stream, "")))
        set_due(tx, stream, None)
        delete_client_log(tx, mark_log_name(stream))


def write_due_marks(tx: Tx) -> dict[str, CorruptRecord]:
    """Write the marks that are due, of LOOKS_MAX streams at most; the others are due still.

    Return the streams with a damaged record: they get no mark until a writer notes another time.
    """
    due = (each for each in keys(tx, DUE) if not pause_ms(get(tx, DUE, each).value.due_ms, tx.now_ms))
    damaged: dict[str, CorruptRecord] = {}
    for stream in islice(due, LOOKS_MAX):
        try:  # before anything is changed
            before, notes = get(tx, MARKS, stream), _notes_of(tx, stream)
            get_stream(tx, stream)
        except CorruptRecord as why:
            damaged[stream] = why
            set_due(tx, stream, None)
        else:
            _look(tx, before, notes)
    return damaged


def mark_violations(tx: Tx) -> list[str]:
    """Return a line for each invariant of marks that does not hold. Reads all marks."""
    found = [problem for stream in keys(tx, MARKS) for problem in _problems_of(tx, stream)]
    noted = {"/".join(key.split("/", 2)[:2]) for key in keys(tx, NOTES)}
    logged = {stream for log in list_client_logs(tx) if (stream := marked_stream(log)) is not None}
    alone = {*keys(tx, DUE), *noted, *logged} - set(keys(tx, MARKS))
    return found + [
        f"{stream} has marks or notes of writers, and no record of them" for stream in sorted(alone)
    ]


def _problems_of(tx: Tx, stream: str) -> list[str]:
    marks, record = get(tx, MARKS, stream).value, find_stream(tx, stream)
    if record is None or record.value.stream_id != marks.stream_id:
        return [f"marks of stream {stream} ({marks.stream_id}), which was deleted"]
    log = find_client_log(tx, mark_log_name(stream))
    if log is None or (state := segment_state(tx, log, CLIENT_SEGMENT)) is None:
        return [f"{stream} has notes of writers, and no log of marks"]
    found: list[str] = []
    before: TimeMark | None = None
    for mark in _marks_from(tx, stream, log, state.head):
        if before is not None and not (
            before.lower < mark.lower and before.upper <= mark.upper and mark.cut.reaches(before.cut)
        ):
            found.append(f"{stream}: a mark is not behind the one before: {before}, {mark}")
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


def _note_key(stream: str, writer: str) -> str:
    return f"{stream}/{writer}"


def _open(tx: Tx, stream: StreamRecord) -> Versioned[StreamMarks]:
    """Return the record of a stream, which is created with the log if this is the first note."""
    if (found := find(tx, MARKS, stream.name)) is None:
        create_client_log(tx, mark_log_name(stream.name))
        return create(tx, MARKS, stream.name, StreamMarks(stream_id=stream.stream_id))
    assert found.value.stream_id == stream.stream_id, (
        f"{stream.name} was deleted with its marks: {found.value}"
    )
    return found


def _notes_of(tx: Tx, stream: str) -> list[Versioned[WriterNote]]:
    return [get(tx, NOTES, key) for key in keys(tx, NOTES, prefix=_note_key(stream, ""))]


def _look(
    tx: Tx,
    before: Versioned[StreamMarks],
    notes: Sequence[Versioned[WriterNote]] | None = None,
    *,
    at_once: bool = False,
) -> None:
    """Look at all notes of a stream, write the mark that follows, and forget old notes; or note when that is due.

    notes: all of them, if they were read.
    """
    stream, due_ms = before.key, before.value.looked_ms + LOOK_PAUSE_MS
    if pause_ms(due_ms, tx.now_ms) > 0 and not at_once:
        set_due(tx, stream, due_ms)
        return
    found = [_following_clock(tx, each) for each in (_notes_of(tx, stream) if notes is None else notes)]
    live = live_notes({each.key: each.value for each in found}, tx.now_ms)
    before = _forget(tx, stream, [each for each in found if each.key not in live])
    mark = next_mark(before.value.last, live.values(), before.value.gone)
    if mark is not None:
        _append(tx, stream, mark)
    last = before.value.last if mark is None else mark
    replace(tx, MARKS, before, attrs.evolve(before.value, last=last, looked_ms=tx.now_ms))
    set_due(tx, stream, None)


def _following_clock(tx: Tx, note: Versioned[WriterNote]) -> Versioned[WriterNote]:
    """Let a note from before the wall clock was set back count as made now, or it would count until then."""
    if note.value.noted_ms <= tx.now_ms + SET_BACK_MS:
        return note
    return replace(tx, NOTES, note, attrs.evolve(note.value, noted_ms=tx.now_ms))


def _forget(tx: Tx, name: str, notes: Sequence[Versioned[WriterNote]]) -> Versioned[StreamMarks]:
    """Delete notes; return the record of the stream. All events of their writers are before the tail."""
    before = get(tx, MARKS, name)
    if not notes:
        return before
    delete_all(tx, NOTES, [each.key for each in notes])
    flush_appends(tx, before.value.stream_id)
    stream = get_stream(tx, name).value
    tail = divide_cut(tail_cut(tx, stream), StoredHistory(tx, stream))
    gone = GoneWriters(max(each.value.time for each in notes), tail)
    gone = gone if before.value.gone is None else before.value.gone.add(gone)
    return replace(tx, MARKS, before, attrs.evolve(before.value, gone=gone))


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
    return next(_marks_from(tx, stream, log, offset_of_number(tx, log, CLIENT_SEGMENT, number), bytes_max=1))


def _marks_from(
    tx: Tx, stream: str, log: int, offset: int, *, bytes_max: int = READ_BYTES_MAX
) -> Iterator[TimeMark]:
    """Yield the marks from an offset on, which are read in steps of so many bytes."""
    while runs := read(tx, log, {CLIENT_SEGMENT: (offset, None)}, bytes_max=bytes_max).runs:
        for payload in chain.from_iterable(run.payloads for run in runs):
            try:
                yield decode_mark(payload)
            except ValueError as why:
                key = f"{mark_log_name(stream)}, from {offset} on"
                raise CorruptRecord(key=key, reason=str(why)) from None
        offset = runs[-1].end
