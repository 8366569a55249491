"""Events that wait to be sent, in one buffer per segment. Pure: no I/O.

A buffer collects the events of one active segment in the order of the calls, so that a send sorts nothing. After a
scale the buffers of the old epoch are poured into those of the new one. All events of a key are in one buffer, so
their order holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import attrs

from eventproc.store.catalog.routes import KEYS_KNOWN_MAX, NO_POSITION, KeyRoutes
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import EVENT_BYTES_MAX, FRAME_BYTES
from eventproc.store.model.routing import check_key, position
from eventproc.store.segments import EventBlock, Headers, SegmentEvents
from eventproc.streams.new_events import check_event_time, check_headers, check_size


@attrs.define(eq=False)
class SegmentBuffer:
    """Events for one segment, one list per column; the last two are None until an event needs them."""

    segment: SegmentId
    payloads: list[bytes] = attrs.field(factory=list)
    keys: list[str | None] = attrs.field(factory=list)
    event_times: list[int | None] | None = None
    headers: list[Headers | None] | None = None

    def add_extra(self, event_time: int | None, headers: Headers | None) -> None:
        """Add the event time and headers of the event that was added last."""
        before = len(self.payloads) - 1
        if self.event_times is None and event_time is not None:
            absent_times: list[int | None] = [None] * before
            self.event_times = absent_times
        if self.event_times is not None:
            self.event_times.append(event_time)
        if self.headers is None and headers is not None:
            absent: list[Headers | None] = [None] * before
            self.headers = absent
        if self.headers is not None:
            self.headers.append(headers)

    def take(self) -> SegmentBuffer:
        """Return a buffer with the events of this one, which is then empty."""
        taken = SegmentBuffer(self.segment, self.payloads, self.keys, self.event_times, self.headers)
        self.payloads, self.keys, self.event_times, self.headers = [], [], None, None
        return taken

    @property
    def has_extra(self) -> bool:
        """Whether an event has an event time or headers."""
        return self.event_times is not None or self.headers is not None


class SegmentBuffers:
    """The buffers of one epoch's segments."""

    def __init__(self, routes: KeyRoutes, spread: int) -> None:
        """spread: any number; selects the active segment that takes the events without a key."""
        self._routes = routes
        self._by_segment: dict[SegmentId, SegmentBuffer] = {}
        self._by_key: dict[str | None, SegmentBuffer] = {}
        self._spread = spread
        self.find = self._by_key.get  # the buffer of a known key; a dictionary look-up without a Python call

    def open(self, key: str | None) -> SegmentBuffer:
        """Return the buffer of a key that `find` does not know. Raises InvalidArgument for an invalid key."""
        if len(self._by_key) >= KEYS_KNOWN_MAX:
            self._by_key.clear()
        if key is None:
            ids = self._routes.epoch.ids
            segment = ids[self._spread % len(ids)]
        else:
            segment = self._routes.segment(key)
        if (buffer := self._by_segment.get(segment)) is None:
            buffer = self._by_segment[segment] = SegmentBuffer(segment)
        self._by_key[key] = buffer
        return buffer

    def take(self) -> list[SegmentBuffer]:
        """Return the buffers that have events; those here are then empty."""
        return [buffer.take() for buffer in self._by_segment.values() if buffer.payloads]

    def parts(self, buffers: Iterable[SegmentBuffer]) -> list[SegmentEvents]:
        """Return the buffers' events encoded for their segments."""
        positions = self._routes.positions
        parts = []
        for buffer in buffers:
            keyed = buffer.keys.count(None) < len(buffer.keys)
            where = (
                [positions[key] if key in positions else _position(key) for key in buffer.keys]
                if keyed
                else None
            )
            keys = buffer.keys if keyed else None
            parts.append(
                SegmentEvents(
                    buffer.segment,
                    EventBlock(buffer.payloads, keys, where, buffer.event_times, buffer.headers).encode(),
                )
            )
        return parts

    def pour(self, buffers: Iterable[SegmentBuffer]) -> None:
        """Add the events of an older epoch's buffers, in their order, to these."""
        for buffer in buffers:
            times = buffer.event_times or [None] * len(buffer.keys)
            headers = buffer.headers or [None] * len(buffer.keys)
            for payload, key, event_time, header in zip(
                buffer.payloads, buffer.keys, times, headers, strict=True
            ):
                into = self.find(key) or self.open(key)
                into.payloads.append(payload)
                into.keys.append(key)
                if event_time is not None or header is not None or into.has_extra:
                    into.add_extra(event_time, header)


def _position(key: str | None) -> float:
    return NO_POSITION if key is None else position(key)


def add_event(
    buffers: SegmentBuffers,
    data: bytes,
    key: str | None,
    event_time: int | None,
    headers: Mapping[str, str] | None,
) -> int:
    """Check an event and add it to the buffer of its key; return its size in the segment.

    The same for writers and transactions. Raises InvalidArgument; then nothing was added.
    """
    size = len(data) + FRAME_BYTES
    if size > EVENT_BYTES_MAX:
        check_size(data)
    if headers is not None:
        headers = check_headers(headers)
    if event_time is not None:
        check_event_time(event_time)
    try:
        buffer = buffers.find(key) or buffers.open(key)
    except TypeError:  # the key is not hashable
        buffer = buffers.open(check_key(cast("str", key)))
    buffer.payloads.append(data)
    buffer.keys.append(key)
    if event_time is not None or headers or buffer.has_extra:
        buffer.add_extra(event_time, headers or None)
    return size
