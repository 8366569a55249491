"""Events for people who browse: some of a stream, from a position on, with payloads as they were written."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Final, TypeAlias

import attrs

from eventproc.server.rest.operator_calls import SegmentText
from eventproc.server.rest.routes import PAGE, LocalName, PageLimit, RestCall, ScopeName
from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import SegmentId, as_segment
from eventproc.store.records.plain import Limits
from eventproc.store.segments import Event, known_state
from eventproc.store.segments.offsets import offset_of_number
from eventproc.streams.position_texts import parse_position
from eventproc.streams.queries import Moment

BYTES_MAX: Final = 4 << 20
"""Payloads of one answer, in bytes, up to the event that reaches them. Higher: more memory per call."""

EXAMINED_MAX: Final = 20_000
EXAMINED_BYTES_MAX: Final = 64 << 20
"""Events, and bytes of their payloads, that one call looks at for those of a key. Higher: longer calls; lower: more of
them for a rare key."""

BrowsePosition: TypeAlias = Annotated[
    str, Limits(about="head, tail, last (the newest events), a time (ISO 8601, or ms), or `next` of a page.")
]

LAST: Final = "last"


@attrs.frozen(kw_only=True)
class BrowsedEvent:
    """An event. payload: as it was written. timestamp: when it was appended; event_time: the user's; in ms since 1970.

    number, offset: where it is in its segment, in events and bytes.
    """

    segment: SegmentId
    number: int
    offset: int
    key: str | None
    timestamp: int
    event_time: int | None
    headers: Mapping[str, str]
    payload: bytes

    @classmethod
    def of(cls, event: Event[bytes]) -> BrowsedEvent:
        """Return what a caller sees of an event."""
        return cls(**{each.name: getattr(event, each.name) for each in attrs.fields(cls)})


@attrs.frozen
class EventPage:
    """Some events, those of a key in their order. next: the cut behind all that was looked at; it may be the tail.

    at_end: whether there was nothing behind it when the call began.
    """

    items: tuple[BrowsedEvent, ...]
    next: StreamCut
    at_end: bool


async def list_events(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    start: BrowsePosition = "head",
    segment: SegmentText | None = None,
    key: Annotated[str | None, Limits(about="Only events of this key.")] = None,
    limit: PageLimit = PAGE,
) -> EventPage:
    """Show events of a stream from a position on. A call with another `start` than head, last or a time goes on.

    It looks at 20,000 events and 64 MiB of payloads, so that a page may be empty before the end. Its answer ends with
    the event that brings the payloads to 4 MiB.
    """
    handle = await call.ep.stream(f"{scope}/{stream}")
    end = await handle.tail()
    if start == LAST:
        begin: Moment | StreamCut = await call.ep.db.read(partial(_last, name=handle.name, count=limit))
    else:
        begin = parse_position(start, handle.name, handle.stream_id)
    chosen = None if segment is None else as_segment(segment)
    found: list[BrowsedEvent] = []
    examined = examined_bytes = size = 0
    is_full = False
    async with handle.reader(begin) as reader, aclosing(reader.until(end)) as events:
        async for event in events:
            examined += 1
            examined_bytes += len(event.payload)
            if key in (None, event.key) and chosen in (None, event.segment):
                found.append(BrowsedEvent.of(event))
                size += len(event.payload)
            is_answer_full = len(found) >= limit or size >= BYTES_MAX
            is_full = is_answer_full or examined >= EXAMINED_MAX or examined_bytes >= EXAMINED_BYTES_MAX
            if is_full:
                break
        cut = reader.cut()
        return EventPage(tuple(found), cut, not is_full or cut == end)


def _last(tx: Tx, name: str, count: int) -> StreamCut:
    """Return a cut with about so many events behind it, the newest of each active segment."""
    stream = get_stream(tx, name).value
    segments = current_epoch(tx, stream).segments
    each_has, offsets = max(1, count // len(segments)), {}
    for each in segments:
        state = known_state(tx, stream.stream_id, each.id)
        number = max(state.head_number, state.tail_number - each_has)
        offsets[each.id] = offset_of_number(tx, stream.stream_id, each.id, number)
    return StreamCut(stream.name, stream.stream_id, offsets)
