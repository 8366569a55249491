"""Joint transactions over topics, with the progress of a consumer in them."""

from __future__ import annotations

import asyncio

import anyio
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import IllegalTransition
from eventproc.topics import Consumer, Topic
from tests.consumers.support import Heard
from tests.support.reading import payloads_of

pytestmark = pytest.mark.usefixtures("joint_path")


@pytest.fixture
async def clicks(ep: Eventproc) -> Topic:
    topic = await ep.create_topic("s/clicks", partitions=3)
    async with topic.producer() as producer:
        for number in range(9):
            await producer.write(b"%d" % number, partition=number % 3)
    return topic


async def fail_with(ep: Eventproc, consumer: Consumer[bytes], bills: Topic) -> None:
    async with ep.transaction(consumer=consumer) as txn:
        await txn.write(bills, b"lost", partition=0)
        raise ZeroDivisionError


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_progress_and_outputs_of_a_poll_are_committed_together(
    ep: Eventproc, clicks: Topic, auto_commit: bool
) -> None:
    bills = [await ep.create_topic(f"s/{name}", partitions=2) for name in ("bills", "audit")]
    group = await ep.create_group("g", [clicks.name], on_deleted="drop")
    async with group.consumer("c1", auto_commit=auto_commit) as consumer:
        polled = 0
        while polled < 9:
            batch = await consumer.poll(4)
            async with ep.transaction(consumer=consumer) as txn:
                for event in batch:
                    for target in bills:
                        await txn.write(target, event.payload, partition=event.partition % 2)
                with pytest.raises(IllegalTransition, match="whose commit moves its progress"):
                    await consumer.commit()
            polled += len(batch)
        assert polled == 9
    assert (await group.describe()).events == 0
    for target in bills:
        assert sorted(await payloads_of(target)) == [b"%d" % number for number in range(9)]


async def test_a_consumer_is_set_back_if_the_transaction_fails(ep: Eventproc, clicks: Topic) -> None:
    bills = await ep.create_topic("s/bills", partitions=2)
    group = await ep.create_group("g", [clicks.name], on_deleted="drop")
    heard = Heard()
    async with heard.consumer(group, "c1") as consumer:
        first = [event.payload for event in await consumer.poll(100)]
        with pytest.raises(ZeroDivisionError):
            await fail_with(ep, consumer, bills)
        again: list[bytes] = []
        while len(again) < len(first):
            again += [event.payload for event in await consumer.poll(100)]
        assert sorted(again)[: len(first)] == sorted(first)
        assert await payloads_of(bills) == []
        assert heard.calls == [("assigned", (0, 1, 2))]


async def test_a_topic_that_grows_meanwhile_takes_the_events(ep: Eventproc, clicks: Topic) -> None:
    bills = await ep.create_topic("s/bills", partitions=2)
    async with ep.transaction() as txn:
        for number in range(6):
            await txn.write(bills, b"%d" % number, key=str(number))
            await txn.write(clicks, b"%d" % (number + 9), key=str(number))
        await bills.add_partitions(2)
        await txn.write("s/bills", b"6", partition=1)
    assert sorted(await payloads_of(bills)) == [b"%d" % number for number in range(7)]
    assert len(await payloads_of(clicks)) == 15


def test_a_block_that_asyncio_cancels_gives_the_progress_back() -> None:
    asyncio.run(_cancel_in_each_turn())


async def _cancel_in_each_turn() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        source = await ep.create_topic("s/in", partitions=1)
        bills = await ep.create_topic("s/bills", partitions=1)
        async with source.producer() as producer:
            await producer.write(b"again")
        group = await ep.create_group("s/g", [source])

        async def fail(failed: asyncio.Event) -> None:
            async with ep.transaction(consumer=consumer) as txn:
                assert [event.payload for event in await consumer.poll(timeout_ms=0)] == [b"again"]
                await txn.write(bills, b"lost")
                await txn.flush()
                failed.set()
                raise ZeroDivisionError

        async with group.consumer("a", auto_commit=False) as consumer:
            for turns in range(20):
                failed = asyncio.Event()
                failing = asyncio.create_task(fail(failed))
                await failed.wait()
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                failing.cancel()
                await asyncio.wait([failing])
                assert failing.cancelled() or isinstance(failing.exception(), ZeroDivisionError)
        assert await payloads_of(bills) == []
