"""The time to live of events: which events of a run have expired, and the reserved header that holds an event's own.

Pure: no I/O. An event expires when its append time plus its time to live is reached. Its own time to live is text in
the header TTL_HEADER and precedes that of its topic. Expired events keep their bytes until they are truncated. An event
that a compaction has removed counts as expired, whatever the time is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import groupby, repeat
from typing import Final

from eventproc.store.segments.columns import Headers
from eventproc.store.segments.event import TTL_HEADER, EventRun, is_removed

NEVER: Final = math.inf
"""When an event without a time to live expires."""


def first_expiry(run: EventRun, ttl_ms: int | None, first: int = 0) -> float:
    """Return when the first of the events from index `first` on expires, wall time in ms; NEVER if none does.

    O(1) if no event of the run has headers.
    """
    if run.headers is None:
        if ttl_ms is None:
            return NEVER
        return (run.time if run.times is None else run.times[first]) + ttl_ms
    return min(_expiries(run, ttl_ms)[first:], default=NEVER)


def live_ranges(run: EventRun, ttl_ms: int | None, now_ms: int, first: int = 0) -> list[tuple[int, int]]:
    """Return the ranges [low, high) of indices from `first` on whose events have not expired. O(events)."""
    ranges: list[tuple[int, int]] = []
    at = first
    for is_live, group in groupby(expiry > now_ms for expiry in _expiries(run, ttl_ms)[first:]):
        count = sum(1 for _ in group)
        if is_live:
            ranges.append((at, at + count))
        at += count
    return ranges


def _expiries(run: EventRun, ttl_ms: int | None) -> list[float]:
    times: Iterable[int] = repeat(run.time, len(run)) if run.times is None else run.times
    if run.headers is None:
        return [NEVER if ttl_ms is None else time + ttl_ms for time in times]
    found: list[float] = []
    for time, headers in zip(times, run.headers, strict=True):
        if is_removed(headers):
            found.append(-math.inf)
            continue
        own = _own_ttl(headers)
        ttl = ttl_ms if own is None else own
        found.append(NEVER if ttl is None else time + ttl)
    return found


def _own_ttl(headers: Headers | None) -> int | None:
    text = None if headers is None else headers.get(TTL_HEADER)
    # Older versions let users write any text under this name.
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 17 else None
