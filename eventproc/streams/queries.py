"""Queries about a stream's history: segments, epochs, successors, sizes and order of cuts, scales, truncation.

Each is one read, so everything that it returns is of one moment. Apart from lists, whose pages the caller chooses, no
query depends on the length of the history. Source: reference pravega.md 1.6 to 1.8.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, cast

from eventproc.store.catalog import StoredHistory, StreamRecord, StreamSize, get_stream, size_before
from eventproc.store.catalog.queries import head_cut, tail_cut, time_cut
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int, invalid_argument
from eventproc.store.model.cuts import CutOrder, StreamCut, as_cut, compare_cuts, segments_between, verify_cut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import InvalidArgument, InvalidCut, StreamReplaced
from eventproc.store.model.history import epoch_at, predecessors, successors
from eventproc.store.model.ids import SegmentId, as_segment, printable
from eventproc.store.model.limits import PAGE_ENTRIES
from eventproc.store.model.partitions import partition_ids
from eventproc.store.segments import sealed_segments
from eventproc.streams.description import (
    MeasuredPart,
    PastScale,
    SegmentDescription,
    StreamDescription,
    TruncationDescription,
    describe_scale,
    describe_segment,
    describe_stream,
)
from eventproc.streams.stream_cuts import frontier_at

if TYPE_CHECKING:
    from eventproc.streams.picture import StreamPicture

R = TypeVar("R")

SegmentName: TypeAlias = int | str
"""How callers name a segment: by its id, or by the text of one, such as "2.1"."""

Moment: TypeAlias = Literal["head", "tail"] | int
"""An end of the stream, or a time in wall ms."""


class StreamQueries:
    """The queries of a stream's handle. See `Stream`."""

    def __init__(self, db: Database, name: str, stream_id: int) -> None:
        self._db = db
        self.name = name
        self.stream_id = stream_id

    def _record(self, tx: Tx) -> StreamRecord:
        return get_stream(tx, self.name, stream_id=self.stream_id).value

    async def _ask(self, query: Callable[[Tx, StreamRecord], R]) -> R:
        return await self._db.read(lambda tx: query(tx, self._record(tx)))

    async def describe(self) -> StreamDescription:
        """Return the stream's state, segments, ends and sizes, all of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return await self._ask(describe_stream)

    async def head(self) -> StreamCut:
        """Return the earliest readable cut.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return await self._ask(head_cut)

    async def tail(self) -> StreamCut:
        """Return the cut after the last event; all segments of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        return await self._ask(tail_cut)

    async def cut_at(self, at: Moment) -> StreamCut:
        """Return the cut at an end, or the one before the events that were appended at or after a time.

        Args:
            at: "head", "tail", or a wall time, in ms since 1970. Where the head is later than the time, the head.

        Raises:
            InvalidArgument: `at` is none of these.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        chosen = as_position("time", at)
        return await self._ask(lambda tx, stream: cut_at_position(tx, stream, chosen))

    async def segments(self, at: Moment = "tail", *, epoch: int | None = None) -> list[SegmentDescription]:
        """Return the segments of one moment of the stream's life, in the order of their key ranges.

        Those of the head are all segments of its cut, also those that begin after it. Their `head` and `tail` are of
        now.

        Args:
            at: "tail" (default): the active segments; of a sealed stream, those that were active last. "head": those
                in which a reader from the head begins. A time, in ms since 1970: those that were active then, or in
                the oldest epoch kept if that began later.
            epoch: the number of an epoch, instead of `at`: those of that epoch. None (default): as `at` says.

        Raises:
            NotFound: the stream has no such epoch yet.
            HistoryCompacted: the epoch is older than the oldest one kept.
            InvalidArgument: `at` is none of them, or both are given.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        if isinstance(at, str) and at not in ("head", "tail"):
            raise invalid_argument("at", at, "it must be 'head', 'tail', or an int of ms")
        moment = at if isinstance(at, str) else check_int("at", at, unit="ms")
        chosen = None if epoch is None else check_int("epoch", epoch)
        if chosen is not None and moment != "tail":
            raise invalid_argument("at", at, "give it or an epoch, not both")

        def query(tx: Tx, stream: StreamRecord) -> list[SegmentDescription]:
            history = StoredHistory(tx, stream)
            if moment == "head":
                found = [describe_segment(tx, stream, each) for each in head_cut(tx, stream).offsets]
                return sorted(found, key=lambda each: (each.low, each.id))
            number = stream.epoch if chosen is None else chosen
            if not isinstance(moment, str):
                number = epoch_at(history, moment).number
            return [describe_segment(tx, stream, each) for each in partition_ids(history.epoch(number))]

        return await self._ask(query)

    async def segment(self, segment: SegmentName) -> SegmentDescription:
        """Return one segment, active or sealed.

        Args:
            segment: its id, or text such as "2.1".

        Raises:
            NotFound: the stream never had it.
            HistoryCompacted: it was sealed before the oldest epoch kept.
            InvalidArgument: the id is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        chosen = as_segment(segment)
        return await self._ask(lambda tx, stream: describe_segment(tx, stream, chosen))

    async def sealed_segments(
        self, *, after: SegmentName | None = None, limit: int = PAGE_ENTRIES
    ) -> list[SegmentDescription]:
        """Return sealed segments with their final sizes, by id: the older ones first.

        Args:
            after: the last segment of the previous page, by id or text. None (default): the first page.
            limit: how many to return at most. Default: 1000.

        Raises:
            InvalidArgument: an argument is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        last, most = _after_segment(after), _limit(limit)

        def query(tx: Tx, stream: StreamRecord) -> list[SegmentDescription]:
            found = sealed_segments(
                tx, stream.stream_id, first_epoch=stream.first_epoch, after=last, limit=most
            )
            return [describe_segment(tx, stream, each) for each in found]

        return await self._ask(query)

    async def successors(self, segment: SegmentName) -> dict[SegmentId, tuple[SegmentId, ...]]:
        """Return the segments that replaced a segment, each with all its predecessors; empty for an active segment.

        A reader may open a successor after it has read all those predecessors to their ends.

        Args:
            segment: its id, or text such as "2.1".

        Raises:
            NotFound: the stream never had it.
            HistoryCompacted: it was sealed before the oldest epoch kept.
            InvalidArgument: the id is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        chosen = as_segment(segment)
        found = await self._ask(lambda tx, stream: successors(StoredHistory(tx, stream), chosen))
        return {printable(each): tuple(map(printable, before)) for each, before in found.items()}

    async def predecessors(self, segment: SegmentName) -> tuple[SegmentId, ...]:
        """Return the segments that a segment replaced; empty if it is one of the oldest epoch kept.

        Args:
            segment: its id, or text such as "2.1".

        Raises:
            NotFound: the stream never had it.
            HistoryCompacted: it was sealed before the oldest epoch kept.
            InvalidArgument: the id is not valid.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        chosen = as_segment(segment)
        found = await self._ask(lambda tx, stream: predecessors(StoredHistory(tx, stream), chosen))
        return tuple(map(printable, found))

    async def epoch(self, number: int) -> Epoch:
        """Return one epoch.

        Args:
            number: its number, from 0 on.

        Raises:
            NotFound: the stream has no such epoch yet.
            HistoryCompacted: it is older than the oldest epoch kept.
            InvalidArgument: the number is not an int.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        chosen = check_int("epoch", number)
        return (await self._ask(lambda tx, stream: StoredHistory(tx, stream).epoch(chosen))).printable()

    async def epochs(self, *, after: int | None = None, limit: int | None = None) -> list[Epoch]:
        """Return the epochs that are kept, the oldest first.

        Args:
            after: number of the last epoch of the previous page. None (default): from the oldest on.
            limit: how many to return at most. None (default): all.

        Raises:
            InvalidArgument: an argument is not an int, or is negative.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        last = -1 if after is None else check_int("after", after, least=0)
        most = None if limit is None else _limit(limit)

        def query(tx: Tx, stream: StreamRecord) -> list[Epoch]:
            history = StoredHistory(tx, stream)
            numbers = range(max(history.first, last + 1), history.current + 1)
            return [history.epoch(number).printable() for number in islice(numbers, most)]

        return await self._ask(query)

    async def scales(
        self,
        from_ms: int | None = None,
        to_ms: int | None = None,
        *,
        after: int | None = None,
        limit: int = PAGE_ENTRIES,
    ) -> list[PastScale]:
        """Return the scale history: the epoch that was active at a time, and each one until a later time.

        Args:
            from_ms: wall time, in ms since 1970. None (default): from the oldest epoch kept on.
            to_ms: wall time, in ms since 1970. None (default): until now.
            after: number of the last epoch of the previous page. None (default): the first page.
            limit: how many to return at most. Default: 1000.

        Raises:
            InvalidArgument: an argument is not an int, or the times are in the wrong order.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        since, until = _times(from_ms, to_ms)
        last, most = -1 if after is None else check_int("after", after, least=0), _limit(limit)

        def query(tx: Tx, stream: StreamRecord) -> list[PastScale]:
            history = StoredHistory(tx, stream)
            first = history.first if since is None else history.number_at(since)
            newest = history.current if until is None else history.number_at(until)
            numbers = range(max(first, last + 1), newest + 1)
            return [describe_scale(history, number) for number in islice(numbers, most)]

        return await self._ask(query)

    async def plot(self, from_ms: int | None = None, to_ms: int | None = None) -> StreamPicture:
        """Return the picture of the stream: its segments over time and keys, their rates, and where groups are.

        A notebook shows it. `svg()` returns it as SVG, with the numbers of what the mouse is over.

        Args:
            from_ms: wall time, in ms since 1970. None (default): from the oldest epoch kept on.
            to_ms: wall time, in ms since 1970. None (default): until now.

        Raises:
            InvalidArgument: an argument is not an int, or the times are in the wrong order.
            StreamReplaced: the handle belongs to a deleted stream of this name.

        Cost:
            One read: the epochs of that time, some look-ups for each segment of the stream, and one for each segment
            that a group is in.
        """
        from eventproc.streams.picture_query import picture_of

        since, until = _times(from_ms, to_ms)
        return await self._ask(lambda tx, stream: picture_of(tx, stream, since, until))

    async def segments_between(
        self,
        from_cut: StreamCut | None = None,
        to_cut: StreamCut | None = None,
        *,
        after: SegmentName | None = None,
        limit: int = PAGE_ENTRIES,
    ) -> list[SegmentDescription]:
        """Return the segments in either of two cuts or between them, by id: the older ones first.

        Args:
            from_cut: the earlier cut. None (default): the beginning of the oldest epoch kept.
            to_cut: the later cut. None (default): the end of the current epoch.
            after: the last segment of the previous page, by id or text. None (default): the first page.
            limit: how many to return at most. Default: 1000.

        Raises:
            InvalidArgument: `to_cut` is not equal to or after `from_cut`, or an argument has the wrong type.
            InvalidCut: a cut is not one of the stream, or its history was dropped.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.

        Cost:
            Reads the epochs in which the segments of the page were created.
        """
        start = None if from_cut is None else as_cut(from_cut, "earlier cut")
        end = None if to_cut is None else as_cut(to_cut, "later cut")
        last, most = _after_segment(after), _limit(limit)

        def query(tx: Tx, stream: StreamRecord) -> list[SegmentDescription]:
            history = StoredHistory(tx, stream)
            for cut in (start, end):
                if cut is not None:
                    _verify(cut, stream, history)
            found = segments_between(history, start, end, after=last, limit=most)
            return [describe_segment(tx, stream, each) for each in found]

        return await self._ask(query)

    async def size_before(self, cut: StreamCut) -> StreamSize:
        """Return what was written before a cut since the stream was created, truncated events included.

        Args:
            cut: a cut of this stream, at or after the head.

        Raises:
            InvalidCut: the cut is not one of the stream.
            InvalidArgument: `cut` is not a cut.
            StreamReplaced: the handle or the cut belongs to a deleted stream of this name.
            Truncated: the cut lies before the head.
        """
        chosen = as_cut(cut, "cut")

        def query(tx: Tx, stream: StreamRecord) -> StreamSize:
            _verify_readable(tx, stream, chosen)
            return size_before(tx, stream, chosen)

        return await self._ask(query)

    async def size_between(
        self, from_cut: StreamCut | None = None, to_cut: StreamCut | None = None
    ) -> StreamSize:
        """Return what lies between two cuts, in bytes and in events.

        Args:
            from_cut: the earlier cut, at or after the head. None (default): the head.
            to_cut: the later cut. None (default): the tail.

        Raises:
            InvalidCut: a cut is not one of the stream.
            InvalidArgument: `to_cut` is not equal to or after `from_cut`, or an argument is not a cut.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.
            Truncated: a cut lies before the head.
        """
        start = None if from_cut is None else as_cut(from_cut, "earlier cut")
        end = None if to_cut is None else as_cut(to_cut, "later cut")

        def query(tx: Tx, stream: StreamRecord) -> StreamSize:
            return _measure(tx, stream, start or "head", end or "tail").between

        return await self._ask(query)

    async def measure(
        self, start: Moment | StreamCut = "head", end: Moment | StreamCut = "tail"
    ) -> MeasuredPart:
        """Return two positions, and the sizes before the first one and between them, all of one moment.

        Args:
            start: the earlier position: a cut at or after the head, "head" (default), "tail", or a time in ms, as for
                `cut_at`.
            end: the later position, likewise. Default: "tail".

        Raises:
            InvalidCut: a cut is not one of the stream.
            InvalidArgument: `end` is not equal to or after `start`, or an argument is no position.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.
            Truncated: a cut lies before the head.
        """
        first, last = as_position("start", start), as_position("end", end)
        return await self._ask(lambda tx, stream: _measure(tx, stream, first, last))

    async def compare_cuts(self, one: StreamCut, other: StreamCut) -> CutOrder:
        """Return how one cut relates to another: before it, equal to or after it, or overlapping.

        Args:
            one: a cut of this stream.
            other: a cut of this stream.

        Raises:
            InvalidCut: a cut is not one of the stream, or its history was dropped.
            InvalidArgument: an argument is not a cut.
            StreamReplaced: the handle or a cut belongs to a deleted stream of this name.
        """
        left, right = as_cut(one, "first cut"), as_cut(other, "second cut")

        def query(tx: Tx, stream: StreamRecord) -> CutOrder:
            history = StoredHistory(tx, stream)
            _verify(left, stream, history)
            _verify(right, stream, history)
            return compare_cuts(left, right, history)

        return await self._ask(query)

    async def truncation(self) -> TruncationDescription | None:
        """Return where, when and how far the stream was truncated last; None if it never was.

        Raises:
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """

        def query(tx: Tx, stream: StreamRecord) -> TruncationDescription | None:
            if stream.head is None or stream.truncated_ms is None:
                return None
            head = head_cut(tx, stream)
            size = size_before(tx, stream, head)
            return TruncationDescription(
                head=head,
                truncated_ms=stream.truncated_ms,
                bytes_before=size.bytes,
                events_before=size.events,
                first_epoch=stream.first_epoch,
            )

        return await self._ask(query)


