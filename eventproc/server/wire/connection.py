"""One connection of a client: reads commands, and answers each of them once.

Commands that change something are carried out in order, one at a time, which bounds what a connection holds and makes
the order of its acknowledgements that of its appends. A read at the tail waits in a task of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from eventproc.cluster.segment_containers import SegmentContainers
from eventproc.server.access.authority import Authority
from eventproc.server.access.delegation import Delegation, TokenExpired, TokenRefused
from eventproc.server.frames import ConnectionOver, MalformedFrame
from eventproc.server.wire import commands as c, segment_calls as calls, table_commands
from eventproc.server.wire.channel import Channel, Frame, parse
from eventproc.server.wire.codec import FRAME_HEAD, Message
from eventproc.server.wire.command_needs import need_of, segment_of
from eventproc.server.wire.ownership import MovedSegment, WireOwnership
from eventproc.server.wire.segment_calls import truncate_segment
from eventproc.server.wire.segment_names import (
    WireSegment,
    is_transient_of,
    new_transient_name,
    parse_segment_name,
    segment_name,
)
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import INT_MAX
from eventproc.store.model.errors import (
    EventprocError,
    IllegalTransition,
    InvalidArgument,
    NotFound,
    OffsetConflict,
    SegmentSealed,
    TransactionAborted,
    WriterFenced,
)
from eventproc.store.segments import EncodedBlock
from eventproc.store.segments.framed import from_frames
from eventproc.streams.fetch import watch_stream

LOG = logging.getLogger("eventproc.server.access")

OURS: Final = c.Hello(17, 5)
"""The versions that Pravega's own server announces."""

READ_BYTES_MAX: Final = 4 * 2**20
"""Bytes of one reply. Higher: more memory per connection that reads; lower: more calls for large events."""

POLL_MS: Final = 15_000
"""How long a read waits at the tail. The client gives a request up after 30 s."""

POLLS_MAX: Final = 1_000
"""Reads that wait on one connection; a client that asks for more is not read from until one ends."""

REFUSAL_PAUSE_S: Final = 0.1
"""Pause before a refusal: the Rust client repeats some refused commands without a pause of its own."""

TRANSIENT_BYTES_MAX: Final = 16 * 2**20
"""Bytes of the transient segments of one connection: one event of the largest size that the client sends."""

WRITERS_MAX: Final = 1_000
"""Writers of one connection, each of about 1 kB. A client that sets up more must do so on another connection."""

TRANSIENTS_MAX: Final = 16
"""Transient segments of one connection. Clients use one at a time, and leave some behind after errors."""


class RefusedCommand(Exception):
    """Raised by a handler that refuses a command. reply: what the client is sent, after a pause."""

    def __init__(self, reply: Message) -> None:
        super().__init__(repr(reply))
        self.reply = reply


