"""Commits of other processes: notifications, polling as the fallback, and the probes that follow."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from eventproc.store.database import Database, DatabaseTimeouts, Tx, Watch
from eventproc.store.database.wake_ups import CommitNotifier
from eventproc.store.postgres.address import ServerAddress
from eventproc.store.postgres.server_database import start_server_database
from tests.database.support import MIGRATIONS, World, insert, names, open_world
from tests.support.child_process import ChildProcess
from tests.support.postgres import running_server

WRITER = """
    import asyncio, sys
    from pathlib import Path
    from tests.database.support import MIGRATIONS, insert, open_database

    async def main():
        async with open_database(Path(sys.argv[1]), migrations=MIGRATIONS) as db:
            print("open", flush=True)
            for line in sys.stdin:
                await db.write(insert(line.strip()))
                print("written", flush=True)

    asyncio.run(main())
"""


@pytest.fixture
def poll_ms() -> int:
    return DatabaseTimeouts().poll_ms


@pytest.fixture
async def world(tmp_path: Path, poll_ms: int) -> AsyncIterator[World]:
    async with open_world("file", tmp_path / "store", timeouts=DatabaseTimeouts(poll_ms=poll_ms)) as world:
        yield world


@pytest.fixture
async def other(tmp_path: Path, world: World) -> AsyncIterator[World]:
    async with open_world("file", tmp_path / "store") as other:
        yield other


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that nothing signals."""
    while not holds():  # noqa: ASYNC110
        await anyio.sleep(0.05)


def has(name: str) -> Watch:
    """Return a watch with its own channel for each row."""
    return Watch(name, lambda tx: name in names(tx))


@pytest.mark.subprocess
async def test_a_commit_of_another_process_wakes_a_waiter(world: World) -> None:
    with (
        ChildProcess.running(WRITER, world.db.path) as child,
        world.db.subscribe([has("a")]) as subscription,
        anyio.fail_after(60),
    ):
        assert child.hear() == "open"
        child.say("a")
        while await world.names() != ["a"]:  # the poll may have run the probes before, for the first time
            assert await subscription.wait() == {"a"}


async def test_only_changed_channels_are_woken_after_the_first_read(world: World, other: World) -> None:
    with world.db.subscribe([has("a"), has("b")]) as subscription, anyio.fail_after(60):
        await other.db.write(insert("first"))
        assert await subscription.wait() == {"a", "b"}  # their previous values are unknown
        await other.db.write(insert("b"))
        assert await subscription.wait() == {"b"}


@pytest.mark.parametrize("poll_ms", [5])
async def test_polling_finds_a_commit_whose_notification_was_lost(
    world: World, other: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitNotifier, "notify", lambda notifier: None)
    with world.db.subscribe([has("a")]) as subscription, anyio.fail_after(60):
        await other.db.write(insert("a"))
        assert await subscription.wait() == {"a"}


async def test_all_watches_are_asked_in_one_snapshot(world: World, other: World) -> None:
    transactions: list[Tx] = []

    def probe(tx: Tx) -> int:
        transactions.append(tx)
        return len(transactions)

    watches = [Watch(channel, probe) for channel in range(5)]
    with world.db.subscribe(watches) as subscription, anyio.fail_after(60):
        await other.db.write(insert("a"))
        assert await subscription.wait() == {0, 1, 2, 3, 4}
    assert len({id(tx) for tx in transactions[:5]}) == 1


async def test_a_failing_probe_wakes_its_own_waiter_and_affects_no_other(
    world: World, other: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(tx: Tx) -> int:
        raise ValueError("no such table")

    with world.db.subscribe([Watch("broken", fail), has("a")]) as subscription, anyio.fail_after(60):
        await other.db.write(insert("a"))
        assert await subscription.wait() == {"broken", "a"}
    assert "the probe of 'broken' failed" in caplog.text


async def test_a_probe_may_answer_none(world: World, other: World) -> None:
    answers = iter([None, 1])
    with world.db.subscribe([Watch("a", lambda tx: next(answers))]) as subscription, anyio.fail_after(60):
        await other.db.write(insert("a"))
        assert await subscription.wait() == {"a"}
        await other.db.write(insert("b"))
        assert await subscription.wait() == {"a"}


@pytest.mark.parametrize("poll_ms", [1_000_000])
async def test_notifications_during_a_read_lead_to_one_more_read(world: World, other: World) -> None:
    entered, leave = threading.Event(), threading.Event()
    asked: list[list[str]] = []

    def probe(tx: Tx) -> tuple[str, ...]:
        asked.append(names(tx))
        entered.set()
        assert leave.wait(60)
        return tuple(asked[-1])

    with world.db.subscribe([Watch("items", probe)]) as subscription, anyio.fail_after(60):
        await other.db.write(insert("first"))
        await anyio.to_thread.run_sync(entered.wait)
        for number in range(10):
            await other.db.write(insert(f"{number}"))
        leave.set()
        while len(asked[-1]) < 11:
            assert await subscription.wait() == {"items"}
    assert len(asked) < 5


@pytest.mark.subprocess
async def test_commit_is_noticed_although_the_first_looks_for_what_it_changed_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("eventproc.store.postgres.connection.WRITE_WAIT_MS_MAX", 100)
    began, is_gone = threading.Event(), threading.Event()

    def look(tx: Tx) -> tuple[str, ...]:
        began.set()
        assert is_gone.wait(60)
        return tuple(names(tx))

    with running_server() as server:
        address = ServerAddress.parse(server.url)
        async with AsyncExitStack() as stack:

            async def opened() -> Database:
                db = await start_server_database(address, migrations=MIGRATIONS)
                stack.push_async_callback(db.close)
                return db

            one, two = await opened(), await opened()
            with two.subscribe([Watch("items", look)]) as changes, anyio.fail_after(60):
                await one.write(insert("a"))
                await anyio.to_thread.run_sync(began.wait)
                three = await opened()
                await until(lambda: three.instance_id in two.peers.live())  # it counts the commit, too
                await anyio.to_thread.run_sync(server.kill)
                is_gone.set()
                await until(lambda: caplog.text.count("failed to read what other processes changed") > 1)
                await anyio.to_thread.run_sync(server.start)
                assert await changes.wait() == {"items"}
