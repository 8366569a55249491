"""What both forms of the database promise: the file and the memory, on asyncio and on trio."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from eventproc.store.database import GROUP_BYTES_MAX, Tx, Watch
from eventproc.store.faults import WRITE_BEGUN, WRITE_COMMIT, WRITE_COMMITTED, Died
from eventproc.store.model.errors import Closed, DatabaseStopped, DiskFull, NotSupported
from tests.database.worlds import (
    FORMS,
    Refused,
    World,
    backend_of,
    insert,
    insert_then_raise,
    names,
    open_world,
)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def anyio_backend(form: str) -> tuple[str, dict[str, object]]:
    return backend_of(form)


@pytest.fixture
async def world(form: str, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(form, tmp_path / "store") as world:
        yield world


# --- results, errors and neighbours --------------------------------------------------------------


async def test_a_write_returns_its_result_and_later_reads_see_it(world: World) -> None:
    assert await world.db.write(insert("a")) == "a"
    assert await world.names() == ["a"]


async def test_a_function_that_raises_changes_nothing_and_its_neighbours_commit(world: World) -> None:
    outcomes = await world.write_together(insert("a"), insert_then_raise("b"), insert("c"))
    assert sorted(map(repr, outcomes)) == ["'a'", "'c'", "Refused('b')"]
    assert await world.names() == ["a", "c"]


async def test_a_refusal_that_rests_on_a_neighbours_undone_row_is_not_reported(world: World) -> None:
    def unless_b(tx: Tx) -> str:
        if "b" in names(tx):
            raise Refused("b is there")
        return insert("c")(tx)

    outcomes = await world.write_together(insert_then_raise("b"), unless_b)
    assert [repr(outcome) for outcome in outcomes] == ["Refused('b')", "'c'"]
    assert await world.names() == ["c"]


async def test_a_refusal_without_a_change_does_not_run_its_group_again(world: World) -> None:
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


async def test_a_table_made_by_a_function_that_raises_is_not_there(world: World) -> None:
    def make_table(tx: Tx) -> None:
        tx.execute("CREATE TABLE other (x)")
        raise Refused("no")

    outcomes = await world.write_together(insert("a"), make_table)
    assert sorted(map(repr, outcomes)) == ["'a'", "Refused('no')"]
    tables = await world.db.read(
        lambda tx: tx.execute("SELECT name FROM sqlite_master WHERE name = 'other'").fetchall()
    )
    assert tables == []
    assert await world.db.write(insert("b")) == "b"


async def test_all_functions_of_a_group_share_one_commit_and_one_moment(world: World) -> None:
    moments: set[tuple[int, int]] = set()

    def note(tx: Tx) -> None:
        moments.add((tx.now_ms, tx.monotonic_ms))
        insert(f"{len(names(tx))}")(tx)

    await world.write_together(note, note, note)
    assert world.faults.reached == [WRITE_BEGUN, WRITE_COMMIT, WRITE_COMMITTED]
    assert len(moments) == 1


async def write_half_a_group(world: World, name: str) -> None:
    await world.db.write(insert(name), size_bytes=GROUP_BYTES_MAX // 2)


async def test_a_group_takes_no_more_than_its_limit_in_bytes(world: World) -> None:
    async with anyio.create_task_group() as tasks:
        with world.writer_held():
            for name in "abc":
                tasks.start_soon(write_half_a_group, world, name)
                await anyio.wait_all_tasks_blocked() if world.db.path else None
    assert world.faults.reached.count(WRITE_COMMIT) == 2
    assert await world.names() == ["a", "b", "c"]


async def test_one_function_larger_than_a_group_still_runs(world: World) -> None:
    assert await world.db.write(insert("a"), size_bytes=GROUP_BYTES_MAX * 2) == "a"


async def test_a_read_cannot_write(world: World) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        await world.db.read(insert("a"))
    assert await world.db.write(insert("b")) == "b"


async def test_a_read_that_raises_leaves_no_transaction_behind(world: World) -> None:
    def refuse(tx: Tx) -> None:
        raise Refused(names(tx))

    with pytest.raises(Refused):
        await world.db.read(refuse)
    assert await world.db.write(insert("a")) == "a"
    assert await world.names() == ["a"]


async def test_a_closed_database_refuses(form: str, tmp_path: Path) -> None:
    async with open_world(form, tmp_path / "store") as world:
        pass
    with pytest.raises(Closed):
        await world.db.write(names)
    with pytest.raises(Closed):
        await world.db.read(names)


# --- effects -------------------------------------------------------------------------------------


async def test_effects_come_after_the_commit_and_before_the_caller_goes_on(world: World) -> None:
    seen: list[str] = []

    def fn(tx: Tx) -> None:
        tx.after(lambda: seen.append(f"effect after {world.faults.reached[-1]}"))

    await world.db.write(fn)
    seen.append("caller")
    assert seen == [f"effect after {WRITE_COMMITTED}", "caller"]


async def test_effects_of_a_function_that_raises_are_dropped_and_others_come_once(world: World) -> None:
    seen: list[str] = []

    def good(tx: Tx) -> None:
        tx.after(lambda: seen.append("good"))
        insert("a")(tx)

    def bad(tx: Tx) -> None:
        tx.after(lambda: seen.append("bad"))
        insert_then_raise("b")(tx)

    def bad_without_a_change(tx: Tx) -> None:
        tx.after(lambda: seen.append("refused"))
        raise Refused(names(tx))

    await world.write_together(good, bad)
    assert seen == ["good"]
    await world.write_together(bad_without_a_change)
    assert seen == ["good"]


async def test_an_effect_that_raises_is_logged_and_harms_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fn(tx: Tx) -> str:
        tx.after(lambda: 1 // 0)  # type: ignore[arg-type]
        return insert("a")(tx)

    assert await world.db.write(fn) == "a"
    assert "an effect of a committed write failed" in caplog.text


class Rows:
    """Deferred rows of the group under test."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.flushes = 0

    def flush(self, tx: Tx) -> None:
        self.flushes += 1
        for name in self.waiting:
            insert(name)(tx)


