"""The rows of a group's segments and members: how far each segment is finished, its owner, heartbeats.

The log of a group decides which member owns which segment (`eventproc/groups/`), and these rows repeat it. Progress is
the exception: it moves in its row alone (`store.progress.move_progress`) and enters the log when the segment changes
hands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

from eventproc.store.database import Tx, Watch, find_number
from eventproc.store.groups.kafka_members import KAFKA_MEMBERS, KAFKA_NOTES, KAFKA_PENDING, note_key
from eventproc.store.groups.records import (
    GENERATION,
    GROUP,
    GROUPS,
    PRAVEGA,
    TRUNCATABLE,
    channel_of,
)
from eventproc.store.jobs import delete_jobs
from eventproc.store.key_states import delete_state
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text, progress_text, stored_progress
from eventproc.store.records import delete, delete_all, get, keys, raise_counter, version_of
from eventproc.store.replicated import delete_log

SegmentKey: TypeAlias = tuple[int, SegmentId]
"""(stream_id, segment). A group may read several streams, so the segment's id alone is not unique."""

SegmentProgress: TypeAlias = tuple[SegmentKey, Progress]
"""How far a segment is finished."""


def watch_group(group: str) -> Watch:
    """Return the subscription to changes of the group's members and owners. Each wake-up costs one look-up."""

    return Watch(channel_of(group), lambda tx: version_of(tx, GROUP, group))


def watch_progress(group: str) -> Watch:
    """Return the subscription to progress of the group. Each wake-up costs one query.

    It reports another process's finished ranges beyond a completed prefix only when the prefix moves.
    """

    def probe(tx: Tx) -> object:
        # No prefix moves back between two changes of the group, which `watch_group` reports: the sum shows each move.
        # In a group of Kafka's clients, a commit that goes back may hide another one from other processes.
        return find_number(tx, "SELECT sum(number) FROM group_segment WHERE group_name = ?", group)

    return Watch(progress_channel(group), probe)


def progress_channel(group: str) -> tuple[str, str]:
    """Return the channel to wake after progress of the group became durable."""
    return "progress", group


def find_progress(tx: Tx, group: str, key: SegmentKey) -> Progress | None:
    """Return the durable progress of a segment; None unless it is an open one of the group. One look-up."""
    stream_id, segment = key
    row = tx.execute(
        "SELECT finished FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?"
        " AND waiting IS NULL",
        (group, stream_id, segment),
    ).fetchone()
    return None if row is None else progress_of_text(row[0], group, stream_id, segment)


def progress_of(tx: Tx, group: str, keys: Iterable[SegmentKey]) -> tuple[SegmentProgress, ...]:
    """Return the durable progress of segments of the group. One look-up each."""
    found: list[SegmentProgress] = []
    for key in keys:
        progress = stored_progress(tx, group, *key)
        assert progress is not None, f"{group} has no row of {key}"
        found.append((key, progress))
    return tuple(found)


def segment_rows(tx: Tx, group: str, columns: str, where: str = "TRUE") -> list[tuple[SegmentKey, list[Any]]]:
    """Return the values of these columns for each segment of the group of which `where` is true, sorted. One query."""
    rows = tx.execute(
        f"SELECT stream_id, segment, {columns} FROM group_segment WHERE group_name = ? AND {where}"
        " ORDER BY stream_id, segment",
        (group,),
    )
    return [((stream_id, SegmentId(segment)), values) for stream_id, segment, *values in rows.fetchall()]


def progress_by_segment(tx: Tx, group: str) -> dict[SegmentKey, Progress]:
    """Return the durable progress of all open segments of the group. One query."""
    found = segment_rows(tx, group, "finished", "waiting IS NULL")
    return {key: progress_of_text(text, group, *key) for key, (text,) in found}


def progress_times(tx: Tx, group: str) -> dict[SegmentKey, int | None]:
    """Return when progress of each segment last became durable, wall clock; None if it never did. One query."""
    return {key: moved_ms for key, (moved_ms,) in segment_rows(tx, group, "moved_ms")}


def stored_assignments(tx: Tx, group: str) -> dict[SegmentKey, tuple[Progress, str | None, int, str | None]]:
    """Return (progress, owner, owner epoch, target) of each open segment, sorted. One query."""
    found = segment_rows(tx, group, "finished, owner, owner_epoch, target", "waiting IS NULL")
    return {
        key: (progress_of_text(text, group, *key), owner, epoch, target)
        for key, (text, owner, epoch, target) in found
    }


