"""Appending to segments: conditional, deduplicated, and merged with what the same commit appends.

What must be true: an append takes effect in all its segments or in none. Offsets, event numbers and times of a segment
only grow. A sealed segment never grows. A repeated (writer, sequence) changes nothing.

The appends of one group commit are collected and written together before the COMMIT: one blob per stream and one extent
per segment, for any number of callers (measured 3x for many writers). Small appends carry their columns inside the
extent row, which is then the only b-tree they touch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import attrs

from eventproc.store.database import PendingSlot, Tx
from eventproc.store.model.errors import OffsetConflict, WriterFenced
from eventproc.store.model.ids import SegmentId, format_segment, printable
from eventproc.store.segments.columns import EncodedBlock, EventBlock, join_blocks
from eventproc.store.segments.event import EventRun
from eventproc.store.segments.extents import (
    INLINE_EXTENT_COUNTER,
    INSERT_EXTENT,
    insert_blob,
    is_inline,
    pack_inline,
)
from eventproc.store.segments.priorities import mark_prioritized
from eventproc.store.segments.recent import RecentEvents
from eventproc.store.segments.state import SegmentTail, find_tail

T = TypeVar("T")


RUN_BYTES_MAX: Final = 64 * 1024
"""Bytes up to which the appends of one commit reach readers of this process as one run. A run costs some objects;
larger runs save nothing more, and a reader always takes a complete run."""


class SegmentEvents(NamedTuple):
    """Events for one segment."""

    segment: SegmentId
    events: EncodedBlock


@attrs.frozen
class WriterSequence:
    """Identity of an append: the `sequence`-th append of the writer to the stream, counted from 1.

    after: sequence that the writer's last append must have had, 0 for none. None: any lower one. With it, an append
    that is delayed on an old connection cannot overlap with one that a new connection has divided differently.
    """

    writer: str
    sequence: int
    after: int | None = None


@attrs.frozen
class AppendResult:
    """Where events were appended: `count` events from `offset` and event `number` of the segment on."""

    segment: SegmentId
    offset: int
    number: int
    count: int

    def printable(self) -> AppendResult:
        """Return the result as callers get it: its segment prints as `2.1`."""
        return AppendResult(printable(self.segment), self.offset, self.number, self.count)


_PendingAppend: TypeAlias = tuple[AppendResult, int, EncodedBlock]
"""An append that is not written yet: its result, time and events. A tuple, because one is made per caller."""


def append(
    tx: Tx,
    stream: str,
    stream_id: int,
    parts: Sequence[SegmentEvents],
    *,
    identity: WriterSequence | None = None,
    expected_offset: int | None = None,
    guard: SegmentId | None = None,
) -> tuple[AppendResult, ...]:
    """Append all parts or none; return where, or an empty tuple if the identity appended them before.

    stream: name of the stream `stream_id`, for errors.
    identity: makes the append idempotent. None: a repeated call appends again.
    expected_offset: fail unless the segment ends there; for an append of one part.
    guard: a segment that must be active too, although nothing is appended to it: the reserve of a topic.
    Raises SegmentSealed, NotFound (the stream has no such segment), OffsetConflict, and WriterFenced (the writer's last
    append is not the one before); then nothing changed.
    Cost: one look-up per segment and commit, and the rows that are written at the end of the commit.
    """
    group = tx.pending[_PENDING_APPENDS]
    assert expected_offset is None or len(parts) == 1, "a conditional append has one part"
    if identity is not None:
        if identity.after is not None:
            verify_follows(stream, identity, group.last_sequence(tx, stream_id, identity.writer))
        elif group.has_appended(tx, stream_id, identity):
            return ()
    if guard is not None:
        group.tail(tx, stream, stream_id, guard)
    tails = [group.tail(tx, stream, stream_id, part.segment) for part in parts]
    if expected_offset is not None and tails[0].offset != expected_offset:
        raise OffsetConflict(
            stream=stream,
            segment=format_segment(parts[0].segment),
            expected=expected_offset,
            actual=tails[0].offset,
        )
    tx.mark_changed()
    return group.add(tx, stream_id, parts, tails, identity)


def note_sequence(tx: Tx, stream_id: int, identity: WriterSequence) -> bool:
    """Record an append of no events; return False if the identity made it before."""
    group = tx.pending[_PENDING_APPENDS]
    if group.has_appended(tx, stream_id, identity):
        return False
    tx.mark_changed()
    group.add(tx, stream_id, (), (), identity)
    return True


def tail_offset(tx: Tx, stream: str, stream_id: int, segment: SegmentId) -> int:
    """Return the offset of the next append to the segment, after what this group commit has appended so far.

    Raises NotFound, SegmentSealed. One look-up, which a following append in the same commit saves.
    """
    return tx.pending[_PENDING_APPENDS].tail(tx, stream, stream_id, segment).offset


def next_append(tx: Tx, stream: str, stream_id: int, segment: SegmentId) -> tuple[int, int, int]:
    """Return offset and number of the segment's next event, and the time of its last one, as `tail_offset` does."""
    tail = tx.pending[_PENDING_APPENDS].tail(tx, stream, stream_id, segment)
    return tail.offset, tail.number, tail.time


