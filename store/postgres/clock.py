"""The clock of a store on a server: all machines measure leases and stamp events with the server's clock."""

from __future__ import annotations

import threading
from typing import Final

from eventproc.base.clock import Clock

NOW_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The server's clock, in SQL."""

SET_BACK_MS: Final = 10_000
"""By how much the server's clock must seem to go back to count as set back. Higher: its openings disagree for so long
after a smaller step; lower: a slow answer, which may come after SILENCE_MS, looks like one."""


class ServerClock:
    """The server's clock as this process knows it: its own clock, and the difference that it last measured.

    boot_id: that of the store, so that all its openings compare their monotonic times.
    """

    def __init__(self, machine: Clock, boot_id: str) -> None:
        """machine: the clock of this machine, also for pauses, which no step of the server's clock may lengthen."""
        self.boot_id = boot_id
        self.machine = machine
        self._ahead_ms = 0
        self._last_ms = 0
        self._lock = threading.Lock()

    def measure(self, server_ms: int) -> None:
        """Learn the server's time, just after it was read there. Callable from any thread."""
        self._ahead_ms = server_ms - self.machine.monotonic_ms()

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return self.machine.monotonic_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        """See `Clock.monotonic_ms`. It steps back only with the server's clock: all openings compare their times."""
        with self._lock:
            now_ms = self.wall_ms()
            if not 0 < self._last_ms - now_ms <= SET_BACK_MS:
                self._last_ms = now_ms
            return self._last_ms

    def random_bytes(self, count: int) -> bytes:
        """See `Clock.random_bytes`."""
        return self.machine.random_bytes(count)
