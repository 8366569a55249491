"""Acquiring events of a share group: which events one transaction hands out, in which order.

New events of streams with priorities are taken in first. Then what is available is handed out, the highest priority
first, and then new events of streams without priorities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import Final

import attrs

from eventproc.base.bounded_cache import BoundedCache
from eventproc.groups import SegmentKey
from eventproc.shares.delivery import Holder, SettledSpans, find_record, follow, settle
from eventproc.store.database import Database, SharedSlot, Tx
from eventproc.store.groups import (
    GroupRecord,
    GroupStream,
    TakenIn,
    channel_of,
    priorities_of,
    read_available,
    write_deliveries,
)
from eventproc.store.model.deliveries import (
    DeliveredRange,
    DeliveryLock,
    DeliverySpan,
    SegmentDeliveries,
    Settlement,
    Terms,
)
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import (
    EventRun,
    first_expiry,
    is_prioritized,
    live_ranges,
    priority_parts,
    read,
)

ACQUIRED_BYTES_MAX: Final = 2**20
"""Bytes of events that one transaction hands out, give or take one event. They are read in it: higher holds the write
lock for longer, lower costs more commits."""

AHEAD_BYTES_MAX: Final = 32 * 2**20
"""Bytes of decoded events that are kept for the next transactions, all segments together. Lower: large runs of many
segments are decoded again for each poll."""

EVENT_BYTES_GUESS: Final = 256
"""Bytes of an event for which the first read of a transaction is laid out. Larger events cost further reads; smaller
ones are decoded and not used."""

TAKEN_IN_EVENTS_MAX: Final = 5_000
"""Events of streams with priorities that one acquisition takes in, beyond those that it hands out, so that the highest
are known before any of them is delivered. Higher: the write lock is held for longer. Lower: a high priority behind many
new events is found later."""

TAKEN_IN_BYTES_MAX: Final = 4 * 2**20
"""Bytes of such events, give or take one extent."""

LOWEST_FIRST_TURNS: Final = 10
"""One of so many acquisitions of a consumer begins with the lowest priority, so that none starves. Higher: low
ones wait for longer while there is always something higher. Lower: high ones wait more often."""

_low: Final = attrgetter("low")


RUNS_AHEAD: Final = SharedSlot(
    lambda: BoundedCache[SegmentKey, EventRun](AHEAD_BYTES_MAX, lambda run: run.end - run.start)
)
"""Runs of which only a part was handed out, so that the next transaction does not decode them again: one per segment.

