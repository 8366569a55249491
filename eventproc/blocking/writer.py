"""Writing to a stream without `await`: posted events wait on the caller's side, and are handed over in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import anyio
import attrs

from eventproc.blocking.buffer import Buffer
from eventproc.blocking.loop import Loop, Opened
from eventproc.blocking.twins import BlockingTwin, twin_of
from eventproc.store.model.delays import DelayedEvent
from eventproc.store.model.errors import Closed, WriterFailed
from eventproc.store.segments import Event
from eventproc.streams import EventWriter, NewEvent
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import check_events, reserving

T = TypeVar("T")


@twin_of(EventWriter)
class BlockingWriter(BlockingTwin, Opened):
    """Appends events to one stream, by one thread at a time.

    Made open by `BlockingStream.writer` and `BlockingTopic.producer`. `close`, or leaving its `with`, waits until
    everything posted is durable and raises the first failure.
    """

    _twin: EventWriter[bytes]

    def __init__(self, loop: Loop, writer: EventWriter[bytes], codec: PayloadCodec[Any]) -> None:
        """writer: takes bytes; `codec` encodes on the caller's side, so a wrong payload is refused immediately."""
        super().__init__(loop, writer)
        self._buffer = Buffer(codec, self._verify_open)
        # Being handed to the loop, which may go on after an interrupt of the call.
        self._handed: deque[NewEvent[bytes]] = deque()
        self._one_hand_over = anyio.Lock()

    def write(
        self,
        payload: Any,
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
    ) -> Event[Any] | DelayedEvent[Any]:
        """Append one event, and return it when it is durable. See `EventWriter.write`."""
        headers = reserving(headers, ttl_ms=ttl_ms, priority=priority)
        event = self._buffer.event(payload, key, event_time, headers, partition, delay_ms, at, id)
        self._hand_over()
        found = self._loop.call(self._write, event)
        if isinstance(found, DelayedEvent):
            return attrs.evolve(found, payload=payload)
        return found._replace(payload=payload)

    def post(
        self,
        payload: Any,
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
        """Append one event without waiting for it; `flush`, or the end of the block, raises if it failed.

        An invalid event raises InvalidArgument immediately, one for which there is no partition in a later call. See
        `EventWriter.post`. About 2 us.
        """
        headers = reserving(headers, ttl_ms=ttl_ms, priority=priority)
        event = self._buffer.event(payload, key, event_time, headers, partition, delay_ms, at, id)
        if self._buffer.add(event):
            self._hand_over()
            self._loop.call(self._post)

    def write_many(
        self, events: Iterable[NewEvent[Any] | tuple[Any, str | bytes | None]], *, sequence: int | None = None
    ) -> int:
        """Append events, in order, in few transactions; return their number when all are durable.

        See `EventWriter.write_many`.
        """
        check_events(events)
        if sequence is not None:
            encoded = [self._buffer.encoded(event) for event in events]
            self._hand_over()
            return self._loop.call(self._write_many, encoded, sequence)
        count = 0
        for chunk in self._buffer.chunks(events):
            self._hand_over()
            count += self._loop.call(self._write_many, chunk, None)
        return count

    def flush(self) -> None:
        """Return when everything posted so far is durable. Raises the first failure, and only once."""
        self._hand_over()
        self._loop.call(self._flush)

    def note_time(self, time: int) -> None:
        """Say that no event that this writer writes from now on is older. See `EventWriter.note_time`."""
        self._hand_over()
        self._loop.call(self._note_time, time)

    def _leave(self, why: BaseException | None) -> None:
        try:
            if why is None or isinstance(why, Exception):
                self._hand_over()
                self._loop.call(self._post)
        except WriterFailed:
            pass  # leaving raises the failure itself
        finally:
            super()._leave(why)  # on an interrupt it drops waiting events

    def _verify_open(self) -> None:
        if self.closed:
            raise Closed(what=self._twin._what)
        self._loop.check()

    def _hand_over(self) -> None:
        self._handed.extend(self._buffer.take())

    # On the loop's thread:

    async def _post(self) -> None:
        """Post what was handed over, also behind an event that is refused. Raises the first refusal.

        An interrupt of the call does not end it: earlier calls have posted these events.
        """
        refusal: Exception | None = None
        with anyio.CancelScope(shield=True):
            async with self._one_hand_over:
                while self._handed:
                    event = self._handed.popleft()
                    try:
                        await _given(self._twin.post, event)
                    except Exception as why:
                        refusal = refusal or why
        if refusal is not None:
            raise refusal

    async def _write(self, event: NewEvent[bytes]) -> Event[Any] | DelayedEvent[Any]:
        await self._post()
        written: Event[Any] | DelayedEvent[Any] = await _given(self._twin.write, event)
        return written

    async def _write_many(self, events: list[NewEvent[bytes]], sequence: int | None) -> int:
        await self._post()
        return await self._twin.write_many(events, sequence=sequence)

    async def _note_time(self, time: int) -> None:
        await self._post()
        await self._twin.note_time(time)

    async def _flush(self) -> None:
        try:
            await self._post()
        except WriterFailed:
            pass  # flush raises the failure itself
        await self._twin.flush()


def _given(call: Callable[..., Awaitable[T]], event: NewEvent[bytes]) -> Awaitable[T]:
    """Call `write` or `post` with an event."""
    return call(
        event.payload,
        key=event.key,
        event_time=event.event_time,
        headers=event.headers,
        partition=event.partition,
        id=event.id,
        delay_ms=event.delay_ms,
        at=event.at,
    )
