"""Compaction: removes the events of a segment that have a newer event of their key.

Functions of a database transaction, and the pure decision `compacted_headers`. A removed event keeps its place, so that
no offset and no number changes. Reasons and crash windows: docs/design/compaction.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Final, TypeAlias, TypeVar

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.columns import Columns, EventBlock, Headers, join_blocks
from eventproc.store.segments.event import COMPACTED_HEADER, REMOVED, EventRun, is_removed
from eventproc.store.segments.extents import (
    COMPACTED_BLOB_FORMAT,
    INSERT_EXTENT,
    BlobLoader,
    Extent,
    decode_extent,
    ends_of,
    insert_compacted_blob,
    pack_compacted,
    read_extents,
)
from eventproc.store.segments.holds import held_from
from eventproc.store.segments.offsets import SegmentTimes
from eventproc.store.segments.read import read
from eventproc.store.segments.reaper import STEP_BLOBS_MAX, free_unreferenced_blobs
from eventproc.store.segments.recent import RecentEvents
from eventproc.store.segments.state import SegmentState, segment_state

_V = TypeVar("_V")

STEP_BYTES: Final = 4 * 2**20
"""Bytes of events, as counted by offsets, that one step replaces, give or take one extent. Higher: the write lock is
held for longer; lower: more and smaller blobs."""

KEYS_MAX: Final = 500_000
"""Keys whose newest events one pass over a segment knows, about 150 bytes each. Higher: more memory; lower: more passes
over a segment with more keys."""

NewestNumbers: TypeAlias = dict[str | None, int]
"""The number of the newest event of each key. The entry of None means nothing."""


def compacted_headers(
    run: EventRun, newest: Mapping[str | None, int], now_ms: int, tombstone_ms: int
) -> list[Headers | None]:
    """Return the headers of each event after a compaction; those with REMOVED are to be removed.

    newest: numbers of the newest events of keys. A key that it does not have has no newer event.
    now_ms: wall time. tombstone_ms: how long a tombstone stays after it was compacted for the first time.
    """
    keys = repeat(None, len(run)) if run.keys is None else run.keys
    before = repeat(None, len(run)) if run.headers is None else run.headers
    after: list[Headers | None] = []
    for number, (key, headers, payload) in enumerate(
        zip(keys, before, run.payloads, strict=True), run.first_number
    ):
        if is_removed(headers) or (key is not None and newest.get(key, number) > number):
            after.append(_REMOVED)
        elif key is None or payload:
            after.append(headers)
        elif headers is None or COMPACTED_HEADER not in headers:
            after.append({**(headers or {}), COMPACTED_HEADER: str(now_ms + tombstone_ms)})
        else:
            after.append(_REMOVED if int(headers[COMPACTED_HEADER]) <= now_ms else headers)
    return after


_REMOVED: Final[Headers] = {COMPACTED_HEADER: REMOVED}


@attrs.frozen
class CompactionStep:
    """A run of consecutive extents, and what replaces them.

    end: offset behind the run. extents: as they were read. packed: the compacted blob; None: the run stays.
    removed, removed_bytes: the events that are removed, and their bytes.
    """

    end: int
    extents: tuple[Extent, ...]
    packed: bytes | None
    removed: int = 0
    removed_bytes: int = 0


def compactable_until(tx: Tx, stream_id: int, segment: SegmentId, state: SegmentState, before_ms: int) -> int:
    """Return the beginning of the first extent that has an event of `before_ms`, wall time, or later, or is held.

    Cost: as `find_extent`, and a query for the holds of the stream.
    """
    times = SegmentTimes(tx, stream_id, segment, state, by_extent=True)
    return min(times.offset_at(before_ms), held_from(tx, stream_id).get(segment, state.tail))


def uncompacted_from(tx: Tx, stream_id: int, segment: SegmentId, state: SegmentState, end: int) -> int:
    """Return the beginning of the first readable extent that is not compacted; `end` if it lies there or behind.

    Cost: a look-up for each compacted extent before it, about 1 us for each 4 MiB of events.
    """
    row = tx.execute(
        "SELECT start FROM extent WHERE stream_id = ? AND segment = ? AND start >= ? AND start < ?"
        " AND NOT EXISTS (SELECT 1 FROM blob WHERE id = place AND format = ?) ORDER BY start LIMIT 1",
        (stream_id, segment, _first_start(tx, stream_id, segment, state.head), end, COMPACTED_BLOB_FORMAT),
    ).fetchone()
    return end if row is None else min(max(int(row[0]), state.head), end)


def _first_start(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return the beginning of the extent that holds `offset`, which must exist."""
    return read_extents(tx, stream_id, segment, offset, limit=1)[0].start


def compacted_bytes(tx: Tx, stream_id: int, segment: SegmentId, until: int) -> int:
    """Return the bytes that the compacted extents before `until` have on disk. One look-up for each of them."""
    row = tx.execute(
        "SELECT coalesce(sum(length(data)), 0) FROM extent JOIN blob ON id = place"
        " WHERE extent.stream_id = ? AND segment = ? AND start < ? AND format = ?",
        (stream_id, segment, until, COMPACTED_BLOB_FORMAT),
    ).fetchone()
    return int(row[0])


