"""Members of one replicated object, on both forms of the database."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.replicated import create_log, delete_log, list_logs
from eventproc.store.replicated.synchronizer import OPTIMISTIC_ATTEMPTS_MAX
from tests.database.support import World
from tests.replicated.support import (
    Add,
    Ledger,
    Write,
    appending,
    bounds,
    make_ledger,
    member,
    stranger,
    writing,
)


async def test_a_truncated_log_is_not_initialized_again(db: Database) -> None:
    log = await make_ledger(db)
    one = member(db, log)
    for line in "abc":
        await one.update(writing(line))
        await one.compact()
    head, _ = await bounds(db, log)
    assert head > 0, "the log was truncated"
    assert (await member(db, log).initialize(Ledger(("other",)))).lines == ("a", "b", "c")


async def test_nothing_is_updated_before_there_is_a_first_state(db: Database) -> None:
    log = await db.write(create_log)
    one = member(db, log)
    with pytest.raises(NotFound, match="initial state"):
        await one.update(writing("a"))
    with pytest.raises(NotFound, match="initial state"):
        await one.compact()
    await one.initialize(Ledger())
    assert (await one.update(writing("a"))).lines == ("a",)


async def test_an_update_begins_with_the_newest_state_that_its_process_knows(db: Database) -> None:
    log = await make_ledger(db)
    one, two = member(db, log), member(db, log)
    await two.fetch()
    await one.update(writing("a"))
    assert await two.update(lambda _: []) == Ledger(("a",))


async def test_updates_are_appended_all_or_none_and_none_is_nothing_to_do(db: Database) -> None:
    log = await make_ledger(db)
    one = member(db, log)
    _, before = await bounds(db, log)
    assert await one.update(lambda _: []) == Ledger()
    assert (await bounds(db, log))[1] == before

    def refuse(_: Ledger) -> list[Write]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await one.update(refuse)
    with pytest.raises(InvalidArgument, match="updates of ledger"):
        await one.update(lambda _: [Write("small"), Write("large", "x" * EVENT_BYTES_MAX)])
    assert (await bounds(db, log))[1] == before
    assert await one.update(writing("a")) == await member(db, log).fetch() == Ledger(("a",))


@pytest.mark.acceptance("E10", differs="the result is the second half of what the generator returns")
async def test_the_result_of_the_last_run_of_the_generator_is_returned(db: Database) -> None:
    log = await make_ledger(db)
    one, two = member(db, log), stranger(db, log)
    await two.fetch()
    await one.update(writing("a"))
    results = iter(["first", "second", "third"])
    assert await two.update_returning(lambda _: ([Write("b")], next(results))) == "second"
    assert await two.update_returning(lambda _: ([], next(results))) == "third"
    assert two.state == Ledger(("a", "b"))


async def test_an_update_that_always_loses_is_decided_where_nobody_is_faster(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_ledger(db)
    loser, write = member(db, log), db.write
    await loser.fetch()
    runs: list[Ledger] = []

    async def write_behind_a_rival(
        fn: Callable[[Tx], object], *, size_bytes: int = 0, step: Step | None = None
    ) -> object:
        await write(appending(log, Add()))
        return await write(fn, size_bytes=size_bytes, step=step)

    def generate(ledger: Ledger) -> list[Write]:
        runs.append(ledger)
        return [Write(f"after {ledger.total}")]

    monkeypatch.setattr(db, "write", write_behind_a_rival)
    losses = OPTIMISTIC_ATTEMPTS_MAX
    assert await loser.update(generate) == Ledger((f"after {losses + 1}",), total=losses + 1)
    assert [ledger.total for ledger in runs] == [*range(losses), losses + 1]
    assert loser.state == await member(db, log).fetch() == Ledger((f"after {losses + 1}",), total=losses + 1)


async def test_a_slow_fetch_does_not_take_back_what_an_update_learnt(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_ledger(db)
    one, read = member(db, log), db.read
    await one.fetch()
    has_read, updated = anyio.Event(), anyio.Event()

    async def read_slowly(fn: Callable[[Tx], object]) -> object:
        found = await read(fn)
        has_read.set()
        await updated.wait()
        return found

    monkeypatch.setattr(db, "read", read_slowly)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.fetch)
        await has_read.wait()
        await one.update(writing("a"))
        updated.set()
    assert one.state == Ledger(("a",))


async def test_a_deleted_log_is_gone_for_all_and_who_waits_learns_it(db: Database) -> None:
    log, other = await make_ledger(db), await make_ledger(db)
    one = member(db, log)
    await one.update(writing("a", pad="x" * 5000))

    async def wait() -> None:
        with pytest.raises(NotFound, match="log"):
            await one.wait_change()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await db.write(partial(delete_log, log=log))
    for call in (
        one.fetch,
        one.compact,
        partial(one.update, writing("b")),
        partial(one.initialize, Ledger()),
    ):
        with pytest.raises(NotFound, match=f"log '{log}'"):
            await call()
    with pytest.raises(NotFound):
        await db.write(partial(delete_log, log=log))
    assert one.state == Ledger(("a",)), "what it read it may go on reading"
    assert await db.read(list_logs) == [other]
    assert await member(db, other).fetch() == Ledger()


async def test_a_cancelled_update_is_there_whole_or_not_at_all(world: World) -> None:
    log = await make_ledger(world.db)
    one = member(world.db, log)
    await one.fetch()
    with world.writer_held():
        with anyio.CancelScope() as scope:
            scope.cancel()
            await one.update(writing("never"))
    assert await one.update(writing("a")) == Ledger(("a",))
