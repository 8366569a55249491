"""The rows of reader groups as they are stored, for checks that compare them with the log of a group."""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId


@attrs.frozen
class GroupRows:
    """What the tables say of one group.

    owners: (owner, owner epoch, target) of each segment, or what a segment waits for.
    offsets: offset of the next event of each segment, bytes, and whether a reader owns the segment.
    members: (instance, epoch) of each reader.
    """

    owners: Mapping[tuple[int, SegmentId], tuple[object, ...]]
    offsets: Mapping[tuple[int, SegmentId], tuple[int, bool]]
    members: Mapping[str, tuple[str, int]]


def group_rows(tx: Tx, group: str) -> GroupRows:
    """Return the rows of `group`."""
    owners: dict[tuple[int, SegmentId], tuple[object, ...]] = {}
    offsets: dict[tuple[int, SegmentId], tuple[int, bool]] = {}
    for stream_id, segment, offset, owner, owner_epoch, target, waiting in tx.execute(
        "SELECT stream_id, segment, offset, owner, owner_epoch, target, waiting FROM group_segment"
        " WHERE group_name = ?",
        (group,),
    ).fetchall():
        key = stream_id, SegmentId(segment)
        owners[key] = (owner, owner_epoch, target) if waiting is None else tuple(json.loads(waiting))
        offsets[key] = offset, owner is not None
    members = tx.execute(
        "SELECT reader, instance, epoch FROM group_member WHERE group_name = ?", (group,)
    ).fetchall()
    return GroupRows(owners, offsets, {reader: (instance, epoch) for reader, instance, epoch in members})


def group_names_of_rows(tx: Tx) -> dict[str, list[str]]:
    """Return the names of the groups that have rows, by table."""
    return {
        table: [name for (name,) in tx.execute(f"SELECT DISTINCT group_name FROM {table}").fetchall()]
        for table in ("group_segment", "group_member", "delivery")
    }
