"""KeyQueues: what follows what, and that nobody holds a lane twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventproc.processors.engine.key_queues import Item, KeyQueue, KeyQueues
from eventproc.processors.options import ProcessingOrder
from tests.processors.runs import cell_at, items_of

KEYS = [None, None, "a", "b", "c", "d"]


def _key(order: ProcessingOrder, item: Item) -> Hashable:
    event, chunk = item
    return {
        ProcessingOrder.SEGMENT: chunk.cell.key,
        ProcessingOrder.KEY: event.key,
        ProcessingOrder.NONE: None,
    }[order]


class Life:
    """KeyQueues used at random as workers would; `at` is the time."""

    def __init__(self, seed: int, order: ProcessingOrder) -> None:
        self.random = Random(seed)
        self.order = order
        self.lanes = KeyQueues(order)
        self.cells = [cell_at(segment=each) for each in range(3)]
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
        while self.taken or self.lanes or self.parked:
            self._work()
        assert {key: self._sorted(key, items) for key, items in self.done.items()} == self.put
        assert not self.lanes.failing

    def _sorted(self, key: Hashable, items: list[Item]) -> list[Item]:
        if key is not None:
            return items
        return sorted(items, key=self.put[None].index)

    def _put(self) -> None:
        cell = self.random.choice(self.cells)
        items = items_of(cell, [self.random.choice(KEYS) for _ in range(self.random.randint(0, 8))])
        for item in items:
            self.put[_key(self.order, item)].append(item)
        self.lanes.put(items)

    def _work(self) -> None:
        self.at += 1
        if self.lanes and (not self.taken or self.random.random() < 0.6):
            lane = self.lanes.take()
            held = [each.key for each in self.taken if each.key is not None]
            held += [each.key for each in self.lanes.failing if each.key is not None]
            assert lane.key not in held, f"{lane.key} is held already"
            assert lane.items
            self.taken.append(lane)
        elif self.taken:
            self._bring_back(self.taken.pop(self.random.randrange(len(self.taken))))
        due = self.lanes.unpark(self.at)
        assert due is None or due > self.at
        self.parked = len(self.lanes.failing)

    def _bring_back(self, lane: KeyQueue) -> None:
        for _ in range(self.random.randint(0, len(lane.items))):
            self.done[lane.key].append(lane.items[0])
            lane.pop()
            assert lane.next_attempt == 1
        if lane.items and self.random.random() < 0.3:
            lane.attempt += 1
            self.lanes.park(lane, self.at + self.random.randint(0, 5))
            self.parked += 1
        else:
            self.lanes.give_back(lane)


@given(st.integers(0, 2**32), st.sampled_from(list(ProcessingOrder)))
def test_each_lane_is_held_once_and_its_events_come_in_order(seed: int, order: ProcessingOrder) -> None:
    Life(seed, order).live()


def test_a_parked_lane_comes_when_it_is_due_and_nothing_overtakes_it() -> None:
    lanes, cell = KeyQueues(ProcessingOrder.KEY), cell_at()
    lanes.put(items_of(cell, ["a", "b"]))
    first = lanes.take()
    lanes.park(first, 10)
    lanes.put(items_of(cell, ["a"]))
    assert lanes.take().key == "b"
    assert not lanes
    assert lanes.unpark(9) == 10
    assert not lanes
    assert lanes.unpark(10) is None
    assert [event.number for event, _ in lanes.take().items] == [0, 2]


def test_a_retry_that_is_due_goes_before_what_was_ready_earlier() -> None:
    lanes, cell = KeyQueues(ProcessingOrder.KEY), cell_at()
    lanes.put(items_of(cell, ["a", "b", "c"]))
    lanes.park(lanes.take(), 5)
    lanes.unpark(5)
    assert [lanes.take().key for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("free", [3, 50])
def test_neither_keys_nor_events_without_one_starve(free: int) -> None:
    lanes, cell = KeyQueues(ProcessingOrder.KEY), cell_at()
    lanes.put(items_of(cell, [*[None] * free, "a", "b", "c"]))
    assert {lanes.take().key for _ in range(2)} == {None, "a"}
    lanes.put(items_of(cell, [None] * free))
    assert {lanes.take().key for _ in range(2)} == {None, "b"}


def test_an_event_that_was_tried_in_a_batch_says_so_until_it_is_done() -> None:
    lanes, cell = KeyQueues(ProcessingOrder.KEY), cell_at()
    lanes.put(items_of(cell, ["a"] * 3))
    lane = lanes.take()
    lane.alone = 2
    attempts = []
    while lane.items:
        attempts.append(lane.next_attempt)
        lane.pop()
    assert attempts == [2, 2, 1]


def test_free_events_brought_back_are_the_next_ones() -> None:
    lanes, cell = KeyQueues(ProcessingOrder.NONE), cell_at()
    lanes.put(items_of(cell, [None] * 4))
    lane = lanes.take()
    lane.items.extend(lanes.take_free(1))
    lanes.give_back(lane)
    assert [lanes.take().items[0][0].number for _ in range(4)] == [0, 1, 2, 3]
    assert not lanes
