"""Segment ids: the epoch that created the segment in the high half, its number in the low half.

Ids of one stream are never reused, and a later epoch's ids are greater than an earlier one's, so that at
any one point of the key space the order of ids is the order in which its segments took over.
Source: reference pravega.md 1.1.
"""

from __future__ import annotations

import re
from typing import Final, NewType, SupportsIndex

from eventproc.store.model.argument_checks import check_int, check_iterable, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import SEGMENT_PART_BITS

SegmentId = NewType("SegmentId", int)
"""64 bits: creation epoch << 32 | number, both non-negative and below 2**31."""

_PART_END: Final = 1 << SEGMENT_PART_BITS
_NUMBER_MASK: Final = 0xFFFF_FFFF
_TEXT: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})", re.ASCII)
_PLAIN: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_MEANT: Final = "it must be a segment's id, or its text number.epoch, such as '2.1'"


def segment_id(number: int, epoch: int) -> SegmentId:
    """Return the id of segment `number` created by `epoch`; both must lie in [0, 2**31)."""
    assert 0 <= number < _PART_END, f"segment number {number} is outside [0, {_PART_END})"
    assert 0 <= epoch < _PART_END, f"epoch {epoch} is outside [0, {_PART_END})"
    return SegmentId(epoch << 32 | number)


def number_of(identifier: SegmentId) -> int:
    """Return the segment's number, unique within its stream."""
    return identifier & _NUMBER_MASK


def epoch_of(identifier: SegmentId) -> int:
    """Return the epoch that created the segment."""
    return identifier >> 32


def format_segment(identifier: SegmentId) -> str:
    """Return the text of the id: `number.epoch`."""
    return f"{identifier & _NUMBER_MASK}.{identifier >> 32}"


class PrintableSegmentId(int):
    """A segment id that prints as people read it, `2.1`; equal to, and usable as, the plain int."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_segment(SegmentId(self))

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


def printable(identifier: SegmentId) -> SegmentId:
    """Return the id as callers get it. Plain ints are 20 times faster to make, so the store keeps those."""
    return SegmentId(PrintableSegmentId(identifier))


def parse_segment(text: str) -> SegmentId:
    """Return the id that `text` spells: "2.1" (number 2 of epoch 1), or the plain integer "4294967298".

    Raises InvalidArgument.
    """
    if match := _TEXT.fullmatch(text):
        number, epoch = int(match[1]), int(match[2])
    elif _PLAIN.fullmatch(text):
        number, epoch = int(text) & _NUMBER_MASK, int(text) >> 32
    else:
        raise InvalidArgument(
            what="segment", value=text, reason="it must look like number.epoch, such as 2.1"
        )
    if number >= _PART_END or epoch >= _PART_END:
        raise InvalidArgument(
            what="segment", value=text, reason=f"number and epoch must be below {_PART_END}"
        )
    return segment_id(number, epoch)


def as_segment(value: object) -> SegmentId:
    """Return the id for an argument: an id, or its text, such as "2.1". Raises InvalidArgument."""
    if isinstance(value, str):
        return parse_segment(value)
    if not isinstance(value, (int, SupportsIndex)):  # int first: the check of the protocol takes microseconds
        raise invalid_argument("segment", value, _MEANT)
    return SegmentId(check_int("segment", value, least=0))


def as_segments(value: object) -> tuple[SegmentId, ...]:
    """Return the ids for a sequence of ids or texts, in its order. Raises InvalidArgument."""
    return tuple(map(as_segment, check_iterable("segments", value, f"a sequence is needed, each: {_MEANT}")))
