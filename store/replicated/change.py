"""Changing a replicated object within a transaction: initialize, append, compact.

No conflict is possible here: the tail is folded, the decision made and its updates appended in one
transaction, with whatever other rows belong to it.
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
from eventproc.store.segments import EventBlock, SegmentEvents, truncate_segments
from eventproc.store.segments import append as append_events

S = TypeVar("S")
U = TypeVar("U")

COMPACT_BYTES: Final = 64 * 1024
"""Bytes of updates after which the next one is followed by a snapshot, if the newest snapshot is not larger: then
after as many as that has. Some 600 updates of 100 bytes, 6 ms to fold for a new member. Higher: new members,
and those that were left behind, read more; lower: a snapshot is written more often, and slack is shorter."""


def initialize(tx: Tx, log: LogId, kind: ReplicatedType[S, U], initial: S) -> FoldedState[S]:
    """Make `initial` the first state of an empty log; return the state, which is another's if that came first.

    Only an entry at offset 0 counts as the first: a log that was truncated is not initialized again. Raises
    NotFound (no such log).
    """
    if tail(tx, log) == 0:
        return _append_snapshot(tx, log, kind, initial, at=0)
    return require(fold_tail(tx, log, kind), log)


def append(tx: Tx, log: LogId, kind: ReplicatedType[S, U], updates: Sequence[U]) -> FoldedState[S]:
    """Append the updates, all or none, and return the state after them; nothing happens when there are none.

    They are meant for the state that `fold_tail` returns in the same transaction. Compacts the log when that is
    due. Raises NotFound (no such log, or not initialized), InvalidArgument (too large), and what `fold` raises;
    then nothing changed. Cost: that of a small append, of encoding, and of a snapshot now and then.
    """
    before = require(fold_tail(tx, log, kind), log)
    if not updates:
        return before
    entry = kind.encode_updates(updates)
    return append_entry(tx, log, kind, before, entry, kind.fold_all(before.state, updates))


def append_entry(
    tx: Tx, log: LogId, kind: ReplicatedType[S, U], before: FoldedState[S], entry: bytes, state: S
) -> FoldedState[S]:
    """Append updates, already encoded, behind `before`, which they lead to `state`; compact when that is due.

    Raises OffsetConflict when `before` is not the log's last state.
    """
    revision = _append_payload(tx, log, entry, at=before.revision)
    after = attrs.evolve(before, revision=revision, state=state)
    UncommittedStates.of(tx).put(log, kind, after)
    if after.since_bytes > max(COMPACT_BYTES, after.snapshot_bytes):
        return compact(tx, log, kind)
    return after


def compact(tx: Tx, log: LogId, kind: ReplicatedType[S, U]) -> FoldedState[S]:
    """Write a snapshot, and truncate the log at the one before it. Nothing happens if no update came since that.

    A member that is behind by less than two snapshots goes on where it stands; one that is further behind goes
    on from the newest. Raises NotFound (no such log, or not initialized), InvalidArgument (the state is too
    large). Cost: encoding the state, three rows.
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
    revision = _append_payload(tx, log, kind.encode_snapshot(state), at=at)
    after = FoldedState(revision, state, at, revision)
    UncommittedStates.of(tx).put(log, kind, after)
    return after


def _append_payload(tx: Tx, log: LogId, payload: bytes, *, at: int) -> int:
    """Append one entry where the log must end, at `at`. Returns where it ends then. Raises OffsetConflict."""
    events = EventBlock([payload]).encode()
    append_events(tx, log_name(log), log, (SegmentEvents(SEGMENT, events),), expected_offset=at)
    return at + events.size_bytes
