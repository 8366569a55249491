"""How long calls took, as histograms that `/metrics` and OpenTelemetry show. If neither does, nothing is measured.

The clock of the project counts milliseconds, so that what takes less counts as 0 or 1 ms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final, TypeAlias

import attrs

SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bucket boundaries of the histograms, in seconds: those of the conventions, and below them 1 ms, the duration of a
commit or of an empty handler."""

EXPORTED_MS: Final = 10
"""At most one duration in so many ms goes to OpenTelemetry, whose SDK takes 12 us for it. Higher: fewer values; lower:
short calls take longer."""

Labels: TypeAlias = tuple[str, ...]


@attrs.define
class Distribution:
    """Durations of one kind. counts: by bucket, the last one is above all boundaries. sum_s: of all of them."""

    counts: list[int] = attrs.field(factory=lambda: [0] * (len(SECONDS) + 1))
    sum_s: float = 0.0

    def copy(self) -> Distribution:
        """Return what it is now."""
        return Distribution(self.counts.copy(), self.sum_s)


class Durations:
    """Distributions by the values of their labels. Safe to call from any thread.

    export: called with the labels and the seconds of some durations; None: nobody.
    """

    def __init__(self) -> None:
        self.export: Callable[[Labels, float], None] | None = None
        self._found: dict[Labels, Distribution] = {}
        self._exported_ms: int | None = None
        self._lock = Lock()

    def record(self, labels: Labels, began_ms: int, ended_ms: int) -> None:
        """Count a call that took from one monotonic time to the other."""
        seconds = (ended_ms - began_ms) / 1000
        with self._lock:
            found = self._found.get(labels)
            if found is None:
                found = self._found[labels] = Distribution()
            found.counts[bisect_left(SECONDS, seconds)] += 1
            found.sum_s += seconds
            if self.export is None or (
                self._exported_ms is not None and ended_ms - self._exported_ms < EXPORTED_MS
            ):
                return
            self._exported_ms = ended_ms
        self.export(labels, seconds)

    def copy(self) -> Mapping[Labels, Distribution]:
        """Return the distributions as they are now."""
        with self._lock:
            return {labels: found.copy() for labels, found in self._found.items()}


class _Watchers:
    """How many show durations: servers of `/metrics`, and OpenTelemetry."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()

    def add(self, change: int) -> None:
        with self._lock:
            self.count += change


_WATCHERS: Final = _Watchers()


def is_measured() -> bool:
    """Return whether anyone shows durations, so that calls must take the time."""
    return _WATCHERS.count > 0


def measure() -> None:
    """Measure durations from now on, as long as the process lives."""
    _WATCHERS.add(1)


@contextmanager
def measuring() -> Iterator[None]:
    """Measure durations while the block runs."""
    _WATCHERS.add(1)
    try:
        yield
    finally:
        _WATCHERS.add(-1)
