"""Events that wait to be sent, in one buffer per segment. Pure: no I/O.

A buffer collects the events of one active segment in the order of the calls, so that a send sorts nothing. After a
scale the buffers of the old epoch are poured into those of the new one. All events of a key are in one buffer, so
their order holds. An event of a topic that was written to a chosen partition stays in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Final, TypeAlias, cast

import attrs

from eventproc.store.catalog.routes import KEYS_KNOWN_MAX, NO_POINT, KeyRoutes
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.limits import EVENT_BYTES_MAX, FRAME_BYTES
from eventproc.store.model.partitions import stored_point
from eventproc.store.model.routing import check_key, key_text, point
from eventproc.store.segments import EventBlock, Headers, SegmentEvents
from eventproc.streams.new_events import check_event_time, check_headers, check_size

BufferPlace: TypeAlias = tuple[SegmentId, int]
"""Which event of some buffers: (segment of its buffer, index in it)."""


@attrs.define(eq=False)
class SegmentBuffer:
    """Events for one segment, one list per column; the last three are None until an event needs them.

    chosen: whether the event was written to this partition, and not routed to it.
    """

    segment: SegmentId
    payloads: list[bytes] = attrs.field(factory=list)
    keys: list[str | None] = attrs.field(factory=list)
    event_times: list[int | None] | None = None
    headers: list[Headers | None] | None = None
    chosen: list[bool] | None = None

    def add_extra(self, event_time: int | None, headers: Headers | None, *, chosen: bool = False) -> None:
        """Add what few events have, of the event that was added last."""
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
        if self.chosen is None and chosen:
            self.chosen = [False] * before
        if self.chosen is not None:
            self.chosen.append(chosen)

    def replace_headers(self, headers: Headers) -> None:
        """Let the event that was added last have other headers."""
        columns: list[Headers | None] = self.headers or [None] * len(self.payloads)
        columns[-1] = headers
        self.headers = columns

    def take(self) -> SegmentBuffer:
        """Return a buffer with the events of this one, which is then empty."""
        taken = SegmentBuffer(
            self.segment, self.payloads, self.keys, self.event_times, self.headers, self.chosen
        )
        self.payloads, self.keys = [], []
        self.event_times = self.headers = self.chosen = None
        return taken

    @property
    def has_extra(self) -> bool:
        """Whether an event has an event time or headers, or was written to a chosen partition."""
        return self.event_times is not None or self.headers is not None or self.chosen is not None


class SegmentBuffers:
    """The buffers of one epoch's segments."""

    def __init__(self, routes: KeyRoutes, spread: int) -> None:
        """spread: any number; selects the segment of events without a key, or the first one of a rotation."""
        self._routes = routes
        self.router = routes.router
        self._by_segment: dict[SegmentId, SegmentBuffer] = {}
        self._by_key: dict[str | None, SegmentBuffer] = {}
        self._spread = spread
        # The buffer of a known key; a dictionary look-up without a Python call.
        self.find: Callable[[str | None], SegmentBuffer | None] = (
            _NOTHING_KNOWN.get if routes.router.rotates else self._by_key.get
        )

    def open(self, key: str | None) -> SegmentBuffer:
        """Return the buffer of a key that `find` does not know. Raises InvalidArgument for an invalid key."""
        router = self._routes.router
        if key is None or router.rotates:
            if key is not None:
                self._routes.segment(key)  # checks it
            buffer = self._buffer(router.segments[self._spread % len(router.segments)])
            if router.rotates:
                self._spread += 1
                return buffer
        else:
            buffer = self._buffer(self._routes.segment(key))
        if len(self._by_key) >= KEYS_KNOWN_MAX:
            self._by_key.clear()
        self._by_key[key] = buffer
        return buffer

    def choose(self, partition: int, key: str | None, *, topic: str) -> SegmentBuffer:
        """Return the buffer of a topic's partition. Raises InvalidArgument for an invalid partition or key."""
        if key is not None:
            check_key(key)
        return self._buffer(self._routes.router.partition(partition, topic=topic))

    def _buffer(self, segment: SegmentId) -> SegmentBuffer:
        if (buffer := self._by_segment.get(segment)) is None:
            buffer = self._by_segment[segment] = SegmentBuffer(segment)
        return buffer

    def take(self) -> list[SegmentBuffer]:
        """Return the buffers that have events; those here are then empty.

        In a topic, the next events without a key go to the next partition: each send has few parts, and all
        partitions take their share.
        """
        if self._routes.router.reserve is not None and not self._routes.router.rotates:
            self._spread += 1
            self._by_key.pop(None, None)
        return [buffer.take() for buffer in self._by_segment.values() if buffer.payloads]

    def parts(self, buffers: Iterable[SegmentBuffer]) -> list[SegmentEvents]:
        """Return the buffers' events encoded for their segments."""
        points = self._routes.points
        in_topic = self._routes.router.reserve is not None
        parts = []
        for buffer in buffers:
            keyed = buffer.keys.count(None) < len(buffer.keys)
            where = [points[key] if key in points else _point(key) for key in buffer.keys] if keyed else None
            if where is not None and in_topic:
                partition = number_of(buffer.segment)
                where = [stored_point(partition, each) for each in where]
            keys = buffer.keys if keyed else None
            parts.append(
                SegmentEvents(
                    buffer.segment,
                    EventBlock(buffer.payloads, keys, where, buffer.event_times, buffer.headers).encode(),
                )
            )
        return parts

    def pour(self, buffers: Iterable[SegmentBuffer]) -> dict[BufferPlace, BufferPlace]:
        """Add the events of an older epoch's buffers, in their order, to these; return which event became which."""
        moved = {}
        for buffer in buffers:
            count = len(buffer.keys)
            for index, payload, key, event_time, header, chosen in zip(
                range(count),
                buffer.payloads,
                buffer.keys,
                buffer.event_times or [None] * count,
                buffer.headers or [None] * count,
                buffer.chosen or [False] * count,
                strict=True,
            ):
                into = self._buffer(buffer.segment) if chosen else self.find(key) or self.open(key)
                into.payloads.append(payload)
                into.keys.append(key)
                if chosen or event_time is not None or header is not None or into.has_extra:
                    into.add_extra(event_time, header, chosen=chosen)
                moved[buffer.segment, index] = into.segment, len(into.payloads) - 1
        return moved


