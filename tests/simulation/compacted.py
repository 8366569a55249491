"""A compacted topic in the whole-system simulation: instances compact it, and its policy, while one writes a table.

What must hold at any time: the newest event of each key is there, unless it is a tombstone and the key is gone; and
what is there is what was written, at the same place, time and number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import anyio

from eventproc import CompactionPolicy, Event, NewEvent
from eventproc.runtime import Eventproc

TABLE = "s/table"
BATCHES = 25
PARTITIONS = 2

Somewhere = Callable[[Callable[[Eventproc], Awaitable[object]]], Awaitable[bool]]
"""Lets some instance do something; returns whether it did."""


class TableSimulation:
    """What outlives the instances. newest: the payload of the newest event of each key."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.newest: dict[str, bytes] = {}
        self.known: dict[tuple[int, int], Event] = {}
        self.removed = 0
        self._written = False

    @contextmanager
    def in_small_parts(self) -> Iterator[None]:
        """Let a compaction take many steps, and several passes, in the block."""
        with (
            patch("eventproc.store.segments.compaction.STEP_BYTES", 60),
            patch("eventproc.streams.compaction.KEYS_MAX", self.random.choice([2, 1_000])),
        ):
            yield

    async def create(self, ep: Eventproc) -> None:
        """Create the topic."""
        policy = CompactionPolicy(min_age_ms=0, tombstone_ms=self.random.choice([0, 5_000]))
        await ep.create_topic(TABLE, partitions=PARTITIONS, compaction=policy)

    async def write(self, somewhere: Somewhere) -> None:
        """Write batches under one name, repeated until they are acknowledged, and look at the table now and then."""
        for sequence in range(1, BATCHES + 1):
            batch = []
            for at in range(self.random.choice([1, 2, 8])):
                key = f"k{self.random.randrange(6)}"
                payload = self.random.choice([b"", b"%d %d" % (sequence, at)])
                batch.append(NewEvent(payload, key, headers=self.random.choice([None, {"a": "b"}])))
                self.newest[key] = payload

            async def send(
                ep: Eventproc, batch: list[NewEvent[bytes]] = batch, sequence: int = sequence
            ) -> None:
                async with (await ep.topic(TABLE)).producer(name="table") as producer:
                    await producer.write_many(batch, sequence=sequence)

            for _ in range(self.random.randint(1, 2)):
                while not await somewhere(send):
                    pass
                await anyio.sleep(self.random.random())
            if self.random.random() < 0.5:
                await somewhere(self.look)
        self._written = True

    async def compact(self, somewhere: Somewhere) -> None:
        """Compact the topic again and again, until everything is written."""
        while not self._written:
            await somewhere(self._compact)
            await anyio.sleep(self.random.choice([0, 0.5, 2]))

    async def _compact(self, ep: Eventproc) -> None:
        self.removed += (await (await ep.topic(TABLE)).compact()).events

    async def look(self, ep: Eventproc) -> None:
        """Assert what must hold at any time, while nobody writes."""
        topic = await ep.topic(TABLE)
        table: dict[str, bytes] = {}
        for partition in range(PARTITIONS):
            for event in await topic.read_range(partition):  # one read: nothing is compacted meanwhile
                assert self.known.setdefault((partition, event.number), event) == event
                table[str(event.key)] = event.payload
        for key, payload in self.newest.items():
            assert table.get(key, b"") == payload, f"{key}: {table.get(key)!r} is the newest, not {payload!r}"

    async def check_end(self, ep: Eventproc) -> None:
        """Assert what must hold at the end."""
        await self.look(ep)
        assert self.removed, "nothing was removed"
