"""Progress of groups, updated in the transaction that publishes the results of the processed events.

The system's own groups finish single events, and their host checks its `Owner`. The groups of users update the
progress of one segment, fenced by its owner (`move_progress`).
"""

from __future__ import annotations

import json
from typing import Final, Self, TypeAlias

import attrs

from eventproc.store.database import PendingSlot, Tx, upsert
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.progress import Progress, decode_progress, encode_progress
from eventproc.store.segments import Event

STORE_PROGRESS: Final = upsert(
    "group_segment", "group_name, stream_id, segment", '"offset", number, finished, moved_ms'
)
"""Stores progress that has no owner."""


@attrs.frozen
class EventRef:
    """Reference to an event for progress: the group that reads it, its position, and the end of its bytes."""

    group: str
    stream_id: int
    segment: SegmentId
    number: int
    end_offset: int

    @classmethod
    def of(cls, event: Event, *, group: str, stream_id: int) -> Self:
        """Return the reference of `group` to an event that it read from the stream."""
        end_offset = event.offset + FRAME_BYTES + len(event.payload)
        return cls(group, stream_id, event.segment, event.number, end_offset)


def get_progress(tx: Tx, group: str, stream_id: int, segment: SegmentId) -> Progress:
    """Return the group's progress on the segment, which is empty if none is stored."""
    tx.flush_pending()
    return stored_progress(tx, group, stream_id, segment) or Progress()


def stored_progress(tx: Tx, group: str, stream_id: int, segment: SegmentId) -> Progress | None:
    """Return the group's progress that is stored for the segment; None if it has no row. One look-up."""
    row = tx.execute(
        "SELECT finished FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
        (group, stream_id, segment),
    ).fetchone()
    return None if row is None else progress_of_text(row[0], group, stream_id, segment)


def has_other_group(tx: Tx, group: str, stream_id: int) -> bool:
    """Return whether a group other than `group` has progress on the stream."""
    other = tx.execute(
        "SELECT 1 FROM group_segment WHERE stream_id = ? AND group_name != ? LIMIT 1", (stream_id, group)
    )
    return other.fetchone() is not None


def finish_event(tx: Tx, event: EventRef) -> None:
    """Mark the event as finished for its group. A repeated call changes nothing.

    All events that one commit finishes cost one lookup and one row per segment.
    """
    finish_events(tx, event, 1)


def finish_events(tx: Tx, first: EventRef, count: int) -> None:
    """Mark `count` events from `first` on as finished. `first.end_offset` is the end of the last of them."""
    moved = tx.pending[_PROGRESS]
    where = (first.group, first.stream_id, first.segment)
    before = moved.find(tx, where)
    after = before.finish(first.number, count, first.end_offset)
    if after != before:
        tx.mark_changed()
        moved.put(where, after)


@attrs.frozen
class SegmentClaim:
    """A reader's claim to own a segment of its group, with the owner epoch in which it became the owner."""

    group: str
    reader: str
    stream_id: int
    segment: SegmentId
    owner_epoch: int


def move_progress(tx: Tx, claim: SegmentClaim, progress: Progress) -> None:
    """Store `progress` for the segment, if the reader still owns it. One UPDATE.

    Raises SegmentFenced if the reader no longer owns it.
    """
    done = tx.execute(
        'UPDATE group_segment SET "offset" = ?, number = ?, finished = ?, moved_ms = ?'
        " WHERE group_name = ? AND stream_id = ? AND segment = ? AND owner = ? AND owner_epoch = ?",
        (
            progress.offset,
            progress.number,
            progress_text(progress),
            tx.now_ms,
            claim.group,
            claim.stream_id,
            claim.segment,
            claim.reader,
            claim.owner_epoch,
        ),
    )
    if done.rowcount != 1:
        raise segment_fenced(claim)


def verify_claim(tx: Tx, claim: SegmentClaim) -> None:
    """Raise SegmentFenced unless the reader still owns the segment. One look-up."""
    row = tx.execute(
        "SELECT owner, owner_epoch FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
        (claim.group, claim.stream_id, claim.segment),
    ).fetchone()
    if row is None or (row[0], row[1]) != (claim.reader, claim.owner_epoch):
        raise segment_fenced(claim)


def segment_fenced(claim: SegmentClaim) -> SegmentFenced:
    """Return the error for a reader that no longer owns the segment."""
    return SegmentFenced(
        group=claim.group,
        reader=claim.reader,
        stream_id=claim.stream_id,
        segment=format_segment(claim.segment),
        owner_epoch=claim.owner_epoch,
    )


def progress_text(progress: Progress) -> str:
    """Return `progress` in its stored form."""
    return json.dumps(encode_progress(progress), separators=(",", ":"))


def progress_of_text(text: str, group: str, stream_id: int, segment: SegmentId) -> Progress:
    """Return the progress in `text`, which is that of the group on the segment. Raises CorruptRecord."""
    key = f"progress of {group} on segment {segment} of stream {stream_id}"
    return decode_progress(json.loads(text), key=key)


_Where: TypeAlias = tuple[str, int, SegmentId]


class _PendingProgress:
    """Progress that the functions of one commit batch change; written once at its end."""

    def __init__(self) -> None:
        self._known: dict[_Where, Progress] = {}
        self._moved: set[_Where] = set()

    def find(self, tx: Tx, where: _Where) -> Progress:
        if (found := self._known.get(where)) is None:
            found = self._known[where] = stored_progress(tx, *where) or Progress()
        return found

    def put(self, where: _Where, progress: Progress) -> None:
        self._known[where] = progress
        self._moved.add(where)

    def flush(self, tx: Tx) -> None:
        """Write the changed progress."""
        for where in sorted(self._moved):
            progress = self._known[where]
            tx.execute(
                STORE_PROGRESS,
                (*where, progress.offset, progress.number, progress_text(progress), tx.now_ms),
            )
        self._known.clear()
        self._moved.clear()


_PROGRESS: Final = PendingSlot(_PendingProgress)