_NOTHING_KNOWN: Final[dict[str | None, SegmentBuffer]] = {}
"""The known keys of a topic whose events rotate: none, because a key is no reason for a partition."""


def _point(key: str | None) -> float:
    return NO_POINT if key is None else point(key)


def event_bytes(data: bytes, headers: Mapping[str, str] | None) -> int:
    """Return about how many bytes an event takes in memory and in a commit: its frame and its headers.

    A writer adds up an event without headers by itself: the call costs more than the sum.
    """
    size_bytes = len(data) + FRAME_BYTES
    return size_bytes + sum(map(len, chain(headers, headers.values()))) if headers else size_bytes


def add_event(
    buffers: SegmentBuffers,
    data: bytes,
    key: str | bytes | None,
    event_time: int | None,
    headers: Mapping[str, str] | None,
    partition: int | None = None,
    topic: str = "",
) -> SegmentBuffer:
    """Check an event and add it to the buffer of its key or partition; return the buffer.

    The same for writers and transactions. topic: name of the stream, for the error if there is no such partition.
    Raises InvalidArgument; then nothing was added.
    """
    if len(data) > EVENT_BYTES_MAX:
        check_size(data)
    if headers is not None:
        headers = check_headers(headers)
    if event_time is not None:
        check_event_time(event_time)
    if isinstance(key, bytes):
        key = key_text(key)
    if key is None and buffers.router.needs_keys:
        buffers.router.verify_event(partition, key, topic=topic)
    try:
        if partition is not None:
            buffer = buffers.choose(partition, key, topic=topic)
        else:
            buffer = buffers.find(key) or buffers.open(key)
    except TypeError:  # the key is not hashable
        buffer = buffers.open(check_key(cast("str", key)))
    buffer.payloads.append(data)
    buffer.keys.append(key)
    if event_time is not None or headers or partition is not None or buffer.has_extra:
        buffer.add_extra(event_time, headers or None, chosen=partition is not None)
    return buffer
