"""The demo's handler: it counts lost, duplicate and misordered rows, and computes the mean of a column per key."""

from __future__ import annotations

import json
from collections.abc import Mapping

import anyio
import attrs

from eventproc.store.model.errors import CorruptRecord
from eventproc.store.segments import Event

ROW_HEADER = "row"
"""Header with a row's number in the file, from 0, by which the ledger recognises the row."""

PAUSE_ROWS = 32
"""Every PAUSE_ROWS-th row lets its handler wait, so that handlers of many keys run concurrently. Smaller: slower.
Larger: each worker finishes its key undisturbed, which proves less."""

_decode = json.JSONDecoder().decode


@attrs.frozen
class KeyMean:
    """The mean of a column over the rows of one key."""

    key: str
    mean: float
    rows: int


class DemoLedger:
    """Handles each row, and counts.

    processed: different rows handled.
    duplicates: rows handled again.
    order_violations: rows handled after a later row of their key. The rows of a key have ascending numbers, so each
    row is compared with the last one of its key.
    """

    def __init__(self, rows: int, *, key: str, mean_of: str | None) -> None:
        """rows: number of rows. key: column with the routing key. mean_of: column to average, None for no averages."""
        self.processed = 0
        self.duplicates = 0
        self.order_violations = 0
        self._seen = bytearray(rows)
        self._last: dict[str, int] = {}
        self._key = key
        self._mean_of = mean_of
        self._sums: dict[str, tuple[float, int]] = {}

    async def handle(self, event: Event[bytes]) -> None:
        """Handle one row. Raises CorruptRecord for an event that is not one of the written rows."""
        try:
            number = int(event.headers[ROW_HEADER])
            columns: Mapping[str, str] = _decode(event.payload.decode())
            key = columns[self._key]
            seen = self._seen[number]
        except (KeyError, ValueError, IndexError) as error:
            raise CorruptRecord(
                key=f"event {event.number}", reason=f"not a row of the file: {error}"
            ) from error
        if key != event.key:
            raise CorruptRecord(key=f"row {number}", reason=f"its key reads {event.key!r}, not {key!r}")
        if number % PAUSE_ROWS == 0:
            await anyio.lowlevel.checkpoint()
        if seen:
            self.duplicates += 1
            return
        self._seen[number] = 1
        self.processed += 1
        if self._last.get(key, -1) > number:
            self.order_violations += 1
        self._last[key] = number
        if self._mean_of is not None:
            self._add(key, columns[self._mean_of])

    def worst(self, count: int) -> list[KeyMean]:
        """Return the `count` keys with the largest means, the largest first."""
        means = [KeyMean(key, total / rows, rows) for key, (total, rows) in self._sums.items()]
        return sorted(means, key=lambda mean: (-mean.mean, mean.key))[:count]

    def _add(self, key: str, text: str) -> None:
        try:
            value = float(text)
        except ValueError:
            return  # an unknown value, such as NA
        total, rows = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + value, rows + 1)
