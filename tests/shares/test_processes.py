"""Four processes consume one share group while some of them are killed, and one hangs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import anyio
import pytest

import eventproc
from eventproc.store.groups import watch_share
from eventproc.testing import check
from tests.shares.support import poll_now, write_numbers
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.child_process import PATIENCE_S, ChildProcess

pytestmark = pytest.mark.subprocess

WORKER = Path(__file__).parent / "worker.py"
EVENTS = 1_200
LOCK_MS = 2_000


def lines_of(base: Path) -> list[list[str]]:
    path = base / "delivered"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def check_deliveries(lines: list[list[str]]) -> None:
    accepted: dict[str, int] = {}
    delivered: dict[str, int] = {}
    for what, consumer, event, count in lines:
        if what == "accepted":
            assert event not in accepted, f"{event} was accepted twice, the second time by {consumer}"
            assert int(count) == delivered[event]
            accepted[event] = int(count)
        else:
            # A consumer that hung notes its delivery later than the one that followed it.
            assert event not in accepted or int(count) < accepted[event], f"{event} came to {consumer} again"
            delivered[event] = max(delivered.get(event, 0), int(count))
    assert len(delivered) == EVENTS


async def test_killed_and_hung_consumers_lose_no_event(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        group = await ep.create_share_group("work", ["s/t"], lock_ms=LOCK_MS, deliveries_max=10)

        async def has_delivered(count: int) -> None:
            with anyio.fail_after(PATIENCE_S), ep.db.subscribe([watch_share("s/work")]) as changes:
                while len({event for _, _, event, _ in lines_of(tmp_path)}) < count:
                    await changes.wait(50)

        with ExitStack() as stack:
            workers: dict[str, ChildProcess] = {}
            for name in "a", "b", "c", "d":
                worker = workers[name] = stack.enter_context(ChildProcess.script(WORKER, tmp_path, name))
                assert worker.hear() == "online"
            await write_numbers(stream, range(EVENTS // 2))
            await has_delivered(EVENTS // 8)
            workers["a"].kill()
            (tmp_path / "hang-b").touch()
            while (heard := workers["b"].hear()) != "hangs":
                assert heard == "lost"
            await stream.split(0, 2)
            await write_numbers(stream, range(EVENTS // 2, EVENTS))
            await has_delivered(EVENTS // 2)
            workers["c"].kill()
            await stream.seal()
            while (heard := workers["d"].hear()) != "ended":
                assert heard == "lost"  # on a busy machine any lock may expire
            workers["b"].say("go on")
            while (heard := workers["b"].hear()) != "ended":
                assert heard == "lost"
        assert (await group.describe()).events == 0
        assert await ep.dead_letters("s/work").list() == []
        await check(ep.db)
    check_deliveries(lines_of(tmp_path))


async def test_the_events_of_a_killed_consumer_are_redelivered_before_their_locks_expire(
    tmp_path: Path,
) -> None:
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        group = await ep.create_share_group("work", ["s/t"], lock_ms=600_000)
        with ExitStack() as stack:
            worker = stack.enter_context(ChildProcess.script(WORKER, tmp_path, "a"))
            assert worker.hear() == "online"
            await write_numbers(stream, range(20))
            with anyio.fail_after(PATIENCE_S), ep.db.subscribe([watch_share("s/work")]) as changes:
                while not lines_of(tmp_path):
                    await changes.wait(20)
            worker.kill()
            began = monotonic()
            async with group.consumer("b") as consumer:
                events = await poll_now(consumer)
                assert all(event.deliveries <= 2 for event in events)
                await consumer.accept(events)
            assert (monotonic() - began) * 1000 < 5_000
            left = {event for what, _, event, _ in lines_of(tmp_path) if what == "accepted"}
            assert len(events) + len(left) >= 20
        assert (await group.describe()).events == 0
