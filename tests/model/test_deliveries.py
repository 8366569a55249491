"""Deliveries of a segment against a dictionary with the state of each event."""

from __future__ import annotations

from functools import partial

import attrs
from hypothesis import given, strategies as st

from eventproc.store.model.deliveries import (
    WINDOW_EVENTS,
    DeliveryLock,
    DeliverySpan,
    SegmentDeliveries,
    Settlement,
)
from eventproc.store.model.limits import FINISHED_RANGES_MAX

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
    """One event of the naive twin. holder: None if nobody holds it."""

    count: int = 0
    holder: str | None = None
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

    def settle(self, how: Settlement, number: int, count: int, session: str) -> bool:
        event = self.events.get(number)
        if event is None or event.holder != session or event.count != count:
            return False
        if how is Settlement.RENEW:
            return True
        event.holder = None
        if how is Settlement.ACCEPT:
            event.is_finished = True
        elif how is Settlement.RETURN:
            event.count -= 1
        elif how is Settlement.REJECT or event.count >= COUNT_MAX:
            event.is_finished = event.is_archived = True
        return True

    def expire(self, session: str) -> None:
        for number, event in list(self.events.items()):
            if event.holder == session:
                self.settle(Settlement.RELEASE, number, event.count, session)


def compare(deliveries: SegmentDeliveries, naive: NaiveDeliveries) -> None:
    deliveries.check()
    assert deliveries.next_number == max(naive.events, default=-1) + 1
    assert deliveries.next_offset == SIZE * deliveries.next_number
    found = {
        number: (each.count, None if each.lock is None else each.lock.session)
        for each in deliveries.ranges
        for number in range(each.low, each.high)
    }
    expected = {
        number: (event.count, event.holder) for number, event in naive.events.items() if not event.is_finished
    }
    assert found == expected
    finished = {number for number in naive.events if deliveries.progress.is_finished(number)}
    assert finished == {number for number, event in naive.events.items() if event.is_finished}


sessions = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("acquire"), sessions, st.integers(1, 6), st.booleans()),
    st.tuples(
        st.sampled_from([*Settlement]),
        sessions,
        st.integers(0, EVENTS - 1),
        st.integers(1, 5),
        st.integers(1, COUNT_MAX),
    ),
    st.tuples(st.just("expire"), sessions),
)


@given(st.lists(steps, max_size=60))
def test_deliveries_are_the_states_of_single_events(
    script: list[tuple[str, str, int, bool] | tuple[Settlement, str, int, int, int] | tuple[str, str]],
) -> None:
    deliveries, naive = SegmentDeliveries(), NaiveDeliveries()
    for step in script:
        if step[0] == "expire":
            session = step[1]
            result = deliveries.expire(
                partial(is_held_by, session), count_max=COUNT_MAX, archived_bytes_max=NEVER
            )
            deliveries = result.deliveries
            naive.expire(session)
        elif len(step) == 4:
            _, session, most, is_new = step
            again = None if is_new else next(deliveries.available, None)
            low = deliveries.next_number if again is None else again.low
            high = min(low + most, EVENTS if again is None else again.high)
            if low >= high:
                continue
            deliveries = acquired(deliveries, low, high, session)
            for number in range(low, high):
                naive.acquire(number, session)
        else:
            assert len(step) == 5, "a settlement has five parts"
            how, session, low, length, count = step
            assert isinstance(how, Settlement)
            settled = deliveries.settle(
                how, [span(low, low + length, count)], session, count_max=COUNT_MAX, until_ms=NEVER
            )
            deliveries = settled.deliveries
            held = [naive.settle(how, number, count, session) for number in range(low, low + length)]
            assert bool(settled.lost) == (not all(held))
            archived = {number for each in settled.archived for number in range(each.low, each.high)}
            assert all(naive.events[number].is_archived for number in archived)
        compare(deliveries, naive)


def test_a_consumer_settles_only_the_delivery_that_it_holds() -> None:
    deliveries = acquired(SegmentDeliveries(), 0, 2)
    released = deliveries.settle(Settlement.RELEASE, [span(0, 2)], "a", count_max=5).deliveries
    again = acquired(released, 0, 2)
    late = again.settle(Settlement.ACCEPT, [span(0, 2, count=1)], "a", count_max=5)
    assert late.lost == (span(0, 2, count=1),)
    assert late.deliveries == again


def test_the_window_and_the_finished_ranges_bound_what_is_new() -> None:
    deliveries = acquired(SegmentDeliveries(), 0, WINDOW_EVENTS)
    assert deliveries.room == 0
    accepted = [span(number, number + 1) for number in range(1, 2 * FINISHED_RANGES_MAX, 2)]
    deliveries = deliveries.settle(Settlement.ACCEPT, accepted, "a", count_max=5).deliveries
    assert deliveries.progress.full
    deliveries = deliveries.settle(Settlement.ACCEPT, [span(0, 1)], "a", count_max=5).deliveries
    assert deliveries.room == 2


def test_truncation_drops_what_lies_before_the_head_and_counts_what_was_not_finished() -> None:
    deliveries = acquired(SegmentDeliveries(), 0, 6)
    deliveries = deliveries.settle(Settlement.ACCEPT, [span(1, 2)], "a", count_max=5).deliveries
    after, lost = deliveries.truncate(4, 40)
    after.check()
    assert lost == 3
    assert [(each.low, each.high, each.start) for each in after.ranges] == [(4, 6, 40)]
    assert after.progress.number == 4


def test_expiry_archives_the_last_delivery_within_its_bytes_and_the_rest_later() -> None:
    deliveries = acquired(acquired(SegmentDeliveries(), 0, 1, "a"), 1, 2, "b")
    first = deliveries.expire(lambda _: True, count_max=1, archived_bytes_max=1)
    assert [(each.low, each.high) for each in first.archived] == [(0, 1)]
    second = first.deliveries.expire(lambda _: True, count_max=1, archived_bytes_max=1)
    assert [(each.low, each.high) for each in second.archived] == [(1, 2)]
    assert second.deliveries == SegmentDeliveries(second.deliveries.progress)
    assert second.deliveries.progress.number == 2
