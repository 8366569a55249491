"""Measures where a process spends its CPU time: some steps are timed, and the rest has a name of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import process_time, thread_time


class CpuTimes:
    """CPU time of this process, from the creation of this object on.

    rest: name of all that is not measured, in every thread.
    """

    def __init__(self, *, rest: str) -> None:
        self._rest = rest
        self._began = process_time()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, step: str) -> Iterator[None]:
        """Add the CPU time of this thread within the block to a step. Do not await in it."""
        began = thread_time()
        try:
            yield
        finally:
            self._seconds[step] = self._seconds.get(step, 0.0) + thread_time() - began

    def seconds(self) -> Mapping[str, float]:
        """Return the CPU time of each step until now, and of the rest, in seconds."""
        rest = process_time() - self._began - sum(self._seconds.values())
        return {**self._seconds, self._rest: max(rest, 0.0)}
