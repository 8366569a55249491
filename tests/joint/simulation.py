"""Consume, transform and produce from a seed: joint and single transactions over three streams, scales and deaths.

The twin is arithmetic: each input belongs into two of the three streams, under its key. At the end each stream holds
exactly these, in the order of each key, and each single transaction completely or not at all.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from random import Random

import anyio

import eventproc
from eventproc import Event, ScalingPolicy
from eventproc.groups import GroupReader
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import (
    Fenced,
    Rejected,
    StreamSealed,
)
from eventproc.store.transactions import TXN_STEP_LIMITS
from eventproc.streams import JointTransaction, Stream
from eventproc.testing import Deaths, VirtualClock
from tests.joint.support import TARGETS, outputs, read_outputs
from tests.support.lives import hosted, live_through_deaths, scale_at_random

CONSUMERS = 3
CLIENTS = 2
KEYS = 6


class GivenUp(Exception):
    """A consumer fails within a block."""


class JointSimulation:
    """State that outlives deaths: what clients remember, and the database."""

    def __init__(self, seed: int, *, deaths: int, events: int = 90, pace: float = 1) -> None:
        """pace: what pauses are multiplied by; 0 where time is real."""
        self.random = Random(seed)
        self.pace = pace
        self.deaths = deaths
        self.deadly = deaths > 0
        self.events = events
        self.began: dict[str, list[tuple[int, int]]] = {
            target: [] for target in TARGETS
        }  # single transactions
        self.acked: dict[str, list[int]] = {target: [] for target in TARGETS}
        self.failures = 0
        self.ways: set[str] = set()

    async def run(self) -> None:
        faults = Deaths()
        clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(host=False, clock=clock, faults=faults) as ep:
            limits = ep.db.shared[TXN_STEP_LIMITS]
            limits.round_transactions, limits.round_rows, limits.preparation_rows = 3, 8, 6
            await self._set_up(ep)
            live = partial(self._live, ep)
            await live_through_deaths(live, ep.db, faults, self.random, deaths=self.deaths, commits_max=60)
            await self._compare(ep)

    async def _set_up(self, ep: Eventproc) -> None:
        async with hosted(ep):
            await ep.create_scope("s")
            for name in TARGETS:
                await ep.create_stream(name, scaling=ScalingPolicy.fixed(self.random.randint(1, 3)))
            source = await ep.create_stream("s/in", scaling=ScalingPolicy.fixed(2))
            await self._write(source, range(self.events // 2))
            await source.split(0, 2)
            await self._write(source, range(self.events // 2, self.events))
            await source.seal()
            await ep.create_group("g", ["s/in"])

    async def _write(self, source: Stream, numbers: range) -> None:
        async with source.writer() as writer:
            await writer.write_many((b"%d" % number, str(number % KEYS)) for number in numbers)

    async def _live(self, ep: Eventproc) -> None:
        async with hosted(ep):
            targets = [await ep.stream(name) for name in TARGETS]
            async with anyio.create_task_group() as actors:
                for number in range(CONSUMERS):
                    actors.start_soon(self._consume_all, ep, targets, number)
                for number in range(CLIENTS):
                    actors.start_soon(self._client, targets, number)
                actors.start_soon(self._scale, targets)
                actors.start_soon(self._fence, ep)
            for target in targets:
                await target.seal()  # waits for what is decided

    async def _pause(self, most_s: float) -> None:
        await anyio.sleep(self.random.random() * most_s * self.pace)

    async def _linger(self, most_s: float) -> None:
        """Pause within a block. Not with deaths: the attendant, which outlives them, must not meet one."""
        if not self.deadly:
            await self._pause(most_s)

    async def _consume_all(self, ep: Eventproc, targets: list[Stream], number: int) -> None:
        """Be one reader after the other until all inputs are processed."""
        group = await ep.group("s/g")
        while (await group.describe()).segments:
            await self._pause(1)
            try:
                async with group.reader(f"r{number}") as reader:
                    await self._consume(ep, reader, targets)
            except (Fenced, Rejected, GivenUp):
                self.failures += 1

    async def _consume(self, ep: Eventproc, reader: GroupReader, targets: list[Stream]) -> None:
        left = self.random.randint(1, 30)
        way = self.random.choice(["event", "batch", "inside"])
        self.ways.add(way)
        if way == "event":
            async with aclosing(aiter(reader)) as events:
                async for event in events:
                    await self._attempt(ep, reader, targets, [event])
                    left -= 1
                    if left <= 0:
                        return
        elif way == "batch":
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    await self._attempt(ep, reader, targets, list(batch))
                    left -= 10
                    if left <= 0:
                        return
        else:
            async with ep.transaction(consumer=reader) as txn, aclosing(aiter(reader)) as events:
                async for event in events:
                    await self._produce(txn, targets, [event])
                    if self.random.random() < 0.2:
                        await self._linger(1.5)
                    left -= 1
                    if left <= 0:
                        break

    async def _attempt(
        self, ep: Eventproc, reader: GroupReader, targets: list[Stream], events: list[Event[bytes]]
    ) -> None:
        async with ep.transaction(consumer=reader, lease_ms=self.random.choice([None, 1_000, 60_000])) as txn:
            await self._produce(txn, targets, events)
            match self.random.randrange(6):
                case 0:
                    await self._linger(1.5)
                case 1:
                    raise GivenUp
                case 2:
                    await txn.flush()
                case 3:
                    await txn.commit(wait=False)
                case _:  # committed at the end of the block
                    pass

    async def _produce(
        self, txn: JointTransaction, targets: list[Stream], events: list[Event[bytes]]
    ) -> None:
        for event in events:
            for name in outputs(int(event.payload)):
                stream = name if self.random.random() < 0.3 else targets[TARGETS.index(name)]
                await txn.write(stream, event.payload, key=event.key)
            if self.random.random() < 0.05:
                await txn.flush()

    async def _client(self, targets: list[Stream], number: int) -> None:
        for _ in range(self.random.randint(0, 5)):
            target = self.random.choice(targets)
            mine = self.began[target.name]
            ident, count = 1_000_000 * (number + 1) + 100 * len(mine), self.random.randint(1, 5)
            mine.append((ident, count))
            try:
                async with target.transaction() as txn:
                    for index in range(count):
                        await txn.write(b"%d" % (ident + index), key=f"x{number}")
                    if self.random.random() < 0.5:
                        await txn.flush()
                        await self._linger(0.5)
            except StreamSealed:
                return  # the life before died while it sealed the streams
            self.acked[target.name].append(ident)

    async def _fence(self, ep: Eventproc) -> None:
        """Take the segments from readers that are alive."""
        group = await ep.group("s/g")
        for _ in range(8):
            await self._pause(1.5)
            await group.reader_offline(f"r{self.random.randrange(CONSUMERS)}")

    async def _scale(self, targets: list[Stream]) -> None:
        for _ in range(self.random.randint(1, 6)):
            await self._pause(0.5)
            await scale_at_random(self.random.choice(targets), self.random)

    async def _compare(self, ep: Eventproc) -> None:
        for name in TARGETS:
            found = await read_outputs(ep, name, events=self.events, keys=KEYS)
            single = {number for key, numbers in found.items() if (key or "")[0] == "x" for number in numbers}
            for ident, count in self.began[name]:
                own = [number for number in range(ident, ident + count) if number in single]
                assert len(own) in (0, count), "a transaction is visible in part"
                assert own or ident not in self.acked[name], "an acknowledged transaction is lost"
