"""Small transactions: one commit without a host, in order, once, and seen by others whenever they look."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.base.clock import SystemClock, new_id
from eventproc.base.tasks import BackgroundTasks
from eventproc.cluster import run_host
from eventproc.describe import TxnState
from eventproc.runtime import Eventproc
from eventproc.store.catalog import ROUTES
from eventproc.store.database import Watch
from eventproc.store.faults import Died
from eventproc.store.model.errors import StreamSealed, TransactionNotFound
from eventproc.store.model.partitions import Router
from eventproc.store.transactions import TXN_OPENED
from eventproc.streams import Stream, Transaction
from eventproc.streams.txn_attendant import TRANSACTION_ATTENDANT, AttendedBlock, TransactionAttendant
from eventproc.testing import Deaths, check
from tests.support.child_process import PATIENCE_S
from tests.support.reading import payloads_of


@asynccontextmanager
async def without_host(faults: Deaths) -> AsyncIterator[tuple[Eventproc, Stream]]:
    """Open a system with a stream of two segments, made by a host that is gone again."""
    async with eventproc.open_memory(host=False, faults=faults) as ep:
        await ep.create_scope("s")
        async with BackgroundTasks() as tasks:
            tasks.start_soon(run_host, ep.db)
            stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
        yield ep, stream
        await check(ep.db)


async def test_a_small_transaction_is_one_commit_and_needs_no_host() -> None:
    faults = Deaths()
    async with without_host(faults) as (_, stream):
        before = faults.commits
        async with stream.transaction() as txn:
            for number in range(10):
                await txn.write(b"%d" % number, key="k")
        assert faults.commits == before + 1
        assert await payloads_of(stream) == [b"%d" % number for number in range(10)]
        assert [each.count for each in txn.appended] == [10]
        ended = await txn.status()
        assert (ended.state, ended.events, ended.appended) == (TxnState.COMMITTED, 10, txn.appended)


async def test_a_begun_transaction_with_nothing_staged_needs_no_host() -> None:
    async with without_host(Deaths()) as (_, stream):
        txn = await stream.begin()
        await txn.write(b"1", key="k")
        await txn.commit(wait=False)
        assert (await txn.status()).state is TxnState.COMMITTED
        assert await payloads_of(stream) == [b"1"]


@pytest.mark.parametrize("by", ["the handle", "its id"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_small_commit_that_dies_is_repeated_without_a_duplicate(when: str, by: str) -> None:
    faults = Deaths()
    async with without_host(faults) as (_, stream):
        txn = stream.transaction()
        async with txn:
            await txn.write(b"1", key="k")
            (faults.die_before_commit if when == "before" else faults.die_after_commit)()
            with suppress(Died):
                await txn.commit()
            faults.heal()
            if by == "the handle":
                await txn.commit()
            elif when == "before":
                with pytest.raises(TransactionNotFound):
                    await stream.transaction_of(txn.id).commit()
            else:
                await stream.transaction_of(txn.id).commit()
        assert await payloads_of(stream) == [b"1"]
        assert (await txn.status()).state is TxnState.COMMITTED


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_small_abort_that_dies_is_repeated(when: str) -> None:
    faults = Deaths()
    async with without_host(faults) as (_, stream):
        async with stream.transaction() as txn:
            await txn.write(b"1", key="k")
            (faults.die_before_commit if when == "before" else faults.die_after_commit)()
            with suppress(Died):
                await txn.abort()
            faults.heal()
            await txn.abort()
        assert (await txn.status()).state is TxnState.ABORTED
        assert await payloads_of(stream) == []


async def test_a_small_commit_waits_for_an_earlier_decided_one() -> None:
    async with without_host(Deaths()) as (ep, stream):
        earlier = await stream.begin()
        await earlier.write(b"earlier", key="k")
        await earlier.flush()
        await earlier.commit(wait=False)
        async with stream.transaction() as txn:
            await txn.write(b"later", key="k")
            await txn.commit(wait=False)
        assert (await txn.status()).state is TxnState.COMMITTING
        assert await payloads_of(stream) == []
        async with BackgroundTasks() as tasks:
            tasks.start_soon(run_host, ep.db)
            await txn.commit()
        async with stream.transaction() as last:
            await last.write(b"last", key="k")
        assert await payloads_of(stream) == [b"earlier", b"later", b"last"]


async def test_an_unseen_transaction_becomes_visible_to_whoever_asks(ep: Eventproc, stream: Stream) -> None:
    async def state_of(txn: Transaction[bytes]) -> TxnState | None:
        row = await ep.db.read(
            lambda tx: tx.execute("SELECT state FROM txn WHERE id = ?", (txn.id,)).fetchone()
        )
        return None if row is None else TxnState(row[0])

    async with (
        stream.transaction() as listed,
        stream.transaction() as pinged,
        stream.transaction() as flushed,
    ):
        assert [await state_of(each) for each in (listed, pinged, flushed)] == [None] * 3
        await pinged.ping()
        await flushed.flush()
        assert [await state_of(each) for each in (listed, pinged, flushed)] == [
            None,
            TxnState.OPEN,
            TxnState.OPEN,
        ]
        assert {each.id for each in await stream.transactions()} == {listed.id, pinged.id, flushed.id}
    with ep.db.subscribe([Watch(TXN_OPENED, lambda tx: None)]) as changes:
        async with stream.transaction() as slow:  # that takes longer than BEGIN_AFTER_MS
            await changes.wait()
            assert await state_of(slow) is TxnState.OPEN


async def test_a_list_writes_all_running_transactions_in_few_commits() -> None:
    faults = Deaths()
    async with without_host(faults) as (_, stream), AsyncExitStack() as blocks:
        running = [await blocks.enter_async_context(stream.transaction()) for _ in range(20)]
        before = faults.commits
        assert {each.id for each in await stream.transactions()} == {each.id for each in running}
        assert faults.commits <= before + 2


async def test_a_block_is_entered_in_one_task_and_left_in_another(ep: Eventproc, stream: Stream) -> None:
    txn = stream.transaction()

    async def enter() -> None:
        await txn.__aenter__()
        await txn.write(b"1", key="k")

    async def leave() -> None:
        await txn.__aexit__(None, None, None)

    for call in (enter, leave):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
    assert await payloads_of(stream) == [b"1"]
    assert not ep.db.shared[TRANSACTION_ATTENDANT].running


async def test_a_route_that_was_read_late_does_not_replace_a_later_one(ep: Eventproc, stream: Stream) -> None:
    async with stream.transaction() as txn:
        await txn.write(b"1", key="k")
    routes, first = ep.db.shared[ROUTES], (await stream.epochs())[0]
    known = routes.find(stream.stream_id)
    assert known is not None and (known.router.epoch.number, known.keys_count) == (0, 1)
    await stream.split((await stream.segments())[0].id)
    assert routes.find(stream.stream_id) is None
    async with stream.transaction() as txn:
        await txn.write(b"2", key="k")
    later = routes.find(stream.stream_id)
    assert later is not None and later.router.epoch.number == 1
    assert routes.add(stream.stream_id, Router(first)) is later
    later.forget_keys()
    assert later.keys_count == 0


async def test_a_sealed_stream_refuses_a_known_route(stream: Stream) -> None:
    async with stream.transaction() as txn:
        await txn.write(b"1", key="k")
    late, empty = stream.transaction(), stream.transaction()
    for txn in (late, empty):
        await txn.__aenter__()
    await late.write(b"2", key="k")
    await stream.seal()
    for txn in (late, empty):
        with pytest.raises(StreamSealed):
            await txn.__aexit__(None, None, None)
    with pytest.raises(StreamSealed):
        await stream.transaction().__aenter__()
    assert await payloads_of(stream) == [b"1"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a directory is opened on asyncio
async def test_two_openings_commit_small_transactions_in_one_order(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "d", durability="os") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
        async with eventproc.open(tmp_path / "d", host=False) as other:
            streams = [await each.stream("s/t") for each in (ep, other)]

            async def commit(stream: Stream, name: bytes, staged: bool) -> None:
                for number in range(20):
                    async with stream.transaction() as txn:
                        await txn.write(b"%s %d" % (name, number), key=name.decode())
                        if staged:  # committed by the host, between those that are not
                            await txn.flush()

            async with anyio.create_task_group() as tasks:
                for index, stream in enumerate(streams):
                    tasks.start_soon(commit, stream, b"small %d" % index, False)
                    tasks.start_soon(commit, stream, b"staged %d" % index, True)
            await streams[1].split((await streams[1].segments())[0].id)
            for index, stream in enumerate(streams):
                await commit(stream, b"after %d" % index, False)
        found = await payloads_of(streams[0])
        for name in (b"small 0", b"small 1", b"staged 0", b"staged 1", b"after 0", b"after 1"):
            own = [payload for payload in found if payload.startswith(name)]
            assert own == [b"%s %d" % (name, number) for number in range(20)]
        ended = await streams[0].transactions(finished=True)
        assert len(ended) == 120
        await check(ep.db)


@pytest.mark.subprocess
def test_a_forked_process_makes_other_ids() -> None:
    clock = SystemClock()
    new_id(clock)  # so that the pool is filled
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, clock.random_bytes(32))
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 32) != clock.random_bytes(32)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0


async def test_an_unexpected_error_in_the_work_of_one_block_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventproc.streams.txn_attendant.RETRY_MS", 1)
    attendant, done, failures = TransactionAttendant(), anyio.Event(), 2

    async def fail_twice() -> float | None:
        nonlocal failures
        await anyio.lowlevel.checkpoint()
        if failures:
            failures -= 1
            raise ValueError("a bug")
        done.set()
        return None

    async with BackgroundTasks() as tasks:
        tasks.start_soon(attendant.run)
        block = AttendedBlock(1, fail_twice, fail_twice)
        attendant.enter(block)
        with anyio.fail_after(PATIENCE_S):
            await done.wait()
