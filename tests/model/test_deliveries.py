"""Deliveries of a segment against a dictionary with the state of each event."""

from __future__ import annotations

from functools import partial

import attrs
from hypothesis import given, strategies as st

from eventproc.store.model.deliveries import (
    DeliveryLock,
    DeliverySpan,
    SegmentDeliveries,
    Settlement,
    Terms,
)

EVENTS = 16
COUNT_MAX = 3
SIZE = 10
NEVER = 10**9


def lock_of(session: str, until_ms: int = NEVER) -> DeliveryLock:
    return DeliveryLock(session, session, "instance", "boot", until_ms)


def is_held_by(session: str, lock: DeliveryLock) -> bool:
    return lock.session == session


def span(low: int, high: int, count: int = 1) -> DeliverySpan:
    return DeliverySpan(low, high, low * SIZE, high * SIZE, count)


def acquired(deliveries: SegmentDeliveries, low: int, high: int, session: str = "a") -> SegmentDeliveries:
    return deliveries.acquire(low, high, low * SIZE, high * SIZE, lock_of(session))


@attrs.define
class NaiveEvent:
    """One event of the naive twin. holder: None if nobody holds it. since_ms: when it is available then."""

    count: int = 0
    holder: str | None = None
    priority: int = 0
    since_ms: int = 0
    is_finished: bool = False
    is_archived: bool = False


class NaiveDeliveries:
    """The state of each event alone; what was never delivered has no entry."""

    def __init__(self) -> None:
        self.events: dict[int, NaiveEvent] = {}

    def acquire(self, number: int, session: str) -> None:
        event = self.events.setdefault(number, NaiveEvent())
        event.count += 1
        event.holder = session
        event.since_ms = 0

    def settle(self, how: Settlement, number: int, count: int, session: str, since_ms: int) -> bool:
        event = self.events.get(number)
        if event is None or event.holder != session or event.count != count:
            return False
        if how is Settlement.RENEW:
            return True
        event.holder, event.since_ms = None, since_ms
        if how is Settlement.ACCEPT:
            event.is_finished = True
        elif how is Settlement.RETURN:
            event.count -= 1
        elif how is Settlement.REJECT or event.count >= COUNT_MAX:
            event.is_finished = event.is_archived = True
        return True

    def expire(self, session: str, now_ms: int) -> None:
        for number, event in list(self.events.items()):
            if event.holder == session:
                self.settle(Settlement.RELEASE, number, event.count, session, now_ms)


def compare(deliveries: SegmentDeliveries, naive: NaiveDeliveries) -> None:
    deliveries.check()
    assert deliveries.next_number == max(naive.events, default=-1) + 1
    assert deliveries.next_offset == SIZE * deliveries.next_number
    found = {
        number: (each.count, None if each.lock is None else each.lock.session, each.priority, each.since_ms)
        for each in deliveries.ranges
        for number in range(each.low, each.high)
    }
    expected = {
        number: (event.count, event.holder, event.priority, event.since_ms)
        for number, event in naive.events.items()
        if not event.is_finished
    }
    assert found == expected


sessions = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("take in"), st.lists(st.integers(0, 2), min_size=1, max_size=4)),
    st.tuples(st.just("acquire"), sessions, st.integers(1, 6), st.booleans()),
    st.tuples(
        st.sampled_from([*Settlement]),
        sessions,
        st.integers(0, EVENTS - 1),
        st.integers(1, 5),
        st.integers(1, COUNT_MAX),
        st.sampled_from([0, 50]),
    ),
    st.tuples(st.just("expire"), sessions),
)

Step = (
    tuple[str, str, int, bool]
    | tuple[Settlement, str, int, int, int, int]
    | tuple[str, list[int]]
    | tuple[str, str]
)


