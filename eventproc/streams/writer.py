"""Writing to a stream: awaited, pipelined or many at once; the order of a key holds across scales.

A writer is one queue of events and one task that sends what waits in it, whole, as soon as the previous
send is durable: batching comes from the disk's own pace, and there is no linger time. One send is one
transaction over all segments it touches. A send that meets a sealed segment changed nothing; its events
are routed again by the epoch that replaced it, ahead of those posted since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, Generic, TypeVar

import anyio
import attrs

from eventproc.store.background import Background
from eventproc.store.catalog import Stream as StreamRecord
from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.clock import new_id
from eventproc.store.database import Database, Tx
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import (
    Closed,
    EventprocError,
    InvalidArgument,
    SegmentSealed,
    StreamSealed,
    WriterFailed,
)
from eventproc.store.model.states import StreamState
from eventproc.store.segments import FRAME_BYTES, Landed, WriterSequence, append, last_sequence
from eventproc.streams.check import check_extra, check_size
from eventproc.streams.codec import Codec
from eventproc.streams.lanes import Lane, Lanes

P = TypeVar("P")

BUFFER_BYTES_MAX: Final = 4 * 2**20
"""Bytes that may wait in a writer before `post` does. Half of what one transaction takes: the next send
fills while the previous one is synced; more is memory without throughput."""

YIELD_BYTES: Final = 64 * 1024
"""Bytes posted between two scheduling points, so that a producer that never waits starves nobody."""


@attrs.frozen
class NewEvent(Generic[P]):
    """An event to be written, for `write_many`."""

    payload: P
    key: str | None = None
    event_time: int | None = None
    headers: Mapping[str, str] | None = None


class _Send:
    """Events that leave together, and what became of them."""

    __slots__ = ("done", "error", "landed", "lanes", "posted", "sequence")

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.posted = False  # some events were posted: nobody awaits them, so a failure must be kept
        self.done = anyio.Event()
        self.error: EventprocError | None = None
        self.landed: tuple[Landed, ...] = ()
        self.sequence: int | None = None  # chosen by the caller


class EventWriter(Generic[P]):
    """Appends events to one stream; made by `Stream.writer`, used in `async with`.

    Leaving the block waits until everything posted is durable and raises the first failure. One task may
    post while others write; events are appended in the order of the calls.
    """

    def __init__(
        self, db: Database, stream: str, stream_id: int, codec: Codec[P], *, name: str | None
    ) -> None:
        self._db = db
        self._stream = stream
        self._stream_id = stream_id
        self._encode = codec.encode
        self._name = name
        self._identity = name or new_id(db.clock)
        self._sequence = 0
        self._next = _Send()
        self._sending: _Send | None = None
        self._waiting_bytes = 0
        self._since_yield = 0
        self._failure: EventprocError | None = None
        self._more = anyio.Event()
        self._room = anyio.Event()
        self._open = False
        self.events_written = 0

    async def __aenter__(self) -> EventWriter[P]:
        epoch, self._sequence = await self._db.read(self._look)
        self._lanes = Lanes(epoch, self._spread())
        self._tasks = Background()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._send_all)
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        failure: EventprocError | None = None
        try:
            if why is None or isinstance(why, Exception):
                await self.flush()
        except EventprocError as error:
            failure = error
        finally:
            self._open = False
            await self._tasks.__aexit__(kind, why, trace)
        if failure is not None and why is None:
            raise failure
        return None

    @property
    def name(self) -> str:
        """The identity by which repeated sends are recognised: given, or made for this writer."""
        return self._identity

    @property
    def sequence(self) -> int:
        """How many sends this identity has made durable on the stream."""
        return self._sequence

    async def write(
        self,
        payload: P,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Append one event and return when it is durable.

        key: at most KEY_CHARS_MAX characters; events of one key keep their order. event_time: the user's,
        ms. Raises InvalidArgument, StreamSealed, StreamReplaced, WriterFailed, DiskFull, LockHeld; the
        event is then not in the stream. Cancelled, it may be: the send it is part of goes on.
        """
        self._add(payload, key, event_time, headers)
        await self._wait(self._next)

    async def post(
        self,
        payload: P,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Append one event without waiting for it; waits only while BUFFER_BYTES_MAX are ahead of it.

        `flush`, or the end of the block, tells whether it is durable. Raises WriterFailed once an earlier
        event failed, so that nothing is written out of order. About 0.6 us.
        """
        self._add(payload, key, event_time, headers)
        self._next.posted = True
        if self._since_yield >= YIELD_BYTES:
            self._since_yield = 0
            await anyio.lowlevel.checkpoint()
            while self._waiting_bytes >= BUFFER_BYTES_MAX and self._failure is None:
                await self._room.wait()

    async def write_many(
        self, events: Iterable[NewEvent[P] | tuple[P, str | None]], *, sequence: int | None = None
    ) -> int:
        """Append events, in order, in few transactions; return their number when all are durable.

        events: `NewEvent`s, or pairs of payload and key. At most BUFFER_BYTES_MAX of them are held at once,
        so that any iterable will do. Raises as `write`; what came before the failing send is durable.

        sequence: makes a retry safe, also after a crash and from another process. The writer must have a
        name, and the events are one transaction of at most BUFFER_BYTES_MAX. When the name's sequence on
        the stream is that high already, nothing is appended and 0 returned.
        """
        if sequence is not None:
            return await self._write_once(events, sequence)
        count = 0
        for event in events:
            self._add_new(event)
            count += 1
            if self._waiting_bytes >= BUFFER_BYTES_MAX:
                await self._wait(self._next)
        if self._more.is_set():
            await self._wait(self._next)
        elif self._sending is not None:
            await self._wait(self._sending)
        return count

    async def _write_once(self, events: Iterable[NewEvent[P] | tuple[P, str | None]], sequence: int) -> int:
        if self._name is None:
            raise InvalidArgument(
                what="sequence", value=str(sequence), reason="only a writer with a name has one"
            )
        await self.flush()
        if sequence <= self._sequence:
            return 0
        count, send = 0, self._next
        send.sequence = sequence
        try:
            for count, event in enumerate(events, 1):
                self._add_new(event)
                if self._waiting_bytes > BUFFER_BYTES_MAX:
                    reason = f"one sequence takes at most {BUFFER_BYTES_MAX} bytes"
                    raise InvalidArgument(what="events", value=f"{count} or more", reason=reason)
        except BaseException:
            self._drop_waiting()
            raise
        if count:
            await self._wait(send)
        else:
            send.sequence = None
        return count if send.landed else 0

    def _add_new(self, event: NewEvent[P] | tuple[P, str | None]) -> None:
        if isinstance(event, tuple):
            self._add(event[0], event[1], None, None)
        else:
            self._add(event.payload, event.key, event.event_time, event.headers)

    async def flush(self) -> None:
        """Return when everything posted so far is durable. Raises the first failure, and only once."""
        last = self._next if self._more.is_set() else self._sending
        if last is not None:
            await last.done.wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        await anyio.lowlevel.checkpoint()

    def _add(
        self, payload: P, key: str | None, event_time: int | None, headers: Mapping[str, str] | None
    ) -> None:
        if self._failure is not None:
            raise WriterFailed(stream=self._stream, reason=str(self._failure)) from self._failure
        if not self._open:
            raise Closed(what=f"the writer of {self._stream}")
        data = self._encode(payload)
        check_size(data)
        lane = self._lanes.find(key) or self._lanes.open(key)
        if headers or event_time is not None:
            check_extra(event_time, headers)
        lane.payloads.append(data)
        lane.keys.append(key)
        if event_time is not None or headers or lane.has_extra:
            lane.add_extra(event_time, headers or None)
        size = len(data) + FRAME_BYTES
        self._waiting_bytes += size
        self._since_yield += size
        if not self._more.is_set():
            self._more.set()

    async def _wait(self, send: _Send) -> None:
        await send.done.wait()
        if send.error is not None:
            raise send.error

    async def _send_all(self) -> None:
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            send, self._next = self._next, _Send()
            send.lanes = self._lanes.take()
            self._sending = send
            size_bytes, self._waiting_bytes = self._waiting_bytes, 0
            room, self._room = self._room, anyio.Event()
            room.set()
            try:
                await self._send(send, size_bytes)
            except EventprocError as error:
                send.error = error
                if send.posted:
                    self._fail(error)
            finally:
                self._sending = None
                send.done.set()

    async def _send(self, send: _Send, size_bytes: int) -> None:
        sequence = self._sequence + 1 if send.sequence is None else send.sequence
        identity = WriterSequence(self._identity, sequence, verify=self._name is not None)
        while True:
            parts = self._lanes.parts(send.lanes)
            fn = partial(
                append, stream=self._stream, stream_id=self._stream_id, parts=parts, identity=identity
            )
            try:
                send.landed = await self._db.write(fn, size_bytes=size_bytes)
            except SegmentSealed:
                await self._follow(send)
            else:
                self._sequence = sequence
                self.events_written += sum(landed.count for landed in send.landed)
                return

    async def _follow(self, send: _Send) -> None:
        """Route the events of a refused send, and those posted since, by the epoch that is current now."""
        epoch, _ = await self._db.read(self._look)
        waiting = self._lanes.take()
        self._lanes = Lanes(epoch, self._spread())
        self._lanes.pour(send.lanes)
        send.lanes = self._lanes.take()
        self._lanes.pour(waiting)

    def _fail(self, error: EventprocError) -> None:
        """Keep the first failure, and drop what was posted after it: written alone it would be out of order."""
        self._failure = error
        dropped = self._drop_waiting()
        dropped.error = WriterFailed(stream=self._stream, reason=str(error))
        dropped.done.set()
        self._room.set()

    def _drop_waiting(self) -> _Send:
        """Forget the events that no send has taken yet; return the send that would have."""
        dropped, self._next = self._next, _Send()
        self._lanes.take()
        self._waiting_bytes = 0
        self._more = anyio.Event()
        return dropped

    def _look(self, tx: Tx) -> tuple[Epoch, int]:
        stream: StreamRecord = get_stream(tx, self._stream, stream_id=self._stream_id).value
        if stream.state in (StreamState.SEALING, StreamState.SEALED):
            raise StreamSealed(stream=self._stream)
        sequence = last_sequence(tx, self._stream_id, self._identity) if self._name is not None else 0
        return current_epoch(tx, stream), sequence

    def _spread(self) -> int:
        return int.from_bytes(self._db.clock.random_bytes(4), "big")
