"""KeyQueues: the order of events, and that at most one worker holds a queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from random import Random

import pytest
from hypothesis import given, strategies as st

from eventproc.processors.engine.key_queues import Item, KeyQueue, KeyQueues
from eventproc.processors.options import ProcessingOrder
from tests.processors.worker import items_of, segment_at

KEYS = [None, None, "a", "b", "c", "d"]


def _key(order: ProcessingOrder, item: Item) -> Hashable:
    event, in_flight = item
    return {
        ProcessingOrder.SEGMENT: in_flight.owned.key,
        ProcessingOrder.KEY: event.key,
        ProcessingOrder.NONE: None,
    }[order]


class QueueLife:
    """KeyQueues used at random as workers would; `at` is the time."""

    def __init__(self, seed: int, order: ProcessingOrder) -> None:
        self.random = Random(seed)
        self.order = order
        self.queues = KeyQueues(order)
        self.segments = [segment_at(segment=each) for each in range(3)]
        self.put: defaultdict[Hashable, list[Item]] = defaultdict(list)
        self.done: defaultdict[Hashable, list[Item]] = defaultdict(list)
        self.taken: list[KeyQueue] = []
        self.at = 0
        self.parked = 0

    def live(self) -> None:
        for _ in range(60):
            self._put()
            for _ in range(self.random.randint(0, 12)):
                self._work()
        while self.taken or self.queues or self.parked:
            self._work()
        assert {key: self._sorted(key, items) for key, items in self.done.items()} == self.put
        assert not self.queues.failing

    def _sorted(self, key: Hashable, items: list[Item]) -> list[Item]:
        if key is not None:
            return items
        return sorted(items, key=self.put[None].index)

    def _put(self) -> None:
        owned = self.random.choice(self.segments)
        items = items_of(owned, [self.random.choice(KEYS) for _ in range(self.random.randint(0, 8))])
        for item in items:
            self.put[_key(self.order, item)].append(item)
        self.queues.put(items)

    def _work(self) -> None:
        self.at += 1
        if self.queues and (not self.taken or self.random.random() < 0.6):
            queue = self.queues.take()
            held = [each.key for each in self.taken if each.key is not None]
            held += [each.key for each in self.queues.failing if each.key is not None]
            assert queue.key not in held, f"{queue.key} is held already"
            assert queue.items
            self.taken.append(queue)
        elif self.taken:
            self._bring_back(self.taken.pop(self.random.randrange(len(self.taken))))
        due = self.queues.unpark(self.at)
        assert due is None or due > self.at
        self.parked = len(self.queues.failing)

    def _bring_back(self, queue: KeyQueue) -> None:
        for _ in range(self.random.randint(0, len(queue.items))):
            self.done[queue.key].append(queue.items[0])
            queue.pop()
            assert queue.next_attempt == 1
        if queue.items and self.random.random() < 0.3:
            queue.attempt += 1
            self.queues.park(queue, self.at + self.random.randint(0, 5))
            self.parked += 1
        else:
            self.queues.give_back(queue)


@given(st.integers(0, 2**32), st.sampled_from(list(ProcessingOrder)))
def test_each_lane_is_held_once_and_its_events_come_in_order(seed: int, order: ProcessingOrder) -> None:
    QueueLife(seed, order).live()


def test_a_parked_lane_comes_when_it_is_due_and_nothing_overtakes_it() -> None:
    queues, owned = KeyQueues(ProcessingOrder.KEY), segment_at()
    queues.put(items_of(owned, ["a", "b"]))
    first = queues.take()
    queues.park(first, 10)
    queues.put(items_of(owned, ["a"]))
    assert queues.take().key == "b"
    assert not queues
    assert queues.unpark(9) == 10
    assert not queues
    assert queues.unpark(10) is None
    assert [event.number for event, _ in queues.take().items] == [0, 2]


def test_a_retry_that_is_due_goes_before_what_was_ready_earlier() -> None:
    queues, owned = KeyQueues(ProcessingOrder.KEY), segment_at()
    queues.put(items_of(owned, ["a", "b", "c"]))
    queues.park(queues.take(), 5)
    queues.unpark(5)
    assert [queues.take().key for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("free", [3, 50])
def test_neither_keys_nor_events_without_one_starve(free: int) -> None:
    queues, owned = KeyQueues(ProcessingOrder.KEY), segment_at()
    queues.put(items_of(owned, [*[None] * free, "a", "b", "c"]))
    assert {queues.take().key for _ in range(2)} == {None, "a"}
    queues.put(items_of(owned, [None] * free))
    assert {queues.take().key for _ in range(2)} == {None, "b"}


def test_an_event_that_was_tried_in_a_batch_says_so_until_it_is_done() -> None:
    queues, owned = KeyQueues(ProcessingOrder.KEY), segment_at()
    queues.put(items_of(owned, ["a"] * 3))
    queue = queues.take()
    queue.alone = 2
    attempts = []
    while queue.items:
        attempts.append(queue.next_attempt)
        queue.pop()
    assert attempts == [2, 2, 1]


def test_free_events_brought_back_are_the_next_ones() -> None:
    queues, owned = KeyQueues(ProcessingOrder.NONE), segment_at()
    queues.put(items_of(owned, [None] * 4))
    queue = queues.take()
    queue.items.extend(queues.take_free(1))
    queues.give_back(queue)
    assert [queues.take().items[0][0].number for _ in range(4)] == [0, 1, 2, 3]
    assert not queues
