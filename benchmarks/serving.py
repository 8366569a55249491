"""`eventproc serve` beside its floors: events over Pravega's protocol, transactions, and reads that wait.

The server is a process of its own, and CPU time is that of the server. Writes come from the unmodified client, because
it decides how many events are in a block, and with that the number of commits. Reads and transactions come from a peer
in Python that speaks in frames: the client decodes events more slowly than the server sends them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final, TypeVar

import anyio
import anyio.abc
import attrs
import psutil
from anyio.streams.buffered import BufferedByteReceiveStream
from grpclib.client import Channel, UnaryUnaryMethod

import eventproc
from benchmarks.bare import Commits
from benchmarks.floors import inserts
from benchmarks.samples import PAYLOAD_BYTES, Sample, Task
from eventproc.cluster.segment_containers import serving_containers
from eventproc.server.access.authority import Authority
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.service import SERVICE, Controller
from eventproc.server.controller.serving import serving_controller
from eventproc.server.listening import listen_at
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import FRAME_HEAD, MESSAGES, Message

IN_FLIGHT: Final = 1_000
"""Events that the client sends without an acknowledgement."""

BLOCK_EVENTS: Final = IN_FLIGHT // 2
"""Events that the floor commits at a time: those that a client collects while a block of the others is committed."""

READ_BYTES: Final = 2**20
"""Bytes that a read asks for, as the Rust client does."""

POLLS_COUNT: Final = 100
"""Reads that wait at the tail."""

TXN_EVENTS: Final = 10
"""Events of a transaction."""

STREAM: Final = "benchmark/stream"
SEGMENT: Final = f"{STREAM}/0.#epoch.0"
WRITER: Final = bytes(range(16))

_SAID: Final = "seconds: "

_CLIENT: Final = f"""
import os, sys, time
import pravega_client

port, count, in_flight = map(int, sys.argv[1:])
manager = pravega_client.StreamManager(f"tcp://127.0.0.1:{{port}}", False, False)
writer = manager.create_writer("benchmark", "stream", in_flight)
event, begun = bytes({PAYLOAD_BYTES}), time.perf_counter()
for _ in range(count):
    writer.write_event_bytes(event)
writer.flush()
print("{_SAID}", time.perf_counter() - begun, flush=True)
os._exit(0)  # the client crashes when the interpreter ends
"""

M = TypeVar("M", bound=Message)

_EVENT: Final = FRAME_HEAD.pack(0, PAYLOAD_BYTES) + bytes(PAYLOAD_BYTES)
_PORTS: Final = re.compile(r"controller tcp://[^:]*:(\d+), segment store port (\d+)")


class WireCaller:
    """One connection to a segment store."""

    def __init__(self, stream: anyio.abc.SocketStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)

    async def send(self, *messages: Message) -> None:
        """Send frames."""
        await self._stream.send(b"".join(each.encode() for each in messages))

    async def receive(self) -> Message:
        """Return the next reply."""
        kind, length = FRAME_HEAD.unpack(await self._received.receive_exactly(FRAME_HEAD.size))
        return MESSAGES[kind].decode(await self._received.receive_exactly(length))

    async def ask(self, command: Message, kind: type[M]) -> M:
        """Send a command, and return its reply, which must be of this kind."""
        await self.send(command)
        reply = await self.receive()
        assert isinstance(reply, kind), reply
        return reply


@attrs.frozen
class ServerAtWork:
    """A server process. controller, segment_store: its ports."""

    process: psutil.Process
    controller: int
    segment_store: int

    def cpu_s(self) -> float:
        """Return the CPU time that it has used."""
        used = self.process.cpu_times()
        return float(used.user + used.system)

    def sample(self, value: float, cpu_s: float, count: float) -> Sample:
        """Return a sample. cpu_s: what it had used at the start. count: operations since then."""
        used_us = (self.cpu_s() - cpu_s) * 1e6
        return Sample(value, used_us / count, float(self.process.memory_info().rss) / 1e6)

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[WireCaller]:
        """Yield a connection that has said hello."""
        async with await anyio.connect_tcp("127.0.0.1", self.segment_store) as stream:
            caller = WireCaller(stream)
            await caller.ask(c.Hello(17, 5), c.Hello)
            yield caller


@asynccontextmanager
async def _serving(task: Task, events: int = 0) -> AsyncIterator[ServerAtWork]:
    """Serve a stream of one segment with so many events."""
    await _make_stream(task, events)
    async with server_process(task, (), _PORTS) as (process, ports):
        yield ServerAtWork(process, int(ports[1]), int(ports[2]))


@asynccontextmanager
async def server_process(
    task: Task, options: Sequence[str], says: re.Pattern[str]
) -> AsyncIterator[tuple[psutil.Process, re.Match[str]]]:
    """Serve a directory by a process of its own; yield it with what it says when it has begun."""
    command = [sys.executable, "-m", "eventproc", "-C", str(task.directory), "serve"]
    command += ["--controller-port", "0", "--segment-store-port", "0", *options]
    process = await anyio.to_thread.run_sync(_start, command)
    try:
        said = await anyio.to_thread.run_sync(_said, process, says)
        yield psutil.Process(process.pid), said
    finally:
        process.kill()
        process.wait()


async def _make_stream(task: Task, events: int = 0) -> None:
    async with eventproc.open(task.directory, durability=_durability(task)) as ep:
        await ep.create_scope("benchmark")
        stream = await ep.create_stream(STREAM)
        async with stream.writer() as writer:
            for _ in range(events):
                await writer.post(bytes(PAYLOAD_BYTES))


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def _said(process: subprocess.Popen[str], says: re.Pattern[str]) -> re.Match[str]:
    assert process.stderr is not None
    for line in process.stderr:
        if match := says.search(line):
            return match
    raise AssertionError("the server has not begun")


def _durability(task: Task) -> eventproc.Durability:
    return eventproc.Durability.FSYNC if task.durability == "fsync" else eventproc.Durability.OS


async def write(task: Task) -> Sample:
    """Write with a thousand events of the client in flight, until all are acknowledged."""
    async with _serving(task) as server:
        cpu_s = server.cpu_s()
        seconds = await _client(task, server.controller)
        return server.sample(task.count / seconds, cpu_s, task.count)


async def _client(task: Task, controller: int) -> float:
    """Let the unmodified client write; return the seconds that it took. controller: its port."""
    command = [sys.executable, "-c", _CLIENT, str(controller), str(task.count), str(IN_FLIGHT)]
    said = (await anyio.run_process(command)).stdout.decode()  # the client logs there too
    return float(said.rpartition(_SAID)[2])


async def write_cpu(task: Task) -> Sample:
    """The same; the server's CPU time of an event, in us."""
    done = await write(task)
    return attrs.evolve(done, value=done.cpu_us)


