"""Simulates one stream from a seed: concurrent writers, a reader, scales, truncations and deaths.

What must hold at the end, whatever happened: every event that was acknowledged was read once, in the order of
its key; what was not acknowledged is there whole, or not at all; and the database keeps every invariant.
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from functools import partial
from random import Random

import anyio

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InProgress, InvalidArgument, InvalidCut, NotFound, ScaleRefused
from eventproc.store.model.states import StreamState
from eventproc.streams import NewEvent, Stream
from eventproc.testing import Deaths, VirtualClock, order_violations
from tests.support.lives import ensured, hosted, live_through_deaths

NAME = "s/t"
WRITERS = 3
KEYS_EACH = 4


class StreamSimulation:
    """State that outlives deaths: what clients remember, and the database."""

    def __init__(self, seed: int, *, deaths: int, events_each: int = 60) -> None:
        self.random = Random(seed)
        self.deaths = deaths
        self.events_each = events_each
        self.seen: list[tuple[str | None, int]] = []
        self.cut: StreamCut | None = None
        self.written: Counter[str | None] = Counter()  # {key: events handed to a writer, acknowledged or not}
        self.acked: Counter[str | None] = Counter()

    async def run(self) -> None:
        faults = Deaths()
        clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(host=False, clock=clock, faults=faults) as ep:
            live = partial(self._live, ep)
            await live_through_deaths(live, ep.db, faults, self.random, deaths=self.deaths, commits_max=80)
            found = order_violations(self.seen, self.written)
            assert not found, found
            assert not self.acked - self.written, "what was acknowledged was lost"

    async def _live(self, ep: Eventproc) -> None:
        async with hosted(ep):
            await ep.create_scope("s")
            stream = await ensured(ep, NAME)
            info = await stream.describe()
            await self._catch_up(stream)
            if info.state is StreamState.ACTIVE:
                async with anyio.create_task_group() as readers:
                    readers.start_soon(self._read, stream)
                    async with anyio.create_task_group() as actors:
                        for writer in range(WRITERS):
                            actors.start_soon(self._write, stream, writer)
                        actors.start_soon(self._scale, stream)
                        actors.start_soon(self._truncate, stream)
                    await stream.seal()
            await self._catch_up(stream)

    async def _catch_up(self, stream: Stream) -> None:
        """Read to the tail; only then is known which events of the life before are there."""
        tail = await stream.tail()
        async with (
            stream.reader(self.cut or "head") as reader,
            aclosing(reader.batches(until=tail)) as batches,
        ):
            self._note(reader.cut(), [])
            async for batch in batches:
                self._note(reader.cut(), [(event.key, int(event.payload)) for event in batch])
        counts = Counter(key for key, _ in self.seen)
        for key, acked in self.acked.items():
            assert acked <= counts[key], f"{key}: {acked} events were acknowledged, {counts[key]} are there"
        for key, count in counts.items():
            assert count <= self.written[key], (
                f"{key}: {count} events are there, {self.written[key]} were written"
            )
        self.written, self.acked = Counter(counts), Counter(counts)

    def _note(self, cut: StreamCut, events: list[tuple[str | None, int]]) -> None:
        self.cut = cut
        self.seen.extend(events)

    async def _read(self, stream: Stream) -> None:
        async with stream.reader(self.cut or "head") as reader, aclosing(reader.batches()) as batches:
            async for batch in batches:
                self._note(reader.cut(), [(event.key, int(event.payload)) for event in batch])
                if self.random.random() < 0.2:
                    await anyio.sleep(self.random.random())

    async def _write(self, stream: Stream, number: int) -> None:
        async with stream.writer(name=f"w{number}" if number else None) as writer:
            left = self.events_each
            while left > 0:
                batch = [self._event(number) for _ in range(self.random.randint(1, 7))]
                left -= len(batch)
                match self.random.randrange(4):
                    case 0:
                        for event in batch:
                            await writer.write(event.payload, key=event.key)
                    case 1:
                        assert await writer.write_many(iter(batch)) == len(batch)
                    case 2:
                        await writer.write_many((event.payload, event.key) for event in batch)
                    case _:
                        for event in batch:
                            await writer.post(event.payload, key=event.key)
                        await writer.flush()
                self.acked.update(event.key for event in batch)
                if self.random.random() < 0.3:
                    await anyio.sleep(self.random.random())

    def _event(self, writer: int) -> NewEvent[bytes]:
        key = f"{writer}-{self.random.randrange(KEYS_EACH)}"
        width = self.random.choice([1, 1, 30, 900])
        payload = b"%0*d" % (width, self.written[key])
        self.written[key] += 1
        return NewEvent(payload, key)

    async def _scale(self, stream: Stream) -> None:
        for _ in range(self.random.randint(1, 6)):
            await anyio.sleep(self.random.random() / 2)
            ids = [segment.id for segment in await stream.segments()]
            try:
                match self.random.randrange(4):
                    case 0 | 1:
                        await stream.split(self.random.choice(ids), self.random.randint(2, 3))
                    case 2 if len(ids) > 1:
                        first = self.random.randrange(len(ids) - 1)
                        await stream.merge(*ids[first : first + 2])
                    case _:
                        await stream.update(scaling=eventproc.ScalingPolicy.fixed(self.random.randint(1, 3)))
            except (ScaleRefused, NotFound, InvalidArgument, InProgress):
                pass  # below the minimum, or too narrow: refused, and nothing happened

    async def _truncate(self, stream: Stream) -> None:
        for _ in range(self.random.randint(0, 4)):
            await anyio.sleep(self.random.random())
            assert self.cut is not None
            try:
                await stream.truncate(self.cut)
            except InvalidCut:
                pass  # a request left by the life before moved the head beyond it
