"""Changing a replicated object within a transaction: initialize, append, compact.

No conflict is possible here: one transaction folds the tail, decides, and appends the updates, together with all
other rows that belong to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import attrs

from eventproc.store.database import Tx
from eventproc.store.records import replace
from eventproc.store.replicated.fold import FoldedState, UncommittedStates, fold_tail, require
from eventproc.store.replicated.kinds import ReplicatedType
from eventproc.store.replicated.log import LOG_RECORD, SEGMENT, LogId, get_log, log_name, tail
from eventproc.store.segments import EventBlock, SegmentEvents, append as append_events, truncate_segments

S = TypeVar("S")
U = TypeVar("U")

COMPACT_BYTES: Final = 64 * 1024
"""Bytes of updates after which an append writes a snapshot; after as many bytes as the newest snapshot has, if that is
more. 64 KiB are about 600 updates of 100 bytes, which a new member folds in 6 ms. Higher: members that are new or far
behind read more. Lower: snapshots are written more often, and fewer updates are kept for members that are behind."""


def initialize(tx: Tx, log: LogId, kind: ReplicatedType[S, U], initial: S) -> FoldedState[S]:
    """Make `initial` the first state of an empty log, and return the state; another caller may have been first.

    A first state is written at offset 0 only, so a log that was truncated is not initialized again. Raises NotFound
    (no such log).
    """
    if tail(tx, log) == 0:
        return _append_snapshot(tx, log, kind, initial, at=0)
    return require(fold_tail(tx, log, kind), log)


def append(
    tx: Tx, log: LogId, kind: ReplicatedType[S, U], updates: Sequence[U], *, after: S | None = None
) -> FoldedState[S]:
    """Append the updates, all or none, and return the state after them. Does nothing without updates.

    after: that state, if the caller has folded the updates already.

    The caller decides on them by the state that `fold_tail` returns in the same transaction. Compacts the log when
    that is due. Raises NotFound (no such log, or not initialized), InvalidArgument (too large, or other members could
    not read them), and what `fold` raises; then nothing changed. Cost: a small append, the encoding, and sometimes a
    snapshot.
    """
    before = require(fold_tail(tx, log, kind), log)
    if not updates:
        return before
    entry = kind.encode_updates(updates)
    state = kind.fold_all(before.state, kind.read_updates(entry)) if after is None else after
    return append_entry(tx, log, kind, before, entry, state)


def append_entry(
    tx: Tx, log: LogId, kind: ReplicatedType[S, U], before: FoldedState[S], entry: bytes, state: S
) -> FoldedState[S]:
    """Append the encoded updates that lead from `before` to `state`; compact when that is due.

    Raises OffsetConflict when `before` is not the log's last state.
    """
    revision = _append_payload(tx, log, entry, at=before.revision)
    after = attrs.evolve(before, revision=revision, state=state)
    UncommittedStates.of(tx).put(log, kind, after)
    if after.since_bytes > max(COMPACT_BYTES, after.snapshot_bytes):
        return compact(tx, log, kind)
    return after


def compact(tx: Tx, log: LogId, kind: ReplicatedType[S, U]) -> FoldedState[S]:
    """Write a snapshot, and truncate the log at the one before it. Does nothing if no update came since the last one.

    A member that missed fewer than two snapshots continues where it is; one that is further behind continues from the
    newest. Raises NotFound (no such log, or not initialized), InvalidArgument (the state is too
    large). Cost: encoding the state and reading it again, three rows.
    """
    before = require(fold_tail(tx, log, kind), log)
    if not before.since_bytes:
        return before
    record = get_log(tx, log)
    assert record.value.snapshot == before.snapshot, f"{record.value} is not at {before.snapshot}"
    after = _append_snapshot(tx, log, kind, before.state, at=before.revision)
    replace(tx, LOG_RECORD, record, attrs.evolve(record.value, snapshot=after.snapshot))
    if before.snapshot:
        truncate_segments(tx, log_name(log), log, {SEGMENT: before.snapshot}, passed=())
    return after


def _append_snapshot(tx: Tx, log: LogId, kind: ReplicatedType[S, U], state: S, *, at: int) -> FoldedState[S]:
    entry = kind.encode_snapshot(state)
    revision = _append_payload(tx, log, entry, at=at)
    after = FoldedState(revision, kind.read_state(entry), at, revision)
    UncommittedStates.of(tx).put(log, kind, after)
    return after


def _append_payload(tx: Tx, log: LogId, payload: bytes, *, at: int) -> int:
    """Append one entry at `at`, which must be the end of the log. Returns the new end. Raises OffsetConflict."""
    events = EventBlock([payload]).encode()
    append_events(tx, log_name(log), log, (SegmentEvents(SEGMENT, events),), expected_offset=at)
    return at + events.size_bytes
