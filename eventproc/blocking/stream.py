"""The handle of a stream without `await`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from eventproc.blocking._generated import StreamCalls
from eventproc.blocking.loop import Loop
from eventproc.blocking.reader import BlockingReader
from eventproc.blocking.transaction import BlockingTransaction
from eventproc.blocking.writer import BlockingWriter
from eventproc.streams import Codec, Stream
from eventproc.streams.stream import SegmentName, Start
from eventproc.streams.transaction import LEASE_MS

P = TypeVar("P")
T = TypeVar("T", default=bytes)


class BlockingStream(StreamCalls, Generic[T]):
    """A stream: write to it, read it, scale it. Made by `ep.create_stream` and `ep.stream`. See `Stream`."""

    def __init__(self, loop: Loop, stream: Stream[T]) -> None:
        super().__init__(loop, stream)
        self.name = stream.name
        self.stream_id = stream.stream_id
        self.codec = stream.codec

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @overload
    def writer(self, *, name: str | None = None) -> BlockingWriter[T]: ...
    @overload
    def writer(
        self, *, payload: type[P] | None = None, codec: Codec[P] | None = None, name: str | None = None
    ) -> BlockingWriter[P]: ...
    def writer(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        name: str | None = None,
    ) -> BlockingWriter[Any]:
        """Return an open writer, to be closed or used in `with`. See `Stream.writer`."""
        writer = self._twin.writer(payload=bytes, name=name)
        return BlockingWriter(self._loop, writer, self._twin._codec_for(payload, codec), self.name)._opened()

    @overload
    def reader(
        self, start: Start = "head", *, segments: Sequence[SegmentName] | None = None
    ) -> BlockingReader[T]: ...
    @overload
    def reader(
        self,
        start: Start = "head",
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> BlockingReader[P]: ...
    def reader(
        self,
        start: Start = "head",
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> BlockingReader[Any]:
        """Return an open reader of the stream, or of chosen segments, for `with` or `close`. See `Stream.reader`."""
        reader = self._twin.reader(start, payload=payload, codec=codec, segments=segments)
        return BlockingReader(self._loop, reader)._opened()

    @overload
    def transaction(self, *, lease_ms: int | None = LEASE_MS) -> BlockingTransaction[T]: ...
    @overload
    def transaction(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingTransaction[P]: ...
    def transaction(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingTransaction[Any]:
        """Return a new transaction, to be used in `with`. See `Stream.transaction`."""
        txn = self._twin.transaction(payload=bytes, lease_ms=lease_ms)
        return BlockingTransaction(self._loop, txn, self._twin._codec_for(payload, codec))

    @overload
    def begin(self, *, lease_ms: int | None = LEASE_MS) -> BlockingTransaction[T]: ...
    @overload
    def begin(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingTransaction[P]: ...
    def begin(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingTransaction[Any]:
        """Begin a transaction without a block. See `Stream.begin`."""
        return self.transaction(payload=payload, codec=codec, lease_ms=lease_ms).begin()

    @overload
    def transaction_of(self, txn_id: str) -> BlockingTransaction[T]: ...
    @overload
    def transaction_of(
        self, txn_id: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingTransaction[P]: ...
    def transaction_of(
        self, txn_id: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> BlockingTransaction[Any]:
        """Return the handle of a transaction that this or another process began. See `Stream.transaction_of`."""
        txn = self._twin.transaction_of(txn_id, payload=bytes)
        return BlockingTransaction(self._loop, txn, self._twin._codec_for(payload, codec))
