"""Checks of the indexes of segments, and of the blobs beneath. They hold one blob at a time, and pages of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import chain, pairwise, repeat
from struct import Struct
from typing import Final

import attrs

from eventproc.store.database import DataNeeded, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.routing import points
from eventproc.store.segments import SegmentState, read_extents
from eventproc.store.segments.columns import Columns
from eventproc.store.segments.event import EventRun
from eventproc.store.segments.extents import (
    EXTENTS_A_QUERY,
    BlobLoader,
    Extent,
    decode_extent,
    ends_of,
    load_blob,
)

BLOBS_A_QUERY: Final = 256
"""Blobs whose ids one query fetches. Higher: memory; lower: more queries."""

_FRAME_HEAD: Final = Struct(">Q")
"""The head of a frame: its type, which is 0, and the length of the payload, each of 4 bytes."""


def extent_violations(
    tx: Tx, stream_id: int, segments: Mapping[SegmentId, tuple[SegmentState, KeyRange | None]]
) -> Iterator[str]:
    """Yield what is wrong with the extents of segments of a stream: each is decoded, whole.

    They are taken in the order of their blobs, so that a blob of many segments is loaded once.
    """
    blobs, limit = LatestBlob(tx), max(EXTENTS_A_QUERY // max(len(segments), 1), 1)
    checks = [_SegmentCheck(blobs, segment, *expected) for segment, expected in segments.items()]
    found = [zip(repeat(check), all_extents(tx, stream_id, check.segment, limit)) for check in checks]
    for check, extent in merge(*found, key=lambda each: each[1].place or 0):
        yield from check.take(extent)
    for check in checks:
        yield from check.end()


def all_extents(tx: Tx, stream_id: int, segment: SegmentId, limit: int = EXTENTS_A_QUERY) -> Iterator[Extent]:
    """Yield the extents of a segment in order. limit: rows that are held at a time."""
    found = read_extents(tx, stream_id, segment, 0, limit=limit)
    while found:
        yield from found
        found = read_extents(tx, stream_id, segment, found[-1].start, limit=limit + 1)[1:]


class LatestBlob(BlobLoader):
    """Loads blobs, and keeps the latest one only."""

    def _load(self, blob_id: int) -> Columns:
        self._loaded.clear()
        self._headers.clear()
        return _load_here(self._tx, blob_id)


def _load_here(tx: Tx, blob_id: int, *_fetched: object) -> Columns:
    """Load a blob; fetch it first if it is remote. Otherwise the check would run again from its start for each blob."""
    try:
        return load_blob(tx, blob_id)
    except DataNeeded as needed:
        return _load_here(tx, blob_id, needed.fetch())


@attrs.define
class _SegmentCheck:
    """Takes the extents of one segment in order. before: the latest one. last_time: of its last event."""

    blobs: BlobLoader
    segment: SegmentId
    state: SegmentState
    key_range: KeyRange | None
    before: Extent | None = None
    last_time: int = 0

    def take(self, extent: Extent) -> Iterator[str]:
        """Yield what is wrong with the next extent."""
        place, state, before = f"segment {self.segment}", self.state, self.before
        where = f"{place}: the extent at {extent.start}"
        if before is None:
            if extent.start > state.head:
                yield f"{place}: nothing holds its head {state.head}"
        elif before.end != extent.start or before.first_number + before.count != extent.first_number:
            yield f"{where} does not follow the one at {before.start}"
        self.before = extent
        if (extent.place is None) == (extent.inline is None):
            yield f"{where} has both a place and columns, or neither"
        run = decode_extent(self.blobs, self.segment, extent)
        yield from (f"{where} {problem}" for problem in self._of_events(extent, run))
        if extent.start < state.head < extent.end or extent.start == state.head:
            number = extent.first_number
            if extent.start < state.head:
                number += len(run.split(state.head)[0])
            if number != state.head_number:
                yield f"{place}: its head is event {number}, its row says {state.head_number}"

    def _of_events(self, extent: Extent, run: EventRun) -> Iterator[str]:
        heads = map(_FRAME_HEAD.pack, map(len, run.payloads))
        frames = b"".join(chain.from_iterable(zip(heads, run.payloads, strict=True)))
        if (len(run), len(frames)) != (extent.count, extent.length):
            yield f"holds {len(run)} events of {len(frames)} bytes, its row says otherwise"
        begin = extent.place_offset
        if frames != self.blobs.columns(extent)[0].data[begin : begin + extent.length]:
            yield "has frames of another type, or with other lengths than its events"
        times = run.times or [run.time]
        if times != sorted(times) or times[0] < self.last_time or times[0] != extent.first_time:
            yield f"goes back in time: {times[0]} after {self.last_time}"
        self.last_time = times[-1]
        if self.key_range is not None:
            keys = [key for key in dict.fromkeys(run.keys or ()) if key]
            owned = self.key_range.contains
            strangers = [
                key
                for key, point in zip(keys, points(keys), strict=True)
                if point is not None and not owned(point)
            ]
            if strangers:
                yield f"has keys of other segments: {strangers[:3]}"

    def end(self) -> Iterator[str]:
        """Yield what is wrong when there are no more extents."""
        last, state = self.before, self.state
        if last is None:
            if state.head < state.tail:
                yield f"segment {self.segment}: nothing holds its head {state.head}"
        elif (last.end, last.first_number + last.count) != (state.tail, state.tail_number):
            yield f"segment {self.segment}: its extents end at {last.end}, it at {state.tail}"


def blob_violations(tx: Tx) -> Iterator[str]:
    """Yield blobs that nothing refers to, places without a blob, and extents and staged rows that share bytes."""
    query, last = "SELECT id, stream_id FROM blob WHERE id > ? ORDER BY id LIMIT ?", -(2**63)
    while found := tx.execute(query, (last, BLOBS_A_QUERY)).fetchall():
        for blob, stream_id in found:
            yield from _of_blob(tx, blob, stream_id)
        last = found[-1][0]
    for table in ("extent", "staged"):
        for (place,) in tx.execute(
            f"SELECT DISTINCT place FROM {table} WHERE place IS NOT NULL"
            f" AND NOT EXISTS (SELECT 1 FROM blob WHERE blob.id = {table}.place)"
        ):
            yield f"no blob {place}, but rows of {table} refer to it"


def _of_blob(tx: Tx, blob: int, stream_id: int) -> Iterator[str]:
    columns = _load_here(tx, blob)
    size = len(columns.data)
    rows = "SELECT place_offset, place_offset + length, stream_id FROM {} WHERE place = ?"
    parts: list[tuple[int, int, int]] = tx.execute(
        f"{rows.format('extent')} UNION ALL {rows.format('staged')} ORDER BY 1, 2", (blob, blob)
    ).fetchall()
    if not parts:
        yield f"blob {blob} of stream {stream_id}: nothing refers to it"
        return
    if any(before[1] > after[0] for before, after in pairwise(parts)) or parts[-1][1] > size:
        yield f"blob {blob}: extents share its bytes, or go beyond them"
    if any(part[2] != stream_id for part in parts):
        yield f"blob {blob} of stream {stream_id} is used by another stream"
    column = ends_of(columns)
    if not column or column[-1] != size:
        yield f"blob {blob}: its events end elsewhere than its {size} bytes"
