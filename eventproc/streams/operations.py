"""Changes of a stream that are planned from what it is when they are recorded: splits, merges, truncations to a place.

Python's methods, the commands and the REST calls submit these values, whose fields are what their callers ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import attrs

from eventproc.store.catalog import StoredHistory, current_epoch, get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.epochs import Epoch, Segment, merge_ranges, split_ranges
from eventproc.store.model.ids import SegmentId, as_segment, as_segments
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import from_json
from eventproc.store.requests import Request
from eventproc.streams.position_texts import parse_position
from eventproc.streams.queries import cut_at_position
from eventproc.workflows.requests import OfStream, ScaleStream, TruncateStream, stream_of


@attrs.frozen
class Scaling(OfStream):
    """A scale whose segments and ranges follow from the current epoch."""

    kind: ClassVar[str] = ScaleStream.kind

    def replaced(self, epoch: Epoch) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
        """Return the segments to seal, and the key ranges of those that open."""
        raise AssertionError(f"{type(self).__name__} does not say what it replaces")

    def plan(self, tx: Tx) -> ScaleStream:
        """See `Operation`. Raises what `replaced` raises."""
        found = stream_of(tx, self)
        seal, ranges = self.replaced(current_epoch(tx, found))
        return ScaleStream(found.name, found.stream_id, seal, ranges, if_version=self.if_version)


def _sorted_ids(segments: Iterable[int | str]) -> tuple[SegmentId, ...]:
    return tuple(sorted(as_segments(segments)))


def _parts(count: int) -> int:
    return check_int("number of parts", count)


@attrs.frozen
class SplitSegment(Scaling):
    """Split an active segment into equal parts.

    Planning raises NotFound and InvalidArgument.
    """

    __repr__ = short_repr_of_fields

    segment: SegmentId = attrs.field(converter=as_segment)
    into: int = attrs.field(default=2, converter=_parts)

    def replaced(self, epoch: Epoch) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
        """See `Scaling`."""
        return split_ranges(epoch, identifier=self.segment, into=self.into, stream=self.stream)


@attrs.frozen
class MergeNeighbours(Scaling):
    """Merge active segments whose key ranges are neighbours.

    Planning raises NotFound and InvalidArgument.
    """

    __repr__ = short_repr_of_fields

    segments: tuple[SegmentId, ...] = attrs.field(converter=_sorted_ids)

    def replaced(self, epoch: Epoch) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
        """See `Scaling`."""
        return merge_ranges(epoch, identifiers=self.segments, stream=self.stream)


@attrs.frozen
class TruncateTo(OfStream):
    """Move the head of a stream.

    cut: its new head: a cut, head, tail or a time, as `parse_position` reads it.

    "tail" and a time mean the cut that is there when the truncation is recorded.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = TruncateStream.kind
    cut: str

    def plan(self, tx: Tx) -> TruncateStream:
        """See `Operation`. Raises InvalidArgument, and InvalidCut for a cut of another stream."""
        found = stream_of(tx, self)
        cut = cut_at_position(tx, found, parse_position(self.cut, found.name, found.stream_id))
        return TruncateStream(found.name, cut.stream_id, dict(cut.offsets), if_version=self.if_version)


async def opened_segments(db: Database, done: Request) -> tuple[Segment, ...]:
    """Return the segments that a scale which is done has opened. One read at most.

    Raises StreamReplaced, and HistoryCompacted if a truncation has dropped their epoch since.
    """
    if isinstance(done.result, Epoch):
        return done.result.opened
    stream_id = from_json(done.body, ScaleStream).stream_id

    def look(tx: Tx) -> tuple[Segment, ...]:
        stream = get_stream(tx, done.target, stream_id=stream_id).value
        return StoredHistory(tx, stream).opened_by(done.id).opened

    return await db.read(look)
