"""The endpoints of one serving process: listeners that live as long as a block."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from stat import S_IROTH, S_IXOTH
from typing import Final

import attrs
from anyio import to_thread
from anyio.abc import SocketAttribute

from eventproc.base.tasks import BackgroundTasks
from eventproc.cluster.segment_containers import serving_containers
from eventproc.runtime import Eventproc
from eventproc.runtime.measures import reporting
from eventproc.server.access.authority import Authority, TokenAuthority
from eventproc.server.access.certificates import Certificates
from eventproc.server.controller.service import Controller
from eventproc.server.controller.serving import serving_controller
from eventproc.server.frame_server import listen_for_frames
from eventproc.server.listening import listen_at
from eventproc.server.wire.greeting import greets, unverified_tls
from eventproc.server.wire.listener import SegmentStore
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import StoreUnusable

LOG = logging.getLogger("eventproc.server")

CONTROLLER_PORT: Final = 9090
"""Port of Pravega's controller."""

SEGMENT_STORE_PORT: Final = 12345
"""Port of Pravega's segment store."""

KAFKA_SCOPE: Final = "kafka"
"""The scope whose topics Kafka's clients see, unless another one is named."""

CONTROLLER_CONNECTIONS_MAX: Final = 1_000
"""Connections of the controller; a client has one, and each holds some 20 kB. The one that is idle for the longest time
goes for a new one. Higher: more memory; lower: clients that come and go must connect more often."""

REST_CONNECTIONS_MAX: Final = 1_000
"""Connections of REST, which end when they are idle for some seconds. Higher: more memory; lower: fewer callers."""

REST_CLOSE_WAIT_S: Final = 5
"""How long running calls of REST may take when the server ends."""

PAGE_HOST: Final = "127.0.0.1"
TOKEN_BYTES: Final = 24
"""Of the token in the address of a page. Nobody guesses 192 bits."""

OTHERS_MAY_ENTER: Final = S_IROTH | S_IXOTH
"""Permissions of a directory for users of the machine that are neither its owner nor of its group."""