def first_time_at(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> int:
    """Return when the first event of the extent at `offset`, which must exist, was appended."""
    return read_extents(tx, stream_id, segment, offset, limit=1)[0].first_time


def collect_newest(
    tx: Tx, stream_id: int, segment: SegmentId, offset: int, end: int, newest: NewestNumbers
) -> int:
    """Note the newest numbers of the keys of about 4 MiB of events from `offset` on; return where to continue."""
    found = read(tx, stream_id, {segment: (offset, end)})
    for run in found.runs:
        if run.keys is not None:
            newest.update(zip(run.keys, range(run.first_number, run.first_number + len(run)), strict=True))
    if found.runs:
        return found.runs[-1].end
    state = found.states.get(segment)
    return end if state is None else min(state.head, end)  # it was deleted, or truncated


def plan_step(
    tx: Tx,
    stream_id: int,
    segment: SegmentId,
    offset: int,
    end: int,
    newest: Mapping[str | None, int],
    tombstone_ms: int,
) -> CompactionStep | None:
    """Return how the next extents from `offset` on are compacted, None if none of them ends before `end`, or is held.

    Reads and decodes STEP_BYTES, give or take one extent. Raises CorruptRecord.
    """
    state = segment_state(tx, stream_id, segment)
    end = min(end, held_from(tx, stream_id).get(segment, end))
    if state is None or (offset := max(offset, state.head)) >= end:
        return None
    extents = _next_extents(tx, stream_id, segment, offset, end)
    if not extents:
        return None
    blobs = BlobLoader(tx)
    runs = [decode_extent(blobs, segment, each) for each in extents]
    headers = [compacted_headers(run, newest, tx.now_ms, tombstone_ms) for run in runs]
    done = extents[-1].end
    is_same = all(each == (run.headers or [None] * len(run)) for run, each in zip(runs, headers, strict=True))
    if is_same and all(_is_compacted(tx, each) for each in extents):
        return CompactionStep(done, tuple(extents), None)
    lost = [size for run, each in zip(runs, headers, strict=True) for size in _newly_removed(run, each)]
    packed = pack_compacted(_columns(runs, headers))
    return CompactionStep(done, tuple(extents), packed, len(lost), sum(lost))


def replace_step(tx: Tx, stream_id: int, segment: SegmentId, step: CompactionStep) -> bool:
    """Replace the extents of a planned step by one of a compacted blob; return whether they were still the same.

    Cost: storing the blob, deleting up to 256 rows, and freeing STEP_BLOBS_MAX blobs.
    """
    flush_appends(tx, stream_id)
    first, last = step.extents[0], step.extents[-1]
    is_held = held_from(tx, stream_id).get(segment, step.end) < step.end
    found = read_extents(tx, stream_id, segment, first.start, limit=len(step.extents))
    if is_held or tuple(found) != step.extents or step.packed is None:
        return False
    tx.execute(
        "DELETE FROM extent WHERE stream_id = ? AND segment = ? AND start >= ? AND start < ?",
        (stream_id, segment, first.start, step.end),
    )
    count = sum(each.count for each in step.extents)
    where = (stream_id, segment, first.start, step.end - first.start, first.first_number, count)
    blob_id = insert_compacted_blob(tx, stream_id, step.packed)
    tx.execute(INSERT_EXTENT, (*where, first.first_time, last.last_time, blob_id, 0, None))
    free_unreferenced_blobs(tx, {each.place for each in step.extents if each.place is not None})
    recent = RecentEvents.of(tx)
    tx.after(lambda: recent.forget(stream_id))
    return True


def _next_extents(tx: Tx, stream_id: int, segment: SegmentId, offset: int, end: int) -> list[Extent]:
    """Return the extents of the next step."""
    chosen: list[Extent] = []
    places: set[int] = set()
    for extent in read_extents(tx, stream_id, segment, offset):
        if extent.end > end or (chosen and extent.end - chosen[0].start > STEP_BYTES):
            break
        if extent.place is not None and extent.place not in places:
            if len(places) == STEP_BLOBS_MAX:
                break
            places.add(extent.place)
        chosen.append(extent)
    return chosen


def _is_compacted(tx: Tx, extent: Extent) -> bool:
    row = tx.execute("SELECT format FROM blob WHERE id = ?", (extent.place,)).fetchone()
    return row is not None and row[0] == COMPACTED_BLOB_FORMAT


def _newly_removed(run: EventRun, after: Sequence[Headers | None]) -> Iterator[int]:
    """Yield the size of each event that is removed now."""
    before = repeat(None, len(run)) if run.headers is None else run.headers
    for payload, earlier, later in zip(run.payloads, before, after, strict=True):
        if is_removed(later) and not is_removed(earlier):
            yield FRAME_BYTES + len(payload)


def _columns(runs: Sequence[EventRun], headers: Sequence[list[Headers | None]]) -> Columns:
    """Return the columns of a compacted blob: without keys, event times and frames of removed events."""
    blocks = []
    for run, own in zip(runs, headers, strict=True):
        kept = [not is_removed(each) for each in own]
        keys = None if run.keys is None else _where(kept, run.keys)
        event_times = None if run.event_times is None else _where(kept, run.event_times)
        has_headers = any(each is not None for each in own)
        has_keys = keys is not None and keys.count(None) < len(keys)
        block = EventBlock(
            run.payloads, keys if has_keys else None, None, event_times, own if has_headers else None
        )
        blocks.append(block.encode())
    times = array("q", chain.from_iterable(run.times or repeat(run.time, len(run)) for run in runs))
    columns = join_blocks(blocks, times=times.tobytes())
    starts = chain((0,), ends_of(columns))
    frames = zip(starts, ends_of(columns), chain.from_iterable(headers), strict=False)
    data = b"".join([columns.data[start:end] for start, end, own in frames if not is_removed(own)])
    return columns._replace(data=data)


def _where(kept: Sequence[bool], values: Sequence[_V | None]) -> list[_V | None]:
    return [value if keep else None for keep, value in zip(kept, values, strict=True)]
