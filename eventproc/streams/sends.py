"""What a writer sends at once, and where its events lie after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import anyio
import attrs

from eventproc.store.delayed_events import NewDelayedEvent
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import AppendResult, Event, EventRun
from eventproc.streams.segment_buffers import BufferPlace, SegmentBuffer

P = TypeVar("P")


@attrs.define(eq=False)
class Send:
    """Events that are sent together, and the result.

    sequence: chosen by the caller; None: the writer's own count.
    posted: some events were posted, so no caller awaits them and the writer must keep a failure.
    delayed: events that are stored now, and appended later.
    is_new: it was durable and had not been before.
    appended: where the events are; empty if they had been appended before.
    awaited: a caller asks where its event lies, see `event`. times: then, when each of `appended` was, in ms.
    """

    buffers: Sequence[SegmentBuffer] = ()
    size_bytes: int = 0
    sequence: int | None = None
    posted: bool = False
    resolved: bool = False
    error: EventprocError | None = None
    delayed: list[NewDelayedEvent] = attrs.field(factory=list)
    is_new: bool = False
    appended: tuple[AppendResult, ...] = ()
    awaited: bool = False
    times: Sequence[int] = ()
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

    def done(self) -> anyio.Event:
        """Return an event that is set once the send is resolved. Created on demand, as most sends have no waiter."""
        if self._done is None:
            self._done = anyio.Event()
            if self.resolved:
                self._done.set()
        return self._done

    def move(self, old: int, new: int, moved: Mapping[BufferPlace, BufferPlace]) -> None:
        """Note which event became which when the send was routed by the epoch `new` instead of `old`."""
        if self.awaited:
            self._moved.update({(old, before): (new, after) for before, after in moved.items()})

    def event(self, stream: str, epoch: int, segment: SegmentId, index: int, payload: P) -> Event[P]:
        """Return an event as readers of the stream get it: the one at this index of its buffer, in the epoch then."""
        while self._moved and (epoch, (segment, index)) in self._moved:
            epoch, (segment, index) = self._moved[epoch, (segment, index)]
        if not self._events:
            for buffer, first, time in zip(self.buffers, self.appended, self.times, strict=True):
                columns = buffer.payloads, buffer.keys, buffer.event_times, buffer.headers
                run = EventRun(buffer.segment, first.offset, 0, first.number, time, *columns)
                self._events[buffer.segment] = list(run.events(stream))
        event = self._events[segment][index]
        return event if event.payload is payload else event._replace(payload=payload)

    async def wait(self) -> None:
        """Return when the events are durable. Raises the failure."""
        await self.done().wait()
        if self.error is not None:
            raise self.error
