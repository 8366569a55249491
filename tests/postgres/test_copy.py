"""Copying a store between a directory and a server: everything is there, goes on there, and the source stays."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc import Eventproc, TopicPartition, errors
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import WireEntry
from eventproc.testing import check
from tests.server.wire_peer import connected
from tests.support.apps import run_until_idle
from tests.support.child_process import ChildProcess
from tests.support.postgres import Server

pytestmark = pytest.mark.subprocess

LARGE = 3_000_000
"""Bytes of an event that fills most of a batch."""

EVENTS = [
    *(b"%d" % number for number in range(60)),
    *(b"%d" % number + b"x" * LARGE for number in range(60, 64)),
]

TABLE = "s/readers_kvtable/0.#epoch.0"

NO_VERSION = -1

Place = str | Path

Row = tuple[object, ...]


async def fill(ep: Eventproc) -> None:
    """Make one of everything that a store may hold, and leave some of it half done."""
    await ep.create_scope("s")
    orders = await ep.create_stream("s/orders")
    async with orders.writer(name="w") as writer:
        await writer.write_many([(each, str(number % 5)) for number, each in enumerate(EVENTS[:30])])
        [segment] = await orders.segments()
        await orders.split(segment.id)
        await writer.write_many([(each, str(number % 5)) for number, each in enumerate(EVENTS[30:], 30)])
    group = await ep.create_group("readers", ["s/orders"])
    async with group.reader("r") as reader:
        async for event in reader:
            if event.payload == b"9":
                break
    await ep.create_topic("s/topic", partitions=2)
    await write_numbers(ep, range(10))
    group = await ep.create_group("consumers", ["s/topic"])
    async with group.consumer("c", auto_commit=False) as consumer:
        await consumer.poll(timeout_ms=100)
        await consumer.commit({TopicPartition("s/topic", 0): 4})
    shared = await ep.create_share_group("share", ["s/topic"])
    async with shared.consumer("c") as worker:
        taken = await worker.poll(3)
        await worker.accept(taken[:2])
    gone = await ep.create_stream("s/gone")
    async with gone.writer() as writer:
        await writer.write(b"cut off")
        await gone.truncate(await gone.tail())
        await writer.write(b"kept")
    async with gone.transaction() as transaction:
        await transaction.write(b"committed")
    await run_until_idle(ep, refusing_app())
    async with connected(ep) as peer:
        await peer.ask(c.CreateTableSegment(1, TABLE), c.SegmentCreated)
        for entry in (b"first", b"second"):
            await peer.ask(update(entry), c.TableEntriesUpdated)
    async with (await ep.create_stream("s/ids")).writer() as writer:
        await writer.write(b"now", id="é")
        await writer.write(b"later", id="later", delay_ms=24 * 3_600_000)
    await ep.users.add("ana", password="secret words")
    await ep.users.grant("ana", eventproc.Permission.READ, "s/*")


def update(key: bytes) -> c.UpdateTableEntries:
    return c.UpdateTableEntries(1, TABLE, "", (WireEntry(key, NO_VERSION, b"value"),), -1)


async def write_numbers(ep: Eventproc, numbers: range) -> None:
    topic = await ep.topic("s/topic")
    async with topic.producer() as producer:
        for number in numbers:
            await producer.write(b"%d" % number, partition=0)


def refusing_app() -> eventproc.App:
    app = eventproc.App()

    @app.processor("s/gone", group="fails", retry=eventproc.RetryPolicy(attempts=1))
    async def handle(event: eventproc.Event, context: eventproc.Context) -> None:
        raise ValueError("no")

    return app


async def verify_goes_on(ep: Eventproc) -> None:
    """Check that readers, groups and writers continue where those of `fill` ended."""
    await check(ep.db)
    orders = await ep.stream("s/orders")
    async with orders.reader() as everything:
        found = [event.payload async for event in everything.until(await orders.tail())]
    assert sorted(found) == sorted(EVENTS)
    async with (await ep.group("s/readers")).reader("r") as reader:
        rest = [event.payload async for event in reader.until(await orders.tail())]
    assert sorted(rest) == sorted(EVENTS[10:])
    await write_numbers(ep, range(10, 12))
    async with (await ep.group("s/consumers")).consumer("c") as consumer:
        assert [event.number for event in await consumer.poll(timeout_ms=10_000)] == list(range(4, 12))
    async with (await ep.share_group("s/share")).consumer("c", auto_accept=True) as worker:
        assert [each.event.number for each in await worker.poll(20)] == list(range(2, 12))
    gone = await ep.stream("s/gone")
    async with gone.reader() as reader_of_gone:
        kept = [event.payload async for event in reader_of_gone.until(await gone.tail())]
    assert kept == [b"kept", b"committed"]
    letters = ep.dead_letters("s/fails")
    assert [each.payload for each in await letters.list()] == kept
    await run_until_idle(ep, refusing_app())
    assert len(await letters.list()) == 2
    async with (await ep.stream("s/ids")).writer() as writer:
        assert (await writer.write(b"again", id="é")).number == 0
        assert (await ep.delayed.cancel("later")).payload == b"later"
        assert (await writer.write(b"sooner", id="later")).number == 1
    assert [each.name for each in await ep.users.list()] == ["ana"]
    async with connected(ep) as peer:
        await peer.ask(update(b"third"), c.TableEntriesUpdated)
        page = await peer.ask(c.ReadTableEntries(1, TABLE, "", 10, b""), c.TableEntriesRead)
        assert [each.key for each in page.entries] == [b"first", b"second", b"third"]
        await peer.ask(c.CreateTableSegment(1, f"{TABLE}1"), c.SegmentCreated)
    [*_, last] = await orders.segments()
    await orders.split(last.id)
    made = await ep.create_stream("s/new")
    async with made.writer() as writer:
        await writer.write(b"y" * LARGE)
    await check(ep.db)


async def rows(place: Place, tables: tuple[str, ...]) -> dict[str, list[Row]]:
    """Return all rows of the tables, as the store has them before anything continues."""
    async with eventproc.open(place, create=False, host=False) as ep:
        return {each: sorted(await ep.query(f"SELECT * FROM {each}"), key=repr) for each in tables}


async def tables_of(directory: Path) -> tuple[str, ...]:
    async with eventproc.open(directory, create=False, host=False) as ep:
        found = await ep.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name != 'meta'")
        return tuple(str(name) for (name,) in found)


@pytest.fixture
async def source(tmp_path: Path) -> Path:
    """A closed directory with everything of `fill`."""
    async with eventproc.open(tmp_path / "source") as ep:
        await fill(ep)
    return tmp_path / "source"


async def test_store_goes_on_after_a_copy_to_a_server_and_back(
    source: Path, url: str, tmp_path: Path
) -> None:
    tables = await tables_of(source)
    before = await rows(source, tables)
    there = await eventproc.copy(source, url)
    assert await rows(source, tables) == await rows(url, tables) == before
    back = await eventproc.copy(url, tmp_path / "back")
    assert await rows(url, tables) == await rows(tmp_path / "back", tables) == before
    assert (there.streams, there.events, there.bytes) == (back.streams, back.events, back.bytes)
    for place in (url, tmp_path / "back"):
        async with eventproc.open(place) as ep:
            await verify_goes_on(ep)
    assert await rows(source, tables) == before


async def test_open_transaction_is_refused_or_aborted_in_the_copy_only(tmp_path: Path, url: str) -> None:
    async with eventproc.open(tmp_path / "source") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/x")
        transaction = await stream.begin(lease_ms=600_000)
        await transaction.write(b"staged")
        await transaction.flush()
    tables = await tables_of(tmp_path / "source")
    before = await rows(tmp_path / "source", tables)
    with pytest.raises(errors.IllegalTransition, match=transaction.id):
        await eventproc.copy(tmp_path / "source", url)
    with pytest.raises(errors.StoreMissing):
        await rows(url, tables)
    await eventproc.copy(tmp_path / "source", url, abort_open=True)
    assert await rows(tmp_path / "source", tables) == before
    async with eventproc.open(url) as ep:
        with pytest.raises(errors.TransactionAborted):
            await (await ep.stream("s/x")).transaction_of(transaction.id).commit()


MORTAL = """
    import sys, anyio, eventproc
    from eventproc.testing import kill_now

    source, target, percent = sys.argv[1:]

    def advance(done, total):
        if done * 100 > total * int(percent):
            kill_now()

    anyio.run(lambda: eventproc.copy(source, target, advance=advance))
