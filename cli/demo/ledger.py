"""The demo's handler: it counts lost, duplicate and misordered rows, and computes the mean of a column per key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import anyio
import attrs

from eventproc import Event
from eventproc.cli.demo.cpu_times import CpuTimes
from eventproc.errors import CorruptRecord
from eventproc.processors import App, RetryPolicy

BATCH_ROWS: Final = 500
"""Rows of a call. Higher: fewer calls, of more keys each."""

CALLS: Final = 4
"""Calls in flight, each with rows of other keys."""


@attrs.frozen
class KeyMean:
    """The mean of a column over the rows of one key."""

    key: str
    mean: float
    rows: int


class DemoLedger:
    """Handles the rows in batches, and counts.

    processed: different rows handled.
    duplicates: rows handled again.
    order_violations: rows handled after a later row of their key. The rows of a key have ascending numbers, so each
    row is compared with the last one of its key.
    """

    def __init__(self, cpu: CpuTimes, *, key: str, mean_of: str | None) -> None:
        """cpu: measures the handler. key: column with the routing key. mean_of: column to average, or None."""
        self.processed = 0
        self.duplicates = 0
        self.order_violations = 0
        self._cpu = cpu
        self._seen = bytearray()
        self._last: dict[tuple[int, str], int] = {}
        self._key = key
        self._mean_of = mean_of
        self._sums: dict[str, tuple[float, int]] = {}

    async def handle(self, events: list[Event[bytes]]) -> None:
        """Handle a batch of rows. Raises CorruptRecord for an event that is not one of the written rows."""
        try:
            with self._cpu.measure("decode JSON"):
                # One document for all events takes half as long as one document for each.
                rows: list[tuple[int, Mapping[str, str]]] = json.loads(
                    b"[%b]" % b",".join([event.payload for event in events])
                )
            await anyio.lowlevel.checkpoint()  # other batches, with rows of other keys, run meanwhile
            with self._cpu.measure("verify"):
                for event, (number, columns) in zip(events, rows, strict=True):
                    self.count(number, event.key, columns)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"not a row of the file: {error}"
            raise CorruptRecord(key=f"event {events[0].number} or later", reason=reason) from error

    def app(self, stream: str, group: str) -> App:
        """Return an app that handles the rows of a stream as this group, those of each key in order."""
        app = App()
        app.add(
            self.handle,
            stream,
            group=group,
            order="key",
            batch=BATCH_ROWS,
            concurrency=CALLS,
            retry=RetryPolicy(attempts=1),
            on_failure="stop",
        )
        return app

    def worst(self, count: int) -> list[KeyMean]:
        """Return the `count` keys with the largest means, the largest first."""
        means = [KeyMean(key, total / rows, rows) for key, (total, rows) in self._sums.items()]
        return sorted(means, key=lambda mean: (-mean.mean, mean.key))[:count]

    def count(self, number: int, key: str | None, columns: Mapping[str, str], *, lane: int = 0) -> None:
        """Count one row. lane: where the rows of its key are in order: the partition, if there are several."""
        if key is None or key != columns[self._key]:
            raise CorruptRecord(key=f"row {number}", reason=f"its key is {key!r}, not {columns[self._key]!r}")
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1))  # at least twice the size
        if self._seen[number]:
            self.duplicates += 1
            return
        self._seen[number] = 1
        self.processed += 1
        if self._last.get((lane, key), -1) > number:
            self.order_violations += 1
        self._last[lane, key] = number
        if self._mean_of is not None:
            self._add(key, columns[self._mean_of])

    def _add(self, key: str, text: str) -> None:
        try:
            value = float(text)
        except ValueError:
            return  # an unknown value, such as NA
        total, rows = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + value, rows + 1)
