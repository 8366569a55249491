"""The live table of `eventproc run` on a terminal: one row for each processor, updated every second."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import anyio

from eventproc.cli.options import Settings
from eventproc.cli.output.tables import iso_time
from eventproc.cli.output.terminal import is_plain, live_table
from eventproc.cli.output.units import duration_text, size_text
from eventproc.errors import EventprocError
from eventproc.processors import Blocker, ProcessorStatus, Running

SHOW_MS: Final = 1_000
"""Interval between two updates; each reads every group."""

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
LEFT_OUT_FIRST: Final = ("BYTES", "RUNNING", "AGE", "DONE", "FAILED", "LETTERS")
"""Columns that a narrow terminal leaves out, the first one first."""


async def show_live_status(settings: Settings, running: Sequence[Running]) -> None:
    """Show the processors until cancelled, if stderr is a terminal."""
    if settings.quiet or not running or is_plain() or not sys.stderr.isatty():
        return
    rates = EventRates()
    with live_table(HEADINGS, LEFT_OUT_FIRST) as show:
        while True:
            rows: list[list[str]] = []
            for each in running:
                try:
                    rows += [status_cells(status, rates.of(status)) for status in await each.status()]
                except EventprocError as why:
                    rows.append([str(why), *[""] * (len(HEADINGS) - 1)])
            show(rows)
            await anyio.sleep(SHOW_MS / 1000)


class EventRates:
    """Events per second of each processor, between two updates."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int]] = {}

    def of(self, status: ProcessorStatus) -> float:
        """Return how many events per second the processor finished since the last call."""
        now = anyio.current_time()
        since, before = self._before.get(status.group, (now, status.finished))
        self._before[status.group] = now, status.finished
        return (status.finished - before) / max(now - since, 0.001)


def status_cells(status: ProcessorStatus, rate: float) -> list[str]:
    """Return the cells of a processor, under HEADINGS."""
    return [
        status.name,
        status.state.value,
        f"{status.lag_events:,}",
        size_text(status.lag_bytes),
        "-" if status.lag_ms is None else duration_text(status.lag_ms),
        f"{status.in_flight:,}",
        f"{status.finished:,}",
        f"{rate:,.0f}",
        f"{status.failed_calls:,}",
        f"{status.dead_letters:,}",
        "-" if status.blocker is None else blocker_text(status.blocker),
    ]


def blocker_text(blocker: Blocker) -> str:
    """Return the text that names the event that blocks progress, and since when."""
    event = f"{blocker.stream} {blocker.segment} event {blocker.number}"
    key = "" if blocker.key is None else f" (key {blocker.key!r})"
    why = "" if blocker.error is None else f" attempt {blocker.attempt}: {blocker.error}"
    return f"{event}{key} since {iso_time(blocker.since_ms)}{why}"