def flush_appends(tx: Tx, stream_id: int) -> None:
    """Write the pending appends of this group commit to the stream, before SQL reads them or a segment is sealed."""
    group = tx.pending[_PENDING_APPENDS]
    if group.knows(stream_id):
        group.flush(tx)


def last_sequence(tx: Tx, stream_id: int, writer: str) -> int:
    """Return the sequence of the writer's last append to the stream, 0 if there is none. One look-up."""
    return tx.pending[_PENDING_APPENDS].last_sequence(tx, stream_id, writer)


def verify_follows(stream: str, identity: WriterSequence, last: int) -> None:
    """Raise WriterFenced unless `last`, the writer's last sequence, is the one that the identity names."""
    if last != identity.after:
        raise WriterFenced(stream=stream, writer=identity.writer)


def _stored_sequence(tx: Tx, stream_id: int, writer: str) -> int:
    row = tx.execute(
        "SELECT sequence FROM writer WHERE stream_id = ? AND writer = ?", (stream_id, writer)
    ).fetchone()
    return 0 if row is None else int(row[0])


class _PendingAppends:
    """The appends of one group commit, collected until they are written together."""

    def __init__(self) -> None:
        self._tails: dict[tuple[int, SegmentId], SegmentTail] = {}
        self._pending: dict[int, list[_PendingAppend]] = {}  # {stream id: appends in order}
        self._identities: dict[int, dict[str, WriterSequence]] = {}  # {stream id: {writer: its last}}

    def has_appended(self, tx: Tx, stream_id: int, identity: WriterSequence) -> bool:
        """Return whether the writer has already made this append or a later one."""
        here = self._identities.get(stream_id, {}).get(identity.writer)
        if here is not None and identity.sequence <= here.sequence:
            return True
        return identity.sequence <= _stored_sequence(tx, stream_id, identity.writer)

    def last_sequence(self, tx: Tx, stream_id: int, writer: str) -> int:
        """Return the sequence of the writer's last append, 0 if there is none."""
        here = self._identities.get(stream_id, {}).get(writer)
        return _stored_sequence(tx, stream_id, writer) if here is None else here.sequence

    def knows(self, stream_id: int) -> bool:
        """Return whether this object knows a tail of the stream."""
        return any(known == stream_id for known, _ in self._tails)

    def tail(self, tx: Tx, stream: str, stream_id: int, segment: SegmentId) -> SegmentTail:
        """Return the segment's tail after the pending appends. Raises NotFound, SegmentSealed."""
        key = (stream_id, segment)
        if (tail := self._tails.get(key)) is None:
            known: SegmentTail | None = tx.known.find(key, tx)
            tail = self._tails[key] = known or find_tail(tx, stream, stream_id, segment)
        return tail

    def add(
        self,
        tx: Tx,
        stream_id: int,
        parts: Sequence[SegmentEvents],
        tails: Sequence[SegmentTail],
        identity: WriterSequence | None,
    ) -> tuple[AppendResult, ...]:
        if (pending := self._pending.get(stream_id)) is None:
            pending = self._pending[stream_id] = []
            tx.wake(("stream", stream_id))
        appended = []
        for part, tail in zip(parts, tails, strict=True):
            events, count = part.events, len(part.events.lengths)
            if events.block.headers is not None:
                mark_prioritized(tx, stream_id, events.block.headers)
            if tx.now_ms > tail.time:
                tail.time = tx.now_ms
            where = AppendResult(part.segment, tail.offset, tail.number, count)
            pending.append((where, tail.time, events))
            appended.append(where)
            tail.offset += len(events.data)
            tail.number += count
        if identity is not None:
            self._identities.setdefault(stream_id, {})[identity.writer] = identity
        return tuple(appended)

    def flush(self, tx: Tx) -> None:
        """Write the collected appends: extents, at most one blob per stream, and the sequences of writers."""
        recent, tiny = RecentEvents.of(tx), tx.shared[INLINE_EXTENT_COUNTER]
        tx.known.begin(tx)
        for stream_id, pending in self._pending.items():
            by_segment = _by_segment(pending)
            if not by_segment:  # a sequence without events
                pass
            elif is_inline(tx, stream_id, sum([len(events.data) for _, _, events in pending])):
                _insert_inline(tx, stream_id, by_segment)
                for appends in by_segment:
                    first, _, _ = appends[0]
                    tx.after(partial(tiny.note, stream_id, first.segment, first.offset))
            else:
                _insert_blob(tx, stream_id, by_segment)
            for identity in self._identities.get(stream_id, {}).values():
                _store_sequence(tx, stream_id, identity)
            if by_segment and recent.wanted(stream_id):
                runs = [run for appends in by_segment for run in _event_runs(appends)]
                tx.after(partial(recent.add, stream_id, runs))
        tx.known.keep(self._tails, tx)
        self._tails.clear()
        self._pending.clear()
        self._identities.clear()


