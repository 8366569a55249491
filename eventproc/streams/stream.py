"""The handle of a stream: everything that can be done with one, by name and incarnation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, overload

import attrs
from typing_extensions import TypeVar, Unpack

from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int, check_str, invalid_argument
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId, as_segments, printable
from eventproc.store.model.limits import TXNS_LISTED_MAX
from eventproc.store.model.policies import (
    OffloadPolicy,
    RetentionPolicy,
    ScalingPolicy,
    StreamConfig,
    as_offload,
    as_retention,
    as_scaling,
    as_tags,
    check_id_window,
)
from eventproc.store.model.ranges import KeyRange, as_key_ranges
from eventproc.store.model.transactions import check_lease
from eventproc.store.transactions import list_finished, list_open
from eventproc.streams.codec import Codec, PayloadCodec, chosen_codec, decode_of
from eventproc.streams.description import (
    TransactionDescription,
    describe_txn,
)
from eventproc.streams.operations import MergeNeighbours, Scaling, SplitSegment, opened_segments
from eventproc.streams.queries import SegmentName as SegmentName, StreamQueries, as_position, cut_at_position
from eventproc.streams.reader import StreamReader
from eventproc.streams.request_calls import WAIT_MS, ChangeOptions, run_request
from eventproc.streams.stream_cuts import frontier_at, frontier_of_segments
from eventproc.streams.transaction import LEASE_MS, Transaction
from eventproc.streams.txn_attendant import TRANSACTION_ATTENDANT
from eventproc.streams.writer import EventWriter
from eventproc.workflows.requests import DeleteStream, ScaleStream, SealStream, TruncateStream, UpdateStream

if TYPE_CHECKING:
    from eventproc.streams.offload import OffloadResult

P = TypeVar("P")
T = TypeVar("T", default=bytes)

Start: TypeAlias = StreamCut | Literal["head", "tail"] | int
"""Where a reader begins: an end of the stream, a cut, or a time in wall ms."""

RangeName: TypeAlias = KeyRange | tuple[float, float] | str
"""How callers name a key range: by [low, high) as a pair, or as text such as "0.25-0.5"."""


class Stream(StreamQueries, Generic[T]):
    """A stream: write to it, read it, scale it. Made by `ep.create_stream` and `ep.stream`.

    The handle belongs to one incarnation: after a delete its methods raise StreamReplaced, also when a
    new stream has the name. Methods that change the stream submit a request and wait for its outcome; `timeout_ms`
    bounds the wait only. T is the type of its payloads, bytes by default: its writers and readers take it from here.

    name: "scope/stream".
    stream_id: the incarnation; never reused.
    codec: encodes and decodes the payloads.
    """

    def __init__(self, db: Database, name: str, stream_id: int, codec: PayloadCodec[T]) -> None:
        super().__init__(db, name, stream_id)
        self.codec = codec

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    @overload
    def writer(self, *, name: str | None = None) -> EventWriter[T]: ...
    @overload
    def writer(
        self, *, payload: type[P] | None = None, codec: Codec[P] | None = None, name: str | None = None
    ) -> EventWriter[P]: ...
    def writer(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        name: str | None = None,
    ) -> EventWriter[Any]:
        """Return a writer, for `async with`, or for `await` and `close`.

        Args:
            payload: type of the payloads, such as `str` or a dataclass. None (default): that of this handle. The
                writer checks the class of a payload, not the types of its fields: a reader of the type does.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            name: identity by which a repeated send is recognised across restarts, until it has sent nothing for
                7 days. None (default): nothing is remembered.

        Raises:
            InvalidArgument: no codec serves the type, or the name is not a str.
        """
        return EventWriter(
            self._db, self.name, self.stream_id, chosen_codec(self.codec, payload, codec), name=name
        )

    @overload
    def reader(
        self, start: Start = "head", *, segments: Sequence[SegmentName] | None = None
    ) -> StreamReader[T]: ...
    @overload
    def reader(
        self,
        start: Start = "head",
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> StreamReader[P]: ...
    def reader(
        self,
        start: Start = "head",
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> StreamReader[Any]:
        """Return a reader of the stream, or of chosen segments, for `async with`, or for `await` and `close`.

        Args:
            start: "head" (default), "tail", a cut, or a time in ms (see `cut_at`).
            payload: type of the payloads, as for `writer`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            segments: read these segments only, without their successors, from "head" or "tail". None (default):
                the entire stream, across splits and merges.

        Raises:
            InvalidArgument: `start` or a segment is not valid, or no codec serves the type.
            NotFound: entering; the stream or a segment does not exist.
            StreamReplaced: entering; the handle or the cut belongs to a deleted stream of this name.
            InvalidCut: entering; the cut is not one of this stream.
            Truncated: entering; the cut lies before the head.
        """
        chosen = None if segments is None else as_segments(segments)
        where = partial(self._frontier, _as_start(start, ends_only=chosen is not None), chosen)
        decode = decode_of(chosen_codec(self.codec, payload, codec))
        return StreamReader[Any](
            self._db, self.name, self.stream_id, where, chosen=chosen is not None, decode=decode
        )

    @overload
    def transaction(self, *, lease_ms: int | None = LEASE_MS) -> Transaction[T]: ...
    @overload
    def transaction(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> Transaction[P]: ...
    def transaction(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> Transaction[Any]:
        """Return a new transaction, to be used in `async with`: leaving commits, an exception aborts.

        Args:
            payload: type of the payloads, as for `writer`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            lease_ms: how long the transaction outlives its last ping, in ms, 1000 to 600,000; the block pings by
                itself. Default: 30 s. None: as long as this process lives.

        Raises:
            InvalidArgument: the lease is out of range, or no codec serves the type.
            StreamReplaced: entering, or at the first batch; the handle belongs to a deleted stream of this name.
            StreamSealed: entering, or at the first batch; the stream is sealed.
        """
        check_lease(lease_ms)
        return Transaction(
            self._db, self.name, self.stream_id, chosen_codec(self.codec, payload, codec), lease_ms=lease_ms
        )

    @overload
    async def begin(self, *, lease_ms: int | None = LEASE_MS) -> Transaction[T]: ...
    @overload
    async def begin(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> Transaction[P]: ...
    async def begin(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> Transaction[Any]:
        """Begin a transaction without a block: the caller pings within the lease, and commits or aborts.

        The transaction is durable when this returns: another process may continue it by its id.

        Args:
            payload: type of the payloads, as for `writer`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            lease_ms: as for `transaction`.

        Raises:
            InvalidArgument: the lease is out of range, or no codec serves the type.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StreamSealed: the stream is sealed.
        """
        return await self.transaction(payload=payload, codec=codec, lease_ms=lease_ms).begin()

    @overload
    def transaction_of(self, txn_id: str) -> Transaction[T]: ...
    @overload
    def transaction_of(
        self, txn_id: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> Transaction[P]: ...
    def transaction_of(
        self, txn_id: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> Transaction[Any]:
        """Return the handle of a transaction that this or another process began.

        Events that the other process has not staged are not part of it. In `async with`, this process becomes the
        transaction's owner. The methods of the handle raise TransactionNotFound for an unknown id.

        Args:
            txn_id: the transaction's id.
            payload: type of the payloads, as for `writer`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            InvalidArgument: the id is not a str, or no codec serves the type.
        """
        check_str("transaction id", txn_id)
        return Transaction(
            self._db,
            self.name,
            self.stream_id,
            chosen_codec(self.codec, payload, codec),
            lease_ms=None,
            txn_id=txn_id,
        )

    async def transactions(
        self, *, finished: bool = False, after: str | None = None, limit: int = TXNS_LISTED_MAX
    ) -> list[TransactionDescription]:
        """Return the transactions under way: open, committing and aborting; the oldest first.

        Args:
            finished: return those that ended instead, the newest first; those of Pravega's clients come last. They are
                kept for a day, and at most the last 100,000 commits and 10,000 aborts of a stream.
            after: id of the last transaction of the previous page. None (default): the first page.
            limit: how many to return at most. Default: 500.

        Raises:
            InvalidArgument: the limit is not a positive int, or `after` is not a str.
            StreamReplaced: the handle belongs to a deleted stream of this name.
        """
        if after is not None:
            check_str("after", after)
        check_int("limit", limit, least=1)
        await self._db.shared[TRANSACTION_ATTENDANT].begin_all(self.stream_id)

        def read(tx: Tx) -> list[TransactionDescription]:
            self._record(tx)
            if finished:
                found = list_finished(tx, self.stream_id, after=after, limit=limit)
            else:
                found = list_open(tx, self.stream_id, after=after or "", limit=limit)
            return [describe_txn(tx, txn, self._db.peers) for txn in found]

        return await self._db.read(read)

    async def update(
        self,
        *,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        offload: OffloadPolicy | None = None,
        tags: Iterable[str] | None = None,
        id_window_ms: int | None = None,
        **options: Unpack[ChangeOptions],
    ) -> None:
        """Change the stream's configuration, and scale to the number of segments that it asks for.

        Args:
            scaling: the new scaling policy. None (default): as now.
            retention: the new retention policy; `RetentionPolicy()` keeps everything. None (default): as now.
            offload: the new offload policy; `OffloadPolicy()` moves nothing. None (default): as now.
            tags: the new tags, instead of all present ones. None (default): as now.
            id_window_ms: for how long the ids of events that are appended from now on are remembered, in ms. None
                (default): as now.
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            InvalidArgument: a policy or a tag is not valid.
            NotSupported: `offload` in a system that has no place for files: in memory, or on a server without `chunks`.
            ScaleRefused: the stream is a topic, and `scaling` is not for topics.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed, and more than `offload` is to change.
            InProgress: another update is running.
            StillPending: the wait ended first; the update goes on.
        """
        changes: dict[str, Any] = {}
        if scaling is not None:
            changes["scaling"] = as_scaling(scaling)
        if retention is not None:
            changes["retention"] = as_retention(retention)
        if offload is not None:
            changes["offload"] = as_offload(offload)
        if tags is not None:
            changes["tags"] = as_tags(tags)
        if id_window_ms is not None:
            changes["id_window_ms"] = check_id_window(id_window_ms)
        if not changes:
            raise invalid_argument(
                "scaling",
                scaling,
                "a policy of scaling, retention or offload is needed, or tags, or id_window_ms",
            )
        await self._update(changes, scaling is None, **options)

    async def scale(
        self,
        *,
        seal: Sequence[SegmentName],
        ranges: Sequence[RangeName],
        **options: Unpack[ChangeOptions],
    ) -> tuple[SegmentId, ...]:
        """Seal active segments and open new ones over exactly their key space; return the new ids.

        Args:
            seal: the segments to seal, by id or text such as "2.1".
            ranges: key ranges of the new segments, as pairs or text such as "0.25-0.5".
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            ScaleRefused: a segment is not active, or too few or too many would remain.
            InvalidArgument: the ranges do not cover the sealed segments' key space exactly.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            HistoryCompacted: the call is repeated, and a truncation has dropped the epoch that it had opened.
            StillPending: the wait ended first; the scale goes on.
        """
        asked = ScaleStream(self.name, self.stream_id, as_segments(seal), as_key_ranges(ranges))
        return await self._scale(asked, **options)

    async def split(
        self,
        segment: SegmentName,
        into: int = 2,
        **options: Unpack[ChangeOptions],
    ) -> tuple[SegmentId, ...]:
        """Split an active segment into equal parts; return their ids.

        Args:
            segment: its id, or text such as "2.1".
            into: number of parts. Default: 2.
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            NotFound: the segment is not active.
            InvalidArgument: the number of parts is not valid.
            ScaleRefused: another scale sealed the segment meanwhile, or too many segments would result.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            HistoryCompacted: the call is repeated, and a truncation has dropped the epoch that it had opened.
            StillPending: the wait ended first; the split goes on.
        """
        asked = SplitSegment(self.name, self.stream_id, segment, into)
        return await self._scale(asked, **options)

    async def merge(
        self,
        *segments: SegmentName,
        **options: Unpack[ChangeOptions],
    ) -> SegmentId:
        """Merge neighbouring active segments; return the new id.

        Args:
            segments: two or more, by id or text such as "2.1".
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            NotFound: a segment is not active.
            InvalidArgument: the segments are fewer than two, or not neighbours.
            ScaleRefused: another scale sealed a segment meanwhile, or too few segments would remain.
            StreamReplaced: the stream of this handle was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another scale is running.
            HistoryCompacted: the call is repeated, and a truncation has dropped the epoch that it had opened.
            StillPending: the wait ended first; the merge goes on.
        """
        asked = MergeNeighbours(self.name, self.stream_id, segments)
        (merged,) = await self._scale(asked, **options)
        return merged

    async def truncate(
        self,
        cut: StreamCut,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> None:
        """Move the head to `cut`: the events before it are gone.

        Args:
            cut: a cut of this stream, at or after the head.
            if_version, request_id, timeout_ms: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            InvalidCut: the cut is one of another stream, before the head, beyond the tail, or inside an event.
            StreamReplaced: the stream of the cut, usually that of this handle, was deleted.
            StreamSealed: the stream is sealed.
            InProgress: another truncation is running.
            StillPending: the wait ended first; the truncation goes on.
        """
        as_cut(cut, "new head")
        if cut.stream != self.name:
            raise InvalidCut(stream=self.name, cut=str(cut), reason=f"it is a cut of {cut.stream}")
        request = TruncateStream(self.name, cut.stream_id, dict(cut.offsets))
        await run_request(
            self._db, request, if_version=if_version, request_id=request_id, timeout_ms=timeout_ms
        )

    async def seal(self, **options: Unpack[ChangeOptions]) -> None:
        """End the stream permanently: no more appends; reading goes on. Does nothing if the stream is sealed.

        Args:
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StillPending: the wait ended first; the seal goes on.
        """
        request = SealStream(self.name, self.stream_id)
        await run_request(self._db, request, **options)

    async def delete(self, **options: Unpack[ChangeOptions]) -> None:
        """Delete the sealed stream.

        Args:
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the stream has another version than `if_version`; nothing changed.
            StreamNotSealed: seal it first.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StillPending: the wait ended first; the deletion goes on.
        """
        request = DeleteStream(self.name, self.stream_id)
        await run_request(self._db, request, **options)

    async def offload(self, *, older_than_ms: int = 0) -> OffloadResult:
        """Move old events out of the database into files, and return how many. They are read as before.

        Runs of less than 256 KiB stay in the database. Needs pyarrow: `pip install 'eventproc[spark]'`.

        Args:
            older_than_ms: age of the events to move, in ms. Default: all.

        Raises:
            NotSupported: pyarrow is not installed, or the system is in memory.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            Truncated: the stream was deleted meanwhile.
            CorruptRecord: a stored event is damaged.
            DiskFull: no space for a file.
            OSError: a file cannot be written.

        Cost:
            Reads and writes the events once, with short transactions in between.
        """
        from eventproc.streams.offload import offload  # few programs need it

        check_int("age", older_than_ms, least=0, unit="milliseconds")
        until_ms = self._db.clock.wall_ms() - older_than_ms
        return await offload(self._db, self.name, self.stream_id, until_ms)

    async def _update(
        self,
        changes: Mapping[str, Any],
        keep_segments: bool,
        **options: Unpack[ChangeOptions],
    ) -> None:
        """Change fields of the configuration; the others stay as they are when the update runs."""
        request = UpdateStream(
            self.name,
            self.stream_id,
            attrs.evolve(StreamConfig(), **changes),
            keep_segments=keep_segments,
            fields=tuple(changes),
        )
        await run_request(self._db, request, **options)

    async def _scale(
        self, asked: ScaleStream | Scaling, **options: Unpack[ChangeOptions]
    ) -> tuple[SegmentId, ...]:
        done = await run_request(self._db, asked, **options)
        return tuple([printable(segment.id) for segment in await opened_segments(self._db, done)])

    def _frontier(self, start: Start, segments: Sequence[SegmentId] | None, tx: Tx) -> Frontier:
        stream = self._record(tx)
        if segments is not None:
            return frontier_of_segments(tx, stream, segments, from_tail=start == "tail")
        return frontier_at(tx, stream, cut_at_position(tx, stream, start))


def _as_start(start: Start, *, ends_only: bool) -> Start:
    """Return where to begin, if that is a place; `ends_only`: if it is an end. Raises InvalidArgument."""
    if ends_only and start not in ("head", "tail"):
        raise invalid_argument("start", start, "chosen segments start at 'head' or 'tail'")
    return as_position("start", start)
