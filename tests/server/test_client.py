"""The unmodified client of Pravega against `eventproc serve`, and our own readers and writers beside it."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.catalog import get_stream
from eventproc.streams import Stream
from eventproc.testing import check
from tests.server.support import ClientProcess, ServerProcess, run_client
from tests.transactions.support import TxnStream, events_of, wait_committed

pytestmark = [pytest.mark.subprocess, pytest.mark.linux]  # other systems have no wheel of the client


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(_directory(tmp_path_factory)) as server:
        yield server


@pytest.fixture(scope="module")
async def ep(tmp_path_factory: pytest.TempPathFactory, server: ServerProcess) -> AsyncIterator[Eventproc]:
    """The same directory, opened by this process."""
    async with eventproc.open(_directory(tmp_path_factory), host=False) as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)


def _directory(factory: pytest.TempPathFactory) -> Path:
    directory = factory.getbasetemp() / "served"
    if not directory.exists():
        from eventproc.cli.main import run

        assert run(["-C", str(directory), "init", "--durability", "os"]) == 0
    return directory


async def payloads(ep: Eventproc, stream: str) -> list[str]:
    """Return everything that is stored, the events of each key in the order of reading."""
    record = await ep.db.read(lambda tx: get_stream(tx, stream).value)
    by_segment = await events_of(TxnStream(ep.db, record))
    return [shown(event.payload) for _, events in sorted(by_segment.items()) for event in events]


def shown(payload: bytes) -> str:
    return payload.decode() if len(payload) < 100 else f"{len(payload)} bytes"


def in_order(events: list[str], count: int, keys: int = 7) -> bool:
    """Return whether numbered events came once each, and those of each key in order."""
    by_key: dict[str, list[int]] = {}
    for event in events:
        key, _, number = event.partition(":")
        by_key.setdefault(key, []).append(int(number))
    return by_key == {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


def test_scopes_and_streams_are_managed(server: ServerProcess) -> None:
    assert run_client(server.port, "manage", lines=11) == [
        [True, False],
        [True, False],
        True,
        [["admin"], ["one", "two"], []],
        True,
        "ValueError",
        "ValueError",
        "ValueError",
        [True, True],
        [True, True],
        [False, True, False],
    ]


async def test_events_of_the_client_are_read_by_both_while_the_stream_is_scaled(
    server: ServerProcess, ep: Eventproc
) -> None:
    stream = await ep.create_stream("s/scaled", scaling=eventproc.ScalingPolicy.fixed(2))
    with ClientProcess(server.port, "write", "scaled", 4000) as client:
        assert client.hear() == "half"
        _, high = await stream.split(0)
        client.go_on()
        await stream.merge(high, 1)
        assert client.hear() == "written"
    assert in_order(await payloads(ep, "s/scaled"), 4000)
    (read,) = run_client(server.port, "read", "scaled", "readers-of-scaled", 4000, 2, lines=1)
    assert sorted(read) == sorted(f"k{number % 7}:{number}" for number in range(4000))


async def test_the_client_reads_what_our_writer_wrote_and_our_group_what_it_wrote(
    server: ServerProcess, ep: Eventproc
) -> None:
    stream = await ep.create_stream("s/ours", scaling=eventproc.ScalingPolicy.fixed(2))
    async with stream.writer() as writer:
        for number in range(300):
            await writer.post(f"k{number % 7}:{number}".encode(), key=f"k{number % 7}")
    (read,) = run_client(server.port, "read", "ours", "readers-of-ours", 300, lines=1)
    assert in_order(read, 300)
    with ClientProcess(server.port, "write", "ours", 30, 7, 0) as client:
        assert client.hear() == "half"
        client.go_on()
        assert client.hear() == "written"
    group = await ep.create_group("s/all", ["s/ours"])
    seen = 0
    async with group.reader("ours") as reader:
        async for _ in reader:
            seen += 1
            if seen == 330:
                break


async def test_an_event_of_16_mib_passes_both_ways(server: ServerProcess, ep: Eventproc) -> None:
    stream = await ep.create_stream("s/large")
    assert run_client(server.port, "large", "large", lines=1) == ["written"]
    sizes = ["x", "8388600 bytes", "9437184 bytes", "16777207 bytes", "x"]
    found: list[str] = []
    async with stream.reader() as reader:
        async for event in reader:
            found.append(shown(event.payload))
            if len(found) == len(sizes):
                break
    assert found == sizes
    (read,) = run_client(server.port, "read", "large", "readers-of-large", 5, lines=1)
    assert read == sizes


async def test_a_byte_stream_is_read_from_any_offset_truncated_and_read_by_us(
    server: ServerProcess, ep: Eventproc
) -> None:
    stream = await ep.create_stream("s/bytes")
    assert run_client(server.port, "raw_bytes", "bytes", lines=7) == [
        [0, 800],
        [10, "0000000100"],
        [13, "0000100020"],
        [800, "9701980199"],
        402,
        [6, "000101"],
        "OSError",
    ]
    async with stream.reader() as reader:
        left = b"".join([event.payload async for event in reader.until(await stream.tail())])
    assert b"".join(f"{number:04}".encode() for number in range(101, 200)) in left


async def test_transactions_commit_abort_and_survive_a_scale(server: ServerProcess, ep: Eventproc) -> None:
    stream = await ep.create_stream("s/txn", scaling=eventproc.ScalingPolicy.fixed(2))
    with ClientProcess(server.port, "transactions", "txn") as client:
        is_open, txn_id = client.hear()
        assert is_open
        halves = await stream.split(0)
        await stream.merge(halves[1], 1)
        client.go_on()
        assert client.hear() == "committed"
    record = await ep.db.read(lambda tx: get_stream(tx, "s/txn").value)
    await wait_committed(TxnStream(ep.db, record), f"{txn_id:032x}")
    events = [event.partition(":") for event in await payloads(ep, "s/txn")]
    for name, count in (("committed", 40), ("open", 60)):
        assert in_order([rest for kind, _, rest in events if kind == name], count, 5)
    assert {kind for kind, _, _ in events} == {"committed", "open"}
    ranges = [(each.range.low, each.range.high) for each in (await stream.epochs())[-1].segments]
    assert ranges == [(0.0, 0.25), (0.25, 1.0)]


async def test_a_client_of_one_server_goes_on_after_its_death_and_one_of_another_sees_all(
    server: ServerProcess, ep: Eventproc
) -> None:
    """The second server of the directory is killed under load, and started again at the same ports."""
    await ep.create_stream("s/killed", scaling=eventproc.ScalingPolicy.fixed(2))
    assert ep.path is not None
    second = ServerProcess(ep.path)
    with ClientProcess(second.port, "write", "killed", 3000) as client:
        assert client.hear() == "half"
        client.go_on()
        second.end(signal.SIGKILL)
        with ServerProcess(ep.path, ports=second.ports) as third:
            assert client.hear() == "written"
            assert third.end(signal.SIGTERM) == 0
    assert in_order(await payloads(ep, "s/killed"), 3000)
    (read,) = run_client(server.port, "read", "killed", "readers-of-killed", 3000, lines=1)
    assert in_order(read, 3000)


async def wait_written(stream: Stream, count: int) -> None:
    async with stream.reader() as reader:
        seen = 0
        async for _ in reader:
            seen += 1
            if seen >= count:
                return
