"""The bytes of a mark of time, as Pravega's clients read it.

A mark is an object of version 0 with one revision: `lower`, `upper`, and a map from segments to offsets. A segment, the
key of the map, is another object of version 0: its id and the ends of its range. All numbers are big-endian. An object
begins with the format of the serializer, the version, the number of revisions, and, for each revision, its number and
the length of its bytes. The map begins with its size, in 1, 2 or 4 bytes: see `_compact`.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from eventproc.store.model.cuts import CutRange, DividedCut
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ranges import KEY_SPACE, KeyRange
from eventproc.store.model.time_marks import TimeMark

_OBJECT: Final = Struct(">4Bi")
"""Format, version and number of revisions; number and length of the only revision."""
_TIMES: Final = Struct(">2q")
_ENTRY: Final = Struct(">4BiqddQ")
"""A segment as an object, and its offset."""
_SEGMENT_BYTES: Final = Struct(">qdd").size
_ONE_BYTE_END: Final = 1 << 7
_TWO_BYTES_END: Final = 1 << 14
_HEAD: Final = (0, 0, 1, 0)


def encode_mark(mark: TimeMark) -> bytes:
    """Return the bytes of a mark."""
    body = _TIMES.pack(mark.lower, mark.upper) + _compact(len(mark.cut.ranges))
    for piece in mark.cut.ranges:
        low, high = piece.range.low, piece.range.high
        body += _ENTRY.pack(*_HEAD, _SEGMENT_BYTES, piece.id, low, high, piece.offset)
    return _OBJECT.pack(*_HEAD, len(body)) + body


def decode_mark(data: bytes) -> TimeMark:
    """Return the mark that `encode_mark` wrote. Raises ValueError with what is wrong."""
    try:
        *head, length = _OBJECT.unpack_from(data)
        lower, upper = _TIMES.unpack_from(data, _OBJECT.size)
        count, at = _read_compact(data, _OBJECT.size + _TIMES.size)
    except (struct.error, IndexError) as why:
        raise ValueError(f"it ends early: {why}") from None
    if tuple(head) != _HEAD or length != len(data) - _OBJECT.size or len(data) != at + count * _ENTRY.size:
        raise ValueError(f"{len(data)} bytes with the head {head}, the length {length} and {count} segments")
    pieces: list[CutRange] = []
    for *_, segment, low, high, offset in _ENTRY.iter_unpack(data[at:]):
        pieces.append(CutRange(range=KeyRange(low, high), id=SegmentId(segment), offset=offset))
    borders = [KEY_SPACE.low, *(piece.range.high for piece in pieces)]
    if [*(piece.range.low for piece in pieces), KEY_SPACE.high] != borders:
        raise ValueError(f"its segments do not cover the key space once: {pieces}")
    return TimeMark(lower=lower, upper=upper, cut=DividedCut(tuple(pieces)))


def _compact(count: int) -> bytes:
    """Return a size in 1 byte; from 128 on in 2, with the first bit set; from 16,384 on in 4, with two bits set."""
    if count < _ONE_BYTE_END:
        return count.to_bytes(1, "big")
    if count < _TWO_BYTES_END:
        return (count | 0x8000).to_bytes(2, "big")
    return (count | 0xC000_0000).to_bytes(4, "big")


def _read_compact(data: bytes, at: int) -> tuple[int, int]:
    """Return the size that begins at `at`, and where it ends."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    size, mask = (2, 0x3FFF) if first < 0xC0 else (4, 0x3FFF_FFFF)
    return int.from_bytes(data[at : at + size], "big") & mask, at + size
