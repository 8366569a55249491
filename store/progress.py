"""Progress of processor groups, moved in the transaction that publishes what was processed."""

from __future__ import annotations

import json
from typing import TypeAlias

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress, decode_progress, encode_progress


@attrs.frozen
class EventRef:
    """An event as progress sees it: which group reads it, where it lies, where its bytes end."""

    group: str
    stream_id: int
    segment: SegmentId
    number: int
    end_offset: int


def get_progress(tx: Tx, group: str, stream_id: int, segment: SegmentId) -> Progress:
    """Return the group's progress on the segment; nothing finished when it has none."""
    tx.flush_deferred()
    return _read(tx, (group, stream_id, segment))


def finish_event(tx: Tx, event: EventRef) -> None:
    """Mark the event as finished for its group; a repeated call changes nothing.

    Events finished in one commit cost one look-up and one row a segment, however many they are.
    """
    finish_events(tx, event, 1)


def finish_events(tx: Tx, first: EventRef, count: int) -> None:
    """Mark `count` events from `first` on, the last of which ends at `first.end_offset`, as finished."""
    moved = tx.defer("progress", _GroupProgress)
    where = (first.group, first.stream_id, first.segment)
    before = moved.find(tx, where)
    after = before.finish(first.number, count, first.end_offset)
    if after != before:
        tx.mark_changed()
        moved.put(where, after)


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
                "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET offset = excluded.offset, number = excluded.number, finished = excluded.finished",
                (
                    *where,
                    progress.offset,
                    progress.number,
                    json.dumps(encode_progress(progress), separators=(",", ":")),
                ),
            )
        self._known.clear()
        self._moved.clear()


def _read(tx: Tx, where: _Where) -> Progress:
    row = tx.execute(
        "SELECT finished FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?", where
    ).fetchone()
    if row is None:
        return Progress()
    group, stream_id, segment = where
    return decode_progress(
        json.loads(row[0]), key=f"progress of {group} on segment {segment} of stream {stream_id}"
    )
