"""Beginning, staging, pinging and deciding: what each answers, what each refuses, and what repeating them does."""

from __future__ import annotations

from functools import partial

import pytest
from attrs import evolve

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import (
    IllegalTransition,
    InvalidArgument,
    NotFound,
    SegmentSealed,
    StreamReplaced,
    TransactionAborted,
    VersionConflict,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.transactions import PingResult, TxnState
from eventproc.store.segments import WriterSequence, seal_segments
from eventproc.store.transactions import StagedTotals, count_open, decisions, list_open
from tests.transactions.support import (
    HIGH,
    LOW,
    ONE,
    ZERO,
    TxnStream,
    by_key,
    events_of,
    open_txn_stream,
    part,
)

STAGED = "SELECT segment, count, length, inline IS NULL FROM staged ORDER BY txn, seq, part"


@pytest.fixture
async def txn_stream(db: Database) -> TxnStream:
    return await open_txn_stream(db)


async def test_a_transaction_begins_open_and_a_repetition_begins_no_other(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin(lease_ms=5_000)
    assert await txn_stream.begin(lease_ms=5_000, txn_id=txn_id) == txn_id
    (found,) = await txn_stream.db.read(lambda tx: list_open(tx, txn_stream.stream.stream_id))
    assert (found.id, found.state, found.version, found.epoch) == (txn_id, TxnState.OPEN, 0, 0)
    assert found.lease_until_ms is not None
    assert found.execution_until_ms is not None
    assert found.execution_until_ms - found.lease_until_ms == 5_000 * 999
    assert found.instance == txn_stream.db.instance_id


async def test_only_transactions_that_are_not_decided_count_as_open(txn_stream: TxnStream) -> None:
    begun = [await txn_stream.begin() for _ in range(3)]
    await txn_stream.commit(begun[0])
    await txn_stream.abort(begun[1])
    own = {txn_stream.stream.stream_id}
    for among, open_now in ((None, 1), (own, 1), ({99}, 0)):
        assert await txn_stream.db.read(partial(count_open, among=among)) == open_now


async def test_a_transaction_of_another_incarnation_is_refused(txn_stream: TxnStream) -> None:
    other = TxnStream(txn_stream.db, evolve(txn_stream.stream, stream_id=99))
    with pytest.raises(StreamReplaced):
        await other.begin()


async def test_what_is_staged_lies_in_its_rows_and_counts_in_the_last(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    assert await txn_stream.stage(
        txn_id, part(ZERO, [(b"x", LOW)]), part(ONE, [(b"yy", HIGH)] * 2)
    ) == StagedTotals(3, 29, 2)
    assert await txn_stream.stage(txn_id, part(ZERO, [(b"z" * 3000, LOW)])) == StagedTotals(4, 3037, 3)
    assert await txn_stream.rows(STAGED) == [(0, 1, 9, 0), (1, 2, 20, 0), (0, 1, 3008, 1)]
    found = await txn_stream.get(txn_id)
    assert (found.events, found.size_bytes, found.rows, found.version) == (4, 3037, 3, 0)


async def test_a_repeated_staging_changes_nothing(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    first, second = WriterSequence("w", 1), WriterSequence("w", 2)
    await txn_stream.stage(txn_id, part(ZERO, [(b"1", LOW)]), identity=first)
    await txn_stream.stage(txn_id, part(ZERO, [(b"2", LOW)]), identity=second)
    await txn_stream.stage(txn_id, part(ZERO, [(b"other", LOW)]), identity=WriterSequence("v", 1))
    before = await txn_stream.rows(STAGED)
    for identity in (first, second, WriterSequence("v", 1)):
        assert await txn_stream.stage(
            txn_id, part(ZERO, [(b"again", LOW)]), identity=identity
        ) == StagedTotals(3, 31, 3)
    assert await txn_stream.rows(STAGED) == before

    def twice_in_one(tx: Tx) -> StagedTotals:
        third = txn_stream.staging(txn_id, part(ZERO, [(b"3", LOW)]), identity=WriterSequence("w", 3))
        third(tx)
        return third(tx)

    assert await txn_stream.db.write(twice_in_one) == StagedTotals(4, 40, 4)


async def test_stagings_of_one_commit_are_one_row_a_segment(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()

    def many(tx: Tx) -> None:
        for number in range(10):
            segment, key = (ZERO, LOW) if number % 2 else (ONE, HIGH)
            txn_stream.staging(
                txn_id, part(segment, [(b"x", key)]), identity=WriterSequence("w", number + 1)
            )(tx)

    await txn_stream.db.write(many)
    assert await txn_stream.rows(STAGED) == [(1, 5, 45, 0), (0, 5, 45, 0)]
    assert (await txn_stream.get(txn_id)).rows == 2


async def test_staging_for_a_sealed_segment_is_refused_completely(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    await txn_stream.db.write(
        lambda tx: seal_segments(
            tx, txn_stream.stream.name, txn_stream.stream.stream_id, [ONE], sealed_epoch=1
        )
    )
    with pytest.raises(SegmentSealed):
        await txn_stream.stage(txn_id, part(ZERO, [(b"x", LOW)]), part(ONE, [(b"y", HIGH)]))
    with pytest.raises(NotFound):
        await txn_stream.stage(txn_id, part(SegmentId(7), [(b"x", LOW)]))
    assert await txn_stream.rows(STAGED) == []


@pytest.mark.acceptance("C6", differs="a refusal says whether it was aborted, and why")
async def test_a_decision_is_final_and_repeating_it_changes_nothing(txn_stream: TxnStream) -> None:
    committed, aborted = await txn_stream.begin(), await txn_stream.begin()
    decided = await txn_stream.commit(committed)
    assert (decided.state, decided.version, decided.order) == (TxnState.COMMITTING, 1, 1)
    assert await txn_stream.commit(committed) == decided
    dropped = await txn_stream.abort(aborted)
    assert (dropped.state, dropped.version, dropped.reason) == (TxnState.ABORTING, 1, "a test")
    assert await txn_stream.abort(aborted) == dropped
    with pytest.raises(IllegalTransition):
        await txn_stream.abort(committed)
    with pytest.raises(TransactionAborted, match="a test"):
        await txn_stream.commit(aborted)
    with pytest.raises(TransactionAborted):
        await txn_stream.stage(aborted, part(ZERO, [(b"x", LOW)]))
    with pytest.raises(IllegalTransition):
        await txn_stream.stage(committed, part(ZERO, [(b"x", LOW)]))
    for unknown in (txn_stream.commit, txn_stream.abort, txn_stream.get):
        with pytest.raises(NotFound):
            await unknown("unknown")
    assert await txn_stream.rows(STAGED) == []


async def test_only_the_first_of_several_decisions_rings(txn_stream: TxnStream) -> None:
    ids = [await txn_stream.begin() for _ in range(5)]
    orders = [(await txn_stream.commit(txn_id)).order for txn_id in reversed(ids)]
    assert orders == [1, 2, 3, 4, 5]
    assert await txn_stream.rows("SELECT sum(count) FROM extent WHERE stream_id = 2") == [(1,)]


@pytest.mark.acceptance(
    "C10", differs="DISCONNECTED has no meaning here; UNKNOWN is answered, nothing is raised"
)
async def test_a_ping_answers_by_state_lease_and_time(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin(lease_ms=1_000)
    assert await txn_stream.ping("unknown") is PingResult.UNKNOWN
    assert await txn_stream.ping(txn_id, 600_001) is PingResult.LEASE_TOO_LARGE
    assert await txn_stream.ping(txn_id, 600_000) is PingResult.OK
    assert (await txn_stream.get(txn_id)).version == 1
    with pytest.raises(InvalidArgument):
        await txn_stream.ping(txn_id, 0)
    assert (await txn_stream.get(txn_id)).version == 1
    await txn_stream.commit(txn_id)
    assert await txn_stream.ping(txn_id) is PingResult.COMMITTED
    other = await txn_stream.begin()
    await txn_stream.abort(other)
    assert await txn_stream.ping(other) is PingResult.ABORTED


async def test_an_abort_of_a_version_before_a_ping_is_refused(txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    before = await txn_stream.get(txn_id)
    assert await txn_stream.ping(txn_id, instance="another") is PingResult.OK
    with pytest.raises(VersionConflict):
        await txn_stream.abort(txn_id, version=before.version)
    after = await txn_stream.get(txn_id)
    assert (after.state, after.instance, after.version) == (TxnState.OPEN, "another", 1)
    assert (await txn_stream.abort(txn_id, version=after.version)).state is TxnState.ABORTING


async def test_a_lease_without_an_end_has_no_deadline_until_a_ping_gives_it_one(
    txn_stream: TxnStream,
) -> None:
    txn_id = await txn_stream.begin(lease_ms=None)
    found = await txn_stream.get(txn_id)
    assert (found.lease_until_ms, found.execution_until_ms) == (None, None)
    assert await txn_stream.ping(txn_id) is PingResult.OK
    assert (await txn_stream.get(txn_id)).lease_until_ms is None
    assert await txn_stream.ping(txn_id, 2_000) is PingResult.OK
    found = await txn_stream.get(txn_id)
    assert found.lease_until_ms is not None
    assert found.execution_until_ms is not None


# Decisions that commit in their own step.


async def staged(txn_stream: TxnStream, *payloads: bytes) -> str:
    txn_id = await txn_stream.begin()
    for payload in payloads:
        await txn_stream.stage(txn_id, part(ZERO, [(payload, LOW)]))
    return txn_id


async def test_a_small_transaction_is_visible_when_its_decision_is_durable(txn_stream: TxnStream) -> None:
    txn_id = await staged(txn_stream, b"a", b"b")
    done = await txn_stream.commit_now(txn_id)
    assert (done.state, done.events, done.order) == (TxnState.COMMITTED, 2, 1)
    assert by_key(await events_of(txn_stream)) == {LOW: [b"a", b"b"]}
    assert await txn_stream.rows("SELECT * FROM staged") == []


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
