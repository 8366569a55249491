"""Transactions that another process ends, wrong calls, unknown outcomes: named errors and no duplicates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import anyio
import pytest

import eventproc
from eventproc.base.tasks import BackgroundTasks
from eventproc.cluster import run_host
from eventproc.describe import TxnState
from eventproc.runtime import Eventproc
from eventproc.store.faults import Died
from eventproc.store.model.errors import (
    IllegalTransition,
    StreamReplaced,
    StreamSealed,
    TransactionAborted,
    TransactionDecided,
    TransactionNotFound,
    TransactionPending,
)
from eventproc.streams import Stream, Transaction
from eventproc.testing import Deaths
from tests.streams.support import run_in
from tests.support.reading import payloads_of

Call = Callable[[Transaction[bytes]], Awaitable[object]]

pytestmark = pytest.mark.usefixtures("commit_path")

UNKNOWN_ID = "01890a5d-ac96-774b-bcce-b302099a8057"


async def test_an_invalid_call_names_the_transaction_and_the_remedy(stream: Stream) -> None:
    async def committed() -> Transaction[bytes]:
        txn = await stream.begin()
        await txn.commit()
        return txn

    async def aborted() -> Transaction[bytes]:
        txn = await stream.begin()
        await txn.abort()
        return txn

    async def elsewhere() -> Transaction[bytes]:
        return stream.transaction_of((await committed()).id)

    async def unknown() -> Transaction[bytes]:
        return stream.transaction_of(UNKNOWN_ID)

    async def not_entered() -> Transaction[bytes]:
        return stream.transaction()

    async def enter(txn: Transaction[bytes]) -> object:
        return await txn.__aenter__()

    calls: list[tuple[Callable[[], Awaitable[Transaction[bytes]]], Call, type[Exception], str]] = [
        (
            committed,
            lambda txn: txn.write(b""),
            TransactionDecided,
            "write is not possible any more; begin a new one",
        ),
        (committed, lambda txn: txn.abort(), TransactionDecided, "cannot be undone"),
        (committed, enter, TransactionDecided, "begin a new one"),
        (aborted, lambda txn: txn.write(b""), TransactionAborted, "by its owner.*begin a new one"),
        (aborted, lambda txn: txn.commit(), TransactionAborted, "begin a new one"),
        (aborted, enter, TransactionAborted, "begin a new one"),
        (unknown, lambda txn: txn.write(b""), TransactionNotFound, "txn list s/t"),
        (unknown, lambda txn: txn.write_many([(b"", None)]), TransactionNotFound, "txn list s/t"),
        (elsewhere, lambda txn: txn.write(b""), TransactionDecided, "begin a new one"),
        (unknown, lambda txn: txn.commit(), TransactionNotFound, "txn list s/t"),
        (unknown, lambda txn: txn.abort(), TransactionNotFound, "txn list s/t"),
        (unknown, lambda txn: txn.status(), TransactionNotFound, "txn list s/t"),
        (unknown, enter, TransactionNotFound, "txn list s/t"),
        (not_entered, lambda txn: txn.write(b""), IllegalTransition, "async with.*begin"),
        (not_entered, lambda txn: txn.commit(), IllegalTransition, "async with.*begin"),
        (not_entered, lambda txn: txn.status(), IllegalTransition, "async with.*begin"),
    ]
    for make, call, kind, remedy in calls:
        txn = await make()
        with pytest.raises(kind, match=f"(?s){txn.id}.*{remedy}"):
            await call(txn)


async def test_a_block_is_entered_once(stream: Stream) -> None:
    async with stream.transaction() as txn:
        with pytest.raises(IllegalTransition, match="entered already"):
            await txn.__aenter__()
    with pytest.raises(TransactionDecided):
        await txn.__aenter__()


async def test_without_a_host_a_commit_is_decided_and_the_wait_ends_in_time() -> None:
    async with eventproc.open_memory(host=False) as ep:
        stream = await streams_without_host(ep)
        async with stream.transaction() as txn:
            await txn.write(b"1")
            await txn.flush()  # staged, so that only a host can commit it
            with pytest.raises(TransactionPending, match=f"{txn.id} is decided"):
                await txn.commit(timeout_ms=0)
            with pytest.raises(TransactionPending):
                await txn.commit(timeout_ms=10)
        assert (await txn.status()).state is TxnState.COMMITTING


async def streams_without_host(ep: Eventproc) -> Stream:
    """Make a stream, with a host that is gone again."""
    await ep.create_scope("s")
    async with BackgroundTasks() as tasks:
        tasks.start_soon(run_host, ep.db)
        return await ep.create_stream("s/t")


@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_call_with_unknown_result_is_repeated_without_a_duplicate(when: str, nth: int) -> None:
    faults = Deaths()
    async with eventproc.open_memory(host=False, faults=faults) as ep:
        stream = await streams_without_host(ep)
        txn = await stream.begin()
        calls: list[Callable[[], Awaitable[None]]]
        calls = [txn.flush, txn.flush, partial(txn.commit, wait=False), partial(txn.commit, wait=False)]
        (faults.die_before_commit if when == "before" else faults.die_after_commit)(nth)
        for number, call in enumerate(calls):
            if number < 3:
                await txn.write(b"%d" % number, key="k")
            with suppress(Died):
                await call()
            faults.heal()
            await call()
        async with BackgroundTasks() as tasks:
            tasks.start_soon(run_host, ep.db)
            await txn.commit()
        assert await payloads_of(stream) == [b"0", b"1", b"2"]


async def test_leaving_the_block_raises_the_decision_of_another_process(stream: Stream) -> None:
    def other(txn: Transaction[bytes]) -> Transaction[bytes]:
        return stream.transaction_of(txn.id)

    txn = stream.transaction()
    with pytest.raises(TransactionAborted, match="by its owner"):
        await run_in(txn, partial(txn.write, b"1"), txn.flush, other(txn).abort)
    txn = stream.transaction()
    late = partial(txn.write, b"late", key="k")
    with pytest.raises(TransactionDecided, match=r"commit\w+: commit is not possible"):
        await run_in(txn, partial(txn.write, b"2", key="k"), txn.flush, late, other(txn).commit)
    txn = stream.transaction()
    late = partial(txn.write, b"late", key="k")
    with pytest.raises(TransactionDecided, match="write is not possible"):
        await run_in(txn, partial(txn.write, b"3", key="k"), txn.flush, other(txn).commit, txn.ping, late)
    async with stream.transaction() as txn:
        await txn.write(b"4", key="k")
        await txn.flush()
        await stream.transaction_of(txn.id).commit()
    assert await payloads_of(stream) == [b"2", b"3", b"4"]


async def test_a_sealed_stream_refuses_new_ones_and_ends_open_ones(stream: Stream) -> None:
    txn = stream.transaction()
    with pytest.raises(TransactionAborted):
        await run_in(txn, txn.flush, stream.seal, partial(txn.write, b"1"))
    with pytest.raises(StreamSealed):
        await stream.begin()
    with pytest.raises(StreamSealed):
        await stream.transaction().__aenter__()


async def test_a_deleted_stream_has_no_transactions(ep: Eventproc, stream: Stream) -> None:
    await stream.seal()
    await stream.delete()
    with pytest.raises(StreamReplaced):
        await stream.transactions()
    await ep.create_stream("s/t")
    calls: list[Callable[[], Awaitable[object]]]
    calls = [stream.begin, stream.transactions, stream.transaction().__aenter__]
    for call in calls:
        with pytest.raises(StreamReplaced):
            await call()


def test_a_block_that_asyncio_cancels_leaves_no_transaction_open() -> None:
    asyncio.run(_cancel_after_each_turn())


async def _cancel_after_each_turn() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")

        async def write(began: list[Transaction[bytes]]) -> None:
            async with stream.transaction() as txn:
                began.append(txn)
                await txn.write(b"never seen")
                await txn.flush()
                raise _Left

        for turns in range(40):
            began: list[Transaction[bytes]] = []
            writing = asyncio.create_task(write(began))
            while not began:
                await anyio.lowlevel.checkpoint()
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            for _ in range(3):
                writing.cancel()
                await anyio.lowlevel.checkpoint()
            await asyncio.wait([writing])
            assert (await began[0].status()).state in (TxnState.ABORTING, TxnState.ABORTED)


class _Left(Exception):
    """What ends a block."""
