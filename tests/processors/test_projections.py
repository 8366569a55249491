"""Projections: a function of rounds without a handler, into the store or into a database of the user, exactly once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from eventproc import App, AppTx, Event, ProcessorFailed, RetryPolicy
from eventproc.errors import InvalidArgument
from eventproc.runtime import Eventproc
from tests.processors.read_model import app_of, applied, apply, database, finish
from tests.processors.support import GROUP, STREAM, lag, system, write


@pytest.fixture
def engine(tmp_path: Path) -> sa.Engine:
    """A database of the user, with a table for what was applied."""
    return database(f"sqlite:///{tmp_path}/user.db")


async def test_a_function_of_rounds_needs_no_handler() -> None:
    batches: list[list[str]] = []
    app = App()

    @app.setup
    def make_table(tx: AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_total (key TEXT PRIMARY KEY, count INTEGER)")

    @app.projection(STREAM, group=GROUP, payload=str, round_events=3)
    def count(tx: AppTx, events: Sequence[Event[str]]) -> None:
        batches.append([event.payload for event in events])
        tx.executemany(
            "INSERT INTO app_total VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET count = count + 1",
            [(event.key,) for event in events],
        )

    async with system() as ep:
        await write(ep, "abcab")
        await finish(ep, app)
        found = await ep.db.read(
            lambda tx: tx.execute("SELECT key, count FROM app_total ORDER BY key").fetchall()
        )
        assert [(key, count) for key, count in found] == [("a", 2), ("b", 2), ("c", 1)]
    assert batches == [["0", "1", "2"], ["3", "4"]], "in the order of the segment"
    assert app.processors[0].options.name == "count"


async def test_rounds_are_applied_once_in_a_database_of_the_user(engine: sa.Engine) -> None:
    batches: list[list[int]] = []

    def note(tx: sa.Connection, events: Sequence[Event]) -> None:
        batches.append([int(event.payload) for event in events])
        apply(tx, events)

    async with system() as ep:
        await write(ep, "abcab")
        await finish(ep, app_of(engine, note, round_events=2))
        assert applied(engine) == list(range(5))
        await write(ep, "ab")
        await finish(ep, app_of(engine, note))
        assert applied(engine) == [0, 0, 1, 1, 2, 3, 4]
        assert await lag(ep) == 0
    assert batches == [[0, 1], [2, 3], [4], [0, 1]]


async def test_a_commit_whose_answer_is_lost_is_not_applied_again(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = engine.dialect.do_commit
    lost = 0

    def commit_and_lose(connection: Any) -> None:
        nonlocal lost
        commit(connection)
        if ep_runs and lost < 2:
            lost += 1
            raise ConnectionError("the answer was lost")

    ep_runs = False
    calls = 0

    def counting(tx: sa.Connection, events: Sequence[Event]) -> None:
        nonlocal calls, ep_runs
        calls, ep_runs = calls + 1, True
        apply(tx, events)

    monkeypatch.setattr(engine.dialect, "do_commit", commit_and_lose)
    async with system() as ep:
        await write(ep, "abc")
        await finish(ep, app_of(engine, counting))
        assert (applied(engine), calls, lost) == ([0, 1, 2], 1, 2)
        assert await lag(ep) == 0


async def test_a_failing_function_is_retried_and_then_stops_its_processor(engine: sa.Engine) -> None:
    calls = 0

    def fail(tx: sa.Connection, events: Sequence[Event]) -> None:
        nonlocal calls
        calls += 1
        apply(tx, events)
        if calls <= 4:
            raise LookupError("no such customer")

    async with system() as ep:
        await write(ep, "abc")
        with pytest.raises(ProcessorFailed, match="on_commit failed 3 times: LookupError: no such customer"):
            async with ep.run(app_of(engine, fail)) as running:
                await running.wait()
        assert (applied(engine), await lag(ep)) == ([], 3)
        await finish(ep, app_of(engine, fail))
        assert (applied(engine), calls) == ([0, 1, 2], 5)


async def test_a_cancelled_round_goes_on_in_its_thread_and_is_applied_once(engine: sa.Engine) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(tx: sa.Connection, events: Sequence[Event]) -> None:
        apply(tx, events)
        has_begun.set()
        may_end.wait(10)

    async with system() as ep:
        await write(ep, "abc")
        async with ep.run(app_of(engine, wait)) as running:
            await anyio.to_thread.run_sync(has_begun.wait)
            running.cancel_now()
        assert (applied(engine), await lag(ep)) == ([], 3)
        async with ep.run(app_of(engine)) as running:
            may_end.set()  # the take-over waits for the lock that the transaction holds
            await running.wait_idle()
        assert applied(engine) == [0, 1, 2]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_a_function_that_ends_its_transaction_is_refused(engine: sa.Engine, ends: str) -> None:
    def end(tx: sa.Connection, events: Sequence[Event]) -> None:
        getattr(tx, ends)()

    async with system() as ep:
        await write(ep, "abc")
        if ends == "commit":
            await finish(ep, app_of(engine, end))
            return
        with pytest.raises(ProcessorFailed, match="must not commit or roll back"):
            async with ep.run(app_of(engine, end)) as running:
                await running.wait()


async def test_an_engine_without_transactions_is_refused(tmp_path: Path) -> None:
    database(f"sqlite:///{tmp_path}/user.db").dispose()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/user.db", isolation_level="AUTOCOMMIT")
    async with system() as ep:
        await write(ep, "abc")
        with pytest.raises(ProcessorFailed, match="give an engine without AUTOCOMMIT"):
            async with ep.run(app_of(engine)) as running:
                await running.wait()
        assert applied(engine) == []


async def test_a_database_that_is_away_is_tried_again(engine: sa.Engine) -> None:
    tries = 0

    def connect(*_: object) -> None:
        nonlocal tries
        tries += 1
        if tries < 8:
            raise ConnectionError("away")

    event.listen(engine, "do_connect", connect)
    engine.dispose()
    async with system() as ep:
        await write(ep, "abc")
        await finish(ep, app_of(engine, retry=RetryPolicy(attempts=None, wait_ms=0, jitter_ms=0)))
    assert applied(engine) == [0, 1, 2]


@pytest.mark.parametrize("created_again", [False, True])
async def test_a_group_that_is_reset_or_created_again_reads_everything_again(
    engine: sa.Engine, created_again: bool
) -> None:
    async with system() as ep:
        await write(ep, "abc")
        await finish(ep, app_of(engine))
        group = await ep.group(GROUP)
        if created_again:
            await group.delete()
        else:
            await group.reset()
        with engine.begin() as tx:
            tx.execute(sa.text("DELETE FROM applied"))
        async with ep.run(app_of(engine)) as running:
            await running.wait_idle()
        assert applied(engine) == [0, 1, 2]


async def test_a_row_that_others_changed_stops_the_processor_with_a_remedy(engine: sa.Engine) -> None:
    async def handle_after_the_row_is_gone(ep: Eventproc) -> None:
        async with ep.run(app_of(engine)) as running:
            await running.wait_idle()
            with engine.begin() as tx:
                tx.execute(sa.text("DELETE FROM eventproc_progress"))
            await write(ep, "d")
            await running.wait()

    async with system() as ep:
        await write(ep, "abc")
        with pytest.raises(ProcessorFailed, match="empty the read model and the table, and reset the group"):
            await handle_after_the_row_is_gone(ep)
        assert applied(engine) == [0, 1, 2]


async def test_rows_of_segments_that_were_merged_are_deleted(engine: sa.Engine) -> None:
    async with system() as ep:
        stream = await ep.stream(STREAM)
        await write(ep, [f"k{n}" for n in range(10)])
        async with ep.run(app_of(engine)) as running:
            left, right = await stream.split(0)
            await write(ep, [f"k{n}" for n in range(10)])
            await running.wait_idle()
            await stream.merge(left, right)
            await write(ep, [f"k{n}" for n in range(10)])
            await running.wait_idle()
        await write(ep, "a")
        await finish(ep, app_of(engine))
        assert applied(engine) == sorted([*list(range(10)) * 3, 0])
        with engine.connect() as tx:
            assert tx.execute(sa.text("SELECT count(*) FROM eventproc_progress")).scalar() == 1


@pytest.mark.parametrize("wrong", ["sqlite:///x.db", 5, object()])
def test_a_database_is_an_engine(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"database.*SQLAlchemy engine"):
        app_of(wrong)


def test_what_is_no_projection_is_refused(engine: sa.Engine) -> None:
    async def is_async(tx: AppTx, events: Sequence[Event]) -> None:
        pass

    def of_one(tx: AppTx) -> None:
        pass

    def of_text(tx: AppTx, events: Sequence[Event[str]]) -> None:
        pass

    app = App()
    with pytest.raises(InvalidArgument, match=r"projection.*plain function"):
        app.projection(STREAM)(is_async)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"projection.*a transaction and the list of events"):
        app.projection(STREAM)(of_one)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"projection.*is annotated"):
        app.projection(STREAM, payload=int)(of_text)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"name.*the function has none"):
        app.projection(STREAM, database=engine)(partial(apply))
    assert app.processors == ()
