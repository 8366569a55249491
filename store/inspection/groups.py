"""The rows of reader groups as they are stored, for checks that compare them with the log of a group."""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventproc.store.database import Tx
from eventproc.store.groups import SegmentKey
from eventproc.store.key_states import STATE
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import find


def segment_rows(tx: Tx, group: str) -> dict[SegmentKey, tuple[object, ...]]:
    """Return (owner, owner epoch, target) of each segment of `group`, or what the segment waits for."""
    rows = tx.execute(
        "SELECT stream_id, segment, owner, owner_epoch, target, waiting FROM group_segment WHERE group_name = ?",
        (group,),
    ).fetchall()
    return {
        (stream_id, SegmentId(segment)): tuple(assigned if waiting is None else json.loads(waiting))
        for stream_id, segment, *assigned, waiting in rows
    }


def stored_members(tx: Tx, group: str) -> dict[str, tuple[str, int]]:
    """Return (instance, epoch) of each reader of `group`."""
    sql = "SELECT reader, instance, epoch FROM group_member WHERE group_name = ?"
    return {reader: (instance, epoch) for reader, instance, epoch in tx.execute(sql, (group,)).fetchall()}


def group_names_of_rows(tx: Tx) -> dict[str, list[str]]:
    """Return the names of the groups that have rows, by table."""
    return {
        table: [name for (name,) in tx.execute(f"SELECT DISTINCT group_name FROM {table}").fetchall()]
        for table in ("group_segment", "group_member", "delivery", "rate_limit")
    }


def unrecorded_states(tx: Tx) -> Iterator[str]:
    """Yield each group with rows of a stream that the record of its state does not name: nothing would delete these."""
    for group, stream_id in tx.execute(
        "SELECT group_name, stream_id FROM key_state UNION SELECT group_name, stream_id FROM watermark"
    ).fetchall():
        if (found := find(tx, STATE, group)) is None or found.value.stream_id != stream_id:
            yield group
