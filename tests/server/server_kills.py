"""Servers that are killed and suspended under load: `python -m tests.server.server_kills KILLS [SEED [MIB [tls]]]`.

Three processes of `eventproc serve` share a directory. Clients write, read and commit transactions, and scale and
create streams over REST, while the servers are killed with SIGKILL, suspended, and started again. With MIB, the
directory lies on a device of that size, which is full from time to time; with "tls", all connections are encrypted. At
the end, each acknowledged event is stored once, in the order of its key; each transaction completely or not at all;
each change that REST acknowledged, once.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import attrs
from anyio import to_thread

import eventproc
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import txn_id_of
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import FRAME_HEAD
from eventproc.server.wire.segment_names import segment_name
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.testing import check
from tests.server.kills_client import (
    LOST,
    PAUSE_S,
    REPLY_S,
    KeyWriter,
    SegmentGone,
    SegmentWriter,
    ServerAddresses,
    ServerCertificate,
    close,
    info_of,
    range_of,
)
from tests.server.support import ServerProcess
from tests.support.torture import STALL_S, KeyAccount, SmallDevice, Torture, TortureReport, run_torture

SERVERS: Final = 3
WRITERS: Final = 6
TRANSACTORS: Final = 3
EVENTS, TXNS = "s/events", "s/txns"
OWN: Final = "/eventproc/v1/streams"
SEGMENTS_MIN: Final = 3
SEGMENTS_MAX: Final = 6

SCALE_S: Final = 0.5
"""Pause between two changes over REST."""

LEASE_MS: Final = 20_000


@attrs.define
class ServerKillsReport(TortureReport):
    """What happened. left: transactions that ended without their client's wish, because a lease ended."""

    acknowledged: int = 0
    committed: int = 0
    aborted: int = 0
    left: int = 0
    scales: int = 0
    streams: int = 0
    read: int = 0


