"""Checks of the logs of replicated objects: their rows, and where their snapshots lie."""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventproc.store.database import Tx
from eventproc.store.inspection.extents import extent_violations
from eventproc.store.replicated import LogId
from eventproc.store.replicated.log import SEGMENT, get_log
from eventproc.store.segments import SegmentState, read_extents, segment_state
from eventproc.store.segments.extents import BlobLoader, decode_extent


def log_violations(tx: Tx, log: LogId) -> Iterator[str]:
    """Yield what is wrong with one log: each of its entries is looked at."""
    state = segment_state(tx, log, SEGMENT)
    if state is None:
        yield f"log {log} has no segment"
        return
    yield from (f"log {log}: {problem}" for problem in extent_violations(tx, log, SEGMENT, state, None))
    newest = get_log(tx, log).value.snapshot
    snapshots = [offset for offset, is_snapshot in _entries(tx, log, state) if is_snapshot]
    if not state.head <= newest <= state.tail:
        yield f"log {log}: its newest snapshot at {newest} is not within [{state.head}, {state.tail})"
    if state.tail and (not snapshots or (snapshots[0], snapshots[-1]) != (state.head, newest)):
        yield f"log {log} begins at {state.head} with its newest snapshot at {newest}; they are at {snapshots}"
    if len(snapshots) > 2:
        yield f"log {log} was not truncated at the snapshot before its newest: {snapshots}"


def _entries(tx: Tx, log: LogId, state: SegmentState) -> Iterator[tuple[int, bool]]:
    """Yield where each readable entry begins, and whether it is a snapshot."""
    blobs = BlobLoader(tx)
    for extent in read_extents(tx, log, SEGMENT, state.head, limit=2**31):
        for event in decode_extent(blobs, SEGMENT, extent).events(str(log)):
            if event.offset >= state.head:
                entry = json.loads(event.payload.partition(b":")[2])
                yield event.offset, "updates" not in entry
