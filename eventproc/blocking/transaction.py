"""Transactions without `await`: events wait on the caller's side, and are handed to the loop in batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import anyio
import attrs

from eventproc.blocking.buffer import Buffer
from eventproc.blocking.loop import Block, Loop
from eventproc.blocking.twins import BlockingTwin, twin_of
from eventproc.store.model.errors import InvalidArgument
from eventproc.streams import JointTransaction, NewEvent, Transaction
from eventproc.streams.codec import PayloadCodec, codec_for
from eventproc.streams.joint_transaction import StreamTarget
from eventproc.streams.new_events import as_immediate_event, check_events
from eventproc.streams.request_calls import WAIT_MS


class BufferedTransaction(BlockingTwin, Block, ABC):
    """What both kinds of transactions do: hand over what was written before anything that needs it."""

    def __init__(self, loop: Loop, txn: Transaction[bytes] | JointTransaction) -> None:
        super().__init__(loop, txn)
        # Being handed to the loop: an event stays here until the loop has added it, even if the call is interrupted.
        self._handed: deque[tuple[Any, ...]] = deque()
        self._one_hand_over = anyio.Lock()

    def flush(self) -> None:
        """Return when everything written is staged durably. See `Transaction.flush`."""
        self._hand_over()
        self._loop.call(self._twin.flush)

    def commit(self, *, wait: bool = True, timeout_ms: int = WAIT_MS) -> None:
        """Decide that all becomes visible, and return when it is. See `Transaction.commit`."""
        self._hand_over()
        self._loop.call(partial(self._twin.commit, wait=wait, timeout_ms=timeout_ms))

    def status(self) -> Any:
        """Stage what was written, and return what the database knows. See `Transaction.status`."""
        self._hand_over()
        return self._loop.call(self._twin.status)

    @abstractmethod
    def _take(self) -> Iterable[tuple[Any, ...]]:
        """Return the waiting events, each after what `write_many` takes before it, and empty the buffers."""

    def _leave(self, why: BaseException | None) -> None:
        if why is None:
            try:
                self._hand_over()
            except BaseException as failure:
                super()._leave(failure)
                raise
        super()._leave(why)

    def _hand_over(self) -> None:
        self._handed.extend(self._take())
        if self._handed:
            self._loop.call(self._add_handed)

    # On the loop's thread:

    async def _add_handed(self) -> None:
        # An interrupted call may still be running here until the loop's next turn.
        async with self._one_hand_over:
            while self._handed:
                *target, event = self._handed[0]
                try:
                    await self._twin.write_many(*target, [event])
                except InvalidArgument:  # there is no such partition: the events behind it do not wait for it
                    self._handed.popleft()
                    raise
                self._handed.popleft()


@twin_of(Transaction)
class BlockingTransaction(BufferedTransaction):
    """A transaction of one stream; made by `BlockingStream.transaction`, `begin` and `transaction_of`.

    For one thread at a time. In `with`, leaving the block commits and returns when all is visible; an exception
    aborts, Ctrl-C too. See `Transaction`.
    """

    def __init__(self, loop: Loop, txn: Transaction[bytes], codec: PayloadCodec[Any]) -> None:
        """txn: takes bytes; `codec` encodes on the caller's side, so a wrong payload is refused immediately."""
        super().__init__(loop, txn)
        self._buffer = Buffer(codec, loop.check)

    def begin(self) -> BlockingTransaction:
        """Write the transaction to the database now, and return it. See `Transaction.begin`."""
        self._loop.call(self._twin.begin)
        return self

    def write(
        self,
        payload: Any,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one event; about 2 us.

        Raises InvalidArgument immediately; a later call raises other errors of `Transaction.write`, and that of an
        event for which there is no partition, which is left out.
        """
        if self._buffer.add(self._buffer.event(payload, key, event_time, headers, partition)):
            self._hand_over()

    def write_many(self, events: Iterable[NewEvent[Any] | tuple[Any, str | bytes | None]]) -> int:
        """Add events, in order; return their number. See `Transaction.write_many`."""
        check_events(events)
        count = 0
        for chunk in self._buffer.chunks(events):
            self._hand_over()
            count += self._loop.call(self._twin.write_many, chunk)
        return count

    def abort(self, *, force: bool = False) -> None:
        """Decide that the events never become visible, durably. See `Transaction.abort`."""
        self._buffer.take()
        self._handed.clear()
        self._loop.call(partial(self._twin.abort, force=force))

    def _take(self) -> Iterable[tuple[Any, ...]]:
        return ((event,) for event in self._buffer.take())


@attrs.frozen
class _EncodedTarget:
    """A stream whose events are encoded already."""

    name: str
    stream_id: int
    codec: PayloadCodec[bytes]


@twin_of(JointTransaction)
class BlockingJointTransaction(BufferedTransaction):
    """A transaction of several streams, with the progress of a consumer; made by `BlockingEventproc.transaction`.

    For one thread at a time. In `with`, leaving the block commits and returns when all is visible; an exception
    aborts, Ctrl-C too. See `JointTransaction`.
    """

    def __init__(self, loop: Loop, txn: JointTransaction) -> None:
        super().__init__(loop, txn)
        self._buffers: dict[str | int, tuple[str | _EncodedTarget, Buffer[Any]]] = {}

    def write(
        self,
        stream: str | StreamTarget[Any],
        payload: Any,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one event to a stream. Raises as `BlockingTransaction.write`."""
        buffer = self._buffer(stream)
        if buffer.add(buffer.event(payload, key, event_time, headers, partition)):
            self._hand_over()

    def write_many(
        self,
        stream: str | StreamTarget[Any],
        events: Iterable[NewEvent[Any] | tuple[Any, str | bytes | None]],
    ) -> int:
        """Add events to a stream, in order; return their number. See `JointTransaction.write_many`."""
        check_events(events)
        buffer, count = self._buffer(stream), 0
        for event in events:
            if buffer.add(buffer.encoded(as_immediate_event(event))):
                self._hand_over()
            count += 1
        return count

    def abort(self) -> None:
        """Decide that no event becomes visible, durably. See `JointTransaction.abort`."""
        self._buffers.clear()
        self._handed.clear()
        self._loop.call(self._twin.abort)

    def _buffer(self, stream: str | StreamTarget[Any]) -> Buffer[Any]:
        key = stream if isinstance(stream, str) else stream.stream_id
        if (found := self._buffers.get(key)) is None:
            if isinstance(stream, str):
                found = stream, Buffer(_BYTES, self._loop.check)
            else:
                target = _EncodedTarget(stream.name, stream.stream_id, _BYTES)
                found = target, Buffer(stream.codec, self._loop.check)
            self._buffers[key] = found
        return found[1]

    def _take(self) -> Iterable[tuple[Any, ...]]:
        return [(target, event) for target, buffer in self._buffers.values() for event in buffer.take()]


_BYTES = codec_for(None, None)