_PENDING_APPENDS: Final = PendingSlot(_PendingAppends)


def _by_segment(pending: list[_PendingAppend]) -> list[list[_PendingAppend]]:
    """Return the appends of each segment, in order, the segments ascending."""
    if len(pending) == 1:
        return [pending]
    by_segment: dict[SegmentId, list[_PendingAppend]] = {}
    for append in pending:
        by_segment.setdefault(append[0].segment, []).append(append)
    return [by_segment[segment] for segment in sorted(by_segment)]


def _insert_inline(tx: Tx, stream_id: int, by_segment: list[list[_PendingAppend]]) -> None:
    rows = []
    for appends in by_segment:
        columns = join_blocks([events for _, _, events in appends])
        rows.append((*_extent(stream_id, appends), None, 0, pack_inline(columns)))
    tx.executemany(INSERT_EXTENT, rows)


def _insert_blob(tx: Tx, stream_id: int, by_segment: list[list[_PendingAppend]]) -> None:
    blob_id = insert_blob(
        tx, stream_id, join_blocks([events for appends in by_segment for _, _, events in appends])
    )
    place_offset = 0
    rows = []
    for appends in by_segment:
        extent = _extent(stream_id, appends)
        rows.append((*extent, blob_id, place_offset, None))
        place_offset += extent[3]
    tx.executemany(INSERT_EXTENT, rows)


def _extent(
    stream_id: int, appends: list[_PendingAppend]
) -> tuple[int, SegmentId, int, int, int, int, int, int]:
    """Return the columns of the appends' extent row, from the stream's id to its times."""
    first, time, events = appends[0]
    length, count = len(events.data), first.count
    for where, _, more in appends[1:]:
        length += len(more.data)
        count += where.count
    return stream_id, first.segment, first.offset, length, first.number, count, time, time


def _store_sequence(tx: Tx, stream_id: int, identity: WriterSequence) -> None:
    """Store the sequence as the writer's last on the stream."""
    tx.execute(
        "INSERT INTO writer (stream_id, writer, sequence, at_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (stream_id, writer) DO UPDATE SET at_ms = excluded.at_ms, sequence ="
        " CASE WHEN excluded.sequence > writer.sequence THEN excluded.sequence ELSE writer.sequence END",
        (stream_id, identity.writer, identity.sequence, tx.now_ms),
    )


def _event_runs(appends: list[_PendingAppend]) -> list[EventRun]:
    """Return the appends of one segment as runs of at most RUN_BYTES_MAX each, as readers get them."""
    if len(appends) == 1:
        return [_event_run(appends)]
    runs, together, size_bytes = [], [appends[0]], len(appends[0][2].data)
    for append in appends[1:]:
        added = len(append[2].data)
        if size_bytes + added > RUN_BYTES_MAX:
            runs.append(_event_run(together))
            together, size_bytes = [], 0
        together.append(append)
        size_bytes += added
    return [*runs, _event_run(together)]


def _event_run(appends: list[_PendingAppend]) -> EventRun:
    first, time, _ = appends[0]
    last, _, events = appends[-1]
    blocks = [events.block for _, _, events in appends]
    if len(blocks) == 1:
        only = blocks[0].payloads
        payloads = only if isinstance(only, list) else list(only)
    else:
        payloads = [each for block in blocks for each in block.payloads]
    return EventRun(
        segment=first.segment,
        start=first.offset,
        end=last.offset + len(events.data),
        first_number=first.number,
        time=time,
        payloads=payloads,
        keys=_column(blocks, [block.keys for block in blocks]),
        event_times=_column(blocks, [block.event_times for block in blocks]),
        headers=_column(blocks, [block.headers for block in blocks]),
    )


def _column(blocks: list[EventBlock], columns: list[list[T | None] | None]) -> list[T | None] | None:
    """Return one column of all blocks, or None if no block has it."""
    if len(columns) == 1:
        return columns[0]
    if all(column is None for column in columns):
        return None
    filled = [column or [None] * len(block) for block, column in zip(blocks, columns, strict=True)]
    return [value for column in filled for value in column]
