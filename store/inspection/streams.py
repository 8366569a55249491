"""Checks of streams, logs, requests and rows without an owner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

from eventproc.store.catalog import REQUEST_STREAM, STREAM, SYSTEM_SCOPE, StoredHistory, StreamRecord
from eventproc.store.chunks.ingest import ALL_STREAMS
from eventproc.store.client_logs import CLIENT_SEGMENT, list_client_logs
from eventproc.store.database import Tx, find_number
from eventproc.store.inspection.extents import LatestBlob, all_extents, extent_violations
from eventproc.store.inspection.unfinished_events import unfinished_events
from eventproc.store.key_value_tables import missing_partitions
from eventproc.store.marks import mark_violations
from eventproc.store.model.cuts import StreamCut, verify_cut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.partitions import check_partitions, is_reserve
from eventproc.store.model.states import StreamState
from eventproc.store.records import find, get, keys
from eventproc.store.replicated import LogId, list_logs
from eventproc.store.replicated.log import SEGMENT, get_log
from eventproc.store.segments import SegmentState, segment_state, segment_states
from eventproc.store.segments.extents import decode_extent


def streams_to_check(tx: Tx) -> list[str]:
    """Return the names of all streams, also the system's own."""
    return keys(tx, STREAM)


def stream_violations(tx: Tx, name: str) -> Iterator[str]:
    """Yield a line for each invariant of one stream that does not hold. Nothing if it does not exist.

    Cost: reads all events of the stream.
    """
    if (found := find(tx, STREAM, name)) is None:
        return
    try:
        yield from (f"{name}: {problem}" for problem in _of_stream(tx, found.value))
    except (AssertionError, EventprocError, ValueError) as error:
        yield f"{name}: {error!r}"


def catalog_violations(tx: Tx) -> Iterator[str]:
    """Yield a line for each invariant that does not hold: of logs, key-value tables, marks, tags, and leftovers."""
    streams = [get(tx, STREAM, name).value for name in keys(tx, STREAM)]
    known = {stream.stream_id for stream in streams}
    for log in list_logs(tx):
        known.add(log)
        yield from log_violations(tx, log)
    for name, log_id in list_client_logs(tx).items():
        known.add(log_id)
        yield from _of_client_log(tx, name, log_id)
    for name, lost in missing_partitions(tx).items():
        yield f"the key-value table {name} has no partition {', '.join(lost)}"
    yield from mark_violations(tx)
    indexed = tx.execute("SELECT stream, tag FROM stream_tag ORDER BY stream, tag").fetchall()
    tagged = [(stream.name, tag) for stream in streams for tag in stream.config.tags]
    if indexed != tagged:
        yield f"the index of tags has {indexed}, the streams have {tagged}"
    yield from _of_leftovers(tx, known)


def _of_stream(tx: Tx, stream: StreamRecord) -> Iterator[str]:
    history = StoredHistory(tx, stream, stored=True)
    epochs = [history.epoch(number) for number in range(history.first, history.current + 1)]
    check = check_partitions if stream.config.is_topic else Epoch.check
    for epoch in epochs:
        check(epoch)
    times = [epoch.created_ms for epoch in epochs]
    if sorted(set(times)) != times:
        yield f"the times of its epochs do not grow: {times}"
    newest = find_number(tx, "SELECT max(number) FROM epoch WHERE stream_id = ?", stream.stream_id)
    if newest != stream.epoch:
        yield f"its newest epoch is {newest}, its record says {stream.epoch}"
    yield from _of_totals(tx, stream.stream_id, epochs)
    active = set(epochs[-1].ids)
    ranges = {segment.id: segment.range for epoch in epochs for segment in epoch.segments}
    states: dict[SegmentId, SegmentState] = {}
    for segment, found in segment_states(tx, stream.stream_id):
        states[segment] = found
        sealed = segment not in active or stream.state is StreamState.SEALED
        if found.sealed != sealed:
            yield f"segment {segment} is {'' if found.sealed else 'not '}sealed in state {stream.state.value}"
        if not 0 <= found.head <= found.tail or not 0 <= found.head_number <= found.tail_number:
            yield f"segment {segment}: its head is beyond its tail: {found}"
        if is_reserve(segment) and found.tail:
            yield f"segment {segment}: the reserve holds {found.tail_number} events"
    if missing := set(ranges) - set(states):
        yield f"segments {sorted(missing)} are in its history and have no row"
    # A key says nothing about the partition of its events, because a caller may choose any.
    owned = {} if stream.config.is_topic else ranges
    checked = {segment: (found, owned.get(segment)) for segment, found in states.items()}
    yield from extent_violations(tx, stream.stream_id, checked)
    yield from _of_head(stream, history, states)


def _of_totals(tx: Tx, stream_id: int, epochs: Sequence[Epoch]) -> Iterator[str]:
    """Yield each epoch whose totals are not those of the epoch before and of the segments that it replaced."""
    for before, after in pairwise(epochs):
        replaced = [segment_state(tx, stream_id, each) for each in sorted({*before.ids} - {*after.ids})]
        lengths = [(each.tail, each.tail_number) for each in replaced if each is not None]
        size_bytes = before.sealed_bytes + sum(length for length, _ in lengths)
        events = before.sealed_events + sum(count for _, count in lengths)
        if len(lengths) == len(replaced) and (size_bytes, events) != (
            after.sealed_bytes,
            after.sealed_events,
        ):
            yield f"epoch {after.number}: {after.sealed_bytes} bytes sealed before it, found {size_bytes}"


