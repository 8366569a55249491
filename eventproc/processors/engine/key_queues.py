"""Which event may be handled next: lanes of events that must follow each other, and events that need not.

Pure bookkeeping, used on the event loop only. A lane is in the ready queue, or taken by a worker, or parked
until a retry is due; never two of these, so no two workers ever hold one lane, and its events are handled one
after the other. A retry holds its lane: nothing overtakes it (pitfalls.md item 13). There is no task, lock or
stream per event (item 32).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from itertools import count
from typing import NamedTuple, TypeAlias

from eventproc.processors.engine.owned_segment import InFlightRun
from eventproc.processors.options import ProcessingOrder
from eventproc.store.segments import Event

Item: TypeAlias = tuple[Event, InFlightRun]
"""An event, and the chunk that learns when it is finished."""


class RetryState(NamedTuple):
    """What an event went through. since_ms: when its first call, which failed, began. error: of the last, as text."""

    since_ms: int
    error: str


class KeyQueue:
    """Events to be handled one after the other; those with key None hold one that follows no other.

    attempt: failed calls of the first event. alone: how many events, from the first on, a batch handler gets one
    by one, because a batch with them failed. trouble: of the first event, None unless a call for it failed.
    """

    __slots__ = ("alone", "attempt", "items", "key", "trouble")

    def __init__(self, key: Hashable, items: Iterable[Item]) -> None:
        self.key = key
        self.items: deque[Item] = deque(items)
        self.attempt = 0
        self.alone = 0
        self.trouble: RetryState | None = None

    @property
    def next_attempt(self) -> int:
        """Number of the next call of the first event, from 1; the batch that failed with it counts."""
        return self.attempt + 1 + bool(self.alone)

    def pop(self) -> Item:
        """Take out the first event, which is finished or dropped."""
        if self.attempt or self.alone:
            self.attempt, self.trouble = 0, None
            self.alone = max(self.alone - 1, 0)
        return self.items.popleft()


class KeyQueues:
    """Everything that waits to be handled."""

    def __init__(self, order: ProcessingOrder) -> None:
        self._key_of = _KEYS[order]
        self._lanes: dict[Hashable, KeyQueue] = {}
        self._ready: deque[KeyQueue] = deque()
        self._free: deque[Item] = deque()  # events that follow no other
        self._parked: list[tuple[int, int, KeyQueue]] = []
        self._order_parked = count()
        self._free_next = False

    def put(self, items: Iterable[Item]) -> None:
        """Add events, in order."""
        lanes, key_of = self._lanes, self._key_of
        for item in items:
            key = key_of(item)
            if key is None:
                self._free.append(item)
            elif (lane := lanes.get(key)) is not None:
                lane.items.append(item)
            else:
                lane = lanes[key] = KeyQueue(key, (item,))
                self._ready.append(lane)

    def __bool__(self) -> bool:
        """Whether something may be handled now."""
        return bool(self._ready or self._free)

    @property
    def ready(self) -> int:
        """How many workers could begin now."""
        return len(self._ready) + len(self._free)

    def take(self) -> KeyQueue:
        """Return a lane that may be handled now; the caller brings it back by `give_back` or `park`.

        KeyQueues and free events take turns, so that neither starves.
        """
        self._free_next = bool(self._free) and (not self._free_next or not self._ready)
        if self._free_next:
            return KeyQueue(None, (self._free.popleft(),))
        return self._ready.popleft()

    def take_free(self, events_max: int) -> list[Item]:
        """Return more free events, at most so many, for who handles several at once."""
        return [self._free.popleft() for _ in range(min(events_max, len(self._free)))]

    def give_back(self, lane: KeyQueue) -> None:
        """Bring back a lane, for its turn to come again if it has events left."""
        if lane.key is None:
            self._free.extendleft(reversed(lane.items))
        elif lane.items:
            self._ready.append(lane)
        else:
            del self._lanes[lane.key]

    def park(self, lane: KeyQueue, due_ms: int) -> None:
        """Bring back a lane whose first event is to be tried again at `due_ms`, monotonic."""
        heapq.heappush(self._parked, (due_ms, next(self._order_parked), lane))

    def unpark(self, now_ms: int) -> int | None:
        """Make ready what is due; return when the next is, None when nothing is parked."""
        while self._parked and self._parked[0][0] <= now_ms:
            self._ready.appendleft(heapq.heappop(self._parked)[2])
        return self._parked[0][0] if self._parked else None

    def unpark_closing(self) -> None:
        """Make ready the lanes whose first event belongs to a closing cell."""
        parked, self._parked = self._parked, []
        for each in parked:
            if each[2].items[0][1].cell.closing:
                self._ready.append(each[2])
            else:
                self._parked.append(each)
        heapq.heapify(self._parked)

    @property
    def failing(self) -> list[KeyQueue]:
        """The lanes that wait for a retry, or whose retry is due and waits for a worker."""
        due = [lane for lane in self._ready if lane.trouble is not None]
        return [lane for _, _, lane in self._parked] + due


def _segment_of(item: Item) -> Hashable:
    return item[1].cell.key


def _key_of(item: Item) -> Hashable:
    return item[0].key


def _nothing(_item: Item) -> Hashable:
    return None


_KEYS: dict[ProcessingOrder, Callable[[Item], Hashable]] = {
    ProcessingOrder.SEGMENT: _segment_of,
    ProcessingOrder.KEY: _key_of,
    ProcessingOrder.NONE: _nothing,
}
