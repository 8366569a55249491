"""The deliveries of one segment to a share group: which events are available, locked, or finished.

Pure: no I/O. An event of the segment is in one of four states. It is *finished* (accepted or archived) if the progress
says so; *acquired* if a range with a lock holds it; *available again* if a range without a lock holds it; and *new* if
it lies at or beyond `next_number`.

Invariants, asserted by `SegmentDeliveries.check`: the ranges are sorted, none is empty, and together with the finished
ranges they tile [progress.number, next_number). Source: docs/design/share-groups.md.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from eventproc.store.model.progress import Progress

WINDOW_EVENTS: Final = 2_000
"""Events of one segment between its first unfinished event and its first new one. Higher: more rows to keep and to
compare while one event is not accepted. Lower: one slow event stops the others sooner."""


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

    lock: None if they are available again.
    """

    low: int
    high: int
    start: int
    end: int
    count: int
    lock: DeliveryLock | None

    def part(self, low: int, high: int, start: int, end: int) -> DeliveredRange:
        """Return a part of the range."""
        return attrs.evolve(self, low=low, high=high, start=start, end=end)


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
    """They are available again, or archived if this was their last delivery."""
    RETURN = "return"
    """They are available again, and this delivery does not count: nobody saw them."""
    REJECT = "reject"
    """They are archived."""
    RENEW = "renew"
    """Their lock begins again."""


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
    """The deliveries of one segment. ranges: sorted, without overlaps."""

    progress: Progress = attrs.field(factory=Progress)
    ranges: tuple[DeliveredRange, ...] = ()

    @property
    def next_number(self) -> int:
        """The number of the first new event."""
        return self._end[0]

    @property
    def next_offset(self) -> int:
        """The offset of the first new event."""
        return self._end[1]

    @property
    def _end(self) -> tuple[int, int]:
        ends = [(self.progress.number, self.progress.offset)]
        if self.progress.finished:
            ends.append(self.progress.finished[-1][1:])
        if self.ranges:
            ends.append((self.ranges[-1].high, self.ranges[-1].end))
        return max(ends)

    @property
    def room(self) -> int:
        """How many new events may be delivered now."""
        if self.progress.full:
            return 0
        return max(WINDOW_EVENTS - (self.next_number - self.progress.number), 0)

    @property
    def available(self) -> Iterator[DeliveredRange]:
        """The ranges that are available again."""
        return (each for each in self.ranges if each.lock is None)

    @property
    def locked(self) -> Iterator[DeliveredRange]:
        """The ranges that are locked."""
        return (each for each in self.ranges if each.lock is not None)

    def acquire(self, low: int, high: int, start: int, end: int, lock: DeliveryLock) -> SegmentDeliveries:
        """Lock events that are available again, all in one range, or new ones from `next_number` on."""
        if low == self.next_number:
            return self._with((*self.ranges, DeliveredRange(low, high, start, end, 1, lock)))
        ranges: list[DeliveredRange] = []
        for each in self.ranges:
            if each.low <= low < each.high:
                assert each.lock is None, f"events [{low}, {high}) are locked by {each.lock}"
                assert high <= each.high, f"events [{low}, {high}) are not in one range, {each}"
                taken = attrs.evolve(each.part(low, high, start, end), count=each.count + 1, lock=lock)
                ranges += _around(each, [(taken, taken)])
            else:
                ranges.append(each)
        return self._with(ranges)

    def settle(
        self,
        how: Settlement,
        spans: Iterable[DeliverySpan],
        session: str,
        *,
        count_max: int,
        until_ms: int = 0,
    ) -> SettledDeliveries:
        """Settle the events of `spans` that the consumer holds; the others are `lost` and do not change.

        count_max: after so many deliveries a released event is archived.
        until_ms: the new end of the lock, for a renewal.
        """
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
                    parts.append((part, _after(how, part, count_max, until_ms)))
            while rest and rest[0].high <= each.high:
                rest.popleft()
            ranges += _around(each, parts)
            changed += parts
        finished = [part for part, after in changed if after is None]
        archived = () if how is Settlement.ACCEPT else tuple(finished)
        lost = tuple(span for span, count in left.items() if count)
        return SettledDeliveries(self._with(ranges, finished), archived, lost)

    def expire(
        self, is_ended: Callable[[DeliveryLock], bool], *, count_max: int, archived_bytes_max: int
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
            elif each.count < count_max:
                ranges.append(attrs.evolve(each, lock=None))
            elif size_bytes < archived_bytes_max:
                archived.append(each)
                size_bytes += each.end - each.start
            else:
                ranges.append(each)
        if not archived and ranges == list(self.ranges):
            return SettledDeliveries(self)
        return SettledDeliveries(self._with(ranges, archived), tuple(archived))

    def truncate(self, head_number: int, head: int) -> tuple[SegmentDeliveries, int]:
        """Return the deliveries from the head of the segment on, and how many unfinished events lay before it."""
        if head_number <= self.progress.number:
            return self, 0
        lost = self.progress.unfinished(self.progress.number, head_number)
        progress = self.progress.finish(self.progress.number, head_number - self.progress.number, head)
        ranges = [
            each if each.low >= head_number else each.part(head_number, each.high, head, each.end)
            for each in self.ranges
            if each.high > head_number
        ]
        return SegmentDeliveries(progress, tuple(ranges)), lost

    def counts(self) -> dict[int, int]:
        """Return how many unfinished events were delivered how often: {deliveries: events}."""
        found: dict[int, int] = {}
        for each in self.ranges:
            found[each.count] = found.get(each.count, 0) + each.high - each.low
        return dict(sorted(found.items()))

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        self.progress.check()
        finished = [(low, high, None, end) for low, high, end in self.progress.finished]
        tiles = sorted([*finished, *((each.low, each.high, each.start, each.end) for each in self.ranges)])
        number, offset = self.progress.number, self.progress.offset
        for low, high, start, end in tiles:
            assert number == low < high, f"events [{low}, {high}) do not follow {number}"
            assert start is None or start == offset, f"bytes [{start}, {end}) do not follow {offset}"
            assert offset < end, f"bytes up to {end} do not follow {offset}"
            number, offset = high, end
        for each in self.ranges:
            assert each.count >= (each.lock is not None), f"{each} is locked and was never delivered"

    def _with(
        self, ranges: Sequence[DeliveredRange], finished: Iterable[DeliveredRange] = ()
    ) -> SegmentDeliveries:
        progress = self.progress
        for each in finished:
            progress = progress.finish(each.low, each.high - each.low, each.end)
        return SegmentDeliveries(progress, _joined(ranges))


def _common(each: DeliveredRange, span: DeliverySpan) -> DeliveredRange:
    low, start = (span.low, span.start) if span.low > each.low else (each.low, each.start)
    high, end = (span.high, span.end) if span.high < each.high else (each.high, each.end)
    return each.part(low, high, start, end)


def _after(how: Settlement, part: DeliveredRange, count_max: int, until_ms: int) -> DeliveredRange | None:
    """Return what becomes of a part; None if it is finished."""
    match how:
        case Settlement.RENEW:
            assert part.lock is not None, "only the holder of a lock renews it"
            return attrs.evolve(part, lock=attrs.evolve(part.lock, until_ms=until_ms))
        case Settlement.RETURN:
            return attrs.evolve(part, count=part.count - 1, lock=None)
        case Settlement.RELEASE if part.count < count_max:
            return attrs.evolve(part, lock=None)
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
        if last is not None and (last.high, last.count, last.lock) == (each.low, each.count, each.lock):
            joined[-1] = attrs.evolve(last, high=each.high, end=each.end)
        else:
            joined.append(each)
    return tuple(joined)
