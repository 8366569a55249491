"""Direct commits: begun, appended, decided and finished in one step, in the order of all commits of their stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from eventproc.base.clock import new_id
from eventproc.store.catalog import COMMIT_STREAM
from eventproc.store.database import Database, Tx
from eventproc.store.inspection.unfinished_events import unfinished_events
from eventproc.store.model.errors import SegmentSealed
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.transactions import TxnState
from eventproc.store.segments import SegmentEvents, append, seal_segments
from eventproc.store.transactions import (
    TxnRecord,
    TxnStart,
    commit_directly,
    decide_commit,
    has_decided,
    list_finished,
)
from eventproc.testing import check
from tests.database.support import Refused, World
from tests.transactions.support import HIGH, LOW, NAME, ONE, ZERO, TxnStream, events_of, open_txn_stream, part


@pytest.fixture
async def txn_stream(db: Database) -> TxnStream:
    return await open_txn_stream(db)


def events(segment: SegmentId, *payloads: bytes) -> SegmentEvents:
    return part(segment, [(payload, LOW if segment == ZERO else HIGH) for payload in payloads])


def direct(
    txn_stream: TxnStream, *parts: SegmentEvents, txn_id: str | None = None, seen: bool = False
) -> Callable[[Tx], TxnRecord | None]:
    """Return a function that commits these events directly."""
    db, stream_id = txn_stream.db, txn_stream.stream.stream_id
    start = TxnStart(NAME, stream_id, txn_id or new_id(db.clock), 0, db.instance_id, 10_000)

    def commit(tx: Tx) -> TxnRecord | None:
        done = commit_directly(tx, [(start, parts)], seen=seen)
        return None if done is None else done[0]

    return commit


def deciding(txn_stream: TxnStream, txn_id: str) -> Callable[[Tx], TxnRecord]:
    return partial(decide_commit, stream_id=txn_stream.stream.stream_id, txn_id=txn_id)


def record_of(outcome: object) -> TxnRecord:
    assert isinstance(outcome, TxnRecord), outcome
    return outcome


async def payloads(txn_stream: TxnStream) -> dict[SegmentId, list[bytes]]:
    return {
        segment: [event.payload for event in own] for segment, own in (await events_of(txn_stream)).items()
    }


async def test_a_direct_commit_is_visible_and_finished_with_its_transaction(txn_stream: TxnStream) -> None:
    done = record_of(
        await txn_stream.db.write(direct(txn_stream, events(ONE, b"2", b"3"), events(ZERO, b"1")))
    )
    assert await payloads(txn_stream) == {ZERO: [b"1"], ONE: [b"2", b"3"]}
    assert (done.state, done.order, done.events, done.rows) == (TxnState.COMMITTED, 1, 3, 2)
    assert [(each.segment, each.offset, each.number, each.count) for each in done.appended] == [
        (ZERO, 0, 0, 1),
        (ONE, 0, 0, 2),
    ]
    assert await txn_stream.get(done.id) == done
    assert await txn_stream.rows("SELECT * FROM staged") == []
    assert await txn_stream.db.read(lambda tx: list(unfinished_events(tx, COMMIT_STREAM))) == []
    await check(txn_stream.db)


async def test_a_hundred_direct_commits_that_wait_together_share_their_rows(
    world: World, txn_stream: TxnStream
) -> None:
    calls = [direct(txn_stream, events(ZERO, b"%d" % n), events(ONE, b"%d" % n)) for n in range(100)]
    done = [record_of(each) for each in await world.write_together(*calls)]
    by_order = sorted(done, key=lambda txn: txn.order or 0)
    assert [txn.order for txn in by_order] == list(range(1, 101))
    assert [[each.number for each in txn.appended] for txn in by_order] == [[n, n] for n in range(100)]
    [(extents, count)] = await txn_stream.rows("SELECT count(*), sum(count) FROM extent WHERE stream_id = 4")
    assert count == 200
    assert int(str(extents)) <= 2 * 10  # two for each group commit, of which a busy machine may need several
    await check(txn_stream.db)


async def test_direct_and_decided_commits_of_one_group_commit_have_one_order(txn_stream: TxnStream) -> None:
    staged = await txn_stream.begin()
    await txn_stream.stage(staged, events(ZERO, b"staged"))
    before, after = direct(txn_stream, events(ZERO, b"before")), direct(txn_stream, events(ZERO, b"after"))

    def in_turn(tx: Tx) -> tuple[TxnRecord | None, TxnRecord, TxnRecord | None]:
        first = before(tx)
        append(tx, NAME, txn_stream.stream.stream_id, [events(ZERO, b"plain")])
        return first, deciding(txn_stream, staged)(tx), after(tx)

    first, second, refused = await txn_stream.db.write(in_turn)  # as callers in this order
    assert first is not None and (first.order, first.state) == (1, TxnState.COMMITTED)
    assert (second.order, second.state) == (2, TxnState.COMMITTING)
    assert refused is None
    assert (await payloads(txn_stream))[ZERO] == [b"before", b"plain"]
    assert await txn_stream.db.read(partial(has_decided, stream_id=txn_stream.stream.stream_id))
    await check(txn_stream.db)


async def test_a_failing_neighbour_in_the_group_commit_costs_no_direct_commit(
    world: World, txn_stream: TxnStream
) -> None:
    def change_and_fail(tx: Tx) -> None:
        direct(txn_stream, events(ZERO, b"never"))(tx)
        raise Refused

    good = [direct(txn_stream, events(ZERO, b"%d" % n)) for n in range(3)]
    outcomes = await world.write_together(good[0], change_and_fail, good[1], change_and_fail, good[2])
    done = [record_of(each) for each in outcomes if not isinstance(each, Refused)]
    assert sorted(txn.order or 0 for txn in done) == [1, 2, 3]
    assert sorted((await payloads(txn_stream))[ZERO]) == [b"0", b"1", b"2"]
    found = await txn_stream.db.read(partial(list_finished, stream_id=txn_stream.stream.stream_id))
    assert {txn.id for txn in found} == {txn.id for txn in done}
    await check(txn_stream.db)


async def test_a_repeated_direct_commit_changes_nothing(txn_stream: TxnStream) -> None:
    call = partial(direct, txn_stream, events(ZERO, b"once"), txn_id=new_id(txn_stream.db.clock))
    done = await txn_stream.db.write(call())
    assert await txn_stream.db.write(call(seen=True)) == done

    def twice(tx: Tx) -> list[TxnRecord | None]:
        other = new_id(tx.clock)
        again = partial(direct, txn_stream, events(ZERO, b"twice"), txn_id=other)
        return [again()(tx), again(seen=True)(tx)]

    first, second = await txn_stream.db.write(twice)
    assert first == second
    assert (await payloads(txn_stream))[ZERO] == [b"once", b"twice"]


async def test_staged_or_decided_transactions_are_left_to_the_host(txn_stream: TxnStream) -> None:
    staged, aborted = await txn_stream.begin(), await txn_stream.begin()
    await txn_stream.stage(staged, events(ZERO, b"staged"))
    await txn_stream.abort(aborted)
    for txn_id in (staged, aborted):
        late = direct(txn_stream, events(ZERO, b"late"), txn_id=txn_id, seen=True)
        assert await txn_stream.db.write(late) is None
    assert await payloads(txn_stream) == {ZERO: [], ONE: []}


async def test_a_sealed_segment_refuses_a_direct_commit_completely(txn_stream: TxnStream) -> None:
    stream_id = txn_stream.stream.stream_id
    await txn_stream.db.write(lambda tx: seal_segments(tx, NAME, stream_id, [ONE], sealed_epoch=1))
    with pytest.raises(SegmentSealed):
        await txn_stream.db.write(direct(txn_stream, events(ZERO, b"x"), events(ONE, b"y")))
    assert await payloads(txn_stream) == {ZERO: [], ONE: []}
    assert await txn_stream.rows("SELECT * FROM txn") == []
