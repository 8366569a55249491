"""A transaction as its owner uses it: visible whole or not at all, in whatever way it ends."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import anyio
import attrs
import pytest

from eventproc.base.tasks import BackgroundTasks
from eventproc.describe import PingResult, TxnState
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import (
    Closed,
    DiskFull,
    IllegalTransition,
    InvalidArgument,
    TransactionDecided,
)
from eventproc.streams import NewEvent, Stream
from eventproc.streams.staging import STAGE_BYTES
from eventproc.streams.transaction import LEASE_MS
from eventproc.streams.txn_attendant import TRANSACTION_ATTENDANT
from eventproc.testing import disk_full
from tests.streams.support import fail_in, run_in
from tests.support.reading import payloads_of

pytestmark = pytest.mark.usefixtures("commit_path")

BIG = b"x" * 200_000


async def test_leaving_the_block_makes_the_events_visible(stream: Stream) -> None:
    async with stream.transaction() as txn:
        await txn.write(b"1", key="k")
        await txn.write(b"2", key="k", event_time=5, headers={"a": "b"})
        assert await txn.write_many([(b"3", "k"), NewEvent(b"4", "k")]) == 2
        await txn.flush()
        assert await payloads_of(stream) == []
        assert not txn.appended
    async with stream.reader() as reader:
        events = [event async for event in reader.until(await stream.tail())]
    assert [event.payload for event in events] == [b"1", b"2", b"3", b"4"]
    assert (events[1].event_time, dict(events[1].headers)) == (5, {"a": "b"})
    (appended,) = txn.appended
    assert (appended.segment, appended.offset, appended.number, appended.count) == (
        *(events[0].segment, events[0].offset, events[0].number),
        4,
    )


async def test_a_transaction_takes_values_of_a_type(stream: Stream) -> None:
    @attrs.frozen
    class Order:
        item: str

    async with stream.transaction(payload=Order) as txn:
        await txn.write(Order("pear"), key="k")
    begun = await stream.begin(payload=Order)
    await begun.write(Order("plum"), key="k")
    await begun.flush()
    async with stream.transaction_of(begun.id, payload=Order) as same:
        await same.write(Order("fig"), key="k")
        with pytest.raises(InvalidArgument, match="must be Order"):
            await same.write(b"bytes")  # type: ignore[arg-type]
    async with stream.reader(payload=Order) as reader:
        found = [event.payload.item async for event in reader.until(await stream.tail())]
    assert found == ["pear", "plum", "fig"]


async def test_an_exception_aborts_and_is_raised_as_it_is(stream: Stream) -> None:
    txn = stream.transaction()
    with pytest.raises(ZeroDivisionError):
        await fail_in(txn, partial(txn.write, b"1"))
    ended = await txn.status()
    assert ended.state in (TxnState.ABORTING, TxnState.ABORTED)
    assert ended.reason == "by its owner"
    assert await payloads_of(stream) == []


async def test_a_cancelled_block_aborts_and_stays_cancelled(stream: Stream) -> None:
    went_on = False
    txn = stream.transaction()
    with anyio.CancelScope() as scope:
        async with txn:
            await txn.write(b"1")
            await txn.flush()
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        went_on = True
    assert not went_on
    assert (await txn.status()).reason == "by its owner"
    assert await payloads_of(stream) == []


async def test_a_commit_that_is_cancelled_while_it_waits_is_decided(stream: Stream) -> None:
    txn = stream.transaction()
    with anyio.CancelScope() as scope:
        async with txn:
            await txn.write(b"1")
            await txn.commit(wait=False)
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    await txn.commit()
    assert await payloads_of(stream) == [b"1"]


async def test_a_block_that_decided_itself_is_left_as_it_is(stream: Stream) -> None:
    async with stream.transaction() as txn:
        await txn.write(b"1")
        await txn.abort()
    assert await payloads_of(stream) == []
    async with stream.transaction() as txn:
        await txn.write(b"2", key="k")
        await txn.commit()
        assert await payloads_of(stream) == [b"2"]
    txn = stream.transaction()
    with pytest.raises(ZeroDivisionError):
        await fail_in(txn, partial(txn.write, b"3", key="k"), txn.commit)
    assert await payloads_of(stream) == [b"2", b"3"]


async def test_a_transaction_without_events_commits(stream: Stream) -> None:
    async with stream.transaction() as txn:
        pass
    assert (await txn.status()).state is TxnState.COMMITTED
    assert txn.appended == ()


async def test_another_process_goes_on_with_a_transaction_by_its_id(stream: Stream) -> None:
    begun = await stream.begin(lease_ms=60_000)
    await begun.write(b"1", key="k")
    await begun.flush()
    other = stream.transaction_of(begun.id)
    assert await other.ping() is PingResult.OK
    await other.write(b"2", key="k")
    await other.commit()
    assert await payloads_of(stream) == [b"1", b"2"]
    assert await begun.ping() is PingResult.COMMITTED
    await begun.commit()  # it is: there is nothing more to do
    assert begun.appended == other.appended


async def test_open_transactions_are_listed_with_age_owner_size_and_lease(stream: Stream) -> None:
    async with stream.transaction() as txn:
        await txn.write(b"12345")
        (listed,) = await stream.transactions()
        assert (listed.id, listed.stream, listed.state) == (txn.id, "s/t", TxnState.OPEN)
        assert (listed.lease_ms, listed.owner, listed.owner_alive) == (LEASE_MS, None, True)
        assert listed.age_ms >= 0
        status = await txn.status()
        assert (status.events, status.size_bytes) == (1, 13)
        assert status.lease_left_ms is not None and 0 < status.lease_left_ms <= LEASE_MS
    assert [each.id for each in await stream.transactions()] == []
    (ended,) = await stream.transactions(finished=True)
    assert (ended.id, ended.state, ended.appended) == (txn.id, TxnState.COMMITTED, txn.appended)


async def test_handles_and_left_blocks_keep_no_memory_for_their_stream(ep: Eventproc, stream: Stream) -> None:
    other = await ep.create_stream("s/other")
    other.transaction()
    async with stream.transaction() as txn, other.transaction() as elsewhere:
        assert [each.id for each in await stream.transactions()] == [txn.id]
        assert [each.id for each in await other.transactions()] == [elsewhere.id]
    assert await stream.transactions() == []
    assert not ep.db.shared[TRANSACTION_ATTENDANT].running


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)  # in real time that would be half a minute
async def test_a_block_keeps_its_lease_however_long_it_takes(stream: Stream) -> None:
    async with stream.transaction(lease_ms=1_000) as short, stream.transaction(lease_ms=None) as endless:
        await short.write(b"1")
        await anyio.sleep(30)
        assert (await short.status()).state is TxnState.OPEN
        left = await endless.status()
        assert (left.state, left.lease_ms, left.lease_left_ms) == (TxnState.OPEN, None, None)


async def test_order_of_a_key_holds_across_scales_between_staged_batches(stream: Stream) -> None:
    async with stream.transaction() as txn:
        for number in range(60):
            await txn.write(b"%d" % number, key="k")
            if number % 20 == 10:
                await txn.flush()
                segments = await stream.segments()
                await stream.split(segments[0].id)
                await stream.merge(*[each.id for each in (await stream.segments())[-2:]])
    assert await payloads_of(stream) == [b"%d" % number for number in range(60)]


async def test_begun_without_a_block_it_stages_by_itself(ep: Eventproc, stream: Stream) -> None:
    txn = await stream.begin()
    for number in range(30):
        await txn.write(BIG + b"%d" % number, key="k")
    staged = "SELECT sum(length), max(length) FROM staged"
    size_bytes, largest = await ep.db.read(lambda tx: tx.execute(staged).fetchone())
    assert size_bytes > 25 * len(BIG)
    assert largest <= STAGE_BYTES
    await txn.commit()
    assert [payload[len(BIG) :] for payload in await payloads_of(stream)] == [
        b"%d" % number for number in range(30)
    ]


async def test_a_full_disk_refuses_a_write_and_loses_nothing_that_was_taken(
    ep: Eventproc, stream: Stream
) -> None:
    async with stream.transaction() as txn:
        taken = 0

        async def fill() -> None:
            nonlocal taken
            for _ in range(100):
                await txn.write(BIG, key="k")
                taken += 1

        async with disk_full(ep.db):
            with pytest.raises(DiskFull):
                await fill()
            with pytest.raises(DiskFull):
                await txn.commit()
        assert 0 < taken < 100
        await txn.write(b"last", key="k")
    assert [len(payload) for payload in await payloads_of(stream)] == [len(BIG)] * taken + [4]


async def test_a_write_that_raised_or_was_cancelled_added_nothing(ep: Eventproc, stream: Stream) -> None:
    txn = await stream.begin()  # without a block every full batch is staged by the writing task
    taken: list[bytes] = []

    async def fill(upto: int) -> None:
        while len(taken) < upto:
            payload = BIG + b"%d" % len(taken)
            await txn.write(payload, key="k")
            taken.append(payload)

    async with disk_full(ep.db):
        for _ in range(3):
            with pytest.raises(DiskFull):
                await fill(100)
    await fill(8)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await fill(100)
    assert len(taken) < 100
    await fill(30)
    await txn.commit()
    assert await payloads_of(stream) == taken


async def test_a_write_beside_a_commit_is_in_it_or_refused(stream: Stream) -> None:
    first = await stream.begin()
    txn = stream.transaction_of(first.id)
    taken: list[bytes] = []

    async def write(name: bytes) -> None:
        with suppress(Closed, TransactionDecided):
            for number in range(50):
                await txn.write(BIG + name + b"%d" % number, key="k")
                taken.append(name + b"%d" % number)

    async with BackgroundTasks() as tasks:
        for name in (b"a", b"b", b"c"):
            tasks.start_soon(write, name)
        while len(taken) < 20:
            await anyio.lowlevel.checkpoint()
        await txn.commit()
    assert sorted(payload[len(BIG) :] for payload in await payloads_of(stream)) == sorted(taken)


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_an_abort_that_was_not_done_never_becomes_a_commit(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DiskFull(path="a test")

    txn = stream.transaction()
    async with txn:
        await txn.write(b"staged")
        await txn.flush()
        await txn.write(b"not staged")
        if how == "failed":
            with monkeypatch.context() as patch:
                patch.setattr("eventproc.streams.staging.decide_abort", refuse)
                with pytest.raises(DiskFull):
                    await txn.abort()
        else:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await txn.abort()
        for call in (txn.commit, txn.flush, partial(txn.write, b"more")):
            with pytest.raises(IllegalTransition, match="call `abort` again"):
                await call()
    assert await payloads_of(stream) == []
    assert (await txn.status()).state in (TxnState.ABORTING, TxnState.ABORTED)


async def test_a_refused_abort_of_a_committed_transaction_may_wait_for_it(stream: Stream) -> None:
    txn = await stream.begin()
    await txn.write(b"x")
    await txn.flush()
    await stream.transaction_of(txn.id).commit(wait=False)
    with pytest.raises(TransactionDecided):
        await txn.abort()
    await txn.commit()
    assert await payloads_of(stream) == [b"x"]


async def test_a_full_disk_at_the_end_of_a_block_raises_and_no_event_is_visible(
    ep: Eventproc, stream: Stream
) -> None:
    txn = stream.transaction()
    async with disk_full(ep.db):
        with pytest.raises(DiskFull):
            await run_in(txn, partial(txn.write, BIG, key="k"))
    assert await payloads_of(stream) == []
    assert txn.appended == ()
