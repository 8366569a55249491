"""Joint transactions with a share consumer: outputs and accepted deliveries, all or none, in both ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import pytest

from eventproc.errors import Closed, IllegalTransition, LockLost, TransactionAborted
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery, ShareConsumer, ShareGroup
from eventproc.streams import Stream
from tests.joint.support import fail_in
from tests.shares.support import poll_now
from tests.support.memory import clock as clock, timed_ep as ep
from tests.support.reading import payloads_of
from tests.support.virtual_time import virtual_time

__all__ = ["clock", "ep"]

pytestmark = pytest.mark.usefixtures("joint_path")

LOCK_MS = 10_000

Lose: TypeAlias = Callable[[ShareGroup, ShareConsumer], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return virtual_time()


@pytest.fixture
async def work(ep: Eventproc, source: Stream) -> ShareGroup:
    return await ep.create_share_group("work", [source.name], lock_ms=LOCK_MS)


async def left(work: ShareGroup) -> int:
    """Return how many events the group has not finished durably."""
    return (await work.describe()).events


def payloads(events: list[Delivery]) -> list[bytes]:
    return [each.event.payload for each in events]


async def test_accepted_deliveries_are_finished_with_the_commit_and_not_before(
    ep: Eventproc, work: ShareGroup, targets: list[Stream]
) -> None:
    async with work.consumer("c") as consumer:
        events = await consumer.poll()
        async with ep.transaction(consumer=consumer) as txn:
            for event in events[:6]:
                await txn.write(targets[0], event.event.payload)
                await txn.write(targets[1], event.event.payload)
                await consumer.accept(event)
            assert (await left(work), consumer.held_events) == (10, 10)
        assert (await left(work), consumer.held_events) == (4, 4)
        await consumer.accept(events[6:])
        with pytest.raises(LockLost):
            await consumer.accept(events[0])
    assert (
        sorted(await payloads_of(targets[0])) == sorted(await payloads_of(targets[1])) == payloads(events[:6])
    )
    assert await left(work) == 0


async def test_each_event_of_a_loop_is_finished_with_its_own_transaction(
    ep: Eventproc, source: Stream, work: ShareGroup, targets: list[Stream]
) -> None:
    await source.seal()
    async with work.consumer("c") as consumer:
        count = 10
        async for event in consumer:
            async with ep.transaction(consumer=consumer) as txn:
                await txn.write(targets[2], event.event.payload, key="k")
                assert await left(work) == count
            count -= 1
            assert await left(work) == count
    assert await payloads_of(targets[2]) == [b"%d" % number for number in range(10)]


async def test_a_poll_in_the_block_accepts_the_previous_one_with_the_commit(
    ep: Eventproc, work: ShareGroup
) -> None:
    async with work.consumer("c", auto_accept=True) as consumer:
        async with ep.transaction(consumer=consumer):
            await consumer.poll(3)
            await consumer.poll(3)
            assert await left(work) == 10
        assert await left(work) == 4


async def test_a_failed_block_leaves_its_deliveries_held_until_their_locks_end(
    ep: Eventproc, work: ShareGroup, targets: list[Stream]
) -> None:
    async with work.consumer("a") as failing, work.consumer("b") as other:

        async def attempt() -> None:
            async with ep.transaction(consumer=failing) as txn:
                await failing.accept(events)
                await fail_in(txn, targets[0], b"1")

        events = await failing.poll()
        with pytest.raises((ZeroDivisionError, IllegalTransition)):
            await attempt()
        assert failing.held_events == 10
        assert await other.poll(timeout_ms=0) == []
        await anyio.sleep(LOCK_MS / 1000)
        again = await other.poll()
        assert [each.deliveries for each in again] == [2] * 10
        with pytest.raises(LockLost):
            await failing.accept(events)
        await other.accept(again)
    assert await payloads_of(targets[0]) == []
    assert await left(work) == 0


async def test_asking_for_the_next_event_does_not_accept_one_whose_transaction_failed(
    ep: Eventproc, work: ShareGroup
) -> None:
    async with work.consumer("c") as consumer:
        first = await anext(consumer)
        with pytest.raises(ZeroDivisionError):
            async with ep.transaction(consumer=consumer):
                raise ZeroDivisionError
        second = await anext(consumer)
        assert second.event.number != first.event.number
        await consumer.accept(second)
        assert await left(work) == 9
        await consumer.release(first)
        found = await poll_now(consumer)
        assert (first.event.number, 2) in [(each.event.number, each.deliveries) for each in found]


async def lose_by_another_consumer(work: ShareGroup, consumer: ShareConsumer) -> None:
    await anyio.sleep(LOCK_MS / 1000)
    async with work.consumer("thief") as thief:
        assert len(await thief.poll()) == 10


async def lose_by_a_reset(work: ShareGroup, consumer: ShareConsumer) -> None:
    await work.reset()


@pytest.mark.parametrize("lose", [lose_by_another_consumer, lose_by_a_reset])
async def test_a_lost_lock_refuses_the_commit_and_nothing_is_applied(
    ep: Eventproc, work: ShareGroup, targets: list[Stream], lose: Lose
) -> None:
    async with work.consumer("c") as consumer:
        events = await consumer.poll()

        async def attempt() -> None:
            async with ep.transaction(consumer=consumer) as txn:
                await consumer.accept(events[:2])
                for target in targets:
                    await txn.write(target, b"1")
                await lose(work, consumer)

        with pytest.raises(LockLost, match="s/in"):
            await attempt()
        assert [await payloads_of(target) for target in targets] == [[], [], []]
        assert await left(work) == 10
        async with ep.transaction(consumer=consumer) as txn:
            await txn.write(targets[0], b"2")
    assert await payloads_of(targets[0]) == [b"2"]


async def test_an_aborted_or_timed_out_transaction_accepts_nothing(
    ep: Eventproc, work: ShareGroup, targets: list[Stream]
) -> None:
    async with work.consumer("c") as consumer:
        events = await consumer.poll()
        async with ep.transaction(consumer=consumer) as txn:
            await txn.write(targets[0], b"1")
            await consumer.accept(events)
            await txn.abort()
        assert (await left(work), consumer.held_events) == (10, 10)

        async def attempt() -> None:
            async with ep.transaction(consumer=consumer) as txn:
                await consumer.accept(events)
                await txn.write(targets[0], b"2")
                await txn.flush()
                await targets[0].transaction_of(txn.id).abort()  # as the end of its lease does

        with pytest.raises(TransactionAborted):
            await attempt()
        assert (await left(work), consumer.held_events) == (10, 10)
        await consumer.accept(events)
    assert await left(work) == 0
    assert await payloads_of(targets[0]) == []


async def test_releasing_and_renewing_in_the_block_act_immediately(
    ep: Eventproc, work: ShareGroup, targets: list[Stream]
) -> None:
    async with work.consumer("a") as consumer, work.consumer("b") as other:
        events = await consumer.poll()
        async with ep.transaction(consumer=consumer) as txn:
            await txn.write(targets[0], b"1")
            await consumer.accept(events)
            await anyio.sleep(0.9 * LOCK_MS / 1000)
            await consumer.renew(events)
            await anyio.sleep(0.9 * LOCK_MS / 1000)
            await consumer.release(events[0])
            assert payloads(await other.poll()) == payloads(events[:1])
        assert await left(work) == 1


async def test_events_accepted_after_a_commit_in_the_block_are_finished_immediately(
    ep: Eventproc, work: ShareGroup
) -> None:
    async with work.consumer("c") as consumer:
        events = await consumer.poll()
        async with ep.transaction(consumer=consumer) as txn:
            await consumer.accept(events[0])
            await txn.commit()
            await consumer.accept(events[1])
            assert await left(work) == 8
        assert (await left(work), consumer.held_events) == (8, 8)


async def test_a_consumer_has_one_transaction_and_must_be_open(
    ep: Eventproc, work: ShareGroup, targets: list[Stream]
) -> None:
    consumer = work.consumer("c")
    with pytest.raises(IllegalTransition):
        await ep.transaction(consumer=consumer).__aenter__()
    await consumer
    events = await consumer.poll()

    async def attempt() -> None:
        async with ep.transaction(consumer=consumer) as txn:
            with pytest.raises(IllegalTransition, match=txn.id):
                await ep.transaction(consumer=consumer).__aenter__()
            await consumer.accept(events)
            await txn.write(targets[0], b"1")
            await consumer.close()

    with pytest.raises(Closed):
        await attempt()
    with pytest.raises(Closed):
        await ep.transaction(consumer=consumer).__aenter__()
    assert await payloads_of(targets[0]) == []
    async with work.consumer("d") as other:
        assert len(await other.poll()) == 10
