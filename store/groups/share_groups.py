"""The rows of share groups: the progress of their segments, and the ranges in delivery.

`eventproc/shares/` decides what happens in one. Source: docs/design/share-groups.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from eventproc.store.catalog import StreamRecord, get_stream
from eventproc.store.database import Tx, Watch, upsert
from eventproc.store.groups.records import GROUP, GroupRecord, GroupStream, channel_of
from eventproc.store.groups.rows import SegmentKey
from eventproc.store.model.deliveries import DeliveredRange, DeliveryLock, SegmentDeliveries
from eventproc.store.model.ids import SegmentId, epoch_of
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.progress import STORE_PROGRESS, progress_of_text, progress_text
from eventproc.store.records import Versioned, get, replace
from eventproc.store.segments import segment_ids

SHARE_POLL_EVENTS: Final = 500
"""Default size of a poll, as in Kafka. Higher: fewer transactions; more events wait in one consumer."""

_WRITE_DELIVERY: Final = upsert(
    "delivery",
    "group_name, stream_id, segment, low",
    "high, start_offset, end_offset, count, session, consumer, instance, boot, until_ms",
)


def watch_share(group: str) -> Watch:
    """Return the subscription to a share group. Each wake-up costs three queries."""

    def probe(tx: Tx) -> tuple[object, ...]:
        version = tx.execute(
            "SELECT version FROM record WHERE kind = ? AND key = ?", (GROUP.name, group)
        ).fetchone()
        available = tx.execute(
            "SELECT count(*), sum(low), sum(count) FROM delivery WHERE group_name = ? AND session IS NULL",
            (group,),
        ).fetchone()
        finished = tx.execute(
            "SELECT sum(number), sum(length(finished)) FROM group_segment WHERE group_name = ?", (group,)
        ).fetchone()
        return version, available, finished

    return Watch(channel_of(group), probe)


def read_deliveries(tx: Tx, group: str) -> dict[SegmentKey, SegmentDeliveries]:
    """Return the deliveries of all open segments of the group, sorted. Two queries."""
    ranges: dict[SegmentKey, list[DeliveredRange]] = {}
    for (
        stream_id,
        segment,
        low,
        high,
        start,
        end,
        count,
        session,
        consumer,
        instance,
        boot,
        until_ms,
    ) in tx.execute(
        "SELECT stream_id, segment, low, high, start_offset, end_offset, count, session, consumer, instance, boot,"
        " until_ms FROM delivery WHERE group_name = ? ORDER BY stream_id, segment, low",
        (group,),
    ).fetchall():
        lock = None if session is None else DeliveryLock(session, consumer, instance, boot, until_ms)
        found = DeliveredRange(low, high, start, end, count, lock)
        ranges.setdefault((stream_id, segment), []).append(found)
    rows = tx.execute(
        "SELECT stream_id, segment, finished FROM group_segment WHERE group_name = ?"
        " ORDER BY stream_id, segment",
        (group,),
    ).fetchall()
    return {
        (stream_id, SegmentId(segment)): SegmentDeliveries(
            progress_of_text(text, group, stream_id, segment), tuple(ranges.get((stream_id, segment), ()))
        )
        for stream_id, segment, text in rows
    }


def lock_instances(tx: Tx) -> list[tuple[str, str]]:
    """Return (group, instance) of all locks of any share group, sorted. One query."""
    rows = tx.execute(
        "SELECT DISTINCT group_name, instance FROM delivery WHERE session IS NOT NULL"
        " ORDER BY group_name, instance"
    )
    return list(rows.fetchall())


def write_deliveries(
    tx: Tx, group: str, key: SegmentKey, before: SegmentDeliveries | None, after: SegmentDeliveries
) -> None:
    """Write the rows of a segment that differ. before: what is stored; None if the segment is new."""
    if before is None or before.progress != after.progress:
        tx.execute(
            STORE_PROGRESS,
            (
                *(group, *key, after.progress.offset, after.progress.number),
                *(progress_text(after.progress), tx.now_ms),
            ),
        )
    old = {} if before is None else {each.low: each for each in before.ranges}
    new = {each.low: each for each in after.ranges}
    tx.executemany(
        "DELETE FROM delivery WHERE group_name = ? AND stream_id = ? AND segment = ? AND low = ?",
        [(group, *key, low) for low in old.keys() - new.keys()],
    )
    tx.executemany(
        _WRITE_DELIVERY,
        [(group, *key, *_columns(each)) for low, each in new.items() if old.get(low) != each],
    )


def _columns(each: DeliveredRange) -> tuple[int | str | None, ...]:
    lock = each.lock
    holder: tuple[int | str | None, ...] = (None,) * 5
    if lock is not None:
        holder = lock.session, lock.consumer, lock.instance, lock.boot, lock.until_ms
    return each.low, each.high, each.start, each.end, each.count, *holder


def delete_deliveries(tx: Tx, group: str, segments: Iterable[SegmentKey]) -> None:
    """Remove the rows of segments: they were finished, deleted, or truncated."""
    for key in segments:
        for table in ("group_segment", "delivery"):
            tx.execute(
                f"DELETE FROM {table} WHERE group_name = ? AND stream_id = ? AND segment = ?", (group, *key)
            )


def start_share_group(
    tx: Tx, group: str, starts: Mapping[int, Mapping[SegmentId, Progress]], opened: Iterable[SegmentKey] = ()
) -> None:
    """Let the group begin at `starts`, {stream id: {segment: progress}}. opened: the segments that it has now."""
    delete_deliveries(tx, group, opened)
    for stream_id, segments in starts.items():
        for segment, progress in segments.items():
            write_deliveries(tx, group, (stream_id, segment), None, SegmentDeliveries(progress))


def followed(where: GroupStream, stream_id: int) -> GroupStream:
    """Return where a share group stands in the stream that has the name now: before the head of one created again."""
    return where if where.stream_id == stream_id else attrs.evolve(where, stream_id=stream_id, epoch=-1)


def unopened_segments(tx: Tx, where: GroupStream) -> list[SegmentId]:
    """Return the segments of a stream that a share group has not opened yet, in ascending order. One query.

    The reserve of a topic is not opened: it never has events.
    """
    return [
        segment
        for segment in segment_ids(tx, where.stream_id)
        if epoch_of(segment) > where.epoch and not is_reserve(segment)
    ]


def open_new_segments(
    tx: Tx, group: str, where: GroupStream, stream: StreamRecord
) -> tuple[GroupStream, list[SegmentKey]]:
    """Open the segments that were created after `where.epoch`, from their beginnings; return the stream and them."""
    opened = [(stream.stream_id, segment) for segment in unopened_segments(tx, where)]
    for key in opened:
        write_deliveries(tx, group, key, None, SegmentDeliveries())
    return attrs.evolve(where, epoch=stream.epoch), opened


def add_share_stream(tx: Tx, group: str, name: str) -> None:
    """Let a share group consume one more stream, from its head. Does nothing if it consumes it already.

    Raises NotFound.
    """
    found = get(tx, GROUP, group)
    stream = get_stream(tx, name).value
    if any(each.stream_id == stream.stream_id for each in found.value.streams):
        return
    where = GroupStream(name, stream.stream_id, added=True)
    added, _ = open_new_segments(tx, group, where, stream)
    kept = tuple(each for each in found.value.streams if each.name != name)
    replace_share(tx, found, attrs.evolve(found.value, streams=(*kept, added)))


def replace_share(tx: Tx, found: Versioned[GroupRecord], after: GroupRecord) -> None:
    """Replace the record of a share group, and wake its consumers."""
    replace(tx, GROUP, found, after)
    tx.wake(channel_of(found.key))
