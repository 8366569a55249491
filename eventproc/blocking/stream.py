"""The handle of a stream without `await`."""

from __future__ import annotations

from typing import Any

from eventproc.blocking.transaction import BlockingTransaction
from eventproc.blocking.twins import BlockingTwin, twin_of
from eventproc.blocking.writer import BlockingWriter
from eventproc.streams import Codec, Stream
from eventproc.streams.codec import chosen_codec
from eventproc.streams.transaction import LEASE_MS


@twin_of(Stream)
class BlockingStream(BlockingTwin):
    """A stream: write to it, read it, scale it. Made by `ep.create_stream` and `ep.stream`. See `Stream`.

    Its writers and transactions take bytes on the loop's thread: the payloads are encoded on the caller's side.
    """

    def writer(
        self, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None, name: str | None = None
    ) -> BlockingWriter:
        """Return an open writer, to be closed or used in `with`. See `Stream.writer`."""
        writer = self._twin.writer(payload=bytes, name=name)
        return BlockingWriter(self._loop, writer, chosen_codec(self._twin.codec, payload, codec))._opened()

    def transaction(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingTransaction:
        """Return a new transaction, to be used in `with`. See `Stream.transaction`."""
        txn = self._twin.transaction(payload=bytes, lease_ms=lease_ms)
        return BlockingTransaction(self._loop, txn, chosen_codec(self._twin.codec, payload, codec))

    def begin(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingTransaction:
        """Begin a transaction without a block. See `Stream.begin`."""
        return self.transaction(payload=payload, codec=codec, lease_ms=lease_ms).begin()

    def transaction_of(
        self, txn_id: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> BlockingTransaction:
        """Return the handle of a transaction that this or another process began. See `Stream.transaction_of`."""
        txn = self._twin.transaction_of(txn_id, payload=bytes)
        return BlockingTransaction(self._loop, txn, chosen_codec(self._twin.codec, payload, codec))
