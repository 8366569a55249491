"""Writing to a stream: awaited, pipelined, or many events in one call. The order of a key holds across scales.

A writer has one queue of events and one task that sends everything in it as soon as the previous send is durable. So
the disk's pace makes the batches; there is no linger time. If nothing waits and nothing is being sent, the task of the
caller sends. One send is one transaction over all segments that it touches. A send that meets a sealed segment has
changed nothing: its events are routed again by the new epoch, ahead of those posted since.

What must be true: every send is resolved exactly once, with an error unless the database acknowledged it, however the
writer ends; and no event is written after an earlier posted event failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, Generic, TypeVar, overload

import anyio
from typing_extensions import Unpack

from eventproc.base.clock import new_id
from eventproc.base.durations import is_measured
from eventproc.base.tasks import HandleTasks
from eventproc.base.telemetry_use import find_traces
from eventproc.store.catalog import KeyRoutes, current_router, get_writable_stream
from eventproc.store.database import Database, Tx
from eventproc.store.delayed_events import NewDelayedEvent
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_str
from eventproc.store.model.delays import Delay, DelayedEvent
from eventproc.store.model.errors import (
    Closed,
    EventprocError,
    InvalidArgument,
    NotFound,
    SegmentSealed,
    WriterFailed,
    WriterFenced,
)
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.partitions import Router
from eventproc.store.model.policies import Partitioning
from eventproc.store.segments import Event, SegmentEvents, WriterSequence, last_sequence
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import (
    EventOrPair,
    NewEvent,
    WriteOptions,
    as_new_event,
    check_event_id,
    check_events,
    check_sequence,
    checked_event,
    headers_by_codec,
    reserving,
)
from eventproc.streams.noted_times import NotesTime
from eventproc.streams.partitioners import Partitioner, choose_partition
from eventproc.streams.segment_buffers import SegmentBuffer, SegmentBuffers, add_event, event_bytes
from eventproc.streams.sends import EVENTS_SENT, Send, SendPlace

P = TypeVar("P")

BUFFER_BYTES_MAX: Final = 4 * 2**20
"""Bytes that may wait in a writer, headers among them, before its callers wait. Half of one transaction's limit: the
next send fills while the previous one is synced. Higher: more memory, no more throughput."""

YIELD_BYTES: Final = 64 * 1024
"""Bytes posted between two scheduling points, so that a producer that never waits does not starve other tasks."""


class EventWriter(NotesTime, Generic[P]):
    """Writes events to one stream. Made by `Stream.writer` and `Topic.producer`.

    Open it with `async with`, or with `await` and `close`. Leaving the block, as `close`, waits until everything posted
    is durable, and raises the first failure. If the block is cancelled, events that no send has taken are dropped.
    Several tasks may write simultaneously: events are appended in the order of the calls.

    events_written: how many events this writer has made durable.
    """

    def __init__(
        self,
        db: Database,
        stream: str,
        stream_id: int,
        codec: PayloadCodec[P],
        *,
        name: str | None,
        partitioner: Partitioner[P] | None = None,
        follows_strategy: bool = False,
    ) -> None:
        """partitioner: chooses the partitions of a topic; None: the topic's strategy.

        follows_strategy: refuse to open if only a partitioner could choose, and there is none; else keys choose.
        """
        super().__init__(f"the writer of {stream}", db.handles)
        self._db = db
        self._stream, self._stream_id = stream, stream_id
        self._streams = frozenset((stream,))
        self._encode, self._ttl_ms = codec.encode, codec.ttl_ms
        self._name = None if name is None else check_str("name of the writer", name)
        self._partitioner, self._follows_strategy = partitioner, follows_strategy
        self._sequence = 0
        self._next = Send()  # takes what the buffers hold
        self._ready: deque[Send] = deque()  # complete, go first
        self._sending: Send | None = None
        self._waiting_bytes = 0
        self._since_yield = 0
        self._failure: EventprocError | None = None
        self._idle: anyio.Event | None = None  # what the sender waits on while it has nothing to do
        self._room: anyio.Event | None = None  # what callers wait on while too much waits
        self._tasks = HandleTasks(self._sender_failed)
        self._accepts = False  # events
        self.events_written = 0

    def __repr__(self) -> str:
        return f"EventWriter({self._stream!r}, {self._state})"

    async def _start(self) -> None:
        self._router, self._sequence = await self._db.read(self._look)
        is_own = self._router.partitioning is Partitioning.OWN
        if is_own and self._follows_strategy and self._partitioner is None:
            reason = f"{self._stream} has an own strategy; give the same one as its other producers have"
            raise InvalidArgument(what="partitioner", value="None", reason=reason)
        self._buffers = self._new_buffers()
        self._traces = find_traces()
        self._tasks.start_soon(self._send_all)
        self._accepts = True

    async def _finish(self, why: BaseException | None) -> None:
        self._accepts = False
        failure: EventprocError | None = None
        try:
            if why is None or isinstance(why, Exception):
                await self._flush_last()
        except EventprocError as error:
            failure = error
        finally:
            try:
                await self._tasks.stop()
            finally:
                self._resolve_waiting(Closed(what=self._what))
        if failure is not None and why is None:
            raise failure

    @property
    def name(self) -> str | None:
        """The identity by which a repeated send is recognised; None for a writer without one."""
        return self._name

    @property
    def sequence(self) -> int:
        """The last sequence of this name on the stream; without a name, the number of this writer's sends."""
        return self._sequence

    @overload
    async def write(
        self, payload: P, *, id: str | None = None, **options: Unpack[WriteOptions]
    ) -> Event[P]: ...
    @overload
    async def write(
        self, payload: P, *, delay_ms: int, **options: Unpack[WriteOptions]
    ) -> DelayedEvent[P]: ...
    @overload
    async def write(
        self, payload: P, *, at: datetime | int, **options: Unpack[WriteOptions]
    ) -> DelayedEvent[P]: ...
    @overload
    async def write(
        self,
        payload: P,
        *,
        id: str | None = None,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
        **options: Unpack[WriteOptions],
    ) -> Event[P] | DelayedEvent[P]: ...
    async def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        id: str | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> Event[P] | DelayedEvent[P]:
        """Append one event, and return it when it is durable, as readers get it: with its segment, number and offset.

        With `delay_ms` or `at` it is durable when the call returns, and is appended when it is due, once. Until then
        `ep.delayed` finds it by the id that is returned. If the call is cancelled, the event may still be appended: its
        send goes on.

        If the stream has an event with the same `id`, this one is not appended: the call returns the place of that one,
        with this payload. So a call whose outcome is unknown can be repeated, by any writer.

        Args:
            payload: a value of the writer's payload type.
            key: routing key, text or bytes, see `Event`; a key's events keep their order. None (default): any segment.
            event_time: the event's time, in ms. None (default): none.
            headers: names and texts beside the payload. None (default): none.
            partition: number of the topic's partition that takes it. None (default): its strategy chooses.
            ttl_ms: how long groups deliver it after it was appended, in ms. None (default): as the codec, or else
                the topic, says.
            id: identifies the event within the stream for as long as its `id_window_ms`: 1 to 200 characters. While a
                delayed event of the id is not due, a call with a delay returns that one. None (default): no id.
            priority: 0 (default) to 9; share groups deliver higher ones first.
            delay_ms: append it so many ms later. None (default): at once.
            at: append it then: a time with its zone, or ms since 1970; at once if that has passed. None (default).

        Raises:
            InvalidArgument: the payload, or an option, is not valid, or there is no such partition; or a delayed event
                of the same `id` is not due yet, and this one has no delay.
            StreamSealed: the stream is sealed.
            NotFound: the stream was deleted.
            StreamReplaced: the stream was deleted and created again.
            WriterFailed: an earlier posted event failed; call `flush`.
            WriterFenced: another writer of this name has written since.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
            Closed: the block has ended.
        """
        if self._waiting_bytes >= BUFFER_BYTES_MAX:
            await self._wait_room()
        if partition is not None:
            await self._learn_partitions(partition)
        alone = self._sending is None and not self._waiting_bytes and not self._ready
        if id is not None or delay_ms is not None or at is not None:
            event = NewEvent(payload, key, event_time, headers, partition, ttl_ms, delay_ms, at, id, priority)
            send = self._next
            send.awaited = True
            place = self._add_rare(event)
            await (self._send(self._take()) if alone else send.wait())
            return send.written(self._stream, event, place)
        if ttl_ms is not None or priority:
            headers = reserving(headers, ttl_ms=ttl_ms, priority=priority)
        buffer = self._add(payload, key, event_time, headers, partition)
        epoch, segment, index = self._router.epoch.number, buffer.segment, len(buffer.payloads) - 1
        send = self._next
        send.awaited = True
        if alone:
            await self._send(self._take())  # directly, which saves two switches to the sender's task
        else:  # as `Send.wait`, but one coroutine fewer for each of many tasks
            await send.done().wait()
            if send.error is not None:
                raise send.error
        return send.event(self._stream, epoch, segment, index, payload)

    async def post(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        id: str | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> None:
        """Append one event without waiting until it is durable; waits only while 4 MiB are ahead of it.

        `flush`, or the end of the block, raises if the event failed.

        Args:
            payload: a value of the writer's payload type.
            key: routing key, see `write`. None (default): any segment.
            event_time: the event's time, in ms. None (default): none.
            headers: names and texts beside the payload. None (default): none.
            partition: number of the topic's partition that takes it. None (default): its strategy chooses.
            ttl_ms: how long groups deliver it, in ms, see `write`. None (default): as the codec or the topic says.
            id: append it unless the stream has an event with this id, see `write`. None (default): no id.
            priority: 0 (default) to 9; share groups deliver higher ones first.
            delay_ms: append it so many ms later, see `write`. None (default): at once.
            at: append it then, see `write`. None (default).

        Raises:
            InvalidArgument: the payload, or an option, is not valid, or there is no such partition.
            WriterFailed: an earlier event failed; nothing is written out of order. Call `flush`.
            Closed: the block has ended.

        Cost:
            About 0.6 us.
        """
        if self._waiting_bytes >= BUFFER_BYTES_MAX:
            await self._wait_room()
        if partition is not None:
            await self._learn_partitions(partition)
        before_bytes = self._waiting_bytes
        if id is not None or delay_ms is not None or at is not None:
            self._add_rare(
                NewEvent(payload, key, event_time, headers, partition, ttl_ms, delay_ms, at, id, priority)
            )
        else:
            if ttl_ms is not None or priority:
                headers = reserving(headers, ttl_ms=ttl_ms, priority=priority)
            self._add(payload, key, event_time, headers, partition)
        self._since_yield += self._waiting_bytes - before_bytes
        self._next.posted = True
        if self._idle is not None:
            self._wake_sender()
        if self._since_yield >= YIELD_BYTES:
            self._since_yield = 0
            await anyio.lowlevel.checkpoint()

    async def write_many(
        self, events: Iterable[NewEvent[P] | tuple[P, str | bytes | None]], *, sequence: int | None = None
    ) -> int:
        """Append events, in order, in few transactions; return their number when all are durable.

        Events that the stream has already, by their `id`, count too. If one event is not valid, or the iterable raises,
        the events before it are still written. If a send fails, the events of earlier sends are durable.

        Args:
            events: `NewEvent`s, or pairs of payload and key. Any iterable of any length: at most 4 MiB
                are held.
            sequence: makes a retry safe, also after a crash and from another process. The writer must have a name,
                and the events are one transaction of at most 4 MiB, headers among them. If the name's sequence on
                the stream is already that high, nothing is appended and 0 is returned. None (default): no such check.

        Raises:
            InvalidArgument: an event or the sequence is not valid.
            StreamSealed: the stream is sealed.
            NotFound: the stream was deleted.
            StreamReplaced: the stream was deleted and created again.
            WriterFailed: an earlier posted event failed; call `flush`.
            WriterFenced: another writer of this name has written since.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
            Closed: the block has ended.
        """
        check_events(events)
        if sequence is not None:
            return await self._write_once(events, sequence)
        count, last, in_topic = 0, None, self._router.reserve is not None
        for event in events:
            if self._waiting_bytes >= BUFFER_BYTES_MAX:
                await self._next.wait()
            if in_topic and isinstance(event, NewEvent):
                await self._learn_partitions(event.partition)
            if last is not None and last is not self._next:
                await last.wait()  # it was sent while partitions were learnt
            self._add_new(event)
            self._wake_sender()
            count, last = count + 1, self._next
        if last is None:
            await anyio.lowlevel.checkpoint()
        else:
            await last.wait()
        return count

    async def flush(self) -> None:
        """Return when everything posted so far is durable. Raises the first failure, and only once.

        Raises:
            StreamSealed: the stream is sealed.
            NotFound: the stream was deleted.
            StreamReplaced: the stream was deleted and created again.
            WriterFenced: another writer of this name has written since.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        for send in (*self._ready, self._next if self._waiting_bytes else self._sending):
            if send is not None:
                await send.done().wait()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        await anyio.lowlevel.checkpoint()

    async def _write_once(self, events: Iterable[EventOrPair[P]], sequence: int) -> int:
        """Append the events as the name's send number `sequence`, separately from those of other tasks."""
        check_sequence(self._name, sequence)
        await self.flush()
        if sequence <= self._sequence:
            return 0
        buffers, count, send = self._new_buffers(), 0, Send(sequence=sequence)
        for count, event in enumerate(events, 1):
            new = as_new_event(event)
            router = self._router
            await self._learn_partitions(new.partition)
            if self._router is not router:
                waiting, buffers = buffers.take(), self._new_buffers()
                buffers.pour(waiting)
            if new.id is not None and check_event_id(new.id) in send.ids:
                continue
            place: SendPlace
            if (delay := Delay.make(new.delay_ms, new.at)) is not None:
                place = self._new_delayed(send, new, delay)
                data, headers = place.payload, place.headers
            else:
                data, partition, headers = self._prepare(new)
                buffer = add_event(buffers, data, new.key, new.event_time, headers, partition, self._stream)
                send.trace(self._traces, self._stream, headers, buffer)
                place = self._router.epoch.number, buffer.segment, len(buffer.payloads) - 1
            if new.id is not None:
                send.ids[new.id] = place
            send.size_bytes += event_bytes(data, headers)
            if send.size_bytes > BUFFER_BYTES_MAX:
                reason = f"one sequence takes at most {BUFFER_BYTES_MAX} bytes"
                raise InvalidArgument(what="events", value=f"{count} or more", reason=reason)
        if not count:
            return 0
        self._verify_open()
        send.buffers = buffers.take()
        self._ready.append(send)
        self._wake_sender()
        await send.wait()
        return count if send.is_new else 0

    def _add_new(self, event: EventOrPair[P]) -> None:
        if isinstance(event, NewEvent):
            if event.id is not None or event.delay_ms is not None or event.at is not None:
                self._add_rare(event)
                return
            self._add(event.payload, event.key, event.event_time, event.stored_headers, event.partition)
        elif type(event) is tuple and len(event) == 2:
            self._add(event[0], event[1], None, None, None)
        else:
            self._add_new(as_new_event(event))

    def _add(
        self,
        payload: P,
        key: str | bytes | None,
        event_time: int | None,
        headers: Mapping[str, str] | None,
        partition: int | None,
    ) -> SegmentBuffer:
        """Add an event to the next send; return its buffer. Raises InvalidArgument; then nothing was added."""
        if self._failure is not None or not self._accepts:
            self._verify_open()
        if partition is None and self._partitioner is not None:
            partition = choose_partition(self._partitioner, key, payload, len(self._router.segments))
        data = self._encode(payload)
        if self._ttl_ms is not None:
            headers = headers_by_codec(headers, self._ttl_ms)
        buffer = add_event(self._buffers, data, key, event_time, headers, partition, self._stream)
        if self._traces is not None:
            self._next.trace(self._traces, self._stream, headers, buffer)
        self._waiting_bytes += event_bytes(data, headers) if headers else len(data) + FRAME_BYTES
        return buffer

    def _add_rare(self, event: NewEvent[P]) -> SendPlace:
        """Add an event with an id or a delay to the next send, unless that has one of its id; return which one it is.

        Raises InvalidArgument; then nothing was added.
        """
        self._verify_open()
        ids = self._next.ids
        if event.id is not None and (first := ids.get(check_event_id(event.id))) is not None:
            return first
        place: SendPlace
        if (delay := Delay.make(event.delay_ms, event.at)) is not None:
            place = self._new_delayed(self._next, event, delay)
            self._waiting_bytes += event_bytes(place.payload, place.headers)
        else:
            columns = event.key, event.event_time, event.stored_headers, event.partition
            buffer = self._add(event.payload, *columns)
            place = self._router.epoch.number, buffer.segment, len(buffer.payloads) - 1
        if event.id is not None:
            ids[event.id] = place
        return place

    def _new_delayed(self, send: Send, event: NewEvent[P], delay: Delay) -> NewDelayedEvent:
        """Encode and check an event as `add_event` does, add and return it. What routes it is known when it is due."""
        data, partition, headers = self._prepare(event)
        self._router.verify_event(partition, event.key, topic=self._stream)
        checked = checked_event(data, event.key, event.event_time, headers)
        made = NewDelayedEvent(new_id(self._db.clock), delay, *checked, partition)
        send.trace(self._traces, self._stream, headers, made)
        send.delayed.append(made)
        return made

    def _prepare(self, event: NewEvent[P]) -> tuple[bytes, int | None, Mapping[str, str] | None]:
        """Return the bytes, the partition and the headers of an event."""
        partition = event.partition
        if partition is None and self._partitioner is not None:
            partitions = len(self._router.segments)
            partition = choose_partition(self._partitioner, event.key, event.payload, partitions)
        return self._encode(event.payload), partition, headers_by_codec(event.stored_headers, self._ttl_ms)

    def _verify_open(self) -> None:
        if self._failure is not None:
            raise WriterFailed(stream=self._stream, reason=str(self._failure)) from self._failure
        if self._tasks.failure is not None:
            raise self._task_failed(self._tasks.failure) from self._tasks.failure
        if not self._accepts:
            raise Closed(what=self._what)

    async def _wait_room(self) -> None:
        while self._waiting_bytes >= BUFFER_BYTES_MAX and self._failure is None and self._accepts:
            self._room = self._room or anyio.Event()
            await self._room.wait()

    def _wake_sender(self) -> None:
        if self._idle is not None and self._sending is None:
            self._idle.set()

    async def _send_all(self) -> None:
        while True:
            if self._sending is not None or not (self._ready or self._waiting_bytes):
                self._idle = anyio.Event()
                await self._idle.wait()
                self._idle = None
                continue
            send = self._ready.popleft() if self._ready else self._take()
            try:
                await self._send(send)
            except EventprocError as error:
                if send.posted:
                    self._fail(error)
            except BaseException as error:  # the sender ends, and the posted events of its last send are lost
                if send.posted:
                    self._failure = self._task_failed(error)
                raise

    def _take(self) -> Send:
        """Return the next send, with everything that waits, and begin another."""
        send, self._next = self._next, Send()
        send.buffers, send.size_bytes = self._buffers.take(), self._waiting_bytes
        self._make_room()
        return send

    def _make_room(self) -> None:
        self._waiting_bytes = 0
        if self._room is not None:
            self._room.set()
            self._room = None

    async def _send(self, send: Send) -> None:
        """Send and resolve, in the sender's task or in that of a lone caller; one at a time."""
        sequence = self._sequence + 1 if send.sequence is None else send.sequence
        identity = None if self._name is None else WriterSequence(self._name, sequence)
        self._sending = send
        if is_measured():
            send.measure(self._db, self._stream)
        try:
            is_new: bool | None = None
            while is_new is None:
                fn = partial(self._append, send, self._buffers.parts(send.buffers), identity, sequence)
                try:
                    is_new = await self._db.write(
                        fn,
                        size_bytes=send.size_bytes,
                        brief=True,
                        step=Step.WRITER_APPEND,
                        streams=self._streams,
                    )
                except (SegmentSealed, NotFound):
                    await self._follow(send)
            if not is_new and send.sequence is None:
                # The writer chose this sequence itself, so another writer uses the name.
                raise WriterFenced(stream=self._stream, writer=str(self._name))
            self._sequence = sequence
            send.resolve(None)
        except EventprocError as error:
            send.resolve(error)
            raise
        except BaseException as error:
            send.resolve(WriterFailed(stream=self._stream, reason=f"the writer ended ({error!r})"))
            raise
        finally:
            self._sending = None
            if self._waiting_bytes or self._ready:
                self._wake_sender()

    def _append(
        self,
        send: Send,
        parts: Sequence[SegmentEvents],
        identity: WriterSequence | None,
        sequence: int,
        tx: Tx,
    ) -> bool:
        """Append, and store what is appended later; return False if the identity did that before."""
        count = send.append(
            tx, self._stream, self._stream_id, parts, identity=identity, guard=self._router.reserve
        )
        if count is None:
            return False
        # As an effect of the transaction, callers continue in the same turn of the event loop as this writer, and
        # their next events are sent in it, too.
        tx.after(partial(self._note_appended, send, count, sequence))
        return True

    def _note_appended(self, send: Send, count: int, sequence: int) -> None:
        """Record that the send is durable, with so many new events, and wake its callers."""
        send.is_new = True
        self._sequence = sequence
        self.events_written += count
        self._db.shared[EVENTS_SENT][self._stream] += count
        send.resolve(None)

    async def _follow(self, send: Send) -> None:
        """Route the events of a refused send, and those posted since, by the current epoch."""
        router, _ = await self._db.read(self._look)
        if not self._reroute(router, send):
            raise NotFound(kind="segment", name=f"{self._stream}, of epoch {router.epoch.number}")

    async def _learn_partitions(self, partition: int | None) -> None:
        """Read the epoch again if the partition is not known: it may have been added since the last send."""
        if type(partition) is not int or partition < len(self._router.segments) or not self._accepts:
            return
        router, _ = await self._db.read(self._look)
        while self._sending is not None:  # a send verifies the epoch that routed it
            await self._sending.done().wait()
            await anyio.lowlevel.checkpoint()
        self._reroute(router)

    def _reroute(self, router: Router, *sends: Send) -> bool:
        """Route these sends, and all that wait, by a later epoch; return False, without a change, if it is no later."""
        if router.epoch.number <= self._router.epoch.number:
            return False
        old, new = self._router.epoch.number, router.epoch.number
        self._router = router
        waiting, self._buffers = self._buffers.take(), self._new_buffers()
        for each in (*sends, *self._ready):
            each.move(old, new, self._buffers.pour(each.buffers))
            each.buffers = self._buffers.take()
        self._next.move(old, new, self._buffers.pour(waiting))
        return True

    def _fail(self, error: EventprocError) -> None:
        """Keep the first failure, and drop later posted events: written alone they would be out of order."""
        self._failure = error
        self._resolve_waiting(WriterFailed(stream=self._stream, reason=str(error)))

    def _sender_failed(self, error: BaseException | None) -> None:
        """Accept no event, and wake every caller: the task that sends has ended by an error. `close` raises it."""
        self._accepts = False
        if self._waiting_bytes or self._ready:
            self._fail(self._task_failed(error or Closed(what="the event loop")))

    def _task_failed(self, error: BaseException) -> WriterFailed:
        return WriterFailed(stream=self._stream, reason=f"the writer ended ({error!r})")

    def _resolve_waiting(self, error: EventprocError) -> None:
        """Drop the events that no send has taken yet, and wake their callers with the error."""
        for send in (*self._ready, self._next):
            send.resolve(error)
        self._ready.clear()
        self._next = Send()
        self._buffers.take()
        self._make_room()

    def _look(self, tx: Tx) -> tuple[Router, int]:
        return find_route(tx, self._stream, self._stream_id, self._name)

    def _new_buffers(self) -> SegmentBuffers:
        return SegmentBuffers(KeyRoutes(self._router), int.from_bytes(self._db.clock.random_bytes(4), "big"))


def find_route(tx: Tx, stream: str, stream_id: int, writer: str | None) -> tuple[Router, int]:
    """Return what routes events in the current epoch of the stream, and the last sequence of the writer's name.

    writer: the name; None: the sequence is 0. Raises StreamSealed, NotFound, StreamReplaced. Three look-ups.
    """
    found = get_writable_stream(tx, stream, stream_id=stream_id).value
    sequence = 0 if writer is None else last_sequence(tx, stream_id, writer)
    return current_router(tx, found), sequence
