"""A replicated object within transactions: no conflict, one commit with other rows, nothing wrong kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.faults import WRITE_COMMIT, WRITE_COMMITTED, Died
from eventproc.store.model.errors import NotFound
from eventproc.store.replicated import (
    FoldedState,
    LogId,
    ReplicatedType,
    append,
    create_log,
    delete_log,
    fold_tail,
    initialize,
)
from tests.database.support import World
from tests.replicated.support import (
    LEDGER,
    Add,
    Ledger,
    Write,
    appending,
    compacting,
    last_ledger,
    make_ledger,
)
from tests.support.sqlite import sqlite_of


class UpdateRefused(Exception):
    """What a function under test raises on purpose."""


def append_then_raise(log: LogId, *updates: Write | Add) -> Callable[[Tx], None]:
    def fn(tx: Tx) -> None:
        append(tx, log, LEDGER, updates)
        raise UpdateRefused

    return fn


async def test_a_transaction_sees_what_it_appended_itself(db: Database) -> None:
    def whole_life(tx: Tx) -> list[Ledger]:
        log = create_log(tx)
        assert fold_tail(tx, log, LEDGER) is None
        initialize(tx, log, LEDGER, Ledger(("0",)))
        states = [last_ledger(tx, log)]
        for line in "ab":
            append(tx, log, LEDGER, [Write(line)])
            tx.flush_pending()
            states.append(last_ledger(tx, log))
        return states

    assert await db.write(whole_life) == [Ledger(("0",)), Ledger(("0", "a")), Ledger(("0", "a", "b"))]


async def test_functions_of_one_group_see_what_went_before(world: World) -> None:
    log = await make_ledger(world.db)
    found = await world.write_together(
        appending(log, Write("a")),
        compacting(log),
        appending(log, Write("b"), Write("c")),
        appending(log, Write("d")),
        partial(last_ledger, log=log),
    )
    last = await world.db.read(partial(last_ledger, log=log))
    assert sorted(last.lines) == ["a", "b", "c", "d"]
    for state in found:
        assert isinstance(state, (Ledger, FoldedState))
        lines = state.lines if isinstance(state, Ledger) else state.state.lines
        assert last.lines[: len(lines)] == lines
    assert last in found


async def test_a_fold_that_refuses_an_update_keeps_it_out_of_the_log(db: Database) -> None:
    log = await make_ledger(db)

    def refuse_adding(ledger: Ledger, update: Write | Add) -> Ledger:
        if isinstance(update, Add):
            raise LookupError
        return LEDGER.fold(ledger, update)

    updates = {"write": Write, "add": Add}
    refusing = ReplicatedType[Ledger, Write | Add](
        name="ledger", state=Ledger, updates=updates, fold=refuse_adding
    )

    def append_wrong(tx: Tx) -> None:
        wrong: list[Write | Add] = [Write("never"), Add()]
        append(tx, log, refusing, wrong)

    with pytest.raises(LookupError):
        await db.write(append_wrong)
    assert await db.write(appending(log, Add())) == Ledger(total=1)


@pytest.mark.parametrize(("point", "kept"), [(WRITE_COMMIT, ()), (WRITE_COMMITTED, ("a",))])
async def test_after_a_death_memory_has_what_the_log_has(
    world: World, point: str, kept: tuple[str, ...]
) -> None:
    log = await make_ledger(world.db)
    world.faults.fail_at(point, Died())
    with pytest.raises(Died):
        await world.db.write(appending(log, Write("a")))
    assert await world.db.write(partial(last_ledger, log=log)) == Ledger(kept)
    assert await world.db.write(appending(log, Write("b"))) == Ledger((*kept, "b"))


async def test_other_rows_change_with_it_or_not_at_all(db: Database) -> None:
    log, mirror = await make_ledger(db), await make_ledger(db)

    def both(tx: Tx, *, refuse: bool = False) -> None:
        append(tx, mirror, LEDGER, [Write(str(len(last_ledger(tx, log).lines)))])
        append(tx, log, LEDGER, [Write("x")])
        if refuse:
            raise UpdateRefused

    await db.write(both)
    with pytest.raises(UpdateRefused):
        await db.write(partial(both, refuse=True))
    await db.write(both)
    assert (await db.read(partial(last_ledger, log=log))).lines == ("x", "x")
    assert (await db.read(partial(last_ledger, log=mirror))).lines == ("0", "1")


@pytest.mark.linux  # elsewhere no process looks at how far the log goes
async def test_what_this_process_folded_is_not_read_again(db: Database) -> None:
    log = await make_ledger(db)
    for line in "abc":
        await db.write(appending(log, Write(line)))

    def count_statements(tx: Tx) -> list[str]:
        seen: list[str] = []
        sqlite_of(tx.connection).set_trace_callback(seen.append)
        try:
            append(tx, log, LEDGER, [Write("d")])
        finally:
            sqlite_of(tx.connection).set_trace_callback(None)
        return seen

    statements = await db.write(count_statements)
    assert not statements, "the tail is known, too"
    assert (await db.read(partial(last_ledger, log=log))).lines == ("a", "b", "c", "d")


async def test_a_log_that_is_not_there_is_not_found(db: Database) -> None:
    log = await make_ledger(db)
    await db.write(partial(delete_log, log=log))
    for fn in (appending(log, Add()), partial(last_ledger, log=log), compacting(log)):
        with pytest.raises(NotFound, match=f"log '{log}'"):
            await db.write(fn)
    with pytest.raises(NotFound, match=f"log '{log}'"):
        await db.read(partial(last_ledger, log=log))
