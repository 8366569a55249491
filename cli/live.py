"""What a terminal shows while apps run: a line for each processor, every second."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

import anyio

from eventproc.cli.settings import Settings
from eventproc.cli.show import iso_time
from eventproc.processors import Blocker, ProcessorStatus, Running
from eventproc.store.clock import Clock
from eventproc.store.model.errors import EventprocError

SHOW_MS: Final = 1_000
"""Pause between two looks; each is a read of every group."""

HEADINGS: Final = (
    "PROCESSOR",
    "STATE",
    "LAG",
    "BYTES",
    "AGE",
    "RUNNING",
    "DONE",
    "PER S",
    "FAILED",
    "LETTERS",
    "HELD UP BY",
)


async def live(settings: Settings, clock: Clock, running: Sequence[Running]) -> None:
    """Show the processors until cancelled, where a person looks on; elsewhere nothing."""
    if settings.quiet or not running or not sys.stderr.isatty():
        return
    from eventproc.cli.table import live_table

    rates = Rates(clock)
    with live_table(HEADINGS) as show:
        while True:
            rows: list[list[str]] = []
            for each in running:
                try:
                    rows += [row(status, rates.of(status)) for status in await each.status()]
                except EventprocError as why:
                    rows.append([str(why), *[""] * (len(HEADINGS) - 1)])
            show(rows)
            await anyio.sleep(SHOW_MS / 1000)


class Rates:
    """Events per second, between two looks at a processor."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[str, tuple[int, int]] = {}

    def of(self, status: ProcessorStatus) -> float:
        """Return how many events a second it finished since it was asked about before."""
        now_ms = self._clock.monotonic_ms()
        before_ms, before = self._before.get(status.group, (now_ms, status.finished))
        self._before[status.group] = now_ms, status.finished
        return (status.finished - before) * 1000 / max(now_ms - before_ms, 1)


def row(status: ProcessorStatus, rate: float) -> list[str]:
    """Return the cells of a processor, under HEADINGS."""
    return [
        status.name,
        status.state.value,
        f"{status.lag_events:,}",
        f"{status.lag_bytes:,}",
        "-" if status.lag_ms is None else f"{status.lag_ms / 1000:.1f} s",
        f"{status.in_flight:,}",
        f"{status.finished:,}",
        f"{rate:,.0f}",
        f"{status.failed_calls:,}",
        f"{status.dead_letters:,}",
        "-" if status.blocker is None else blocker_text(status.blocker),
    ]


def blocker_text(blocker: Blocker) -> str:
    """Return in words which event holds progress up, and since when."""
    return " ".join(_words(blocker))


def _words(blocker: Blocker) -> Iterator[str]:
    yield f"{blocker.stream} {blocker.segment} event {blocker.number}"
    if blocker.key is not None:
        yield f"(key {blocker.key!r})"
    yield f"since {iso_time(blocker.since_ms)}"
    if blocker.error is not None:
        yield f"attempt {blocker.attempt}: {blocker.error}"
