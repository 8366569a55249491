"""Events as readers get them: runs of consecutive events of one segment, and the events in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate, groupby, repeat
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple

import attrs
from typing_extensions import TypeVar

from eventproc.store.model.ids import SegmentId, number_of, printable
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.routing import key_bytes
from eventproc.store.model.short_repr import short_repr
from eventproc.store.segments.columns import Headers

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

TTL_HEADER: Final = "ep-ttl-ms"
"""Name of the reserved header that holds an event's own time to live, as decimal text. Events are shown without it."""

PRIORITY_HEADER: Final = "ep-priority"
"""Name of the reserved header that holds an event's priority, as a digit. Events are shown without it."""

ID_HEADER: Final = "ep-id"
"""Name of the reserved header that holds an event's id. `Event.id` shows it."""

JOB_HEADER: Final = "ep-job"
"""Name of the reserved header that holds the id of the job that the event is. Events are shown without it."""

JOB_GROUP_HEADER: Final = "ep-job-group"
"""Name of the reserved header that holds the group whose job the event is: others that read it do not know the job."""

COMPACTED_HEADER: Final = "ep-compacted"
"""Name of the reserved header of events that a compaction has changed: REMOVED, or from when on a tombstone may go, in
wall ms as decimal text. Nobody is shown a removed event."""

REMOVED: Final = "removed"
"""Value of COMPACTED_HEADER for an event that keeps only its place: readers pass it."""

KAFKA_HEADER: Final = "ep-kafka"
"""Name of the reserved header that holds, as JSON, what Kafka's clients sent and an event cannot say. Events are shown
without it."""

RESERVED_NAMES: Final = {
    TTL_HEADER: "ttl_ms",
    ID_HEADER: "id",
    PRIORITY_HEADER: "priority",
    JOB_HEADER: "the payload to ep.jobs(...).submit",
    JOB_GROUP_HEADER: "the payload to ep.jobs(...).submit",
    COMPACTED_HEADER: "compaction to alter",
    KAFKA_HEADER: "headers with other names",
}
"""{name of a reserved header: what to pass instead}"""


class ReservedHeaders(dict[str, str]):
    """Headers with reserved names, which only the library makes: users' headers may not have them."""


class ShownHeaders(dict[str, str]):
    """Headers as users see them, which know the reserved ones. Equal to a dict; a copy does not know them."""

    reserved: Mapping[str, str]


P = TypeVar("P", default=bytes)


