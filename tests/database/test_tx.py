"""Features of a transaction besides SQL: effects, pending writes, the cache, wake-ups, SQL of users."""

from __future__ import annotations

import pytest

from eventproc.store.database import PendingSlot, Tx, Watch
from eventproc.store.database.tx import CACHED_VALUES_MAX
from eventproc.store.faults import WRITE_COMMITTED
from eventproc.store.model.errors import NotSupported
from tests.database.support import (
    Refused,
    World,
    backend_of,
    insert,
    insert_then_raise,
    names,
    on_server,
    on_sqlite,
)


@pytest.fixture
def anyio_backend(form: str) -> tuple[str, dict[str, object]]:
    return backend_of(form)


# --- effects -------------------------------------------------------------------------------------


async def test_effects_run_after_the_commit_and_before_the_caller_continues(world: World) -> None:
    seen: list[str] = []

    def fn(tx: Tx) -> None:
        tx.after(lambda: seen.append(f"effect after {world.faults.reached[-1]}"))

    await world.db.write(fn)
    seen.append("caller")
    assert seen == [f"effect after {WRITE_COMMITTED}", "caller"]


async def test_effects_of_a_raising_function_are_dropped_and_others_run_once(world: World) -> None:
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


async def test_a_raising_effect_is_logged_and_affects_no_caller(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fn(tx: Tx) -> str:
        tx.after(lambda: 1 // 0)  # type: ignore[arg-type]
        return insert("a")(tx)

    assert await world.db.write(fn) == "a"
    assert "an effect of a committed write failed" in caplog.text


class Rows:
    """Pending writes of the commit batch under test."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.flushes = 0

    def flush(self, tx: Tx) -> None:
        self.flushes += 1
        for name in self.waiting:
            insert(name)(tx)


ROWS = PendingSlot(Rows)


async def test_pending_writes_of_a_batch_are_flushed_once(world: World) -> None:
    made: list[Rows] = []

    def make() -> Rows:
        made.append(Rows())
        return made[-1]

    slot = PendingSlot(make)

    def append(tx: Tx) -> None:
        rows = tx.pending[slot]
        rows.waiting.append(f"row {len(rows.waiting)}")

    await world.write_together(append, append, append)
    assert await world.names() == ["row 0", "row 1", "row 2"]
    assert [rows.flushes for rows in made] == [1]


async def test_pending_writes_of_a_function_that_raises_are_dropped(world: World) -> None:
    def append(name: str, *, refuse: bool, tx: Tx) -> None:
        tx.pending[ROWS].waiting.append(name)
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


async def test_flush_pending_makes_pending_writes_visible_to_sql(world: World) -> None:
    def append_and_look(tx: Tx) -> list[str]:
        tx.pending[ROWS].waiting.append("a")
        assert names(tx) == []
        tx.flush_pending()
        return names(tx)

    assert await world.db.write(append_and_look) == ["a"]


# --- cache of the transaction --------------------------------------------------------------------


async def test_cache_of_a_transaction_is_bounded(world: World) -> None:
    def fill(tx: Tx) -> int:
        for number in range(3 * CACHED_VALUES_MAX):
            tx.remember(("number", str(number)), number)
        assert tx.cache["number", str(3 * CACHED_VALUES_MAX - 1)] == 3 * CACHED_VALUES_MAX - 1
        return len(tx.cache)

    assert await world.db.write(fill) <= CACHED_VALUES_MAX


async def test_rollback_empties_the_cache_of_the_transaction(world: World) -> None:
    def remember(tx: Tx) -> None:
        tx.remember(("name", "a"), "a")
        insert_then_raise("a")(tx)

    def look(tx: Tx) -> bool:
        return ("name", "a") in tx.cache

    outcomes = await world.write_together(remember, look)
    assert outcomes[1] is False


# --- waiting for changes -------------------------------------------------------------------------


def watch(channel: str) -> Watch:
    return Watch(channel, lambda tx: tuple(names(tx)))


async def test_a_committed_wake_reaches_the_subscription_even_before_it_waits(world: World) -> None:
    with world.db.subscribe([watch("items"), watch("others")]) as subscription:
        await world.db.write(lambda tx: tx.wake("items"))
        assert await subscription.wait() == {"items"}
        assert await subscription.wait(timeout_ms=0) == frozenset()


async def test_a_wake_of_a_raising_function_has_no_effect(world: World) -> None:
    def refuse(tx: Tx) -> None:
        tx.wake("items")
        insert_then_raise("a")(tx)

    with world.db.subscribe([watch("items")]) as subscription:
        await world.write_together(refuse)
        assert await subscription.wait(timeout_ms=0) == frozenset()


async def test_channels_are_added_and_discarded_while_subscribed(world: World) -> None:
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


@on_sqlite
async def test_user_sql_creates_and_fills_its_own_tables_and_reads_others(world: World) -> None:
    def fn(tx: Tx) -> list[tuple[int]]:
        with tx.user_sql():
            tx.execute("CREATE TABLE app_total (n)")
            tx.execute("CREATE INDEX app_total_n ON app_total (n)")
            tx.execute("INSERT INTO app_total SELECT count(*) FROM item")
            tx.execute("UPDATE app_total SET n = n + 1")
            return tx.execute("SELECT n FROM app_total").fetchall()

    assert await world.db.write(fn) == [(1,)]


@on_sqlite
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


@on_server
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM item",
        "DROP TABLE item",
        "COMMIT",
        "SET ROLE postgres",
        "DO $$ BEGIN END $$",
        "/* */ ROLLBACK",
        "-- to the end of the line\rROLLBACK",
        ";ROLLBACK",
    ],
)
async def test_a_users_sql_on_a_server_cannot_touch_what_is_ours(world: World, sql: str) -> None:
    def trespass(tx: Tx) -> None:
        with tx.user_sql():
            tx.execute(sql)

    def keep(tx: Tx) -> object:
        with tx.user_sql():
            tx.execute("CREATE TABLE app_count (number integer, name text)")
            tx.execute("INSERT INTO app_count VALUES (:number, :name)", {"name": "a", "number": 1})
            return tx.execute("SELECT number, name, (SELECT count(*) FROM item) FROM app_count").fetchall()

    await world.db.write(insert("a"))
    with pytest.raises(NotSupported):
        await world.db.write(trespass)
    assert await world.db.write(keep) == [(1, "a", 1)]
    assert await world.names() == ["a"]
