"""The database file after its events are gone: it becomes smaller, in the background or at once, and writers go on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import anyio
import attrs
import pytest

import eventproc
from eventproc.errors import NotSupported
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.faults import CHECKPOINT, WRITE_COMMITTED
from eventproc.store.segments.free_pages import FREE_BYTES_MAX, FREE_BYTES_MIN, surplus_pages
from eventproc.testing import CrashDirectory, FaultPlan, VirtualClock, kill_now
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.child_process import PATIENCE_S, run
from tests.support.reading import payloads_of
from tests.support.virtual_time import virtual_time

PAGE = 16_384
MIB = 2**20


@pytest.mark.parametrize(
    ("used", "free", "expected"),
    [
        (1 * MIB, 0, 0),
        (1 * MIB, FREE_BYTES_MIN, 0),
        (1 * MIB, 200 * MIB, 200 * MIB - FREE_BYTES_MIN),
        (200 * MIB, 40 * MIB, 0),
        (200 * MIB, 60 * MIB, 20 * MIB),
        (2_000 * MIB, 100 * MIB, 100 * MIB - FREE_BYTES_MAX),
    ],
)
def test_a_fifth_of_the_used_pages_stays_free_between_two_bounds(used: int, free: int, expected: int) -> None:
    assert surplus_pages((used + free) // PAGE, free // PAGE, PAGE) == expected // PAGE


@pytest.mark.parametrize("deleted", [False, True])
async def test_the_file_shrinks_after_a_truncation_or_a_deletion_while_writers_go_on(
    tmp_path: Path, deleted: bool
) -> None:
    async with eventproc.open(tmp_path / "home", durability="os") as ep:
        await ep.create_scope("s")
        stream, other = await ep.create_stream("s/big"), await ep.create_stream("s/other")
        async with stream.writer() as writer:
            for _ in range(60):
                await writer.write_many((b"x" * 100_000, "k") for _ in range(10))
        file = tmp_path / "home" / "eventproc.db"
        assert file.stat().st_size > 50 * MIB
        await stream.truncate(await stream.tail())
        if deleted:
            await stream.seal()
            await stream.delete()
        written = 0
        async with other.writer() as writer:
            with anyio.fail_after(PATIENCE_S):
                while file.stat().st_size > FREE_BYTES_MIN + 8 * MIB:
                    await writer.write(b"%d" % written)
                    written += 1
        seen = [int(payload) for payload in await payloads_of(other)]
        assert seen == list(range(written))


async def write_bytes(ep: Eventproc, name: str, mib: int) -> eventproc.Stream:
    stream = await ep.create_stream(name)
    async with stream.writer() as writer:
        for _ in range(mib):
            await writer.write_many((b"x" * 104_858, "k") for _ in range(10))
    return stream


async def fill(ep: Eventproc, mib: int = 8) -> eventproc.Stream:
    """Write events that are kept behind those of another stream, and return that one."""
    await ep.create_scope("s")
    stream = await write_bytes(ep, "s/gone", mib)
    await write_bytes(ep, "s/kept", 2)
    return stream


async def truncate(stream: eventproc.Stream) -> None:
    await stream.truncate(await stream.tail())


async def kept(ep: Eventproc) -> int:
    stream = await ep.stream("s/kept")
    async with stream.reader() as reader:
        return len(
            [event async for event in reader.until(await stream.tail()) if event.payload == b"x" * 104_858]
        )


def pages(tx: Tx) -> tuple[int, int]:
    """Return how many pages the database has, and how many of them are free."""
    count, free = (tx.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "freelist_count"))
    return count, free


@pytest.mark.parametrize("durability", ["os", "fsync"])
async def test_a_compaction_leaves_no_free_page_in_the_file(tmp_path: Path, durability: str) -> None:
    async with eventproc.open(tmp_path / "home", durability=durability, host=True) as ep:
        await truncate(await fill(ep))
        before = (tmp_path / "home" / "eventproc.db").stat().st_size
        made = await ep.compact()
        after = (tmp_path / "home" / "eventproc.db").stat().st_size
        assert (made.bytes, made.free_bytes) == (after, 0)
        assert 0 < after <= 4 * MIB
        assert made.bytes_before >= before - MIB
        assert await ep.db.read(pages) == (after // PAGE, 0)
        assert await kept(ep) == 20
        assert attrs.evolve(await ep.compact(), bytes_before=0) == attrs.evolve(made, bytes_before=0)


async def test_a_compaction_runs_as_a_task_with_its_progress(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "home") as ep:
        await truncate(await fill(ep))
        ended = await ep.tasks.wait((await ep.tasks.submit(eventproc.CompactTask())).id)
        assert ended.error is None
        assert ended.result is not None
        assert (tmp_path / "home" / "eventproc.db").stat().st_size == ended.result["bytes"]
        assert (await ep.compact()).bytes_before <= 4 * MIB
        assert ended.done == ended.total


async def test_the_host_cuts_a_file_that_a_long_read_kept_long(tmp_path: Path) -> None:
    file = tmp_path / "home" / "eventproc.db"
    entered, leave = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        pages(tx)
        entered.set()
        assert leave.wait(PATIENCE_S)

    async with eventproc.open(tmp_path / "home", durability="os") as ep:
        stream, kept_too = await fill(ep, 40), await ep.stream("s/kept")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ep.db.read, slow)
            await anyio.to_thread.run_sync(entered.wait)
            await truncate(stream)
            with anyio.fail_after(PATIENCE_S):
                while (await ep.db.read(pages))[0] * PAGE > 4 * MIB + FREE_BYTES_MIN:
                    pass
            assert file.stat().st_size > 40 * MIB
            leave.set()
        await truncate(kept_too)  # the next sweep begins
        with anyio.fail_after(PATIENCE_S):
            while file.stat().st_size > 4 * MIB + FREE_BYTES_MIN:
                await ep.db.read(pages)


async def test_writers_go_on_during_a_compaction(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "home", durability="os") as ep:
        await ep.create_scope("s")
        gone = await write_bytes(ep, "s/gone", 30)
        await ep.create_stream("s/new")
        await gone.truncate(await gone.tail())
    async with eventproc.open(tmp_path / "home", host=False) as ep:
        stream = await ep.stream("s/new")
        ended, written = anyio.Event(), 0

        async def write() -> None:
            nonlocal written
            async with stream.writer() as writer:
                while not ended.is_set():
                    await writer.write(b"%d" % written, key="k")
                    written += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            assert (await ep.compact()).bytes < 8 * MIB
            ended.set()
        seen = [int(payload) for payload in await payloads_of(stream)]
        assert seen == list(range(written))
        assert written > 2, "no write waits for its end"


async def test_a_system_in_memory_has_no_file_to_compact() -> None:
    async with eventproc.open_memory() as ep:
        with pytest.raises(NotSupported, match="open a directory"):
            await ep.compact()


@pytest.mark.subprocess
async def test_a_file_without_auto_vacuum_is_used_and_says_why_it_cannot_shrink(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "home") as ep:
        await truncate(await fill(ep, 20))
    run(
        """
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("PRAGMA auto_vacuum = 0")
        connection.execute("VACUUM")
        """,
        tmp_path / "home" / "eventproc.db",
    )
    async with eventproc.open(tmp_path / "home") as ep:
        stream = await write_bytes(ep, "s/gone-again", 20)
        await stream.truncate(await stream.tail())
        with pytest.raises(NotSupported, match="PRAGMA auto_vacuum = 2; VACUUM"):
            await ep.compact()
        assert await kept(ep) == 20
    run(
        """
        import sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("PRAGMA auto_vacuum = 2")
        connection.execute("VACUUM")
        """,
        tmp_path / "home" / "eventproc.db",
    )
    async with eventproc.open(tmp_path / "home") as ep:
        assert (await ep.compact()).bytes <= 4 * MIB
        assert await kept(ep) == 20


@pytest.mark.parametrize("anyio_backend", [virtual_time()])
async def test_the_free_pages_of_a_system_in_memory_keep_its_host_idle() -> None:
    faults = FaultPlan()
    async with eventproc.open_memory(clock=VirtualClock(), faults=faults) as ep:
        await truncate(await fill(ep, 40))
        await anyio.sleep(60)
        count, free = await ep.db.read(pages)
        assert free * MIB // 256 > FREE_BYTES_MIN, "more than a file would keep"
        assert count > free
        assert faults.reached["host.sweep.begun"] < 100


async def only_fill(ep: Eventproc) -> None:
    await fill(ep)


async def truncate_and_compact(ep: Eventproc) -> None:
    await truncate(await ep.stream("s/gone"))
    await ep.compact()


async def fill_truncate_and_die(ep: Eventproc) -> None:
    await truncate(await fill(ep))
    kill_now()


@pytest.mark.subprocess
@pytest.mark.parametrize(("point", "stride"), [(WRITE_COMMITTED, 4), (CHECKPOINT, 1)])
def test_a_death_at_any_step_of_a_compaction_loses_nothing_and_the_next_one_ends_it(
    tmp_path: Path, point: str, stride: int
) -> None:
    with CrashDirectory(tmp_path / "filled", durability="os") as crash:
        crash.run(only_fill)
    for nth in range(1, 200, stride):
        home = tmp_path / f"home {nth}"
        shutil.copytree(tmp_path / "filled", home)
        with CrashDirectory(home) as crash:
            with crash.start(truncate_and_compact, at=point, nth=nth) as process:
                killed = process.finish() != 0
            crash.check()
            assert crash.run(kept) == 20
            if killed:
                crash.run(truncate_and_compact)
        assert (home / "eventproc.db").stat().st_size <= 4 * MIB
        if not killed:
            assert nth > 2, "it died at two steps at least"
            return
        shutil.rmtree(home)
    raise AssertionError("it never ends")


@pytest.mark.subprocess
async def test_a_compaction_without_a_host_frees_what_a_dead_host_left(tmp_path: Path) -> None:
    with (
        CrashDirectory(tmp_path / "home", durability="os") as crash,
        await anyio.to_thread.run_sync(crash.start, fill_truncate_and_die) as process,
    ):
        process.wait_killed()
    async with eventproc.open(tmp_path / "home", host=False) as ep:
        assert (await ep.compact()).bytes <= 4 * MIB
        assert await kept(ep) == 20
