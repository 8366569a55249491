"""The priority of events: 0 to 9, higher first, in the reserved header PRIORITY_HEADER; 0 without one.

Share groups deliver by it. So that they need not look ahead in streams without priorities, a stream is marked in the
transaction that appends or stages its first event with one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import Headers
from eventproc.store.segments.event import PRIORITY_HEADER, EventRun


class _MarkedStreams:
    """The streams that are known to be marked, so that each is written once by an opening of the database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[int] = set()

    def __contains__(self, stream_id: int) -> bool:
        with self._lock:
            return stream_id in self._ids

    def add(self, stream_id: int) -> None:
        with self._lock:
            self._ids.add(stream_id)


PRIORITIZED_STREAMS: Final = SharedSlot(_MarkedStreams)


def mark_prioritized(tx: Tx, stream_id: int, headers: Iterable[Headers | None]) -> None:
    """Mark the stream if one of its new events has a priority. One statement, for the first time only."""
    marked = tx.shared[PRIORITIZED_STREAMS]
    if stream_id not in marked and any(each is not None and PRIORITY_HEADER in each for each in headers):
        tx.execute(
            "INSERT INTO prioritized_stream (stream_id) VALUES (?) ON CONFLICT DO NOTHING", (stream_id,)
        )
        tx.after(lambda: marked.add(stream_id))


def is_prioritized(tx: Tx, stream_id: int) -> bool:
    """Return whether events of the stream may have priorities. One look-up."""
    found = tx.execute("SELECT 1 FROM prioritized_stream WHERE stream_id = ?", (stream_id,)).fetchone()
    return found is not None


def priority_parts(run: EventRun) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the parts of a run whose events have one priority: (low, high, start, end, priority), by event number."""
    number, start = run.first_number, run.start
    if run.headers is None:
        yield number, number + len(run), start, run.end, 0
        return
    at = 0
    for priority, group in groupby(map(priority_of, run.headers)):
        count = sum(1 for _ in group)
        size_bytes = count * FRAME_BYTES + sum(map(len, run.payloads[at : at + count]))
        yield number + at, number + at + count, start, start + size_bytes, priority
        at, start = at + count, start + size_bytes


def priority_of(headers: Headers | None) -> int:
    """Return the priority that headers name; 0 if they name none."""
    text = None if headers is None else headers.get(PRIORITY_HEADER)
    # Older versions let users write any text under this name.
    if text is None or len(text) != 1 or not text.isascii() or not text.isdecimal():
        return 0
    return int(text)
