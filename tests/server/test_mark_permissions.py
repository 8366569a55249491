"""Which users note times, and which read the marks that follow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from eventproc import Eventproc
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.wire import commands as c
from tests.server.access_support import READ, UPDATE, add_user
from tests.server.test_key_value_tables import JavaClient, serving
from tests.server.wire_peer import WRITER, WirePeer

STREAM = pb.StreamInfo(scope="s", stream="t")
LOG = pb.StreamInfo(scope="s", stream="_MARKt")
MARKS = "s/_MARKt/0.#epoch.0"


async def is_denied(client: JavaClient, name: str, request: Any) -> None:
    with pytest.raises(GRPCError) as denied:
        await client.call(name, request)
    assert denied.value.status is Status.PERMISSION_DENIED, name


@asynccontextmanager
async def peer_of(client: JavaClient) -> AsyncIterator[WirePeer]:
    node = await client.call("getURI", pb.SegmentId(streamInfo=LOG, segmentId=0))
    async with await anyio.connect_tcp(node.endpoint, node.port) as stream:
        peer = WirePeer(stream)
        await peer.ask(c.Hello(17, 5), c.Hello)
        yield peer


async def test_the_permission_to_read_a_stream_allows_its_marks_and_no_notes(ep: Eventproc) -> None:
    await ep.create_stream("s/t")
    position = pb.StreamCut(streamInfo=STREAM, cut={0: 0})
    noted = pb.TimestampFromWriter(writer="a", timestamp=1, position=position)
    removed = pb.RemoveWriterRequest(writer="a", stream=STREAM)
    writer = await ep.db.write(lambda tx: add_user(tx, "ann", (UPDATE, "s/t")))
    reader = await ep.db.write(lambda tx: add_user(tx, "bob", (READ, "s/t")))
    other = await ep.db.write(lambda tx: add_user(tx, "eve", (UPDATE, "s/u")))
    async with serving(ep, writer) as client:
        assert (await client.call("noteTimestampFromWriter", noted)).result == pb.TimestampResponse.SUCCESS
        token = (await client.call("getDelegationToken", LOG)).delegationToken
        async with peer_of(client) as peer:
            refusal = await peer.ask(c.SetupAppend(7, WRITER, MARKS, token), c.ErrorMessage)
            assert refusal.text.endswith("only the controller writes marks of time")
    async with serving(ep, reader) as client:
        assert len((await client.call("getCurrentSegments", LOG)).segmentRanges) == 1
        await is_denied(client, "noteTimestampFromWriter", noted)
        await is_denied(client, "removeWriter", removed)
        token = (await client.call("getDelegationToken", LOG)).delegationToken
        async with peer_of(client) as peer:
            found = await peer.ask(c.GetStreamSegmentInfo(7, MARKS, token), c.StreamSegmentInfo)
            assert found.write_offset > 0
            await peer.ask(c.SetupAppend(7, WRITER, MARKS, token), c.AuthTokenCheckFailed)
            await peer.ask(c.TruncateSegment(7, MARKS, 1, token), c.AuthTokenCheckFailed)
    async with serving(ep, other) as client:
        for name in ("getCurrentSegments", "getDelegationToken"):
            await is_denied(client, name, LOG)
        await is_denied(client, "getURI", pb.SegmentId(streamInfo=LOG, segmentId=0))
