"""Events on the caller's side that wait for one hand-over together: checked here, where they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from eventproc.store.model.routing import check_key
from eventproc.streams import NewEvent
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import as_new_event, check_event_time, check_headers, check_size

P = TypeVar("P")

POSTS_MAX: Final = 1_000
POSTS_BYTES_MAX: Final = 256 * 1024
"""Events, and their bytes, that wait here. A hand-over costs as much as posting a few hundred events; a
buffer much larger than that only makes the disk wait for the caller."""

CHUNK_MAX: Final = 10_000
CHUNK_BYTES_MAX: Final = 4 * 2**20
"""Events, and their bytes, of `write_many` that are handed over before the next ones are taken."""


class Buffer(Generic[P]):
    """What one caller's thread has written since the last hand-over."""

    def __init__(self, codec: PayloadCodec[P], verify: Callable[[], None]) -> None:
        """verify: called for each event; raises when nothing can be written."""
        self._encode = codec.encode
        self._verify = verify
        self._waiting: list[NewEvent[bytes]] = []
        self._waiting_bytes = 0

    def event(
        self, payload: P, key: str | None, event_time: int | None, headers: Mapping[str, str] | None
    ) -> NewEvent[bytes]:
        """Return the event as it is handed over. Raises InvalidArgument, and what `verify` raises."""
        self._verify()
        data = self._encode(payload)
        check_size(data)
        if key is not None:
            check_key(key)
        if event_time is not None:
            check_event_time(event_time)
        if headers is not None:
            headers = check_headers(headers)
        return NewEvent(data, key, event_time, headers)

    def encoded(self, event: NewEvent[P] | tuple[P, str | None]) -> NewEvent[bytes]:
        """Return an event of `write_many` as it is handed over. Raises as `event`."""
        event = as_new_event(event)
        return self.event(event.payload, event.key, event.event_time, event.headers)

    def add(self, event: NewEvent[bytes]) -> bool:
        """Let an event wait; return whether it is time to hand over."""
        self._waiting.append(event)
        self._waiting_bytes += len(event.payload)
        return len(self._waiting) >= POSTS_MAX or self._waiting_bytes >= POSTS_BYTES_MAX

    def take(self) -> list[NewEvent[bytes]]:
        """Return the events that wait here, and leave none."""
        taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
        return taken

    def chunks(self, events: Iterable[NewEvent[P] | tuple[P, str | None]]) -> Iterator[list[NewEvent[bytes]]]:
        """Yield the events of an iterable of any length, in pieces to be handed over."""
        chunk: list[NewEvent[bytes]] = []
        size_bytes = 0
        for event in events:
            encoded = self.encoded(event)
            chunk.append(encoded)
            size_bytes += len(encoded.payload)
            if len(chunk) >= CHUNK_MAX or size_bytes >= CHUNK_BYTES_MAX:
                yield chunk
                chunk, size_bytes = [], 0
        if chunk:
            yield chunk
