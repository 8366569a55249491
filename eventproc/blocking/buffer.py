"""Events that wait on the caller's side for one call of the loop; they are checked here, before they wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Generic, TypeVar

from eventproc.base.telemetry_use import find_traces
from eventproc.store.model.delays import Delay
from eventproc.store.model.routing import check_key
from eventproc.streams import NewEvent
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import (
    EventOrPair,
    as_new_event,
    check_event_id,
    check_event_time,
    check_headers,
    check_size,
    headers_by_codec,
    reserving,
)

P = TypeVar("P")

POSTS_MAX: Final = 1_000
POSTS_BYTES_MAX: Final = 256 * 1024
"""Events, and their bytes, that wait here. A call of the loop costs as much as posting a few hundred events; a much
larger buffer makes the disk wait for the caller."""

CHUNK_MAX: Final = 10_000
CHUNK_BYTES_MAX: Final = 4 * 2**20
"""Events, and their bytes, of `write_many` in one call of the loop."""


class Buffer(Generic[P]):
    """Events that one thread has written since the last call of the loop."""

    def __init__(self, codec: PayloadCodec[P], verify: Callable[[], None]) -> None:
        """verify: called for each event; raises if the writer is closed."""
        self._encode, self._ttl_ms = codec.encode, codec.ttl_ms
        self._verify = verify
        self._traces = find_traces()
        self._waiting: list[NewEvent[bytes]] = []
        self._waiting_bytes = 0

    def event(
        self,
        payload: P,
        key: str | bytes | None,
        event_time: int | None,
        headers: Mapping[str, str] | None,
        partition: int | None = None,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
        id: str | None = None,
    ) -> NewEvent[bytes]:
        """Return the event as it is handed over. Raises InvalidArgument, and what `verify` raises."""
        self._verify()
        Delay.make(delay_ms, at)
        data = self._encode(payload)
        check_size(data)
        text = None if key is None else check_key(key)
        if event_time is not None:
            check_event_time(event_time)
        if self._ttl_ms is not None:
            headers = headers_by_codec(headers, self._ttl_ms)
        if self._traces is not None:
            headers = self._traces.carrying(headers)
        if headers is not None:
            headers = check_headers(headers)
        if id is not None:
            check_event_id(id)
        return NewEvent(data, text, event_time, headers, partition, None, delay_ms, at, id)

    def encoded(self, event: EventOrPair[P]) -> NewEvent[bytes]:
        """Return an event of `write_many` as it is handed over. Raises as `event`."""
        new = as_new_event(event)
        headers = reserving(new.headers, ttl_ms=new.ttl_ms, priority=new.priority)
        when = new.delay_ms, new.at
        return self.event(new.payload, new.key, new.event_time, headers, new.partition, *when, new.id)

    def add(self, event: NewEvent[bytes]) -> bool:
        """Add an event; return whether the buffer is full."""
        self._waiting.append(event)
        self._waiting_bytes += len(event.payload)
        return len(self._waiting) >= POSTS_MAX or self._waiting_bytes >= POSTS_BYTES_MAX

    def take(self) -> list[NewEvent[bytes]]:
        """Return the waiting events, and empty the buffer."""
        taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return taken

    def chunks(self, events: Iterable[EventOrPair[P]]) -> Iterator[list[NewEvent[bytes]]]:
        """Yield the events of an iterable of any length, in chunks for one call each.

        If an event is not valid, or the iterable raises, those before it come first.
        """
        chunk: list[NewEvent[bytes]] = []
        size_bytes = 0
        failure: Exception | None = None
        try:
            for event in events:
                encoded = self.encoded(event)
                chunk.append(encoded)
                size_bytes += len(encoded.payload)
                if len(chunk) >= CHUNK_MAX or size_bytes >= CHUNK_BYTES_MAX:
                    yield chunk
                    chunk, size_bytes = [], 0
        except Exception as why:
            failure = why
        if chunk:
            yield chunk
        if failure is not None:
            raise failure
