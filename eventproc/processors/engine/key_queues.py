"""Which event may be handled next: queues of events that must follow each other, and events that may run in any order.

Pure bookkeeping, used on the event loop only. A queue is ready, or taken by a worker, or parked until a retry is due,
and never two of these. So no two workers hold the same queue, and its events are handled one after the other. A retry
holds its queue: nothing overtakes it (pitfalls.md item 13), unless the event was set aside, in a queue of its own.
There is no task, lock or stream per event (item 32).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol, TypeAlias

from eventproc.processors.options import ProcessingOrder
from eventproc.processors.timers import TimerEvent
from eventproc.store.model.ids import format_segment
from eventproc.store.segments import Event


class EventClaim(Protocol):
    """What gives this process the right to handle an event: an owned segment, or a delivery of a share group.

    closing: the right ends, so no call begins.
    """

    closing: bool

    @property
    def key(self) -> Hashable:
        """Equal for events that follow each other in serial order."""
        ...


class InHand(Protocol):
    """Where an event in hand is accounted for."""

    @property
    def owned(self) -> EventClaim:
        """What gives this process the right to handle it."""
        ...

    @property
    def attempts_before(self) -> int:
        """Calls for it that ended before it came here."""
        ...


Item: TypeAlias = tuple[Event, InHand]
"""An event, and where it is accounted for: the run in flight in which it is marked as finished, or its delivery."""


def describe_event(event: Event[Any]) -> str:
    """Return the place of an event for log lines and error messages, with its key if it has one."""
    if isinstance(event, TimerEvent):
        return f"{event.stream} segment {format_segment(event.segment)} timer of key {event.key!r}"
    where = f"{event.stream} segment {format_segment(event.segment)} event {event.number}"
    return where if event.key is None else f"{where} (key {event.key!r})"


class RetryState(NamedTuple):
    """The failed calls of an event.

    since_ms: when its first call, which failed, began (monotonic).
    error: text of the last error.
    """

    since_ms: int
    error: str


class KeyQueue:
    """Events that are handled one after the other. A queue with key None holds events that follow no other.

    attempt: failed calls of the first event.
    alone: how many events, from the first on, a batch handler gets one by one because a batch with them failed.
    retry: failed calls of the first event; None unless a call for it failed.
    """

    __slots__ = ("alone", "attempt", "items", "key", "retry")

    def __init__(self, key: Hashable, items: Iterable[Item]) -> None:
        self.key = key
        self.items: deque[Item] = deque(items)
        self.attempt = 0
        self.alone = 0
        self.retry: RetryState | None = None

    @property
    def next_attempt(self) -> int:
        """Number of the next call of the first event, from 1; a batch that failed with it counts as a call."""
        return self.attempt + 1 + bool(self.alone)

    def pop(self) -> Item:
        """Remove and return the first event, which is finished or dropped."""
        if self.attempt or self.alone:
            self.attempt, self.retry = 0, None
            self.alone = max(self.alone - 1, 0)
        return self.items.popleft()


class KeyQueues:
    """All events of a processor that were handed out and are neither finished nor dropped.

    unfinished: how many events, including those whose call is running.
    """

    def __init__(self, order: ProcessingOrder) -> None:
        self.unfinished = 0
        self._key_of = _KEYS[order]
        self._queues: dict[Hashable, KeyQueue] = {}
        self._ready: deque[KeyQueue] = deque()
        self._free: deque[Item] = deque()  # events that follow no other
        self._parked: list[tuple[int, int, KeyQueue]] = []
        self._park_count = count()
        self._free_next = False

    def put(self, items: Sequence[Item]) -> None:
        """Add events, in order."""
        self.unfinished += len(items)
        self._queue_up(items)

    def _queue_up(self, items: Iterable[Item]) -> None:
        queues, key_of = self._queues, self._key_of
        for item in items:
            key = key_of(item)
            if key is None:
                self._free.append(item)
            elif (queue := queues.get(key)) is not None:
                queue.items.append(item)
            else:
                queue = queues[key] = KeyQueue(key, (item,))
                self._ready.append(queue)

    def __bool__(self) -> bool:
        """Whether an event may be handled now."""
        return bool(self._ready or self._free)

    def waiting(self) -> list[Item]:
        """Return the events that follow no other, and whose call has not begun."""
        return list(self._free)

    @property
    def ready(self) -> int:
        """How many workers could begin now."""
        return len(self._ready) + len(self._free)

    def take(self) -> KeyQueue:
        """Return a queue that may be handled now; the caller returns it with `give_back` or `park`.

        Queues and free events alternate, so that neither starves.
        """
        self._free_next = bool(self._free) and (not self._free_next or not self._ready)
        if self._free_next:
            return KeyQueue(None, (self._free.popleft(),))
        return self._ready.popleft()

    def refill(self, queue: KeyQueue) -> bool:
        """Give an empty queue of free events the next one, unless another queue is ready; return whether it has one."""
        if queue.key is not None or self._ready or not self._free:
            return False
        queue.items.append(self._free.popleft())
        return True

    def take_free(self, events_max: int) -> list[Item]:
        """Return up to `events_max` more free events, for a caller that handles several in one call."""
        return [self._free.popleft() for _ in range(min(events_max, len(self._free)))]

    def give_back(self, queue: KeyQueue) -> None:
        """Return a queue; it is ready again if it has events left."""
        if queue.key is None:
            if queue.retry is not None:
                self._free_others(queue)
                self._ready.append(queue)
            else:
                self._free.extendleft(reversed(queue.items))
        elif queue.items:
            self._ready.append(queue)
        else:
            del self._queues[queue.key]

    def park(self, queue: KeyQueue, due_ms: int) -> None:
        """Return a queue whose first event is retried at `due_ms` (monotonic)."""
        if queue.key is None and not queue.alone:
            self._free_others(queue)
        heapq.heappush(self._parked, (due_ms, next(self._park_count), queue))

    def _free_others(self, queue: KeyQueue) -> None:
        """Take out all events but the first: they follow no other event, so only the first waits for its retry."""
        first, *others = queue.items
        queue.items = deque((first,))
        self._queue_up(others)

    def set_aside(self, queue: KeyQueue) -> KeyQueue:
        """Return a new queue of the first event of `queue`, with its failed calls; the rest of `queue` is given back.

        The caller parks the new queue. The later events of the key are handled meanwhile.
        """
        aside = KeyQueue(None, ())
        aside.attempt, aside.alone, aside.retry = queue.attempt, min(queue.alone, 1), queue.retry
        aside.items.append(queue.pop())
        self.give_back(queue)
        return aside

    def unpark(self, now_ms: int) -> int | None:
        """Make queues ready whose retry is due; return when the next one is due, None if none is parked."""
        while self._parked and self._parked[0][0] <= now_ms:
            self._ready.appendleft(heapq.heappop(self._parked)[2])
        return self._parked[0][0] if self._parked else None

    def unpark_closing(self) -> None:
        """Make queues ready whose first event belongs to a closing segment."""
        parked, self._parked = self._parked, []
        for each in parked:
            if each[2].items[0][1].owned.closing:
                self._ready.append(each[2])
            else:
                self._parked.append(each)
        heapq.heapify(self._parked)

    @property
    def failing(self) -> list[KeyQueue]:
        """The queues that wait for a retry, or whose retry is due and waits for a worker."""
        due = [queue for queue in self._ready if queue.retry is not None]
        return [queue for _, _, queue in self._parked] + due


def _segment_of(item: Item) -> Hashable:
    return item[1].owned.key


def _key_of(item: Item) -> Hashable:
    return item[0].key


def _no_key(_item: Item) -> Hashable:
    return None


_KEYS: dict[ProcessingOrder, Callable[[Item], Hashable]] = {
    ProcessingOrder.SEGMENT: _segment_of,
    ProcessingOrder.KEY: _key_of,
    ProcessingOrder.NONE: _no_key,
}
