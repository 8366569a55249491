"""The endpoints of one process: which ports they take, what their end waits for, and how large requests may be."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.wrappers_pb2 import BytesValue
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from eventproc.runtime import Eventproc
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.catalog_calls import CatalogCalls
from eventproc.server.controller.service import SERVICE
from eventproc.server.controller.serving import REQUEST_BYTES_MAX
from eventproc.server.endpoints import Addresses, serve_endpoints
from eventproc.server.listening import listen_at
from eventproc.testing.crash import PATIENCE_S

ANY_PORTS = Addresses(controller_port=0, segment_store_port=0)


class Client:
    """Calls methods of the controller over a connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def call(self, name: str, request: Any) -> Any:
        method = SERVICE.methods_by_name[name]
        path = f"/{SERVICE.full_name}/{name}"
        kinds = type(request), GetMessageClass(method.output_type)
        return await UnaryUnaryMethod(self._channel, path, *kinds)(request, timeout=PATIENCE_S)


@asynccontextmanager
async def connecting(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    channel = Channel("127.0.0.1", port, ssl=tls)
    try:
        yield Client(channel)
    finally:
        channel.close()


@pytest.mark.parametrize("taken", ["controller", "segment store"])
async def test_a_port_in_use_is_an_error_of_the_system(ep: Eventproc, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
        ports = (port, 0) if taken == "controller" else (0, port)
        with pytest.raises(OSError, match="in use"):
            async with serve_endpoints(ep, Addresses("127.0.0.1", *ports)):
                pass


def test_an_answer_does_not_wait_for_the_acknowledgement_of_the_packet_before() -> None:
    with listen_at("127.0.0.1", 0, 1) as listening, socket.create_connection(listening.getsockname()):
        connection, _ = listening.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_an_error_of_the_block_is_raised_as_it_is(ep: Eventproc) -> None:
    with pytest.raises(ZeroDivisionError):
        async with serve_endpoints(ep, ANY_PORTS):
            raise ZeroDivisionError


async def test_the_end_lets_a_running_call_finish_and_refuses_new_ones(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end = anyio.Event(), anyio.Event()
    exists = CatalogCalls.scope_exists

    async def slow(self: CatalogCalls, request: pb.ScopeInfo) -> pb.ExistsResponse:
        has_begun.set()
        await may_end.wait()
        return await exists(self, request)

    monkeypatch.setattr(CatalogCalls, "scope_exists", slow)
    answers: list[bool] = []
    async with anyio.create_task_group() as tasks:
        async with serve_endpoints(ep, ANY_PORTS) as bound:
            client = await tasks.start(keep_connected, bound.controller_port)

            async def ask() -> None:
                answers.append((await client.call("checkScopeExists", pb.ScopeInfo(scope="s"))).exists)

            async def ask_late() -> None:
                assert await call_until_refused(client) is Status.UNAVAILABLE
                may_end.set()

            tasks.start_soon(ask)
            await has_begun.wait()
            tasks.start_soon(ask_late)
        assert answers == [True]
        with pytest.raises((OSError, StreamTerminatedError)):
            await client.call("getURI", pb.SegmentId())
        tasks.cancel_scope.cancel()


async def call_until_refused(client: Client) -> Status:
    while True:
        try:
            await client.call("getURI", pb.SegmentId())
        except GRPCError as why:
            return why.status


async def keep_connected(port: int, *, task_status: TaskStatus[Client]) -> None:
    async with connecting(port) as client:
        task_status.started(client)
        await anyio.sleep_forever()


async def test_a_request_that_is_too_large_is_refused_and_the_connection_serves_on(ep: Eventproc) -> None:
    async with serve_endpoints(ep, ANY_PORTS) as bound, connecting(bound.controller_port) as client:
        with pytest.raises(GRPCError) as refused:
            await client.call("createScope", pb.ScopeInfo(scope="x" * (REQUEST_BYTES_MAX + 1)))
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert (await client.call("getURI", pb.SegmentId())).port == bound.segment_store_port


async def test_a_request_that_cannot_be_read_is_refused_and_is_no_error_of_the_server(
    ep: Eventproc, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_endpoints(ep, ANY_PORTS) as bound, connecting(bound.controller_port) as client:
        with pytest.raises(GRPCError, match="cannot be read") as refused:
            await client.call("createScope", BytesValue(value=b"\xff is no text"))
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert (await client.call("getURI", pb.SegmentId())).port == bound.segment_store_port
    assert not [each for each in caplog.records if each.exc_info]
