"""Reading segments: several in one transaction, each shared blob decoded once.

A reader names the offset at which it stands in each of its segments. It gets runs of complete events from there, and
how far each segment goes: its head, its tail, whether it is sealed. No location of bytes is kept between two reads,
because the reaper and the joiner move bytes; the logical offset finds them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments.event import EventRun
from eventproc.store.segments.extents import EXTENTS_A_QUERY, BlobLoader, decode_extent, read_extents
from eventproc.store.segments.state import SegmentState, segment_state

READ_BYTES_MAX: Final = 4 * 2**20
"""Bytes of events that one read transaction returns, give or take one extent. With more, a slow reader pins the WAL for
longer; with less, readers pay the change of threads more often."""

LOADED_BYTES_MAX: Final = 4 * READ_BYTES_MAX
"""Bytes of blobs that one read transaction loads and keeps until its end, give or take one blob. A reader of a few of
many segments loads more than it returns; a higher bound lets one read return more."""

FIRST_EXTENTS: Final = 16
"""Extents that the first query for a segment fetches. Higher: a read of many segments fetches rows that it does not
use; lower: a read of one segment needs a second query more often."""


@attrs.frozen
class ReadResult:
    """What one read returned. A segment without an entry in `states` does not exist, or no longer."""

    runs: list[EventRun]
    states: dict[SegmentId, SegmentState]


def read(
    tx: Tx,
    stream_id: int,
    wanted: Mapping[SegmentId, tuple[int, int | None]],
    *,
    bytes_max: int = READ_BYTES_MAX,
    loaded_bytes_max: int = LOADED_BYTES_MAX,
) -> ReadResult:
    """Read events of several segments, each from its offset on.

    wanted: {segment: (offset, limit)}. The limit is an event boundary; None means the tail. An offset before the head
    reads nothing; compare it with the returned state.
    bytes_max: bytes of events to return, give or take one extent, shared between the segments. If the extents of the
    first segments are large, the last ones get nothing. A caller therefore puts those first next time
    (`Frontier.advance` does). If any event can be read, at least one extent is returned.
    loaded_bytes_max: bytes of blobs to load, give or take one blob. Beyond it, segments are still read out of the blobs
    that were loaded for earlier ones: many segments that were written together lie in the same blobs.
    Runs of one segment are in order; segments are in no order.
    Cost: one look-up and one query per segment, one more query per 256 extents.
    """
    states = {segment: state for segment in wanted if (state := segment_state(tx, stream_id, segment))}
    blobs = BlobLoader(tx)
    runs: list[EventRun] = []
    share = max(bytes_max // max(len(states), 1), 1)
    bytes_left = bytes_max
    for segment, state in states.items():
        offset, limit = wanted[segment]
        end = state.tail if limit is None else min(limit, state.tail)
        if state.head <= offset < end and bytes_left > 0:
            found = _read_segment(
                tx, blobs, stream_id, segment, offset, end, min(share, bytes_left), loaded_bytes_max
            )
            bytes_left -= sum(run.end - run.start for run in found)
            runs.extend(found)
    return ReadResult(runs, states)


def _read_segment(
    tx: Tx,
    blobs: BlobLoader,
    stream_id: int,
    segment: SegmentId,
    offset: int,
    end: int,
    bytes_max: int,
    loaded_bytes_max: int,
) -> list[EventRun]:
    runs: list[EventRun] = []
    size_bytes = 0
    limit = FIRST_EXTENTS
    while offset < end and size_bytes < bytes_max:
        before = offset
        for extent in read_extents(tx, stream_id, segment, offset, limit=limit):
            if offset >= end or size_bytes >= bytes_max:
                break
            if not extent.start <= offset < extent.end:
                break
            if blobs.loaded_bytes >= loaded_bytes_max and not blobs.holds(extent):
                return runs  # its turn comes with the next read: segments without events keep their place
            run = decode_extent(blobs, segment, extent)
            if extent.start < offset:
                _, run = run.split(offset)
            if extent.end > end:
                run, _ = run.split(end)
            runs.append(run)
            size_bytes += run.end - run.start
            offset = run.end
        if offset == before:
            key = f"stream {stream_id} segment {format_segment(segment)}"
            raise CorruptRecord(
                key=key, reason=f"no extent holds offset {offset}, which lies before its tail"
            )
        limit = EXTENTS_A_QUERY
    return runs


def first_event_age_ms(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int | None:
    """Return how long ago the first event at or behind `offset` was appended; None without one. One read."""
    runs = read(tx, stream_id, {segment: (offset, None)}, bytes_max=1).runs
    if not runs:
        return None
    first = runs[0].time if runs[0].times is None else runs[0].times[0]
    return max(tx.now_ms - first, 0)
