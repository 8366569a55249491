"""One side of one measurement: how it is timed, and what it reports."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import attrs

PAYLOAD_BYTES: Final = 100
"""Size of every payload: small, so that what is measured is the cost of an event and not of its bytes."""

KEYS_COUNT: Final = 1_000
"""Routing keys in use."""

CALLERS_COUNT: Final = 100
"""Concurrent tasks of a measurement with many."""


@attrs.frozen
class Sample:
    """value: in the unit of the measurement. cpu_us: CPU time per operation, all threads. rss_mb: peak memory."""

    value: float
    cpu_us: float
    rss_mb: float


@attrs.frozen
class Task:
    """What a side is asked to do, in a process of its own.

    directory: empty, on a disk. durability: "fsync" or "os". count: operations, or ms for the idle cost.
    url: of a store on a server; None: the store lies in the directory.
    """

    directory: Path
    durability: str
    count: int
    url: str | None = None

    @property
    def store(self) -> str | Path:
        """What `eventproc.open` opens."""
        return self.directory if self.url is None else self.url


Side: TypeAlias = Callable[[Task], Awaitable[Sample]]


class Stopwatch:
    """Wall and CPU time from its making on."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def rate(self, count: int) -> Sample:
        """Return operations per second, of `count` done since the start."""
        seconds = time.perf_counter() - self._wall
        return Sample(value=count / seconds, cpu_us=self._cpu_us(count), rss_mb=peak_rss_mb())

    def mean_ms(self, count: int) -> Sample:
        """Return the mean duration in ms, of `count` operations done one after the other since the start."""
        seconds = time.perf_counter() - self._wall
        return Sample(value=1000 * seconds / count, cpu_us=self._cpu_us(count), rss_mb=peak_rss_mb())

    def load(self) -> Sample:
        """Return the percentage of one core in use since the start; cpu_us is then per second."""
        seconds = time.perf_counter() - self._wall
        cpu_us = self._cpu_us(1) / seconds
        return Sample(value=cpu_us / 10_000, cpu_us=cpu_us, rss_mb=peak_rss_mb())

    def _cpu_us(self, count: int) -> float:
        return (time.process_time() - self._cpu) * 1e6 / count


def peak_rss_mb() -> float:
    """Return the most memory that this process has used so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def payloads() -> list[bytes]:
    """Return one payload for each key."""
    return [f"{number:08d}".encode().ljust(PAYLOAD_BYTES, b".") for number in range(KEYS_COUNT)]


def keys() -> list[str]:
    """Return the routing keys."""
    return [f"customer-{number}" for number in range(KEYS_COUNT)]


async def timed(run: Callable[[], Coroutine[Any, Any, None]], callers: int, count: int) -> Sample:
    """Run `run` in as many tasks as there are callers, and return the rate of the `count` operations they share."""
    watch = Stopwatch()
    async with anyio.create_task_group() as tasks:
        for _ in range(callers):
            tasks.start_soon(run)
    return watch.rate(count)


def imported(name: str, module_name: str) -> Callable[..., Awaitable[Sample]]:
    """Return a side of a module that is imported when it runs: the other sides are measured without its libraries."""

    async def side(*arguments: object) -> Sample:
        module = import_module(module_name)
        sample: Sample = await getattr(module, name)(*arguments)
        return sample

    return side
