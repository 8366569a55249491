"""The progress on one segment: a completed prefix of finished events, and finished ranges beyond it.

Concurrent handlers finish events out of order. So the progress is the number of the first unfinished event, and the
ranges of finished events beyond it; a restart repeats no finished event. The caller reads no further while `full` is
true; this module only counts.

Invariants, asserted by `Progress.check`: ranges are sorted, none is empty, none touches another or the
prefix (touching ones are joined), and offsets grow with numbers. Source: architecture.md section 6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import TypeAlias

import attrs

from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.limits import FINISHED_RANGES_MAX
from eventproc.store.model.short_repr import short_repr_of_fields

FinishedRange: TypeAlias = tuple[int, int, int]
"""(low, high, end_offset): events [low, high) are finished, and the last one's bytes end at end_offset."""

_low = itemgetter(0)
_high = itemgetter(1)


@attrs.frozen
class Progress:
    """Which events of one segment are finished.

    number: the first unfinished event; all earlier ones are finished. Never moves back.
    offset: of that event in the segment, bytes.
    finished: ranges of finished events beyond it; each low > number.
    """

    __repr__ = short_repr_of_fields

    number: int = 0
    offset: int = 0
    finished: tuple[FinishedRange, ...] = ()

    @property
    def full(self) -> bool:
        """Whether no further event should be started: there are 256 ranges beyond the prefix."""
        return len(self.finished) >= FINISHED_RANGES_MAX

    def is_finished(self, number: int) -> bool:
        """Return whether event `number` is finished. O(log ranges)."""
        if number < self.number:
            return True
        index = bisect_right(self.finished, number, key=_low) - 1
        return index >= 0 and number < self.finished[index][1]

    def unfinished(self, low: int, high: int) -> int:
        """Return how many of the events [low, high) are not finished. O(ranges)."""
        low = max(low, self.number)
        beyond = sum(
            min(high, end) - max(low, begin) for begin, end, _ in self.finished if begin < high and end > low
        )
        return max(high - low - beyond, 0)

    def finish(self, number: int, count: int, end_offset: int) -> Progress:
        """Return the progress after events [number, number + count), which end at byte `end_offset`.

        Events that were finished before change nothing, so a repeated call returns an equal value.
        O(1) at the prefix with nothing beyond it, else O(ranges).
        """
        low, high, end = number, number + count, end_offset
        if high <= max(low, self.number):
            return self
        if low <= self.number and not self.finished:
            return Progress(high, end)
        # Replace all ranges that overlap or touch [low, high) by one that covers them all.
        first = bisect_left(self.finished, low, key=_high)
        last = bisect_right(self.finished, high, key=_low)
        if first < last:
            low = min(low, self.finished[first][0])
            _, last_high, last_end = self.finished[last - 1]
            if last_high >= high:
                high, end = last_high, last_end
        if low <= self.number:
            return Progress(high, end, self.finished[last:])
        return Progress(
            self.number, self.offset, (*self.finished[:first], (low, high, end), *self.finished[last:])
        )

    def union(self, other: Progress) -> Progress:
        """Return the progress of what is finished here or in `other`. O(ranges of both)."""
        both = self.finish(0, other.number, other.offset)
        for low, high, end in other.finished:
            both = both.finish(low, high - low, end)
        return both

    def without(self, number: int, offset: int) -> Progress:
        """Return the progress if event `number`, which is finished and begins at `offset`, were not. O(ranges)."""
        assert self.is_finished(number), f"event {number} is not finished"
        if number < self.number:
            behind = (number + 1, self.number, self.offset)
            ranges = [behind] if number + 1 < self.number else []
            return Progress(number, offset, (*ranges, *self.finished))
        index = bisect_right(self.finished, number, key=_low) - 1
        low, high, end = self.finished[index]
        parts = [(low, number, offset), (number + 1, high, end)]
        kept = (part for part in parts if part[0] < part[1])
        return Progress(
            self.number, self.offset, (*self.finished[:index], *kept, *self.finished[index + 1 :])
        )

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        assert self.number >= 0, f"event number {self.number} is negative"
        assert self.offset >= 0, f"offset {self.offset} is negative"
        for (_, before, before_end), (low, high, end) in pairwise(
            ((0, self.number, self.offset), *self.finished)
        ):
            assert before < low < high, f"range [{low}, {high}) is not beyond {before}"
            assert before_end < end, f"range [{low}, {high}) ends at byte {end}, not beyond {before_end}"


def encode_progress(progress: Progress) -> list[int]:
    """Return `progress` as a flat list: number, offset, then low, high and end_offset of each range."""
    return [progress.number, progress.offset, *(part for each in progress.finished for part in each)]


def decode_progress(values: Sequence[int], *, key: str) -> Progress:
    """Return what `encode_progress` encoded; `key` names the record in the error. Raises CorruptRecord."""
    if len(values) < 2 or (len(values) - 2) % 3:
        raise CorruptRecord(key=key, reason=f"{len(values)} numbers cannot be the progress of a segment")
    number, offset, *rest = values
    ranges = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    progress = Progress(number, offset, tuple(ranges))
    try:
        progress.check()
    except AssertionError as broken:
        raise CorruptRecord(key=key, reason=f"progress of a segment: {broken}") from None
    return progress
