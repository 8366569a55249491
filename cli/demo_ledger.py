"""The demo's proof: what was processed, how often, in which order, and the mean per key on the side."""

from __future__ import annotations

import json
from collections.abc import Mapping

import anyio
import attrs

from eventproc.store.model.errors import CorruptRecord
from eventproc.store.segments import Event

ROW_HEADER = "row"
"""Header that carries a row's number in the file, from 0: what the proof stands on."""

PAUSE_ROWS = 32
"""One row in so many makes its handler wait, so that handlers of many keys are under way at once. Smaller
costs time, larger lets each worker finish its key undisturbed, which would prove little."""

_decode = json.JSONDecoder().decode


@attrs.frozen
class Mean:
    """The mean of a column over the rows of one key."""

    key: str
    mean: float
    rows: int


class Ledger:
    """Handles each row, and keeps account.

    processed: different rows handled. duplicates: rows handled again. order_violations: rows handled
    after a later row of their key. Rows of one key carry growing numbers, so that comparing with the
    last one of the key is enough.
    """

    def __init__(self, rows: int, *, key: str, mean_of: str | None) -> None:
        """rows: how many there are. key: the column that keys them. mean_of: the column to take means of."""
        self.processed = 0
        self.duplicates = 0
        self.order_violations = 0
        self._seen = bytearray(rows)
        self._last: dict[str, int] = {}
        self._key = key
        self._mean_of = mean_of
        self._sums: dict[str, tuple[float, int]] = {}

    async def handle(self, event: Event[bytes]) -> None:
        """Handle one row. Raises CorruptRecord for an event that is none of the rows written."""
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

    def worst(self, count: int) -> list[Mean]:
        """Return the `count` keys with the largest means, the largest first."""
        means = [Mean(key, total / rows, rows) for key, (total, rows) in self._sums.items()]
        return sorted(means, key=lambda mean: (-mean.mean, mean.key))[:count]

    def _add(self, key: str, text: str) -> None:
        try:
            value = float(text)
        except ValueError:
            return  # what is not known, and reads NA
        total, rows = self._sums.get(key, (0.0, 0))
        self._sums[key] = (total + value, rows + 1)