def _times(from_ms: int | None, to_ms: int | None) -> tuple[int | None, int | None]:
    since = None if from_ms is None else check_int("from_ms", from_ms, unit="ms")
    until = None if to_ms is None else check_int("to_ms", to_ms, unit="ms")
    if since is not None and until is not None and until < since:
        raise InvalidArgument(what="to_ms", value=str(until), reason=f"it is before from_ms, {since}")
    return since, until


def as_position(what: str, value: Moment | StreamCut) -> Moment | StreamCut:
    """Return a position in a stream as its caller names it. Raises InvalidArgument."""
    if isinstance(value, StreamCut) or value in ("head", "tail"):
        return value
    if isinstance(cast("object", value), int):
        return check_int(what, value, unit="ms")
    raise invalid_argument(what, value, "it must be 'head', 'tail', a stream cut, or an int of ms")


def cut_at_position(tx: Tx, stream: StreamRecord, position: Moment | StreamCut) -> StreamCut:
    """Return the cut at a position; a cut is not verified."""
    if isinstance(position, StreamCut):
        return position
    if isinstance(position, int):
        return time_cut(tx, stream, position)
    return head_cut(tx, stream) if position == "head" else tail_cut(tx, stream)


def _measure(
    tx: Tx, stream: StreamRecord, start: Moment | StreamCut, end: Moment | StreamCut
) -> MeasuredPart:
    for each in (start, end):
        if isinstance(each, StreamCut):
            _verify_readable(tx, stream, each)
    low, high = (cut_at_position(tx, stream, each) for each in (start, end))
    if compare_cuts(high, low, StoredHistory(tx, stream)) is not CutOrder.EQUAL_OR_AFTER:
        raise InvalidArgument(what="later cut", value=str(high), reason=f"it is before {low}")
    before, after = size_before(tx, stream, low), size_before(tx, stream, high)
    between = StreamSize(after.bytes - before.bytes, after.events - before.events)
    return MeasuredPart(start=low, end=high, before=before, between=between, truncated_ms=stream.truncated_ms)


def _limit(value: object) -> int:
    return check_int("limit", value, least=1)


def _after_segment(value: SegmentName | None) -> SegmentId | None:
    return None if value is None else as_segment(value)


def _verify_stream(cut: StreamCut, stream: StreamRecord) -> None:
    """Raise StreamReplaced for a cut of another incarnation, InvalidCut for one of another stream."""
    if cut.stream != stream.name:
        raise InvalidCut(stream=stream.name, cut=str(cut), reason=f"it is a cut of {cut.stream}")
    if cut.stream_id != stream.stream_id:
        raise StreamReplaced(stream=cut.stream, stream_id=cut.stream_id, current_id=stream.stream_id)


def _verify(cut: StreamCut, stream: StreamRecord, history: StoredHistory) -> None:
    _verify_stream(cut, stream)
    verify_cut(cut, history)


def _verify_readable(tx: Tx, stream: StreamRecord, cut: StreamCut) -> None:
    _verify_stream(cut, stream)
    frontier_at(tx, stream, cut)
