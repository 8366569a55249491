"""What somebody of this process waits for, on its way to him without a read.

Memory of one opening of a database: it holds what is expected, from the commit that wrote it until the waiter takes it.
What another process commits never comes here; its waiter is woken by the bell, and reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Expected(Generic[K, V]):
    """Values by key, of the keys that somebody expects. On the event loop only."""

    def __init__(self) -> None:
        self._expected: Counter[K] = Counter()
        self._known: dict[K, V] = {}

    @contextmanager
    def expecting(self, key: K) -> Iterator[None]:
        """Keep the key's value, if it is written while the block runs, until the end of the block."""
        self._expected[key] += 1
        try:
            yield
        finally:
            self._expected[key] -= 1
            if not self._expected[key]:
                del self._expected[key]
                self._known.pop(key, None)

    def wants(self, key: K) -> bool:
        """Return whether somebody expects the key."""
        return key in self._expected

    def deliver(self, key: K, value: V) -> None:
        """Note a value that is durable now; an effect of the transaction that wrote it."""
        if key in self._expected:
            self._known[key] = value

    def find(self, key: K) -> V | None:
        """Return what was delivered for an expected key, None while that is not known here."""
        return self._known.get(key)