def _of_head(
    stream: StreamRecord, history: StoredHistory, states: dict[SegmentId, SegmentState]
) -> Iterator[str]:
    if stream.head is None:
        return
    if not stream.name.startswith(SYSTEM_SCOPE):
        verify_cut(StreamCut(stream.name, stream.stream_id, stream.head), history)
    for segment, offset in stream.head.items():
        state = states.get(segment)
        if state is None or state.head != max(offset, 0):
            yield f"segment {segment} begins at {state and state.head}, the stream at {offset}"


def _of_leftovers(tx: Tx, known: set[int]) -> Iterator[str]:
    """Yield rows of deleted streams that the reaper does not know."""
    reaped = dict(tx.execute("SELECT stream_id, deleted FROM reap").fetchall())
    # Blobs of an aborting transaction do not need their stream.
    reaped.update(tx.execute("SELECT DISTINCT stream_id, 1 FROM txn WHERE state = 'aborting'").fetchall())
    for table in (
        "segment",
        "epoch",
        "extent",
        "blob",
        "sink",
        "writer",
        "delayed_event",
        "event_id",
        "prioritized_stream",
    ):
        for (stream_id,) in tx.execute(f"SELECT DISTINCT stream_id FROM {table}").fetchall():
            if table == "sink" and stream_id == ALL_STREAMS:
                continue
            if stream_id not in known and not reaped.get(stream_id):
                yield f"{table}: rows of stream {stream_id}, which was deleted and is not being reaped"
            if stream_id not in known and table == "segment":
                yield f"segment: rows of the deleted stream {stream_id}"
    waiting = (
        "SELECT stream_id, id FROM event_id"
        " WHERE delayed IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM delayed_event WHERE delayed_event.event_id = event_id.delayed)"
    )
    for stream_id, id in tx.execute(waiting).fetchall():
        if stream_id in known:
            yield f"event_id: {id} of stream {stream_id} waits for a delayed event that is gone"
    highest = tx.execute("SELECT value FROM counter WHERE name = 'stream_id'").fetchone()[0]
    if known and max(known) > highest:
        yield f"stream id {max(known)} is higher than the last one given, {highest}"


def request_violations(tx: Tx) -> Iterator[str]:
    """Yield a line for each pending request that no event will run, and each finished one without a time."""
    pending = tx.execute("SELECT id, target, kind FROM request WHERE status = 'pending'").fetchall()
    intents = [(target, kind) for _, target, kind in pending]
    if len(set(intents)) != len(intents):
        yield f"more than one pending request of a kind: {sorted(intents)}"
    timeless = "SELECT id FROM request WHERE status != 'pending' AND finished_ms IS NULL"
    for (request_id,) in tx.execute(timeless).fetchall():
        yield f"request {request_id} has an outcome and no finish time"
    unfinished = set(unfinished_events(tx, REQUEST_STREAM))
    for request_id, target, kind in pending:
        if request_id not in unfinished:
            yield f"{kind} of {target}: request {request_id} is pending and no event will run it"


def log_violations(tx: Tx, log: LogId) -> Iterator[str]:
    """Yield what is wrong with one log: each of its entries is looked at."""
    state = segment_state(tx, log, SEGMENT)
    if state is None:
        yield f"log {log} has no segment"
        return
    yield from (f"log {log}: {problem}" for problem in extent_violations(tx, log, {SEGMENT: (state, None)}))
    newest = get_log(tx, log).value.snapshot
    snapshots = [offset for offset, is_snapshot in _entries(tx, log, state) if is_snapshot]
    if not state.head <= newest <= state.tail:
        yield f"log {log}: its newest snapshot at {newest} is not within [{state.head}, {state.tail})"
    if state.tail and (not snapshots or (snapshots[0], snapshots[-1]) != (state.head, newest)):
        yield f"log {log} begins at {state.head} with its newest snapshot at {newest}; they are at {snapshots}"
    if len(snapshots) > 2:
        yield f"log {log} was not truncated at the snapshot before its newest: {snapshots}"


def _of_client_log(tx: Tx, name: str, log_id: int) -> Iterator[str]:
    if (state := segment_state(tx, log_id, CLIENT_SEGMENT)) is None:
        yield f"{name} has no segment"
    else:
        yield from (
            f"{name}: {each}" for each in extent_violations(tx, log_id, {CLIENT_SEGMENT: (state, None)})
        )


def _entries(tx: Tx, log: LogId, state: SegmentState) -> Iterator[tuple[int, bool]]:
    """Yield where each readable entry begins, and whether it is a snapshot."""
    blobs = LatestBlob(tx)
    for extent in all_extents(tx, log, SEGMENT):
        for event in decode_extent(blobs, SEGMENT, extent).events(str(log)):
            if event.offset >= state.head:
                entry = json.loads(event.payload.partition(b":")[2])
                yield event.offset, "updates" not in entry