class WireConnection:
    """Serves one connection."""

    def __init__(
        self, db: Database, channel: Channel, containers: SegmentContainers, authority: Authority
    ) -> None:
        self._db = db
        self._ownership = WireOwnership(db, containers)
        self._channel = channel
        self._authority = authority
        self._writers: dict[bytes, calls.WireWriter | bytearray] = {}
        self._delegations: dict[bytes, Delegation | None] = {}
        """What allows each writer to append."""
        self._delegated: Delegation | None = None
        """What allows the `SetupAppend` that is being handled."""
        self._transients: dict[str, bytearray] = {}
        self._polls = anyio.Semaphore(POLLS_MAX)
        self.on_token: Callable[[], None] = lambda: None
        """Called for each valid token."""
        self._handlers: dict[type[Message], Callable[..., Awaitable[Message | None]]] = {
            c.SetupAppend: self._set_up,
            c.AppendBlock: self._append_two_frames,
            c.AppendBlockEnd: self._append,
            c.ConditionalAppend: self._append_at,
            c.ConditionalBlockEnd: self._append_bytes_at,
            c.CreateTransientSegment: self._create_transient,
            c.MergeSegments: self._merge,
            c.GetStreamSegmentInfo: self._describe,
            c.TruncateSegment: self._truncate,
            c.GetSegmentAttribute: self._get_attribute,
            c.UpdateSegmentAttribute: self._update_attribute,
            **{kind: partial(answer, db) for kind, answer in table_commands.ANSWERS.items()},
        }

    async def serve(self) -> None:
        """Serve until the peer leaves, which raises EndOfStream, or must be left, which raises why.

        An error of any command ends the connection, so that its client asks for the state again.
        """
        await self._channel.greet(OURS)
        if self._authority.is_required:
            self._channel.limit_frames()
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    async with self._channel.receiving() as frame:
                        await self._handle(frame, tasks)
        finally:
            await self._channel.memory.give_back_all()

    async def _handle(self, frame: Frame, tasks: TaskGroup) -> None:
        command = parse(frame)
        if isinstance(command, c.KeepAlive | c.Hello):
            return
        if command is not None and (refusal := self._verify(command)) is not None:
            await self._refuse(refusal)
            return
        if isinstance(command, c.ReadSegment):
            await self._polls.acquire()
            tasks.start_soon(self._poll, command)
            return
        handler = None if command is None else self._handlers.get(type(command))
        if command is None or handler is None:
            await self._refuse(_unsupported(frame))
            return
        await self._answer(handler, command)

    async def _answer(self, handler: Callable[..., Awaitable[Message | None]], command: Message) -> None:
        """Send what a handler replies, or why it refuses: another host, no such segment, or what is not valid."""
        try:
            reply = await handler(command)
        except RefusedCommand as why:
            await self._refuse(why.reply)
        except (MovedSegment, NotFound, InvalidArgument) as why:
            await self._refuse(self._refusal(command, why))
        else:
            if reply is not None:
                await self._channel.send(reply)

    def _refusal(self, command: Message, why: Exception) -> Message:
        """Return the refusal that says why. Raises `why` for a command that names no segment."""
        request_id, name = getattr(command, "request_id", 0), segment_of(command)
        if isinstance(why, MovedSegment):
            return self._wrong_host(request_id, why.target)
        if name is None:
            raise why
        if isinstance(why, NotFound):
            return _missing(request_id, name)
        return _invalid(request_id, name, why)

    def _wrong_host(self, request_id: int, target: WireSegment) -> Message:
        return self._ownership.wrong_host(request_id, _name_of(target), target)

    def _verify(self, command: Message) -> Message | None:
        """Return a refusal of a command whose token does not allow it.

        A command of a writer carries no token: it is allowed while that of the writer's `SetupAppend` is. Otherwise
        this raises ConnectionOver, because the client then sets up its writer with another token.
        """
        need = need_of(command)
        if need is None:
            return None
        if need.writer is not None:
            if need.writer in self._writers and not self._authority.still_allows(
                self._delegations[need.writer]
            ):
                raise ConnectionOver("the token of a writer has expired, or does not hold any more")
            return None
        try:
            found = self._authority.verify_token(need.token, need.permission, *need.resources)
        except TokenRefused as why:
            LOG.log(
                logging.INFO if isinstance(why, TokenExpired) else logging.WARNING,
                "a command was refused: %s",
                why,
            )
            code = c.TOKEN_EXPIRED if isinstance(why, TokenExpired) else c.TOKEN_REFUSED
            return c.AuthTokenCheckFailed(need.request_id, "", code)
        self._channel.accept_frames()
        self.on_token()
        if isinstance(command, c.SetupAppend):
            self._delegated = found
        return None

    async def _refuse(self, reply: Message) -> None:
        await anyio.sleep(REFUSAL_PAUSE_S)
        await self._channel.send(reply)

    # Appends.

    async def _set_up(self, command: c.SetupAppend) -> Message | None:
        name = command.segment
        if len(self._writers) >= WRITERS_MAX and command.writer not in self._writers:
            raise ConnectionOver(f"it has set up {WRITERS_MAX:,} writers")
        if (transient := self._transients.get(name)) is not None:
            self._writers[command.writer] = transient
            self._delegations[command.writer] = self._delegated
            return c.AppendSetup(command.request_id, name, command.writer, c.NO_EVENT_NUMBER)
        target = _target(name)
        look = partial(calls.set_up_writer, target=target, writer=command.writer)
        # A write, so that earlier appends of the writer come first.
        writer = await self._ownership.write(target, look)
        self._writers[command.writer] = writer
        self._delegations[command.writer] = self._delegated
        last = writer.last - 1 if writer.last else c.NO_EVENT_NUMBER
        return c.AppendSetup(command.request_id, name, command.writer, last)

    async def _append_two_frames(self, command: c.AppendBlock) -> Message | None:
        """Append a block whose end follows immediately; both frames are in memory until then."""
        async with self._channel.receiving() as frame:
            end = parse(frame)
            if not isinstance(end, c.AppendBlockEnd) or end.writer != command.writer:
                raise MalformedFrame("the end of a block does not follow the block")
            self._verify(end)  # it may come long after the block
            return await self._append_data(end, _whole_block(command.data, end))

    async def _append(self, command: c.AppendBlockEnd) -> Message | None:
        return await self._append_data(command, command.data)

    async def _append_data(self, command: c.AppendBlockEnd, data: bytes) -> Message | None:
        events = from_frames(data, command.event_count)
        append = partial(calls.append_block, events=events)
        return await self._append_events(
            command.writer, events, command.last_event_number, command.request_id, append
        )

    async def _append_at(self, command: c.ConditionalAppend) -> Message | None:
        events = from_frames(command.event, 1)
        append = partial(calls.append_at, events=events, offset=command.expected_offset)
        return await self._append_events(
            command.writer, events, command.event_number, command.request_id, append
        )

    async def _append_events(
        self,
        who: bytes,
        events: EncodedBlock,
        event_number: int,
        request_id: int,
        append: Callable[..., int],
    ) -> Message | None:
        writer = self._writers.get(who)
        if not isinstance(writer, calls.WireWriter):
            raise MalformedFrame("events of a writer that was not set up for a segment of a stream")
        sequence, previous = _sequence_of(event_number), writer.last
        name = _name_of(writer.target)
        if sequence <= previous:  # durable already
            return c.DataAppended(who, event_number, previous - 1, request_id, 0)
        try:
            length = await self._ownership.write(
                writer.target, partial(append, writer=writer, sequence=sequence), size_bytes=events.size_bytes
            )
        except MovedSegment:  # caught here, where the id of the request is known
            raise RefusedCommand(self._wrong_host(request_id, writer.target)) from None
        except SegmentSealed:
            return c.SegmentIsSealed(request_id, name, "", event_number)
        except OffsetConflict:
            return c.ConditionalCheckFailed(who, event_number, request_id)
        except (NotFound, TransactionAborted, IllegalTransition):
            raise RefusedCommand(_missing(request_id, name)) from None
        writer.last = sequence
        return c.DataAppended(who, event_number, previous - 1 if previous else -1, request_id, length)

    # Large events: a transient segment lives in the memory of its connection.

    async def _create_transient(self, command: c.CreateTransientSegment) -> Message | None:
        parent = self._owned(command.parent)
        await self._db.read(partial(calls.find_writable_stream_id, target=parent))
        if len(self._transients) >= TRANSIENTS_MAX:
            raise ConnectionOver(f"it has {TRANSIENTS_MAX} transient segments")
        name = new_transient_name(command.parent, command.writer, self._db.clock)
        self._transients[name] = bytearray()
        return c.SegmentCreated(command.request_id, name)

    async def _append_bytes_at(self, command: c.ConditionalBlockEnd) -> Message | None:
        _sequence_of(command.event_number)
        transient = self._writers.get(command.writer)
        if not isinstance(transient, bytearray):
            return await self._append_to_byte_stream(command)
        if len(transient) != command.expected_offset:
            return c.ConditionalCheckFailed(command.writer, command.event_number, command.request_id)
        if sum(map(len, self._transients.values())) + len(command.data) > TRANSIENT_BYTES_MAX:
            raise MalformedFrame(f"transient segments of more than {TRANSIENT_BYTES_MAX} bytes")
        await self._channel.memory.take(len(command.data))
        transient += command.data
        number = command.event_number
        return c.DataAppended(command.writer, number, number - 1, command.request_id, len(transient))

    async def _append_to_byte_stream(self, command: c.ConditionalBlockEnd) -> Message | None:
        """Append a block as one event, which begins where the client expects it."""
        writer = self._writers.get(command.writer)
        if isinstance(writer, calls.WireWriter) and not command.data:
            number, offset = command.event_number, command.expected_offset
            return c.DataAppended(command.writer, number, number - 1, command.request_id, offset)
        events = from_frames(FRAME_HEAD.pack(0, len(command.data)) + command.data, 1)
        append = partial(calls.append_bytes, events=events, offset=command.expected_offset)
        try:
            return await self._append_events(
                command.writer, events, command.event_number, command.request_id, append
            )
        except InvalidArgument as why:
            assert isinstance(writer, calls.WireWriter), "other writers are malformed"
            raise RefusedCommand(_invalid(command.request_id, _name_of(writer.target), why)) from None

    async def _merge(self, command: c.MergeSegments) -> Message | None:
        """Append a transient segment, which ends with that; a repeated command finds that it was appended.

        It also ends if the target is sealed, because the client then writes the event to a successor.
        """
        request_id, target = command.request_id, _target(command.target)
        source = self._transients.get(command.source)
        if source is None and not is_transient_of(command.target, command.source):
            raise RefusedCommand(_missing(request_id, command.source))
        if (identity := calls.merge_identity(target, command)) is None:
            raise RefusedCommand(c.OperationUnsupported(request_id, "MergeSegments with attributes", ""))
        events = None if source is None else from_frames(bytes(source))
        merge = partial(calls.append_merged, target=target, events=events, identity=identity)
        try:
            size_bytes = 0 if events is None else events.size_bytes
            length = await self._ownership.write(target, merge, size_bytes=size_bytes)
        except SegmentSealed:
            await self._drop_transient(command.source)
            return c.SegmentIsSealed(request_id, command.target, "", 0)
        except WriterFenced:
            return c.SegmentAttributeUpdated(request_id, False)
        except (NotFound, TransactionAborted, IllegalTransition) as why:
            is_source = isinstance(why, NotFound) and why.kind == "transient segment"
            raise RefusedCommand(
                _missing(request_id, command.source if is_source else command.target)
            ) from None
        await self._drop_transient(command.source)
        return c.SegmentsMerged(request_id, command.target, command.source, length)

    async def _drop_transient(self, name: str) -> None:
        if (dropped := self._transients.pop(name, None)) is not None:
            self._writers = {who: writer for who, writer in self._writers.items() if writer is not dropped}
            self._delegations = {
                who: found for who, found in self._delegations.items() if who in self._writers
            }
            await self._channel.memory.give_back(len(dropped))

    # Looking and reading.

    def _owned(self, name: str) -> WireSegment:
        """Return the segment of this name. Raises NotFound if it is that of none, MovedSegment."""
        target = _target(name)
        self._ownership.verify(target)
        return target

    async def _describe(self, command: c.GetStreamSegmentInfo) -> Message | None:
        target = self._owned(command.segment)
        state = await self._db.read(partial(calls.look_at_segment, target=target))
        now_ms = self._db.clock.wall_ms()
        where = state.tail, state.head
        return c.StreamSegmentInfo(
            command.request_id, command.segment, True, state.sealed, False, now_ms, *where
        )

    async def _get_attribute(self, command: c.GetSegmentAttribute) -> Message | None:
        target = self._owned(command.segment)
        look = partial(calls.get_attribute, target=target, attribute=command.attribute)
        return c.SegmentAttribute(command.request_id, await self._db.read(look))

    async def _update_attribute(self, command: c.UpdateSegmentAttribute) -> Message | None:
        target = _target(command.segment)
        update = partial(
            calls.compare_and_set_attribute,
            target=target,
            attribute=command.attribute,
            expected=command.expected,
            value=command.value,
        )
        try:
            return c.SegmentAttributeUpdated(command.request_id, await self._ownership.write(target, update))
        except SegmentSealed:
            raise RefusedCommand(c.SegmentIsSealed(command.request_id, command.segment, "", 0)) from None

    async def _truncate(self, command: c.TruncateSegment) -> Message | None:
        target = self._owned(command.segment)
        try:
            await truncate_segment(self._db, target, command.offset)
        except NotFound:
            raise
        except EventprocError as why:
            raise RefusedCommand(c.ErrorMessage(command.request_id, command.segment, str(why), -1)) from None
        return c.SegmentTruncated(command.request_id, command.segment)

    async def _poll(self, command: c.ReadSegment) -> None:
        try:
            await self._answer(self._read, command)
        finally:
            self._polls.release()

    async def _read(self, command: c.ReadSegment) -> None:
        """Send bytes as soon as there are any. Raises as a handler if there will be none."""
        target = _target(command.segment)
        bytes_max = min(max(command.suggested_length, 8), READ_BYTES_MAX)
        read = partial(calls.read_segment, target=target, offset=command.offset, bytes_max=bytes_max)
        until_ms = self._db.clock.monotonic_ms() + POLL_MS
        waiting = await self._send_read(command, target, read, None)
        while waiting is not None:
            with (
                self._db.subscribe([watch_stream(waiting.stream_id)]) as changes,
                self._ownership.containers.notifying(changes),
            ):
                # What came before the subscription is seen here.
                waiting = await self._send_read(command, target, read, until_ms)
                while waiting is not None:
                    await changes.wait(max(until_ms - self._db.clock.monotonic_ms(), 0))
                    waiting = await self._send_read(command, target, read, until_ms)

    async def _send_read(
        self,
        command: c.ReadSegment,
        target: WireSegment,
        read: Callable[[Tx], calls.SegmentBytes],
        until_ms: int | None,
    ) -> calls.SegmentBytes | None:
        """Send the bytes that there are, and return None; or return what says that there are none yet.

        until_ms: when to answer without bytes, in monotonic ms. Raises as `_read`.
        """
        async with self._channel.sending:  # bytes are loaded when they can be sent
            self._ownership.verify(target)
            found = await self._db.read(read)
            if (refusal := self._verify(command)) is not None:  # the grant may have been revoked meanwhile
                raise RefusedCommand(refusal)
            state = found.state
            if command.offset < state.head:
                raise RefusedCommand(
                    c.SegmentIsTruncated(command.request_id, command.segment, state.head, "", command.offset)
                )
            if command.offset > state.tail:
                text = f"offset {command.offset} lies beyond the end {state.tail}"
                raise RefusedCommand(
                    c.ErrorMessage(command.request_id, command.segment, text, c.ILLEGAL_ARGUMENT)
                )
            is_over = until_ms is not None and self._db.clock.monotonic_ms() >= until_ms
            if not (found.data or state.sealed or is_over):
                return found
            at_tail = found.reaches_tail
            await self._channel.send_locked(
                c.SegmentRead(
                    command.segment,
                    command.offset,
                    at_tail,
                    at_tail and state.sealed,
                    found.data,
                    command.request_id,
                )
            )
        return None


