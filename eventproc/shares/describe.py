"""Descriptions of share groups for people: consumers, deliveries and lag. Functions of a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from eventproc.groups import SegmentKey
from eventproc.shares.changes import get_share_group, list_share_groups
from eventproc.store.catalog import find_stream, unfinished_part
from eventproc.store.database import Tx
from eventproc.store.groups import ShareOptions, ShareRecord, read_deliveries
from eventproc.store.model.deliveries import SegmentDeliveries
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import first_event_age_ms

ShareState: TypeAlias = Literal["empty", "active"]
"""Whether consumers hold events of a share group ("active") or not ("empty")."""


@attrs.frozen(kw_only=True)
class ShareGroupInfo:
    """A share group as `Eventproc.share_groups` lists it.

    name: "scope/group". streams: what it consumes. generation: grows with each reset. created_ms: wall clock.
    options: as given when it was created.
    """

    __repr__ = short_repr_of_fields

    name: str
    streams: tuple[str, ...]
    generation: int
    created_ms: int
    options: ShareOptions

    @classmethod
    def of(cls, record: ShareRecord) -> ShareGroupInfo:
        """Return what the record says."""
        return cls(
            name=record.name,
            streams=tuple(each.name for each in record.streams),
            generation=record.generation,
            created_ms=record.created_ms,
            options=record.options,
        )


@attrs.frozen
class ShareHolder:
    """A consumer that holds events. events: how many. instance: the opening of the directory that it belongs to."""

    __repr__ = short_repr_of_fields

    consumer: str
    instance: str
    events: int


@attrs.frozen
class SharedSegment:
    """A segment that a share group has not finished.

    offset, number: the first event that is not finished.
    next_number: the first event that was never delivered.
    in_flight: events that consumers hold. redelivered: events that were released, and wait for their next delivery.
    deliveries: how many events in flight, or waiting again, were delivered how often.
    events, bytes: what is not finished. age_ms: time since the first unfinished event was appended; None without one.
    sealed: no further events will be appended.
    """

    __repr__ = short_repr_of_fields

    stream: str
    stream_id: int
    segment: SegmentId
    offset: int
    number: int
    next_number: int
    in_flight: int
    redelivered: int
    deliveries: Mapping[int, int]
    events: int
    bytes: int
    age_ms: int | None
    sealed: bool


@attrs.frozen(kw_only=True)
class ShareGroupDescription:
    """A share group at one moment.

    deleted: names of its streams that were deleted, and not created again.
    lost_events: unfinished events that were truncated.
    """

    __repr__ = short_repr_of_fields

    name: str
    state: ShareState
    streams: tuple[str, ...]
    deleted: tuple[str, ...]
    generation: int
    created_ms: int
    options: ShareOptions
    consumers: tuple[ShareHolder, ...]
    segments: tuple[SharedSegment, ...]
    lost_events: int

    @property
    def events(self) -> int:
        """Unfinished events in all segments: the lag."""
        return sum(each.events for each in self.segments)

    @property
    def bytes(self) -> int:
        """Unfinished bytes in all segments."""
        return sum(each.bytes for each in self.segments)

    @property
    def in_flight(self) -> int:
        """Events that consumers hold, in all segments."""
        return sum(each.in_flight for each in self.segments)

    @property
    def deliveries(self) -> dict[int, int]:
        """How many events in flight, or waiting again, were delivered how often: {deliveries: events}."""
        total: Counter[int] = Counter()
        for each in self.segments:
            total.update(each.deliveries)
        return dict(sorted(total.items()))

    @property
    def age_ms(self) -> int | None:
        """Time since the oldest unfinished event was appended; None without one."""
        return max((each.age_ms for each in self.segments if each.age_ms is not None), default=None)


def list_share_infos(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[ShareGroupInfo]:
    """Return the share groups of a scope, or of all scopes, sorted by scope and name. Raises NotFound (the scope)."""
    return [ShareGroupInfo.of(record) for record in list_share_groups(tx, scope, page)]


def describe_share_group(tx: Tx, name: str) -> ShareGroupDescription:
    """Return the description of a share group. Raises NotFound.

    Segments that were created since the last poll are not counted. Costs a few look-ups for each open segment.
    """
    record = get_share_group(tx, name)
    stored = read_deliveries(tx, name)
    names = {each.stream_id: each.name for each in record.streams}
    present = {name: stream.value for name in names.values() if (stream := find_stream(tx, name)) is not None}
    ids = {stream.stream_id for stream in present.values()}
    segments = tuple(
        _segment(tx, names[key[0]], key, found)
        for key, found in stored.items()
        if key[0] in names and key[0] in ids
    )
    holders = tuple(_holders(stored.values()))
    return ShareGroupDescription(
        name=name,
        state="active" if holders else "empty",
        streams=tuple(names.values()),
        deleted=tuple(each for each in names.values() if each not in present),
        generation=record.generation,
        created_ms=record.created_ms,
        options=record.options,
        consumers=holders,
        segments=segments,
        lost_events=record.lost_events,
    )


def _holders(stored: Iterable[SegmentDeliveries]) -> Iterable[ShareHolder]:
    held: Counter[tuple[str, str, str]] = Counter()
    for found in stored:
        for each in found.locked:
            assert each.lock is not None, "a locked range has a lock"
            held[each.lock.consumer, each.lock.instance, each.lock.session] += each.high - each.low
    for (consumer, instance, _), events in sorted(held.items()):
        yield ShareHolder(consumer, instance, events)


def _segment(tx: Tx, stream: str, key: SegmentKey, found: SegmentDeliveries) -> SharedSegment:
    part = unfinished_part(tx, key[0], key[1], found.progress)
    return SharedSegment(
        stream=stream,
        stream_id=key[0],
        segment=printable(key[1]),
        offset=found.progress.offset,
        number=found.progress.number,
        next_number=found.next_number,
        in_flight=sum(each.high - each.low for each in found.locked),
        redelivered=sum(each.high - each.low for each in found.available),
        deliveries=found.counts(),
        events=part.events,
        bytes=part.bytes,
        age_ms=first_event_age_ms(tx, *key, part.offset) if part.events else None,
        sealed=part.sealed,
    )
