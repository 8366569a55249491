"""Positions in a stream (head, tail, a cut, a time), segment ids and key ranges, as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from eventproc.groups import GroupStart
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidArgument, InvalidCut
from eventproc.store.model.ids import SegmentId, parse_segment
from eventproc.store.model.ranges import KeyRange
from eventproc.streams import Stream
from eventproc.streams.stream import Start

DIGITS_MAX: Final = 18
"""Digits of a time in ms. Such a number always fits into 63 bits."""


def parse_position(text: str, stream: str, stream_id: int) -> Start:
    """Return the position in `stream` that `text` names: head, tail, a cut (with "="), or a time.

    Raises InvalidArgument, and InvalidCut for a cut of another stream or of a deleted stream of that name. The
    stream checks the rest of the cut when the position is used.
    """
    if text == "head":
        return "head"
    if text == "tail":
        return "tail"
    if "=" not in text:
        return parse_time(text)
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


def parse_group_start(texts: Sequence[str], streams: Mapping[str, int]) -> GroupStart:
    """Return the start position of a group.

    texts: head, tail or a time; or cuts, at most one per stream. streams: {name: stream id}.
    """
    if len(texts) == 1 and "=" not in texts[0]:
        return parse_position(texts[0], *next(iter(streams.items())))
    return parse_cuts(texts, streams)


def parse_cuts(texts: Sequence[str], streams: Mapping[str, int]) -> dict[str, StreamCut]:
    """Return the cuts in `texts` by stream; a cut begins with its stream's id. Raises InvalidArgument."""
    by_id = {str(stream_id): name for name, stream_id in streams.items()}
    found: dict[str, StreamCut] = {}
    for text in texts:
        # A cut of a stream that is not listed is matched with the first one, whose check refuses it.
        name = by_id.get(text.partition(":")[0], next(iter(streams)))
        cut = parse_position(text, name, streams[name])
        if not isinstance(cut, StreamCut):
            raise InvalidArgument(
                what="cut", value=text, reason="it must be a cut, as `eventproc stream cut` prints it"
            )
        if name in found:
            raise InvalidArgument(
                what="cut", value=text, reason=f"{name} already has a cut; give one per stream"
            )
        found[name] = cut
    return found


def parse_time(text: str) -> int:
    """Return the wall time in ms that `text` names: ms since 1970, or ISO 8601, in UTC if it has no zone."""
    if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            what="position",
            value=text,
            reason="it must be head, tail, a cut such as 7:0.0=120, or a time, "
            "in ms since 1970 or such as 2026-11-20T12:30:00Z",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


async def cut_at_position(stream: Stream, position: Start) -> StreamCut:
    """Return the cut at a position of the stream."""
    if isinstance(position, StreamCut):
        return position
    if isinstance(position, int):
        return await stream.cut_at(position)
    return await (stream.head() if position == "head" else stream.tail())


def parse_segments(texts: Iterable[str]) -> tuple[SegmentId, ...]:
    """Return the segment ids in `texts`: 2.1 or the integer, one or several with commas in each text."""
    return tuple(parse_segment(part.strip()) for text in texts for part in text.split(","))


def parse_ranges(text: str) -> tuple[KeyRange, ...]:
    """Return the key ranges in "0-0.5,0.5-1". Raises InvalidArgument."""
    return tuple(KeyRange.parse(part.strip()) for part in text.split(","))
