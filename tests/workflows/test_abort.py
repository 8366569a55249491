"""Aborts: bytes are freed in bounded steps, with or without the stream; seal and its like end what is open."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.store.catalog import find_stream
from eventproc.store.model.errors import CommitsPending, IllegalTransition, StreamSealed, TransactionAborted
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARATIONS_MAX
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamState
from eventproc.store.model.transactions import TxnState
from eventproc.store.requests import RequestStatus
from eventproc.store.transactions import count_preparation, list_open
from eventproc.workflows import scale_stream, seal_stream
from eventproc.workflows.requests import DeleteScope, DeleteStream, ScaleStream, SealStream
from tests.transactions.support import (
    HIGH,
    LOW,
    NAME,
    ONE,
    ZERO,
    TxnStream,
    by_key,
    events_of,
    make_txn_stream,
    part,
    serve,
    split,
    write,
)
from tests.workflows.support import Life


@pytest.fixture
async def txn_stream(life: Life) -> TxnStream:
    return await make_txn_stream(life)


async def test_an_abort_frees_all_bytes_in_bounded_steps(life: Life, txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    for _ in range(20):
        await txn_stream.stage(txn_id, part(ZERO, [(b"x" * 3000, LOW)]), part(ONE, [(b"y", HIGH)]))
    for _ in range(10):
        await txn_stream.stage(txn_id, part(ZERO, [(b"small", LOW)]))
    await txn_stream.abort(txn_id)
    before = life.faults.commits
    (done,) = await serve(life, txn_stream, [txn_id])
    assert done.state is TxnState.ABORTED
    assert life.faults.commits - before >= 4  # eight blobs a step
    assert (done.events, done.rows) == (50, 50)
    assert await txn_stream.rows("SELECT id FROM blob WHERE stream_id = 4") == []
    assert await txn_stream.rows("SELECT * FROM staged") == []
    assert await events_of(txn_stream) == {ZERO: [], ONE: []}
    await life.check()


@pytest.mark.acceptance(
    "B12", differs="the seal waits in its place for what is decided; aborted ones need nothing of the stream"
)
async def test_seal_aborts_open_transactions_and_waits_for_decided_ones(
    life: Life, txn_stream: TxnStream
) -> None:
    ids = [await txn_stream.begin() for _ in range(6)]
    for number, txn_id in enumerate(ids):
        await write(txn_stream, txn_id, [(b"%d" % number, HIGH)])
    await split(life, ONE, 0.75)
    for number in (3, 1):
        await txn_stream.commit(ids[number])
    submitted = await life.ep.requests.submit(SealStream(NAME, txn_stream.stream.stream_id))
    done = await serve(life, txn_stream, ids)
    ended = await life.perform(SealStream(NAME, txn_stream.stream.stream_id))
    assert ended.status is RequestStatus.DONE
    assert (await life.ep.requests.get(submitted.id)).status is RequestStatus.DONE
    assert [txn.state.value for txn in done] == [
        *("aborted", "committed", "aborted", "committed", "aborted", "aborted")
    ]
    assert (await life.record(NAME)).value.state is StreamState.SEALED
    assert by_key(await events_of(txn_stream)) == {HIGH: [b"3", b"1"]}
    with pytest.raises(StreamSealed):
        await txn_stream.begin()
    with pytest.raises(TransactionAborted, match="sealed"):
        await txn_stream.commit(ids[0])
    await life.check()


@pytest.mark.acceptance(
    "C11", differs="a decided transaction keeps its stream from being sealed, so no segment is missing"
)
async def test_decided_transaction_is_committed_while_its_stream_is_sealed(
    life: Life, txn_stream: TxnStream
) -> None:
    txn_id = await txn_stream.begin()
    await write(txn_stream, txn_id, [(b"x", HIGH)])
    await txn_stream.commit(txn_id)
    request = SealStream(NAME, txn_stream.stream.stream_id)
    assert not await life.db.write(partial(seal_stream.apply, request=request, request_id="r"))
    assert (await life.record(NAME)).value.state is StreamState.SEALING
    with pytest.raises(CommitsPending):
        await life.db.write(partial(seal_stream.apply, request=request, request_id="r"))
    with pytest.raises(StreamSealed):
        await txn_stream.begin()
    with pytest.raises(IllegalTransition):
        await txn_stream.abort(txn_id)
    await serve(life, txn_stream, [txn_id])
    assert by_key(await events_of(txn_stream)) == {HIGH: [b"x"]}
    assert await life.db.write(partial(seal_stream.apply, request=request, request_id="r"))
    assert (await life.record(NAME)).value.state is StreamState.SEALED
    await life.check()


@pytest.mark.acceptance(
    "B14",
    differs="what goes with a stream here are its transactions and their bytes; there are no marks, tags or buckets",
)
async def test_a_deleted_stream_takes_its_transactions_bytes_along(life: Life, txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    for _ in range(20):
        await txn_stream.stage(txn_id, part(ZERO, [(b"x" * 3000, LOW)]))
    stream_id = txn_stream.stream.stream_id
    request = SealStream(NAME, stream_id)
    assert await life.db.write(partial(seal_stream.apply, request=request, request_id="r"))
    await life.done(DeleteStream(NAME, stream_id))
    await life.check()
    await serve(life, txn_stream, [txn_id])
    await life.run()
    await life.check()
    for table in ("blob", "extent", "segment"):
        assert await txn_stream.rows(f"SELECT * FROM {table} WHERE stream_id = ?", stream_id) == []
    assert await txn_stream.rows("SELECT * FROM staged") == []
    assert (await txn_stream.get(txn_id)).state is TxnState.ABORTED


async def test_a_scope_is_deleted_with_its_transactions(life: Life, txn_stream: TxnStream) -> None:
    decided, open_one = await txn_stream.begin(), await txn_stream.begin()
    await write(txn_stream, decided, [(b"x" * 3000, HIGH)])
    await write(txn_stream, open_one, [(b"x" * 3000, HIGH)])
    await txn_stream.commit(decided)
    ended = await life.perform(DeleteScope("s"))
    assert ended.status is RequestStatus.DONE, ended.error
    assert await life.db.read(lambda tx: find_stream(tx, NAME)) is None
    await serve(life, txn_stream, [decided, open_one])
    await life.run()
    assert await txn_stream.rows("SELECT * FROM blob WHERE stream_id = 4") == []
    await life.check()


async def test_stream_with_steady_commits_is_scaled_immediately(life: Life, txn_stream: TxnStream) -> None:
    committed: list[str] = []
    scaled = anyio.Event()

    async def keep_committing() -> None:
        while not scaled.is_set() or len(committed) < 50:
            txn_id = await txn_stream.begin()
            await write(txn_stream, txn_id, [(b"%d" % len(committed), HIGH), (b"%d" % len(committed), LOW)])
            await txn_stream.commit(txn_id)
            committed.append(txn_id)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_internal_processors, life.db, await life.claim())
        async with anyio.create_task_group() as clients:
            clients.start_soon(keep_committing)
            while len(committed) < 10:
                await anyio.lowlevel.checkpoint()
            at = len(committed)
            request = ScaleStream(NAME, 4, (SegmentId(0),), (KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)))
            submitted = await life.ep.requests.submit(request)
            await life.ep.requests.wait(submitted.id)
            assert len(committed) - at < 40
            scaled.set()
        tasks.cancel_scope.cancel()
    await serve(life, txn_stream, committed)
    wanted = [b"%d" % number for number in range(len(committed))]
    assert by_key(await events_of(txn_stream)) == {HIGH: wanted, LOW: wanted}
    await life.check()


async def test_a_commit_that_was_prepared_three_times_goes_before_the_next_scale(
    life: Life, txn_stream: TxnStream
) -> None:
    txn_id = await txn_stream.begin()
    await write(txn_stream, txn_id, [(b"x", LOW)])
    await txn_stream.commit(txn_id)
    for _ in range(PREPARATIONS_MAX):
        (found,) = await life.db.read(lambda tx: list_open(tx, 4))
        await life.db.write(partial(count_preparation, txn=found))
    request = ScaleStream(NAME, 4, (SegmentId(0),), (KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)))
    with pytest.raises(CommitsPending):
        await life.db.write(partial(scale_stream.apply, request=request, request_id="r"))
    ended = await life.perform(request)
    assert ended.status is RequestStatus.DONE
    found = await txn_stream.get(txn_id)
    assert (found.state, [each.segment for each in found.appended]) == (TxnState.COMMITTED, [ZERO])
    await life.check()
