"""Joint transactions: several streams and a reader's progress, all or none, in both ways of committing."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

from eventproc.describe import PingResult, TxnState
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import (
    Closed,
    IllegalTransition,
    InvalidArgument,
    NotFound,
    StreamReplaced,
    StreamSealed,
    TransactionAborted,
    TransactionDecided,
    TransactionMovesProgress,
)
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.transactions import watch_txn
from eventproc.streams import Stream
from eventproc.topics import Group
from tests.joint.support import fail_in, finished, states, take
from tests.support.reading import payloads_of

pytestmark = pytest.mark.usefixtures("joint_path")


async def test_events_of_all_streams_become_visible_together(ep: Eventproc, targets: list[Stream]) -> None:
    async with ep.transaction() as txn:
        for number, target in enumerate(targets):
            await txn.write(target, b"%d" % number, key="k")
        assert [await payloads_of(target) for target in targets] == [[], [], []]
    assert [await payloads_of(target) for target in targets] == [[b"0"], [b"1"], [b"2"]]
    assert await states(ep, txn.id) == {"s/a": "committed", "s/b": "committed", "s/c": "committed"}
    assert sorted(txn.appended) == ["s/a", "s/b", "s/c"]
    with pytest.raises(TransactionDecided):
        await txn.write(targets[0], b"late")


async def test_a_failure_in_the_block_writes_nothing_anywhere(ep: Eventproc, targets: list[Stream]) -> None:
    txn = ep.transaction()
    with pytest.raises(ZeroDivisionError):
        await fail_in(txn, targets[0], b"1")
    assert await payloads_of(targets[0]) == []
    with pytest.raises((TransactionAborted, IllegalTransition)):
        await txn.write(targets[0], b"2")


async def test_the_progress_moves_with_the_commit_and_not_before(
    ep: Eventproc, group: Group, targets: list[Stream]
) -> None:
    async with group.reader("r") as reader, aclosing(aiter(reader)) as events:
        for number in range(3):
            event = await anext(events)
            async with ep.transaction(consumer=reader) as txn:
                await txn.write(targets[0], event.payload, key="k")
                await txn.write(targets[1], event.payload, key="k")
                assert await finished(group) == number
            assert await finished(group) == number + 1
    assert await payloads_of(targets[0]) == await payloads_of(targets[1]) == [b"0", b"1", b"2"]


async def test_events_read_in_the_block_come_again_if_it_fails(
    ep: Eventproc, group: Group, targets: list[Stream]
) -> None:
    async def consume_and_fail() -> None:
        async with ep.transaction(consumer=reader):
            assert await take(reader, 4) == [b"0", b"1", b"2", b"3"]
            raise ZeroDivisionError

    async with group.reader("r") as reader:
        with pytest.raises(ZeroDivisionError):
            await consume_and_fail()
        assert await finished(group) == 0
        async with ep.transaction(consumer=reader) as txn:
            for payload in await take(reader, 4):
                await txn.write(targets[0], payload, key="k")
        assert await finished(group) == 4
        assert await take(reader, 1) == [b"4"]
    assert await payloads_of(targets[0]) == [b"0", b"1", b"2", b"3"]


async def test_a_transaction_without_events_moves_the_progress_alone(ep: Eventproc, group: Group) -> None:
    async with group.reader("r") as reader:
        await take(reader, 2)
        async with ep.transaction(consumer=reader) as txn:
            pass
        assert await finished(group) == 2
        assert await states(ep, txn.id) == {}


async def test_a_fenced_segment_rolls_everything_back(
    ep: Eventproc, group: Group, targets: list[Stream]
) -> None:
    async with group.reader("r") as reader:
        payloads = await take(reader, 1)
        txn = ep.transaction(consumer=reader)

        async def attempt() -> None:
            async with txn:
                for target in targets:
                    await txn.write(target, payloads[0])
                await group.reader_offline("r")

        with pytest.raises(SegmentFenced):
            await attempt()
        assert [await payloads_of(target) for target in targets] == [[], [], []]
        assert await finished(group) == 0
        assert set((await states(ep, txn.id)).values()) <= {"aborted", "aborting"}
        assert await take(reader, 1) == payloads


async def test_the_reader_is_held_until_the_transaction_ends(
    ep: Eventproc, group: Group, targets: list[Stream]
) -> None:
    async with group.reader("r") as reader:
        await take(reader, 1)
        async with ep.transaction(consumer=reader) as txn:
            await txn.write(targets[0], b"1")
            with pytest.raises(IllegalTransition, match="whose commit moves its progress"):
                await reader.commit()
            with pytest.raises(IllegalTransition, match="another transaction"):
                await ep.transaction(consumer=reader).__aenter__()
        await reader.commit()
        assert await finished(group) == 1


async def test_a_closed_reader_cannot_commit(ep: Eventproc, group: Group, targets: list[Stream]) -> None:
    reader = await group.reader("r")

    async def close_meanwhile() -> None:
        async with ep.transaction(consumer=reader) as txn:
            await txn.write(targets[0], b"1")
            await reader.close()

    await take(reader, 1)
    with pytest.raises(Closed):
        await close_meanwhile()
    assert await payloads_of(targets[0]) == []
    assert await finished(group) == 0
    with pytest.raises(Closed):
        await ep.transaction(consumer=reader).__aenter__()


@pytest.mark.parametrize("end", ["seal", "delete"])
async def test_a_stream_that_ended_meanwhile_aborts_all(
    ep: Eventproc, group: Group, targets: list[Stream], end: str
) -> None:
    async with group.reader("r") as reader:
        payloads = await take(reader, 1)
        txn = ep.transaction(consumer=reader)

        async def attempt() -> None:
            async with txn:
                for target in targets:
                    await txn.write(target, payloads[0])
                await targets[1].seal()
                if end == "delete":
                    await targets[1].delete()

        with pytest.raises((StreamSealed, NotFound, StreamReplaced, TransactionAborted)):
            await attempt()
        assert await payloads_of(targets[0]) == await payloads_of(targets[2]) == []
        assert await take(reader, 1) == payloads


async def test_a_seal_aborts_what_is_staged_in_all_streams(ep: Eventproc, targets: list[Stream]) -> None:
    txn = ep.transaction()

    async def attempt() -> None:
        async with txn:
            for target in targets:
                await txn.write(target, b"1")
            await txn.flush()
            await targets[1].seal()

    with pytest.raises(TransactionAborted, match="in s/b"):
        await attempt()
    assert await payloads_of(targets[0]) == []
    assert set((await states(ep, txn.id)).values()) <= {"aborting", "aborted"}


async def test_a_large_transaction_is_staged_and_committed_in_all_streams(
    ep: Eventproc, group: Group, targets: list[Stream]
) -> None:
    large = b"x" * 100_000
    async with group.reader("r") as reader:
        await take(reader, 1)
        async with ep.transaction(consumer=reader) as txn:
            for number in range(40):
                await txn.write(targets[number % 3], b"%2d" % number + large, key="k")
            assert await finished(group) == 0
        assert await finished(group) == 1
    found = [[int(payload[:2]) for payload in await payloads_of(target)] for target in targets]
    assert found == [list(range(first, 40, 3)) for first in range(3)]


async def test_another_handle_may_only_abort_a_transaction_with_progress(
    ep: Eventproc, group: Group, targets: list[Stream]
) -> None:
    async with group.reader("r") as reader:
        await take(reader, 1)
        txn = ep.transaction(consumer=reader)

        async def attempt() -> None:
            async with txn:
                await txn.write(targets[0], b"1")
                await txn.write(targets[1], b"1")
                await txn.flush()
                other = targets[0].transaction_of(txn.id)
                with pytest.raises(TransactionMovesProgress, match=r"s/g.*txn abort s/a"):
                    await other.commit()
                described = await other.status()
                assert (described.streams, described.group) == (("s/a", "s/b"), "s/g")
                await other.abort()

        with pytest.raises(TransactionAborted, match="by its owner"):
            await attempt()
        assert await take(reader, 1) == [b"0"]
    assert await payloads_of(targets[0]) == await payloads_of(targets[1]) == []


async def test_another_handle_may_commit_a_transaction_without_progress(
    ep: Eventproc, targets: list[Stream]
) -> None:
    async with ep.transaction() as txn:
        await txn.write(targets[0], b"1")
        await txn.write(targets[1], b"2")
        await txn.flush()
        await targets[1].transaction_of(txn.id).commit()
        await targets[0].transaction_of(txn.id).commit()
    assert [await payloads_of(target) for target in targets] == [[b"1"], [b"2"], []]


async def test_a_commit_by_another_handle_counts_also_after_a_ping_has_met_it_in_one_stream(
    ep: Eventproc, targets: list[Stream]
) -> None:
    async with ep.transaction() as txn:
        await txn.write(targets[0], b"1")
        await txn.write(targets[1], b"2")
        await txn.flush()
        with pytest.raises(InvalidArgument):
            await txn.write(targets[2], b"3", event_time="never")  # type: ignore[call-overload]
        await targets[1].transaction_of(txn.id).commit()
        assert await txn.ping() is PingResult.COMMITTED
    assert sorted(txn.appended) == ["s/a", "s/b"]
    assert [await payloads_of(target) for target in targets] == [[b"1"], [b"2"], []]


async def test_a_ping_extends_the_lease_in_all_streams_and_its_end_aborts_all(
    ep: Eventproc, targets: list[Stream]
) -> None:
    def end_lease(tx: Tx) -> None:
        tx.execute("UPDATE txn SET lease_until_ms = 0")

    async def attempt() -> None:
        async with ep.transaction(lease_ms=60_000) as txn:
            await txn.write(targets[0], b"1")
            await txn.flush()
            await txn.write(targets[1], b"1")
            await txn.flush()
            assert await txn.ping() is PingResult.OK
            first, second = await txn.status()
            assert (first.lease_ms, first.created_ms, first.state) == (
                60_000,
                second.created_ms,
                TxnState.OPEN,
            )
            with ep.db.subscribe([watch_txn(targets[0].stream_id, txn.id)]) as changes, anyio.fail_after(20):
                await changes.wait(0)
                await ep.db.write(end_lease)
                await changes.wait()

    with pytest.raises(TransactionAborted, match="its lease ended"):
        await attempt()
    assert await payloads_of(targets[0]) == []


async def test_transactions_are_listed_by_each_of_their_streams(ep: Eventproc, targets: list[Stream]) -> None:
    async with ep.transaction() as txn:
        await txn.write(targets[0], b"1")
        await txn.write(targets[2], b"1")
        await txn.flush()
        for target in (targets[0], targets[2]):
            (listed,) = await target.transactions()
            assert (listed.id, listed.streams, listed.group) == (txn.id, ("s/a", "s/c"), None)
        assert await targets[1].transactions() == []


async def test_an_invalid_call_is_refused_and_changes_nothing(ep: Eventproc, targets: list[Stream]) -> None:
    with pytest.raises(InvalidArgument, match="consumer"):
        ep.transaction(consumer="reader")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="lease_ms"):
        ep.transaction(lease_ms=1)
    txn = ep.transaction()
    with pytest.raises(IllegalTransition, match="async with"):
        await txn.write("s/a", b"1")
    async with txn:
        with pytest.raises(NotFound):
            await txn.write("s/unknown", b"1")
        with pytest.raises(InvalidArgument):
            await txn.write("s/a", "text")  # type: ignore[call-overload]
        await txn.write("s/a", b"1")
    with pytest.raises(IllegalTransition):
        await txn.__aenter__()
    assert await payloads_of(targets[0]) == [b"1"]
