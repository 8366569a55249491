"""Commits: whole, in the order of decisions, in rounds, and routed by the epoch of the moment they are seen in."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.store.model.ids import segment_id
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.transactions import TxnState
from eventproc.store.transactions import TXN_STEP_LIMITS, apply_preparation
from eventproc.workflows import scale_stream
from eventproc.workflows.commit_transactions import plan_step
from eventproc.workflows.requests import ScaleStream
from tests.transactions.support import (
    HIGH,
    LOW,
    NAME,
    ONE,
    ZERO,
    TxnStream,
    by_key,
    commit,
    events_of,
    find_txn_stream,
    make_txn_stream,
    merge,
    serve,
    split,
    write,
)
from tests.workflows.support import Life, die_everywhere

KEYS = ("a", "N14228", "customer-42", "🚀key", "日本語", "k1", "k2", "k3")


@pytest.fixture
async def txn_stream(life: Life) -> TxnStream:
    return await make_txn_stream(life)


async def blobs(txn_stream: TxnStream) -> list[tuple[object, ...]]:
    return await txn_stream.rows("SELECT id FROM blob WHERE stream_id = ?", txn_stream.stream.stream_id)


def pack_early(txn_stream: TxnStream, *, rows_a_step: int) -> None:
    """Pack transactions of more than ten rows before their commit, `rows_a_step` rows in each step."""
    limits = txn_stream.db.shared[TXN_STEP_LIMITS]
    limits.round_rows, limits.preparation_rows = 10, rows_a_step


async def test_a_commit_moves_rows_and_no_bytes(life: Life, txn_stream: TxnStream) -> None:
    txn_id = await txn_stream.begin()
    await write(txn_stream, txn_id, [(b"x" * 3000, LOW), (b"y" * 3000, HIGH)])
    await write(txn_stream, txn_id, [(b"small", HIGH)])
    before = await blobs(txn_stream)
    assert await events_of(txn_stream) == {ZERO: [], ONE: []}
    (done,) = await commit(life, txn_stream, txn_id)
    assert await blobs(txn_stream) == before != []
    assert [(each.segment, each.offset, each.number, each.count) for each in done.appended] == [
        (ZERO, 0, 0, 1),
        (ONE, 0, 0, 2),
    ]
    assert by_key(await events_of(txn_stream)) == {LOW: [b"x" * 3000], HIGH: [b"y" * 3000, b"small"]}
    assert await txn_stream.rows("SELECT * FROM staged") == []
    await life.check()


@pytest.mark.acceptance("C1", differs="one order over all epochs, which is the order of decisions")
async def test_commits_appear_in_the_order_of_their_decisions(life: Life, txn_stream: TxnStream) -> None:
    ids = [await txn_stream.begin() for _ in range(6)]
    for number, txn_id in enumerate(ids):
        await write(txn_stream, txn_id, [(b"%d" % number, HIGH)])
        if number == 2:
            await split(life, ONE, 0.75)
    order = [4, 1, 5, 0]
    done = await commit(life, txn_stream, *[ids[number] for number in order])
    assert [txn.order for txn in done] == [1, 2, 3, 4]
    assert by_key(await events_of(txn_stream)) == {HIGH: [b"%d" % number for number in order]}
    assert [(await txn_stream.get(ids[number])).state for number in (2, 3)] == [TxnState.OPEN] * 2
    await life.check()


@pytest.mark.acceptance("C2")
async def test_a_round_commits_a_hundred_and_the_next_ones_the_rest(
    life: Life, txn_stream: TxnStream
) -> None:
    ids = [await txn_stream.begin() for _ in range(250)]
    for number, txn_id in enumerate(ids):
        await write(txn_stream, txn_id, [(b"%d" % number, HIGH)])
        await txn_stream.commit(txn_id)
    before = life.faults.commits
    done = await serve(life, txn_stream, ids)
    assert life.faults.commits - before <= 5  # the claim, three rounds, and perhaps a progress of the engine
    assert by_key(await events_of(txn_stream))[HIGH] == [b"%d" % number for number in range(250)]
    assert [txn.order for txn in done] == list(range(1, 251))
    notices = await txn_stream.rows("SELECT sum(count) FROM extent WHERE stream_id = 2")
    assert notices == [(3,)]
    await life.check()


@pytest.mark.acceptance(
    "C5", differs="there is no committing record: the interrupted transaction is the next one in order"
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_interrupted_commit_is_finished_before_the_next_one(when: str) -> None:
    """The host dies at each commit of the first transaction's preparation; then a second one is decided."""
    first, second = (f"01900000-0000-7000-8000-00000000000{number}" for number in (1, 2))
    interrupted: list[TxnState] = []

    async def stage_both(life: Life) -> None:
        txn_stream = await make_txn_stream(life)
        pack_early(txn_stream, rows_a_step=8)
        for txn_id in (first, second):
            await txn_stream.begin(txn_id=txn_id)
        for number in range(30):
            await write(txn_stream, first, [(b"first %d" % number, KEYS[number % len(KEYS)])])
        await write(txn_stream, second, [(b"second", key) for key in KEYS])
        await txn_stream.commit(first)

    async def host(life: Life) -> None:
        await serve(life, await find_txn_stream(life), [first])

    async def decide_second(life: Life) -> None:
        txn_stream = await find_txn_stream(life)
        left = await txn_stream.get(first)
        if left.prepared:
            interrupted.append(left.state)
        await txn_stream.commit(second)
        done = await serve(life, txn_stream, [second, first])
        assert [(txn.state, txn.order) for txn in done] == [
            (TxnState.COMMITTED, 2),
            (TxnState.COMMITTED, 1),
        ]
        assert by_key(await events_of(txn_stream)) == {
            key: [
                *(b"first %d" % number for number in range(30) if KEYS[number % len(KEYS)] == key),
                b"second",
            ]
            for key in KEYS
        }
        await life.check()

    await die_everywhere(when, host, prepare=stage_both, rerun=False, verify=decide_second)
    assert interrupted.count(TxnState.COMMITTING) >= 3, "the first commit was interrupted at several points"