def _target(name: str) -> WireSegment:
    """Return the segment of this name. Raises NotFound if no stream can have it."""
    if (found := parse_segment_name(name)) is None:
        raise NotFound(kind="segment", name=name)
    return found


def _sequence_of(event_number: int) -> int:
    """Return the sequence of an event. Raises MalformedFrame for a number that no event has."""
    if not 0 <= event_number < INT_MAX:
        raise MalformedFrame(f"event number {event_number}")
    return event_number + 1


def _missing(request_id: int, segment: str) -> Message:
    return c.NoSuchSegment(request_id, segment, "", -1)


def _invalid(request_id: int, segment: str, why: Exception) -> Message:
    return c.ErrorMessage(request_id, segment, str(why), c.ILLEGAL_ARGUMENT)


def _unsupported(frame: Frame) -> Message:
    """Return the refusal of a command that is not served."""
    return c.OperationUnsupported(_request_id_of(frame), f"command {frame.kind}", "")


def _request_id_of(frame: Frame) -> int:
    """Return the id of a request: nearly all commands begin with it, other than blocks and reads."""
    return int.from_bytes(frame.payload[:8], "big", signed=True)


def _name_of(target: WireSegment) -> str:
    name = segment_name(target.stream, target.segment)
    return name if target.txn is None else f"{name}#transaction.{target.txn}"


def _whole_block(body: bytes, end: c.AppendBlockEnd) -> bytes:
    """Return the events of a block that came in two frames, the first of which may end with a part of an event."""
    whole = end.size_of_whole_events
    if not 0 <= whole <= len(body):
        raise MalformedFrame(f"a block of {len(body)} bytes ends with {whole} of whole events")
    part = parse(_last_frame(body[whole:])) if whole < len(body) else None
    return b"".join((body[:whole], part.data if isinstance(part, c.PartialEvent) else b"", end.data))


def _last_frame(data: bytes) -> Frame:
    """Return the frame at the end of a block."""
    if len(data) < FRAME_HEAD.size:
        raise MalformedFrame("the end of a block is no frame")
    return Frame(FRAME_HEAD.unpack_from(data)[0], data[FRAME_HEAD.size :])
