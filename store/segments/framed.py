"""Events that arrive framed, as Pravega's clients send them: checked, and turned into columns without copying them.

The bytes of a segment are frames already (columns.py), so the block of a client is stored as it came. Such events have
no key, position, event time or headers, because the protocol carries none of them.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.columns import EncodedBlock, EventBlock

_HEAD: Final = Struct(">ii")
"""Type 0 and the length of the payload."""


def from_frames(data: bytes, count: int | None = None) -> EncodedBlock:
    """Return the framed events in `data` as a block that can be appended. About 0.3 us per event.

    count: the number of events that the sender announced. None: it announced none.
    Raises InvalidArgument if there is no event, if `data` is not a sequence of complete frames, or if the number
    differs.
    """
    lengths = array("I")
    payloads: list[bytes] = []
    at, end = 0, len(data)
    head = _HEAD.unpack_from
    while at + FRAME_BYTES <= end:
        kind, length = head(data, at)
        if kind or length < 0:
            raise _malformed(at, f"its frame has type {kind} and length {length}")
        at += FRAME_BYTES
        payloads.append(data[at : at + length])
        lengths.append(length)
        at += length
    if at != end:
        raise _malformed(at, f"the last frame ends at {at}, the data at {end}")
    if not payloads:
        raise _malformed(0, "there is no event")
    if count is not None and count != len(payloads):
        raise _malformed(end, f"{count} events were announced, {len(payloads)} are in the data")
    return EncodedBlock(EventBlock(payloads), lengths, data, None)


def _malformed(at: int, reason: str) -> InvalidArgument:
    return invalid_argument("framed events", f"bytes at {at}", reason)
