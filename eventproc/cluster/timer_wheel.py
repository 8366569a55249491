"""A hashed timer wheel: arming, disarming and a tick cost the same for any number of timers. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TICK_MS: Final = 100
"""Width of a slot: how late a timer may fire. Pravega uses 400 ms."""

SLOTS: Final = 512
"""Slots of the wheel. A timer further away than one turn (51 s) is examined once per turn."""


class TimerWheel(Generic[K, V]):
    """Timers by key, each with a value that `take_due` returns when it is due. Times are monotonic ms."""

    def __init__(self, now_ms: int) -> None:
        self._tick = now_ms // TICK_MS  # the last one that was taken
        self._timers: dict[K, tuple[int, V]] = {}  # {key: (due tick, value)}
        self._slots: list[set[K]] = [set() for _ in range(SLOTS)]

    def __len__(self) -> int:
        return len(self._timers)

    def arm(self, key: K, due_ms: int, value: V) -> None:
        """Set the timer of `key`, replacing an earlier one. It is due at the first tick at or after `due_ms`."""
        self.disarm(key)
        tick = max(-(-due_ms // TICK_MS), self._tick + 1)
        self._timers[key] = tick, value
        self._slots[tick % SLOTS].add(key)

    def disarm(self, key: K) -> None:
        """Remove the timer of `key`, if it has one."""
        found = self._timers.pop(key, None)
        if found is not None:
            self._slots[found[0] % SLOTS].discard(key)

    def keep(self, keys: set[K]) -> None:
        """Remove the timers of all keys that are not in `keys`."""
        for key in self._timers.keys() - keys:
            self.disarm(key)

    def take_due(self, now_ms: int) -> list[tuple[K, V]]:
        """Remove and return the timers that are due, in no particular order."""
        tick = now_ms // TICK_MS
        due: list[tuple[K, V]] = []
        for slot in range(self._tick + 1, min(tick, self._tick + SLOTS) + 1):
            for key in [key for key in self._slots[slot % SLOTS] if self._timers[key][0] <= tick]:
                due.append((key, self._timers[key][1]))
                self.disarm(key)
        self._tick = max(tick, self._tick)
        return due

    def pause_ms(self, now_ms: int, most_ms: int) -> int:
        """Return the time until the next timer is due, at most `most_ms`. Examines only the slots of that time."""
        for tick in range(self._tick + 1, (now_ms + most_ms) // TICK_MS + 1):
            if any(self._timers[key][0] <= tick for key in self._slots[tick % SLOTS]):
                return max(0, tick * TICK_MS - now_ms)
        return most_ms
