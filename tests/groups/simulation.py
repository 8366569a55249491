"""A group lived through from a seed: readers come, go, pause and die while the stream is written and scaled.

What must hold: every event is delivered, in the order of its key, never before its predecessors; to exactly one reader
while no reader dies; and every state of the group keeps its invariants, above all one owner for each segment.
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from random import Random

import anyio

import eventproc
from eventproc import Event, Group, Stream
from eventproc.groups import GROUP, GroupReader, folded_state, watch_group
from eventproc.groups.liveness import LOCAL_MEMBERSHIPS
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import Fenced
from eventproc.store.model.group_errors import CheckpointPending, ReaderOnline
from eventproc.store.records import get
from eventproc.testing import VirtualClock, check
from tests.support.lives import scale_at_random

KEYS = 5
READERS = 4


class KillableReader(GroupReader[bytes]):
    """A reader that can die: it then saves nothing, and the other members find it dead when its block has ended."""

    async def die(self) -> None:
        member, session = self._member, self._session
        assert member is not None and session is not None, "it is not alive"

        async def nothing(*_: object, **__: object) -> None:
            await anyio.lowlevel.checkpoint()

        async def vanish(*, for_good: bool = False) -> None:
            # Once its tasks have ended, and not before: a reader that is found dead while they run joins again.
            self._db.shared[LOCAL_MEMBERSHIPS].discard(member.group, member.reader, member.epoch)

        session.save = nothing  # type: ignore[method-assign]
        member.leave = vanish  # type: ignore[method-assign]


class GroupSimulation:
    """What outlives the readers: what was written, and what was delivered.

    pace: how many seconds one of the simulation takes; virtual ones cost nothing.
    """

    def __init__(self, seed: int, *, deaths: bool, events: int = 150, pace: float = 1.0) -> None:
        self.random = Random(seed)
        self.pace = pace
        self.deaths = deaths
        self.events = events
        self.written: Counter[str] = Counter()
        self.delivered: Counter[tuple[str, int]] = Counter()
        self.newest: dict[str, int] = {}
        self.log: list[tuple[str, str, int]] = []

    async def run(self) -> None:
        clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(clock=clock) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            group = await ep.create_group("g", ["s/t"])
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, ep)
                async with anyio.create_task_group() as readers:
                    for number in range(READERS):
                        readers.start_soon(self._live, ep, group, number)
                    async with anyio.create_task_group() as actors:
                        actors.start_soon(self._write, stream)
                        actors.start_soon(self._scale, stream)
                        actors.start_soon(self._ask, group)
                    await stream.seal()
                tasks.cancel_scope.cancel()
            self.compare()
            assert (await group.describe()).segments == ()
            await check(ep.db)

    async def _pause(self, seconds: float) -> None:
        await anyio.sleep(seconds * self.pace)

    def compare(self) -> None:
        """Assert that every event was delivered, exactly once if no reader died."""
        expected = {(key, number) for key, count in self.written.items() for number in range(count)}
        assert self.delivered.keys() == expected, f"{expected - self.delivered.keys()} were not delivered"
        if not self.deaths:
            again = [each for each, count in self.delivered.items() if count > 1]
            assert not again, f"{again} were delivered more than once"

    async def _watch(self, ep: Eventproc) -> None:
        """Look at every state of the group that there is to see."""
        with ep.db.subscribe([watch_group("s/g")]) as changes:
            while True:
                await changes.wait()
                await ep.db.read(_check_state)

    async def _live(self, ep: Eventproc, group: Group, number: int) -> None:
        """Be one reader after the other, until the stream has ended."""
        while True:
            await self._pause(self.random.random() * 2)
            # Ids are taken over from the dead, and sometimes wanted by two.
            name = f"r{self.random.choice([number, number, 0])}"
            try:
                async with KillableReader(ep.db, group.name, name) as reader:
                    if await self._read(reader):
                        return
            except (ReaderOnline, Fenced):
                continue

    async def _read(self, reader: KillableReader) -> bool:
        """Read for a while; return whether the stream has ended."""
        left = self.random.choice([1, 5, 20, 60, 1000])
        dies = self.deaths and self.random.random() < 0.4
        if self.random.random() < 0.5:
            async with aclosing(aiter(reader)) as events:
                async for event in events:
                    await self.take(reader, [event])
                    left -= 1
                    if left <= 0:
                        return await self._stop(reader, dies)
        else:
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    await self.take(reader, list(batch))
                    left -= len(batch)
                    if left <= 0:
                        return await self._stop(reader, dies)
        return True

    async def _stop(self, reader: KillableReader, dies: bool) -> bool:
        if dies:
            await reader.die()
        return False

    async def take(self, reader: GroupReader[bytes], events: list[Event]) -> None:
        """Note what a reader got, and assert that it comes in the order of its key."""
        for event in events:
            key, number = str(event.key), int(event.payload)
            self.log.append((reader.reader, key, number))
            newest = self.newest.get(key, -1)
            assert number <= newest + 1, f"{key}: {number} came after {newest}"
            assert self.deaths or number == newest + 1, f"{key}: {number} came again after {newest}"
            self.newest[key] = max(newest, number)
            self.delivered[key, number] += 1
        match self.random.randrange(12):
            case 0:
                await self._pause(self.random.random() * 3)
            case 1:
                await reader.commit()
            case _:
                pass

    async def _write(self, stream: Stream) -> None:
        async with stream.writer() as writer:
            left = self.events
            while left > 0:
                batch = []
                for _ in range(self.random.randint(1, 9)):
                    key = str(self.random.randrange(KEYS))
                    batch.append((b"%d" % self.written[key], key))
                    self.written[key] += 1
                left -= len(batch)
                await writer.write_many(batch)
                await self._pause(self.random.random() / 2)

    async def _scale(self, stream: Stream) -> None:
        for _ in range(self.random.randint(2, 8)):
            await self._pause(self.random.random() * 2)
            await scale_at_random(stream, self.random, into_max=3)

    async def _ask(self, group: Group) -> None:
        """Ask for checkpoints, and declare readers offline that are not."""
        for _ in range(4):
            await self._pause(self.random.random() * 2)
            try:
                found = await group.checkpoint(timeout_ms=20_000)
            except CheckpointPending:
                continue
            assert found.cuts["s/t"].stream == "s/t"
            if self.deaths and self.random.random() < 0.5:
                await group.reader_offline(f"r{self.random.randrange(READERS)}")


def _check_state(tx: Tx) -> None:
    folded_state(tx, get(tx, GROUP, "s/g").value).state.check()
