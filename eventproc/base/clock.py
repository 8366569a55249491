"""Time, randomness and ids from one injected source, which a test can replace.

Wall-clock milliseconds stamp events, ages and holds. Monotonic milliseconds of one boot measure leases and deadlines
(architecture.md section 3, "Time"). No other module of the project reads a clock.
"""

from __future__ import annotations

import os
import re
import threading
import time
from typing import Final, Protocol, runtime_checkable

from eventproc.base import kernel

RANDOM_POOL_BYTES: Final = 4096
"""Random bytes that the kernel gives in one call. Higher: more memory; lower: more calls, at 1 us."""


_VERSION_7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@runtime_checkable
class Clock(Protocol):
    """Source of time, randomness and identifiers. Safe to call from any thread."""

    @property
    def boot_id(self) -> str:
        """Identifier of this boot of the machine; leases of another boot have ended."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may step in either direction."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since a fixed moment of this boot; equal in all its processes; never steps back."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        ...


def machine_clock(clock: Clock) -> Clock:
    """Return the clock of this machine, for pauses and timeouts that no step of a server's clock may change."""
    machine: Clock = getattr(clock, "machine", clock)
    return machine


class SystemClock:
    """The machine's clocks and random source."""

    def __init__(self) -> None:
        self.boot_id = kernel.boot_id()

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """See `Clock.monotonic_ms`."""
        return time.monotonic_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """See `Clock.random_bytes`."""
        return _RANDOM_POOL.take(count)


class _RandomPool:
    """Random bytes from the kernel, each handed out once, also across threads and forks."""

    def __init__(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Forget what is left. For a forked child, which would otherwise hand out the same bytes as its parent."""
        self._lock = threading.Lock()  # a new one: another thread of the parent may hold the old one
        self._bytes = b""
        self._used = 0

    def take(self, count: int) -> bytes:
        """Return `count` bytes."""
        if count > RANDOM_POOL_BYTES // 16:
            return os.urandom(count)
        with self._lock:
            used = self._used
            if used + count > len(self._bytes):
                self._bytes, used = os.urandom(RANDOM_POOL_BYTES), 0
            self._used = used + count
            return self._bytes[used : used + count]


_RANDOM_POOL: Final = _RandomPool()
os.register_at_fork(after_in_child=_RANDOM_POOL.drop)


def new_id(clock: Clock) -> str:
    """Return a UUID version 7 (RFC 9562 section 5.7): 48 bits of wall milliseconds, 74 random bits.

    Later ids sort later, to the millisecond, so that a table keyed by ids is ordered by time.
    """
    return _as_version_7(clock.wall_ms().to_bytes(6, "big"), bytearray(clock.random_bytes(10)))


def id_ms(identifier: str) -> int:
    """Return when `new_id` made an id, in wall ms of the machine that did."""
    return int(identifier[:8] + identifier[9:13], 16)


def _as_version_7(wall: bytes, tail: bytearray) -> str:
    tail[0] = 0x70 | (tail[0] & 0x0F)
    tail[2] = 0x80 | (tail[2] & 0x3F)
    text = (wall + bytes(tail)).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def part_id(identifier: str, part: str) -> str:
    """Return the id of a part of what a UUID version 7 names: always the same one, and of the same time.

    Raises ValueError if the identifier is none.
    """
    id_time_ms(identifier)
    from hashlib import blake2b  # few programs need it

    tail = bytearray(blake2b(f"{identifier}/{part}".encode(), digest_size=10).digest())
    return _as_version_7(bytes.fromhex(identifier.replace("-", "")[:12]), tail)


def id_floor(wall_ms: int) -> str:
    """Return a text that sorts before every id made at or after `wall_ms`, and after those made before."""
    text = f"{wall_ms:012x}"
    return f"{text[:8]}-{text[8:]}-"


def id_time_ms(identifier: str) -> int:
    """Return the wall milliseconds at which a UUID version 7 was made. Raises ValueError for any other text.

    One spelling is accepted, lower case with hyphens: another one of the same id would name another request.
    """
    if _VERSION_7.fullmatch(identifier) is None:
        raise ValueError(f"{identifier!r} is not a UUID of version 7 in lower case")
    return int(identifier.replace("-", "")[:12], 16)
