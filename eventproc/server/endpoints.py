"""The endpoints of one serving process: listeners that live as long as a block."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final

import anyio
import attrs
from anyio.abc import SocketAttribute
from anyio.streams.stapled import MultiListener

from eventproc.cluster.segment_containers import serving_containers
from eventproc.runtime import Eventproc
from eventproc.server.controller.service import Controller
from eventproc.server.controller.serving import serving_controller
from eventproc.server.wire.listener import SegmentStore
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.tasks import BackgroundTasks

LOG = logging.getLogger("eventproc.server")

CONTROLLER_PORT: Final = 9090
"""Port of Pravega's controller."""

SEGMENT_STORE_PORT: Final = 12345
"""Port of Pravega's segment store."""

REST_CLOSE_WAIT_S: Final = 5
"""How long running calls of REST may take when the server ends."""


@attrs.frozen
class Addresses:
    """Where a server listens. Port 0: any free one.

    rest: host and port of REST; None: it is off.
    """

    host: str = "127.0.0.1"
    controller_port: int = CONTROLLER_PORT
    segment_store_port: int = SEGMENT_STORE_PORT
    rest: tuple[str, int] | None = None


def check_host(host: str) -> str:
    """Return a host that only programs of this machine reach. Raises InvalidArgument."""
    try:
        is_local = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        reason = "the endpoints have no users and no encryption yet; use 127.0.0.1, ::1 or localhost"
        raise invalid_argument("host", host, reason)
    return host


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@asynccontextmanager
async def serve_endpoints(ep: Eventproc, addresses: Addresses) -> AsyncIterator[Addresses]:
    """Listen while the block runs; yield the addresses with their actual ports.

    When the block ends, running calls of the controller and of REST may finish, for 5 s at most. Then all connections
    are closed; clients continue at another server, or at this one when it is back.
    Raises InvalidArgument for a host that other machines reach, and OSError if a port is in use.
    """
    host = check_host(addresses.host)
    listener = await anyio.create_tcp_listener(local_host=host, local_port=addresses.segment_store_port)
    assert isinstance(listener, MultiListener)
    store_port = int(listener.extra(SocketAttribute.local_port))
    async with listener:
        with socket.create_server((host, addresses.controller_port), family=_family(host)) as listening:
            own = (host, listening.getsockname()[1])
            async with (
                BackgroundTasks() as tasks,
                serving_containers(ep.db, (host, store_port), own) as owned,
            ):
                store = SegmentStore(ep.db, owned)
                for each in listener.listeners:
                    tasks.start_soon(store.serve, each)
                controller = Controller(ep.db, owned)
                async with (
                    serving_controller(controller, listening),
                    _rest(ep, addresses.rest, store) as rest,
                ):
                    yield attrs.evolve(
                        addresses, controller_port=own[1], segment_store_port=store_port, rest=rest
                    )


@asynccontextmanager
async def _rest(
    ep: Eventproc, address: tuple[str, int] | None, store: SegmentStore
) -> AsyncIterator[tuple[str, int] | None]:
    """Serve REST while the block runs, if there is an address; yield it with its actual port."""
    if address is None:
        yield None
        return
    from eventproc.server.rest.listener import serve_rest  # few servers need Starlette and Hypercorn
    from eventproc.server.rest.metrics import Gauge

    def gauges() -> list[Gauge]:
        return [
            Gauge("connections", "Connections of the segment store.", store.connections),
            Gauge("connection_bytes", "Bytes of frames that connections hold.", store.held_bytes),
            Gauge(
                "containers", "Containers of segments that this process owns.", store.containers.owned_count
            ),
        ]

    host, port = address
    listener = socket.create_server((check_host(host), port), family=_family(host))
    bound = host, int(listener.getsockname()[1])
    async with serve_rest(ep, listener, host, close_wait_s=REST_CLOSE_WAIT_S, gauges=gauges):
        yield bound
