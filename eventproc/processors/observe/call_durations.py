"""How long the calls of a handler take: measured by turn in each process, and published with the status.

A worker reads the clock when each call begins, for its timeout. So the end of a call is the begin of the next one of
its turn, and measuring adds one look at the clock to a turn. What lies between two calls, a microsecond, counts too.
Calls are counted when the millisecond changes, so that one that takes less costs some 20 ns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import attrs

from eventproc.processors.timers import TimerEvent
from eventproc.store.segments import Event

SPAN_MS: Final = 30_000
"""Half of the time whose calls the figures cover. Higher: they follow a change later. Lower: they jump."""

EXACT_BITS: Final = 4
"""A duration is counted as the longest one with the same first bits: that is an eighth longer at most. Higher: more
different ones to count."""


@attrs.frozen(kw_only=True)
class CallDurations:
    """How long calls of a handler took, in the last 30 to 60 s in which it was called. A batch is one call.

    Failed calls count, also those that overran their timeout. Waiting counts as working does.

    Attributes:
        count: How many calls ended in that time.
        mean_ms: Their mean.
        median_ms: Half of them took no longer, to the millisecond; long ones are rounded up by an eighth at most.
        p99_ms: 99 of 100 took no longer, rounded as the median is.
    """

    count: int
    mean_ms: float
    median_ms: int
    p99_ms: int


class CallMeter:
    """Measures the calls of one processor in this process; used on the event loop only.

    appended_ms: when the last event was appended that a call finished, by the wall clock of its writer; None: of none.
    """

    __slots__ = ("_began_ms", "_counts", "_earlier", "_earlier_ms", "_total_ms", "appended_ms")

    def __init__(self) -> None:
        self.appended_ms: int | None = None
        self._began_ms = 0  # of the present half
        self._counts: Counter[int] = Counter()  # in the present half, by duration
        self._total_ms = 0
        self._earlier: Counter[int] = Counter()  # in the half before
        self._earlier_ms = 0

    def note(self, count: int, duration_ms: int, ended_ms: int) -> None:
        """Count calls that followed each other. Only the last one may have taken a millisecond or more."""
        if (age_ms := ended_ms - self._began_ms) >= SPAN_MS:
            is_next = age_ms < 2 * SPAN_MS
            self._earlier, self._earlier_ms = (self._counts, self._total_ms) if is_next else (Counter(), 0)
            self._counts, self._total_ms, self._began_ms = Counter(), 0, ended_ms
        if duration_ms == 0:
            self._counts[0] += count
            return
        self._total_ms += duration_ms
        self._counts[_rounded(duration_ms)] += 1
        if count > 1:
            self._counts[0] += count - 1

    def note_moments(self, moments_ms: Sequence[int]) -> None:
        """Count calls that followed each other. moments_ms: when each began, and when the last one ended."""
        count = 0
        for began_ms, ended_ms in pairwise(moments_ms):
            count += 1
            if ended_ms != began_ms:
                self.note(count, ended_ms - began_ms, ended_ms)
                count = 0
        if count:
            self.note(count, 0, moments_ms[-1])

    def finished(self, event: Event) -> None:
        """Note that the call for an event returned. A timer is none: nobody appended it."""
        if not isinstance(event, TimerEvent):
            self.appended_ms = event.timestamp

    def durations(self) -> CallDurations | None:
        """Return how long calls took; None if none has ended."""
        counts = self._counts + self._earlier
        if not (count := counts.total()):
            return None
        mean_ms = (self._total_ms + self._earlier_ms) / count
        return CallDurations(
            count=count,
            mean_ms=round(mean_ms, 3),
            median_ms=_quantile(counts, 0.5),
            p99_ms=_quantile(counts, 0.99),
        )


def _rounded(duration_ms: int) -> int:
    """Return the longest duration that counts as this one."""
    return duration_ms | (1 << max(duration_ms.bit_length() - EXACT_BITS, 0)) - 1


def _quantile(counts: Counter[int], part: float) -> int:
    """Return the shortest duration that `part` of the calls did not exceed."""
    left = part * counts.total()
    for duration_ms in sorted(counts):
        left -= counts[duration_ms]
        if left <= 0:
            return duration_ms
    return max(counts)
