"""Clients of servers that are killed: each call is repeated, at any server, until it has an answer.

They speak gRPC, the segment store's protocol and REST, and do what Pravega's clients do after a failure: ask where the
segment is, set the writer up, learn from the server what is stored, and send the rest.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import attrs
import httpx
import trustme
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from eventproc.base.clock import SystemClock, new_id
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import Message
from eventproc.server.wire.segment_names import segment_name
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.routing import point
from tests.server.support import ServerProcess
from tests.server.test_endpoints import connecting
from tests.server.wire_peer import WirePeer, block

REPLY_S: Final = 5
"""How long a client waits for a reply. A server may be suspended; then the client tries again, perhaps elsewhere."""

PAUSE_S: Final = 0.05
"""Pause before a call is repeated."""

LEFT_SHARE: Final = 0.02
"""Share of the blocks after which a writer leaves, as if its process was killed, and does not know what was stored."""

LOST: Final = (OSError, TimeoutError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError)
"""What a connection ends with."""

AGAIN: Final = (Status.UNAVAILABLE, Status.CANCELLED, Status.DEADLINE_EXCEEDED)


class ServerCertificate:
    """A certificate for servers of this machine, and what their clients trust. options: of `eventproc serve`."""

    def __init__(self, folder: Path) -> None:
        authority, certificate, key = trustme.CA(), folder / "cert.pem", folder / "key.pem"
        issued = authority.issue_cert("127.0.0.1", "localhost")
        certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        self.options = ["--certificate", str(certificate), "--key", str(key)]
        self.tls, self.http2 = (ssl.create_default_context() for _ in range(2))
        for each in (self.tls, self.http2):
            authority.configure_trust(each)
        self.http2.set_alpn_protocols(["h2"])


@attrs.define
class ServerAddresses:
    """The running servers of a directory, and the calls that any of them may answer.

    certificate: of the servers; None: connections are not encrypted.
    """

    random: Random
    servers: list[ServerProcess]
    certificate: ServerCertificate | None = None

    async def call(self, name: str, request: Any) -> Any:
        """Return the answer of the controller of any server."""
        http2 = None if self.certificate is None else self.certificate.http2
        while True:
            port = self.random.choice(self.servers).port
            try:
                with anyio.fail_after(REPLY_S):
                    async with connecting(port, http2) as client:
                        return await client.call(name, request)
            except GRPCError as why:
                if why.status not in AGAIN:
                    raise
            except (OSError, TimeoutError, StreamTerminatedError):
                pass
            except (
                AttributeError
            ) as why:  # what grpclib says if the connection was lost before the request is sent
                if why.name != "_transport":
                    raise
            await anyio.sleep(PAUSE_S)

    async def rest(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Return the answer of REST at any server. All calls have the same key, and change something once."""
        headers = {"Idempotency-Key": new_id(SystemClock())}
        verify = True if self.certificate is None else self.certificate.tls
        while True:
            base = self.random.choice(self.servers).rest
            try:
                async with httpx.AsyncClient(
                    base_url=base, timeout=REPLY_S, trust_env=False, verify=verify
                ) as http:
                    answer = await http.request(method, path, json=body, headers=headers)
                if answer.status_code not in (202, 503, 504, 507):
                    return answer
            except httpx.TransportError:
                pass
            await anyio.sleep(PAUSE_S)

    async def current(self, stream: str) -> list[pb.SegmentRange]:
        """Return the active segments."""
        found = await self.call("getCurrentSegments", info_of(stream))
        ranges: list[pb.SegmentRange] = list(found.segmentRanges)
        return ranges

    async def connect(self, stream: str, segment: int) -> WirePeer:
        """Return a connection to the owner of a segment. Raises one of LOST."""
        asked = pb.SegmentId(streamInfo=info_of(stream), segmentId=segment)
        node = await self.call("getURI", asked)
        with anyio.fail_after(REPLY_S):
            if self.certificate is None:
                peer = WirePeer(await anyio.connect_tcp(node.endpoint, node.port))
            else:
                encrypted = await anyio.connect_tcp(
                    node.endpoint,
                    node.port,
                    ssl_context=self.certificate.tls,
                    tls_standard_compatible=False,
                )
                peer = WirePeer(encrypted)
            try:
                await peer.ask(c.Hello(15, 5), c.Hello)
            except BaseException:
                await close(peer)
                raise
        return peer


