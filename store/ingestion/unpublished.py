"""What supervisors have not published yet: the events from their committed offsets to the tails."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, find_stream
from eventproc.store.database import Tx
from eventproc.store.groups import cut_before, earliest_cut
from eventproc.store.ingestion.rows import read_groups, read_offsets, read_streams
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.history import predecessors
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ingestion import PartitionKey, Positions
from eventproc.store.model.partitions import is_reserve
from eventproc.store.segments import segment_ids, segment_state


@attrs.frozen
class UnpublishedEvents:
    """Events that will become rows.

    streams: names by id. starts, ends: offsets of each partition that has some. min_ms, max_ms: rows outside of these
    times will be thrown away.
    """

    streams: Mapping[int, str]
    starts: Mapping[PartitionKey, int]
    ends: Mapping[PartitionKey, int]
    min_ms: int | None
    max_ms: int | None


def unpublished_events(
    tx: Tx,
    supervisor: str,
    *,
    window: tuple[int | None, int | None] = (None, None),
    bounds: Positions | None = None,
) -> list[UnpublishedEvents]:
    """Return the events from a supervisor's committed offsets to the tails of its streams, by message times.

    A segment that the supervisor has not met yet counts from its beginning if it follows one that it reads; every
    partition of a topic does. window: message times of the events that no group reads. bounds: where the ranges of a
    bounded supervisor end; None: it is not bounded.
    Cost: three look-ups per segment of its streams, and one query.
    """
    streams, left, tails = unpublished_ranges(tx, supervisor)
    if bounds is not None:
        tails = {key: min(tail, bounds[key]) for key, tail in tails.items() if key in bounds}
        left = {key: start for key, start in left.items() if start < tails.get(key, start)}
    found: list[UnpublishedEvents] = []
    for group in read_groups(tx, supervisor):  # oldest first: one begins where the one before it ends
        starts: dict[PartitionKey, int] = {}
        ends: dict[PartitionKey, int] = {}
        for key in group.starts.keys() & left.keys():
            end = tails[key] if group.ends is None else min(group.ends[key], tails[key])
            if end > left[key]:
                starts[key], ends[key] = left[key], end
                left[key] = end
        if starts:
            found.append(UnpublishedEvents(streams, starts, ends, group.min_ms, group.max_ms))
    rest = {key: start for key, start in left.items() if start < tails[key]}
    if rest:
        found.append(UnpublishedEvents(streams, rest, {key: tails[key] for key in rest}, *window))
    return found


def unpublished_ranges(
    tx: Tx, supervisor: str
) -> tuple[dict[int, str], dict[PartitionKey, int], dict[PartitionKey, int]]:
    """Return the streams by id, and the first and last offset of each partition with unpublished events.

    Ranges of a bounded supervisor are not applied. Cost: three look-ups per segment of its streams.
    """
    offsets = read_offsets(tx, supervisor)
    streams: dict[int, str] = {}
    starts: dict[PartitionKey, int] = {}
    ends: dict[PartitionKey, int] = {}
    for name, stream_id in read_streams(tx, supervisor).items():
        stream = find_stream(tx, name)
        if stream is None or stream.value.stream_id != stream_id:
            continue
        streams[stream_id] = name
        history = StoredHistory(tx, stream.value)
        known = {segment for sid, segment in offsets if sid == stream_id}
        rows = tx.execute("SELECT segment FROM segment WHERE stream_id = ? ORDER BY segment", (stream_id,))
        segments = [SegmentId(row[0]) for row in rows.fetchall()]
        if known:  # no supervisor reads a reserve, and every later partition follows one
            known.update(filter(is_reserve, segments))
        for segment in segments:  # ids grow with epochs
            state = segment_state(tx, stream_id, segment)
            if state is None:
                continue
            if segment not in known:
                if not known.intersection(predecessors(history, segment)):
                    continue
                known.add(segment)
            committed = offsets.get((stream_id, segment))
            start = state.head if committed is None else committed.offset
            if start < state.tail:
                starts[stream_id, segment], ends[stream_id, segment] = start, state.tail
    return streams, starts, ends


def published_cut(tx: Tx, stream: StreamRecord) -> StreamCut | None:
    """Return the latest cut that all supervisors of the stream have published; None if none reads it.

    A supervisor counts from the submission of a spec that reads the stream, and as long as a group of it does. One with
    ranges does not count: it holds its events. A segment that it has not met yet counts from its beginning.
    Cost: one query for all supervisors, and their specs; for each that reads the stream, one query and two look-ups per
    segment.
    """
    rows = tx.execute(
        "SELECT r.id, s.spec, EXISTS (SELECT 1 FROM ingest_stream WHERE supervisor = r.id AND stream_id = ?)"
        " FROM supervisor_state AS r JOIN supervisor AS s ON s.id = r.id AND s.version ="
        " (SELECT max(version) FROM supervisor WHERE id = r.id AND spec IS NOT NULL) ORDER BY r.id",
        (stream.stream_id,),
    ).fetchall()
    cuts: list[StreamCut] = []
    for supervisor, text, is_noted in rows:
        io = json.loads(text)["io"]
        if io.get("ranges") or not (
            _names(io, stream.name) or (is_noted and _has_group(tx, supervisor, stream.stream_id))
        ):
            continue
        committed = read_offsets(tx, supervisor)
        unfinished = {
            segment: 0 if (offset := committed.get((stream.stream_id, segment))) is None else offset.offset
            for segment in segment_ids(tx, stream.stream_id)
            if not is_reserve(segment)
        }
        cuts.append(cut_before(tx, stream, unfinished))
    return earliest_cut(tx, stream, cuts)


def _names(io: Mapping[str, Any], stream: str) -> bool:
    """Return whether a spec, of which `io` is a part, reads the stream of that name."""
    pattern = io.get("pattern")
    return stream in io.get("streams", ()) or (pattern is not None and bool(re.fullmatch(pattern, stream)))


def _has_group(tx: Tx, supervisor: str, stream_id: int) -> bool:
    """Return whether a group reads or publishes events of the stream."""
    return any(stream_id == key[0] for group in read_groups(tx, supervisor) for key in group.starts)