def stored_waits(tx: Tx, group: str) -> tuple[tuple[SegmentKey, tuple[SegmentId, ...]], ...]:
    """Return each segment that waits, sorted, with what it waits for. One query."""
    found = segment_rows(tx, group, "waiting", "waiting IS NOT NULL")
    return tuple([(key, tuple(map(SegmentId, json.loads(waiting)))) for key, (waiting,) in found])


def note_committed(tx: Tx, group: str, keys: Iterable[SegmentKey]) -> None:
    """Count the progress of segments as stored now, where none was stored before."""
    tx.executemany(
        "UPDATE group_segment SET moved_ms = ?"
        " WHERE group_name = ? AND stream_id = ? AND segment = ? AND moved_ms IS NULL",
        [(tx.now_ms, group, *key) for key in keys],
    )


def delete_segment_rows(tx: Tx, group: str, keys: Iterable[SegmentKey]) -> None:
    """Remove the rows of segments, with what clients of Kafka said of them."""
    gone = list(keys)
    tx.executemany(
        "DELETE FROM group_segment WHERE group_name = ? AND stream_id = ? AND segment = ?",
        [(group, *key) for key in gone],
    )
    delete_all(tx, KAFKA_NOTES, [note_key(group, key) for key in gone])


def write_owner(
    tx: Tx, group: str, key: SegmentKey, *, owner: str | None, owner_epoch: int, target: str | None
) -> None:
    """Write who owns an open segment and who shall own it; its progress stays as the row has it."""
    tx.execute(
        "UPDATE group_segment SET owner = ?, owner_epoch = ?, target = ?"
        " WHERE group_name = ? AND stream_id = ? AND segment = ?",
        (owner, owner_epoch, target, group, *key),
    )


def write_segment(
    tx: Tx,
    group: str,
    key: SegmentKey,
    progress: Progress,
    *,
    owner: str | None,
    owner_epoch: int,
    target: str | None,
) -> None:
    """Insert or replace the row of an open segment. A new row has no time at which its progress moved.

    One whose progress others than its owner change has no event time any more.
    """
    tx.execute(
        'INSERT INTO group_segment (group_name, stream_id, segment, "offset", number, finished, owner,'
        " owner_epoch, target) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        ' ON CONFLICT (group_name, stream_id, segment) DO UPDATE SET "offset" = excluded."offset",'
        " number = excluded.number, finished = excluded.finished, owner = excluded.owner,"
        " owner_epoch = excluded.owner_epoch, target = excluded.target, waiting = NULL,"
        " moved_ms = CASE WHEN group_segment.finished = excluded.finished"
        " THEN group_segment.moved_ms ELSE ? END,"
        " event_ms = CASE WHEN group_segment.finished = excluded.finished THEN group_segment.event_ms END",
        (
            *(group, *key, progress.offset, progress.number, progress_text(progress)),
            *(owner, owner_epoch, target, tx.now_ms),
        ),
    )


def write_waiting(tx: Tx, group: str, key: SegmentKey, predecessors: Iterable[SegmentId]) -> None:
    """Write the row of a segment that waits until `predecessors` are finished."""
    tx.execute(
        'INSERT INTO group_segment (group_name, stream_id, segment, "offset", number, finished, waiting)'
        " VALUES (?, ?, ?, 0, 0, '[0,0]', ?)"
        " ON CONFLICT (group_name, stream_id, segment) DO UPDATE SET waiting = excluded.waiting",
        (group, *key, json.dumps(sorted(predecessors))),
    )


def insert_member(
    tx: Tx, group: str, reader: str, *, instance: str, epoch: int, joined_ms: int, status: str | None = None
) -> None:
    """Add the row of a reader that joined. Its first heartbeat is now. instance: "" for a client of Kafka."""
    tx.execute(
        "INSERT INTO group_member (group_name, reader, instance, epoch, joined_ms, seen_ms, status)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (group, reader, instance, epoch, joined_ms, tx.monotonic_ms, status),
    )


def delete_member(tx: Tx, group: str, reader: str) -> None:
    """Remove the row of a reader."""
    tx.execute("DELETE FROM group_member WHERE group_name = ? AND reader = ?", (group, reader))


