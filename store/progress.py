"""Progress of processor groups, moved in the transaction that publishes what was processed."""

from __future__ import annotations

import json

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
    row = tx.execute(
        "SELECT finished FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
        (group, stream_id, segment),
    ).fetchone()
    if row is None:
        return Progress()
    return decode_progress(
        json.loads(row[0]), key=f"progress of {group} on segment {segment} of stream {stream_id}"
    )


def finish_event(tx: Tx, event: EventRef) -> None:
    """Mark the event as finished for its group; a repeated call changes nothing."""
    before = get_progress(tx, event.group, event.stream_id, event.segment)
    after = before.finish(event.number, 1, event.end_offset)
    if after != before:
        tx.execute(
            "INSERT INTO group_segment (group_name, stream_id, segment, offset, number, finished)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET offset = excluded.offset, number = excluded.number, finished = excluded.finished",
            (
                *attrs.astuple(event)[:3],
                after.offset,
                after.number,
                json.dumps(encode_progress(after), separators=(",", ":")),
            ),
        )