def make_rows(made: list[Rows]) -> Rows:
    rows = Rows()
    made.append(rows)
    return rows


async def test_deferred_rows_of_a_group_are_written_once_by_all(world: World) -> None:
    made: list[Rows] = []

    def append(tx: Tx) -> None:
        rows = tx.defer("rows", lambda: make_rows(made))
        rows.waiting.append(f"row {len(rows.waiting)}")

    await world.write_together(append, append, append)
    assert await world.names() == ["row 0", "row 1", "row 2"]
    assert [rows.flushes for rows in made] == [1]


async def test_deferred_rows_of_a_function_that_raises_are_dropped(world: World) -> None:
    made: list[Rows] = []

    def append(name: str, *, refuse: bool, tx: Tx) -> None:
        tx.defer("rows", lambda: make_rows(made)).waiting.append(name)
        tx.mark_changed()
        if refuse:
            raise Refused(name)

    outcomes = await world.write_together(
        lambda tx: append("a", refuse=False, tx=tx),
        lambda tx: append("b", refuse=True, tx=tx),
        lambda tx: append("c", refuse=False, tx=tx),
    )
    assert sorted(map(repr, outcomes)) == ["None", "None", "Refused('b')"]
    assert await world.names() == ["a", "c"]


async def test_a_function_can_have_deferred_rows_written_to_see_them(world: World) -> None:
    def append_and_look(tx: Tx) -> list[str]:
        tx.defer("rows", Rows).waiting.append("a")
        assert names(tx) == []
        tx.flush_deferred()
        return names(tx)

    assert await world.db.write(append_and_look) == ["a"]


# --- deaths and failures -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "point, durable", [(WRITE_BEGUN, False), (WRITE_COMMIT, False), (WRITE_COMMITTED, True)]
)
async def test_a_death_leaves_all_or_nothing_and_no_effect(world: World, point: str, durable: bool) -> None:
    effects: list[str] = []

    def with_effect(tx: Tx) -> None:
        tx.after(lambda: effects.append("told"))
        insert("a")(tx)

    world.faults.fail_at(point)
    with pytest.raises(Died):
        await world.db.write(with_effect)
    assert effects == []
    assert await world.names() == (["a"] if durable else [])


@pytest.mark.parametrize("point, expected", [(WRITE_COMMIT, []), (WRITE_COMMITTED, ["a", "c"])])
async def test_a_death_around_commit_reaches_every_caller_of_the_group(
    world: World, point: str, expected: list[str]
) -> None:
    world.faults.fail_at(point)
    outcomes = await world.write_together(insert("a"), insert_then_raise("b"), insert("c"))
    assert [type(outcome) for outcome in outcomes] == [Died, Died, Died]
    assert await world.names() == expected


async def test_a_group_runs_again_after_a_death(world: World) -> None:
    world.faults.fail_at(WRITE_COMMIT)
    with pytest.raises(Died):
        await world.db.write(insert("a"))
    assert await world.db.write(insert("a")) == "a"


async def test_a_death_inside_a_function_takes_its_group_along(world: World) -> None:
    def die(tx: Tx) -> None:
        insert("b")(tx)
        raise Died

    outcomes = await world.write_together(insert("a"), die)
    assert [repr(outcome) for outcome in outcomes if isinstance(outcome, Died)]
    assert "b" not in await world.names()
    assert await world.db.write(insert("c")) == "c"


