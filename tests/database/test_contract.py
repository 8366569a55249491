"""The promises of both forms of the database, in a file and in memory, on asyncio and on trio."""

from __future__ import annotations

import sqlite3

import anyio
import pytest

from eventproc.store.database import Tx
from eventproc.store.faults import WRITE_BEGUN, WRITE_COMMIT, WRITE_COMMITTED, Died
from eventproc.store.model.errors import Closed, DatabaseStopped, DiskFull
from eventproc.store.model.limits import BATCH_BYTES_MAX
from tests.database.support import (
    Refused,
    World,
    backend_of,
    insert,
    insert_then_raise,
    names,
    on_sqlite,
)


@pytest.fixture
def anyio_backend(form: str) -> tuple[str, dict[str, object]]:
    return backend_of(form)


# --- results and errors --------------------------------------------------------------


async def test_a_write_returns_its_result_and_later_reads_see_it(world: World) -> None:
    assert await world.db.write(insert("a")) == "a"
    assert await world.names() == ["a"]


async def test_a_raising_function_changes_nothing_and_the_others_commit(world: World) -> None:
    outcomes = await world.write_together(insert("a"), insert_then_raise("b"), insert("c"))
    assert sorted(map(repr, outcomes)) == ["'a'", "'c'", "Refused('b')"]
    assert await world.names() == ["a", "c"]


async def test_rows_that_the_engine_refuses_at_the_end_concern_their_function_only(world: World) -> None:
    await world.db.write(insert("a"))

    def insert_twice(tx: Tx) -> None:
        tx.executemany("INSERT INTO item (name) VALUES (?)", [("b",), ("a",)])

    def insert_what_is_no_value(tx: Tx) -> None:
        tx.executemany("INSERT INTO item (name) VALUES (?)", [(object(),)])  # type: ignore[list-item]

    outcomes = await world.write_together(insert("c"), insert_twice, insert("d"))
    assert outcomes[0] == "c" and outcomes[2] == "d"
    assert isinstance(outcomes[1], Exception) and not isinstance(outcomes[1], DatabaseStopped)
    for refused in (insert_twice, insert_what_is_no_value):
        [outcome] = await world.write_together(refused)
        assert isinstance(outcome, Exception) and not isinstance(outcome, DatabaseStopped)
    assert await world.names() == ["a", "c", "d"]


async def test_an_error_caused_by_another_functions_undone_row_is_not_reported(world: World) -> None:
    def unless_b(tx: Tx) -> str:
        if "b" in names(tx):
            raise Refused("b is there")
        return insert("c")(tx)

    outcomes = await world.write_together(insert_then_raise("b"), unless_b)
    assert [repr(outcome) for outcome in outcomes] == ["Refused('b')", "'c'"]
    assert await world.names() == ["c"]


async def test_an_error_without_a_change_does_not_run_its_batch_again(world: World) -> None:
    runs: list[str] = []

    def refuse(tx: Tx) -> None:
        runs.append("refuse")
        raise Refused(names(tx))

    def count(tx: Tx) -> None:
        runs.append("count")
        insert("a")(tx)

    await world.write_together(count, refuse)
    assert sorted(runs) == ["count", "refuse"]
    assert await world.names() == ["a"]


async def test_a_table_created_by_a_raising_function_does_not_exist(world: World) -> None:
    def make_table(tx: Tx) -> None:
        tx.execute("CREATE TABLE other (x TEXT)")
        raise Refused("no")

    def make_it_again(tx: Tx) -> list[object]:
        tx.execute("CREATE TABLE other (x TEXT)")
        return tx.execute("SELECT x FROM other").fetchall()

    outcomes = await world.write_together(insert("a"), make_table)
    assert sorted(map(repr, outcomes)) == ["'a'", "Refused('no')"]
    assert await world.db.write(make_it_again) == []
    assert await world.db.write(insert("b")) == "b"


async def test_all_functions_of_a_batch_share_one_commit_and_one_time(world: World) -> None:
    moments: set[tuple[int, int]] = set()

    def note(tx: Tx) -> None:
        moments.add((tx.now_ms, tx.monotonic_ms))
        insert(f"{len(names(tx))}")(tx)

    await world.write_together(note, note, note)
    assert world.faults.reached == [WRITE_BEGUN, WRITE_COMMIT, WRITE_COMMITTED]
    assert len(moments) == 1


async def write_half_a_group(world: World, name: str) -> None:
    await world.db.write(insert(name), size_bytes=BATCH_BYTES_MAX // 2)


async def test_a_batch_takes_no_more_than_its_limit_in_bytes(world: World) -> None:
    async with anyio.create_task_group() as tasks:
        with world.writer_held():
            for name in "abc":
                tasks.start_soon(write_half_a_group, world, name)
                await anyio.wait_all_tasks_blocked() if world.has_threads else None
    assert world.faults.reached.count(WRITE_COMMIT) == 2
    assert await world.names() == ["a", "b", "c"]


async def test_one_function_larger_than_a_batch_still_runs(world: World) -> None:
    assert await world.db.write(insert("a"), size_bytes=BATCH_BYTES_MAX * 2) == "a"


async def test_a_read_cannot_write(world: World) -> None:
    with pytest.raises(Exception, match=r"read-?only"):
        await world.db.read(insert("a"))
    assert await world.db.write(insert("b")) == "b"


async def test_a_raising_read_leaves_no_transaction_open(world: World) -> None:
    def refuse(tx: Tx) -> None:
        raise Refused(names(tx))

    with pytest.raises(Refused):
        await world.db.read(refuse)
    assert await world.db.write(insert("a")) == "a"
    assert await world.names() == ["a"]


async def test_a_closed_database_refuses(world: World) -> None:
    await world.db.close()
    with pytest.raises(Closed):
        await world.db.write(names)
    with pytest.raises(Closed):
        await world.db.read(names)


# --- deaths and failures -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point, durable", [(WRITE_BEGUN, False), (WRITE_COMMIT, False), (WRITE_COMMITTED, True)]
)
async def test_a_death_leaves_all_or_nothing_and_no_effect(world: World, point: str, durable: bool) -> None:
    effects: list[str] = []

    def with_effect(tx: Tx) -> None:
        tx.after(lambda: effects.append("effect"))
        insert("a")(tx)

    world.faults.fail_at(point)
    with pytest.raises(Died):
        await world.db.write(with_effect)
    assert effects == []
    assert await world.names() == (["a"] if durable else [])


