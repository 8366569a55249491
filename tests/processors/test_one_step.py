"""SQL and events of one transaction: in `on_commit`, `setup` and `change_tables`, all of it or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy

import eventproc
from eventproc import App, AppTx, Event, RetryPolicy
from eventproc.describe import SegmentEnd
from eventproc.errors import CallEnded, InvalidArgument, NotSupported
from eventproc.runtime import Eventproc
from tests.processors.support import GROUP, OUT, STREAM, finish, lag, payloads, system, write

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)
COUNT = "INSERT INTO app_count VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET count = app_count.count + 1"


def make_table(tx: AppTx) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS app_count (key TEXT PRIMARY KEY, count INTEGER)")


def count_and_tell(tx: AppTx, events: Sequence[Event]) -> None:
    """Count by key, and emit each new count."""
    for event in events:
        tx.execute(COUNT, (event.key,))
        (count,) = tx.execute("SELECT count FROM app_count WHERE key = ?", (event.key,)).fetchone()
        tx.emit(OUT, b"%d" % count, key=event.key)


async def counts(ep: Eventproc) -> dict[str, int]:
    def look(tx: AppTx) -> dict[str, int]:
        return dict(tx.execute("SELECT key, count FROM app_count ORDER BY key").fetchall())

    return await ep.change_tables(look)


async def handle(event: Event) -> None:
    pass


def counting(hook: object) -> App:
    app = App()
    app.add(handle, STREAM, group=GROUP, exactly_once=True, retry=AT_ONCE, on_commit=hook)  # type: ignore[call-overload]
    app.setup(make_table)
    return app


async def test_on_commit_counts_and_emits_the_counts_in_one_step() -> None:
    async with system() as ep:
        await write(ep, "aab")
        async with ep.run(counting(count_and_tell)) as running:
            await running.wait_idle()
            assert (await running.status())[0].emitted == 3
        assert (await counts(ep), sorted(await payloads(ep))) == ({"a": 2, "b": 1}, [1, 1, 2])


async def test_an_on_commit_that_fails_after_it_has_emitted_leaves_nothing_and_is_repeated() -> None:
    calls = 0

    def fail_at_first(tx: AppTx, events: Sequence[Event]) -> None:
        nonlocal calls
        calls += 1
        count_and_tell(tx, events)
        if calls < 4:
            raise LookupError("not yet")

    async with system() as ep:
        await write(ep, "aab")
        await finish(ep, counting(fail_at_first))
        assert (await counts(ep), sorted(await payloads(ep))) == ({"a": 2, "b": 1}, [1, 1, 2])


async def test_an_on_commit_that_emits_to_a_missing_stream_stops_its_processor_by_name() -> None:
    def emit_nowhere(tx: AppTx, events: Sequence[Event]) -> None:
        count_and_tell(tx, events)
        tx.emit("s/nowhere", b"x")

    async with system() as ep:
        await write(ep, "a")
        with pytest.raises(eventproc.ProcessorFailed, match="s/nowhere"):
            async with ep.run(counting(emit_nowhere)) as running:
                await running.wait()
        assert (await counts(ep), await payloads(ep), await lag(ep)) == ({}, [], 1)


async def test_a_projection_and_a_worker_emit_from_their_transactions() -> None:
    app = App()

    @app.projection(STREAM, group="s/model")
    def model(tx: AppTx, events: Sequence[Event]) -> None:
        for event in events:
            tx.emit(OUT, b"1", key=event.key)

    @app.worker(STREAM, share_group="s/work", on_commit=lambda tx, _: tx.emit(OUT, b"2"))
    async def work(event: Event) -> None:
        pass

    async with system() as ep:
        await write(ep, "a")
        async with ep.run(app) as running:
            await running.wait_idle()
        assert sorted(await payloads(ep)) == [1, 2]


async def test_tables_are_changed_anywhere_all_or_nothing() -> None:
    def begin(tx: AppTx) -> int:
        tx.emit(OUT, b"7", key="a")
        tx.execute(COUNT, ("a",))
        return tx.now_ms

    def fail(tx: AppTx) -> None:
        begin(tx)
        raise LookupError("after it")

    def go_wrong(tx: AppTx) -> None:
        tx.execute("DELETE FROM job")

    async def wait(tx: AppTx) -> None:
        raise AssertionError("nobody awaits it")

    async with system() as ep:
        await ep.change_tables(make_table)
        assert await ep.change_tables(begin) > 0
        with pytest.raises(LookupError, match="after it"):
            await ep.change_tables(fail)
        with pytest.raises(NotSupported):
            await ep.change_tables(go_wrong)
        with pytest.raises(InvalidArgument, match="plain function"):
            await ep.change_tables(wait)  # type: ignore[unused-coroutine]
        assert (await counts(ep), await payloads(ep)) == ({"a": 1}, [7])


async def test_nothing_is_emitted_or_changed_after_the_transaction() -> None:
    kept: list[AppTx] = []
    async with system() as ep:
        await ep.change_tables(kept.append)
        with pytest.raises(CallEnded):
            kept[0].emit(OUT, b"late")
        for late in (kept[0].execute, partial(kept[0].executemany, parameters=[()])):
            with pytest.raises(CallEnded):
                late("DELETE FROM record")
        assert await payloads(ep) == []


async def test_an_app_may_consist_of_setup_alone() -> None:
    app = App()

    @app.setup
    def begin(tx: AppTx) -> None:
        make_table(tx)
        tx.emit(OUT, b"1", id="the first start")

    async with system() as ep:
        for _ in range(2):
            async with ep.run(app) as running:
                await running.wait_idle()
                assert await running.status() == []
        assert (await counts(ep), await payloads(ep)) == ({}, [1])
        with pytest.raises(InvalidArgument, match="it is empty"):
            await ep.run(App())


def test_the_blocking_twin_changes_tables(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "data") as ep:
        ep.change_tables(make_table)
        assert ep.change_tables(lambda tx: tx.execute("SELECT count(*) FROM app_count").fetchone()[0]) == 0


async def test_an_app_learns_that_a_segment_ended_in_the_transaction_that_opens_the_next() -> None:
    app, calls = App(), 0

    @app.setup
    def make_marks(tx: AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_marks (segment TEXT PRIMARY KEY, events INTEGER)")

    def end(tx: AppTx, ended: SegmentEnd) -> None:
        nonlocal calls
        calls += 1
        assert ended.stream == STREAM
        (events,) = tx.execute(
            "SELECT events FROM app_marks WHERE segment = ?", (str(ended.segment),)
        ).fetchone()
        for each in ended.successors:
            tx.execute(
                "INSERT INTO app_marks VALUES (?, ?) ON CONFLICT (segment) DO UPDATE SET events = events + ?",
                (str(each), events, events),
            )
        tx.execute("DELETE FROM app_marks WHERE segment = ?", (str(ended.segment),))
        tx.emit(OUT, b"1")
        if calls == 1:
            raise LookupError("not yet")

    def note(tx: AppTx, events: Sequence[Event]) -> None:
        for event in events:
            tx.execute(
                "INSERT INTO app_marks VALUES (?, 1) ON CONFLICT (segment) DO UPDATE SET events = events + 1",
                (str(event.segment),),
            )

    app.projection(STREAM, group=GROUP, on_segment_end=end, retry=AT_ONCE)(note)
    async with system() as ep:
        stream = await ep.stream(STREAM)
        async with ep.run(app) as running:
            await write(ep, "ab")
            await running.wait_idle()
            await stream.split(0)
            await write(ep, "abcdefgh")
            await running.wait_idle()
            await stream.merge(*[each.id for each in await stream.segments()])
            await write(ep, "a")
            await running.wait_idle()
        assert len(await payloads(ep)) == 3
        (last,) = [str(each.id) for each in await stream.segments()]
        assert await ep.query("SELECT segment, events FROM app_marks") == [(last, 2 + 2 + 8 + 1)]


def test_the_end_of_a_segment_is_not_told_to_a_projection_into_another_database() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with pytest.raises(InvalidArgument, match="on_segment_end"):
        App().projection(STREAM, database=engine, on_segment_end=print)(print)
