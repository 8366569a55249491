"""What a writer sends at once, how that is appended, and where its events lie then."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import anyio
import attrs

from eventproc.base.durations import Durations
from eventproc.store.database import Database, SharedSlot, Tx
from eventproc.store.delayed_events import NewDelayedEvent, store_delayed
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.delays import DelayedEvent
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.segments import (
    NO_HEADERS,
    AppendResult,
    Event,
    EventRun,
    Headers,
    SegmentEvents,
    WriterSequence,
    append,
    next_append,
    note_sequence,
    shown_headers,
)
from eventproc.streams.new_events import NewEvent
from eventproc.streams.segment_buffers import BufferPlace, SegmentBuffer

if TYPE_CHECKING:
    from eventproc.base.spans import Traces
    from eventproc.store.event_ids import AppendedOnce

P = TypeVar("P")

SendPlace: TypeAlias = tuple[int, SegmentId, int] | NewDelayedEvent
"""Which event of a send: (epoch that routed it, segment of its buffer, index in that); or the delayed one itself."""


EVENTS_SENT: Final[SharedSlot[Counter[str]]] = SharedSlot(Counter)
"""How many events the writers of this opening have made durable, by stream."""

SEND_DURATIONS: Final[SharedSlot[Durations]] = SharedSlot(Durations)
"""How long the sends of the writers of this opening took, by stream and error."""


@attrs.define(eq=False)
class Send:
    """Events that are sent together, and the result.

    sequence: chosen by the caller; None: the writer's own count.
    posted: some events were posted, so no caller awaits them and the writer must keep a failure.
    delayed: events that are stored now, and appended later.
    is_new: it was durable and had not been before.
    ids: which event has an id. No two of them have the same.
    awaited: a caller asks where its event lies, see `event`.
    ends: called with the error when it is resolved: they end the spans of its events, and its measurement.
    """

    buffers: Sequence[SegmentBuffer] = ()
    size_bytes: int = 0
    sequence: int | None = None
    posted: bool = False
    resolved: bool = False
    error: EventprocError | None = None
    delayed: list[NewDelayedEvent] = attrs.field(factory=list)
    is_new: bool = False
    ids: dict[str, SendPlace] = attrs.field(factory=dict)
    awaited: bool = False
    ends: list[Callable[[EventprocError | None], None]] = attrs.field(factory=list)
    _appended: tuple[Sequence[SegmentEvents], Sequence[AppendResult], Sequence[int]] = (), (), ()
    _once: AppendedOnce | None = None
    _moved: dict[tuple[int, BufferPlace], tuple[int, BufferPlace]] = attrs.field(factory=dict)
    _events: dict[SegmentId, list[Event[Any]]] = attrs.field(factory=dict)
    _done: anyio.Event | None = None

    def resolve(self, error: EventprocError | None) -> None:
        """Wake the waiting callers: the events are durable if `error` is None. A second call changes nothing."""
        if not self.resolved:
            self.resolved = True
            self.error = error
            if self._done is not None:
                self._done.set()
            for end in self.ends:
                end(error)

    def trace(
        self,
        traces: Traces | None,
        stream: str,
        headers: Headers | None,
        added: SegmentBuffer | NewDelayedEvent,
    ) -> None:
        """Begin the span of an event of this send, unless it is not traced, and put its context into its headers.

        added: has the event, as its last one.
        """
        if traces is None or (begun := traces.begin_send(stream, headers)) is None:
            return
        carrying, end = begun
        self.ends.append(end)
        added.replace_headers(carrying)

    def measure(self, db: Database, stream: str) -> None:
        """Measure how long it takes from now until this send is resolved."""
        began_ms, durations = db.clock.monotonic_ms(), db.shared[SEND_DURATIONS]

        def end(error: EventprocError | None) -> None:
            name = "" if error is None else type(error).__name__
            durations.record((stream, name), began_ms, db.clock.monotonic_ms())

        self.ends.append(end)

    def done(self) -> anyio.Event:
        """Return an event that is set once the send is resolved. Created on demand, as most sends have no waiter."""
        if self._done is None:
            self._done = anyio.Event()
            if self.resolved:
                self._done.set()
        return self._done

    def move(self, old: int, new: int, moved: Mapping[BufferPlace, BufferPlace]) -> None:
        """Note which event became which when the send was routed by the epoch `new` instead of `old`."""
        if self.awaited or self.ids:
            self._moved.update({(old, before): (new, after) for before, after in moved.items()})

    def append(
        self,
        tx: Tx,
        stream: str,
        stream_id: int,
        parts: Sequence[SegmentEvents],
        *,
        identity: WriterSequence | None,
        guard: SegmentId | None,
    ) -> int | None:
        """Append the encoded buffers, and store what is delayed; return the number of new events.

        None: the identity did that before. Raises what `append` and `store_delayed` raise; then nothing changed.
        """
        if self.ids:
            from eventproc.store.event_ids import append_once  # few programs need it

            once = append_once(tx, stream, stream_id, parts, self.delayed, identity=identity, guard=guard)
            if once is None:
                return None
            # Places are read when the send is resolved, and a second run of the transaction notes its own.
            self._once = once
            self._appended = once.parts, once.appended, once.times
            return once.count
        appended: tuple[AppendResult, ...] = ()
        if parts or identity is None:
            appended = append(tx, stream, stream_id, parts, identity=identity, guard=guard)
            is_new = bool(appended) or not parts
        else:
            is_new = note_sequence(tx, stream_id, identity)
        if not is_new:
            return None
        if self.delayed:
            store_delayed(tx, stream, stream_id, self.delayed)
        if self.awaited:
            times = [next_append(tx, stream, stream_id, part.segment)[2] for part in appended]
            self._appended = parts, appended, times
        return sum([part.count for part in appended]) + len(self.delayed)

    def written(self, stream: str, event: NewEvent[P], place: SendPlace) -> Event[P] | DelayedEvent[P]:
        """Return what the caller of an event with an id or a delay gets. Raises InvalidArgument: the first one waits.

        place: which event of the send it is, or the first one of its id is.
        """
        from eventproc.store.event_ids import EventPlace

        first = None if event.id is None or self._once is None else self._once.firsts.get(event.id)
        if first is None:
            if isinstance(place, NewDelayedEvent):
                first = place.described(stream, place.payload)
            else:
                found = self.event(stream, *place, event.payload)
                first = EventPlace(found.segment, found.offset, found.number, found.timestamp)
        if isinstance(first, EventPlace):
            headers = shown_headers(event.stored_headers or NO_HEADERS)
            segment, offset, number, time_ms = first
            return Event(
                event.payload,
                event.key,
                time_ms,
                event.event_time,
                stream,
                printable(segment),
                offset,
                number,
                headers,
            )
        if not event.is_delayed:
            reason = f"a delayed event of {stream} has it, which is not due yet; cancel that one, or use another id"
            raise invalid_argument("id", event.id, reason)
        return attrs.evolve(cast("DelayedEvent[Any]", first), payload=event.payload)

    def event(self, stream: str, epoch: int, segment: SegmentId, index: int, payload: P) -> Event[P]:
        """Return an event as readers of the stream get it: the one at this index of its buffer, in the epoch then."""
        while self._moved and (epoch, (segment, index)) in self._moved:
            epoch, (segment, index) = self._moved[epoch, (segment, index)]
        if not self._events:
            for part, first, time in zip(*self._appended, strict=True):
                block = part.events.block
                columns = list(block.payloads), block.keys, block.event_times, block.headers
                run = EventRun(first.segment, first.offset, 0, first.number, time, *columns)
                self._events[first.segment] = list(run.events(stream))
        if self._once is not None:
            index -= bisect_left(self._once.repeated.get(segment, ()), index)
        event = self._events[segment][index]
        return event if event.payload is payload else event._replace(payload=payload)

    async def wait(self) -> None:
        """Return when the events are durable. Raises the failure."""
        await self.done().wait()
        if self.error is not None:
            raise self.error