async def write_cpu_floor(task: Task) -> Sample:
    """The CPU time of an event of `write_floor`, in us."""
    done = await write_floor(task)
    return attrs.evolve(done, value=done.cpu_us)


async def write_floor(task: Task) -> Sample:
    """Commit the bytes of a block one after the other, each through one crossing to a thread and back."""
    count = task.count // BLOCK_EVENTS
    done = await inserts(attrs.evolve(task, count=count), _EVENT * BLOCK_EVENTS, callers=1)
    return attrs.evolve(done, value=done.value * BLOCK_EVENTS, cpu_us=done.cpu_us / BLOCK_EVENTS)


async def write_bare(task: Task) -> Sample:
    """Let the client write to a bare loop: commit each block as it came, through one crossing to a thread."""
    await _make_stream(task)
    address, seconds = ("127.0.0.1", 0), 0.0
    commits = Commits(task.directory, task.durability)
    async with (
        eventproc.open(task.directory) as ep,
        await anyio.create_tcp_listener(local_host=address[0]) as listener,
        anyio.create_task_group() as tasks,
    ):
        place = address[0], int(listener.extra(anyio.abc.SocketAttribute.local_port))
        tasks.start_soon(listener.serve, partial(_acknowledge, commits))
        async with serving_containers(ep.db, place, address) as containers:
            listening = listen_at(*address, 100)
            async with serving_controller(Controller(ep.db, containers, Authority(ep.db)), listening):
                seconds = await _client(task, listening.getsockname()[1])
        tasks.cancel_scope.cancel()
    commits.close()
    return Sample(task.count / seconds, 0, 0)


async def _acknowledge(commits: Commits, stream: anyio.abc.SocketStream) -> None:
    """Serve a connection that writes: answer its set-up, and commit and acknowledge its blocks."""
    caller, last = WireCaller(stream), c.NO_EVENT_NUMBER
    with suppress(anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError):
        async with stream:
            while True:
                command = await caller.receive()
                if isinstance(command, c.Hello):
                    await caller.send(command)
                elif isinstance(command, c.SetupAppend):
                    last = c.NO_EVENT_NUMBER
                    await caller.send(
                        c.AppendSetup(command.request_id, command.segment, command.writer, last)
                    )
                elif isinstance(command, c.AppendBlockEnd):
                    await commits.insert(command.data)
                    number = command.last_event_number
                    await caller.send(c.DataAppended(command.writer, number, last, command.request_id, 0))
                    last = number


