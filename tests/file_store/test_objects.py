"""Events in object storage: readers notice nothing, and what dies in the middle loses nothing."""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import attrs
import httpx
import pytest

import eventproc
from eventproc.cli.main import run
from eventproc.cluster import sweeper
from eventproc.cluster.integrity_checks import IntegrityReport, verify_directory
from eventproc.cluster.sweeper import sweep_chunks, walk_chunks
from eventproc.describe import TaskStatus
from eventproc.runtime import Eventproc
from eventproc.server.endpoints import serve_metrics
from eventproc.store.chunks.index import UNUSED_MS, is_marked_unused
from eventproc.store.database import Tx
from eventproc.store.file_store import open_file_store
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import (
    CorruptRecord,
    DirectoryInUse,
    InvalidArgument,
    NotSupported,
    StoreMissing,
    Unreachable,
)
from eventproc.store.ownership import claim
from eventproc.store.postgres import peers
from eventproc.store.segments import Event
from eventproc.streams import Stream
from eventproc.testing import check, violations
from eventproc.testing.clock import VirtualClock
from eventproc.testing.crash import PATIENCE_S
from tests.cluster.support import ended_task
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.postgres import Server
from tests.support.reading import events_of, payloads_of
from tests.support.s3_server import S3Server

pytestmark = pytest.mark.subprocess


