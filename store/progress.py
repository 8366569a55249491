"""Progress of groups, moved in the transaction that publishes what was processed.

Two ways: the system's own groups finish single events, and their host checks its `Owner`; the groups of users
move whole segments, fenced by who owns them (`move_progress`).
"""

from __future__ import annotations

import json
from typing import Final, Self, TypeAlias

import attrs

from eventproc.store.database import PendingSlot, Tx
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.progress import Progress, decode_progress, encode_progress
from eventproc.store.segments import Event


@attrs.frozen
class EventRef:
    """An event as progress sees it: which group reads it, where it lies, where its bytes end."""

    group: str
    stream_id: int
    segment: SegmentId
    number: int
    end_offset: int

    @classmethod
    def of(cls, event: Event, *, group: str, stream_id: int) -> Self:
        """Return how `group` refers to an event that it read of the stream."""
        end_offset = event.offset + FRAME_BYTES + len(event.payload)
        return cls(group, stream_id, event.segment, event.number, end_offset)


def get_progress(tx: Tx, group: str, stream_id: int, segment: SegmentId) -> Progress:
    """Return the group's progress on the segment; nothing finished when it has none."""
    tx.flush_pending()
    return _read(tx, (group, stream_id, segment))


def finish_event(tx: Tx, event: EventRef) -> None:
    """Mark the event as finished for its group; a repeated call changes nothing.

    Events finished in one commit cost one look-up and one row a segment, however many they are.
    """
    finish_events(tx, event, 1)


def finish_events(tx: Tx, first: EventRef, count: int) -> None:
    """Mark `count` events from `first` on, the last of which ends at `first.end_offset`, as finished."""
    moved = tx.pending[_PROGRESS]
    where = (first.group, first.stream_id, first.segment)
    before = moved.find(tx, where)
    after = before.finish(first.number, count, first.end_offset)
    if after != before:
        tx.mark_changed()
        moved.put(where, after)


@attrs.frozen
class SegmentClaim:
    """A segment as one reader of a group owns it, in one owner epoch."""

    group: str
    reader: str
    stream_id: int
    segment: SegmentId
    owner_epoch: int


def move_progress(tx: Tx, holding: SegmentClaim, progress: Progress) -> None:
    """Make `progress` that of the segment, if the reader still owns it. One UPDATE.

    Raises SegmentFenced when it was taken from the reader since, whoever has it now.
    """
    done = tx.execute(
        "UPDATE group_segment SET offset = ?, number = ?, finished = ?, moved_ms = ?"
        " WHERE group_name = ? AND stream_id = ? AND segment = ? AND owner = ? AND owner_epoch = ?",
        (
            progress.offset,
            progress.number,
            progress_text(progress),
            tx.now_ms,
            holding.group,
            holding.stream_id,
            holding.segment,
            holding.reader,
            holding.owner_epoch,
        ),
    )
    if done.rowcount != 1:
        raise fenced(holding)


def fenced(holding: SegmentClaim) -> SegmentFenced:
    """Return the error of a reader that does not own the segment any more."""
    return SegmentFenced(
        group=holding.group,
        reader=holding.reader,
        stream_id=holding.stream_id,
        segment=format_segment(holding.segment),
        owner_epoch=holding.owner_epoch,
    )


def progress_text(progress: Progress) -> str:
    """Return `progress` as it is stored."""
    return json.dumps(encode_progress(progress), separators=(",", ":"))


def progress_of_text(text: str, group: str, stream_id: int, segment: SegmentId) -> Progress:
    """Return the progress that `text` stores, of that group on that segment. Raises CorruptRecord."""
    key = f"progress of {group} on segment {segment} of stream {stream_id}"
    return decode_progress(json.loads(text), key=key)


_Where: TypeAlias = tuple[str, int, SegmentId]


class _GroupProgress:
    """What the functions of one group commit finish, until it is written in one go."""

    def __init__(self) -> None:
        self._known: dict[_Where, Progress] = {}
        self._moved: set[_Where] = set()

    def find(self, tx: Tx, where: _Where) -> Progress:
        if (found := self._known.get(where)) is None:
            found = self._known[where] = _read(tx, where)
        return found

    def put(self, where: _Where, progress: Progress) -> None:
        self._known[where] = progress
        self._moved.add(where)

    def flush(self, tx: Tx) -> None:
        """Write what moved."""
        for where in sorted(self._moved):
            progress = self._known[where]
            tx.execute(
                "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished, moved_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET offset = excluded.offset, number = excluded.number, finished = excluded.finished,"
                " moved_ms = excluded.moved_ms",
                (*where, progress.offset, progress.number, progress_text(progress), tx.now_ms),
            )
        self._known.clear()
        self._moved.clear()


_PROGRESS: Final = PendingSlot(_GroupProgress)


def _read(tx: Tx, where: _Where) -> Progress:
    row = tx.execute(
        "SELECT finished FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?", where
    ).fetchone()
    if row is None:
        return Progress()
    return progress_of_text(row[0], *where)