"""


@pytest.mark.parametrize("percent", [0, 20, 60], ids=["first batch", "blobs", "comparison"])
@pytest.mark.parametrize("to_server", [True, False], ids=["to a server", "to a directory"])
async def test_copy_that_was_killed_does_not_open_and_continues(
    source: Path, url: str, server: Server, tmp_path: Path, to_server: bool, percent: int
) -> None:
    target = url if to_server else tmp_path / "target"
    with ChildProcess.running(MORTAL, source, target, percent) as mortal:
        assert mortal.finish() == -signal.SIGKILL
    with pytest.raises(errors.StoreUnusable, match="unfinished copy"):
        await eventproc.open(target)
    with pytest.raises(errors.StoreUnusable, match="unfinished copy"):
        await eventproc.copy(target, tmp_path / "other")
    async with eventproc.open(tmp_path / "another"):
        pass
    with pytest.raises(errors.StoreUnusable, match="copy of another store"):
        await eventproc.copy(tmp_path / "another", target)
    tables, copied = await tables_of(source), large_rows(target, server)
    await eventproc.copy(source, target)
    assert await rows(target, tables) == await rows(source, tables)
    assert set(copied) <= set(large_rows(target, server))


def large_rows(target: Place, server: Server) -> list[Row]:
    """Return the blobs on a server, with the numbers of the transactions that inserted them."""
    if isinstance(target, Path):
        return []
    return server.execute(f"SELECT id, xmin::text FROM {schema_of(target)}.blob")


def schema_of(url: str) -> str:
    return url.rpartition("=")[2]


async def test_what_changed_in_the_source_before_the_copy_continues_is_copied(source: Path, url: str) -> None:
    with ChildProcess.running(MORTAL, source, url, 60) as mortal:
        assert mortal.finish() == -signal.SIGKILL
    async with eventproc.open(source) as ep:
        orders = await ep.stream("s/orders")
        await orders.truncate(await orders.tail())
        async with orders.writer(name="w") as writer:
            await writer.write(b"z" * LARGE)
    tables = await tables_of(source)
    await eventproc.copy(source, url)
    assert await rows(url, tables) == await rows(source, tables)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            "UPDATE {}.blob SET data = set_byte(data, 7, 99) WHERE length(data) > 1000000",
            "segment .* of s/orders",
        ),
        ("DELETE FROM {}.group_segment", "table group_segment"),
        ("UPDATE {}.extent SET length = length + 1", "segment"),
    ],
    ids=["bytes", "row", "extent"],
)
async def test_damaged_copy_is_found_and_named(
    source: Path, url: str, server: Server, damage: str, named: str
) -> None:
    damaged: list[str] = []

    def advance(done: int, total: int) -> None:
        if done * 3 > total and not damaged:
            damaged.append(damage)
            server.execute(damage.format(schema_of(url)))

    with pytest.raises(errors.CorruptRecord, match=named):
        await eventproc.copy(source, url, advance=advance)
    assert damaged
    with pytest.raises(errors.StoreUnusable, match="unfinished copy"):
        await eventproc.open(url)


async def test_stores_that_are_not_empty_or_in_use_are_refused(source: Path, tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "target") as ep:
        with pytest.raises(errors.DirectoryInUse, match="target"):
            await eventproc.copy(source, tmp_path / "target")
        await ep.create_scope("mine")
    with pytest.raises(errors.AlreadyExists, match="not empty"):
        await eventproc.copy(source, tmp_path / "target")
    async with eventproc.open(tmp_path / "target") as ep:
        assert [each.name for each in await ep.scopes()] == ["mine"]
    with pytest.raises(errors.InvalidArgument, match="same store"):
        await eventproc.copy(source, source)
    async with eventproc.open(source):
        with pytest.raises(errors.DirectoryInUse, match="source"):
            await eventproc.copy(source, tmp_path / "other")
    assert not (tmp_path / "other").exists()


async def test_tables_of_users_sql_are_refused_or_left(tmp_path: Path, url: str) -> None:
    app = eventproc.App()

    def note(tx: eventproc.AppTx, _events: object) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_notes (text TEXT)")

    @app.processor("s/x", group="g", exactly_once=True, on_commit=note)
    async def handle(event: eventproc.Event, context: eventproc.Context) -> None:
        pass

    async with eventproc.open(tmp_path / "source") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/x")
        async with stream.writer() as writer:
            await writer.write(b"1")
        await run_until_idle(ep, app)
    with pytest.raises(errors.NotSupported, match="app_notes"):
        await eventproc.copy(tmp_path / "source", url)
    made = await eventproc.copy(tmp_path / "source", url, leave_sql_tables=True)
    assert made.left_tables == ("app_notes",)


READER = """
    import sys, anyio, eventproc

    async def main():
        async with eventproc.open(sys.argv[1]) as ep:
            async with (await ep.group("s/readers")).reader("r") as reader:
                async with (await ep.share_group("s/share")).consumer("c") as worker:
                    async for event in reader:
                        print(len(await worker.poll(3)), flush=True)
                        await anyio.sleep_forever()

    anyio.run(main)
