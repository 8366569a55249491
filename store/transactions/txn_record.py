"""The records of transactions, in the table `txn`: found, listed, changed, finished, waited for.

Every change increments the version, so that a decision by an older version (of a timer) is refused. The rows of
transactions that end in one group commit are written together before the COMMIT, or before SQL reads the table.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.store.database import PendingSlot, SharedSlot, Tx, Watch, find_number
from eventproc.store.local_results import LocalResults
from eventproc.store.model.errors import CorruptRecord, NotFound, VersionConflict
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARE_ROWS, PREPARED_ROWS, ROUND_TRANSACTIONS, TXNS_LISTED_MAX
from eventproc.store.model.list_pages import NO_LIMIT
from eventproc.store.model.transactions import TxnEvent, TxnState, advance_txn, execution_ms
from eventproc.store.segments import AppendResult
from eventproc.store.segments.reaper import STEP_BLOBS_MAX
from eventproc.store.transactions.staging import StagedTotals, flush_staging, staged_totals


@attrs.frozen
class TxnRecord:
    """A transaction of one stream.

    stream: "scope/stream". epoch: the epoch in which it began.
    created_ms, finished_ms: wall clock.
    instance: the instance that began or last pinged it. lease_ms: None if it lasts as long as that instance lives.
    lease_until_ms, execution_until_ms: monotonic ms of the boot `boot_id`, None without a lease.
    order: its place in the order of the stream's commits, from the decision on.
    events, size_bytes, rows: what is staged: events, bytes with frames, index rows.
    prepared: how often its commit was prepared.
    appended: where its events were appended, one result per segment.
    reason: why it was aborted; of a committing transaction, how its commit failed last.
    joint: None for a transaction of one stream. A joint transaction has a record of the same id in each of its streams;
        there it is the group whose progress it moves, or the producer of Kafka's clients that has begun it; "" if any
        process may commit it.
    """

    id: str
    stream: str
    stream_id: int
    state: TxnState
    version: int
    epoch: int
    created_ms: int
    instance: str
    lease_ms: int | None
    boot_id: str
    lease_until_ms: int | None
    execution_until_ms: int | None
    order: int | None = None
    events: int = 0
    size_bytes: int = 0
    rows: int = 0
    prepared: int = 0
    appended: tuple[AppendResult, ...] = ()
    reason: str | None = None
    finished_ms: int | None = None
    joint: str | None = None

    def lease_left_ms(self, tx: Tx) -> int | None:
        """Return how long its lease still lasts, at least 0; None while it lasts as long as its process lives."""
        if self.lease_until_ms is None:
            return None
        return max(0, self.lease_until_ms - tx.monotonic_ms) if self.boot_id == tx.clock.boot_id else 0


@attrs.define
class TxnStepLimits:
    """How much one step of a transaction's workflow does: one object per open database, at TXN_STEP_LIMITS.

    round_transactions: transactions that one round commits. round_rows: index rows that one round moves; a transaction
    with more is packed first. preparation_rows: index rows that one step of preparing replaces. abort_blobs: blobs that
    one step of an abort frees.
    """

    round_transactions: int = ROUND_TRANSACTIONS
    round_rows: int = PREPARED_ROWS
    preparation_rows: int = PREPARE_ROWS
    abort_blobs: int = STEP_BLOBS_MAX


TXN_STEP_LIMITS: Final = SharedSlot(TxnStepLimits)
"""The step limits of a database; a test may make them small."""


TXN_COLUMNS: Final = (
    "id, stream, stream_id, state, version, epoch, created_ms, instance, lease_ms, boot, lease_until_ms,"
    " execution_until_ms, position, events, bytes, rows, prepared, appended, reason, finished_ms, joint"
)

_INSERT: Final = (
    f"INSERT INTO txn (finished, {TXN_COLUMNS}) VALUES ({', '.join('?' * (TXN_COLUMNS.count(',') + 2))})"
)


@attrs.define
class CommitOrder:
    """Where a stream's order of commits stands in this transaction.

    last: order of the last decided commit, 0 if none is known. undone: it is not finished yet.
    """

    last: int
    undone: bool


class _PendingCommits:
    """Commits of this group commit whose transactions have no row yet, and the orders of commits that it has read."""

    def __init__(self) -> None:
        self.orders: dict[int, CommitOrder] = {}
        self.ended: list[TxnRecord] = []

    def flush(self, tx: Tx) -> None:
        """Write the rows. The orders stay valid."""
        if self.ended:
            tx.known.begin(tx)
            tx.executemany(_INSERT, [(True, *_row_of(txn)) for txn in self.ended])
            tx.known.keep({("order", stream_id): order for stream_id, order in self.orders.items()}, tx)
            self.ended.clear()


_PENDING_COMMITS: Final = PendingSlot(_PendingCommits)


def flush_txns(tx: Tx) -> None:
    """Write what this group commit has staged and finished, before SQL reads it."""
    flush_staging(tx)
    tx.pending[_PENDING_COMMITS].flush(tx)


def commit_order(tx: Tx, stream_id: int) -> CommitOrder:
    """Return the order of the stream's commits. Two look-ups, once per group commit while no other way changes it."""
    orders = tx.pending[_PENDING_COMMITS].orders
    if (order := orders.get(stream_id)) is None:
        known: CommitOrder | None = tx.known.find(("order", stream_id), tx)
        order = orders[stream_id] = known or _read_order(tx, stream_id)
    return order


