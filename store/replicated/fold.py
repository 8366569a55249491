"""Folding a log into a state: in bounded steps for reads, completely within a transaction; and the cache of states.

Invariants: every member computes the same state for a revision. A member whose revision was truncated continues at the
newest snapshot, which is never before the head. The cache holds durable states only.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs

from eventproc.base.bounded_cache import BoundedCache
from eventproc.store.database import PendingSlot, SharedSlot, Tx
from eventproc.store.model.errors import CorruptRecord, NotFound
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.replicated.kinds import ReplicatedType, SnapshotEntry
from eventproc.store.replicated.log import SEGMENT, LogId, get_log, log_name, tail
from eventproc.store.segments import READ_BYTES_MAX, flush_appends, read

S = TypeVar("S")
U = TypeVar("U")

FOLD_BYTES: Final = READ_BYTES_MAX
"""Bytes of entries folded in one step. An update of 100 bytes takes about 10 us; compaction keeps logs far below."""

STATES_CACHED_MAX: Final = 1024
"""States cached for all logs of a process. Raise this if a process alternates between many logs: it then rereads less
from snapshots. Each entry costs the memory of a state."""


@attrs.frozen
class FoldedState(Generic[S]):
    """A state, after all entries before the offset `revision`.

    snapshot: offset at which the newest snapshot among those entries begins. base: offset behind that snapshot.
    snapshot < base <= revision.
    """

    revision: int
    state: S
    snapshot: int
    base: int

    @property
    def since_bytes(self) -> int:
        """Bytes of updates since the newest snapshot."""
        return self.revision - self.base

    @property
    def snapshot_bytes(self) -> int:
        """Size of the newest snapshot, framed."""
        return self.base - self.snapshot


STATE_CACHE: Final = SharedSlot(
    lambda: BoundedCache[tuple[LogId, object], FoldedState[Any]](STATES_CACHED_MAX)
)
"""The newest durable state of each (log, type). A state that is found may be an older one.

Changed on the event loop only, in the order of the commits. Also read on the writer's thread.
"""


class UncommittedStates:
    """States that the functions of one commit batch read or produced; they move to the cache when the batch is durable.

    A batch that is rolled back drops them.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[LogId, object], FoldedState[Any]] = {}

    @staticmethod
    def of(tx: Tx) -> UncommittedStates:
        """Return that of this commit batch."""
        return tx.pending[_UNCOMMITTED_STATES]

    def find(self, log: LogId, kind: ReplicatedType[S, U]) -> FoldedState[S] | None:
        """Return the newest state of the log in this batch."""
        return self._states.get((log, kind))

    def put(self, log: LogId, kind: ReplicatedType[S, U], folded: FoldedState[S]) -> None:
        """Note the newest state of the log."""
        self._states[log, kind] = folded

    def flush(self, tx: Tx) -> None:
        """Move the states to the cache once this batch is durable. The appends themselves are written elsewhere."""
        known = tx.shared[STATE_CACHE]
        for key, state in self._states.items():
            tx.after(partial(known.keep, key, state))


_UNCOMMITTED_STATES: Final = PendingSlot(UncommittedStates)


def newest(state: FoldedState[S], other: FoldedState[S] | None) -> FoldedState[S]:
    """Return the one with the later revision."""
    return state if other is None or other.revision <= state.revision else other


def fold_tail(
    tx: Tx, log: LogId, kind: ReplicatedType[S, U], *, known: FoldedState[S] | None = None
) -> FoldedState[S] | None:
    """Return the state after every entry of the log, this transaction's own included; None before `initialize`.

    known: a state to continue from, if no newer one is cached. Raises NotFound (no such log), CorruptRecord.
    Cost in `db.write`: one look-up while this process was the last to append; else a read of the entries since. In
    `db.read`: a read from `known` on, or from the newest snapshot on.
    """
    end = tail(tx, log)
    group = UncommittedStates.of(tx)
    found = group.find(log, kind) or tx.shared[STATE_CACHE].find((log, kind))
    if known is not None:
        found = newest(known, found)
    if found is None or found.revision < end:
        flush_appends(tx, log)
        while end and (found is None or found.revision < end):
            found, _ = fold_step(tx, log, kind, found)
        if found is not None:
            group.put(log, kind, found)
    assert found is None or found.revision == end, f"log {log} ends at {end}, its state is of {found}"
    return found


def fold_step(
    tx: Tx,
    log: LogId,
    kind: ReplicatedType[S, U],
    since: FoldedState[S] | None,
    *,
    bytes_max: int = FOLD_BYTES,
) -> tuple[FoldedState[S] | None, int]:
    """Fold at most `bytes_max`, plus or minus an extent, from `since` on.

    Begins at the newest snapshot without `since`, or if the log was truncated behind it. Returns the state (None while
    there is none) and where the log ends. Raises NotFound, CorruptRecord.
    """
    begin = get_log(tx, log).value.snapshot if since is None else since.revision
    found = read(tx, log, {SEGMENT: (begin, None)}, bytes_max=bytes_max)
    state = found.states.get(SEGMENT)
    if state is None:
        raise NotFound(kind="log", name=str(log))
    if begin < state.head:
        if since is None:
            raise CorruptRecord(key=log_name(log), reason=f"its newest snapshot, at {begin}, was truncated")
        return fold_step(tx, log, kind, None, bytes_max=bytes_max)
    folded = since
    for run in found.runs:
        offset = run.start
        for payload in run.payloads:
            end = offset + FRAME_BYTES + len(payload)
            folded = _follow(kind, folded, log, offset, end, payload)
            offset = end
    return folded, state.tail


def _follow(
    kind: ReplicatedType[S, U],
    before: FoldedState[S] | None,
    log: LogId,
    offset: int,
    end: int,
    payload: bytes,
) -> FoldedState[S]:
    place = f"{log_name(log)} at {offset}"
    entry = kind.decode(place, payload)
    if isinstance(entry, SnapshotEntry):
        return FoldedState(end, entry.state, offset, end)
    if before is None:
        raise CorruptRecord(key=place, reason="an update without a snapshot before it")
    return attrs.evolve(before, revision=end, state=kind.fold_all(before.state, entry.updates))


def require(folded: FoldedState[S] | None, log: LogId) -> FoldedState[S]:
    """Return `folded`. Raises NotFound when the log was not initialized."""
    if folded is None:
        raise NotFound(kind="initial state of log", name=str(log))
    return folded
