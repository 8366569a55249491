"""A decision that commits in its own step: when it does, and when it leaves the commit to the host."""

from __future__ import annotations

import pytest

from eventproc.store.database import Database
from eventproc.store.model.errors import TransactionAborted
from eventproc.store.model.transactions import TxnState
from eventproc.store.transactions import decisions
from tests.transactions.support import LOW, ONE, ZERO, TxnStream, by_key, events_of, open_txn_stream, part


@pytest.fixture
async def txn_stream(db: Database) -> TxnStream:
    return await open_txn_stream(db)


async def staged(txn_stream: TxnStream, *payloads: bytes) -> str:
    txn_id = await txn_stream.begin()
    for payload in payloads:
        await txn_stream.stage(txn_id, part(ZERO, [(payload, LOW)]))
    return txn_id


async def test_a_small_transaction_is_visible_when_its_decision_is_durable(txn_stream: TxnStream) -> None:
    txn_id = await staged(txn_stream, b"a", b"b")
    done = await txn_stream.commit_now(txn_id)
    assert (done.state, done.events, done.position) == (TxnState.COMMITTED, 2, 1)
    assert by_key(await events_of(txn_stream)) == {LOW: [b"a", b"b"]}
    assert await txn_stream.rows("SELECT * FROM staged") == []


async def test_a_repeated_decision_changes_nothing(txn_stream: TxnStream) -> None:
    txn_id = await staged(txn_stream, b"a")
    assert await txn_stream.commit_now(txn_id) == await txn_stream.commit_now(txn_id)
    assert by_key(await events_of(txn_stream)) == {LOW: [b"a"]}


async def test_a_transaction_behind_one_that_waits_keeps_its_place(txn_stream: TxnStream) -> None:
    first, second = await staged(txn_stream, b"a"), await staged(txn_stream, b"b")
    await txn_stream.commit(first)
    assert (await txn_stream.commit_now(second)).state is TxnState.COMMITTING
    assert await events_of(txn_stream) == {ZERO: [], ONE: []}


async def test_many_staged_rows_are_left_to_the_host(
    txn_stream: TxnStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "COMMIT_NOW_ROWS", 1)
    txn_id = await staged(txn_stream, b"a", b"b")
    assert (await txn_stream.commit_now(txn_id)).state is TxnState.COMMITTING


async def test_an_aborted_transaction_is_refused(txn_stream: TxnStream) -> None:
    txn_id = await staged(txn_stream, b"a")
    await txn_stream.abort(txn_id)
    with pytest.raises(TransactionAborted):
        await txn_stream.commit_now(txn_id)
