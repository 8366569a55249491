"""A joint transaction without `await`: events wait on the caller's side, and are handed to the loop in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, cast, overload

import anyio
import attrs

from eventproc.blocking.buffer import Buffer
from eventproc.blocking.loop import Block, Loop, Opened
from eventproc.store.segments import AppendResult
from eventproc.store.transactions import PingResult
from eventproc.streams import JointTransaction, NewEvent, ProgressSource, TransactionDescription
from eventproc.streams.codec import PayloadCodec, codec_for
from eventproc.streams.joint_transaction import StreamTarget
from eventproc.streams.new_events import check_events
from eventproc.streams.request_calls import WAIT_MS

P = TypeVar("P")


@attrs.frozen
class _EncodedTarget:
    """A stream whose events are encoded already."""

    name: str
    stream_id: int
    codec: PayloadCodec[bytes]


class BlockingJointTransaction(Block):
    """A transaction of several streams, with the progress of a consumer; made by `BlockingEventproc.transaction`.

    For one thread at a time. In `with`, leaving the block commits and returns when all is visible; an exception
    aborts, Ctrl-C too. See `JointTransaction`.
    """

    def __init__(self, loop: Loop, txn: JointTransaction) -> None:
        super().__init__(loop, txn)
        self._txn = txn
        self._buffers: dict[str | int, tuple[str | _EncodedTarget, Buffer[Any]]] = {}
        # Being handed to the loop: an event stays here until the loop has added it, even if the call is interrupted.
        self._handed: deque[tuple[str | _EncodedTarget, NewEvent[bytes]]] = deque()
        self._one_hand_over = anyio.Lock()
        self.id = txn.id

    def __repr__(self) -> str:
        return f"Blocking{self._txn!r}"

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that events were handed over for. See `JointTransaction.streams`."""
        return self._txn.streams

    @property
    def appended(self) -> dict[str, tuple[AppendResult, ...]]:
        """Where its events are, by stream. See `JointTransaction.appended`."""
        return self._txn.appended

    @overload
    def write(
        self,
        stream: str,
        payload: bytes,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    @overload
    def write(
        self,
        stream: StreamTarget[P],
        payload: P,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    def write(
        self,
        stream: str | StreamTarget[Any],
        payload: Any,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one event to a stream. Raises InvalidArgument immediately, other errors of the async method later."""
        buffer = self._buffer(stream)
        if buffer.add(buffer.event(payload, key, event_time, headers, partition)):
            self._hand_over()

    @overload
    def write_many(
        self, stream: str, events: Iterable[NewEvent[bytes] | tuple[bytes, str | None]]
    ) -> int: ...
    @overload
    def write_many(
        self, stream: StreamTarget[P], events: Iterable[NewEvent[P] | tuple[P, str | None]]
    ) -> int: ...
    def write_many(
        self, stream: str | StreamTarget[Any], events: Iterable[NewEvent[Any] | tuple[Any, str | None]]
    ) -> int:
        """Add events to a stream, in order; return their number. See `JointTransaction.write_many`."""
        check_events(events)
        buffer, count = self._buffer(stream), 0
        for event in events:
            if buffer.add(buffer.encoded(event)):
                self._hand_over()
            count += 1
        return count

    def flush(self) -> None:
        """Return when everything written is staged durably. See `JointTransaction.flush`."""
        self._hand_over()
        self._loop.call(self._txn.flush)

    def commit(self, *, wait: bool = True, timeout_ms: int = WAIT_MS) -> None:
        """Decide that all becomes visible, and that the progress moves. See `JointTransaction.commit`."""
        self._hand_over()
        self._loop.call(partial(self._txn.commit, wait=wait, timeout_ms=timeout_ms))

    def abort(self) -> None:
        """Decide that no event becomes visible, durably. See `JointTransaction.abort`."""
        self._buffers.clear()
        self._handed.clear()
        self._loop.call(self._txn.abort)

    def ping(self) -> PingResult:
        """Extend the lease. See `JointTransaction.ping`."""
        return self._loop.call(self._txn.ping)

    def status(self) -> tuple[TransactionDescription, ...]:
        """Stage what was written, and return what the database knows. See `JointTransaction.status`."""
        self._hand_over()
        return self._loop.call(self._txn.status)

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

    def _leave(self, why: BaseException | None) -> None:
        if why is None:
            try:
                self._hand_over()
            except BaseException as failure:
                super()._leave(failure)
                raise
        super()._leave(why)

    def _hand_over(self) -> None:
        for target, buffer in self._buffers.values():
            self._handed.extend((target, event) for event in buffer.take())
        if self._handed:
            self._loop.call(self._add_handed)

    # On the loop's thread:

    async def _add_handed(self) -> None:
        # An interrupted call may still be running here until the loop's next turn.
        async with self._one_hand_over:
            while self._handed:
                target, event = self._handed[0]
                if isinstance(target, str):
                    await self._txn.write_many(target, [event])
                else:
                    await self._txn.write_many(target, [event])
                self._handed.popleft()


def twin_of(consumer: Opened | None) -> ProgressSource | None:
    """Return the async twin of a blocking consumer. What is none is returned unchanged: `transaction` refuses it."""
    return cast("ProgressSource | None", getattr(consumer, "_twin", consumer))


_BYTES = codec_for(None, None)