Durable events never change, except that a compaction removes some, and the id of a segment is never reused. So an
entry is never wrong if it is kept as an effect of its transaction. Used on the writer's thread and on the loop.
"""


@attrs.frozen
class AcquiredRun:
    """Events that a consumer acquired, delivered for the `count`-th time."""

    stream: str
    stream_id: int
    run: EventRun
    count: int


@attrs.frozen
class Acquisition:
    """What one transaction handed out. until_ms: when its locks end, monotonic. lock_ms: how long they last."""

    runs: tuple[AcquiredRun, ...]
    until_ms: int
    lock_ms: int
    generation: int
    lost: tuple[str, ...]


def acquire(
    tx: Tx,
    db: Database,
    name: str,
    holder: Holder,
    events_max: int,
    settled: SettledSpans | None = None,
    first: int = 0,
) -> Acquisition:
    """Settle `settled`, then hand out up to `events_max` events to the consumer. Expired events are finished instead.

    settled: what the consumer finished; what it no longer holds is ignored, and returned as `lost`.
    first: which of the open segments to begin with, so that none is starved.
    Raises NotFound, ShareStreamsDeleted, and what `append_letters` raises.
    """
    lost = () if settled is None else settle(tx, db, name, holder, settled, strict=False)
    record, open_segments = follow(tx, db, name)
    until_ms = tx.monotonic_ms + record.share.lock_ms
    if record.paused:
        return Acquisition((), until_ms, record.share.lock_ms, record.generation, lost)
    lock = DeliveryLock(holder.session, holder.consumer, db.instance_id, db.clock.boot_id, until_ms)
    handing_out = _HandingOut(tx, record, open_segments, lock, events_max)
    prioritized = {each.stream_id for each in record.streams if is_prioritized(tx, each.stream_id)}
    keys = list(open_segments)
    begin = first % len(keys) if keys else 0
    keys = [*keys[begin:], *keys[:begin]]
    handing_out.take_in([key for key in keys if key[0] in prioritized])
    handing_out.available(lowest_first=first % LOWEST_FIRST_TURNS == LOWEST_FIRST_TURNS - 1)
    handing_out.new([key for key in keys if key[0] not in prioritized])
    handing_out.write()
    return Acquisition(tuple(handing_out.runs), until_ms, record.share.lock_ms, record.generation, lost)


class _HandingOut:
    """One acquisition: what it hands out, and how the deliveries of the segments change by it."""

    def __init__(
        self,
        tx: Tx,
        record: GroupRecord,
        open_segments: Mapping[SegmentKey, TakenIn],
        lock: DeliveryLock,
        events_max: int,
    ) -> None:
        self.runs: list[AcquiredRun] = []
        self._tx = tx
        self._record = record
        self._lock = lock
        self._left = events_max
        self._bytes_left = ACQUIRED_BYTES_MAX
        self._names = {each.stream_id: each.name for each in record.streams}
        self._ttls = {each.stream_id: _ttl_of(tx, each) for each in record.streams}
        self._source = _Source(tx)
        self._open = dict(open_segments)
        self._before: dict[SegmentKey, SegmentDeliveries] = {}
        self._after: dict[SegmentKey, SegmentDeliveries] = {}
        self._expired: set[SegmentKey] = set()

    def take_in(self, keys: Iterable[SegmentKey]) -> None:
        """Take new events of these segments in, so that those with the highest priority are known."""
        left, bytes_left = TAKEN_IN_EVENTS_MAX, TAKEN_IN_BYTES_MAX
        for key in keys:
            before = after = self._open[key].deliveries()
            while left > 0 and bytes_left > 0:
                runs = self._source.events(key, after.next_number, after.next_offset, left, bytes_left)
                for run in runs:
                    after = after.take_in(priority_parts(run), self._tx.now_ms)
                    left -= len(run)
                    bytes_left -= run.end - run.start
                if not runs:
                    break
            if after is not before:
                write_deliveries(self._tx, self._record.name, key, before, after)
                self._tx.wake(channel_of(self._record.name))
                self._open[key] = attrs.evolve(
                    self._open[key], next_number=after.next_number, next_offset=after.next_offset
                )

    def available(self, *, lowest_first: bool) -> None:
        """Hand out what is available, the highest priority first."""
        name, wanted = self._record.name, self._left
        chosen: list[tuple[SegmentKey, DeliveredRange]] = []
        priorities = priorities_of(self._tx, name)
        for priority in reversed(priorities) if lowest_first else priorities:
            if wanted > 0:
                found = read_available(self._tx, name, priority, wanted)
                wanted -= sum(each.high - each.low for _, each in found)
                chosen += found
        for key in {key: None for key, _ in chosen}:
            if key in self._open:
                ranges = sorted((each for of, each in chosen if of == key), key=_low)
                self._before[key] = self._after[key] = self._open[key].deliveries(ranges)
        for key, each in chosen:
            if key in self._open:
                self._hand_out(key, each.low, each.start, each.high - each.low, each.count)

    def new(self, keys: Iterable[SegmentKey]) -> None:
        """Hand out new events of these segments."""
        for key in keys:
            found = self._after.get(key) or self._open[key].deliveries()
            self._before.setdefault(key, found)
            self._after.setdefault(key, found)
            self._hand_out(key, found.next_number, found.next_offset, self._left, 0)

    def write(self) -> None:
        """Write what has changed."""
        for key, after in self._after.items():
            if after is not self._before[key]:
                write_deliveries(self._tx, self._record.name, key, self._before[key], after)
                if key in self._expired:
                    self._tx.wake(channel_of(self._record.name))

    def _hand_out(self, key: SegmentKey, low: int, start: int, events_max: int, count: int) -> None:
        """Hand out events from number `low` on, delivered `count` times so far."""
        end = low + events_max
        while low < end and self._left > 0 and self._bytes_left > 0:
            runs = self._source.events(key, low, start, min(end - low, self._left), self._bytes_left)
            for run in runs:
                self._hand_out_run(key, run, count + 1)
                low, start = run.first_number + len(run), run.end
            if not runs:
                break

    def _hand_out_run(self, key: SegmentKey, run: EventRun, count: int) -> None:
        high, ttl_ms = run.first_number + len(run), self._ttls[key[0]]
        after = self._after[key].acquire(run.first_number, high, run.start, run.end, self._lock)
        self._bytes_left -= run.end - run.start
        live = [run]
        if first_expiry(run, ttl_ms) <= self._tx.now_ms:
            live = run.parts(live_ranges(run, ttl_ms, self._tx.now_ms))
            self._expired.add(key)
            after = _finish_expired(after, run, live, count, self._lock.session)
        self._after[key] = after
        for part in live:
            self.runs.append(AcquiredRun(self._names[key[0]], key[0], part, count))
            self._left -= len(part)


class _Source:
    """Reads events for one acquisition."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._ahead = tx.shared[RUNS_AHEAD]
        self._here: dict[SegmentKey, EventRun] = {}

    def events(
        self, key: SegmentKey, number: int, offset: int, events_max: int, bytes_max: int
    ) -> list[EventRun]:
        """Return events from `number` on, which lies at `offset`. They may be fewer than there are; none is the end."""
        for known in (self._here.get(key), self._ahead.use(key)):
            if known is not None and known.first_number <= number < known.first_number + len(known):
                return [_part(known, number, offset, events_max, bytes_max)]
        runs: list[EventRun] = []
        wanted_bytes = min(bytes_max, events_max * EVENT_BYTES_GUESS)
        for run in read(self._tx, key[0], {key[1]: (offset, None)}, bytes_max=wanted_bytes).runs:
            if events_max <= 0 or bytes_max <= 0:
                break
            runs.append(part := _part(run, run.first_number, run.start, events_max, bytes_max))
            events_max -= len(part)
            bytes_max -= part.end - part.start
            if len(part) < len(run):
                self._here[key] = run
                self._tx.after(partial(self._ahead.keep, key, run))
                break
        return runs


