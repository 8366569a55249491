"""Members at work at the same time, compactions and deaths among them, from a seed.

What must hold: every acknowledged update is in the object once, in the order of its member; one that was not
acknowledged is there once or not at all; and all members ever saw prefixes of one and the same history.
"""

from __future__ import annotations

from functools import partial
from random import Random

import anyio
import pytest

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.replicated import LogId
from eventproc.store.replicated.change import COMPACT_BYTES
from eventproc.store.replicated.fold import FOLD_BYTES
from eventproc.store.segments import free_step
from eventproc.testing import Deaths, VirtualClock, check, run_seeded, run_until_death
from tests.replicated.support import (
    Generate,
    Ledger,
    Member,
    Write,
    appending,
    compacting,
    make_ledger,
    member,
    stranger,
)

MEMBERS = 4
UPDATES = 12
DEATHS = 4


class _Simulation:
    """State that outlives deaths: what each member did, and what anybody saw."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fold_bytes = Random(seed).choice([1, 500, FOLD_BYTES])
        self.begun = [0] * MEMBERS
        self.acked: set[str] = set()
        self.seen: list[tuple[str, ...]] = []

    async def run(self) -> None:
        faults = Deaths()
        clock = VirtualClock(self.random.randrange(2**32))
        async with open_memory_database(migrations=SYSTEM_MIGRATIONS, clock=clock, faults=faults) as db:
            log = await make_ledger(db)
            for life in range(DEATHS + 1):
                if life < DEATHS:
                    plan = self.random.choice([faults.die_before_commit, faults.die_after_commit])
                    plan(self.random.randint(1, 30))
                await run_until_death(partial(self._live, db, log))
                faults.heal()
                await self._verify(db, log)

    async def _live(self, db: Database, log: LogId) -> None:
        async with anyio.create_task_group() as others:
            async with anyio.create_task_group() as members:
                for index in range(MEMBERS):
                    make = stranger if index % 2 else member
                    one = make(db, log, fold_bytes=self.fold_bytes)
                    members.start_soon(self._update, db, log, one, index)
                others.start_soon(self._follow, stranger(db, log, fold_bytes=self.fold_bytes))
                others.start_soon(self._disturb, db, log)
            others.cancel_scope.cancel()

    async def _update(self, db: Database, log: LogId, one: Member, index: int) -> None:
        for _ in range(UPDATES):
            line = f"{index}-{self.begun[index]}"
            self.begun[index] += 1
            pad = "x" * self.random.choice([0, 0, 100, COMPACT_BYTES // 2])
            if self.random.random() < 0.3:
                state = await db.write(appending(log, Write(line, pad)))
            else:
                state = await one.update(_once(line, pad))
            assert state.lines[-1] == line
            self.acked.add(line)
            self.seen.append(state.lines)
            if self.random.random() < 0.3:
                await anyio.sleep(self.random.random())

    async def _follow(self, one: Member) -> None:
        before = 0
        while True:
            state = await one.wait_change()
            assert one.revision > before
            before = one.revision
            self.seen.append(state.lines)
            await anyio.sleep(self.random.random() * 2)

    async def _disturb(self, db: Database, log: LogId) -> None:
        while True:
            await anyio.sleep(self.random.random())
            if self.random.random() < 0.5:
                await db.write(compacting(log))
            else:
                await db.write(partial(free_step, stream_id=log, deleted=False))

    async def _verify(self, db: Database, log: LogId) -> None:
        await check(db)
        state = await stranger(db, log).fetch()
        assert state == await member(db, log).fetch()
        assert state is not None
        assert len(set(state.lines)) == len(state.lines), "an update is there twice"
        assert self.acked <= set(state.lines), "an acknowledged update was lost"
        for index in range(MEMBERS):
            own = [int(line.partition("-")[2]) for line in state.lines if line.startswith(f"{index}-")]
            assert own == sorted(own)
        for lines in self.seen:
            assert lines == state.lines[: len(lines)], "a member saw a state that never existed"


def _once(line: str, pad: str) -> Generate:
    def generate(ledger: Ledger) -> list[Write]:
        assert line not in ledger.lines
        return [Write(line, pad)]

    return generate


@pytest.mark.hunt(seeds=12)
def test_members_share_one_history_whatever_dies(seed: int) -> None:
    run_seeded(_Simulation(seed).run, seed=seed)
