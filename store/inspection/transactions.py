"""Checks of tasks, and of transactions: what is decided will be done, and what is done is whole and in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from eventproc.store.catalog import ABORT_STREAM, COMMIT_STREAM, find_stream
from eventproc.store.database import Tx
from eventproc.store.inspection.unfinished_events import unfinished_events
from eventproc.store.model.states import StreamState
from eventproc.store.model.transactions import TxnState
from eventproc.store.records import get, keys
from eventproc.store.task_queue import HOLDER, TaskStatus, find_task
from eventproc.store.transactions import TxnNotice, TxnRecord
from eventproc.store.transactions.txn_record import TXN_COLUMNS, txn_from_row


def txn_violations(tx: Tx) -> Iterator[str]:
    """Yield what is wrong with transactions and what they have staged."""
    txns = [
        txn_from_row(row)
        for row in tx.execute(f"SELECT {TXN_COLUMNS} FROM txn ORDER BY stream_id, id").fetchall()
    ]
    yield from _of_rows(tx, txns)
    yield from _of_bells(tx, txns)
    yield from _of_joint(txns)
    for _, of_stream in groupby(txns, key=lambda txn: txn.stream_id):
        yield from _of_order(list(of_stream))


def _of_rows(tx: Tx, txns: list[TxnRecord]) -> Iterator[str]:
    keys = tx.execute("SELECT stream_id, id, finished FROM txn").fetchall()
    finished = {(stream_id, txn_id): bool(flag) for stream_id, txn_id, flag in keys}
    unfinished = {(txn.stream_id, txn.id): txn for txn in txns if not txn.state.is_final}
    for txn in txns:
        lies_there = finished[txn.stream_id, txn.id]
        if lies_there != txn.state.is_final or (txn.finished_ms is None) == txn.state.is_final:
            yield f"transaction {txn.id} lies with the finished, or not, and is {txn.state.value}"
        stream = find_stream(tx, txn.stream)
        ended = stream is None or stream.value.stream_id != txn.stream_id
        ended = ended or (stream is not None and stream.value.state is StreamState.SEALED)
        if txn.state in (TxnState.OPEN, TxnState.COMMITTING) and ended:
            yield f"transaction {txn.id} is {txn.state.value}, and its stream is sealed, or gone"
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for stream_id, txn_id, events, size_bytes in tx.execute(
        "SELECT stream_id, txn, sum(count), sum(length) FROM staged GROUP BY 1, 2"
    ).fetchall():
        found[stream_id, txn_id] = events, size_bytes
        if (stream_id, txn_id) not in unfinished:
            yield f"staged: rows of transaction {txn_id}, which is finished or unknown"
    for key, txn in unfinished.items():
        staged, noted = found.get(key, (0, 0)), (txn.events, txn.size_bytes)
        if txn.state is TxnState.COMMITTING and staged != noted:
            yield f"transaction {txn.id} has {staged} staged, its row says {noted}"


def _of_bells(tx: Tx, txns: list[TxnRecord]) -> Iterator[str]:
    commits = {TxnNotice.decode(text.encode()) for text in unfinished_events(tx, COMMIT_STREAM)}
    aborts = {TxnNotice.decode(text.encode()) for text in unfinished_events(tx, ABORT_STREAM)}
    # The sweep posts a notice where the next commit failed.
    failed = {txn.stream_id for txn in txns if txn.state is TxnState.COMMITTING and txn.reason is not None}
    for txn in txns:
        all_of, one = TxnNotice(txn.stream, txn.stream_id), TxnNotice(txn.stream, txn.stream_id, txn.id)
        if txn.state is TxnState.COMMITTING and not (all_of in commits or txn.stream_id in failed):
            yield f"transaction {txn.id} is decided, but no notice of {txn.stream} is pending"
        if txn.state is TxnState.ABORTING and not {all_of, one} & aborts:
            yield f"transaction {txn.id} is aborting, but no notice is pending"


def _of_joint(txns: list[TxnRecord]) -> Iterator[str]:
    """Yield joint transactions whose streams disagree: one decision holds for all, and one lease until then."""
    rows: dict[str, list[TxnRecord]] = {}
    for txn in txns:
        if txn.joint is not None:
            rows.setdefault(txn.id, []).append(txn)
    for txn_id, own in rows.items():
        open_ones = {(txn.instance, txn.lease_until_ms) for txn in own if txn.state is TxnState.OPEN}
        if len({(txn.joint, _decision(txn)) for txn in own}) > 1 or len(open_ones) > 1:
            found = ", ".join(f"{txn.stream} {txn.state.value}" for txn in own)
            yield f"the streams of joint transaction {txn_id} disagree: {found}"


def _decision(txn: TxnRecord) -> str:
    match txn.state:
        case TxnState.OPEN:
            return "none"
        case TxnState.COMMITTING | TxnState.COMMITTED:
            return "commit"
        case TxnState.ABORTING | TxnState.ABORTED:
            return "abort"


def _of_order(txns: list[TxnRecord]) -> Iterator[str]:
    """Yield commits of one stream that do not lie in their order."""
    decided = sorted(((txn.order, txn) for txn in txns if txn.order is not None), key=lambda each: each[0])
    if any(before[0] == after[0] for before, after in pairwise(decided)):
        yield f"two transactions of {txns[0].stream} have one place in the order of commits"
    ends: dict[int, int] = {}
    pending = False
    for _, txn in decided:
        pending = pending or txn.state is TxnState.COMMITTING
        if pending and txn.state is TxnState.COMMITTED:
            yield f"transaction {txn.id} was committed before one that was decided earlier"
        for appended in txn.appended:
            if appended.number < ends.get(appended.segment, 0):
                yield f"transaction {txn.id} lies before one that was decided earlier"
            ends[appended.segment] = appended.number + appended.count
        if txn.appended and sum(appended.count for appended in txn.appended) != txn.events:
            yield f"transaction {txn.id} was appended in part"


def task_violations(tx: Tx) -> Iterator[str]:
    """Yield the resources that are held by a task that does not run, or that is of another resource."""
    for resource in keys(tx, HOLDER):
        task = find_task(tx, get(tx, HOLDER, resource).value.task)
        if task is None or task.status is not TaskStatus.RUNNING or task.resource != resource:
            yield f"resource {resource} is held, but not by a running task of it: {task}"
