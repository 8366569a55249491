"""A share group lived through from a seed: consumers come, go, hang and die while the stream is written and scaled.

What must hold: every event is delivered at least once, and to nobody while another consumer holds a live lock on it;
it is delivered `DELIVERIES_MAX` times at most; an accepted event is not delivered again; and the dead letters are
exactly the events that were rejected or exhausted.
"""

from __future__ import annotations

from random import Random

import anyio
import attrs

import eventproc
from eventproc import Stream
from eventproc.errors import InProgress, InvalidArgument, LockLost, ScaleRefused
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery, ShareConsumer, ShareGroup
from eventproc.store.database import Tx
from eventproc.store.groups import get_group, read_deliveries
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.testing import VirtualClock, check

CONSUMERS = 4
DELIVERIES_MAX = 3
LOCK_MS = 4_000
EventId = tuple[SegmentId, int]


class MortalConsumer(ShareConsumer[bytes]):
    """A consumer that can die: it then releases nothing, and the others find its locks ended."""

    def die(self) -> None:
        async def nothing() -> None:
            await anyio.lowlevel.checkpoint()

        self._let_go = nothing  # type: ignore[method-assign]


@attrs.define
class LiveLock:
    """Who held an event last, and until when it may be delivered to nobody else."""

    consumer: MortalConsumer
    until_ms: int


