"""Positions in a stream (head, tail, a cut, a time), segment ids and key ranges, as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.delays import utc_ms
from eventproc.store.model.errors import InvalidArgument, InvalidCut
from eventproc.store.model.ids import SegmentId, parse_segment
from eventproc.store.model.ranges import KeyRange
from eventproc.streams.queries import Moment

DIGITS_MAX: Final = 18
"""Digits of a time in ms. Such a number always fits into 63 bits."""


def parse_position(text: str, stream: str, stream_id: int) -> Moment | StreamCut:
    """Return the position in `stream` that `text` names: head, tail, a cut (with "="), or a time.

    Raises InvalidArgument, and InvalidCut for a cut of another stream or of a deleted stream of that name. The
    stream checks the rest of the cut when the position is used.
    """
    if "=" not in text:
        return parse_moment(text)
    try:
        cut = StreamCut.parse(text, stream)
    except InvalidCut as why:
        raise InvalidArgument(what="cut", value=text, reason=why.reason) from None
    if cut.stream_id != stream_id:
        reason = (
            f"it belongs to stream {cut.stream_id}, which is another one or a deleted {stream}; "
            f"print a new cut with `eventproc stream cut {stream}`"
        )
        raise InvalidCut(stream=stream, cut=text, reason=reason)
    return cut


def parse_moment(text: str) -> Moment:
    """Return the end of a stream, or the wall time in ms, that `text` names. Raises as `parse_time`."""
    if text in ("head", "tail"):
        return "head" if text == "head" else "tail"
    return parse_time(
        text, "position", f"it must be head, tail, a cut such as 7:0.0=120, or a time, {_TIMES}"
    )


_TIMES: Final = "in ms since 1970 or such as 2026-11-20T12:30:00Z"


def parse_time(text: str, what: str = "time", reason: str = f"it must be {_TIMES}") -> int:
    """Return the wall time in ms that `text` names: ms since 1970, or ISO 8601, in UTC if it has no zone.

    what, reason: of the InvalidArgument for another text.
    """
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        return int(text)
    try:
        return utc_ms(datetime.fromisoformat(text))
    except ValueError:
        raise InvalidArgument(what=what, value=text, reason=reason) from None


def parse_segments(texts: Iterable[str]) -> tuple[SegmentId, ...]:
    """Return the segment ids in `texts`: 2.1 or the integer, one or several with commas in each text."""
    return tuple(parse_segment(part.strip()) for text in texts for part in text.split(","))


def parse_ranges(text: str) -> tuple[KeyRange, ...]:
    """Return the key ranges in "0-0.5,0.5-1". Raises InvalidArgument."""
    return tuple(KeyRange.parse(part.strip()) for part in text.split(","))
