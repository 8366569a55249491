"""What a running task logs: lines that wait for the next transaction of the task, and what it reads, added up."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from eventproc.base.clock import Clock
from eventproc.store.database import Tx
from eventproc.store.ingestion.logs import append_log

T = TypeVar("T")

READ_MS: Final = 10_000
"""Pause between two lines about what was read. Higher: fewer lines of a busy task, each of more slices."""

WAITING_MAX: Final = 100
"""Lines that wait for a transaction; the oldest goes. They only wait for long while the store cannot be written."""


class TaskLog:
    """The log of a task. Used by the thread of the task."""

    def __init__(self, task: str, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._waiting: deque[tuple[int, str]] = deque(maxlen=WAITING_MAX)
        self._slices = self._since_ms = 0
        self._counts = Counter[str]()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting and not self._slices

    def add(self, message: str) -> None:
        """Add a line."""
        self._waiting.append((self._clock.wall_ms(), message))

    def add_slice(self, counts: Mapping[str, int]) -> None:
        """Count a slice that was read; a line about all of them follows after READ_MS. counts: as of `StatsMeter`."""
        if not self._slices:
            self._since_ms = self._clock.monotonic_ms()
        self._slices += 1
        self._counts.update(counts)
        if self._clock.monotonic_ms() - self._since_ms >= READ_MS:
            self.end_slices()

    def end_slices(self) -> None:
        """Add the line about the slices since the last one, if there are any."""
        if self._slices:
            slices = "1 slice" if self._slices == 1 else f"{self._slices:,} slices"
            read = self._counts
            self.add(
                f"read {read['processed']:,} events, {read['processed_bytes']:,} bytes, in {slices};"
                f" {read['unparseable']:,} unparseable, {read['thrown_away']:,} thrown away"
            )
        self._slices, self._counts = 0, Counter()

    def write(self, tx: Tx, step: Callable[[Tx], T]) -> T:
        """Write what waits, and run a step, in its transaction. If that fails, the lines wait for the next one."""
        lines = list(self._waiting)
        if lines:
            append_log(tx, self._task, lines)
            tx.after(lambda: self._forget(len(lines)))
        return step(tx)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._waiting.popleft()
