"""`wait_idle` returns after a change, not by polling, and costs little meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

import eventproc
from eventproc.errors import Closed
from eventproc.groups import GroupDescription, describe_group
from eventproc.processors import App, Context, Running, run as running_app
from eventproc.processors.engine.commit import ProgressCommit, SegmentCommitter
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.segments import Event
from eventproc.testing import VirtualClock
from tests.processors.support import GROUP, STREAM, write
from tests.support.virtual_time import in_virtual_time

MINUTE_S = 60
LOOKS_MAX = 2 * MINUTE_S
"""Looks in a minute in which nothing changes."""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups that were looked at, in order."""
    found: list[str] = []

    def look(tx: Tx, name: str) -> GroupDescription:
        found.append(name)
        assert len(found) <= 10 * LOOKS_MAX, "it looks without a pause"
        return describe_group(tx, name)

    monkeypatch.setattr(running_app, "describe_any", look)
    return found


@asynccontextmanager
async def stuck_app(gate: anyio.Event) -> AsyncIterator[tuple[Eventproc, Running]]:
    """EventRun an app whose handler waits at the gate, on a stream of one event."""

    async def handle(event: Event) -> None:
        await gate.wait()

    app = App()
    app.add(handle, STREAM, group=GROUP)
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        await write(ep, "a")
        async with ep.run(app, grace_ms=0) as started:
            await anyio.sleep(1)
            yield ep, started


@in_virtual_time
async def test_while_nothing_changes_hardly_anybody_looks(looks: list[str]) -> None:
    async with stuck_app(anyio.Event()) as (_, started):
        before = len(looks)
        with pytest.raises(TimeoutError, match="the app has work left after 60000 ms"):
            await started.wait_idle(timeout_ms=MINUTE_S * 1000)
        assert len(looks) - before <= LOOKS_MAX


@in_virtual_time
async def test_the_last_commit_is_seen_at_once(looks: list[str]) -> None:
    gate = anyio.Event()
    async with stuck_app(gate) as (ep, started), anyio.create_task_group() as tasks:
        clock = ep.db.clock

        async def wait() -> None:
            await started.wait_idle()
            (status,) = await started.status()
            assert status.last_commit_ms is not None
            assert clock.wall_ms() - status.last_commit_ms <= running_app.IDLE_LOOK_MS

        tasks.start_soon(wait)
        await anyio.sleep(10.5)
        gate.set()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were finished at each commit of progress, in order."""
    found: list[int] = []
    publish = SegmentCommitter.publish

    def count(self: SegmentCommitter, tx: Tx, commit: ProgressCommit) -> None:
        publish(self, tx, commit)
        found.append(commit.finished)

    monkeypatch.setattr(SegmentCommitter, "publish", count)
    return found


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("batch", [None, 10])
@pytest.mark.parametrize("keys", ["a", "abc" * 400], ids=["one event", "1200 events"])
@in_virtual_time
async def test_it_returns_a_few_ms_after_the_last_event_was_handled(
    keys: str, batch: int | None, exactly_once: bool
) -> None:
    async def handle(_: object) -> None:
        await anyio.lowlevel.checkpoint()

    app = App()
    app.add(handle, STREAM, group=GROUP, batch=batch, exactly_once=exactly_once)
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        async with ep.run(app) as running:
            for _ in range(3):
                await anyio.sleep(10)
                await write(ep, keys)
                began = anyio.current_time()
                await running.wait_idle()
                assert anyio.current_time() - began <= 0.005


@in_virtual_time
async def test_it_waits_for_what_a_later_processor_emits_to_an_earlier_one() -> None:
    app, handled = App(), list[bytes]()

    @app.processor("s/out", group="last")
    async def last(event: Event) -> None:
        await anyio.sleep(1)
        handled.append(event.payload)

    @app.processor(STREAM, group="first")
    async def first(event: Event, context: Context) -> None:
        for number in range(3):
            context.emit("s/out", b"%d" % number, key="a")

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        for name in (STREAM, "s/out"):
            await ep.create_stream(name)
        await write(ep, "a")
        async with ep.run(app) as running:
            await running.wait_idle()
            assert handled == [b"0", b"1", b"2"]


@in_virtual_time
async def test_progress_is_not_committed_more_often_while_nobody_waits(commits: list[int]) -> None:
    async def handle(_: Event) -> None:
        await anyio.lowlevel.checkpoint()

    app = App()
    app.add(handle, STREAM, group=GROUP)
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        async with ep.run(app) as running:
            await running.wait_idle()
            for _ in range(50):  # 5 s, an event each 100 ms
                await write(ep, "a")
                await anyio.sleep(0.1)
            assert len(commits) <= 5
            await running.wait_idle()
    assert commits[-1] == 50
    assert len(commits) <= 6


@in_virtual_time
async def test_leaving_an_app_that_was_stopped_before_it_began_takes_no_time() -> None:
    async def handle(_: Event) -> None: ...

    app = App()
    app.add(handle, STREAM, group=GROUP)
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        began = anyio.current_time()
        async with ep.run(app) as running:
            await running.stop()
        assert anyio.current_time() - began <= 0.005


@in_virtual_time
async def test_after_a_stop_it_waits_for_its_time_and_no_longer(looks: list[str]) -> None:
    async with stuck_app(anyio.Event()) as (_, started):
        await started.stop(grace_ms=0)
        started._tasks.cancel()
        await started.wait()
        with pytest.raises(TimeoutError):
            await started.wait_idle(timeout_ms=MINUTE_S * 1000)


@in_virtual_time
async def test_after_a_stop_it_ends_when_the_app_is_closed() -> None:
    async with stuck_app(anyio.Event()) as (_, started):
        await started.stop(grace_ms=0)
        started._tasks.cancel()
        await started.wait()

        async def close() -> None:
            await anyio.sleep(1)
            await started.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            with pytest.raises(Closed):
                await started.wait_idle(timeout_ms=MINUTE_S * 1000)
