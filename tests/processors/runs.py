"""Runs, segments and items for tests of the processors' core: made by hand, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventproc.groups import SegmentOwnership
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.owned_segment import OwnedSegment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.progress import Progress
from eventproc.store.segments import EventRun


def segment_at(progress: Progress | None = None, *, segment: int = 0) -> OwnedSegment:
    return OwnedSegment(SegmentOwnership("s/t", 7, SegmentId(segment), 1, progress or Progress()))


def run_of(
    owned: OwnedSegment, payloads: Sequence[bytes], keys: Sequence[str | None] | None = None
) -> EventRun:
    """Return the run that follows what the owned handed out."""
    size_bytes = sum(FRAME_BYTES + len(payload) for payload in payloads)
    keys = None if keys is None else list(keys)
    return EventRun(
        owned.key[1], owned.offset, owned.offset + size_bytes, owned.number, 1000, list(payloads), keys=keys
    )


def items_of(owned: OwnedSegment, keys: Iterable[str | None]) -> list[Item]:
    """Hand out an event for each key; its payload is its number in the segment."""
    keys = list(keys)
    run = run_of(owned, [b"%d" % (owned.number + index) for index in range(len(keys))], keys)
    in_flight = owned.add(run)
    return [(event, in_flight) for event in run.events() if not in_flight.is_finished(event.number)]
