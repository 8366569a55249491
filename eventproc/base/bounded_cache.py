"""A cache within a bound, for what can be read or computed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key: while their sizes sum up to more than `size_max`, the oldest goes. Safe for threads.

    size_of: of a value; without it every value counts as 1. One that is larger than the bound is not kept.
    """

    def __init__(self, size_max: int, size_of: Callable[[V], int] = lambda _: 1) -> None:
        self._size_max = size_max
        self._size_of = size_of
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0
        self._changing = Lock()

    def find(self, key: K) -> V | None:
        """Return the value, None without one. One look-up, no change."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def use(self, key: K) -> V | None:
        """Return the value as `find` does, and make it the newest."""
        with self._changing:
            if (entry := self._entries.get(key)) is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def keep(self, key: K, value: V) -> None:
        """Keep a value as the newest, instead of the one that this key has."""
        size = self._size_of(value)
        with self._changing:
            self._drop(key)
            if size <= self._size_max:
                self._entries[key] = value, size
                self._size += size
            while self._size > self._size_max:
                self._drop(next(iter(self._entries)))

    def forget(self, key: K) -> None:
        """Drop the value of a key, if there is one."""
        with self._changing:
            self._drop(key)

    def _drop(self, key: K) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self._size -= entry[1]