class ServerKills:
    """The directory of one run, its servers, its clients, and what was acknowledged."""

    def __init__(
        self, folder: Path, *, kills: int, seed: int, device: SmallDevice | None = None, tls: bool = False
    ) -> None:
        self.report = ServerKillsReport()
        self._path = (folder if device is None else device.folder) / "streams"
        self._device = device
        self._torture = Torture(self.report, kills=kills, seed=seed)
        self._random = self._torture.random
        self._servers = ServerAddresses(Random(seed + 1), [], ServerCertificate(folder) if tls else None)
        self._written: dict[str, int] = {}
        self._outcomes: dict[str, bool] = {}
        self._created: set[str] = set()
        self._read = KeyAccount()
        self._done_segments: set[int] = set()
        self._begun_segments: set[int] = set()

    async def run(self) -> ServerKillsReport:
        """Kill so many servers, check everything, and return what happened. Raises AssertionError."""
        async with eventproc.open(self._path, durability="os") as ep:
            await ep.create_scope("s")
            for name in (EVENTS, TXNS):
                await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(SEGMENTS_MIN))
        try:
            for _ in range(SERVERS):
                self._servers.servers.append(await to_thread.run_sync(self._start, (0, 0)))
            async with anyio.create_task_group() as reading:
                reading.start_soon(self._read_all, reading)
                async with anyio.create_task_group() as clients:
                    for number in range(WRITERS):
                        clients.start_soon(self._write, f"w{number}")
                    for number in range(TRANSACTORS):
                        clients.start_soon(self._transact, f"t{number}")
                    clients.start_soon(self._change)
                    async with anyio.create_task_group() as disturbing:
                        disturbing.start_soon(self._torture.disturb, self._servers.servers, self._replace)
                        if self._device is not None:
                            disturbing.start_soon(self._torture.fill, self._device)
                    self._torture.ended = True
                await self._wait_read()
                reading.cancel_scope.cancel()
            await self._check_changes()
            for server in self._servers.servers:
                code = await to_thread.run_sync(server.end, signal.SIGTERM)
                assert code == 0, f"a server ended with {code}"
        finally:
            for server in self._servers.servers:
                server.end(signal.SIGKILL)
        await self._check_streams()
        return self.report

    def _start(self, ports: tuple[int, int]) -> ServerProcess:
        certificate = self._servers.certificate
        options = [] if certificate is None else certificate.options
        return ServerProcess(self._path, *options, ports=ports, rest=True)

    def _replace(self, killed: ServerProcess) -> ServerProcess:
        return self._start(killed.ports)

    # Clients.

    async def _write(self, key: str) -> None:
        """Write numbered events of one key."""
        writer = KeyWriter(self._servers, EVENTS, key)
        while not self._torture.ended:
            first = self._written.get(key, 0)
            numbers = range(first, first + self._random.randint(1, 20))
            await writer.append([f"{key}:{number}".encode() for number in numbers], numbers[-1])
            self._written[key] = numbers.stop
            self._torture.step(key)
        await writer.leave()

    async def _transact(self, client: str) -> None:
        """Commit or abort transactions of some keys, one after the other."""
        turn = 0
        while not self._torture.ended:
            turn += 1
            info = info_of(TXNS)
            made = await self._servers.call(
                "createTransaction", pb.CreateTxnRequest(streamInfo=info, lease=LEASE_MS)
            )
            request = pb.TxnRequest(streamInfo=info, txnId=made.txnId)
            commits = self._random.random() < 0.8
            try:
                for number in range(3):
                    await self._stage(made, f"{client}.{number}", turn)
            except SegmentGone:  # its lease ended while servers were suspended
                commits = False
            await self._servers.call("commitTransaction" if commits else "abortTransaction", request)
            is_committed = await self._outcome(request)
            assert commits or not is_committed, f"{client}: transaction {turn} was not to be committed"
            self._outcomes[f"{client}:{turn}"] = is_committed
            self.report.left += commits and not is_committed
            self._torture.step(client)

    async def _stage(self, made: Any, key: str, turn: int) -> None:
        found = range_of(made.activeSegments, key).segmentId.segmentId
        txn = f"#transaction.{txn_id_of(made.txnId)}"
        writer = SegmentWriter(self._servers, TXNS, found, self._servers.random.randbytes(16), txn)
        try:
            for number in range(2):
                await writer.append([f"{key}:{turn}:{number}".encode()], number)
        finally:
            await writer.leave()

    async def _outcome(self, request: pb.TxnRequest) -> bool:
        until = time.monotonic() + STALL_S
        while True:
            found = (await self._servers.call("checkTransactionState", request)).state
            if found in (pb.TxnState.COMMITTED, pb.TxnState.ABORTED):
                return bool(found == pb.TxnState.COMMITTED)
            assert found != pb.TxnState.UNKNOWN, "a transaction is forgotten"
            assert time.monotonic() < until, f"a transaction stays {pb.TxnState.State.Name(found)}"
            await anyio.sleep(PAUSE_S)

    async def _change(self) -> None:
        """Scale the streams over REST, and create others."""
        while not self._torture.ended:
            await anyio.sleep(SCALE_S)
            if self._random.random() < 0.3:
                name = f"made-{len(self._created)}"
                answer = await self._servers.rest("POST", "/v1/scopes/s/streams", {"streamName": name})
                assert answer.status_code == 201, answer.text
                self._created.add(name)
            else:
                await self._scale(EVENTS if self._random.random() < 0.7 else TXNS)

    async def _scale(self, stream: str) -> None:
        """Split a segment, or merge two neighbours. Transactions may have replaced the segments meanwhile."""
        found = sorted(await self._servers.current(stream), key=lambda each: each.minKey)
        ids = [format_segment(SegmentId(each.segmentId.segmentId)) for each in found]
        place = self._random.randrange(len(ids) - 1)
        if len(ids) <= SEGMENTS_MIN or (len(ids) < SEGMENTS_MAX and self._random.random() < 0.6):
            answer = await self._servers.rest("POST", f"{OWN}/{stream}/split", {"segment": ids[place]})
        else:
            body = {"segments": ids[place : place + 2]}
            answer = await self._servers.rest("POST", f"{OWN}/{stream}/merge", body)
        assert answer.status_code == 200 or stream == TXNS, answer.text
        if stream == EVENTS:
            self.report.scales += 1

    # Readers.

    async def _read_all(self, tasks: anyio.abc.TaskGroup) -> None:
        """Read the segments of the first epoch, and, as each ends, its successors."""
        found = await self._servers.call("getSegments", pb.GetSegmentsRequest(streamInfo=info_of(EVENTS)))
        for each in found.segments:
            assert each.offset == 0
            self._begun_segments.add(each.segmentId.segmentId)
            tasks.start_soon(self._read_segment, tasks, each.segmentId.segmentId)

    async def _read_segment(self, tasks: anyio.abc.TaskGroup, segment: int) -> None:
        name, offset, rest, is_over = segment_name(EVENTS, SegmentId(segment)), 0, b"", False
        while not is_over:
            try:
                peer = await self._servers.connect(EVENTS, segment)
            except LOST:
                continue
            try:
                while not is_over:
                    with anyio.fail_after(REPLY_S):
                        await peer.send(c.ReadSegment(name, offset, 65_536, "", offset))
                        reply = await peer.take()
                    if isinstance(reply, c.WrongHost):
                        break
                    assert isinstance(reply, c.SegmentRead) and reply.offset == offset, reply
                    offset, is_over = offset + len(reply.data), reply.end_of_segment
                    rest = self._take(rest + reply.data)
            except LOST:
                await anyio.sleep(PAUSE_S)
            finally:
                await close(peer)
        assert rest == b"", "a segment ends within an event"
        self._done_segments.add(segment)
        asked = pb.SegmentId(streamInfo=info_of(EVENTS), segmentId=segment)
        for each in (await self._servers.call("getSegmentsImmediatelyFollowing", asked)).segments:
            successor = each.segment.segmentId.segmentId
            if self._done_segments.issuperset(each.value) and successor not in self._begun_segments:
                self._begun_segments.add(successor)
                tasks.start_soon(self._read_segment, tasks, successor)

    def _take(self, data: bytes) -> bytes:
        """Count the events, each of which must be the next one of its key; return what is left."""
        while len(data) >= FRAME_HEAD.size:
            _, length = FRAME_HEAD.unpack_from(data)
            end = FRAME_HEAD.size + length
            if len(data) < end:
                break
            self._torture.step("reader")
            key, _, number = data[FRAME_HEAD.size : end].decode().partition(":")
            self._read.take(key, int(number))
            self.report.read += 1
            data = data[end:]
        return data

    async def _wait_read(self) -> None:
        """Wait until the reader has all that was acknowledged. Raises AssertionError."""
        while self._read.counts != self._written:
            await self._torture.wait_steps()

    # Accounts.

    async def _check_changes(self) -> None:
        """Compare what REST shows with what it acknowledged."""
        listed = (await self._servers.rest("GET", "/v1/scopes/s/streams")).json()["streams"]
        assert {each["streamName"] for each in listed} == {"events", "txns", *self._created}
        self.report.streams = len(self._created)

    async def _check_streams(self) -> None:
        async with eventproc.open(self._path) as ep:
            await check(ep.db)
            stream = await ep.stream(EVENTS)
            assert len(await stream.epochs()) == 1 + self.report.scales, "each scale happens once"
            events, stored = await _payloads(ep, EVENTS), KeyAccount()
            for key, number in events:
                stored.take(key, int(number))
            assert stored.counts == self._written
            self.report.acknowledged = len(events)
            self._check_transactions(await _payloads(ep, TXNS))

    def _check_transactions(self, stored: list[tuple[str, str]]) -> None:
        by_key: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for key, rest in stored:
            turn, _, number = rest.partition(":")
            by_key[key].append((int(turn), int(number)))
        wanted: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, is_committed in self._outcomes.items():
            client, _, turn = name.partition(":")
            self.report.committed += is_committed
            self.report.aborted += not is_committed
            for place in range(3 if is_committed else 0):
                wanted[f"{client}.{place}"] += [(int(turn), 0), (int(turn), 1)]
        assert by_key == wanted, "each committed transaction is stored once, in order, and no other one"


async def _payloads(ep: eventproc.Eventproc, name: str) -> list[tuple[str, str]]:
    """Return (key, rest) of all events, those of each key in the order of reading."""
    stream = await ep.stream(name)
    async with stream.reader() as reader:
        texts = [event.payload.decode() async for event in reader.until(await stream.tail())]
    return [(key, rest) for key, _, rest in (text.partition(":") for text in texts)]


def main(kills: str, seed: str = "1", mib: str = "0", tls: str = "") -> None:
    async def run(folder: Path, device: SmallDevice | None) -> ServerKillsReport:
        return await ServerKills(
            folder, kills=int(kills), seed=int(seed), device=device, tls=tls == "tls"
        ).run()

    run_torture("server-kills", int(seed), int(mib), run)


if __name__ == "__main__":
    main(*sys.argv[1:])