def _read_order(tx: Tx, stream_id: int) -> CommitOrder:
    flush_txns(tx)
    undone = _last_order(tx, stream_id, finished=0)
    last = undone if undone is not None else last_finished_order(tx, stream_id)
    return CommitOrder(last or 0, undone is not None)


def has_decided(tx: Tx, stream_id: int) -> bool:
    """Return whether the stream has a transaction that is decided and not committed yet. One look-up."""
    return _last_order(tx, stream_id, finished=0) is not None


def last_finished_order(tx: Tx, stream_id: int) -> int | None:
    """Return the order of the stream's last commit that is finished, None if none is known. One look-up."""
    return _last_order(tx, stream_id, finished=1)


def _last_order(tx: Tx, stream_id: int, *, finished: int) -> int | None:
    flush_txns(tx)
    row = tx.execute(
        "SELECT max(position) FROM txn WHERE stream_id = ? AND finished = ? AND position IS NOT NULL",
        (stream_id, finished),
    ).fetchone()
    return None if row[0] is None else int(row[0])


TXN_ID_END: Final = "\U0010ffff"
"""Sorts behind the id of every transaction."""

CLIENT_IDS_END: Final = "01"
"""Divides the ids of a stream's transactions into two ranges, each of which is ordered by time. Those of clients of the
endpoints begin with their epoch, and are before it; ours begin with their time, and are behind it since 2004."""

_WHERE: Final = "WHERE finished IN (0, 1) AND stream_id = ? AND id = ?"


def find_txn(tx: Tx, stream_id: int, txn_id: str) -> TxnRecord | None:
    """Return the transaction, None if it never existed or is forgotten. Two look-ups, one more while it is open."""
    flush_txns(tx)
    row = tx.execute(f"SELECT {TXN_COLUMNS} FROM txn {_WHERE}", (stream_id, txn_id)).fetchone()
    return None if row is None else _with_totals(tx, txn_from_row(row))


def get_txn(tx: Tx, stream_id: int, txn_id: str) -> TxnRecord:
    """Return the transaction. Raises NotFound."""
    if (found := find_txn(tx, stream_id, txn_id)) is None:
        raise NotFound(kind="transaction", name=txn_id)
    return found


def select_txns(tx: Tx, where: str, *values: str | int) -> list[TxnRecord]:
    """Return the transactions for which `where` is true, which may say an order; without the totals of open ones."""
    flush_txns(tx)
    rows = tx.execute(f"SELECT {TXN_COLUMNS} FROM txn WHERE {where}", values)
    return [txn_from_row(row) for row in rows.fetchall()]


def joint_rows(tx: Tx, txn_id: str) -> list[TxnRecord]:
    """Return the records of a joint transaction, one per stream, by stream id. Two look-ups per stream."""
    found = select_txns(tx, "id = ? AND joint IS NOT NULL ORDER BY stream_id", txn_id)
    return [_with_totals(tx, each) for each in found]


def list_open(
    tx: Tx, stream_id: int, *, after: str = "", limit: int | None = TXNS_LISTED_MAX
) -> list[TxnRecord]:
    """Return the stream's open, committing and aborting transactions, the oldest first.

    after: only later ones than this id. limit: at most that many; None: all.
    """
    where = "finished = 0 AND stream_id = ? AND id > ? ORDER BY id LIMIT ?"
    found = select_txns(tx, where, stream_id, after, NO_LIMIT if limit is None else limit)
    return [_with_totals(tx, each) for each in found]


def count_open(tx: Tx, among: Collection[int] | None = None) -> int:
    """Return how many transactions of streams are not decided; a joint one counts once for each stream.

    among: ids of the streams. None: all.
    """
    flush_txns(tx)
    # A partial index serves a query only if the query repeats its condition literally.
    is_open = f"FROM txn WHERE state = '{TxnState.OPEN.value}'"
    if among is None:
        return int(tx.execute(f"SELECT count(*) {is_open}").fetchone()[0])
    rows = tx.execute(f"SELECT stream_id, count(*) {is_open} GROUP BY stream_id").fetchall()
    return sum(count for stream_id, count in rows if stream_id in among)


