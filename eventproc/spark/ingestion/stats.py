"""The statistics of a running task: totals, rates and the share of time in which it was busy."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

from eventproc.store.model.ingestion import RATE_MINUTES, TaskStats

_MINUTE_MS: Final = 60_000


class StatsMeter:
    """Adds up what a task does. Usable from any thread. now_ms: monotonic time of the call."""

    def __init__(self, now_ms: int, samples_max: int) -> None:
        self._lock = threading.Lock()
        self._began_ms = now_ms
        self._counts = Counter[str]()
        self._rows = 0
        self._samples: deque[str] = deque(maxlen=samples_max)
        self._slices: deque[tuple[int, int, int]] = deque()  # (end, duration in ms, events)

    @property
    def unparseable(self) -> int:
        """Events so far that are no rows."""
        return self._counts["unparseable"]

    def add_slice(self, now_ms: int, took_ms: int, counts: Mapping[str, int]) -> None:
        """Note a slice that was read. counts: by the fields of `TaskStats`."""
        with self._lock:
            self._counts.update(counts)
            self._slices.append((now_ms, took_ms, counts["processed"]))
            while self._slices[0][0] < now_ms - max(RATE_MINUTES) * _MINUTE_MS:
                self._slices.popleft()

    def add_rows(self, count: int) -> None:
        """Note rows that were written for publication."""
        with self._lock:
            self._rows += count

    def add_samples(self, samples: Iterable[str]) -> None:
        """Keep examples of unparseable events, the newest last."""
        with self._lock:
            self._samples.extend(samples)

    def stats(self, now_ms: int) -> TaskStats:
        """Return the statistics at this time."""
        with self._lock:
            return self._stats(now_ms)

    def _stats(self, now_ms: int) -> TaskStats:
        alive_ms = max(now_ms - self._began_ms, 1)
        minute = min(alive_ms, _MINUTE_MS)
        busy = sum(took for end, took, _ in self._slices if end > now_ms - minute)
        rates = []
        for minutes in RATE_MINUTES:
            window_ms = min(alive_ms, minutes * _MINUTE_MS)
            events = sum(count for end, _, count in self._slices if end > now_ms - window_ms)
            rates.append(round(events * 1000 / window_ms, 1))
        return TaskStats(
            processed=self._counts["processed"],
            processed_bytes=self._counts["processed_bytes"],
            thrown_away=self._counts["thrown_away"],
            unparseable=self._counts["unparseable"],
            rows=self._rows,
            samples=tuple(self._samples),
            busy_ratio=round(min(busy / minute, 1.0), 3),
            rates=tuple(rates),
        )
