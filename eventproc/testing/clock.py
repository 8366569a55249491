"""A clock for tests: it follows the event loop's time, which may be virtual, and can be moved by hand."""

from __future__ import annotations

import hashlib
from typing import Final

from eventproc.testing.virtual_loop import loop_ms

START_MS: Final = 1_700_000_000_000
"""Default of the wall time at which a `VirtualClock` begins, ms: a day in November 2023."""


class VirtualClock:
    """A clock that a test can move, for `eventproc.open_memory(clock=...)`. Create it inside the event loop.

    It follows the clock of the event loop: in a `VirtualRuntime`, and under `trio.testing.MockClock`, an hour passes
    immediately. Its random bytes depend only on the seed.

    Args:
        seed: seed of the random bytes.
        start_ms: wall time at which it begins, ms since 1970.
        machine: the clock of the machine that this one shares the time with; only its steps of the wall clock are its
            own. None (default): a machine of its own.
    """

    def __init__(
        self, seed: int = 0, *, start_ms: int = START_MS, machine: VirtualClock | None = None
    ) -> None:
        self.boot_id: str = f"virtual-{seed}" if machine is None else machine.boot_id
        self._machine = machine
        self._now_ms = loop_ms()
        self._began_ms = self._now_ms()
        self._monotonic_ms = 0
        self._wall_ms = start_ms if machine is None else 0
        self._seed = seed
        self._drawn = 0

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        if self._machine is not None:
            return self._wall_ms + self._machine.wall_ms()
        return self._wall_ms + self._now_ms() - self._began_ms

    def monotonic_ms(self) -> int:
        """See `Clock.monotonic_ms`."""
        if self._machine is not None:
            return self._machine.monotonic_ms()
        return self._monotonic_ms + self._now_ms() - self._began_ms

    def random_bytes(self, count: int) -> bytes:
        """See `Clock.random_bytes`."""
        self._drawn += 1
        return hashlib.shake_128(f"{self._seed}/{self._drawn}".encode()).digest(count)

    def advance(self, ms: int) -> None:
        """Move both clocks forward. Tasks that sleep are not woken.

        Args:
            ms: at least 0.
        """
        assert ms >= 0, f"time does not go back by {-ms} ms"
        if self._machine is not None:
            self._machine.advance(ms)
            return
        self._monotonic_ms += ms
        self._wall_ms += ms

    def step_wall(self, ms: int) -> None:
        """Move only the wall clock, as an administrator does.

        Args:
            ms: negative to move it back.
        """
        self._wall_ms += ms