@pytest.mark.parametrize("point, expected", [(WRITE_COMMIT, []), (WRITE_COMMITTED, ["a", "c"])])
async def test_a_death_around_commit_reaches_every_caller_of_the_batch(
    world: World, point: str, expected: list[str]
) -> None:
    world.faults.fail_at(point)
    outcomes = await world.write_together(insert("a"), insert_then_raise("b"), insert("c"))
    assert [type(outcome) for outcome in outcomes] == [Died, Died, Died]
    assert await world.names() == expected


async def test_a_death_inside_a_function_loses_its_batch(world: World) -> None:
    def die(tx: Tx) -> None:
        insert("b")(tx)
        raise Died

    outcomes = await world.write_together(insert("a"), die)
    assert [repr(outcome) for outcome in outcomes if isinstance(outcome, Died)]
    assert "b" not in await world.names()
    assert await world.db.write(insert("c")) == "c"


def fill_disk(tx: Tx) -> None:
    """Limit the database to its present number of pages."""
    (pages,) = tx.execute("PRAGMA page_count").fetchone()
    tx.execute(f"PRAGMA max_page_count = {pages}")


def free_disk(tx: Tx) -> None:
    tx.execute("PRAGMA max_page_count = 1000000")


@on_sqlite
async def test_a_full_disk_inside_a_batch_undoes_only_the_large_write(world: World) -> None:
    await world.db.write(fill_disk)
    outcomes = await world.write_together(insert("a"), insert("large" * 100_000), insert("c"))
    assert isinstance(outcomes[1], DiskFull)
    written = [name for name, outcome in zip("a?c", outcomes, strict=True) if outcome == name]
    assert await world.names() == written
    await world.db.write(free_disk)
    assert await world.db.write(insert("d" * 100_000))


def sqlite_error(code: int, text: str) -> sqlite3.OperationalError:
    why = sqlite3.OperationalError(text)
    why.sqlite_errorcode = code
    return why


@on_sqlite
async def test_a_full_disk_at_commit_is_retryable_for_the_batch(world: World) -> None:
    full = sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
    world.faults.fail_at(WRITE_COMMIT, full)
    outcomes = await world.write_together(insert("a"), insert("b"))
    assert [type(outcome) for outcome in outcomes] == [DiskFull, DiskFull]
    assert await world.names() == []
    assert await world.write_together(insert("a"), insert("b")) == ["a", "b"]


async def test_an_io_error_at_commit_stops_the_writer_for_all_callers(world: World) -> None:
    world.faults.fail_at(WRITE_COMMIT, sqlite_error(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error"))
    outcomes = await world.write_together(insert("a"), insert("b"))
    assert [type(outcome) for outcome in outcomes] == [DatabaseStopped, DatabaseStopped]
    with pytest.raises(DatabaseStopped, match="disk I/O error"):
        await world.db.write(insert("c"))
    assert await world.names() == []


async def test_a_function_that_ends_the_transaction_stops_the_writer(world: World) -> None:
    def end(tx: Tx) -> None:
        tx.execute("COMMIT")

    with pytest.raises(DatabaseStopped, match="ended by one of its functions"):
        await world.db.write(end)
    with pytest.raises(DatabaseStopped):
        await world.db.write(insert("a"))


# --- cancellation --------------------------------------------------------------------------------


async def test_a_write_cancelled_while_it_waits_never_runs(world: World) -> None:
    async with anyio.create_task_group() as tasks:
        with world.writer_held():
            with anyio.CancelScope() as scope:
                scope.cancel()
                await world.db.write(insert("a"))
            assert scope.cancelled_caught
            tasks.start_soon(world.db.write, insert("b"))
    assert await world.names() == ["b"]


async def test_a_write_cancelled_after_it_started_still_returns_its_result(world: World) -> None:
    scope = anyio.CancelScope()
    results: list[str] = []

    async def write() -> None:
        with scope:
            results.append(await world.db.write(insert("a")))

    def cancel(tx: Tx) -> None:
        tx.after(scope.cancel)  # the batch is durable, and the other caller has not continued yet

    async with anyio.create_task_group() as tasks:
        with world.writer_held():
            tasks.start_soon(write)
            tasks.start_soon(world.db.write, cancel)
            await anyio.wait_all_tasks_blocked() if world.has_threads else None
    assert results == ["a"]
    assert await world.names() == ["a"]