async def test_scale_before_a_commit_splits_only_affected_staged_rows(
    life: Life, txn_stream: TxnStream
) -> None:
    txn_id = await txn_stream.begin()
    events = [(b"%s %d" % (key.encode(), number) + b"." * 500, key) for number in range(20) for key in KEYS]
    await write(txn_stream, txn_id, events)
    await write(txn_stream, txn_id, [(b"no key", None), (b"none", None)])
    untouched = await txn_stream.rows(
        "SELECT seq, part, place, place_offset FROM staged WHERE segment = 1 ORDER BY seq, part"
    )
    await split(life, ZERO, 0.25)
    await write(txn_stream, txn_id, [(b"late", key) for key in KEYS])
    (done,) = await commit(life, txn_stream, txn_id)
    assert done.prepared == 1
    found = await events_of(txn_stream)
    wanted = {key: [payload for payload, own in events if own == key] + [b"late"] for key in KEYS}
    seen = by_key(found)
    assert sorted(seen.pop(None)) == [b"no key", b"none"]
    assert seen == wanted
    assert found[ZERO] == []
    assert {each.segment for each in done.appended} <= {ONE, segment_id(2, 1), segment_id(3, 1)}
    places = await txn_stream.rows(
        "SELECT place, place_offset FROM extent WHERE stream_id = 4 AND segment = 1 ORDER BY start"
    )
    assert [row[2:] for row in untouched] == places[:1]
    await life.check()


async def test_a_merge_between_staging_and_commit_moves_rows_as_they_are(
    life: Life, txn_stream: TxnStream
) -> None:
    await split(life, ZERO, 0.25)
    txn_id = await txn_stream.begin()
    await write(txn_stream, txn_id, [(b"%s" % key.encode() * 400, key) for key in KEYS])
    before = await blobs(txn_stream)
    await merge(life, segment_id(2, 1), segment_id(3, 1))
    (done,) = await commit(life, txn_stream, txn_id)
    assert await blobs(txn_stream) == before
    assert [each.segment for each in done.appended] == [ONE, segment_id(4, 2)]
    assert by_key(await events_of(txn_stream)) == {key: [b"%s" % key.encode() * 400] for key in KEYS}
    await life.check()


async def test_many_small_stagings_are_packed_before_their_commit(life: Life, txn_stream: TxnStream) -> None:
    pack_early(txn_stream, rows_a_step=16)
    txn_id = await txn_stream.begin()
    events = [(b"%d" % number, KEYS[number % len(KEYS)]) for number in range(60)]
    for event in events:
        await write(txn_stream, txn_id, [event])
    await split(life, ZERO, 0.25)
    (done,) = await commit(life, txn_stream, txn_id)
    assert done.rows == 60
    rows = await txn_stream.rows("SELECT count(*), sum(count) FROM extent WHERE stream_id = 4")
    assert rows == [(4 * 3, 60)]
    wanted = {key: [payload for payload, own in events if own == key] for key in KEYS}
    assert by_key(await events_of(txn_stream)) == wanted
    await life.check()


@pytest.mark.parametrize("scaled_after", [1, 3])
async def test_key_order_holds_when_packing_dies_and_a_segment_is_scaled(
    life: Life, txn_stream: TxnStream, scaled_after: int
) -> None:
    request = ScaleStream(NAME, 4, (ZERO,), (KeyRange(0.0, 0.25), KeyRange(0.25, 0.5)))
    pack_early(txn_stream, rows_a_step=100)
    txn_id = await txn_stream.begin()
    events = [(b"%d" % number, KEYS[number % len(KEYS)]) for number in range(40)]
    for event in events:
        await write(txn_stream, txn_id, [event])
    txn = await txn_stream.commit(txn_id)
    owner = await life.claim()
    next_seq: int | None = 0
    for done in range(1, 4):  # as a host that then dies
        assert next_seq is not None
        step = partial(plan_step, txn=txn, first_seq=next_seq, pack=True, rows_max=4)
        planned = await life.db.read(step)
        await life.db.write(owner.fencing(partial(apply_preparation, txn=txn, planned=planned)))
        next_seq = planned.next_seq
        if done == scaled_after:  # before the next host can commit
            await life.db.write(partial(scale_stream.apply, request=request, request_id="r"))
    await serve(life, txn_stream, [txn_id])
    assert by_key(await events_of(txn_stream)) == {
        key: [payload for payload, own in events if own == key] for key in KEYS
    }
    await life.check()
