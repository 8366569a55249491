"""Checks of the index of one segment, and of the blobs beneath."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.routing import point
from eventproc.store.segments import SegmentState, read_extents
from eventproc.store.segments.extents import BlobLoader, Extent, decode_extent, ends_of, load_blob


def extent_violations(
    tx: Tx, stream_id: int, segment: SegmentId, state: SegmentState, key_range: KeyRange | None
) -> Iterator[str]:
    """Yield what is wrong with the extents of one segment: each is decoded, whole."""
    found = read_extents(tx, stream_id, segment, 0, limit=2**31)
    blobs = BlobLoader(tx)
    place = f"segment {segment}"
    if state.head < state.tail and (not found or found[0].start > state.head):
        yield f"{place}: nothing holds its head {state.head}"
    for before, after in pairwise(found):
        if before.end != after.start or before.first_number + before.count != after.first_number:
            yield f"{place}: the extent at {after.start} does not follow the one at {before.start}"
    if found and (found[-1].end, found[-1].first_number + found[-1].count) != (state.tail, state.tail_number):
        yield f"{place}: its extents end at {found[-1].end}, it at {state.tail}"
    last_time = 0
    for extent in found:
        where = f"{place}: the extent at {extent.start}"
        if (extent.place is None) == (extent.inline is None):
            yield f"{where} has both a place and columns, or neither"
        run = decode_extent(blobs, segment, extent)
        size_bytes = sum(FRAME_BYTES + len(payload) for payload in run.payloads)
        if (len(run), size_bytes) != (extent.count, extent.length):
            yield f"{where} holds {len(run)} events of {size_bytes} bytes, its row says otherwise"
        times = run.times or [run.time]
        if times != sorted(times) or times[0] < last_time or times[0] != extent.first_time:
            yield f"{where} goes back in time: {times[0]} after {last_time}"
        last_time = times[-1]
        if key_range is not None:
            strangers = [key for key in run.keys or () if key and not key_range.contains(point(key))]
            if strangers:
                yield f"{where} has keys of other segments: {strangers[:3]}"
        yield from _frames(where, blobs, extent)
        if extent.start < state.head < extent.end or extent.start == state.head:
            number = extent.first_number
            if extent.start < state.head:
                number += len(run.split(state.head)[0])
            if number != state.head_number:
                yield f"{place}: its head is event {number}, its row says {state.head_number}"


def blob_violations(tx: Tx) -> Iterator[str]:
    """Yield blobs that nothing refers to, places without a blob, and extents and staged rows that share bytes."""
    used: dict[int, list[tuple[int, int, int]]] = {}
    rows = tx.execute(
        "SELECT place, place_offset, length, stream_id FROM extent WHERE place IS NOT NULL"
        " UNION ALL SELECT s.place, s.place_offset, s.length, s.stream_id FROM staged s"
        " WHERE s.place IS NOT NULL"
    )
    for place, offset, length, stream_id in rows.fetchall():
        used.setdefault(place, []).append((offset, offset + length, stream_id))
    for blob, stream_id in tx.execute("SELECT id, stream_id FROM blob").fetchall():
        columns = load_blob(tx, blob)
        size = len(columns.data)
        parts = sorted(used.pop(blob, []))
        if not parts:
            yield f"blob {blob} of stream {stream_id}: nothing refers to it"
            continue
        if any(before[1] > after[0] for before, after in pairwise(parts)) or parts[-1][1] > size:
            yield f"blob {blob}: extents share its bytes, or go beyond them"
        if any(part[2] != stream_id for part in parts):
            yield f"blob {blob} of stream {stream_id} is used by another stream"
        column = ends_of(columns)
        if not column or column[-1] != size:
            yield f"blob {blob}: its events end elsewhere than its {size} bytes"
    for place in used:
        yield f"no blob {place}, but extents refer to it"


def _frames(where: str, blobs: BlobLoader, extent: Extent) -> Iterator[str]:
    """Walk the frames by their own lengths, as a reader of raw bytes would."""
    columns, _ = blobs.columns(extent)
    at, end = extent.place_offset, extent.place_offset + extent.length
    while at < end:
        kind, length = columns.data[at : at + 4], int.from_bytes(columns.data[at + 4 : at + 8], "big")
        if kind != b"\0\0\0\0":
            yield f"{where} has a frame of type {kind!r}"
            return
        at += FRAME_BYTES + length
    if at != end:
        yield f"{where}: its frames do not end where it does"