@attrs.frozen
class Addresses:
    """Where a server listens. Port 0: any free one.

    rest: host and port of REST; None: it is off. has_page: whether REST serves the page for people, too.
    kafka: host and port for Kafka's clients; None: it is off. kafka_scope: whose topics they see.
    advertised: host that clients connect to, as they are told; None: `host`, or localhost with certificates.
    """

    host: str = "127.0.0.1"
    controller_port: int = CONTROLLER_PORT
    segment_store_port: int = SEGMENT_STORE_PORT
    rest: tuple[str, int] | None = None
    advertised: str | None = None
    has_page: bool = False
    kafka: tuple[str, int] | None = None
    kafka_scope: str = KAFKA_SCOPE

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host that is listened on."""
        return (self.host, *(each[0] for each in (self.rest, self.kafka) if each is not None))

    def advertised_host(self, *, has_tls: bool) -> str:
        """Return the host that clients are given. Raises InvalidArgument if they could not connect to it."""
        host = self.advertised
        if host is None:
            host = "localhost" if has_tls and is_local(self.host) else self.host
        found = _address_of(host)
        if found is not None and found.is_unspecified:
            reason = "it stands for all addresses of this machine; name the one that clients use with --advertise HOST"
            raise invalid_argument("host", host, reason)
        if has_tls and found is not None:
            reason = "clients verify certificates by name; give a name of this machine with --advertise NAME"
            raise invalid_argument("host", host, reason)
        return host


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_local(host: str) -> bool:
    """Return whether only programs of this machine reach a host."""
    found = _address_of(host)
    return host == "localhost" if found is None else found.is_loopback


def verify_hosts(hosts: Iterable[str], *, has_users: bool, is_encrypted: bool) -> None:
    """Raise InvalidArgument for a host that other machines reach, unless there are users and connections are encrypted.

    is_encrypted: by certificates, or by something in front of the server that the caller vouches for.
    """
    for host in hosts:
        if is_local(host):
            continue
        if not has_users:
            reason = (
                "other machines reach it, and the directory has no users; add one with `eventproc user add NAME`, "
                "or use 127.0.0.1, ::1 or localhost"
            )
            raise invalid_argument("host", host, reason)
        if not is_encrypted:
            reason = (
                "other machines reach it, and passwords would cross the network in plain; give --certificate and "
                "--key, or --plain if a proxy encrypts the connections"
            )
            raise invalid_argument("host", host, reason)


async def verify_private(ep: Eventproc) -> None:
    """Raise StoreUnusable if other users of the machine can read the directory: they could make themselves tokens."""
    if ep.path is None:
        return
    folder = await to_thread.run_sync(ep.path.stat)
    if folder.st_mode & OTHERS_MAY_ENTER:
        reason = (
            "other users of this machine can read it, and with it the keys of tokens; close it with "
            f"`chmod o= {ep.path}`"
        )
        raise StoreUnusable(path=str(ep.path), reason=reason)


@asynccontextmanager
async def serve_endpoints(
    ep: Eventproc,
    addresses: Addresses,
    certificates: Certificates | None = None,
    *,
    allows_plain: bool = False,
) -> AsyncIterator[Addresses]:
    """Listen while the block runs; yield the addresses with their actual ports.

    Callers need credentials if the directory has users, or gets some. certificates: encrypt all connections.
    allows_plain: other machines may connect without encryption.

    When the block ends, running calls of the controller and of REST may finish, for 5 s at most. Then all connections
    are closed; clients continue at another server, or at this one when it is back.
    Raises InvalidArgument for a host that other machines reach without users or certificates, StoreUnusable if there
    are users and others of this machine can read the directory, NotSupported if this opening of the directory serves
    already, and OSError if a port is in use.
    """
    host, has_tls = addresses.host, certificates is not None
    advertised = addresses.advertised_host(has_tls=has_tls)
    authority = await _authority(ep, addresses.hosts, is_encrypted=has_tls or allows_plain)
    async with await listen_for_frames(host, addresses.segment_store_port) as listener:
        store_port = int(listener.extra(SocketAttribute.local_port))
        with listen_at(host, addresses.controller_port, CONTROLLER_CONNECTIONS_MAX) as listening:
            port = listening.getsockname()[1]
            async with (
                BackgroundTasks() as tasks,
                serving_containers(ep.db, (advertised, store_port), (advertised, port)) as owned,
            ):
                tasks.start_soon(authority.watch)
                if certificates is not None:
                    tasks.start_soon(certificates.watch)
                answers = partial(greets, tls=unverified_tls()) if has_tls else greets
                store = SegmentStore(ep.db, owned, authority, _context(certificates))
                tasks.start_soon(store.serve, listener)
                controller = Controller(ep.db, owned, authority, answers)
                values = {
                    "controller_connections": lambda: listening.connections,
                    "connections": lambda: store.connections,
                    "strangers": lambda: store.strangers,
                    "connection_bytes": lambda: store.held_bytes,
                    "containers": lambda: len(owned.owned),
                }
                with reporting(ep.db, values):
                    async with (
                        serving_controller(controller, listening, _context(certificates, "h2")),
                        _rest(
                            ep, authority, addresses.rest, certificates, has_page=addresses.has_page
                        ) as rest,
                        _kafka(ep, authority, addresses, certificates) as kafka,
                    ):
                        yield attrs.evolve(
                            addresses,
                            controller_port=port,
                            segment_store_port=store_port,
                            rest=rest,
                            kafka=kafka,
                            advertised=advertised,
                        )


@asynccontextmanager
async def serve_metrics(
    ep: Eventproc, address: tuple[str, int], *, allows_plain: bool = False
) -> AsyncIterator[tuple[str, int]]:
    """Serve `/metrics`, and what anyone may ask for, while the block runs; yield the address with its actual port.

    allows_plain: other machines may connect, without encryption. Raises as `serve_endpoints`.
    """
    authority = await _authority(ep, address[:1], is_encrypted=allows_plain)
    async with BackgroundTasks() as tasks, _rest(ep, authority, address, None, only_metrics=True) as bound:
        tasks.start_soon(authority.watch)
        assert bound is not None, "there is an address"
        yield bound


async def _authority(ep: Eventproc, hosts: Sequence[str], *, is_encrypted: bool) -> Authority:
    """Return who may call at these hosts. Raises InvalidArgument, StoreUnusable."""
    authority = Authority(ep.db)
    await authority.load()
    verify_hosts(hosts, has_users=authority.is_required, is_encrypted=is_encrypted)
    if authority.is_required:
        await verify_private(ep)
    return authority


def _context(certificates: Certificates | None, *protocols: str) -> ssl.SSLContext | None:
    return None if certificates is None else certificates.context(*protocols)


@asynccontextmanager
async def _rest(
    ep: Eventproc,
    authority: Authority,
    address: tuple[str, int] | None,
    certificates: Certificates | None,
    *,
    has_page: bool = False,
    only_metrics: bool = False,
) -> AsyncIterator[tuple[str, int] | None]:
    """Serve REST while the block runs, if there is an address; yield it with its actual port."""
    if address is None:
        yield None
        return
    from eventproc.server.rest.listener import serve_rest  # few servers need Starlette and Hypercorn

    host, port = address
    listener = listen_at(host, port, REST_CONNECTIONS_MAX)
    bound = host, int(listener.getsockname()[1])
    tls = _context(certificates, "h2", "http/1.1")
    with listener, reporting(ep.db, {"rest_connections": lambda: listener.connections}):
        async with serve_rest(
            *(ep, authority, listener, host),
            close_wait_s=REST_CLOSE_WAIT_S,
            tls=tls,
            has_page=has_page,
            only_metrics=only_metrics,
        ):
            yield bound


@asynccontextmanager
async def _kafka(
    ep: Eventproc,
    authority: Authority,
    addresses: Addresses,
    certificates: Certificates | None,
) -> AsyncIterator[tuple[str, int] | None]:
    """Serve Kafka's clients while the block runs, if there is an address; yield it with its actual port."""
    if addresses.kafka is None:
        yield None
        return
    # Few servers need the libraries of its messages.
    from eventproc.server.kafka.listener import serving_kafka

    advertised = attrs.evolve(addresses, host=addresses.kafka[0]).advertised_host(
        has_tls=certificates is not None
    )
    async with serving_kafka(
        ep.db, authority, addresses.kafka_scope, addresses.kafka, advertised, _context(certificates)
    ) as bound:
        yield bound


@asynccontextmanager
async def serve_page(ep: Eventproc, port: int) -> AsyncIterator[str]:
    """Serve the page and REST to who knows the address, while the block runs; yield it.

    The address has a new token, which stands for everything: who opens the store may do all with it. It is one of this
    machine. port: 0: any free one. Raises OSError if it is in use.
    """
    from eventproc.server.rest.listener import serve_rest

    token = ep.db.clock.random_bytes(TOKEN_BYTES).hex()
    listener = listen_at(PAGE_HOST, port, REST_CONNECTIONS_MAX)
    bound = int(listener.getsockname()[1])
    with listener:
        async with serve_rest(
            *(ep, TokenAuthority(ep.db, token), listener, PAGE_HOST),
            close_wait_s=REST_CLOSE_WAIT_S,
            has_page=True,
        ):
            yield f"http://{PAGE_HOST}:{bound}/ui/#token={token}"
