"""What goes wrong in one stream's commits does not stop the others', nor is it forgotten; the dead hold nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventproc
from eventproc.cluster import transaction_handlers
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.cluster.transaction_timeouts import PROCESS_DIED
from eventproc.store.catalog import COMMIT_STREAM, get_stream, insert_stream
from eventproc.store.database import Database, Tx
from eventproc.store.inspection.unfinished_events import unfinished_events
from eventproc.store.model.errors import (
    TransactionAborted,
    TransactionDecided,
    TransactionPending,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.transactions import TxnState
from eventproc.store.ownership import Owner
from eventproc.store.transactions import (
    TxnRecord,
    commit_round,
    count_preparation,
    create_txn,
    decide_abort,
    decide_commit,
    find_txn,
    get_txn,
    notify_failed_commits,
    record_commit_failure,
    watch_txn,
)
from eventproc.workflows import commit_transactions
from tests.transactions.support import (
    HIGH,
    TxnStream,
    by_key,
    events_of,
    make_txn_stream,
    serve,
    split,
    write,
)
from tests.workflows.support import Life, open_life


@pytest.mark.usefixtures("commit_path")
async def test_failed_commit_is_retried_after_those_of_other_streams(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    works = False

    def land_or_fail(tx: Any, stream: Any, *, transactions_max: int) -> Any:
        if stream.name == "s/t" and not works:
            raise LookupError("a bug")
        return commit_round(tx, stream, transactions_max=transactions_max)

    monkeypatch.setattr(commit_transactions, "commit_round", land_or_fail)
    async with open_life() as life:
        bad = await make_txn_stream(life)
        txn_id = await bad.begin()
        await write(bad, txn_id, [(b"x", HIGH)])
        await bad.commit(txn_id)
        good = await _another(life, "s/other", txn_id)
        await life.db.write(lambda tx: decide_commit(tx, good.stream.stream_id, txn_id))
        done = await serve(life, good, [txn_id])
        assert done[0].state is TxnState.COMMITTED
        await life.check()
        failed = await bad.get(txn_id)
        assert (failed.state, failed.reason) == (TxnState.COMMITTING, "LookupError('a bug')")
        await _retry(life)
        await serve_until_quiet(life)
        assert await bad.get(txn_id) == failed
        assert caplog.text.count("cannot be committed") == 1  # no news the second time
        works = True
        await _retry(life)
        (committed,) = await serve(life, bad, [txn_id])
        assert (committed.state, committed.reason) == (TxnState.COMMITTED, None)
        assert by_key(await events_of(bad)) == {HIGH: [b"x"]}
        assert by_key(await events_of(good)) == {}
        await life.check()


@pytest.mark.usefixtures("commit_path")
async def test_failing_commit_blocks_later_ones_until_it_is_given_up() -> None:
    async with open_life() as life:
        await _give_up(life)


async def _give_up(life: Life) -> None:
    txn_stream = await make_txn_stream(life)
    ids = [await txn_stream.begin() for _ in range(5)]
    for number, txn_id in enumerate(ids):
        await write(txn_stream, txn_id, [(b"%d" % number * 3000, HIGH)])
    bad, *after = ids[1:]
    await split(life, SegmentId(1), 0.75)  # so that it is prepared, and its bytes are read
    for txn_id in ids:
        await txn_stream.commit(txn_id)
    # A permanent failure: its bytes are gone.
    await life.db.write(
        lambda tx: tx.execute("DELETE FROM blob WHERE id = (SELECT place FROM staged WHERE txn = ?)", (bad,))
    )
    stream = await life.ep.stream("s/t")
    await serve_until_quiet(life)
    assert [(await txn_stream.get(txn_id)).state for txn_id in ids] == [TxnState.COMMITTED] + [
        TxnState.COMMITTING
    ] * 4
    with pytest.raises(TransactionPending, match="txn abort --force s/t"):
        await stream.transaction_of(bad).commit(timeout_ms=0)
    with pytest.raises(TransactionDecided):
        await stream.transaction_of(bad).abort()
    with pytest.raises(TransactionDecided):
        await stream.transaction_of(after[0]).abort(force=True)  # nothing is known against that one
    await stream.transaction_of(bad).abort(force=True)
    done = await serve(life, txn_stream, [bad, *after])
    assert [txn.state for txn in done] == [TxnState.ABORTED] + [TxnState.COMMITTED] * 3
    with pytest.raises(TransactionAborted, match="as its commit failed"):
        await stream.transaction_of(bad).commit()
    assert by_key(await events_of(txn_stream)) == {HIGH: [b"%d" % number * 3000 for number in (0, 2, 3, 4)]}
    await life.check()


@pytest.mark.usefixtures("commit_path")
async def test_large_commit_does_not_hold_up_those_of_other_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    others_done, prepare = anyio.Event(), transaction_handlers._prepare  # pyright: ignore[reportPrivateUsage]

    async def prepare_late(db: Database, owner: Owner, txn: TxnRecord, *, pack: bool) -> None:
        await others_done.wait()
        await prepare(db, owner, txn, pack=pack)

    monkeypatch.setattr(transaction_handlers, "_prepare", prepare_late)
    async with open_life() as life:
        large = await make_txn_stream(life)
        ids = await _two_to_prepare(life, large)

        async def commit_others() -> None:
            for number in range(4):  # some are in the same segment of the commit stream
                other = await _another(life, f"s/other{number}", ids[0])
                await life.db.write(partial(decide_commit, stream_id=other.stream.stream_id, txn_id=ids[0]))
                with life.db.subscribe([watch_txn(other.stream.stream_id, ids[0])]) as changes:
                    while (await other.get(ids[0])).state is not TxnState.COMMITTED:
                        await changes.wait()
            others_done.set()

        done: list[TxnRecord] = []
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(commit_others)
                done = await serve(life, large, ids)
        assert [txn.order for txn in done] == [1, 2]
        assert by_key(await events_of(large)) == {HIGH: [b"0", b"1"]}
        await life.check()


@pytest.mark.usefixtures("commit_path")
async def test_transaction_given_up_before_its_preparation_does_not_block_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: list[TxnRecord] = []

    def give_up_first(tx: Tx, txn: TxnRecord) -> object:
        if not given_up:
            record_commit_failure(tx, txn.stream_id, reason="a bug")
            given_up.append(decide_abort(tx, txn.stream_id, txn.id, reason="a person", force=True))
        return count_preparation(tx, txn)

    monkeypatch.setattr(transaction_handlers, "count_preparation", give_up_first)
    async with open_life() as life:
        txn_stream = await make_txn_stream(life)
        ids = await _two_to_prepare(life, txn_stream)
        first, second = await serve(life, txn_stream, ids)
        (before,) = given_up
        assert (first.state, first.prepared, first.version) == (TxnState.ABORTED, 0, before.version + 1)
        assert (second.state, second.prepared) == (TxnState.COMMITTED, 1)
        assert by_key(await events_of(txn_stream)) == {HIGH: [b"1"]}
        await life.check()


async def _two_to_prepare(life: Life, txn_stream: TxnStream) -> list[str]:
    """Commit two transactions across a split, so that a host has to prepare them. Return their ids."""
    ids = [await txn_stream.begin() for _ in range(2)]
    for number, txn_id in enumerate(ids):
        await write(txn_stream, txn_id, [(b"%d" % number, HIGH)])
    await split(life, SegmentId(1), 0.75)
    for txn_id in ids:
        await txn_stream.commit(txn_id)
    return ids


async def _retry(life: Life) -> None:
    """Post the notice of a failed commit, as the sweep does."""
    await life.db.write(notify_failed_commits)


async def serve_until_quiet(life: Life) -> None:
    """Act as the host until no notice of a commit is pending."""
    owner = await life.claim()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_internal_processors, life.db, owner)
        while await life.db.read(lambda tx: list(unfinished_events(tx, COMMIT_STREAM))):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def _another(life: Life, name: str, txn_id: str) -> TxnStream:
    """Make another stream, with an open transaction of this id: ids are looked up within their stream."""
    stream = await life.db.write(
        partial(insert_stream, name=name, config=StreamConfig(scaling=ScalingPolicy.fixed(1)))
    )
    other = TxnStream(life.db, stream)
    begin = partial(create_txn, stream=name, stream_id=stream.stream_id, instance="x", lease_ms=None)
    await life.db.write(partial(begin, txn_id=txn_id))
    return other


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a directory is opened on asyncio
async def test_transaction_of_a_dead_process_is_aborted(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "d") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        stream_id = (await ep.db.read(lambda tx: get_stream(tx, "s/t"))).value.stream_id
        begin = partial(create_txn, stream="s/t", stream_id=stream_id, lease_ms=None)
        mine, its = "01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002"
        await ep.db.write(partial(begin, txn_id=mine, instance=ep.db.instance_id))
        with ep.db.subscribe([watch_txn(stream_id, its)]) as changes:
            async with eventproc.open(tmp_path / "d", host=False) as other:
                await other.db.write(partial(begin, txn_id=its, instance=other.db.instance_id))
                assert (await ep.db.read(lambda tx: get_txn(tx, stream_id, its))).state is TxnState.OPEN
            while True:
                found = await ep.db.read(partial(find_txn, stream_id=stream_id, txn_id=its))
                assert found is not None
                if found.state is TxnState.ABORTED:
                    break
                await changes.wait()
        assert found.reason == PROCESS_DIED
        assert (await ep.db.read(lambda tx: get_txn(tx, stream_id, mine))).state is TxnState.OPEN