async def close(peer: WirePeer) -> None:
    """Close a connection without waiting for its server, which may be suspended; also when this task is cancelled."""
    with anyio.CancelScope(shield=True):
        await peer.stream.aclose()


def info_of(stream: str) -> pb.StreamInfo:
    scope, _, name = stream.partition("/")
    return pb.StreamInfo(scope=scope, stream=name)


def range_of(ranges: Sequence[pb.SegmentRange], key: str) -> pb.SegmentRange:
    """Return the segment that takes the events of a key."""
    place = point(key)
    return next(each for each in ranges if each.minKey <= place < each.maxKey)


class SegmentGone(Exception):
    """The segment takes no more events, and has none of the last block."""


class SegmentWriter:
    """A writer of one segment, which may be that of a transaction."""

    def __init__(
        self, servers: ServerAddresses, stream: str, segment: int, writer: bytes, txn: str = ""
    ) -> None:
        self._servers = servers
        self._stream = stream
        self._segment = segment
        self._writer = writer
        self._txn = txn
        self._peer: WirePeer | None = None

    async def append(self, payloads: Sequence[bytes], last: int) -> None:
        """Return when the events, the last of which has this number, are stored. Raises SegmentGone."""
        while True:
            try:
                if self._peer is None and await self._set_up() >= last:
                    return
                match await self._send(block(*payloads, last=last, writer=self._writer)):
                    case c.DataAppended() as done:
                        assert done.event_number == last, done
                        return
                    case c.SegmentIsSealed() | c.NoSuchSegment():
                        await self.leave()
                        raise SegmentGone
                    case c.WrongHost():
                        pass
                    case reply:
                        raise AssertionError(reply)
            except LOST:
                pass
            await self.leave()
            await anyio.sleep(PAUSE_S)

    async def leave(self) -> None:
        """Close the connection."""
        if self._peer is not None:
            peer, self._peer = self._peer, None
            await close(peer)

    async def _set_up(self) -> int:
        """Connect, and return the number of the last event that is stored, -1 for none. Raises SegmentGone."""
        name = segment_name(self._stream, SegmentId(self._segment))
        self._peer = await self._servers.connect(self._stream, self._segment)
        match await self._send(c.SetupAppend(1, self._writer, f"{name}{self._txn}")):
            case c.AppendSetup() as done:
                return max(done.last_event_number, -1)
            case c.NoSuchSegment():
                await self.leave()
                raise SegmentGone
            case c.WrongHost() as why:
                raise OSError(why)
            case reply:
                raise AssertionError(reply)

    async def _send(self, command: Message) -> Message:
        assert self._peer is not None
        with anyio.fail_after(REPLY_S):
            await self._peer.send(command)
            if self._servers.random.random() < LEFT_SHARE:
                raise OSError("the writer leaves")
            return await self._peer.take()


class KeyWriter:
    """A writer of one key of a stream, which follows its segments."""

    def __init__(self, servers: ServerAddresses, stream: str, key: str) -> None:
        self._servers = servers
        self._stream = stream
        self._key = key
        self._writer = servers.random.randbytes(16)
        self._segment: SegmentWriter | None = None

    async def append(self, payloads: Sequence[bytes], last: int) -> None:
        """Return when the events, the last of which has this number, are stored."""
        while True:
            if self._segment is None:
                found = range_of(await self._servers.current(self._stream), self._key)
                segment = found.segmentId.segmentId
                self._segment = SegmentWriter(self._servers, self._stream, segment, self._writer)
            try:
                await self._segment.append(payloads, last)
            except SegmentGone:
                self._segment = None
                continue
            return

    async def leave(self) -> None:
        """Close the connection."""
        if self._segment is not None:
            await self._segment.leave()
