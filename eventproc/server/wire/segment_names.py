"""Names of segments as Pravega's clients write them: `scope/stream/2.#epoch.1`, and those of transactions."""

from __future__ import annotations

import re
from typing import Final

import attrs

from eventproc.base.clock import Clock, new_id
from eventproc.store.model.ids import SegmentId, epoch_of, number_of, segment_id
from eventproc.store.model.limits import SEGMENT_PART_BITS

_NAME: Final = re.compile(
    r"([^/#]+/[^/#]+)/([0-9]{1,10})\.#epoch\.([0-9]{1,10})(?:#transaction\.([0-9a-f]{32}))?", re.ASCII
)

_TRANSIENT: Final = re.compile(r"#transient\.[0-9a-f]{32}\.[0-9a-f]{32}", re.ASCII)


@attrs.frozen
class WireSegment:
    """A segment of a stream, or what a transaction has staged for it.

    stream: "scope/stream". txn: id of the transaction, None for the segment itself.
    """

    stream: str
    segment: SegmentId
    txn: str | None = None


def parse_segment_name(name: str) -> WireSegment | None:
    """Return the segment that a client names, None if no stream can have it."""
    if not (match := _NAME.fullmatch(name)):
        return None
    number, epoch = int(match[2]), int(match[3])
    if number >> SEGMENT_PART_BITS or epoch >> SEGMENT_PART_BITS:
        return None
    return WireSegment(match[1], segment_id(number, epoch), match[4])


def segment_name(stream: str, segment: SegmentId) -> str:
    """Return the name of a segment as clients write it."""
    return f"{stream}/{number_of(segment)}.#epoch.{epoch_of(segment)}"


def new_transient_name(parent: str, writer: bytes, clock: Clock) -> str:
    """Return the name of a new transient segment, which no other one ever has."""
    return f"{parent}#transient.{writer.hex()}.{new_id(clock).replace('-', '')}"


def is_transient_of(parent: str, name: str) -> bool:
    """Return whether a transient segment of `parent` may have had this name."""
    return name.startswith(parent) and _TRANSIENT.fullmatch(name, len(parent)) is not None
