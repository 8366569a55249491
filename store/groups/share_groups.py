"""The rows of share groups: how far they have come in their segments, and the ranges that are not finished.

In `group_segment`, `number` and `offset` are the first unfinished event, as for every group, and `finished` is the
first event that was not taken in. `owner_epoch` counts the changes that those that wait want to know.

`eventproc/shares/` decides what happens in one. Source: docs/design/share-groups.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from eventproc.store.catalog import StreamRecord, get_stream
from eventproc.store.database import Tx, Watch, upsert
from eventproc.store.groups.records import GROUP, GroupRecord, GroupStream, channel_of
from eventproc.store.groups.rows import SegmentKey, segment_rows
from eventproc.store.model.deliveries import DeliveredRange, DeliveryLock, SegmentDeliveries
from eventproc.store.model.ids import SegmentId, epoch_of
from eventproc.store.model.limits import PRIORITY_MAX, SET_BACK_MS
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text, progress_text, stored_progress
from eventproc.store.records import Versioned, get, replace, version_of
from eventproc.store.segments import segment_ids, segment_state

SHARE_POLL_EVENTS: Final = 500
"""Default size of a poll, as in Kafka. Higher: fewer transactions; more events wait in one consumer."""

_COLUMNS: Final = (
    "stream_id, segment, low, high, start_offset, end_offset, count, session, consumer, instance, boot, until_ms,"
    " priority"
)

_WRITE_DELIVERY: Final = upsert(
    "delivery",
    "group_name, stream_id, segment, low",
    "high, start_offset, end_offset, count, session, consumer, instance, boot, until_ms, priority",
)

_WRITE_TAKEN_IN: Final = (
    'INSERT INTO group_segment (group_name, stream_id, segment, "offset", number, finished, owner_epoch, moved_ms)'
    " VALUES (?, ?, ?, ?, ?, ?, 1, ?)"
    ' ON CONFLICT (group_name, stream_id, segment) DO UPDATE SET "offset" = excluded."offset",'
    " number = excluded.number, finished = excluded.finished, moved_ms = excluded.moved_ms,"
    " owner_epoch = group_segment.owner_epoch + 1"
)


@attrs.frozen
class TakenIn:
    """How far a share group has come in a segment.

    number, offset: the first event that is not finished. next_number, next_offset: the first that it has not taken in.
    moved_ms: when this was stored, wall ms; 0 if a version of the library wrote it that did not record the time.
    """

    number: int
    offset: int
    next_number: int
    next_offset: int
    moved_ms: int = 0

    def deliveries(self, ranges: Iterable[DeliveredRange] = ()) -> SegmentDeliveries:
        """Return the deliveries of the segment, as far as they are among `ranges`."""
        return SegmentDeliveries(self.next_number, self.next_offset, tuple(ranges))

    def is_ahead_of(self, now_ms: int) -> bool:
        """Return whether the wall clock was set back since this was stored."""
        return self.moved_ms > now_ms + SET_BACK_MS


@attrs.frozen
class DeliveryCounts:
    """How many events of a segment are taken in and not finished.

    in_flight: consumers hold them. available: they may be delivered now. set_aside: they become available later.
    size_bytes: of all of these. deliveries: {how often delivered: events}, without those that never were.
    """

    in_flight: int = 0
    available: int = 0
    set_aside: int = 0
    size_bytes: int = 0
    deliveries: Mapping[int, int] = attrs.field(factory=dict)

    @property
    def events(self) -> int:
        """All of them."""
        return self.in_flight + self.available + self.set_aside


def watch_share(group: str) -> Watch:
    """Return the subscription to a share group: to changes of it, and to events that are finished or available again.

    Each wake-up costs two queries.
    """

    def probe(tx: Tx) -> tuple[object, ...]:
        version = version_of(tx, GROUP, group)
        changes = tx.execute(
            "SELECT count(*), sum(owner_epoch) FROM group_segment WHERE group_name = ?", (group,)
        ).fetchone()
        return version, changes

    return Watch(channel_of(group), probe)


def read_taken_in(tx: Tx, group: str) -> dict[SegmentKey, TakenIn]:
    """Return how far the group is in each of its open segments, sorted. One query."""
    columns = 'number, "offset", finished, coalesce(moved_ms, 0)'
    return {key: _taken_in(group, key, *row) for key, row in segment_rows(tx, group, columns)}


def has_finished_share(tx: Tx, group: str, key: SegmentKey, number: int) -> bool | None:
    """Return whether the group has finished an event; None if the segment is none of its open ones. Two look-ups."""
    if (taken_in := stored_progress(tx, group, *key)) is None:
        return None
    if number >= taken_in.number:
        return False
    last = tx.execute(
        "SELECT high FROM delivery WHERE group_name = ? AND stream_id = ? AND segment = ? AND low <= ?"
        " ORDER BY low DESC LIMIT 1",
        (group, *key, number),
    ).fetchone()
    return last is None or last[0] <= number


def _taken_in(group: str, key: SegmentKey, number: int, offset: int, text: str, moved_ms: int) -> TakenIn:
    next_event = progress_of_text(text, group, *key)
    return TakenIn(number, offset, next_event.number, next_event.offset, moved_ms)


def read_deliveries(tx: Tx, group: str) -> dict[SegmentKey, SegmentDeliveries]:
    """Return the deliveries of all open segments of the group, sorted. Two queries, and one row for each range."""
    ranges = _by_segment(_read(tx, "group_name = ? ORDER BY stream_id, segment, low", (group,)))
    return {key: found.deliveries(ranges.get(key, ())) for key, found in read_taken_in(tx, group).items()}


def read_ranges(tx: Tx, group: str, key: SegmentKey, before: int) -> list[DeliveredRange]:
    """Return the unfinished ranges of a segment that hold an event before number `before`, sorted. One query."""
    where = "group_name = ? AND stream_id = ? AND segment = ? AND low < ? ORDER BY low"
    return [each for _, each in _read(tx, where, (group, *key, before))]


def read_held(tx: Tx, group: str, session: str | None = None) -> dict[SegmentKey, list[DeliveredRange]]:
    """Return the ranges that consumers hold, or one of them, by segment, sorted. One query, of these ranges only."""
    # SQLite takes the index `delivery_held` for this order, and not for equality: then it reads all rows of the group.
    where, values = "session IS NOT NULL", [group]
    if session is not None:
        where, values = "session BETWEEN ? AND ?", [group, session, session]
    held = _read(tx, f"group_name = ? AND {where} ORDER BY session, stream_id, segment, low", values)
    return _by_segment(sorted(held, key=lambda each: (each[0], each[1].low)))


def read_available(tx: Tx, group: str, priority: int, limit: int) -> list[tuple[SegmentKey, DeliveredRange]]:
    """Return the ranges of a priority that may be delivered now, those first that wait for longest. One query."""
    where = (
        "group_name = ? AND priority = ? AND session IS NULL AND until_ms <= ?"
        " ORDER BY until_ms, stream_id, segment, low LIMIT ?"
    )
    return _read(tx, where, (group, priority, tx.now_ms, limit))


def priorities_of(tx: Tx, group: str) -> list[int]:
    """Return the priorities of the ranges that nobody holds, the highest first. A look-up each."""
    found: list[int] = []
    below = PRIORITY_MAX + 1
    while True:
        row = tx.execute(
            "SELECT max(priority) FROM delivery WHERE group_name = ? AND session IS NULL AND priority < ?",
            (group, below),
        ).fetchone()
        if row[0] is None:
            return found
        found.append(below := row[0])


def first_available_ms(tx: Tx, group: str) -> int | None:
    """Return since when, or when, the first range is available, wall ms; None without one. Two look-ups a priority."""
    firsts = [
        tx.execute(
            "SELECT min(until_ms) FROM delivery WHERE group_name = ? AND priority = ? AND session IS NULL",
            (group, each),
        ).fetchone()[0]
        for each in priorities_of(tx, group)
    ]
    return min(firsts, default=None)


def follow_clock(tx: Tx, group: str, segments: Mapping[SegmentKey, TakenIn]) -> None:
    """After the wall clock was set back, let events of these segments become available as if it had not been.

    Call it before `write_deliveries`, which notes the time.
    """
    where = "group_name = ? AND stream_id = ? AND segment = ?"
    for key, taken_in in segments.items():
        if taken_in.is_ahead_of(tx.now_ms):
            tx.execute(
                f"UPDATE delivery SET until_ms = until_ms - ? WHERE {where} AND session IS NULL AND until_ms > ?",
                (taken_in.moved_ms - tx.now_ms, group, *key, tx.now_ms),
            )
            tx.execute(f"UPDATE group_segment SET moved_ms = ? WHERE {where}", (tx.now_ms, group, *key))


def count_deliveries(tx: Tx, group: str) -> dict[SegmentKey, DeliveryCounts]:
    """Return how many events are taken in and not finished, by segment. One query over all of their ranges."""
    rows = tx.execute(
        "SELECT stream_id, segment, count, session IS NOT NULL, session IS NULL AND until_ms > ?,"
        " sum(high - low), sum(end_offset - start_offset) FROM delivery WHERE group_name = ?"
        " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
        (tx.now_ms, group),
    ).fetchall()
    counts: dict[SegmentKey, DeliveryCounts] = {}
    for stream_id, segment, count, is_held, is_set_aside, events, size_bytes in rows:
        key = (stream_id, SegmentId(segment))
        found = counts.get(key, DeliveryCounts())
        state = "in_flight" if is_held else "set_aside" if is_set_aside else "available"
        deliveries = dict(found.deliveries)
        if count:
            deliveries[count] = deliveries.get(count, 0) + int(events)
        counts[key] = attrs.evolve(
            found,
            size_bytes=found.size_bytes + int(size_bytes),
            deliveries=deliveries,
            **{state: getattr(found, state) + int(events)},
        )
    return counts


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
    """Write the rows of a segment that differ. before: what was read; None if the segment is new."""
    old = {} if before is None else {each.low: each for each in before.ranges}
    new = {each.low: each for each in after.ranges}
    tx.executemany(
        "DELETE FROM delivery WHERE group_name = ? AND stream_id = ? AND segment = ? AND low = ?",
        [(group, *key, low) for low in old.keys() - new.keys()],
    )
    tx.executemany(
        _WRITE_DELIVERY,
        [(group, *key, *_row(each)) for low, each in new.items() if old.get(low) != each],
    )
    if before is not None and before.next_number == after.next_number and not _frees(before, after):
        return
    first = tx.execute(
        "SELECT low, start_offset FROM delivery WHERE group_name = ? AND stream_id = ? AND segment = ?"
        " ORDER BY low LIMIT 1",
        (group, *key),
    ).fetchone()
    number, offset = first or (after.next_number, after.next_offset)
    text = progress_text(Progress(after.next_number, after.next_offset))
    tx.execute(_WRITE_TAKEN_IN, (group, *key, offset, number, text, tx.now_ms))


def _frees(before: SegmentDeliveries, after: SegmentDeliveries) -> bool:
    """Whether events that somebody held are finished or available: what those that wait want to know."""
    return _held_events(after) < _held_events(before) or _events(after) < _events(before)


def _events(deliveries: SegmentDeliveries) -> int:
    return sum(each.high - each.low for each in deliveries.ranges)


def _held_events(deliveries: SegmentDeliveries) -> int:
    return sum(each.high - each.low for each in deliveries.ranges if each.lock is not None)


def _read(tx: Tx, where: str, values: Sequence[int | str]) -> list[tuple[SegmentKey, DeliveredRange]]:
    rows = tx.execute(f"SELECT {_COLUMNS} FROM delivery WHERE {where}", values).fetchall()
    return [_delivery(row) for row in rows]


def _delivery(row: Sequence[Any]) -> tuple[SegmentKey, DeliveredRange]:
    stream, segment, low, high, start, end, count, session, consumer, instance, boot, until_ms, priority = row
    lock, since_ms = None, until_ms
    if session is not None:
        lock, since_ms = DeliveryLock(session, consumer, instance, boot, until_ms), 0
    key = (stream, SegmentId(segment))
    return key, DeliveredRange(low, high, start, end, count, lock, since_ms, priority)


def _by_segment(rows: Iterable[tuple[SegmentKey, DeliveredRange]]) -> dict[SegmentKey, list[DeliveredRange]]:
    found: dict[SegmentKey, list[DeliveredRange]] = {}
    for key, each in rows:
        found.setdefault(key, []).append(each)
    return found


def _row(each: DeliveredRange) -> tuple[int | str | None, ...]:
    lock = each.lock
    holder: tuple[int | str | None, ...] = (*(None,) * 4, each.since_ms)
    if lock is not None:
        holder = lock.session, lock.consumer, lock.instance, lock.boot, lock.until_ms
    return each.low, each.high, each.start, each.end, each.count, *holder, each.priority


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
            started = SegmentDeliveries(progress.number, progress.offset)
            write_deliveries(tx, group, (stream_id, segment), None, started)


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
    """Let a share group consume one more stream, from its tail. Does nothing if it consumes it already.

    An earlier group of the name may have consumed what lies before. Raises NotFound.
    """
    found = get(tx, GROUP, group)
    stream = get_stream(tx, name).value
    if any(each.stream_id == stream.stream_id for each in found.value.streams):
        return
    added = GroupStream(name, stream.stream_id, added=True, epoch=stream.epoch)
    tails = {
        segment: Progress(state.tail_number, state.tail)
        for segment in unopened_segments(tx, attrs.evolve(added, epoch=-1))
        if (state := segment_state(tx, stream.stream_id, segment)) is not None
    }
    start_share_group(tx, group, {stream.stream_id: tails})
    kept = tuple(each for each in found.value.streams if each.name != name)
    replace_share(tx, found, attrs.evolve(found.value, streams=(*kept, added)))


def replace_share(tx: Tx, found: Versioned[GroupRecord], after: GroupRecord) -> None:
    """Replace the record of a share group, and wake its consumers."""
    replace(tx, GROUP, found, after)
    tx.wake(channel_of(found.key))
