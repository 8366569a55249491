"""An event as a consumer of a share group receives it, and what the consumer holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias

from typing_extensions import TypeVar

from eventproc.shares.delivery import AcquiredRun
from eventproc.store.groups import SegmentKey
from eventproc.store.model.deliveries import DeliverySpan
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.short_repr import short_repr

P = TypeVar("P", default=bytes)


class SharedEvent(NamedTuple, Generic[P]):
    """One event, as a consumer of a share group receives it.

    payload: what was written: bytes, or a value of the consumer's type. key: routing key, or None. timestamp: when it
    was appended, ms since 1970. event_time: the user's time in ms, or None. segment, offset, number: its position in
    the stream. headers: the user's. stream: name of its stream, or topic. deliveries: how often it was delivered, this
    time included. generation: of the group when it was delivered; a reset of the group begins the next one, in which
    deliveries are counted from 1 again.
    """

    payload: P
    key: str | None
    timestamp: int
    event_time: int | None
    stream: str
    segment: SegmentId
    offset: int
    number: int
    headers: Mapping[str, str]
    deliveries: int
    generation: int

    @property
    def partition(self) -> int:
        """The partition, if the stream is a topic: the number of the segment."""
        return number_of(self.segment)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short_repr(value)}" for name, value in self._asdict().items())
        return f"SharedEvent({shown})"


EventKey: TypeAlias = tuple[str, SegmentId, int, int, int]
"""(stream, segment, number, delivery, generation): one delivery of one event."""


def key_of(event: SharedEvent[Any]) -> EventKey:
    """Return the key of a delivery."""
    return event.stream, event.segment, event.number, event.deliveries, event.generation


class HeldEvent(NamedTuple):
    """An event that the consumer holds. until_ms: when the lock ends, monotonic. A named tuple, for speed."""

    stream_id: int
    start: int
    end: int
    until_ms: int


_make_event: Final[Any] = partial(tuple.__new__, SharedEvent)
"""`SharedEvent(*columns)` without a Python frame per event."""


def events_of(
    found: AcquiredRun, until_ms: int, generation: int
) -> Iterator[tuple[SharedEvent[bytes], HeldEvent]]:
    """Yield the events of a run, and how they are held. generation: of the group."""
    more, stream_id = (found.count, generation), found.stream_id
    for event in found.run.events(found.stream):
        end = event.offset + FRAME_BYTES + len(event.payload)
        yield _make_event(event + more), HeldEvent(stream_id, event.offset, end, until_ms)


def spans_of(held: Iterable[tuple[EventKey, HeldEvent]]) -> dict[SegmentKey, list[DeliverySpan]]:
    """Return the spans that these events form, by segment, sorted; neighbours are joined."""
    found: dict[SegmentKey, list[DeliverySpan]] = {}
    ordered = sorted(held, key=lambda each: (each[1].stream_id, each[0][1:]))
    for (_, segment, number, count, _), event in ordered:
        spans = found.setdefault((event.stream_id, segment), [])
        last = spans[-1] if spans else None
        if last is not None and (last.high, last.count) == (number, count):
            spans[-1] = DeliverySpan(last.low, number + 1, last.start, event.end, count)
        else:
            spans.append(DeliverySpan(number, number + 1, event.start, event.end, count))
    return found
