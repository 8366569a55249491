"""An event as a consumer of a share group receives it, and holds it until it is settled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic

import attrs
from typing_extensions import TypeVar

from eventproc.shares.acquisition import Acquisition
from eventproc.store.database import Tx
from eventproc.store.groups import SegmentKey, get_group, read_held
from eventproc.store.model.deliveries import DeliverySpan
from eventproc.store.model.ids import format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import NO_HEADERS, Event, job_of

P = TypeVar("P", default=bytes)
D = TypeVar("D", bound="Delivery[Any]")


@attrs.define(eq=False)
class Delivery(Generic[P]):
    """One delivery of an event to a consumer of a share group. Only this object settles it; a copy does not.

    event: the event. deliveries: how often it was delivered, this time included. generation: of the group when it was
    delivered; a reset of the group begins the next one, in which deliveries are counted from 1 again. until_ms: when
    the lock ends, by the monotonic clock; `renew` moves it. stream_id: of the event's stream. end: where the next event
    begins, in bytes. job: id of the group's job that the event is; None for one that nobody submitted as a job to it.
    """

    __repr__ = short_repr_of_fields

    event: Event[P]
    deliveries: int
    generation: int
    until_ms: int
    stream_id: int
    end: int
    job: str | None

    @property
    def place(self) -> str:
        """Where the event lies, for messages: "scope/stream 0.0:17"."""
        return f"{self.event.stream} {format_segment(self.event.segment)}:{self.event.number}"


def deliveries_of(found: Acquisition, kind: type[D], group: str) -> list[D]:
    """Return the deliveries of an acquisition by a group, each as a `kind`."""
    generation, until_ms = found.generation, found.until_ms
    return [
        kind(
            event,
            each.count,
            generation,
            until_ms,
            each.stream_id,
            event.offset + size_bytes,
            None if event.headers is NO_HEADERS else job_of(event.headers, group),
        )
        for each in found.runs
        for event in each.run.events(each.stream)
        if (size_bytes := FRAME_BYTES + len(event.payload))
    ]


def spans_of(held: Iterable[Delivery[Any]]) -> dict[SegmentKey, list[DeliverySpan]]:
    """Return the spans that these events form, by segment, sorted; neighbours are joined.

    Two deliveries of one event may have the same number: if its stream was left out of the group and added again.
    """
    found: dict[SegmentKey, list[DeliverySpan]] = {}
    for each in sorted(held, key=_order):
        event, count = each.event, each.deliveries
        spans = found.setdefault((each.stream_id, event.segment), [])
        last = spans[-1] if spans else None
        if last is not None and event.number < last.high and last.count == count:
            continue
        if last is not None and (last.high, last.count) == (event.number, count):
            spans[-1] = DeliverySpan(last.low, event.number + 1, last.start, each.end, count)
        else:
            spans.append(DeliverySpan(event.number, event.number + 1, event.offset, each.end, count))
    return found


def still_held(tx: Tx, name: str, session: str, deliveries: Iterable[D]) -> set[D]:
    """Return the deliveries whose events the consumer still holds. One query."""
    record, held = get_group(tx, name, share=True), read_held(tx, name, session)
    counts = {
        (*key, number): each.count
        for key, ranges in held.items()
        for each in ranges
        for number in range(each.low, each.high)
    }
    return {
        each
        for each in deliveries
        if each.generation == record.generation
        and counts.get((each.stream_id, each.event.segment, each.event.number)) == each.deliveries
    }


def _order(held: Delivery[Any]) -> tuple[int, int, int, int]:
    return held.stream_id, held.event.segment, held.event.number, held.deliveries