class Event(NamedTuple, Generic[P]):
    """One event as a reader sees it. A named tuple, because a reader makes half a million a second.

    payload: what was written: bytes, or a value of the reader's type. key: routing key, or None: a text of up to 1024
    characters. Bytes are the key of the text whose UTF-8 they are; others, up to 756, have a data URL as their text.
    `key_bytes` returns them.
    timestamp: when it was appended, ms since 1970, never falling within a segment. event_time: the user's
    time in ms, or None. stream: name of its stream or topic, "scope/stream". segment: id of its segment. offset: where
    its frame begins in the segment, in bytes. number: its position in the segment, in events. headers: the user's,
    empty when there are none.
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

    @property
    def partition(self) -> int:
        """Number of its partition, if it is an event of a topic."""
        return number_of(self.segment)

    @property
    def id(self) -> str | None:
        """The id with which it was written; None without one."""
        return reserved_headers(self.headers).get(ID_HEADER)

    @property
    def key_bytes(self) -> bytes | None:
        """The bytes of its key: those it was written with, or the UTF-8 of a text. None without a key."""
        return None if self.key is None else key_bytes(self.key)

    def __hash__(self) -> int:
        """Hash by where it lies, so that an event with headers, or with any payload, can be in a set."""
        return hash((self.stream, self.segment, self.number))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={short_repr(value)}" for name, value in self._asdict().items())
        return f"Event({shown})"


_make_event: Final[Any] = partial(tuple.__new__, Event)
"""`Event(*columns)` without a Python frame per event."""


@attrs.define(eq=False)
class EventRun:
    """Consecutive events of one segment, as columns; a column that no event uses is None.

    start, end: the byte range [start, end). first_number: event number of the first event.
    time: append time of all events, unless `times` has one for each.
    """

    segment: SegmentId
    start: int
    end: int
    first_number: int
    time: int
    payloads: list[bytes]
    keys: list[str | None] | None = None
    event_times: list[int | None] | None = None
    headers: list[Headers | None] | None = None
    times: list[int] | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    def events(self, stream: str, decode: Callable[[bytes], P] | None = None) -> Iterator[Event[P]]:
        """Yield the events in order, each decoded by `decode`, if given, when it is asked for.

        stream: name of the stream. About 0.25 us each without `decode`.
        """
        lengths = map(FRAME_BYTES.__add__, map(len, self.payloads))
        columns = zip(
            self.payloads if decode is None else map(decode, self.payloads),
            self.keys if self.keys is not None else repeat(None),
            self.times if self.times is not None else repeat(self.time),
            self.event_times if self.event_times is not None else repeat(None),
            repeat(stream),
            repeat(printable(self.segment)),  # once per run: it costs nothing per event
            accumulate(lengths, initial=self.start),
            range(self.first_number, self.first_number + len(self.payloads)),
            self._shown_headers(),
            strict=False,  # the repeating columns never end
        )
        return map(_make_event, columns)

    def _shown_headers(self) -> Iterable[Mapping[str, str]]:
        """Return the headers of each event as users see them: without the reserved ones."""
        if self.headers is None:
            return repeat(NO_HEADERS)
        return [shown_headers(found) if found else NO_HEADERS for found in self.headers]

    def end_of(self, count: int) -> int:
        """Return the offset after the first `count` events."""
        if count == len(self.payloads):
            return self.end
        return self.start + count * FRAME_BYTES + sum(map(len, self.payloads[:count]))

    def part(self, first: int, count: int, start: int) -> EventRun:
        """Return `count` events from index `first` on, whose bytes begin at `start`. O(count)."""
        size_bytes = count * FRAME_BYTES + sum(map(len, self.payloads[first : first + count]))
        return self._slice(first, first + count, start, start + size_bytes)

    def parts(self, ranges: Iterable[tuple[int, int]]) -> list[EventRun]:
        """Return the events of sorted ranges [low, high) of indices, one run per range. O(events)."""
        found: list[EventRun] = []
        at, start = 0, self.start
        for low, high in ranges:
            start += (low - at) * FRAME_BYTES + sum(map(len, self.payloads[at:low]))
            part = self.part(low, high - low, start)
            found.append(part)
            at, start = high, part.end
        return found

    def without_removed(self) -> list[EventRun]:
        """Return the events that no compaction has removed, one run for each range. O(1) without headers."""
        if self.headers is None:
            return [self]
        ranges: list[tuple[int, int]] = []
        at = 0
        for removed, group in groupby(map(is_removed, self.headers)):
            count = sum(1 for _ in group)
            if not removed:
                ranges.append((at, at + count))
            at += count
        return [self] if ranges == [(0, len(self))] else self.parts(ranges)

    def split(self, offset: int) -> tuple[EventRun, EventRun]:
        """Return the events before `offset` and those from it on; `offset` must be an event boundary inside the run."""
        ends = accumulate(map(FRAME_BYTES.__add__, map(len, self.payloads)), initial=self.start)
        at = next((index for index, end in enumerate(ends) if end == offset), None)
        assert at is not None, f"{offset} is not an event boundary of [{self.start}, {self.end})"
        return self._slice(0, at, self.start, offset), self._slice(at, len(self), offset, self.end)

    def _slice(self, first: int, last: int, start: int, end: int) -> EventRun:
        def cut(column: list[object] | None) -> list[object] | None:
            return None if column is None else column[first:last]

        return attrs.evolve(
            self,
            start=start,
            end=end,
            first_number=self.first_number + first,
            payloads=self.payloads[first:last],
            keys=cut(self.keys),  # type: ignore[arg-type]
            event_times=cut(self.event_times),  # type: ignore[arg-type]
            headers=cut(self.headers),  # type: ignore[arg-type]
            times=cut(self.times),  # type: ignore[arg-type]
        )


def is_removed(headers: Headers | None) -> bool:
    """Return whether the headers are those of an event that a compaction has removed."""
    return headers is not None and headers.get(COMPACTED_HEADER) == REMOVED


def shown_headers(headers: Headers) -> Headers:
    """Return headers as users see them: without the reserved ones."""
    if RESERVED_NAMES.keys().isdisjoint(headers):
        return headers
    shown = ShownHeaders({name: value for name, value in headers.items() if name not in RESERVED_NAMES})
    shown.reserved = {name: value for name, value in headers.items() if name in RESERVED_NAMES}
    return shown


def reserved_headers(shown: Headers) -> Headers:
    """Return the reserved ones that belong to headers as users see them."""
    return shown.reserved if isinstance(shown, ShownHeaders) else NO_HEADERS


def job_of(shown: Headers, group: str) -> str | None:
    """Return the id of the group's job that the event of these headers is; None if it is none of the group's."""
    reserved = reserved_headers(shown)
    # Events of earlier versions do not name the group.
    return reserved.get(JOB_HEADER) if reserved.get(JOB_GROUP_HEADER, group) == group else None
