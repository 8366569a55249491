"""Idle, slow and too many connections of the controller and of REST."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial

import anyio
import httpx
import pytest
from anyio import to_thread
from anyio.abc import SocketStream
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from h2.connection import H2Connection
from h2.events import ResponseReceived, StreamEnded
from starlette.types import Message, Receive, Scope, Send

from eventproc.base.kernel import STUCK_TIMEOUT
from eventproc.runtime import Eventproc
from eventproc.server import endpoints, listening as listening_sockets
from eventproc.server.controller import controller_pb2 as pb, service, serving
from eventproc.server.controller.catalog_calls import CatalogCalls
from eventproc.server.endpoints import Addresses, serve_endpoints
from eventproc.server.listening import BoundedListener, listen_at
from eventproc.server.rest import application, listener
from eventproc.testing.crash import PATIENCE_S
from tests.server.test_endpoints import Client, connecting
from tests.server.test_many_connections import allocated, until, verify_flat

EVERYTHING = Addresses(controller_port=0, segment_store_port=0, rest=("127.0.0.1", 0))
SCOPE = pb.ScopeInfo(scope="s")

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", f"/{service.SERVICE.full_name}/checkScopeExists"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]
"""Of a call."""

FIRST_FREE_FD = 900
"""Number of a file of this process that no test opens."""

IDLE = 100
SLOW = 10

IDLE_BYTES_MAX = 150_000
"""Python's memory for an idle connection of the controller with one of REST, each with its other end."""


@contextmanager
def listening(connections_max: int) -> Iterator[BoundedListener]:
    with listen_at("127.0.0.1", 0, connections_max) as listening:
        listening.setblocking(False)
        yield listening


def test_a_connection_beyond_the_bound_is_closed_and_the_next_one_may_come_when_another_has_gone() -> None:
    with listening(1) as bounded, PeerSockets() as peers:
        peers.connect(bounded)
        first, _ = bounded.accept()
        refused = peers.connect(bounded)
        with pytest.raises(BlockingIOError):
            bounded.accept()
        assert refused.recv(1) == b""
        assert bounded.connections == 1
        first.close()
        peers.connect(bounded)
        second, _ = bounded.accept()
        assert bounded.connections == 1
        second.close()
        assert bounded.connections == 0


