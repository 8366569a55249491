"""A share group of a topic: more consumers than partitions, partitions that are added, redriven events."""

from __future__ import annotations

from eventproc.runtime import Eventproc
from tests.shares.support import drain, numbers_of, poll_now


async def test_consumers_share_a_partition_and_see_added_ones(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/clicks", partitions=2)
    group = await ep.create_share_group("work", ["s/clicks"], start="tail")
    async with topic.producer() as producer:
        for number in range(6):
            await producer.write(b"%d" % number, partition=0)
    async with group.consumer("a") as first, group.consumer("b") as second:
        left, right = await first.poll(3), await second.poll(3)
        assert numbers_of(left) == [0, 1, 2]
        assert numbers_of(right) == [3, 4, 5]
        assert {(event.event.partition, event.deliveries) for event in (*left, *right)} == {(0, 1)}
        await topic.add_partitions(2)
        async with topic.producer() as producer:
            await producer.write(b"6", partition=3)
        (added,) = await poll_now(first)
        assert (added.event.payload, added.event.partition) == (b"6", 3)
        await first.accept([*left, added])
        await second.accept(right)
    assert await drain(group) == []
    assert (await group.describe()).events == 0
    assert {each.segment & 0xFFFF for each in (await group.describe()).segments} == {0, 1, 2, 3}