def list_finished(
    tx: Tx, stream_id: int, *, after: str | None = None, limit: int = TXNS_LISTED_MAX
) -> list[TxnRecord]:
    """Return the stream's transactions that ended within a day: ours, then those of clients, each the newest first.

    after: only what comes behind this id; CLIENT_IDS_END: those of clients. limit: at most that many.
    """
    where = "finished = 1 AND stream_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
    return select_txns(tx, where, stream_id, TXN_ID_END if after is None else after, limit)


def list_failing(tx: Tx) -> list[TxnRecord]:
    """Return the transactions of all streams whose commit failed and is being retried, at most one per stream.

    It reads every unfinished transaction.
    """
    where = "finished = 0 AND position IS NOT NULL AND reason IS NOT NULL ORDER BY stream_id, position"
    return select_txns(tx, where)


def failing_streams(tx: Tx) -> list[tuple[str, int]]:
    """Return the streams of `list_failing`, and their ids, also if the transactions cannot be decoded."""
    flush_txns(tx)
    return tx.execute(
        "SELECT DISTINCT stream, stream_id FROM txn"
        " WHERE finished = 0 AND position IS NOT NULL AND reason IS NOT NULL ORDER BY stream_id"
    ).fetchall()


def record_commit_failure(tx: Tx, stream_id: int, *, reason: str) -> bool:
    """Record why the stream's next commit failed; return whether the reason is new. The transaction may be damaged."""
    flush_txns(tx)
    found: tuple[str, str | None] | None = tx.execute(
        "SELECT id, reason FROM txn WHERE stream_id = ? AND finished = 0 AND position IS NOT NULL"
        " ORDER BY position LIMIT 1",
        (stream_id,),
    ).fetchone()
    if found is None or found[1] == reason:
        return False
    tx.execute(
        "UPDATE txn SET reason = ?, version = version + 1 WHERE finished = 0 AND stream_id = ? AND id = ?",
        (reason, stream_id, found[0]),
    )
    tx.wake(("txn", stream_id, found[0]))
    return True


def has_unfinished(tx: Tx) -> bool:
    """Return whether any stream has a decided, unfinished transaction. It may read every unfinished one."""
    row = tx.execute("SELECT 1 FROM txn WHERE finished = 0 AND state <> ? LIMIT 1", (TxnState.OPEN.value,))
    return row.fetchone() is not None


def oldest_unfinished_epoch(tx: Tx, stream_id: int) -> int | None:
    """Return the oldest epoch in which an unfinished transaction of the stream began. It reads all unfinished ones."""
    flush_txns(tx)
    return find_number(tx, "SELECT min(epoch) FROM txn WHERE finished = 0 AND stream_id = ?", stream_id)


def new_txn(
    tx: Tx,
    stream: str,
    stream_id: int,
    txn_id: str,
    *,
    epoch: int,
    instance: str,
    lease_ms: int | None,
    state: TxnState = TxnState.OPEN,
    **decided: Any,
) -> TxnRecord:
    """Return the record of a transaction that begins now. decided: fields of one that is decided already."""
    return TxnRecord(
        id=txn_id,
        stream=stream,
        stream_id=stream_id,
        state=state,
        version=0,
        epoch=epoch,
        created_ms=tx.now_ms,
        instance=instance,
        lease_ms=lease_ms,
        boot_id=tx.clock.boot_id,
        lease_until_ms=None if lease_ms is None else tx.monotonic_ms + lease_ms,
        execution_until_ms=None if lease_ms is None else tx.monotonic_ms + execution_ms(lease_ms),
        **decided,
    )


def insert_txn(tx: Tx, txn: TxnRecord) -> None:
    """Insert a new transaction."""
    tx.execute(_INSERT, (False, *_row_of(txn)))


def insert_ended(tx: Tx, txn: TxnRecord) -> None:
    """Insert a transaction that began and ended in this database transaction, at the end of the group commit.

    No other process knows it yet, so none is notified.
    """
    assert txn.state.is_final, f"{txn.id} is {txn.state.value}"
    tx.pending[_PENDING_COMMITS].ended.append(txn)
    tx.mark_changed()


def finish_commit(tx: Tx, txn: TxnRecord, appended: tuple[AppendResult, ...]) -> TxnRecord:
    """Record that the events of a committing transaction are visible at `appended`, and tell waiters; return it."""
    state = advance_txn(txn.state, TxnEvent.COMMITTED, name=txn.id)
    return end_txn(tx, txn, state=state, appended=appended, reason=None)


