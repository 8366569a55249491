"""A share group outlives its process, dead before or after any commit: nothing is lost, nothing is accepted twice."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery, ShareConsumer
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.testing import Deaths, VirtualClock, run_seeded
from tests.support.lives import hosted, live_through_deaths

EVENTS = 60
DELIVERIES_MAX = 4
EventId = tuple[SegmentId, int]


class ShareLives:
    """One share group, consumed by one process after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.accepted: set[EventId] = set()
        self.uncertain: set[EventId] = set()
        self.deliveries: dict[EventId, int] = {}

    async def run(self) -> None:
        faults = Deaths()
        clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(clock=clock, faults=faults, host=False) as ep:
            async with hosted(ep):
                await self._prepare(ep)
            live = partial(self._consume, ep)
            await live_through_deaths(live, ep.db, faults, self.random, deaths=12, commits_max=8)
            await self._compare(ep)

    async def _compare(self, ep: Eventproc) -> None:
        letters = await ep.dead_letters("s/work").list(limit=1_000)
        dead = {(each.origin_segment, each.origin_number) for each in letters}
        assert len(dead) == len(letters)
        named = {(format_segment(segment), number) for segment, number in self.accepted}
        unsure = {(format_segment(segment), number) for segment, number in self.uncertain}
        assert not dead & named, "an accepted event is a dead letter"
        assert len(dead | named | unsure) == EVENTS, "an event was lost"

    async def _prepare(self, ep: Eventproc) -> None:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for number in range(EVENTS):
                if number % 20 == 19:
                    await stream.split((await stream.segments())[0].id)
                await writer.write(b"%d" % number, key=str(number % 3))
        await stream.seal()
        await ep.create_share_group("work", ["s/t"], deliveries_max=DELIVERIES_MAX)

    async def _consume(self, ep: Eventproc) -> None:
        """Consume to the end, settling in every way."""
        group = await ep.share_group("s/work")
        async with group.consumer() as consumer:
            while events := await consumer.poll(self.random.choice([1, 4, 9])):
                for event in events:
                    self._note(event)
                await self._settle(consumer, events)

    def _note(self, event: Delivery) -> None:
        key = event.event.segment, event.event.number
        assert key not in self.accepted, f"{key} was accepted, and is delivered again"
        assert self.deliveries.get(key, 0) < event.deliveries <= DELIVERIES_MAX
        self.deliveries[key] = event.deliveries
        self.uncertain.discard(key)

    async def _settle(self, consumer: ShareConsumer, events: list[Delivery]) -> None:
        how = self.random.choice(["accept", "accept", "release", "renew", "split"])
        rest = events
        if how == "release":
            await consumer.release(events[0])
            rest = events[1:]
        elif how == "renew":
            await consumer.renew(events)
        elif how == "split":
            await self._accept(consumer, events[::2])
            rest = events[1::2]
        await self._accept(consumer, rest)

    async def _accept(self, consumer: ShareConsumer, events: list[Delivery]) -> None:
        keys = {(event.event.segment, event.event.number) for event in events}
        self.uncertain |= keys  # a death after the commit accepts them, and nobody learns of it
        await consumer.accept(events)
        self.uncertain -= keys
        self.accepted |= keys


@pytest.mark.hunt(seeds=15)
def test_a_share_group_is_consumed_to_its_end_through_deaths(seed: int) -> None:
    run_seeded(ShareLives(seed).run, seed=seed)