async def read(task: Task) -> Sample:
    """Read what was written, from the first event to the last."""
    async with _serving(task, events=task.count) as server, server.calling() as caller:
        described = await caller.ask(c.GetStreamSegmentInfo(1, SEGMENT), c.StreamSegmentInfo)
        cpu_s, begun, offset = server.cpu_s(), perf_counter(), 0
        while offset < described.write_offset:
            offset += len((await caller.ask(c.ReadSegment(SEGMENT, offset, READ_BYTES), c.SegmentRead)).data)
        return server.sample(task.count / (perf_counter() - begun), cpu_s, task.count)


async def read_floor(task: Task) -> Sample:
    """Read as many bytes through a socket of this machine."""
    piece, total, seconds = bytes(READ_BYTES), task.count * len(_EVENT), 0.0
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:

        async def answer(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                while await stream.receive(1):
                    await stream.send(piece)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                received, begun = BufferedByteReceiveStream(stream), perf_counter()
                for _ in range(0, total, READ_BYTES):
                    await stream.send(b"x")
                    await received.receive_exactly(READ_BYTES)
                seconds = perf_counter() - begun
            tasks.cancel_scope.cancel()
    return Sample(task.count / seconds, 0, 0)


async def transactions_floor(task: Task) -> Sample:
    """One commit for each, one after the other: the bytes of the events in a row; the mean in ms."""
    done = await inserts(task, _EVENT * TXN_EVENTS, callers=1)
    return attrs.evolve(done, value=1000 / done.value)


async def transactions(task: Task) -> Sample:
    """Begin a transaction, write ten events, commit it, and ask until they are visible; the median in ms."""
    taken: list[float] = []
    async with _serving(task) as server, server.calling() as caller:
        controller = _Controller(server.controller)
        try:
            cpu_s = server.cpu_s()
            for _ in range(task.count):
                begun = perf_counter()
                await _transaction(controller, caller)
                taken.append(1000 * (perf_counter() - begun))
        finally:
            controller.close()
        return server.sample(median(taken), cpu_s, task.count)


async def polls(task: Task) -> Sample:
    """Let a hundred reads wait at the tail for `count` ms; what the server uses meanwhile, in % of a core."""
    async with _serving(task) as server, server.calling() as caller:
        for number in range(POLLS_COUNT):
            await caller.send(c.ReadSegment(SEGMENT, 0, READ_BYTES, "", number))
        await anyio.sleep(1)  # until they wait
        cpu_s, begun = server.cpu_s(), perf_counter()
        await anyio.sleep(task.count / 1000)
        seconds = perf_counter() - begun
        return server.sample(100 * (server.cpu_s() - cpu_s) / seconds, cpu_s, seconds)


class _Controller:
    """Calls of the controller about the stream."""

    def __init__(self, port: int) -> None:
        self._channel = Channel("127.0.0.1", port)
        service = f"/{SERVICE.full_name}/"
        self._begin = UnaryUnaryMethod(
            self._channel, f"{service}createTransaction", pb.CreateTxnRequest, pb.CreateTxnResponse
        )
        self._commit = UnaryUnaryMethod(
            self._channel, f"{service}commitTransaction", pb.TxnRequest, pb.TxnStatus
        )
        self._state = UnaryUnaryMethod(
            self._channel, f"{service}checkTransactionState", pb.TxnRequest, pb.TxnState
        )
        scope, _, stream = STREAM.partition("/")
        self._info = pb.StreamInfo(scope=scope, stream=stream)

    async def begin(self) -> pb.TxnId:
        """Return the id of a new transaction."""
        return (await self._begin(pb.CreateTxnRequest(streamInfo=self._info, lease=10_000))).txnId

    async def commit(self, txn: pb.TxnId) -> None:
        """Commit a transaction, and return when its events are visible."""
        request = pb.TxnRequest(streamInfo=self._info, txnId=txn)
        await self._commit(request)
        while (await self._state(request)).state != pb.TxnState.COMMITTED:
            pass

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


async def _transaction(controller: _Controller, caller: WireCaller) -> None:
    txn = await controller.begin()
    name = f"{SEGMENT}#transaction.{txn.highBits & (2**64 - 1):016x}{txn.lowBits & (2**64 - 1):016x}"
    await caller.ask(c.SetupAppend(1, WRITER, name), c.AppendSetup)
    data = _EVENT * TXN_EVENTS
    await caller.ask(c.AppendBlockEnd(WRITER, len(data), data, TXN_EVENTS, TXN_EVENTS, 1), c.DataAppended)
    await controller.commit(txn)