def fill_disk(tx: Tx) -> None:
    """Let the database hold no more pages than it has."""
    (pages,) = tx.execute("PRAGMA page_count").fetchone()
    tx.execute(f"PRAGMA max_page_count = {pages}")


def free_disk(tx: Tx) -> None:
    tx.execute("PRAGMA max_page_count = 1000000")


async def test_a_full_disk_in_the_middle_of_a_group_changes_nothing_of_the_large_write(world: World) -> None:
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


async def test_a_full_disk_at_commit_is_retryable_for_the_whole_group(world: World) -> None:
    full = sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full")
    world.faults.fail_at(WRITE_COMMIT, full)
    outcomes = await world.write_together(insert("a"), insert("b"))
    assert [type(outcome) for outcome in outcomes] == [DiskFull, DiskFull]
    assert await world.names() == []
    assert await world.write_together(insert("a"), insert("b")) == ["a", "b"]


async def test_an_io_error_at_commit_stops_the_writer_for_everyone(world: World) -> None:
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
        tx.after(scope.cancel)  # the group is durable, and the other caller has not gone on yet

    async with anyio.create_task_group() as tasks:
        with world.writer_held():
            tasks.start_soon(write)
            tasks.start_soon(world.db.write, cancel)
            await anyio.wait_all_tasks_blocked() if world.db.path else None
    assert results == ["a"]
    assert await world.names() == ["a"]


# --- waiting for changes -------------------------------------------------------------------------


def watch(topic: str) -> Watch:
    return Watch(topic, lambda tx: tuple(names(tx)))


async def test_a_committed_wake_reaches_the_subscription_even_before_it_waits(world: World) -> None:
    with world.db.subscribe([watch("items"), watch("others")]) as subscription:
        await world.db.write(lambda tx: tx.wake("items"))
        assert await subscription.wait() == {"items"}
        assert await subscription.wait(timeout_ms=0) == frozenset()


async def test_a_waiting_task_is_woken(world: World) -> None:
    woken: list[frozenset[object]] = []

    async with anyio.create_task_group() as tasks:
        with world.db.subscribe([watch("items")]) as subscription:

            async def wait() -> None:
                woken.append(await subscription.wait())
                tasks.cancel_scope.cancel()

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await world.db.write(lambda tx: tx.wake("items"))
            await anyio.sleep_forever()
    assert woken == [{"items"}]


async def test_a_wake_of_a_function_that_raises_reaches_nobody(world: World) -> None:
    def refuse(tx: Tx) -> None:
        tx.wake("items")
        insert_then_raise("a")(tx)

    with world.db.subscribe([watch("items")]) as subscription:
        await world.write_together(refuse)
        assert await subscription.wait(timeout_ms=0) == frozenset()


async def test_topics_are_added_and_discarded_while_subscribed(world: World) -> None:
    def wake_both(tx: Tx) -> None:
        tx.wake("items")
        tx.wake("others")

    with world.db.subscribe() as subscription:
        subscription.add(watch("items"))
        subscription.add(watch("others"))
        subscription.discard("others")
        await world.db.write(wake_both)
        assert await subscription.wait() == {"items"}
        await world.db.write(wake_both)
        subscription.discard("items")  # and forgets that it changed
        await world.db.write(wake_both)
        assert await subscription.wait(timeout_ms=0) == frozenset()


# --- SQL of users --------------------------------------------------------------------------------


async def test_a_users_sql_makes_and_fills_its_own_tables_and_reads_ours(world: World) -> None:
    def fn(tx: Tx) -> list[tuple[int]]:
        with tx.user_sql():
            tx.execute("CREATE TABLE app_total (n)")
            tx.execute("CREATE INDEX app_total_n ON app_total (n)")
            tx.execute("INSERT INTO app_total SELECT count(*) FROM item")
            tx.execute("UPDATE app_total SET n = n + 1")
            return tx.execute("SELECT n FROM app_total").fetchall()

    assert await world.db.write(fn) == [(1,)]


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "SAVEPOINT mine",
        "ATTACH ':memory:' AS other",
        "PRAGMA user_version = 7",
        "DELETE FROM item",
        "DROP TABLE item",
        "CREATE TABLE mine (x)",
        "CREATE TRIGGER app_t AFTER INSERT ON item BEGIN SELECT 1; END",
        "ALTER TABLE item ADD COLUMN x",
        "CREATE TEMP TABLE app_t (x)",
    ],
)
async def test_a_users_sql_cannot_touch_what_is_ours(world: World, sql: str) -> None:
    def fn(tx: Tx) -> None:
        with tx.user_sql():
            tx.execute(sql)

    await world.db.write(insert("a"))
    with pytest.raises(NotSupported, match="user's function"):
        await world.db.write(fn)
    assert await world.names() == ["a"]
    assert await world.db.write(insert("b")) == "b"