async def test_a_client_that_comes_before_the_server_waits_at_the_socket_that_systemd_holds(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as held:
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        monkeypatch.setenv("LISTEN_FDS", "2")
        os.dup2(other.fileno(), FIRST_FREE_FD)
        os.dup2(held.fileno(), FIRST_FREE_FD + 1)
        monkeypatch.setattr(listening_sockets, "FIRST_FD", FIRST_FREE_FD)
        port: int = held.getsockname()[1]
        try:
            for _ in range(2):  # the second one is a server that was started again
                with socket.create_connection(("127.0.0.1", port)) as early:
                    early.settimeout(PATIENCE_S)
                    async with serve_endpoints(ep, Addresses("127.0.0.1", port, 0)) as bound:
                        assert bound.controller_port == port
                        async with connecting(port) as client:
                            assert await exists(client)
                        assert await to_thread.run_sync(early.recv, 9), "the settings of HTTP/2"
        finally:
            os.close(FIRST_FREE_FD)
            os.close(FIRST_FREE_FD + 1)


def test_a_socket_that_systemd_holds_for_another_process_or_address_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        monkeypatch.setattr(listening_sockets, "FIRST_FD", held.fileno())
        monkeypatch.setenv("LISTEN_FDS", "1")
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        with listen_at("127.0.0.1", 0, 1) as own:
            assert own.getsockname() != held.getsockname()
        monkeypatch.setenv("LISTEN_PID", str(os.getpid() + 1))
        with pytest.raises(OSError, match="in use"):
            listen_at("127.0.0.1", held.getsockname()[1], 1)


def test_a_listener_may_make_room() -> None:
    with listening(1) as bounded, PeerSockets() as peers:
        peers.connect(bounded)
        first, _ = bounded.accept()

        def make_room() -> bool:
            first.close()
            return True

        bounded.make_room = make_room
        peers.connect(bounded)
        second, _ = bounded.accept()
        assert (first.fileno(), bounded.connections) == (-1, 1)
        second.close()


def test_the_kernel_ends_connections_whose_peer_is_dead_or_stuck() -> None:
    with listening(1) as bounded, PeerSockets() as peers:
        peers.connect(bounded)
        accepted, _ = bounded.accept()
        if STUCK_TIMEOUT is not None:
            assert accepted.getsockopt(socket.IPPROTO_TCP, STUCK_TIMEOUT) == 30_000
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        accepted.close()


class PeerSockets:
    """Connections that the end of a block closes."""

    def __init__(self) -> None:
        self._open: list[socket.socket] = []

    def __enter__(self) -> PeerSockets:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open:
            each.close()

    def connect(self, to: BoundedListener) -> socket.socket:
        made = socket.create_connection(to.getsockname(), timeout=PATIENCE_S)
        self._open.append(made)
        return made


async def wait_closed(stream: SocketStream) -> None:
    with anyio.fail_after(PATIENCE_S), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            await stream.receive()


async def exists(client: Client) -> bool:
    return bool((await client.call("checkScopeExists", SCOPE)).exists)


async def test_the_connection_of_the_controller_that_is_idle_longest_goes_for_a_new_one(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "CONTROLLER_CONNECTIONS_MAX", 2)
    async with serve_endpoints(ep, EVERYTHING) as bound, AsyncExitStack() as stack:
        oldest = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", bound.controller_port))
        assert await oldest.receive()  # the settings of the server
        first = await stack.enter_async_context(connecting(bound.controller_port))
        assert await exists(first)
        second = await stack.enter_async_context(connecting(bound.controller_port))
        assert await exists(second)
        await wait_closed(oldest)
        assert await exists(first)


async def test_an_idle_connection_of_the_controller_ends_and_its_client_connects_again(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "IDLE_S", 0.05)
    async with serve_endpoints(ep, EVERYTHING) as bound, connecting(bound.controller_port) as client:
        assert await exists(client)
        async with await anyio.connect_tcp("127.0.0.1", bound.controller_port) as silent:
            await wait_closed(silent)
        assert await exists(client)


async def test_a_connection_with_a_call_is_not_idle(ep: Eventproc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "IDLE_S", 0.01)
    usual, may_end = CatalogCalls.scope_exists, anyio.Event()

    async def slow(self: CatalogCalls, request: pb.ScopeInfo) -> pb.ExistsResponse:
        await may_end.wait()
        return await usual(self, request)

    monkeypatch.setattr(CatalogCalls, "scope_exists", slow)
    found: list[bool] = []

    async def ask(client: Client) -> None:
        found.append(await exists(client))

    async with (
        serve_endpoints(ep, EVERYTHING) as bound,
        connecting(bound.controller_port) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ask, client)
        for _ in range(3):
            async with await anyio.connect_tcp("127.0.0.1", bound.controller_port) as silent:
                await wait_closed(silent)  # an idle one, which came later
        may_end.set()
    assert found == [True]


async def test_a_request_that_is_never_complete_is_given_up(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PEER_WAIT_S", 0.05)
    async with (
        serve_endpoints(ep, EVERYTHING) as bound,
        await anyio.connect_tcp("127.0.0.1", bound.controller_port) as stream,
    ):
        await stream.send(begun_call())
        peer = H2Connection()
        ended: list[ResponseReceived] = []
        peer.initiate_connection()
        peer.send_headers(1, HEADERS)
        with anyio.fail_after(PATIENCE_S):
            while not ended:
                events = peer.receive_data(await stream.receive())
                ended = [each for each in events if isinstance(each, ResponseReceived)]
        assert (b"grpc-status", b"%d" % Status.DEADLINE_EXCEEDED.value) in ended[0].headers


def begun_call() -> bytes:
    """Return what a client sends that begins a call and no request."""
    made = H2Connection()
    made.initiate_connection()
    made.send_headers(1, HEADERS)
    return made.data_to_send()


async def test_calls_of_the_controller_beyond_the_bound_are_refused_as_unavailable(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CALLS_MAX", 0)
    async with serve_endpoints(ep, EVERYTHING) as bound, connecting(bound.controller_port) as client:
        with pytest.raises(GRPCError) as refused:
            await exists(client)
        assert refused.value.status is Status.UNAVAILABLE


async def test_a_connection_of_the_controller_has_a_hundred_calls_and_little_unread_at_a_time(
    ep: Eventproc,
) -> None:
    async with (
        serve_endpoints(ep, EVERYTHING) as bound,
        await anyio.connect_tcp("127.0.0.1", bound.controller_port) as stream,
    ):
        peer = H2Connection()
        peer.initiate_connection()
        told = peer.remote_settings
        with anyio.fail_after(PATIENCE_S):
            while told.initial_window_size != serving.UNREAD_BYTES_MAX:
                peer.receive_data(await stream.receive())
        assert told.max_concurrent_streams == 100


async def test_an_idle_connection_of_rest_ends(ep: Eventproc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "IDLE_S", 0.05)
    async with serve_endpoints(ep, EVERYTHING) as bound:
        assert bound.rest is not None
        async with (
            await anyio.connect_tcp(*bound.rest) as silent,
            await anyio.connect_tcp(*bound.rest) as slow,
        ):
            await slow.send(b"GET /v1/scopes HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
            await wait_closed(silent)
            await wait_closed(slow)


async def test_a_body_that_never_comes_is_given_up_with_408(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "BODY_S", 0.05)
    async with serve_endpoints(ep, EVERYTHING) as bound:
        assert bound.rest is not None
        async with await anyio.connect_tcp(*bound.rest) as slow:
            head = b"POST /v1/scopes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            await slow.send(head + b"content-length: 20\r\n\r\n{")
            with anyio.fail_after(PATIENCE_S):
                assert (await slow.receive()).startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_goes_on_after_its_answer_ends_no_other_call_of_its_connection(
    ep: Eventproc,
) -> None:
    head = [(":scheme", "http"), (":path", "/v1/scopes"), (":authority", "localhost")]
    peer = H2Connection()
    peer.initiate_connection()
    async with serve_endpoints(ep, EVERYTHING) as bound:
        assert bound.rest is not None
        async with await anyio.connect_tcp(*bound.rest) as stream:

            async def status() -> str:
                found = ""
                await stream.send(peer.data_to_send())
                with anyio.fail_after(PATIENCE_S):
                    while True:
                        for each in peer.receive_data(await stream.receive()):
                            if isinstance(each, ResponseReceived):
                                found = dict(each.headers)[b":status"].decode()
                            elif isinstance(each, StreamEnded):
                                return found

            peer.send_headers(1, [(":method", "POST"), *head, ("content-type", "text/plain")])
            assert await status() == "415"
            peer.send_data(1, b"late")
            peer.send_headers(3, [(":method", "GET"), *head], end_stream=True)
            assert await status() == "200"


async def test_calls_of_rest_beyond_the_bound_are_refused_with_503(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "CALLS_MAX", 0)
    async with serve_endpoints(ep, EVERYTHING) as bound, httpx.AsyncClient(trust_env=False) as http:
        assert bound.rest is not None
        refused = await http.get(f"http://127.0.0.1:{bound.rest[1]}/v1/scopes")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        for probe in ("/healthz", "/v1/health/liveness"):
            live = await http.get(f"http://127.0.0.1:{bound.rest[1]}{probe}")
            assert live.status_code == 200


async def test_a_call_ends_if_its_caller_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "SEND_S", 0.01)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def stuck(message: Message) -> None:
        await anyio.sleep_forever()

    async def nothing() -> Message:
        return {}

    with anyio.fail_after(PATIENCE_S):
        await application.sending_soon(answer)({"type": "http", "path": "/"}, nothing, stuck)


async def test_idle_and_slow_connections_of_all_listeners_hold_little_and_leave_nothing_behind(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "IDLE_S", PATIENCE_S)
    made: list[BoundedListener] = []

    def listen(host: str, port: int, connections_max: int) -> BoundedListener:
        made.append(listen_at(host, port, connections_max))
        return made[-1]

    monkeypatch.setattr(endpoints, "listen_at", listen)
    async with serve_endpoints(ep, EVERYTHING) as bound:
        assert bound.rest is not None
        ports = bound.controller_port, bound.rest[1]
        await one_round(made, ports)  # makes what stays, such as caches
        await verify_flat(partial(one_round, made, ports), IDLE * IDLE_BYTES_MAX)


async def one_round(listeners: list[BoundedListener], ports: tuple[int, int]) -> int:
    """Open idle and slow connections of each listener, and close them; return the bytes that idle ones took."""
    controller, rest = ports
    before = allocated()
    async with AsyncExitStack() as stack:
        for port in ports * IDLE:
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
        await until(lambda: [each.connections for each in listeners] == [IDLE, IDLE])
        idle = allocated() - before
        for _ in range(SLOW):
            call = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", controller))
            await call.send(begun_call())
            body = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", rest))
            await body.send(
                b"POST /v1/scopes HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                b"content-length: 1000000\r\n\r\n" + bytes(500_000)
            )
        await until(lambda: [each.connections for each in listeners] == [IDLE + SLOW] * 2)
    await until(lambda: [each.connections for each in listeners] == [0, 0])
    return idle
