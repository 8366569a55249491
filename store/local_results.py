"""Results of this process for callers of the same process that wait for them, delivered without a read.

A result stays in memory from the commit that wrote it until its waiter takes it. Results that another process commits
never arrive here: their waiter is woken by the notification, and reads the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LocalResults(Generic[K, V]):
    """Results by key, kept only for keys that a caller expects. Used on the event loop only."""

    def __init__(self) -> None:
        self._expected: Counter[K] = Counter()
        self._results: dict[K, V] = {}

    @contextmanager
    def expecting(self, key: K) -> Iterator[None]:
        """Keep the result of `key`, if it is delivered inside the block, until the block ends."""
        self._expected[key] += 1
        try:
            yield
        finally:
            self._expected[key] -= 1
            if not self._expected[key]:
                del self._expected[key]
                self._results.pop(key, None)

    def deliver(self, key: K, value: V) -> None:
        """Keep a result if a caller expects it. To be called as an effect of the transaction that wrote it."""
        if key in self._expected:
            self._results[key] = value

    def find(self, key: K) -> V | None:
        """Return the result of an expected key, or None if this process has not delivered it."""
        return self._results.get(key)
