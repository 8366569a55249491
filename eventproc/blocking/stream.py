"""The handle of a stream, without `await`: the methods of `Stream`, one hand-over each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar, overload

from eventproc.blocking.loop import Loop
from eventproc.blocking.reader import BlockingReader
from eventproc.blocking.transaction import BlockingTransaction
from eventproc.blocking.writer import BlockingWriter
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy
from eventproc.streams import SegmentDescription, Stream, StreamDescription, TransactionDescription
from eventproc.streams.codec import codec_for
from eventproc.streams.offload import OffloadResult
from eventproc.streams.perform import WAIT_MS
from eventproc.streams.stream import RangeName, SegmentName, Start
from eventproc.streams.transaction import LEASE_MS

P = TypeVar("P")


class BlockingStream:
    """The handle of a stream, of one incarnation; made by `create_stream` and `stream`. See `Stream`."""

    def __init__(self, loop: Loop, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream
        self.name = stream.name
        self.stream_id = stream.stream_id

    def __repr__(self) -> str:
        return f"<BlockingStream {self.name}#{self.stream_id}>"

    @overload
    def writer(self, *, name: str | None = None) -> BlockingWriter[bytes]: ...
    @overload
    def writer(self, kind: type[P], *, name: str | None = None) -> BlockingWriter[P]: ...
    def writer(
        self, kind: type[P] | None = None, *, name: str | None = None
    ) -> BlockingWriter[P] | BlockingWriter[bytes]:
        """Return a writer, to be used in `with`. See `Stream.writer`."""
        writer = self._stream.writer(name=name)
        if kind is None:
            return BlockingWriter(self._loop, writer, codec_for(bytes), self.name)
        return BlockingWriter(self._loop, writer, codec_for(kind), self.name)

    @overload
    def reader(
        self, start: Start = "head", *, segments: Sequence[SegmentName] | None = None
    ) -> BlockingReader[bytes]: ...
    @overload
    def reader(
        self, start: Start = "head", *, kind: type[P], segments: Sequence[SegmentName] | None = None
    ) -> BlockingReader[P]: ...
    def reader(
        self,
        start: Start = "head",
        *,
        kind: type[P] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> BlockingReader[P] | BlockingReader[bytes]:
        """Return a reader of the whole stream, or of chosen segments, to be used in `with`. See `Stream.reader`."""
        if kind is None:
            return BlockingReader[bytes](self._loop, self._stream.reader(start, segments=segments))
        return BlockingReader[P](self._loop, self._stream.reader(start, kind=kind, segments=segments))

    @overload
    def transaction(self, *, lease_ms: int | None = LEASE_MS) -> BlockingTransaction[bytes]: ...
    @overload
    def transaction(self, kind: type[P], *, lease_ms: int | None = LEASE_MS) -> BlockingTransaction[P]: ...
    def transaction(
        self, kind: type[P] | None = None, *, lease_ms: int | None = LEASE_MS
    ) -> BlockingTransaction[P] | BlockingTransaction[bytes]:
        """Return a new transaction, to be used in `with`. See `Stream.transaction`."""
        txn = self._stream.transaction(lease_ms=lease_ms)
        if kind is None:
            return BlockingTransaction(self._loop, txn, codec_for(bytes))
        return BlockingTransaction(self._loop, txn, codec_for(kind))

    @overload
    def begin(self, *, lease_ms: int | None = LEASE_MS) -> BlockingTransaction[bytes]: ...
    @overload
    def begin(self, kind: type[P], *, lease_ms: int | None = LEASE_MS) -> BlockingTransaction[P]: ...
    def begin(
        self, kind: type[P] | None = None, *, lease_ms: int | None = LEASE_MS
    ) -> BlockingTransaction[P] | BlockingTransaction[bytes]:
        """Begin a transaction without a block. See `Stream.begin`."""
        if kind is None:
            return self.transaction(lease_ms=lease_ms).begin()
        return self.transaction(kind, lease_ms=lease_ms).begin()

    @overload
    def transaction_of(self, txn_id: str) -> BlockingTransaction[bytes]: ...
    @overload
    def transaction_of(self, txn_id: str, kind: type[P]) -> BlockingTransaction[P]: ...
    def transaction_of(
        self, txn_id: str, kind: type[P] | None = None
    ) -> BlockingTransaction[P] | BlockingTransaction[bytes]:
        """Return the transaction of that id, whoever began it. See `Stream.transaction_of`."""
        txn = self._stream.transaction_of(txn_id)
        if kind is None:
            return BlockingTransaction(self._loop, txn, codec_for(bytes))
        return BlockingTransaction(self._loop, txn, codec_for(kind))

    def transactions(self, *, finished: bool = False) -> list[TransactionDescription]:
        """Return what is under way, or ended within a day. See `Stream.transactions`."""
        return self._loop.call(partial(self._stream.transactions, finished=finished))

    def describe(self) -> StreamDescription:
        """Return the stream's state, segments, ends and sizes."""
        return self._loop.call(self._stream.describe)

    def epochs(self) -> list[Epoch]:
        """Return the epochs that are kept, the oldest first."""
        return self._loop.call(self._stream.epochs)

    def segments(self) -> list[SegmentDescription]:
        """Return the active segments, in the order of their key ranges."""
        return self._loop.call(self._stream.segments)

    def head(self) -> StreamCut:
        """Return the earliest readable cut."""
        return self._loop.call(self._stream.head)

    def tail(self) -> StreamCut:
        """Return the cut after the last event, of one moment."""
        return self._loop.call(self._stream.tail)

    def cut_at(self, time_ms: int) -> StreamCut:
        """Return the cut before the events appended at or after `time_ms`; the head when that is later."""
        return self._loop.call(self._stream.cut_at, time_ms)

    def update(self, *, scaling: ScalingPolicy, timeout_ms: int = WAIT_MS) -> None:
        """Replace the configuration. See `Stream.update`."""
        self._loop.call(partial(self._stream.update, scaling=scaling, timeout_ms=timeout_ms))

    def scale(
        self, *, seal: Sequence[SegmentName], ranges: Sequence[RangeName], timeout_ms: int = WAIT_MS
    ) -> tuple[SegmentId, ...]:
        """Seal active segments and open new ones over their key space. See `Stream.scale`."""
        return self._loop.call(partial(self._stream.scale, seal=seal, ranges=ranges, timeout_ms=timeout_ms))

    def split(
        self, segment: SegmentName, into: int = 2, *, timeout_ms: int = WAIT_MS
    ) -> tuple[SegmentId, ...]:
        """Split an active segment into equal parts; return their ids. See `Stream.split`."""
        return self._loop.call(partial(self._stream.split, segment, into, timeout_ms=timeout_ms))

    def merge(self, *segments: SegmentName, timeout_ms: int = WAIT_MS) -> SegmentId:
        """Merge neighbouring active segments; return the new id. See `Stream.merge`."""
        return self._loop.call(partial(self._stream.merge, *segments, timeout_ms=timeout_ms))

    def truncate(self, cut: StreamCut, *, timeout_ms: int = WAIT_MS) -> None:
        """Move the head to `cut`; what lies before it is gone. See `Stream.truncate`."""
        self._loop.call(partial(self._stream.truncate, cut, timeout_ms=timeout_ms))

    def seal(self, *, timeout_ms: int = WAIT_MS) -> None:
        """End the stream: no more appends, for ever. See `Stream.seal`."""
        self._loop.call(partial(self._stream.seal, timeout_ms=timeout_ms))

    def delete(self, *, timeout_ms: int = WAIT_MS) -> None:
        """Delete the sealed stream. See `Stream.delete`."""
        self._loop.call(partial(self._stream.delete, timeout_ms=timeout_ms))

    def offload(self, *, older_than_ms: int = 0) -> OffloadResult:
        """Move old events out of the database, into files; return how many. See `Stream.offload`."""
        return self._loop.call(partial(self._stream.offload, older_than_ms=older_than_ms))
