"""The queries about a stream's history: segments, scales, sizes and order of cuts, truncation. As the Python API's."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import attrs

from eventproc.groups.position_texts import cut_at_position
from eventproc.server.rest.method_answers import calling, listing
from eventproc.server.rest.operator_calls import STREAM, Position
from eventproc.server.rest.routes import (
    PAGE,
    After,
    AfterNumber,
    LocalName,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.store.catalog import StoredHistory, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.cuts import CutOrder, StreamCut
from eventproc.store.model.history import predecessors, successors
from eventproc.store.model.ids import SegmentId, as_segment, format_segment, printable
from eventproc.store.model.names import StreamName
from eventproc.store.records.plain import Limits
from eventproc.streams import MeasuredPart, PastScale, SegmentDescription, Stream, TruncationDescription
from eventproc.streams.description import describe_segment as segment_description
from eventproc.streams.position_texts import parse_position, parse_time

Time: TypeAlias = Annotated[str | None, Limits(about="A time (ISO 8601, or ms).")]
SegmentText: TypeAlias = Annotated[str, Limits(about="Id of a segment, such as 2.1.")]


async def _cut(stream: Stream, text: str) -> StreamCut:
    return await cut_at_position(stream, parse_position(text, stream.name, stream.stream_id))


list_sealed_segments = listing(
    "list_sealed_segments", Stream.sealed_segments, STREAM, SegmentDescription, by="id"
)
get_truncation = calling("get_truncation", Stream.truncation, STREAM, TruncationDescription | None)


async def list_segments_between(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    from_: Position = "head",
    to: Position = "tail",
    after: After = None,
    limit: PageLimit = PAGE,
) -> Page[SegmentDescription]:
    """List the segments in either of two cuts or between them, the older ones first."""
    handle = await call.ep.stream(f"{scope}/{stream}")
    found = await handle.segments_between(
        await _cut(handle, from_), await _cut(handle, to), after=after, limit=limit + 1
    )
    return page_of(found, limit, lambda each: format_segment(each.id))


@attrs.frozen
class SegmentSuccessor:
    """A segment that replaced another one. predecessors: all that must be read to their ends before it."""

    id: SegmentId
    predecessors: tuple[SegmentId, ...]


@attrs.frozen
class SegmentFamily:
    """A segment, the ones that it replaced, and those that replaced it; none for an active one."""

    segment: SegmentDescription
    predecessors: tuple[SegmentId, ...]
    successors: tuple[SegmentSuccessor, ...]


async def describe_segment(
    call: RestCall, scope: ScopeName, stream: LocalName, segment: SegmentText
) -> SegmentFamily:
    """Show a segment, active or sealed, with its predecessors and successors, all of one moment."""
    name, chosen = str(StreamName.parse(f"{scope}/{stream}")), as_segment(segment)

    def look(tx: Tx) -> SegmentFamily:
        record = get_stream(tx, name).value
        history = StoredHistory(tx, record)
        return SegmentFamily(
            segment_description(tx, record, chosen),
            tuple(map(printable, predecessors(history, chosen))),
            tuple(
                SegmentSuccessor(printable(each), tuple(map(printable, before)))
                for each, before in successors(history, chosen).items()
            ),
        )

    return await call.ep.db.read(look)


async def list_scales(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    from_: Time = None,
    to: Time = None,
    after: AfterNumber = None,
    limit: PageLimit = PAGE,
) -> Page[PastScale]:
    """List the epoch of a time, and the scales from then until another time, the oldest first."""
    handle = await call.ep.stream(f"{scope}/{stream}")
    since, until = (None if each is None else parse_time(each) for each in (from_, to))
    found = await handle.scales(since, until, after=after, limit=limit + 1)
    return page_of(found, limit, lambda each: str(each.epoch))


async def measure_stream(
    call: RestCall, scope: ScopeName, stream: LocalName, from_: Position = "head", to: Position = "tail"
) -> MeasuredPart:
    """Show how many bytes and events lie between two positions, and before the first since the stream was created."""
    handle = await call.ep.stream(f"{scope}/{stream}")
    return await handle.measure(
        parse_position(from_, handle.name, handle.stream_id),
        parse_position(to, handle.name, handle.stream_id),
    )


@attrs.frozen
class CutComparison:
    """How one cut relates to another. order: of `one`: before, equal_or_after, or overlaps."""

    one: StreamCut
    other: StreamCut
    order: CutOrder


async def compare_stream_cuts(
    call: RestCall, scope: ScopeName, stream: LocalName, one: Position, other: Position
) -> CutComparison:
    """Compare two positions of a stream."""
    handle = await call.ep.stream(f"{scope}/{stream}")
    left, right = await _cut(handle, one), await _cut(handle, other)
    return CutComparison(left, right, await handle.compare_cuts(left, right))
