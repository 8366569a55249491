"""Replicated objects against a naive twin, a list of updates: whatever members and transactions do, in any order."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import anyio
from hypothesis import given, strategies as st

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database, Tx
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.replicated import LogId, append
from eventproc.store.replicated.change import COMPACT_BYTES
from eventproc.store.replicated.log import SEGMENT
from eventproc.store.segments import free_step, join_step
from eventproc.testing import check
from tests.replicated.support import (
    LEDGER,
    Ledger,
    Member,
    Write,
    appending,
    compacting,
    last_ledger,
    make_ledger,
    member,
    stranger,
)

Step: TypeAlias = tuple[str, int, list[str], str]

MEMBERS = 4

_STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(
            ["update", "update", "within", "refuse", "fetch", "compact", "squeeze", "free", "join", "new"]
        ),
        st.integers(0, MEMBERS - 1),
        st.lists(st.sampled_from("abcü🚀"), max_size=3),
        st.sampled_from(["", "", "x" * (COMPACT_BYTES // 3)]),
    ),
    min_size=5,
    max_size=40,
)


class _Refused(Exception):
    """What a transaction of the test raises behind its updates."""


class _Run:
    """One log, its members, and the twin: the lines there must be."""

    def __init__(self, db: Database, log: LogId) -> None:
        self.db = db
        self.log = log
        self.lines: list[str] = []
        # Two share their process's memory; the others know only what they read.
        self.members = [self._new(index) for index in range(MEMBERS)]

    def _new(self, index: int) -> Member:
        return member(self.db, self.log) if index < 2 else stranger(self.db, self.log)

    async def step(self, kind: str, index: int, lines: list[str], pad: str) -> None:
        one = self.members[index]
        updates = [Write(line, pad) for line in lines]
        match kind:
            case "update":
                seen: list[int] = []

                def generate(ledger: Ledger) -> list[Write]:
                    seen.append(len(ledger.lines))
                    return updates

                state = await one.update(generate)
                self.lines += lines
                assert seen == sorted(seen), "no run sees an older state"
                if updates:
                    assert list(state.lines) == self.lines
            case "within":
                assert list((await self.db.write(appending(self.log, *updates))).lines) == self.lines + lines
                self.lines += lines
            case "refuse":
                await self._refuse(updates)
            case "fetch":
                state = await one.fetch()
                assert list(state.lines) == self.lines
            case "compact":
                assert list((await one.compact()).lines) == self.lines
            case "squeeze":  # leaves members behind that do not read in between
                for _ in range(2):
                    await self.db.write(appending(self.log, Write("s")))
                    await self.db.write(compacting(self.log))
                    self.lines.append("s")
            case "free":
                while not await self.db.write(partial(free_step, stream_id=self.log, deleted=False)):
                    pass
            case "join":
                await self._join()
            case _:
                self.members[index] = self._new(index)
        await self.verify()

    async def _refuse(self, updates: list[Write]) -> None:
        def refuse(tx: Tx) -> None:
            append(tx, self.log, LEDGER, updates)
            compacting(self.log)(tx)
            raise _Refused

        try:
            await self.db.write(refuse)
        except _Refused:
            return
        raise AssertionError("the refusal was not raised")

    async def _join(self) -> None:
        for _ in range(33):  # a run of tiny extents, long enough to be joined
            await self.db.write(appending(self.log, Write("j")))
            self.lines.append("j")
        offset: int | None = 0
        while offset is not None:
            offset = await self.db.write(
                partial(join_step, stream_id=self.log, segment=SEGMENT, offset=offset)
            )

    async def verify(self) -> None:
        for one in self.members:
            known = list(one.state.lines) if one.revision else []
            assert known == self.lines[: len(known)], "a member's state is one that was"
        assert list((await self.db.read(partial(last_ledger, log=self.log))).lines) == self.lines


@given(_STEPS)
def test_a_replicated_object_is_the_list_of_its_updates(steps: list[Step]) -> None:
    anyio.run(_run, steps)


async def _run(steps: list[Step]) -> None:
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS) as db:
        run = _Run(db, await make_ledger(db))
        for step in steps:
            await run.step(*step)
        for one in run.members:
            assert list((await one.fetch()).lines) == run.lines
        await check(db)