"""


@pytest.mark.parametrize("to_server", [True, False], ids=["to a server", "to a directory"])
async def test_what_a_dead_process_held_is_free_in_the_copy(
    source: Path, url: str, tmp_path: Path, to_server: bool
) -> None:
    target = url if to_server else tmp_path / "target"
    with ChildProcess.running(READER, source) as holder:
        assert holder.hear() == "3"
    await eventproc.copy(source, target)
    async with eventproc.open(target) as ep:
        rest: list[bytes] = []
        async with (await ep.group("s/readers")).reader("other") as reader:
            async for event in reader:
                rest.append(event.payload)
                if len(rest) == len(EVENTS[10:]):
                    break
        assert sorted(rest) == sorted(EVENTS[10:])
        async with (await ep.share_group("s/share")).consumer("other", auto_accept=True) as worker:
            found = [each async for each in numbers(worker, 8)]
        assert sorted(found) == list(range(2, 10))
        await check(ep.db)


async def numbers(worker: eventproc.ShareConsumer[bytes], count: int) -> AsyncIterator[int]:
    """Yield the numbers of so many events."""
    while count:
        for each in await worker.poll(count, timeout_ms=1_000):
            count -= 1
            yield each.event.number


async def test_store_of_an_older_version_is_refused_unchanged(source: Path, url: str, server: Server) -> None:
    await eventproc.copy(source, url)
    server.execute(f"UPDATE {schema_of(url)}.meta SET value = '4' WHERE key = 'schema'")
    with closing(sqlite3.connect(source / "eventproc.db")) as connection:
        connection.execute("PRAGMA user_version = 4")
    for old in (source, url):
        with pytest.raises(errors.StoreUnusable, match="older version"):
            await eventproc.copy(old, source.parent / "target")
    assert server.execute(f"SELECT value FROM {schema_of(url)}.meta WHERE key = 'schema'") == [("4",)]
    with closing(sqlite3.connect(source / "eventproc.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (4,)
    assert not (source.parent / "target").exists()


async def test_files_of_events_are_copied_or_refused_without_a_place(source: Path, url: str) -> None:
    async with eventproc.open(source) as ep:
        moved = await (await ep.stream("s/orders")).offload()
        assert moved.events > 0
    target = source.parent / "target"
    with pytest.raises(errors.NotSupported, match="chunks="):
        await eventproc.copy(source, url)
    with pytest.raises(errors.StoreMissing):
        await eventproc.open(url, create=False)
    await anyio.Path(source).chmod(0o700)
    made = await eventproc.copy(source, target)
    assert stat.S_IMODE((await anyio.Path(target).stat()).st_mode) == 0o700
    assert made.files == len([each for each in (target / "chunks").rglob("*") if each.is_file()]) > 0
    shutil.rmtree(source)
    async with eventproc.open(target) as ep:
        await verify_goes_on(ep)


@pytest.mark.parametrize("lost", [1.0, 0.5, 0.0], ids=["all", "half", "only its content"])
async def test_files_that_a_loss_of_power_damaged_are_copied_again(source: Path, lost: float) -> None:
    async with eventproc.open(source) as ep:
        await (await ep.stream("s/orders")).offload()
    target = source.parent / "target"

    def stop_after_files(_done: int, _total: int) -> None:
        if [*target.glob("chunks/*/*/*.arrow")] and not [*target.glob("chunks/*/*/*.part")]:
            raise OSError("it stops here")

    with pytest.raises(OSError, match="it stops here"):
        await eventproc.copy(source, target, advance=stop_after_files)
    [damaged, *_] = target.glob("chunks/*/*/*.arrow")
    damaged.write_bytes(bytes(round(damaged.stat().st_size * (1 - lost))))
    await eventproc.copy(source, target)
    assert damaged.read_bytes() == (source / damaged.relative_to(target)).read_bytes()
    async with eventproc.open(target) as ep:
        await verify_goes_on(ep)


async def test_name_that_a_server_cannot_store_is_refused(tmp_path: Path, url: str) -> None:
    async with eventproc.open(tmp_path / "source") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/x")
        async with stream.writer(name="a\0b") as writer:
            await writer.write(b"1")
    with pytest.raises(errors.NotSupported, match=r"'a\\x00b' in table writer"):
        await eventproc.copy(tmp_path / "source", url)
    await eventproc.copy(tmp_path / "source", tmp_path / "target")


async def test_cancelled_copy_continues(source: Path, url: str) -> None:
    with anyio.CancelScope() as scope:
        await eventproc.copy(source, url, advance=lambda _done, _total: scope.cancel())
    assert scope.cancelled_caught
    with pytest.raises(errors.StoreUnusable, match="unfinished copy"):
        await eventproc.open(url)
    await eventproc.copy(source, url)
    async with eventproc.open(url) as ep:
        await verify_goes_on(ep)
