"""Four processes read one group while its stream scales and some of them are killed or stopped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import anyio
import pytest

import eventproc
from eventproc import Group, Stream
from eventproc.groups import watch_group
from eventproc.runtime import Eventproc
from eventproc.testing import check
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.child_process import PATIENCE_S, ChildProcess

pytestmark = pytest.mark.subprocess

WORKER = Path(__file__).parent / "worker.py"
KEYS = 20
EVENTS = 2_000


class Arena:
    """The directory, its group, and the processes that read it."""

    def __init__(self, base: Path, ep: Eventproc, stream: Stream, group: Group) -> None:
        self.base = base
        self.ep = ep
        self.stream = stream
        self.group = group
        self.written = 0

    def start(self, stack: ExitStack, reader: str) -> ChildProcess:
        worker = stack.enter_context(ChildProcess.script(WORKER, self.base, reader))
        assert worker.hear() == "online"
        return worker

    def delivered(self) -> list[tuple[str, str, int]]:
        path = self.base / "delivered"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(reader, key, int(number)) for reader, key, number in map(str.split, lines)]

    async def write(self, count: int) -> None:
        async with self.stream.writer() as writer:
            numbers = range(self.written, self.written + count)
            await writer.write_many((b"%d" % (number // KEYS), str(number % KEYS)) for number in numbers)
        self.written += count

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until `condition` holds; it is asked when the group changed, and now and then."""
        with anyio.fail_after(PATIENCE_S), self.ep.db.subscribe([watch_group("s/g")]) as changes:
            while not await condition():
                await changes.wait(50)

    async def online(self) -> set[str]:
        return {member.reader for member in (await self.group.describe()).members}

    async def has_read(self, count: int) -> None:
        async def enough() -> bool:
            return len(self.delivered()) >= count

        await self.until(enough)


async def test_kills_and_suspensions_of_readers_lose_no_event_and_no_order(
    tmp_path: Path,
) -> None:
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        group = await ep.create_group("g", ["s/t"], patience_ms=1_000)
        arena = Arena(tmp_path, ep, stream, group)
        with ExitStack() as stack:
            workers = {name: arena.start(stack, name) for name in ("a", "b", "c", "d")}
            await arena.write(EVENTS // 4)
            await arena.has_read(50)
            await stream.split(0, 8)
            await arena.write(EVENTS // 4)
            await arena.has_read(EVENTS // 4 + 100)
            workers["a"].kill()
            workers["b"].stop_outside(tmp_path / "store" / "write.lock")

            async def are_expired() -> bool:
                return await arena.online() == {"c", "d"}

            await arena.until(are_expired)
            ids = [segment.id for segment in await stream.segments()]
            await stream.scale(seal=ids, ranges=[(0.0, 0.5), (0.5, 1.0)])
            await arena.write(EVENTS // 4)
            workers["b"].resume()
            assert workers["b"].hear() == "fenced"
            await arena.has_read(EVENTS // 2 + 100)
            workers["c"].kill()
            await arena.write(EVENTS // 4)
            await stream.seal()
            for name in "b", "d":
                while (heard := workers[name].hear()) != "ended":
                    assert heard == "fenced"  # on a busy machine any reader may exceed the patience
        assert (await group.describe()).segments == ()
        await check(ep.db)
    _check_deliveries(arena.delivered())


def _check_deliveries(delivered: list[tuple[str, str, int]]) -> None:
    newest: dict[str, int] = defaultdict(lambda: -1)
    for reader, key, number in delivered:
        assert number <= newest[key] + 1, f"{reader}: {number} of {key} came after {newest[key]}"
        newest[key] = max(newest[key], number)
    assert newest == {str(key): EVENTS // KEYS - 1 for key in range(KEYS)}


async def test_a_reader_that_joins_gets_its_first_event_within_half_a_second(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(4))
        group = await ep.create_group("g", ["s/t"])
        arena = Arena(tmp_path, ep, stream, group)
        await arena.write(EVENTS)
        with ExitStack() as stack:
            arena.start(stack, "a")
            await arena.has_read(20)
            began = monotonic()
            async with group.reader("b") as reader:
                await anext(aiter(reader))
                took_ms = (monotonic() - began) * 1000
        assert took_ms < 500, f"the first event came after {took_ms:.0f} ms"
