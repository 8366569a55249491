"""Sockets that listen: each accepts connections up to a number, and the kernel ends those whose peer is gone or stuck.

gRPC's server and Hypercorn accept any number, and wait without end for a peer that takes nothing. Both accept through
the socket that they are given, so that the bounds are here, below them.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakSet

from eventproc.base import kernel

LOG = logging.getLogger("eventproc.server")

STUCK_MS_MAX: Final = 30_000
"""How long a peer may take nothing of what was sent to it, in ms, before the kernel ends the connection. Higher: what
was sent to stuck peers is held for longer; lower: a peer whose network stops for a moment must connect again. macOS has
no such limit: there a peer that is alive may be stuck for as long as it likes."""

SILENT_S: Final = 60
"""How long a connection is silent before the kernel asks whether the peer is alive, in s. Higher: connections of hosts
that died stay for longer; lower: more packets on idle connections."""

FIRST_FD: Final = 3
"""Number of the first socket that systemd passes, by the protocol of its `sd_listen_fds`."""

PROBE_S: Final = 10
PROBES_MAX: Final = 3
"""How often and how many times it asks: a peer that answers none of them within 30 s is gone."""


class BoundedListener(socket.socket):
    """A listening socket that has at most `connections_max` connections open. The next one is closed immediately.

    make_room: called when all are open; returns whether it closes one, so that the new one may come.
    """

    def __init__(self, listening: socket.socket, connections_max: int) -> None:
        super().__init__(fileno=listening.detach())
        self._connections_max = connections_max
        self._open: WeakSet[socket.socket] = WeakSet()
        self._is_full = False
        self.make_room: Callable[[], bool] = lambda: False

    @property
    def connections(self) -> int:
        """Number of connections that are open, with those whose handshake runs."""
        return len(self._open)

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that there is room for."""
        while True:
            found, address = super().accept()
            if len(self._open) < self._connections_max or self.make_room():
                self._is_full = False
                return _Accepted(found, self._open), address
            found.close()
            if not self._is_full:  # one line for a flood
                self._is_full = True
                LOG.warning(
                    "port %s: refusing connections: %d are open", self.getsockname()[1], len(self._open)
                )


class _Accepted(socket.socket):
    """A connection that its listener counts until it is closed."""

    def __init__(self, accepted: socket.socket, counted: WeakSet[socket.socket]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._counted = counted
        counted.add(self)

    def close(self) -> None:
        """Close it."""
        self._counted.discard(self)
        super().close()


def listen_at(host: str, port: int, connections_max: int) -> BoundedListener:
    """Return a socket that listens. Its connections send each answer immediately.

    They inherit TCP_NODELAY. asyncio sets it only for sockets that name their protocol, which those of
    `create_server` do not. Without it, the second packet of an answer waits for the acknowledgement of the first one,
    which the caller's kernel delays by 40 ms.

    A socket that systemd holds at this address is taken. It stays open while the process is started again, so that
    clients that connect meanwhile wait in its queue. Others are refused; then the Rust client pauses for up to 10 s.

    Raises OSError, which names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with naming_address(host, port):
        listening = _held_at(host, port) or socket.create_server((host, port), family=family)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if kernel.STUCK_TIMEOUT is not None:
        listening.setsockopt(socket.IPPROTO_TCP, kernel.STUCK_TIMEOUT, STUCK_MS_MAX)
    notice_dead_peers(listening)
    return BoundedListener(listening, connections_max)


def _held_at(host: str, port: int) -> socket.socket | None:
    """Return the socket that systemd holds for this process at an address; None without one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    addresses = {each[4] for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    for number in range(FIRST_FD, FIRST_FD + int(os.environ.get("LISTEN_FDS", "0"))):
        found = socket.socket(fileno=os.dup(number))
        if found.getsockname() in addresses:
            return found
        found.close()
    return None


@contextmanager
def naming_address(host: str, port: int) -> Iterator[None]:
    """Let an error of the system name the address that the block listens at. Raises OSError."""
    try:
        yield
    except OSError as why:
        remedy = "; stop the other program, or choose another port" if why.errno == errno.EADDRINUSE else ""
        reason = os.strerror(why.errno) if why.errno else str(why)
        raise OSError(why.errno, f"cannot listen at {host} port {port}: {reason}{remedy}") from None


def notice_dead_peers(listening: socket.socket) -> None:
    """Let the kernel end connections of this socket whose peers died without a word."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listening.setsockopt(socket.IPPROTO_TCP, kernel.KEEPALIVE_IDLE, SILENT_S)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES_MAX)
