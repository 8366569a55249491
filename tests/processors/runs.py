"""Runs, cells and items for tests of the processors' core: made by hand, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventproc.groups import SegmentOwnership
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.owned_segment import OwnedSegment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.progress import Progress
from eventproc.store.segments import EventRun


def cell_at(progress: Progress | None = None, *, segment: int = 0) -> OwnedSegment:
    return OwnedSegment(SegmentOwnership("s/t", 7, SegmentId(segment), 1, progress or Progress()))


def run_of(
    cell: OwnedSegment, payloads: Sequence[bytes], keys: Sequence[str | None] | None = None
) -> EventRun:
    """Return the run that follows what the cell handed out."""
    size_bytes = sum(FRAME_BYTES + len(payload) for payload in payloads)
    keys = None if keys is None else list(keys)
    return EventRun(
        cell.key[1], cell.offset, cell.offset + size_bytes, cell.number, 1000, list(payloads), keys=keys
    )


def items_of(cell: OwnedSegment, keys: Iterable[str | None]) -> list[Item]:
    """Hand out an event for each key; its payload is its number in the segment."""
    keys = list(keys)
    run = run_of(cell, [b"%d" % (cell.number + index) for index in range(len(keys))], keys)
    chunk = cell.add(run)
    return [(event, chunk) for event in run.events() if not chunk.is_finished(event.number)]
