"""The handle of a stream: everything that can be done with one, by name and incarnation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias, TypeVar, overload

from eventproc.store.catalog import StoredHistory, StreamRecord, current_epoch, get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int, check_str, invalid_argument
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.epochs import Epoch, merge_ranges, split_ranges
from eventproc.store.model.errors import EventprocError, InvalidCut
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId, as_segment, as_segments
from eventproc.store.model.policies import ScalingPolicy, StreamConfig, as_scaling
from eventproc.store.model.ranges import KeyRange, as_key_ranges
from eventproc.store.model.transactions import check_lease
from eventproc.store.transactions import list_finished, list_open
from eventproc.streams.codec import codec_for
from eventproc.streams.description import SegmentDescription, StreamDescription, describe_stream
from eventproc.streams.offload import OffloadResult, offload
from eventproc.streams.perform import WAIT_MS, perform
from eventproc.streams.positions import (
    frontier_at,
    frontier_of_segments,
    head_cut,
    tail_cut,
    time_cut,
)
from eventproc.streams.reader import StreamReader
from eventproc.streams.staging import UNSEEN
from eventproc.streams.transaction import LEASE_MS, Transaction
from eventproc.streams.txn_description import TransactionDescription, describe_txn
from eventproc.streams.writer import EventWriter
from eventproc.workflows.requests import DeleteStream, ScaleStream, SealStream, TruncateStream, UpdateStream

P = TypeVar("P")

Start: TypeAlias = StreamCut | Literal["head", "tail"] | int
"""Where a reader begins: an end of the stream, a cut, or a time in wall ms."""

SegmentName: TypeAlias = int | str
"""How callers name a segment: by its id, or by the text of one, such as "2.1"."""

RangeName: TypeAlias = KeyRange | tuple[float, float] | str
"""How callers name a key range: by [low, high) as a pair, or as text such as "0.25-0.5"."""


class Stream:
    """A stream, of one incarnation: after a delete the handle is refused, also when the name is used again.

    Made by `create_stream` and `stream`. Every method that changes the stream submits a request, waits for
    its outcome, and raises what it was refused for; `timeout_ms` bounds the wait only (StillPending, or
    LockHeld when a stopped process kept it from being recorded).
    """

    def __init__(self, db: Database, name: str, stream_id: int) -> None:
        self._db = db
        self.name = name
        self.stream_id = stream_id

    def __repr__(self) -> str:
        return f"<Stream {self.name}#{self.stream_id}>"

    @overload
    def writer(self, *, name: str | None = None) -> EventWriter[bytes]: ...
    @overload
    def writer(self, kind: type[P], *, name: str | None = None) -> EventWriter[P]: ...
    def writer(
        self, kind: type[P] | None = None, *, name: str | None = None
    ) -> EventWriter[P] | EventWriter[bytes]:
        """Return a writer, to be used in `async with`.

        kind: type of the payloads: bytes unless given, str, or what cattrs can turn into JSON. Of a payload the class
        is checked, not whether fields and elements have the types declared: a reader of that kind finds out. name:
        identity by which a repeated send is recognised across restarts, until it has sent nothing for 7 days; without
        one nothing is remembered.
        """
        if name is not None:
            check_str("name of the writer", name)
        if kind is None:
            return EventWriter(self._db, self.name, self.stream_id, codec_for(bytes), name=name)
        return EventWriter(self._db, self.name, self.stream_id, codec_for(kind), name=name)

    @overload
    def reader(
        self, start: Start = "head", *, segments: Sequence[SegmentName] | None = None
    ) -> StreamReader[bytes]: ...
    @overload
    def reader(
        self, start: Start = "head", *, kind: type[P], segments: Sequence[SegmentName] | None = None
    ) -> StreamReader[P]: ...
    def reader(
        self,
        start: Start = "head",
        *,
        kind: type[P] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> StreamReader[P] | StreamReader[bytes]:
        """Return a reader of the whole stream, or of chosen segments, to be used in `async with`.

        start: "head", "tail", a cut, or a time in ms (see `cut_at`). kind: type of the payloads, as for
        `writer`. segments: their successors are then not followed, and start is "head" or "tail".
        Raises InvalidArgument; entering raises NotFound, StreamReplaced, InvalidCut, Truncated.
        """
        chosen = None if segments is None else as_segments(segments)
        where = partial(self._frontier, _as_start(start, ends_only=chosen is not None), chosen)
        if kind is None:
            return StreamReader[bytes](self._db, self.name, self.stream_id, where, chosen=chosen is not None)
        decode = codec_for(kind).decode
        return StreamReader[P](
            self._db, self.name, self.stream_id, where, chosen=chosen is not None, decode=decode
        )

    @overload
    def transaction(self, *, lease_ms: int | None = LEASE_MS) -> Transaction[bytes]: ...
    @overload
    def transaction(self, kind: type[P], *, lease_ms: int | None = LEASE_MS) -> Transaction[P]: ...
    def transaction(
        self, kind: type[P] | None = None, *, lease_ms: int | None = LEASE_MS
    ) -> Transaction[P] | Transaction[bytes]:
        """Return a new transaction, to be used in `async with`: leaving commits, an exception aborts.

        kind: type of the payloads, as for `writer`. lease_ms: how long it outlives its last ping, LEASE_MS_MIN to
        LEASE_MS_MAX; the block pings by itself. None: as long as this process lives. Raises InvalidArgument; entering
        raises NotFound, StreamReplaced, StreamSealed.
        """
        check_lease(lease_ms)
        if kind is None:
            return Transaction(self._db, self.name, self.stream_id, codec_for(bytes), lease_ms=lease_ms)
        return Transaction(self._db, self.name, self.stream_id, codec_for(kind), lease_ms=lease_ms)

    @overload
    async def begin(self, *, lease_ms: int | None = LEASE_MS) -> Transaction[bytes]: ...
    @overload
    async def begin(self, kind: type[P], *, lease_ms: int | None = LEASE_MS) -> Transaction[P]: ...
    async def begin(
        self, kind: type[P] | None = None, *, lease_ms: int | None = LEASE_MS
    ) -> Transaction[P] | Transaction[bytes]:
        """Begin a transaction without a block: its owner pings within the lease, and commits or aborts.

        It is durable when this returns: another process may go on with it by its id. See `transaction`.
        """
        if kind is None:
            return await self.transaction(lease_ms=lease_ms).begin()
        return await self.transaction(kind, lease_ms=lease_ms).begin()

    @overload
    def transaction_of(self, txn_id: str) -> Transaction[bytes]: ...
    @overload
    def transaction_of(self, txn_id: str, kind: type[P]) -> Transaction[P]: ...
    def transaction_of(self, txn_id: str, kind: type[P] | None = None) -> Transaction[P] | Transaction[bytes]:
        """Return the transaction of that id, which this or another process began; its own methods raise NotFound.

        What its beginner did not stage is not in it. In a block this process becomes its owner.
        """
        check_str("transaction id", txn_id)
        if kind is None:
            return Transaction(
                self._db, self.name, self.stream_id, codec_for(bytes), lease_ms=None, txn_id=txn_id
            )
        return Transaction(self._db, self.name, self.stream_id, codec_for(kind), lease_ms=None, txn_id=txn_id)

    async def transactions(self, *, finished: bool = False) -> list[TransactionDescription]:
        """Return what is under way: open, being committed, being aborted; the oldest first, at most 500.

        finished: those that ended within a day instead, the newest first.
        """
        for each in self._db.shared[UNSEEN].of(self.stream_id):
            with suppress(EventprocError):  # its own calls tell it
                await each.begin()

        def read(tx: Tx) -> list[TransactionDescription]:
            self._record(tx)
            found = (list_finished if finished else list_open)(tx, self.stream_id)
            return [describe_txn(tx, txn, self._db.path) for txn in found]

        return await self._db.read(read)

    async def describe(self) -> StreamDescription:
        """Return the stream's state, segments, ends and sizes."""
        return await self._db.read(lambda tx: describe_stream(tx, self._record(tx)))

    async def epochs(self) -> list[Epoch]:
        """Return the epochs that are kept, the oldest first."""

        def read(tx: Tx) -> list[Epoch]:
            history = StoredHistory(tx, self._record(tx))
            return [history.epoch(number) for number in range(history.first, history.current + 1)]

        return await self._db.read(read)

    async def segments(self) -> list[SegmentDescription]:
        """Return the active segments, in the order of their key ranges."""
        return list((await self.describe()).segments)

    async def head(self) -> StreamCut:
        """Return the earliest readable cut."""
        return await self._db.read(lambda tx: head_cut(tx, self._record(tx)))

    async def tail(self) -> StreamCut:
        """Return the cut after the last event, of one moment."""
        return await self._db.read(lambda tx: tail_cut(tx, self._record(tx)))

    async def cut_at(self, time_ms: int) -> StreamCut:
        """Return the cut before the events appended at or after `time_ms`; the head when that is later."""
        at_ms = check_int("time", time_ms, unit="ms")
        return await self._db.read(lambda tx: time_cut(tx, self._record(tx), at_ms))

    async def update(self, *, scaling: ScalingPolicy, timeout_ms: int = WAIT_MS) -> None:
        """Replace the configuration; with a fixed policy the number of segments follows at once.

        Raises StreamSealed, InProgress.
        """
        await perform(
            self._db,
            UpdateStream(self.name, self.stream_id, StreamConfig(as_scaling(scaling))),
            timeout_ms=timeout_ms,
        )

    async def scale(
        self, *, seal: Sequence[SegmentName], ranges: Sequence[RangeName], timeout_ms: int = WAIT_MS
    ) -> tuple[SegmentId, ...]:
        """Seal active segments and open new ones over exactly their key space; return the new ids.

        seal: segments. ranges: of the new ones. Raises ScaleRefused, InvalidArgument, StreamSealed,
        InProgress.
        """
        return await self._scale(as_segments(seal), as_key_ranges(ranges), timeout_ms)

    async def split(
        self, segment: SegmentName, into: int = 2, *, timeout_ms: int = WAIT_MS
    ) -> tuple[SegmentId, ...]:
        """Split an active segment into equal parts; return their ids. Raises NotFound, and as `scale`."""
        chosen, parts = as_segment(segment), check_int("number of parts", into)
        epoch = await self._current_epoch()
        seal, ranges = split_ranges(epoch, chosen, parts, stream=self.name)
        return await self._scale(seal, ranges, timeout_ms)

    async def merge(self, *segments: SegmentName, timeout_ms: int = WAIT_MS) -> SegmentId:
        """Merge neighbouring active segments; return the new id. Raises NotFound, and as `scale`."""
        chosen = as_segments(segments)
        epoch = await self._current_epoch()
        seal, ranges = merge_ranges(epoch, chosen, stream=self.name)
        (merged,) = await self._scale(seal, ranges, timeout_ms)
        return merged

    async def truncate(self, cut: StreamCut, *, timeout_ms: int = WAIT_MS) -> None:
        """Move the head to `cut`; what lies before it is gone.

        Raises InvalidCut (not of this stream, behind the head, beyond the tail, inside an event),
        StreamReplaced, StreamSealed, InProgress.
        """
        as_cut(cut, "new head")
        if cut.stream != self.name:
            raise InvalidCut(stream=self.name, cut=str(cut), reason=f"it is a cut of {cut.stream}")
        request = TruncateStream(self.name, cut.stream_id, dict(cut.offsets))
        await perform(self._db, request, timeout_ms=timeout_ms)

    async def seal(self, *, timeout_ms: int = WAIT_MS) -> None:
        """End the stream: no more appends, for ever. Sealing a sealed stream is fine."""
        await perform(self._db, SealStream(self.name, self.stream_id), timeout_ms=timeout_ms)

    async def delete(self, *, timeout_ms: int = WAIT_MS) -> None:
        """Delete the sealed stream. Raises StreamNotSealed."""
        await perform(self._db, DeleteStream(self.name, self.stream_id), timeout_ms=timeout_ms)

    async def offload(self, *, older_than_ms: int = 0) -> OffloadResult:
        """Move events that were appended longer ago than that out of the database, into files; return how many.

        They are read as before. Runs of less than 256 KiB stay where they are. Needs pyarrow, of the extra `spark`.
        Raises StreamReplaced, NotSupported (without it, or in memory), Truncated (the stream was deleted meanwhile),
        CorruptRecord, DiskFull, OSError. Cost: reading and writing them once, with short transactions in between.
        """
        check_int("age", older_than_ms, least=0, unit="milliseconds")
        return await offload(self._db, self.name, self.stream_id, older_than_ms)

    async def _current_epoch(self) -> Epoch:
        return await self._db.read(lambda tx: current_epoch(tx, self._record(tx)))

    async def _scale(
        self, seal: tuple[SegmentId, ...], ranges: tuple[KeyRange, ...], timeout_ms: int
    ) -> tuple[SegmentId, ...]:
        request = await perform(
            self._db, ScaleStream(self.name, self.stream_id, seal, ranges), timeout_ms=timeout_ms
        )
        if isinstance(request.result, Epoch):
            return tuple(segment.id for segment in request.result.opened)

        def opened(tx: Tx) -> tuple[SegmentId, ...]:
            history = StoredHistory(tx, self._record(tx))
            for number in range(history.current, history.first - 1, -1):
                if (epoch := history.epoch(number)).request_id == request.id:
                    return tuple(segment.id for segment in epoch.opened)
            return ()

        return await self._db.read(opened)

    def _frontier(self, start: Start, segments: Sequence[SegmentId] | None, tx: Tx) -> Frontier:
        stream = self._record(tx)
        if segments is not None:
            return frontier_of_segments(tx, stream, segments, from_tail=start == "tail")
        if start == "head":
            start = head_cut(tx, stream)
        elif start == "tail":
            start = tail_cut(tx, stream)
        elif isinstance(start, int):
            start = time_cut(tx, stream, start)
        return frontier_at(tx, stream, start)

    def _record(self, tx: Tx) -> StreamRecord:
        return get_stream(tx, self.name, stream_id=self.stream_id).value


def _as_start(start: Start, *, ends_only: bool) -> Start:
    """Return where to begin, if that is a place; `ends_only`: if it is an end. Raises InvalidArgument."""
    if isinstance(start, StreamCut) and not ends_only:
        return start
    if start in ("head", "tail"):
        return start
    if ends_only:
        raise invalid_argument("start", start, "chosen segments start at 'head' or 'tail'")
    if isinstance(start, int):
        return check_int("start", start, unit="ms")
    raise invalid_argument("start", start, "it must be 'head', 'tail', a stream cut, or an int of ms")