def write_heartbeat(tx: Tx, group: str, reader: str, epoch: int) -> None:
    """Note that the reader is alive, as long as its membership is still the one of `epoch`."""
    tx.execute(
        "UPDATE group_member SET seen_ms = ? WHERE group_name = ? AND reader = ? AND epoch = ?",
        (tx.monotonic_ms, group, reader, epoch),
    )


def write_heartbeats(tx: Tx, group: str) -> None:
    """Count every reader of the group as alive now: the patience with it begins."""
    tx.execute("UPDATE group_member SET seen_ms = ? WHERE group_name = ?", (tx.monotonic_ms, group))


def silent_members(tx: Tx, group: str, patience_ms: int, *, exclude: str) -> frozenset[str]:
    """Return the readers, except `exclude`, that wrote no heartbeat for longer than `patience_ms`. One query."""
    return frozenset(last_heard(tx, group, tx.monotonic_ms - patience_ms)) - {exclude}


def last_heard(tx: Tx, group: str, before_ms: int) -> dict[str, int]:
    """Return when readers were heard, monotonic, of those that were not heard since `before_ms`. One query."""
    sql = "SELECT reader, seen_ms FROM group_member WHERE group_name = ? AND seen_ms < ?"
    return dict(tx.execute(sql, (group, before_ms)).fetchall())


def epoch_of_member(tx: Tx, group: str, reader: str) -> int | None:
    """Return the epoch of a reader that is online; None if it is not. One look-up."""
    sql = "SELECT epoch FROM group_member WHERE group_name = ? AND reader = ?"
    return find_number(tx, sql, group, reader)


def write_status(tx: Tx, group: str, reader: str, epoch: int, status: str) -> None:
    """Publish `status` (JSON) as that of the reader, as long as its membership is still the one of `epoch`."""
    tx.execute(
        "UPDATE group_member SET status = ? WHERE group_name = ? AND reader = ? AND epoch = ?",
        (status, group, reader, epoch),
    )


def online_members(tx: Tx, group: str) -> list[tuple[str, str, int, str | None]]:
    """Return (reader, instance, joined_ms, status) of all readers online, sorted by reader. One query."""
    sql = "SELECT reader, instance, joined_ms, status FROM group_member WHERE group_name = ? ORDER BY reader"
    return list(tx.execute(sql, (group,)).fetchall())


def stored_members(tx: Tx, group: str) -> dict[str, tuple[str, int, int]]:
    """Return (instance, epoch, joined_ms) of each reader online, by its id. One query."""
    sql = "SELECT reader, instance, epoch, joined_ms FROM group_member WHERE group_name = ? ORDER BY reader"
    return {reader: (instance, epoch, at_ms) for reader, instance, epoch, at_ms in tx.execute(sql, (group,))}


def member_instances(tx: Tx) -> list[tuple[str, str]]:
    """Return (group, instance) of all readers online in any group, sorted, without Kafka's clients. One query."""
    rows = tx.execute(
        "SELECT DISTINCT group_name, instance FROM group_member WHERE instance != '' ORDER BY group_name, instance"
    )
    return list(rows.fetchall())


def delete_group(tx: Tx, name: str) -> None:
    """Remove the group and its progress; readers are fenced, and consumers lose what they hold. Raises NotFound."""
    found = get(tx, GROUP, name)
    delete(tx, GROUP, found)
    if found.value.kind == PRAVEGA:
        from eventproc.store.groups.pravega_groups import delete_pravega_records  # few programs need it

        delete_pravega_records(tx, name)
    if found.value.log is not None:
        delete_log(tx, found.value.log)
    for table in ("group_segment", "group_member", "delivery", "rate_limit"):
        tx.execute(f"DELETE FROM {table} WHERE group_name = ?", (name,))
    delete_jobs(tx, name)
    delete_all(tx, TRUNCATABLE, keys(tx, TRUNCATABLE, prefix=f"{name}/"))
    delete_all(tx, KAFKA_NOTES, keys(tx, KAFKA_NOTES, prefix=f"{name}/"))
    delete_all(tx, KAFKA_PENDING, keys(tx, KAFKA_PENDING, prefix=f"{name}/"))
    delete_all(tx, KAFKA_MEMBERS, [name])
    delete_state(tx, name)
    raise_counter(tx, GENERATION, found.value.generation)  # later groups start above it
    tx.wake(channel_of(name))
    tx.wake(GROUPS)