def end_txn(tx: Tx, txn: TxnRecord, **changes: Any) -> TxnRecord:
    """Write the final state of a transaction that has a row, and tell those that wait for it; return it."""
    after = change_txn(tx, txn, finished_ms=tx.now_ms, **changes)
    tx.after(partial(tx.shared[TXN_OUTCOMES].deliver, (txn.stream_id, txn.id), after))
    return after


def change_txn(tx: Tx, before: TxnRecord, *, expected: int | None = None, **changes: Any) -> TxnRecord:
    """Change fields of the transaction, increment its version, and wake those that watch it; return it.

    expected: the version that the decision was based on; None skips the check. Raises VersionConflict.
    """
    if expected is not None and expected != before.version:
        raise VersionConflict(key=f"transaction {before.id}", expected=expected, actual=before.version)
    after = attrs.evolve(before, version=before.version + 1, **changes)
    columns = {
        "version": after.version,
        **{_COLUMN.get(name, name): value for name, value in changes.items() if name != "appended"},
    }
    if after.state is not before.state:
        columns["state"] = after.state.value
        # The totals are stored from the decision on, because the staged rows are deleted.
        columns.update(events=after.events, bytes=after.size_bytes, rows=after.rows)
    if after.state.is_final:
        columns["finished"], columns["appended"] = True, _appended_text(after)
    tx.pending[_PENDING_COMMITS].orders.pop(before.stream_id, None)
    tx.execute(
        f"UPDATE txn SET {', '.join(f'{name} = ?' for name in columns)}"
        " WHERE finished = 0 AND stream_id = ? AND id = ?",
        (*columns.values(), before.stream_id, before.id),
    )
    tx.wake(("txn", after.stream_id, after.id))
    return after


def txn_from_row(row: tuple[Any, ...]) -> TxnRecord:
    """Return the transaction of a row with TXN_COLUMNS. Raises CorruptRecord."""
    try:
        return _decoded(row)
    except (ValueError, TypeError) as error:
        raise CorruptRecord(key=f"transaction {row[0]} of {row[1]}", reason=str(error)) from error


def _decoded(row: tuple[Any, ...]) -> TxnRecord:
    """Return the transaction: the columns are the fields, in their order."""
    appended = () if row[17] is None else appended_from_json(json.loads(row[17]))
    fields: list[Any] = [*row[:3], TxnState(row[3]), *row[4:17], appended, *row[18:]]
    return TxnRecord(*fields)


def appended_from_json(plain: Iterable[list[int]]) -> tuple[AppendResult, ...]:
    """Return the append results that a row stores as JSON."""
    return tuple(
        AppendResult(SegmentId(segment), offset, number, count) for segment, offset, number, count in plain
    )


_COLUMN: Final = MappingProxyType({"size_bytes": "bytes", "boot_id": "boot", "order": "position"})
"""Fields whose column has another name."""


def _row_of(txn: TxnRecord) -> tuple[Any, ...]:
    return (
        *(txn.id, txn.stream, txn.stream_id, txn.state.value, txn.version, txn.epoch, txn.created_ms),
        *(txn.instance, txn.lease_ms, txn.boot_id, txn.lease_until_ms, txn.execution_until_ms, txn.order),
        *(txn.events, txn.size_bytes, txn.rows, txn.prepared, _appended_text(txn), txn.reason),
        *(txn.finished_ms, txn.joint),
    )


def _appended_text(txn: TxnRecord) -> str | None:
    if not txn.appended:
        return None
    rows = [f"[{each.segment:d},{each.offset},{each.number},{each.count}]" for each in txn.appended]
    return f"[{','.join(rows)}]"


def _with_totals(tx: Tx, txn: TxnRecord) -> TxnRecord:
    if txn.state is not TxnState.OPEN:
        return txn
    totals: StagedTotals = staged_totals(tx, txn.stream_id, txn.id)
    return attrs.evolve(txn, events=totals.events, size_bytes=totals.size_bytes, rows=totals.rows)


TXN_OUTCOMES: Final = SharedSlot(LocalResults[tuple[int, str], TxnRecord])
"""Transactions that ended, by stream id and transaction id, for callers of this process that wait."""


def watch_txn(stream_id: int, txn_id: str) -> Watch:
    """Return what to subscribe to for changes of the transaction, made by any process."""

    def probe(tx: Tx) -> int | None:
        found = find_txn(tx, stream_id, txn_id)
        return None if found is None else found.version

    return Watch(("txn", stream_id, txn_id), probe)


def watch_commits(stream_id: int) -> Watch:
    """Return what to subscribe to for the stream's commits by this process, if it is the host."""
    return Watch(("commits", stream_id), lambda tx: None)
