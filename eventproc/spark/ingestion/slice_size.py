"""How large the next slice of a task is: as large as can be read within about a second.

A slice costs a quarter of a second whatever its size: Spark plans a job of two stages, starts their tasks, and commits
its files. So a slice is not merely scaled by how long the last one took: that would shrink slices on a busy machine
until they consist of the fixed cost alone. A straight line through the durations of the last slices separates the
cost of a slice from that of its bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from copy import copy
from typing import Final

SLICE_MS: Final = 1_000
"""How long a slice should take. A longer one costs less per event, and shows its rows and its progress later."""

FIRST_BYTES: Final = 4 * 2**20
"""Bytes of a task's first slice. Payloads that have to be parsed one by one take less than a second."""

LEAST_BYTES: Final = 2**20
"""The least that a slice shrinks to."""

_FIXED_MS: Final = 200
"""What a slice of no bytes costs until the task's own slices tell. Measured on two cores: 200 to 300 ms."""

_GROWTH_MAX: Final = 8
"""How many times as large as the last one a slice may be: a wrong guess costs a few seconds, once.

A slice so many times smaller than its limits is a small one.
"""

_REST: Final = 1.25
"""How much longer than wanted a slice may be, if nothing is left then."""

_REMEMBERED: Final = 0.7
"""Weight of a slice compared with the one after it: the last three decide."""


class SliceSizes:
    """What a worker has learned about slices of each kind of event. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Hashable, SliceSize] = {}

    def begin(self, kind: Hashable, *, rows_max: int, bytes_max: int) -> SliceSize:
        """Return the limits for a new task: as those of the last ended task of the kind, or the first ones."""
        with self._lock:
            known = self._known.get(kind)
        size = SliceSize(rows_max=rows_max, bytes_max=bytes_max, warms_up=known is None)
        if known is not None:
            size.follow(known)
        return size

    def end(self, kind: Hashable, size: SliceSize) -> None:
        """Remember the limits that a task ended with."""
        with self._lock:
            self._known[kind] = size


class SliceSize:
    """The limits of the next slice. bytes: of payloads and frames. events: its number of events."""

    def __init__(self, *, rows_max: int, bytes_max: int, warms_up: bool = False) -> None:
        """Begin with the first limits.

        rows_max: rows of one slice, after its roll-up. bytes_max: its bytes. warms_up: whether the next slice is the
        first of its kind in a worker: Spark loads classes and compiles for it, which says nothing about the others.
        """
        self._rows_max = rows_max
        self._bytes_max = max(bytes_max, LEAST_BYTES)
        self._line = _Line(_FIXED_MS)
        self.bytes: int = min(FIRST_BYTES, self._bytes_max)
        self.events: int = rows_max
        self._warms_up = warms_up

    @property
    def bytes_most(self) -> int:
        """Bytes of a slice that takes all that is unread: a small rest costs as much as a slice of its own."""
        return min(round(self.bytes * _REST), self._bytes_max)

    def is_small(self, size_bytes: int, events: int) -> bool:
        """Return whether a slice, before it is noted, held so little that the stream had no more.

        The next one would cost as much for as few events, so let them gather until `SLICE_MS` after its beginning.
        """
        return size_bytes * _GROWTH_MAX < self.bytes and events * _GROWTH_MAX < self.events

    def follow(self, known: SliceSize) -> None:
        """Begin with what another task has learned."""
        self._line = copy(known._line)
        self._warms_up = known._warms_up
        self.bytes = min(known.bytes, self._bytes_max)
        self.events = self._rows_max * known.events // known._rows_max

    def note(self, took_ms: int, *, size_bytes: int, events: int, rows: int) -> None:
        """Learn from a slice that was read. rows: what it was rolled up to."""
        self.events = self._rows_max * max(events, 1) // max(rows, 1)
        if self._warms_up:
            self._warms_up = False
            return
        self._line.add(size_bytes, took_ms)
        limit = min(self._bytes_max, max(size_bytes, LEAST_BYTES) * _GROWTH_MAX)
        if took_ms <= SLICE_MS and size_bytes * _GROWTH_MAX < self.bytes:
            return  # a small slice says little about a large one
        fixed_ms, byte_ms = self._line.costs()
        goal_ms = max(SLICE_MS, 2 * fixed_ms)  # at least half of the time goes into events
        wanted = round((goal_ms - fixed_ms) / byte_ms) if byte_ms > 0 else limit
        self.bytes = min(max(wanted, LEAST_BYTES), limit)


class _Line:
    """A straight line through durations by size, in which older ones count less. fixed_ms: its start."""

    def __init__(self, fixed_ms: float) -> None:
        self._weight, self._x, self._y, self._xx, self._xy = 1.0, 0.0, fixed_ms, 0.0, 0.0

    def add(self, size: int, took_ms: int) -> None:
        """Note a duration."""
        self._weight = self._weight * _REMEMBERED + 1
        self._x = self._x * _REMEMBERED + size
        self._y = self._y * _REMEMBERED + took_ms
        self._xx = self._xx * _REMEMBERED + size * size
        self._xy = self._xy * _REMEMBERED + size * took_ms

    def costs(self) -> tuple[float, float]:
        """Return what a slice costs in ms, and what a byte costs: both at least 0."""
        spread = self._weight * self._xx - self._x * self._x
        if spread <= 1e-6 * self._weight * self._xx:  # equal sizes say nothing about the fixed part
            return 0.0, self._y / max(self._x, 1.0)
        slope = max((self._weight * self._xy - self._x * self._y) / spread, 0.0)
        fixed_ms = (self._y - slope * self._x) / self._weight
        return (fixed_ms, slope) if fixed_ms > 0 else (0.0, self._y / max(self._x, 1.0))