@pytest.fixture(params=["directory", "server"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the store lies: in a directory, or on a PostgreSQL server."""
    if request.param == "directory":
        return str(tmp_path / "data")
    server: Server = request.getfixturevalue("server")
    return server.store(server.new_schema())


on_directory = pytest.mark.parametrize("store", ["directory"], indirect=True)


@pytest.fixture
async def ep(store: str, url: str) -> AsyncIterator[Eventproc]:
    async with eventproc.open(store, chunks=url) as ep:
        await ep.create_scope("s")
        yield ep


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t")


async def write(stream: Stream, first: int = 0, count: int = 1000) -> None:
    async with stream.writer() as writer:
        for number in range(first, first + count):
            await writer.post(b"%06d" % number * 100, key=f"k{number % 3}", headers={"a": "ß"})


async def numbers_in(stream: Stream) -> list[int]:
    return [int(payload[:6]) for payload in await payloads_of(stream)]


def cut_before(event: Event, tail: StreamCut) -> StreamCut:
    return StreamCut(tail.stream, tail.stream_id, {event.segment: event.offset})


def objects(url: str) -> list[str]:
    return [each for each in open_file_store(url).paths() if each.endswith(".arrow")]


async def test_moved_events_are_read_as_one_stream_by_ranges(
    ep: Eventproc, stream: Stream, url: str, s3: S3Server
) -> None:
    await write(stream)
    assert (await stream.offload()).events == 1000
    assert len(objects(url)) == 1
    assert ep.path is None or not (ep.path / "chunks").exists()
    await write(stream, 1000)
    s3.requests.clear()
    s3.faults += ["503", "cut"]
    assert await numbers_in(stream) == list(range(2000))
    assert {method for method, _ in s3.requests} == {"GET"}
    await check(ep.db)


async def test_check_of_events_in_objects_passes_over_the_store_once(store: str, url: str) -> None:
    async with eventproc.open(store, chunks=url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        for first in range(0, 4000, 1000):
            await write(stream, first)
            await stream.offload()
    passes = 0

    def counted(tx: Tx) -> list[str]:
        nonlocal passes
        passes += 1
        return violations(tx)

    async with eventproc.open(store) as other:
        assert await other.db.read(counted) == []
    assert passes == 1
    report = IntegrityReport("directory")
    async with eventproc.open(store) as other:
        await verify_directory(other.db, report)
    assert (report.files, report.problems) == (4, [])


@on_directory
async def test_requests_are_measured_by_operation_while_metrics_are_served(
    ep: Eventproc, stream: Stream, s3: S3Server
) -> None:
    await write(stream)
    async with (
        serve_metrics(ep, ("127.0.0.1", 0)) as (host, port),
        httpx.AsyncClient(trust_env=False) as http,
    ):

        async def counts() -> dict[str, float]:
            scraped = await http.get(f"http://{host}:{port}/metrics", timeout=PATIENCE_S)
            lines = re.findall(r"object_storage_request_duration_seconds_count{(.*)} (.*)", scraped.text)
            return {labels: float(value) for labels, value in lines}

        before = await counts()
        await stream.offload()
        assert await numbers_in(stream) == list(range(1000))
        after = await counts()
    put, get = (f'error="",operation="{each}"' for each in ("put", "get"))
    assert after[put] == before.get(put, 0) + 1
    assert after[get] > before.get(get, 0)


@pytest.mark.parametrize("work", ["reading", "truncating"])
async def test_slow_storage_holds_neither_writers_nor_readers(
    ep: Eventproc, stream: Stream, s3: S3Server, work: str
) -> None:
    await write(stream)
    events = await events_of(stream)
    await stream.offload()
    other = await ep.create_stream("s/other")
    s3.faults += ["stall .arrow"]

    async def work_on_object() -> None:
        if work == "reading":
            assert await numbers_in(stream) == list(range(1000))
        else:
            await stream.truncate(cut_before(events[700], await stream.tail()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work_on_object)
        await anyio.to_thread.run_sync(s3.stalled.wait)
        await write(other, count=3)
        assert await numbers_in(other) == [0, 1, 2]
        s3.released.set()


async def test_truncating_inside_of_an_object_reads_its_borders(ep: Eventproc, stream: Stream) -> None:
    await write(stream)
    events = await events_of(stream)
    await stream.offload()
    await stream.truncate(cut_before(events[700], await stream.tail()))
    assert await numbers_in(stream) == list(range(700, 1000))


async def test_other_openings_find_the_place_in_the_store(
    stream: Stream, store: str, tmp_path: Path, url: str
) -> None:
    await write(stream)
    await stream.offload()
    async with eventproc.open(store, host=False) as other:
        assert await numbers_in(await other.stream("s/t")) == list(range(1000))
    async with eventproc.open(store, host=False, chunks=f"{url}/"):
        pass  # the same place
    for elsewhere in (f"{url}-2", tmp_path / "folder"):
        with pytest.raises(InvalidArgument, match=r"they lie at|lie in s3://|where every machine finds them"):
            await eventproc.open(store, host=False, chunks=elsewhere)


async def test_object_that_was_lost_is_named(stream: Stream, url: str) -> None:
    await write(stream)
    await stream.offload()
    open_file_store(url).delete(objects(url)[0])
    with pytest.raises(CorruptRecord, match="file not found, but events lie in it"):
        await numbers_in(stream)


def test_command_line_places_files_and_shows_no_credentials(
    tmp_path: Path, s3: S3Server, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, new = str(tmp_path / "data"), str(tmp_path / "new")
    for _ in range(2):
        assert run(["init", data, "--chunks", url]) == 0
    assert run(["init", data, "--chunks", f"{url}-2"]) == 2
    assert f"lie in {url}" in capsys.readouterr().err
    s3.faults += ["403"]
    assert run(["init", new, "--chunks", f"{url}-3"]) == 6
    shown = capsys.readouterr().err
    assert "refuses the credentials of the environment" in shown
    assert "hidden-secret" not in shown
    assert not (tmp_path / "new").exists()


async def test_place_that_cannot_be_used_makes_no_directory(tmp_path: Path, s3: S3Server, url: str) -> None:
    with pytest.raises(Unreachable, match="the bucket does not exist; create it"):
        await eventproc.open(tmp_path / "new", chunks="s3://no-such-bucket/p")
    with pytest.raises(InvalidArgument, match="it must be s3://BUCKET/PREFIX"):
        await eventproc.open(tmp_path / "new", chunks="ftp://x/y")
    async with eventproc.open(tmp_path / "first", chunks=url):
        pass
    with pytest.raises(InvalidArgument, match="a prefix of its own"):
        await eventproc.open(tmp_path / "new", chunks=url)
    assert not (tmp_path / "new").exists()


async def test_store_without_files_can_get_a_place_while_nobody_else_has_it_open(
    store: str, url: str
) -> None:
    async with eventproc.open(store):
        with pytest.raises(DirectoryInUse):
            await eventproc.open(store, chunks=url)
    async with eventproc.open(store, chunks=url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await write(stream)
        await stream.offload()


async def test_directory_with_files_keeps_its_folder(tmp_path: Path, url: str) -> None:
    async with eventproc.open(tmp_path / "other") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await write(stream)
        await stream.offload()
    with pytest.raises(InvalidArgument, match="keeps the place of its first file"):
        await eventproc.open(tmp_path / "other", chunks=f"{url}-other")


async def test_server_without_a_place_moves_no_events(server: Server) -> None:
    async with eventproc.open(server.store(server.new_schema())) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        with pytest.raises(NotSupported, match="chunks='s3://BUCKET/PREFIX'"):
            await stream.offload()
        with pytest.raises(NotSupported, match="chunks='s3://BUCKET/PREFIX'"):
            await stream.update(offload=eventproc.OffloadPolicy(age_ms=1))


async def test_policy_moves_old_events_into_objects(ep: Eventproc, stream: Stream, url: str) -> None:
    for first in (0, 1000, 2000):
        await write(stream, first)
    await stream.update(offload=eventproc.OffloadPolicy(size_bytes=300_000))
    task = await ended_task(ep, "stream s/t")
    assert task.status is TaskStatus.DONE
    assert 1500 <= int(task.result["events"]) < 3000
    assert len(objects(url)) == 1
    await write(stream, 3000)
    assert await numbers_in(stream) == list(range(4000))


@on_directory
async def test_policy_has_one_task_of_a_stream_at_a_time(store: str, url: str, s3: S3Server) -> None:
    clock, newest = VirtualClock(), eventproc.OffloadPolicy(size_bytes=300_000)
    async with eventproc.open(store, chunks=url, clock=clock) as ep:
        await ep.create_scope("s")
        slow, other = [await ep.create_stream(name, offload=newest) for name in ("s/slow", "s/u-other")]
        await write(slow)
        clock.advance(60_000)
        await write(slow, 1000)
        s3.faults += ["stall PUT"]
        await ep.create_stream("s/wakes")  # the loop of the policies, which looks at both
        await anyio.to_thread.run_sync(s3.stalled.wait)
        for stream in (slow, other):
            await write(stream, 2000)
            clock.advance(60_000)
            await write(stream, 3000)
        await ep.create_stream("s/wakes-again")
        await ended_task(ep, "stream s/u-other")
        s3.released.set()
        task = await ended_task(ep, "stream s/slow")
        assert 1000 <= int(task.result["events"]) < 2000
        assert await numbers_in(slow) == list(range(4000))


@on_directory
async def test_objects_that_nothing_needs_are_deleted(store: str, url: str) -> None:
    clock = VirtualClock()
    async with eventproc.open(store, host=False, chunks=url, clock=clock) as ep:
        dead = f"7/0.0/0-{'01890a5d-ac96-774b-bcce-b302099a8057'}-0.arrow"
        alive = f"7/0.0/0-{ep.db.instance_id}-0.arrow"
        files = open_file_store(url)
        for each in (dead, alive):
            new = files.create(each)
            new.write(b"x")
            new.finish()
        owner = await ep.db.write(lambda tx: claim(tx, "controller", ep.db.instance_id))
        await walk_chunks(ep.db, owner)
        assert len(objects(url)) == 2
        clock.advance(UNUSED_MS)
        await sweep_chunks(ep.db, owner)
        assert objects(url) == [alive]


@pytest.mark.parametrize("store", ["server"], indirect=True)
async def test_host_on_a_server_finds_what_an_instance_left_that_ended_before_its_start(
    store: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "LOOK_MS", 50)
    monkeypatch.setattr(sweeper, "SWEEP_MS", 2_000)
    async with eventproc.open(store, chunks=url, host=False) as ep:
        left = f"7/0.0/0-{ep.db.instance_id}-0.arrow"
        new = open_file_store(url).create(left)
        new.finish()
    async with eventproc.open(store) as ep:
        with anyio.fail_after(60):
            while not await ep.db.read(partial(is_marked_unused, path=left)):  # noqa: ASYNC110  # nothing signals it
                await anyio.sleep(0.1)


@on_directory
async def test_backup_has_the_objects_and_its_copy_leaves_those_of_the_original(
    ep: Eventproc, stream: Stream, tmp_path: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    from eventproc.store.backup.make import make_backup
    from eventproc.store.backup.restore import restore_backup

    await write(stream)
    await stream.offload()
    await make_backup(ep.db, tmp_path / "backup")
    await anyio.to_thread.run_sync(partial(restore_backup, tmp_path / "backup", tmp_path / "copy"))
    async with eventproc.open(tmp_path / "copy") as copy:
        copied = await copy.stream("s/t")
        assert await numbers_in(copied) == list(range(1000))
        await copied.truncate(await copied.tail())
    assert len(objects(url)) == 1
    assert await numbers_in(stream) == list(range(1000))
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_missing_directory_is_not_claimed(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreMissing):
        await eventproc.open(tmp_path / "none", create=False, chunks=url)
    assert list(open_file_store(url).paths()) == []


_DIES = """
import os, signal, sys
import eventproc
import eventproc.streams.offload as offload

def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

setattr(offload, sys.argv[2], die)
with eventproc.open_blocking(sys.argv[1]) as ep:
    ep.stream("s/t").offload()
"""


@on_directory
@pytest.mark.parametrize(("at", "left"), [("register_chunks", 1), ("find_chunk", 0), ("move_step", 0)])
async def test_death_between_object_row_and_extents_loses_nothing(
    store: str, url: str, at: str, left: int
) -> None:
    async with eventproc.open(store, chunks=url) as ep:
        await ep.create_scope("s")
        await write(await ep.create_stream("s/t"))
    died = await anyio.run_process([sys.executable, "-c", _DIES, store, at], check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert len(objects(url)) == 1
    clock = VirtualClock()
    async with eventproc.open(store, host=False, clock=clock) as ep:
        stream = await ep.stream("s/t")
        assert await numbers_in(stream) == list(range(1000))
        owner = await ep.db.write(lambda tx: claim(tx, "controller", ep.db.instance_id))
        await walk_chunks(ep.db, owner)
        clock.advance(UNUSED_MS)
        await sweep_chunks(ep.db, owner)
        assert len(objects(url)) == 1 - left, "an object without a row is an orphan, one with a row is held"
    async with eventproc.open(store) as ep:
        stream = await ep.stream("s/t")
        assert (await stream.offload()).events == 1000
        assert len(objects(url)) == 1
        assert await numbers_in(stream) == list(range(1000))
        await check(ep.db)


async def test_copy_takes_files_of_events_to_the_place_of_a_server_and_back(
    tmp_path: Path, url: str, server: Server
) -> None:
    target = server.store(server.new_schema())
    async with eventproc.open(tmp_path / "data") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await write(stream)
        await stream.offload()
        expected = await numbers_in(stream)
    async with eventproc.open(target, chunks=url):
        pass
    made = await eventproc.copy(tmp_path / "data", target)
    assert made.files > 0
    assert await eventproc.copy(target, tmp_path / "back") == attrs.evolve(
        made, source=made.target, target=str(tmp_path / "back")
    )
    for place in (target, tmp_path / "back"):
        async with eventproc.open(place) as ep:
            assert await numbers_in(await ep.stream("s/t")) == expected
            await check(ep.db)