@given(st.lists(steps, max_size=60))
def test_deliveries_are_the_states_of_single_events(script: list[Step]) -> None:
    deliveries, naive = SegmentDeliveries(), NaiveDeliveries()
    for now_ms, step in enumerate(script, 1):
        if len(step) == 2 and isinstance(step[1], list):
            low = deliveries.next_number
            parts = [
                (low + at, low + at + 1, priority) for at, priority in enumerate(step[1]) if low + at < EVENTS
            ]
            deliveries = deliveries.take_in(
                [(low, high, low * SIZE, high * SIZE, priority) for low, high, priority in parts], now_ms
            )
            naive.events |= {
                low: NaiveEvent(priority=priority, since_ms=now_ms) for low, _, priority in parts
            }
        elif len(step) == 2:
            assert isinstance(step[1], str), "a session"
            terms = Terms(COUNT_MAX, since_ms=now_ms)
            result = deliveries.expire(partial(is_held_by, step[1]), terms, archived_bytes_max=NEVER)
            deliveries = result.deliveries
            naive.expire(step[1], now_ms)
        elif len(step) == 4:
            _, session, most, is_new = step
            again = None if is_new else next((each for each in deliveries.ranges if each.lock is None), None)
            low = deliveries.next_number if again is None else again.low
            high = min(low + most, EVENTS if again is None else again.high)
            if low >= high:
                continue
            deliveries = acquired(deliveries, low, high, session)
            for number in range(low, high):
                naive.acquire(number, session)
        else:
            assert len(step) == 6, "a settlement has six parts"
            how, session, low, length, count, delay_ms = step
            terms = Terms(COUNT_MAX, until_ms=NEVER, since_ms=now_ms + delay_ms)
            settled = deliveries.settle(how, [span(low, low + length, count)], session, terms)
            deliveries = settled.deliveries
            held = [
                naive.settle(how, number, count, session, now_ms + delay_ms)
                for number in range(low, low + length)
            ]
            assert bool(settled.lost) == (not all(held))
            archived = {number for each in settled.archived for number in range(each.low, each.high)}
            assert all(naive.events[number].is_archived for number in archived)
        compare(deliveries, naive)


def test_a_consumer_settles_only_the_delivery_that_it_holds() -> None:
    deliveries = acquired(SegmentDeliveries(), 0, 2)
    released = deliveries.settle(Settlement.RELEASE, [span(0, 2)], "a", Terms(5)).deliveries
    again = acquired(released, 0, 2)
    late = again.settle(Settlement.ACCEPT, [span(0, 2, count=1)], "a", Terms(5))
    assert late.lost == (span(0, 2, count=1),)
    assert late.deliveries == again


def test_truncation_drops_what_lies_before_the_head_and_counts_what_was_not_finished() -> None:
    deliveries = acquired(SegmentDeliveries(), 0, 6)
    deliveries = deliveries.settle(Settlement.ACCEPT, [span(1, 2)], "a", Terms(5)).deliveries
    after, lost = deliveries.truncate(4, 40)
    after.check()
    assert lost == 3
    assert [(each.low, each.high, each.start) for each in after.ranges] == [(4, 6, 40)]


def test_truncation_beyond_what_was_taken_in_counts_new_events_too() -> None:
    after, lost = acquired(SegmentDeliveries(), 0, 2).truncate(5, 50)
    after.check()
    assert (after, lost) == (SegmentDeliveries(5, 50), 5)


def test_expiry_archives_the_last_delivery_within_its_bytes_and_the_rest_later() -> None:
    deliveries = acquired(acquired(SegmentDeliveries(), 0, 1, "a"), 1, 2, "b")
    first = deliveries.expire(lambda _: True, Terms(1), archived_bytes_max=1)
    assert [(each.low, each.high) for each in first.archived] == [(0, 1)]
    second = first.deliveries.expire(lambda _: True, Terms(1), archived_bytes_max=1)
    assert [(each.low, each.high) for each in second.archived] == [(1, 2)]
    assert second.deliveries == SegmentDeliveries(2, 2 * SIZE)
