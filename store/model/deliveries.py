"""The deliveries of one segment to a share group: which events are available, locked, set aside, or finished.

Pure: no I/O. The events of a segment that the group has *taken in* lie below `next_number`; the others are *new*. Each
of those that it took in and has not finished (accepted or archived) lies in one range. A range with a lock is
*acquired*. One without a lock is *available* from its `since_ms` on; until then it is *set aside*.

A `SegmentDeliveries` may hold only some ranges of the segment: those that a transaction has read. The others do not
change. Invariants, asserted by `SegmentDeliveries.check`: the ranges are sorted, none is empty, none overlaps another,
and all lie below `next_number`. Source: docs/design/share-groups.md.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import attrs


@attrs.frozen
class DeliveryLock:
    """Who holds events, and until when.

    session: one opening of a consumer. consumer: its id, for people. until_ms: monotonic ms of the boot.
    """

    session: str
    consumer: str
    instance: str
    boot: str
    until_ms: int


@attrs.frozen
class DeliveredRange:
    """Events [low, high), bytes [start, end), that were delivered `count` times and are not finished.

    lock: None if nobody holds them. since_ms: without a lock, when they become available, wall ms; 0 with one.
    priority: of all of them; higher goes first.
    """

    low: int
    high: int
    start: int
    end: int
    count: int
    lock: DeliveryLock | None
    since_ms: int = 0
    priority: int = 0

    def part(self, low: int, high: int, start: int, end: int) -> DeliveredRange:
        """Return a part of the range."""
        return attrs.evolve(self, low=low, high=high, start=start, end=end)

    def held_by(self, lock: DeliveryLock) -> DeliveredRange:
        """Return the range in its next delivery."""
        return attrs.evolve(self, count=self.count + 1, lock=lock, since_ms=0)

    def freed(self, since_ms: int) -> DeliveredRange:
        """Return the range without its lock, available from `since_ms` on."""
        return attrs.evolve(self, lock=None, since_ms=since_ms)


@attrs.frozen(order=True)
class DeliverySpan:
    """Events [low, high), bytes [start, end), as a consumer received them, in their delivery number `count`."""

    low: int
    high: int
    start: int
    end: int
    count: int


class Settlement(enum.StrEnum):
    """What becomes of events that a consumer holds."""

    ACCEPT = "accept"
    """They are finished."""
    RELEASE = "release"
    """They are available again, now or later, or archived if this was their last delivery."""
    RETURN = "return"
    """They are available again, and this delivery does not count: nobody saw them."""
    REJECT = "reject"
    """They are archived."""
    RENEW = "renew"
    """Their lock begins again."""


@attrs.frozen
class Terms:
    """When a settlement happens, and what it means.

    count_max: after so many deliveries a released event is archived. until_ms: the new end of a renewed lock. since_ms:
    when released events become available, wall ms.
    """

    count_max: int
    until_ms: int = 0
    since_ms: int = 0


@attrs.frozen
class SettledDeliveries:
    """The result of a settlement.

    archived: the ranges that became dead letters. lost: the spans of which the consumer does not hold all events.
    """

    deliveries: SegmentDeliveries
    archived: tuple[DeliveredRange, ...] = ()
    lost: tuple[DeliverySpan, ...] = ()


@attrs.frozen
class SegmentDeliveries:
    """The deliveries of one segment, or some of them.

    next_number, next_offset: the first new event. ranges: sorted, without overlaps.
    """

    next_number: int = 0
    next_offset: int = 0
    ranges: tuple[DeliveredRange, ...] = ()

    def take_in(self, parts: Iterable[tuple[int, int, int, int, int]], since_ms: int) -> SegmentDeliveries:
        """Make new events available. parts: (low, high, start, end, priority), in order, from `next_number` on."""
        ranges = [
            DeliveredRange(low, high, start, end, 0, None, since_ms, priority)
            for low, high, start, end, priority in parts
        ]
        if not ranges:
            return self
        return SegmentDeliveries(ranges[-1].high, ranges[-1].end, _joined((*self.ranges, *ranges)))

    def acquire(self, low: int, high: int, start: int, end: int, lock: DeliveryLock) -> SegmentDeliveries:
        """Lock events that are available, all in one range, or new ones from `next_number` on."""
        if low == self.next_number:
            taken = DeliveredRange(low, high, start, end, 1, lock)
            return SegmentDeliveries(high, end, _joined((*self.ranges, taken)))
        ranges: list[DeliveredRange] = []
        for each in self.ranges:
            if each.low <= low < each.high:
                assert each.lock is None, f"events [{low}, {high}) are locked by {each.lock}"
                assert high <= each.high, f"events [{low}, {high}) are not in one range, {each}"
                taken = each.part(low, high, start, end)
                ranges += _around(each, [(taken, taken.held_by(lock))])
            else:
                ranges.append(each)
        return self._with(ranges)

    def settle(
        self, how: Settlement, spans: Iterable[DeliverySpan], session: str, terms: Terms
    ) -> SettledDeliveries:
        """Settle the events of `spans` that the consumer holds; the others are `lost` and do not change."""
        rest = deque(sorted(spans))
        left = {span: span.high - span.low for span in rest}
        ranges: list[DeliveredRange] = []
        changed: list[tuple[DeliveredRange, DeliveredRange | None]] = []
        for each in self.ranges:
            if each.lock is None or each.lock.session != session:
                ranges.append(each)
                continue
            parts: list[tuple[DeliveredRange, DeliveredRange | None]] = []
            for span in rest:
                if span.low >= each.high:
                    break
                if span.count == each.count and span.high > each.low:
                    part = _common(each, span)
                    left[span] -= part.high - part.low
                    parts.append((part, _after(how, part, terms)))
            while rest and rest[0].high <= each.high:
                rest.popleft()
            ranges += _around(each, parts)
            changed += parts
        archived = () if how is Settlement.ACCEPT else tuple(part for part, after in changed if after is None)
        lost = tuple(span for span, count in left.items() if count)
        return SettledDeliveries(self._with(ranges), archived, lost)

    def expire(
        self, is_ended: Callable[[DeliveryLock], bool], terms: Terms, *, archived_bytes_max: int
    ) -> SettledDeliveries:
        """Release the ranges whose lock has ended. Archive those that were delivered for the last time.

        archived_bytes_max: archives no further range after so many bytes; it stays locked until the next call.
        """
        ranges: list[DeliveredRange] = []
        archived: list[DeliveredRange] = []
        size_bytes = 0
        for each in self.ranges:
            if each.lock is None or not is_ended(each.lock):
                ranges.append(each)
            elif each.count < terms.count_max:
                ranges.append(each.freed(terms.since_ms))
            elif size_bytes < archived_bytes_max:
                archived.append(each)
                size_bytes += each.end - each.start
            else:
                ranges.append(each)
        if not archived and ranges == list(self.ranges):
            return SettledDeliveries(self)
        return SettledDeliveries(self._with(ranges), tuple(archived))

    def truncate(self, head_number: int, head: int) -> tuple[SegmentDeliveries, int]:
        """Return the deliveries from the head of the segment on, and how many unfinished events lay before it.

        All ranges before the head must be among `ranges`.
        """
        lost = max(head_number - self.next_number, 0)
        lost += sum(min(each.high, head_number) - each.low for each in self.ranges if each.low < head_number)
        ranges = [
            each if each.low >= head_number else each.part(head_number, each.high, head, each.end)
            for each in self.ranges
            if each.high > head_number
        ]
        next_number, next_offset = max((self.next_number, self.next_offset), (head_number, head))
        return SegmentDeliveries(next_number, next_offset, tuple(ranges)), lost

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        assert self.next_number >= 0, f"the next event is {self.next_number}"
        for each in self.ranges:
            assert each.low < each.high, f"{each} is empty"
            assert each.start < each.end, f"{each} has no bytes"
            assert each.count >= (each.lock is not None), f"{each} is locked and was never delivered"
        for before, after in pairwise(self.ranges):
            assert before.high <= after.low, f"{before} overlaps {after}"
            assert before.end <= after.start, f"{before} overlaps {after}"
        if self.ranges:
            last = self.ranges[-1]
            assert last.high <= self.next_number, (
                f"{last} was not taken in; the next event is {self.next_number}"
            )
            assert last.end <= self.next_offset, (
                f"{last} was not taken in; the next byte is {self.next_offset}"
            )

    def _with(self, ranges: Sequence[DeliveredRange]) -> SegmentDeliveries:
        return SegmentDeliveries(self.next_number, self.next_offset, _joined(ranges))


def _common(each: DeliveredRange, span: DeliverySpan) -> DeliveredRange:
    low, start = (span.low, span.start) if span.low > each.low else (each.low, each.start)
    high, end = (span.high, span.end) if span.high < each.high else (each.high, each.end)
    return each.part(low, high, start, end)


def _after(how: Settlement, part: DeliveredRange, terms: Terms) -> DeliveredRange | None:
    """Return what becomes of a part; None if it is finished."""
    match how:
        case Settlement.RENEW:
            assert part.lock is not None, "only the holder of a lock renews it"
            return attrs.evolve(part, lock=attrs.evolve(part.lock, until_ms=terms.until_ms))
        case Settlement.RETURN:
            return attrs.evolve(part.freed(terms.since_ms), count=part.count - 1)
        case Settlement.RELEASE if part.count < terms.count_max:
            return part.freed(terms.since_ms)
        case _:
            return None


def _around(
    each: DeliveredRange, parts: Iterable[tuple[DeliveredRange, DeliveredRange | None]]
) -> Iterator[DeliveredRange]:
    """Yield the range with its sorted parts replaced; None removes a part."""
    low, start = each.low, each.start
    for part, after in parts:
        if low < part.low:
            yield each.part(low, part.low, start, part.start)
        if after is not None:
            yield after
        low, start = part.high, part.end
    if low < each.high:
        yield each.part(low, each.high, start, each.end)


def _joined(ranges: Iterable[DeliveredRange]) -> tuple[DeliveredRange, ...]:
    """Return the ranges with equal neighbours joined, so that few rows are stored."""
    joined: list[DeliveredRange] = []
    for each in ranges:
        last = joined[-1] if joined else None
        if last is not None and last.high == each.low and _state(last) == _state(each):
            joined[-1] = attrs.evolve(last, high=each.high, end=each.end)
        else:
            joined.append(each)
    return tuple(joined)


def _state(each: DeliveredRange) -> tuple[int, DeliveryLock | None, int, int]:
    return each.count, each.lock, each.since_ms, each.priority
