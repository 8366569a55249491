"""A group outlives its process, dead before or after any commit: nothing is lost, nothing is skipped."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from random import Random

import pytest

import eventproc
from eventproc import Event
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import Fenced
from eventproc.store.model.group_errors import ReaderOnline
from eventproc.testing import Deaths, VirtualClock, run_seeded
from tests.support.lives import hosted, live_through_deaths

EVENTS = 60


class Lives:
    """One group, read by one process after the other."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.newest: dict[str | None, int] = {}
        self.seen: set[tuple[str | None, int]] = set()
        self.died = 0

    async def run(self) -> None:
        faults = Deaths()
        clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(clock=clock, faults=faults, host=False) as ep:
            async with hosted(ep):
                await self._prepare(ep)
            live = partial(self._read, ep)
            self.died = await live_through_deaths(live, ep.db, faults, self.random, deaths=12, commits_max=12)
            group = await ep.group("s/g")
            assert (await group.describe()).segments == ()
        assert len(self.seen) == EVENTS

    async def _prepare(self, ep: Eventproc) -> None:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for number in range(EVENTS):
                if number % 15 == 14:
                    ids = [segment.id for segment in await stream.segments()]
                    await (stream.merge(*ids[:2]) if len(ids) > 2 else stream.split(ids[0]))
                await writer.write(b"%d" % (number // 3), key=str(number % 3))
        await stream.seal()
        await ep.create_group("g", ["s/t"])

    async def _read(self, ep: Eventproc) -> None:
        """Read to the end, a checkpoint now and then."""
        group = await ep.group("s/g")
        while True:
            try:
                async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
                    async for event in events:
                        self._note(event)
                        if self.random.random() < 0.4:
                            await reader.commit()
                    return
            except (Fenced, ReaderOnline):
                continue

    def _note(self, event: Event) -> None:
        number, newest = int(event.payload), self.newest.get(event.key, -1)
        assert number <= newest + 1, f"{event.key}: {number} came after {newest}"
        self.newest[event.key] = max(number, newest)
        self.seen.add((event.key, number))


@pytest.mark.hunt(seeds=10)
@pytest.mark.acceptance("K35", differs="there is no coordinator: each member decides in transactions")
def test_a_group_goes_on_after_the_death_of_its_process_at_any_commit(seed: int) -> None:
    lives = Lives(seed)
    run_seeded(lives.run, seed=seed)
    assert lives.died > 0