class ShareSimulation:
    """What outlives the consumers: what was written, delivered, accepted and given up."""

    def __init__(self, seed: int, *, events: int = 120) -> None:
        self.random = Random(seed)
        self.events = events
        self.written = 0
        self.deliveries: dict[EventId, int] = {}
        self.locks: dict[EventId, LiveLock] = {}
        self.accepted: set[EventId] = set()
        self.rejected: set[EventId] = set()
        self.log: list[tuple[str, str, int, int]] = []

    async def run(self) -> None:
        self.clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(clock=self.clock) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            group = await ep.create_share_group(
                "work", ["s/t"], lock_ms=LOCK_MS, deliveries_max=DELIVERIES_MAX
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, ep)
                async with anyio.create_task_group() as consumers:
                    for _ in range(CONSUMERS):
                        consumers.start_soon(self._live, ep, group)
                    async with anyio.create_task_group() as actors:
                        actors.start_soon(self._write, stream)
                        actors.start_soon(self._scale, stream)
                    await stream.seal()
                tasks.cancel_scope.cancel()
            await self._compare(ep)
            assert (await group.describe()).events == 0
            await check(ep.db)

    async def _compare(self, ep: Eventproc) -> None:
        assert len(self.deliveries) == self.written, "an event was not delivered"
        letters = await ep.dead_letters("s/work").list(limit=10_000)
        dead = {(each.origin_segment, each.origin_number): each.attempts for each in letters}
        assert len(dead) == len(letters), "an event has two dead letters"
        expected = {
            (format_segment(segment), number): count
            for (segment, number), count in self.deliveries.items()
            if (segment, number) not in self.accepted
        }
        assert dead == expected
        for event, count in self.deliveries.items():
            assert event in self.accepted or event in self.rejected or count == DELIVERIES_MAX

    async def _watch(self, ep: Eventproc) -> None:
        """Look at the deliveries again and again: their invariants hold at every moment."""

        def look(tx: Tx) -> None:
            get_group(tx, "s/work", share=True)
            for found in read_deliveries(tx, "s/work").values():
                found.check()
                assert all(each.count <= DELIVERIES_MAX for each in found.ranges)

        while True:
            await anyio.sleep(self.random.random())
            await ep.db.read(look)

    async def _live(self, ep: Eventproc, group: ShareGroup) -> None:
        """Be one consumer after the other, until the stream has ended."""
        while True:
            await anyio.sleep(self.random.random() * 2)
            async with MortalConsumer(ep.db, group.name) as consumer:
                if await self._consume(consumer):
                    return

    async def _consume(self, consumer: MortalConsumer) -> bool:
        """Consume for a while; return whether the stream has ended."""
        for _ in range(self.random.choice([1, 3, 10, 100])):
            events = await consumer.poll(self.random.choice([1, 3, 20]))
            if not events:
                return True
            for event in events:
                self._take(consumer, event)
            rest = list(events)
            while rest:
                await anyio.sleep(self.random.choice([0.0, 0.1, 0.5, 2.0]))
                count = self.random.randint(1, len(rest))
                batch, rest = rest[:count], rest[count:]
                await self._settle(consumer, batch)
                if self.random.random() < 0.05:
                    consumer.die()
                    self._end_locks(consumer)
                    return False
        self._end_locks(consumer)
        return False

    def _take(self, consumer: MortalConsumer, event: Delivery) -> None:
        key = event.event.segment, event.event.number
        assert key not in self.accepted, f"{key} was accepted, and is delivered again"
        assert key not in self.rejected, f"{key} was rejected, and is delivered again"
        before = self.locks.get(key)
        now_ms = self.clock.monotonic_ms()
        assert before is None or before.until_ms <= now_ms, f"{key} is held by {before} at {now_ms}"
        assert event.deliveries == self.deliveries.get(key, 0) + 1 <= DELIVERIES_MAX
        self.deliveries[key] = event.deliveries
        self.locks[key] = LiveLock(consumer, event.until_ms)
        self.log.append((consumer.consumer, str(event.event.segment), event.event.number, event.deliveries))

    async def _settle(self, consumer: MortalConsumer, events: list[Delivery]) -> None:
        keys = [(event.event.segment, event.event.number) for event in events]
        how = self.random.choice(["accept"] * 6 + ["release", "reject", "renew", "forget"])
        try:
            if how == "accept":
                await consumer.accept(events)
                self.accepted.update(keys)
            elif how == "release":
                for key in keys:  # the event may be delivered as soon as the commit of the release
                    self._end_lock(consumer, key)
                await consumer.release(events)
            elif how == "reject":
                await consumer.reject(events)
                self.rejected.update(keys)
            elif how == "renew":
                for key in keys:
                    if (lock := self.locks.get(key)) is not None and lock.consumer is consumer:
                        lock.until_ms += 1  # never longer than what the transaction writes
                await consumer.renew(events)
                await anyio.sleep(0.1)
                await consumer.accept(events)
                self.accepted.update(keys)
        except LockLost:
            assert any(self._is_over(consumer, key) for key in keys), f"{keys} were lost without reason"

    def _is_over(self, consumer: MortalConsumer, key: EventId) -> bool:
        lock = self.locks.get(key)
        return lock is None or lock.consumer is not consumer or lock.until_ms <= self.clock.monotonic_ms()

    def _end_lock(self, consumer: MortalConsumer, key: EventId) -> None:
        if (lock := self.locks.get(key)) is not None and lock.consumer is consumer:
            lock.until_ms = 0

    def _end_locks(self, consumer: MortalConsumer) -> None:
        for key in self.locks:
            self._end_lock(consumer, key)

    async def _write(self, stream: Stream) -> None:
        async with stream.writer() as writer:
            while self.written < self.events:
                await anyio.sleep(self.random.random())
                count = self.random.choice([1, 5, 15])
                await writer.write_many((b"x", str(self.random.randrange(7))) for _ in range(count))
                self.written += count

    async def _scale(self, stream: Stream) -> None:
        for _ in range(3):
            await anyio.sleep(self.random.random() * 8)
            segments = await stream.segments()
            try:
                if len(segments) > 1 and self.random.random() < 0.5:
                    await stream.scale(seal=[each.id for each in segments], ranges=[(0.0, 1.0)])
                else:
                    await stream.split(self.random.choice(segments).id, 2)
            except (InProgress, InvalidArgument, ScaleRefused):
                continue
