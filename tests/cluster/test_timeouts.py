"""Leases: a transaction is aborted unless its client pings in time, also when the host dies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

import anyio
import pytest

from eventproc.base.clock import Clock, new_id
from eventproc.cluster.host import run_host
from eventproc.cluster.transaction_timeouts import LEASE_ENDED, has_overdue
from eventproc.server.controller.conversions import new_txn_id
from eventproc.store.database import Tx
from eventproc.store.model import transactions
from eventproc.store.model.limits import TXN_MEMORY_MS, TXN_MEMORY_MS_MIN
from eventproc.store.model.transactions import PingResult, TxnState
from eventproc.store.transactions import (
    ExpiredTxn,
    create_txn,
    decide_and_commit,
    expired_txns,
    first_open,
    forget_txns,
    list_finished,
    next_lease_end_ms,
)
from eventproc.testing import run_until_death
from eventproc.workflows.abort_transactions import AbortTimer, time_out
from eventproc.workflows.sweeps import forget
from tests.cluster.support import running_host
from tests.support.sqlite import instructions
from tests.support.virtual_time import anyio_backend as anyio_backend
from tests.transactions.support import LOW, NAME, ZERO, TxnStream, events_of, make_txn_stream, part, serve
from tests.workflows.support import Life, open_life


@pytest.fixture
async def life() -> AsyncIterator[Life]:
    async with open_life() as life:
        yield life


@pytest.fixture
async def txn_stream(life: Life) -> TxnStream:
    return await make_txn_stream(life)


async def end_of(txn_stream: TxnStream, txn_id: str) -> TxnState:
    """Return how the transaction ended, as soon as it did."""
    found = await txn_stream.ended(txn_id)
    assert found is not None
    return found.state


@pytest.mark.acceptance("C10", differs="the lease lies with the transaction, so there is no DISCONNECTED")
@pytest.mark.acceptance("K34")
async def test_expired_lease_aborts_its_transaction_and_frees_its_bytes(
    life: Life, txn_stream: TxnStream
) -> None:
    async with running_host(life.db):
        began_ms = life.clock.monotonic_ms()
        txn_id = await txn_stream.begin(lease_ms=5_000)
        await txn_stream.stage(txn_id, part(ZERO, [(b"x" * 3000, LOW)]))
        assert await end_of(txn_stream, txn_id) is TxnState.ABORTED
        assert 5_000 <= life.clock.monotonic_ms() - began_ms < 5_500
    assert (await txn_stream.get(txn_id)).reason == LEASE_ENDED
    assert await txn_stream.rows("SELECT id FROM blob WHERE stream_id = 4") == []
    await life.check()


@pytest.mark.usefixtures("commit_path")
@pytest.mark.acceptance("C10")
async def test_pings_extend_a_transaction_until_its_execution_time_is_over(
    life: Life, txn_stream: TxnStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "EXECUTION_PER_LEASE_MAX", 50)  # 1,000 leases take long
    async with running_host(life.db):
        txn_id = await txn_stream.begin(lease_ms=1_000)
        for _ in range(49 * 2):
            await anyio.sleep(0.5)
            assert await txn_stream.ping(txn_id) is PingResult.OK
        await anyio.sleep(0.6)
        assert await txn_stream.ping(txn_id) is PingResult.MAX_EXECUTION_TIME_EXCEEDED
        assert (await txn_stream.get(txn_id)).state is TxnState.OPEN
        assert await end_of(txn_stream, txn_id) is TxnState.ABORTED
        assert await txn_stream.ping(txn_id) is PingResult.ABORTED


@pytest.mark.usefixtures("commit_path")
async def test_transaction_without_a_lease_lasts_while_its_process_lives(
    life: Life, txn_stream: TxnStream
) -> None:
    async with running_host(life.db):
        txn_id = await txn_stream.begin(lease_ms=None)
        await anyio.sleep(20 * 60)  # twice the longest lease there is
        assert (await txn_stream.get(txn_id)).state is TxnState.OPEN


@pytest.mark.usefixtures("commit_path")
@pytest.mark.acceptance(
    "C7", differs="there is no index of hosts: the table says what is open, posted notices what is decided"
)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 6))
async def test_next_host_ends_open_committing_and_aborting_transactions(
    life: Life, txn_stream: TxnStream, nth: int, when: str
) -> None:
    """The host dies at one of its first commits, beginning with its claim; the next host finishes the work."""
    ids = [await txn_stream.begin(lease_ms=2_000) for _ in range(3)]
    for txn_id in ids:
        await txn_stream.stage(txn_id, part(ZERO, [(b"x", LOW)]))
    await txn_stream.commit(ids[1])
    await txn_stream.abort(ids[2])
    (life.faults.die_before_commit if when == "before" else life.faults.die_after_commit)(nth)
    with anyio.fail_after(60):
        assert await run_until_death(partial(run_host, life.db))
    life.faults.heal()
    left = [(await txn_stream.get(txn_id)).state for txn_id in ids]
    assert not all(state.is_final for state in left), "the host died when everything was done"
    async with running_host(life.db):
        states = [await end_of(txn_stream, txn_id) for txn_id in ids]
    assert states == [TxnState.ABORTED, TxnState.COMMITTED, TxnState.ABORTED]
    assert [event.payload for event in (await events_of(txn_stream))[ZERO]] == [b"x"]
    await life.check()


@pytest.mark.usefixtures("commit_path")
@pytest.mark.acceptance(
    "C9", differs="ownership is a column; the timer is the host's, and remembers the version"
)
@pytest.mark.acceptance("C10")
async def test_a_timer_set_before_a_ping_of_another_instance_does_nothing(
    life: Life, txn_stream: TxnStream
) -> None:
    txn_id = await txn_stream.begin()
    other = await txn_stream.begin()
    seen = await txn_stream.get(txn_id)
    assert await txn_stream.ping(txn_id, instance="another") is PingResult.OK
    await txn_stream.commit(other)
    timers = [
        AbortTimer(seen.stream_id, txn_id, seen.version, "late") for txn_id in (txn_id, other, "unknown")
    ]
    owner = await life.claim()
    await life.db.write(partial(time_out, timers=timers, owner=owner))
    kept = await txn_stream.get(txn_id)
    assert (kept.state, kept.instance, kept.version) == (TxnState.OPEN, "another", seen.version + 1)
    assert (await txn_stream.get(other)).state is TxnState.COMMITTING


@pytest.mark.usefixtures("commit_path")
async def test_expiry_depends_on_deadline_boot_and_process(life: Life, txn_stream: TxnStream) -> None:
    later, soon, of_another_boot = [await txn_stream.begin(lease_ms=ms) for ms in (9_000, 1_000, 60_000)]
    living, dead = [await txn_stream.begin(lease_ms=None) for _ in range(2)]
    change = "UPDATE txn SET {} WHERE id = ?"
    await life.db.write(lambda tx: tx.execute(change.format("boot = 'another'"), (of_another_boot,)))
    await life.db.write(lambda tx: tx.execute(change.format("instance = 'dead'"), (dead,)))
    life.clock.advance(2_000)

    def look(tx: Tx) -> list[ExpiredTxn]:
        return expired_txns(tx, lambda instance: instance != "dead", limit=10)

    found = {each.txn: each.has_lease for each in await life.db.read(look)}
    assert found == {soon: True, of_another_boot: True, dead: False}
    for txn_id in found:
        await txn_stream.abort(txn_id)
    assert await life.db.read(look) == []
    assert await life.db.read(next_lease_end_ms) == (await txn_stream.get(later)).lease_until_ms
    await txn_stream.ping(later)
    assert await life.db.read(next_lease_end_ms) == (await txn_stream.get(later)).lease_until_ms
    await txn_stream.commit(later)
    assert await life.db.read(next_lease_end_ms) is None
    assert await life.db.read(first_open) == (txn_stream.stream.stream_id, living)


async def test_a_look_for_expired_transactions_costs_the_same_for_any_number(
    life: Life, txn_stream: TxnStream
) -> None:
    def begin_many(tx: Tx) -> None:
        for number in range(500):
            begin = partial(create_txn, stream=NAME, stream_id=txn_stream.stream.stream_id)
            lease_ms = None if number % 2 else 60_000
            begin(tx, txn_id=new_id(tx.clock), instance="another", lease_ms=lease_ms)

    def look(tx: Tx) -> None:
        assert expired_txns(tx, lambda instance: True, limit=100) == []
        assert next_lease_end_ms(tx) is not None
        assert first_open(tx) is not None

    await life.db.write(begin_many)
    few = await life.db.read(lambda tx: instructions(tx.connection, partial(look, tx)))
    for _ in range(3):
        await life.db.write(begin_many)
    assert await life.db.read(lambda tx: instructions(tx.connection, partial(look, tx))) <= few + 10


@pytest.mark.parametrize("make_id", [new_id, partial(new_txn_id, epoch=0)], ids=["our own", "of a client"])
async def test_forgetting_old_results_does_not_look_at_those_that_are_kept(
    life: Life, txn_stream: TxnStream, make_id: Callable[[Clock], str]
) -> None:
    def end(tx: Tx, number: int) -> None:
        for _ in range(number):
            txn_id = make_id(tx.clock)
            begin = partial(create_txn, stream=NAME, stream_id=txn_stream.stream.stream_id)
            begin(tx, txn_id=txn_id, instance="another", lease_ms=None)
            decide_and_commit(tx, txn_stream.stream.stream_id, txn_id)

    def forget_all(tx: Tx) -> None:
        while forget_txns(tx):
            pass

    await life.db.write(partial(end, number=20))
    life.clock.advance(TXN_MEMORY_MS - 1_000)
    await life.db.write(partial(end, number=10))
    few = await life.db.write(lambda tx: instructions(tx.connection, partial(forget_txns, tx)))
    await life.db.write(partial(end, number=500))
    assert await life.db.write(lambda tx: instructions(tx.connection, partial(forget_txns, tx))) <= few + 10
    life.clock.advance(2_000)
    await life.db.write(forget_all)
    assert await txn_stream.rows("SELECT count(*) FROM txn") == [(510,)]


@pytest.mark.usefixtures("commit_path")
@pytest.mark.acceptance("C12", differs="a row each, forgotten a day after its end; there are no batches")
async def test_finished_transactions_are_listed_for_a_day_and_then_forgotten(
    life: Life, txn_stream: TxnStream
) -> None:
    committed, aborted, kept = [await txn_stream.begin(lease_ms=None) for _ in range(3)]
    await txn_stream.commit(committed)
    await txn_stream.abort(aborted)
    await serve(life, txn_stream, [committed, aborted])
    owner = await life.claim()
    expected = {committed: TxnState.COMMITTED, aborted: TxnState.ABORTED}

    async def finished() -> dict[str, TxnState]:
        while await life.db.write(owner.fencing(forget)):
            pass
        return {
            txn.id: txn.state
            for txn in await life.db.read(partial(list_finished, stream_id=txn_stream.stream.stream_id))
        }

    assert await finished() == expected
    life.clock.advance(TXN_MEMORY_MS - 60_000)
    assert await finished() == expected
    assert [await txn_stream.ping(each) for each in expected] == [PingResult.COMMITTED, PingResult.ABORTED]
    life.clock.advance(120_000)
    assert await finished() == {}
    assert await txn_stream.rows("SELECT id FROM txn") == [(kept,)]
    assert await txn_stream.ping(committed) is PingResult.UNKNOWN


@pytest.mark.usefixtures("commit_path")
@pytest.mark.parametrize(("limit", "end"), [("FINISHED", "commit"), ("ABORTED", "abort")])
async def test_the_results_of_the_last_commits_and_aborts_are_kept_and_earlier_ones_forgotten(
    life: Life, txn_stream: TxnStream, monkeypatch: pytest.MonkeyPatch, limit: str, end: str
) -> None:
    monkeypatch.setattr(f"eventproc.store.transactions.cleanup.TXNS_{limit}_MAX", 3)
    monkeypatch.setattr("eventproc.store.transactions.cleanup.FORGET_A_STEP", 2)
    unfinished, other, *ids = sorted([await txn_stream.begin(lease_ms=None) for _ in range(10)])
    end_one, end_other = txn_stream.commit, txn_stream.abort
    if end == "abort":
        end_one, end_other = end_other, end_one
    await end_other(other)
    for txn_id in ids:
        await end_one(txn_id)
    await serve(life, txn_stream, [other, *ids])
    # A process that was suspended may look for its result.
    assert await kept_results(life, txn_stream) == {other, *ids}
    life.clock.advance(TXN_MEMORY_MS_MIN + 1)
    assert await kept_results(life, txn_stream) == {other, *ids[-3:]}
    assert (await txn_stream.get(unfinished)).state is TxnState.OPEN
    assert (await txn_stream.commit(unfinished)).order == (9 if end == "commit" else 2)


async def kept_results(life: Life, txn_stream: TxnStream) -> set[str]:
    """Forget results as the sweep does; return the ids of those that are left."""
    owner = await life.claim()
    while await life.db.write(owner.fencing(forget)):
        pass
    kept = await life.db.read(partial(list_finished, stream_id=txn_stream.stream.stream_id))
    return {txn.id for txn in kept}


@pytest.mark.usefixtures("commit_path")
async def test_watch_sees_a_transaction_that_begins_after_the_last_ended(
    txn_stream: TxnStream,
) -> None:
    found = [await txn_stream.db.read(first_open)]
    for _ in range(3):
        txn_id = await txn_stream.begin()
        found.append(await txn_stream.db.read(first_open))
        await txn_stream.abort(txn_id)
        assert await txn_stream.db.read(first_open) is None
    assert len(set(found)) == 4


@pytest.mark.usefixtures("commit_path")
async def test_expired_transaction_counts_as_pending_work_for_a_host(txn_stream: TxnStream) -> None:
    overdue = partial(has_overdue, db=txn_stream.db)
    await txn_stream.begin(lease_ms=None)
    await txn_stream.begin(lease_ms=5_000)
    assert not await txn_stream.db.read(overdue)
    await anyio.sleep(6)
    assert await txn_stream.db.read(overdue)
