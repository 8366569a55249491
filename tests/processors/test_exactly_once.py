"""Emitted events, progress and the user's SQL take effect together or not at all; a fenced process changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import ProgrammingError

import anyio
import pytest

from eventproc.groups import describe_group
from eventproc.groups.operations import reader_offline
from eventproc.processors import App, AppTx, Context, ProcessorFailed, RetryPolicy
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotSupported
from eventproc.store.segments import Event
from tests.processors.support import (
    GROUP,
    OUT,
    STREAM,
    events,
    finish,
    lag,
    payloads,
    progress,
    system,
    write,
)
from tests.processors.worker import until

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)


async def emit(event: Event, context: Context) -> None:
    context.emit(OUT, event.payload, key=event.key)
    context.emit(OUT, b"1000", key="other")


def make_table(tx: AppTx) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS app_seen (number INTEGER)")


async def rows(ep: Eventproc) -> list[int]:
    found = await ep.db.read(lambda tx: tx.execute("SELECT number FROM app_seen ORDER BY number").fetchall())
    return [number for (number,) in found]


def app_with(hook: object = None, **choices: object) -> App:
    app = App()
    if hook is not None:
        choices["on_commit"] = hook
    choices.setdefault("exactly_once", True)
    app.add(emit, STREAM, group=GROUP, retry=AT_ONCE, **choices)  # type: ignore[call-overload]
    app.setup(make_table)
    return app


@pytest.mark.parametrize("order", ["segment", "key", None])
async def test_a_round_publishes_outputs_progress_and_sql_together(order: str | None) -> None:
    batches: list[int] = []

    def hook(tx: AppTx, batch: Sequence[Event]) -> None:
        batches.append(len(batch))
        tx.executemany("INSERT INTO app_seen VALUES (?)", [(int(event.payload),) for event in batch])

    async with system() as ep:
        await write(ep, [f"k{n % 5}" for n in range(50)])
        await finish(ep, app_with(hook, order=order, round_events=20))
        assert await lag(ep) == 0
        assert await rows(ep) == list(range(50))
        found = await events(ep)
        assert sorted(int(each.payload) for each in found) == [*range(50), *[1000] * 50]
        if order is not None:
            for key in range(5):
                numbers = [int(each.payload) for each in found if each.key == f"k{key}"]
                assert numbers == list(range(key, 50, 5))
    assert batches == [20, 20, 10]


async def test_nothing_of_a_round_is_seen_before_all_of_it() -> None:
    gate = anyio.Event()
    begun: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload)
        begun.append(int(event.payload))
        if event.payload == b"2":
            await gate.wait()

    async with system() as ep:
        await write(ep, "abcd")
        app = App()
        app.add(handle, STREAM, group=GROUP, exactly_once=True)
        async with ep.run(app) as running:
            await until(lambda: len(begun) == 4)
            assert (await payloads(ep), await lag(ep)) == ([], 4)
            gate.set()
            await running.wait_idle()
            assert sorted(await payloads(ep)) == [0, 1, 2, 3]


async def test_failing_on_commit_stops_the_processor_and_nothing_of_its_round_remains() -> None:
    calls = 0

    def hook(tx: AppTx, batch: Sequence[Event]) -> None:
        nonlocal calls
        calls += 1
        tx.execute("INSERT INTO app_seen VALUES (1)")
        raise LookupError("no such customer")

    async with system() as ep:
        await write(ep, "abc")
        with pytest.raises(ProcessorFailed, match="on_commit failed 3 times: LookupError: no such customer"):
            async with ep.run(app_with(hook)) as running:
                await running.wait()
        assert (await payloads(ep), await rows(ep), await lag(ep)) == ([], [], 3)
        assert [each.number for each in await progress(ep)] == [0]
    assert calls == 3 * 2, "an attempt runs it twice: alone too, when it failed after a change"


async def test_a_hook_that_fails_at_first_publishes_its_round_once() -> None:
    calls = 0

    def hook(tx: AppTx, batch: Sequence[Event]) -> None:
        nonlocal calls
        calls += 1
        tx.executemany("INSERT INTO app_seen VALUES (?)", [(int(event.payload),) for event in batch])
        if calls < 4:
            raise LookupError("not yet")

    async with system() as ep:
        await write(ep, "abc")
        await finish(ep, app_with(hook))
        assert await rows(ep) == [0, 1, 2]
        assert sorted(await payloads(ep)) == [0, 1, 2, 1000, 1000, 1000]


@pytest.mark.parametrize(
    "sql", ["COMMIT", "PRAGMA user_version = 9", "DELETE FROM record", "ATTACH ':memory:' AS x"]
)
async def test_a_setup_may_touch_nothing_but_its_own_tables(sql: str) -> None:
    def setup(tx: AppTx) -> None:
        tx.execute(sql)

    app = app_with()
    app.setup(setup)
    async with system() as ep:
        with pytest.raises(NotSupported):
            async with ep.run(app):
                pass
        assert not await ep.db.read(
            lambda tx: tx.execute("SELECT 1 FROM sqlite_master WHERE name = 'app_seen'").fetchall()
        ), "all setups of an app are one transaction"


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT or Rollback INTO app_seen VALUES (1)",
        "CREATE TABLE app_other (number UNIQUE ON CONFLICT ROLLBACK)",
        "CREATE TRIGGER app_t BEFORE INSERT ON app_seen BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
    ],
)
async def test_sql_that_could_roll_back_what_others_write_is_refused(sql: str) -> None:
    def fill(tx: AppTx) -> None:
        make_table(tx)
        tx.execute("CREATE UNIQUE INDEX app_numbers ON app_seen (number)")
        tx.execute(
            "INSERT INTO app_seen SELECT rollback FROM (SELECT 1 AS rollback) WHERE 'or rollback' != ''"
        )

    async with system() as ep:
        await ep.change_tables(fill)
        with pytest.raises(NotSupported, match="ROLLBACK"):
            await ep.change_tables(lambda tx: tx.execute(sql))
        await write(ep, "a")
        assert await rows(ep) == [1]


async def test_rows_that_are_not_fetched_hinder_neither_the_commit_nor_the_error() -> None:
    insert = "INSERT INTO app_seen VALUES (1), (2), (3) RETURNING number"

    def fail(tx: AppTx) -> None:
        for (number,) in tx.execute(insert):
            raise LookupError(number)

    async with system() as ep:
        await ep.change_tables(make_table)
        with pytest.raises(LookupError, match="1"):
            await ep.change_tables(fail)
        assert await rows(ep) == []
        cursor = await ep.change_tables(lambda tx: tx.execute(insert))
        assert await rows(ep) == [1, 2, 3]
        with pytest.raises(ProgrammingError, match="closed cursor"):
            cursor.fetchall()


async def test_a_hook_may_touch_nothing_but_its_own_tables() -> None:
    def hook(tx: AppTx, batch: Sequence[Event]) -> None:
        tx.execute("DELETE FROM group_segment")

    async with system() as ep:
        await write(ep, "a")
        with pytest.raises(ProcessorFailed, match="NotSupported"):
            async with ep.run(app_with(hook)) as running:
                await running.wait()
        assert await lag(ep) == 1


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("there", [False, True])
async def test_emitting_to_an_unwritable_stream_stops_the_processor_without_loss(
    exactly_once: bool, there: bool
) -> None:
    async def handle(event: Event, context: Context) -> None:
        context.emit("s/late", event.payload, key=event.key)

    app = App()
    app.add(handle, STREAM, group=GROUP, exactly_once=exactly_once)
    async with system() as ep:
        await write(ep, "abc")
        if there:
            await (await ep.stream(OUT)).seal()
        app = App()
        app.add(emit if there else handle, STREAM, group=GROUP, exactly_once=exactly_once)
        with pytest.raises(ProcessorFailed, match="s/out is sealed" if there else "s/late"):
            async with ep.run(app) as running:
                await running.wait()
        assert await lag(ep) == 3, "an event whose emission failed is not finished"
        if not there:
            await ep.create_stream("s/late")
            await finish(ep, app)
            assert sorted(await payloads(ep, "s/late")) == [0, 1, 2]


async def expire_all(ep: Eventproc) -> None:
    """Take every reader of the group for dead."""

    def expire(tx: Tx) -> None:
        for member in describe_group(tx, GROUP).members:
            reader_offline(tx, GROUP, member.reader)

    await ep.db.write(expire)


@pytest.mark.acceptance(
    "D5", differs="a reader that was expired joins again with a new epoch when it continues"
)
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_reader_expired_during_its_calls_neither_moves_progress_nor_emits(
    exactly_once: bool,
) -> None:
    gate = anyio.Event()
    calls: list[tuple[int, bool]] = []

    async def handle(event: Event, context: Context) -> None:
        late = gate.is_set()
        calls.append((int(event.payload), late))
        context.emit(OUT, event.payload, key="late" if late else "early")
        if not late:
            with anyio.CancelScope(shield=True):  # it does not notice that it was cut off
                await gate.wait()

    app = App()
    app.add(handle, STREAM, group=GROUP, exactly_once=exactly_once)
    async with system() as ep:
        await write(ep, "abc")
        async with ep.run(app) as running:
            await until(lambda: len(calls) == 3)
            await expire_all(ep)
            gate.set()
            await running.wait_idle()
        found = await events(ep)
        assert sorted((int(each.payload), each.key) for each in found) == [(n, "late") for n in range(3)]
    assert sorted(calls) == [(n, late) for n in range(3) for late in (False, True)]


async def test_undurable_emissions_of_an_expired_reader_are_not_published() -> None:
    """The events were handled and waited for their commit, which came too late."""
    app = App()
    seen: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        seen.append(int(event.payload))
        if len(seen) == 3:
            await expire_all(ep)
        context.emit(OUT, event.payload, key=event.key)

    app.add(handle, STREAM, group=GROUP, exactly_once=True, concurrency=1)
    async with system() as ep:
        await write(ep, "abc")
        async with ep.run(app) as running:
            await running.wait_idle()
        assert sorted(await payloads(ep)) == [0, 1, 2]
    assert len(seen) > 3
