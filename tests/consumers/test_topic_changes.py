"""What changes under a consumer group: partitions, topics, subscriptions, static consumers; and joint transactions."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from eventproc import Consumer, Event, Topic, errors
from eventproc.groups import GROUP
from eventproc.runtime import Eventproc
from eventproc.store.records import get
from tests.consumers.support import Heard, committed, eventually, numbers_of, poll_all, settle
from tests.support.virtual_time import clock_of

STATIC_MS = 60_000


async def produce_keys(topic: Topic, numbers: range) -> None:
    async with topic.producer() as producer:
        for number in numbers:
            await producer.write(b"%d" % number, key=f"k{number}")


@pytest.mark.acceptance("K18")
async def test_partitions_added_under_a_group_at_the_tail_are_read_from_their_beginning(
    ep: Eventproc,
) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    await produce_keys(topic, range(10))
    group = await ep.create_group("g", ["s/t"], start="tail", on_deleted="drop")
    async with group.consumer("a") as a:
        assert await poll_all(a) == []
        await topic.add_partitions(2)
        async with topic.producer() as producer:
            for number in range(10, 30):
                await producer.write(b"%d" % number, partition=number % 4)
        seen = await poll_some(a, 20)
        assert sorted(numbers_of(seen)) == list(range(10, 30))
        assert {event.partition for event in seen} == {0, 1, 2, 3}
        assert min(event.number for event in seen if event.partition > 1) == 0
    assert {each.partition for each in await group.partitions()} == {0, 1, 2, 3}


async def test_partitions_added_are_read_while_another_consumer_hangs_with_an_event(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    group = await ep.create_group("g", ["s/t"], on_deleted="drop")
    async with group.consumer("a", auto_commit=False) as hung, group.consumer("b") as b:
        await settle(ep, [hung, b], [1, 1])
        await produce_keys(topic, range(20))
        await hung.poll(1)
        await poll_all(b)
        await topic.add_partitions(4)
        async with topic.producer() as producer:
            for partition in range(2, 6):
                await producer.write(b"%d" % partition, partition=partition)
        seen = await poll_some(b, 2)
        assert [event.number for event in seen] == [0, 0]
        assert len(b.assignment) == 3
        with anyio.fail_after(20):
            while {event.partition for event in seen if event.partition > 1} != {2, 3, 4, 5}:
                seen += await hung.poll(timeout_ms=20)


async def poll_some(consumer: Consumer, count: int) -> list[Event]:
    found: list[Event] = []
    with anyio.fail_after(20):
        while len(found) < count:
            found += await consumer.poll(timeout_ms=20)
    return found


@pytest.mark.acceptance("K19")
async def test_a_deleted_topic_leaves_the_group_and_the_other_topic_flows(ep: Eventproc) -> None:
    first = await ep.create_topic("s/first", partitions=2)
    second = await ep.create_topic("s/second", partitions=2)
    group = await ep.create_group("g", ["s/first", "s/second"], on_deleted="drop")
    heard = Heard()
    async with heard.consumer(group, "a") as a:
        await settle(ep, [a], [4])
        await produce_keys(second, range(3))
        await first.seal()
        await first.delete()
        await settle(ep, [a], [2])
        await produce_keys(second, range(3, 8))
        assert {each.topic for each in a.assignment} == {"s/second"}
        assert heard.calls[-1] == ("lost", (0, 1)), "what it keeps is not assigned again"
        assert {each.topic for each in await group.partitions()} == {"s/second"}
    assert [each.name for each in (await group.describe()).streams] == ["s/second"]


async def test_a_consumer_may_seek_where_a_topic_was_deleted_meanwhile(ep: Eventproc) -> None:
    await produce_keys(await ep.create_topic("s/t", partitions=1), range(3))
    gone = await ep.create_topic("s/u", partitions=1)
    group = await ep.create_group("g", ["s/t", "s/u"], on_deleted="drop")
    async with group.consumer("a") as a:
        assert len(await poll_some(a, 3)) == 3
        await gone.delete()
        await a.seek_to_time(0)
        await a.seek_to_beginning()
        await a.seek_to_end()
        await a.seek(("s/t", 0), 1)
        assert numbers_of(await poll_some(a, 2)) == [1, 2]


async def test_a_group_without_consumers_goes_on_without_a_topic_that_was_deleted(ep: Eventproc) -> None:
    await produce_keys(await ep.create_topic("s/t", partitions=1), range(3))
    gone = await ep.create_topic("s/u", partitions=1)
    group = await ep.create_group("g", ["s/t", "s/u"], start="tail", on_deleted="drop")
    await group.checkpoint("before")
    await gone.delete()
    await ep.create_group("g", ["s/t", "s/u"], on_deleted="drop")  # as a program does that starts again
    (preview,) = await group.reset("head", dry_run=True)
    assert (preview.stream, preview.events_before, preview.events_after) == ("s/t", 0, 3)
    assert [list(each.cuts) for each in await group.checkpoints()] == [["s/t"]]
    assert await group.reset("head") == [preview]
    assert list((await group.checkpoint("after")).cuts) == ["s/t"]
    (back,) = await group.reset(checkpoint="before")
    assert (back.events_before, back.events_after) == (3, 0)
    await produce_keys(await ep.create_topic("s/u", partitions=1), range(3, 5))
    async with group.consumer("a") as a:
        assert numbers_of(await poll_some(a, 2)) == [3, 4], "the next topic of the name, from its head"


async def test_a_group_that_is_reset_to_other_topics_does_not_wait_for_the_deleted_one(ep: Eventproc) -> None:
    await ep.create_topic("s/t", partitions=1)
    gone = await ep.create_topic("s/u", partitions=1)
    group = await ep.create_group("g", ["s/t", "s/u"], on_deleted="drop")
    await gone.delete()
    await group.reset("head", streams=["s/t"])
    await ep.create_group("g", ["s/t"], on_deleted="drop")
    await produce_keys(await ep.create_topic("s/u", partitions=1), range(3))
    await produce_keys(await ep.topic("s/t"), range(3, 5))
    async with group.consumer("a") as a:
        assert numbers_of(await poll_some(a, 2)) == [3, 4]
        assert [each.name for each in (await group.describe()).streams] == ["s/t"]


@pytest.mark.acceptance("K22")
@pytest.mark.acceptance("K23")
async def test_nobody_gets_a_topic_that_it_did_not_ask_for(ep: Eventproc) -> None:
    await ep.create_topic("s/first", partitions=2)
    await ep.create_topic("s/second", partitions=2)
    group = await ep.create_group("g", ["s/first", "s/second"], on_deleted="drop")
    async with (
        group.consumer("a", topics=["s/first"]) as a,
        group.consumer("b", topics=["s/second"]) as b,
    ):
        await settle(ep, [a, b], [2, 2])
        assert {each.topic for each in a.assignment} == {"s/first"}
        assert {each.topic for each in b.assignment} == {"s/second"}
        await a.subscribe(["s/second"])
        await settle(ep, [a, b], [1, 1])
        assert a.subscription == ("s/second",)
        await a.subscribe(["s/first"])
        await settle(ep, [a, b], [2, 2])


@pytest.mark.parametrize("topics", ["s/t*", 5, [5], [], ["s/t", "s/t"], ["t*"], ["*/t"]])
async def test_topics_that_no_consumer_can_have_are_refused_where_they_are_named(
    ep: Eventproc, topics: Any
) -> None:
    await ep.create_topic("s/t", partitions=1)
    group = await ep.create_group("g", ["s/t"])
    with pytest.raises(errors.InvalidArgument):
        group.consumer("a", topics=topics)
    async with group.consumer("a") as a:
        with pytest.raises(errors.InvalidArgument):
            await a.subscribe(topics)


@pytest.mark.acceptance("K24")
async def test_a_pattern_takes_in_a_topic_that_is_created_later(ep: Eventproc) -> None:
    await ep.create_topic("s/orders-us", partitions=1)
    group = await ep.create_group("g", ["s/orders-us"], on_deleted="drop")
    async with group.consumer("a", topics=["s/orders-*"]) as a:
        await settle(ep, [a], [1])
        late = await ep.create_topic("s/orders-eu", partitions=2)
        await ep.create_topic("s/other", partitions=1)
        await settle(ep, [a], [3])
        await produce_keys(late, range(4))
        assert len(await poll_some(a, 4)) == 4
        await a.unsubscribe()
        assert a.subscription is None


async def test_a_consumer_with_a_pattern_waits_for_topics_that_are_created(ep: Eventproc) -> None:
    first = await ep.create_topic("s/orders-us", partitions=1)
    group = await ep.create_group("g", ["s/orders-us"], on_deleted="drop")
    await produce_keys(first, range(2))
    await first.seal()
    async with group.consumer("a", topics=["s/orders-*"]) as a, group.consumer("b") as b:
        assert numbers_of(await poll_all(a)) + numbers_of(await poll_all(b)) == [0, 1]
        for consumer in a, b:
            began = anyio.current_time()
            assert await consumer.poll(timeout_ms=30) == []
            assert anyio.current_time() - began >= 0.03, "it waits, and does not return immediately"
        late = await ep.create_topic("s/orders-eu", partitions=1)
        await produce_keys(late, range(2, 4))
        assert numbers_of(await poll_some(a, 2)) == [2, 3]
    async with group.consumer("c") as c:
        await late.seal()
        with anyio.fail_after(20):
            assert [event async for event in c] == [], "without the pattern the group has an end"


async def test_a_group_waits_for_the_next_topic_of_a_deleted_name(ep: Eventproc) -> None:
    first = await ep.create_topic("s/t", partitions=1)
    group = await ep.create_group("g", ["s/t"], on_deleted="drop")
    async with group.consumer("a") as a:
        await first.seal()
        await first.delete()
        began = anyio.current_time()
        assert await a.poll(timeout_ms=30) == []
        assert anyio.current_time() - began >= 0.03
        await produce_keys(await ep.create_topic("s/t", partitions=1), range(2))
        assert numbers_of(await poll_some(a, 2)) == [0, 1]


async def test_a_group_forgets_deleted_topics_that_a_pattern_brought(ep: Eventproc) -> None:
    named = await ep.create_topic("s/named", partitions=1)
    group = await ep.create_group("g", ["s/named"], on_deleted="drop")

    async def dropped() -> list[str]:
        record = await ep.db.read(lambda tx: get(tx, GROUP, "s/g").value)
        return [each.name for each in record.dropped]

    watches: list[int] = []
    async with group.consumer("a", topics=["s/named", "s/orders-*"]) as a:
        for number in range(5):
            topic = await ep.create_topic(f"s/orders-{number}", partitions=1)
            await produce_keys(topic, range(1))
            await poll_some(a, 1)
            watches.append(len(ep.db._subscriptions.watches))
            await topic.seal()
            await topic.delete()
        # The consumer may still wait for the topic before: it lets go at its first look after the group let go.
        assert max(watches) <= watches[0] + 1, "each commit of another process asks all of them"
        await named.seal()
        await named.delete()
        await settle(ep, [a], [0])
        assert await dropped() == ["s/named"]
        for name in ("s/orders-0", "s/named"):
            await produce_keys(await ep.create_topic(name, partitions=1), range(2))
            assert numbers_of(await poll_some(a, 2)) == [0, 1], "the next topic of the name, from its head"
        assert await dropped() == []


async def test_a_topic_that_a_pattern_brings_begins_at_its_head_wherever_the_group_began(
    ep: Eventproc,
) -> None:
    await ep.create_topic("s/other", partitions=1)
    await produce_keys(await ep.create_topic("s/orders-us", partitions=1), range(3))
    group = await ep.create_group("g", ["s/other"], start="tail", on_deleted="drop")
    async with group.consumer("a", topics=["s/orders-*"]) as a:
        assert numbers_of(await poll_some(a, 3)) == [0, 1, 2]
        await produce_keys(await ep.create_topic("s/orders-fr", partitions=1), range(7, 9))
        assert numbers_of(await poll_some(a, 2)) == [7, 8]
    again = await ep.create_group("g", ["s/other"], start="head", on_deleted="drop")
    assert again.name == group.name, "a start counts only at the creation"


@pytest.mark.parametrize("form", ["memory"])
@pytest.mark.acceptance("K15", differs="its owner epochs grow, so that a zombie under the same id is fenced")
@pytest.mark.acceptance("K16")
@pytest.mark.acceptance("K17")
async def test_a_static_consumer_that_restarts_in_time_keeps_its_partitions(ep: Eventproc) -> None:
    clock = clock_of(ep)
    await ep.create_topic("s/t", partitions=4)
    group = await ep.create_group("g", ["s/t"], on_deleted="drop")
    heard = Heard()
    async with heard.consumer(group, "a") as a:
        b = await group.consumer("b", static_ms=STATIC_MS)
        await settle(ep, [a, b], [2, 2])
        mine = b.assignment
        heard.calls.clear()
        await b.close()
        await poll_all(a)
        assert len(a.assignment) == 2
        async with group.consumer("b", static_ms=STATIC_MS) as b:
            await settle(ep, [b], [2])
            assert b.assignment == mine
            with pytest.raises(errors.ReaderOnline):
                await group.consumer("b", static_ms=STATIC_MS)
            await settle(ep, [b], [2])
            assert b.assignment == mine
        assert heard.calls == []
        clock.advance(STATIC_MS + 1)
        await settle(ep, [a], [4])
        async with group.consumer("b", static_ms=STATIC_MS) as b:
            await settle(ep, [a, b], [2, 2])


async def test_a_static_consumer_may_leave_for_good(ep: Eventproc) -> None:
    await ep.create_topic("s/t", partitions=4)
    group = await ep.create_group("g", ["s/t"], on_deleted="drop")
    async with group.consumer("a") as a:
        b = await group.consumer("b", static_ms=STATIC_MS)
        await settle(ep, [a, b], [2, 2])
        await b.leave()
        assert b.closed
        await settle(ep, [a], [4])


@pytest.mark.acceptance("K26")
async def test_range_puts_equal_partitions_of_two_topics_on_one_consumer(ep: Eventproc) -> None:
    await ep.create_topic("s/first", partitions=3)
    await ep.create_topic("s/second", partitions=3)
    group = await ep.create_group("g", ["s/first", "s/second"], assignor="range", on_deleted="drop")
    async with group.consumer("a") as a, group.consumer("b") as b:
        await settle(ep, [a, b], [4, 2])
        for consumer in a, b:
            by_topic = {
                name: {each.partition for each in consumer.assignment if each.topic == name}
                for name in ("s/first", "s/second")
            }
            assert by_topic["s/first"] == by_topic["s/second"]


@pytest.mark.parametrize(
    ("policy", "numbers", "lost"),
    [("earliest", [6, 7, 8, 9], 4), ("latest", [10], 8), ("error", None, 0)],
)
@pytest.mark.acceptance("K21", differs="there is no policy by duration: a reset by duration does that")
async def test_a_truncation_behind_the_number_follows_the_policy(
    ep: Eventproc, policy: str, numbers: list[int] | None, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await ep.create_topic("s/t", partitions=1)
    await produce_keys(topic, range(10))
    group = await ep.create_group("g", ["s/t"], on_truncated=policy, on_deleted="drop")  # type: ignore[call-overload]
    async with group.consumer("a") as a:
        await a.poll(2)
    await topic.truncate(partition=0, before_number=6)
    async with group.consumer("a") as a:
        if numbers is None:
            with pytest.raises(errors.Truncated, match="s/t"):
                await a.poll()
            return
        found = await a.poll(timeout_ms=0)
        if policy == "latest":
            await produce_keys(topic, range(10, 11))
            found += await poll_some(a, 1)
        assert [event.number for event in found] == numbers
        assert (await group.describe()).lost_events == lost
    assert "events were lost" in caplog.text


async def test_progress_becomes_visible_to_others_after_the_save(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=1)
    await produce_keys(topic, range(3))
    group = await ep.create_group("g", ["s/t"], on_deleted="drop")

    async def all_committed() -> bool:
        await a.poll(timeout_ms=0)
        return await committed(group) == {("s/t", 0): 3}

    async with group.consumer("a") as a:
        await poll_all(a)
        await eventually(ep, all_committed)
