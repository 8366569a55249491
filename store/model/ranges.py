"""Key ranges: half-open intervals [low, high) of doubles within the key space [0, 1).

Ends are compared exactly, without a tolerance. Neighbours share the identical double, because this module makes every
range, from existing ends or from one expression for both sides of a border.
Source: reference pravega.md 1.1, 1.2 and 1.10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from operator import attrgetter
from typing import Final

import attrs

from eventproc.store.model.argument_checks import check_iterable, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import KEY_RANGE_WIDTH_MIN, SEGMENTS_MAX

_NUMBER: Final = r"[0-9]+(?:\.[0-9]*)?(?:[eE]-?[0-9]+)?"
_TEXT: Final = re.compile(rf"({_NUMBER})-({_NUMBER})", re.ASCII)
_MEANT: Final = "it must be a pair of numbers (low, high), or its text, such as '0.25-0.5'"


@attrs.frozen(order=True)
class KeyRange:
    """[low, high), a part of the key space; sorted by low, then high.

    The constructor accepts any numbers, so that a request can be transported before it is checked: `verify` checks.
    """

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> KeyRange:
        """Return the range for `text`, such as "0.25-0.5". Raises InvalidArgument, also for an empty range."""
        if not (match := _TEXT.fullmatch(text)):
            raise InvalidArgument(what="key range", value=text, reason="it must look like 0.25-0.5")
        return cls(float(match[1]), float(match[2])).verify()

    def verify(self) -> KeyRange:
        """Return this range; raise InvalidArgument unless 0 <= low < high <= 1."""
        if not 0.0 <= self.low < self.high <= 1.0:
            raise InvalidArgument(what="key range", value=str(self), reason="0 <= low < high <= 1 must hold")
        return self

    def overlaps(self, other: KeyRange) -> bool:
        """Return whether a point lies in both; ranges that only touch do not overlap."""
        return other.low < self.high and self.low < other.high

    def contains(self, point: float) -> bool:
        """Return whether `point`, a key's hash, lies in this range."""
        return self.low <= point < self.high

    def split(self, into: int) -> tuple[KeyRange, ...]:
        """Return `into` ranges of about equal width, in order, that tile this one exactly.

        The outer ends are this range's own doubles. Raises InvalidArgument when `into` is not in
        [2, 1024], or when a part would be too narrow to be sure to hold a key.
        """
        if not 2 <= into <= SEGMENTS_MAX:
            raise InvalidArgument(
                what="number of parts", value=str(into), reason=f"2 to {SEGMENTS_MAX} are possible"
            )
        width = self.high - self.low
        inner = (self.low + width * part / into for part in range(1, into))
        borders = (self.low, *inner, self.high)
        parts = tuple(KeyRange(low, high) for low, high in pairwise(borders))
        if any(part.high - part.low < KEY_RANGE_WIDTH_MIN for part in parts):
            raise InvalidArgument(
                what="key range", value=str(self), reason=f"it is too narrow to be split into {into}"
            )
        return parts

    def __str__(self) -> str:
        return f"{self.low!r}-{self.high!r}"


def as_key_range(value: object) -> KeyRange:
    """Return the range for an argument: a range, a pair (low, high), or its text. Raises InvalidArgument.

    `KeyRange.verify` checks its ends.
    """
    if isinstance(value, KeyRange):
        return value
    if isinstance(value, str):
        return KeyRange.parse(value)
    match value:
        case (int() | float() as low, int() | float() as high):
            return KeyRange(low, high)
        case _:
            raise invalid_argument("key range", value, _MEANT)


def as_key_ranges(value: object) -> tuple[KeyRange, ...]:
    """Return the ranges for a sequence of ranges, pairs or texts, in its order. Raises InvalidArgument."""
    return tuple(
        map(as_key_range, check_iterable("key ranges", value, f"a sequence is needed, each: {_MEANT}"))
    )


borders: Final[Callable[[KeyRange], tuple[float, float]]] = attrgetter("low", "high")
"""Sort key of ranges: gives their own order, without a tuple for each comparison."""

KEY_SPACE: Final = KeyRange(0.0, 1.0)
"""All keys."""


def canonical(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Return `ranges` sorted, with ranges that touch exactly joined into one.

    Overlapping ranges stay separate entries. So if one of two sets has no overlaps, their canonical forms are equal
    exactly if both cover the same points once.
    """
    joined: list[KeyRange] = []
    for key_range in sorted(ranges, key=borders):
        if joined and joined[-1].high == key_range.low:
            joined[-1] = KeyRange(joined[-1].low, key_range.high)
        else:
            joined.append(key_range)
    return tuple(joined)


def tiles(ranges: Iterable[KeyRange]) -> bool:
    """Return whether `ranges`, in this order, cover [0, 1) exactly once and none of them is empty."""
    covered = KEY_SPACE.low
    for key_range in ranges:
        if not covered == key_range.low < key_range.high:
            return False
        covered = key_range.high
    return covered == KEY_SPACE.high


def initial_ranges(count: int) -> tuple[KeyRange, ...]:
    """Return the ranges [i/count, (i+1)/count) of a new stream. Raises InvalidArgument outside 1..SEGMENTS_MAX."""
    if not 1 <= count <= SEGMENTS_MAX:
        raise InvalidArgument(
            what="number of segments", value=str(count), reason=f"1 to {SEGMENTS_MAX} are possible"
        )
    return tuple(KeyRange(index / count, (index + 1) / count) for index in range(count))