def _ttl_of(tx: Tx, where: GroupStream) -> int | None:
    stream = find_record(tx, where.name)
    return None if stream is None else stream.config.ttl_ms


def _finish_expired(
    deliveries: SegmentDeliveries, run: EventRun, live: Sequence[EventRun], count: int, session: str
) -> SegmentDeliveries:
    """Count the events of an acquired run that are not `live` as accepted."""
    low, start = run.first_number, run.start
    spans: list[DeliverySpan] = []
    for part in live:
        if low < part.first_number:
            spans.append(DeliverySpan(low, part.first_number, start, part.start, count))
        low, start = part.first_number + len(part), part.end
    if start < run.end:
        spans.append(DeliverySpan(low, run.first_number + len(run), start, run.end, count))
    return deliveries.settle(Settlement.ACCEPT, spans, session, Terms(count)).deliveries


def _part(run: EventRun, low: int, start: int, events_max: int, bytes_max: int) -> EventRun:
    """Return events of a run from number `low` on: at most `events_max`, up to the one that reaches `bytes_max`."""
    first = low - run.first_number
    sizes = list(map(len, run.payloads[first : first + events_max]))
    ends = accumulate(map(FRAME_BYTES.__add__, sizes))
    count = next((count for count, end in enumerate(ends, 1) if end >= bytes_max), len(sizes))
    return run if count == len(run) else run.part(first, count, start)
