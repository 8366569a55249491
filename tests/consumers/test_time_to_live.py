"""The time to live of events: groups, processors and share groups skip what has expired, and count it as finished."""

from __future__ import annotations

import random

import anyio
import pytest

import eventproc
from eventproc import Context, Event, NewEvent, Topic
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import InvalidArgument
from eventproc.topics import Group
from tests.consumers.support import TOPIC, committed, numbers_of, poll_all
from tests.support.apps import run_until_idle
from tests.support.virtual_time import clock_of

STEP_MS = 100_000
"""The twin's unit of time: longer than a test takes, because the clock also follows real time."""

pytestmark = pytest.mark.parametrize("form", ["memory"])


async def timed_topic(
    ep: Eventproc, ttls: list[int | None], *, ttl_ms: int | None = None, partitions: int = 1
) -> Topic:
    """Create a topic, and write an event with each time to live; payloads are numbers."""
    topic = await ep.create_topic(TOPIC, partitions=partitions, ttl_ms=ttl_ms)
    await produce_timed(topic, ttls)
    return topic


async def produce_timed(topic: Topic, ttls: list[int | None], first: int = 0) -> None:
    async with topic.producer() as producer:
        await producer.write_many(
            NewEvent(b"%d" % number, ttl_ms=ttl) for number, ttl in enumerate(ttls, first)
        )


async def group_of(ep: Eventproc) -> Group:
    return await ep.create_group("s/g", [TOPIC], start="head", on_deleted="drop")


async def lag_of(group: Group) -> int:
    return sum(each.lag or 0 for each in await group.partitions())


async def test_events_that_expired_before_delivery_are_skipped(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [None] * 3, ttl_ms=1_000)
    clock_of(ep).advance(1_000)
    await produce_timed(topic, [None] * 2, first=3)
    group = await group_of(ep)
    async with group.consumer("a") as consumer:
        assert numbers_of(await poll_all(consumer)) == [3, 4]
        await produce_timed(topic, [None], first=5)
        (event,) = await consumer.poll()
        assert (event.number, event.payload) == (5, b"5")
    assert await lag_of(group) == 0


async def test_the_ttl_of_an_event_precedes_that_of_its_topic(ep: Eventproc) -> None:
    await timed_topic(ep, [None, 10, 5_000, None, 5_000, 10], ttl_ms=1_000)
    clock_of(ep).advance(100)
    group = await group_of(ep)
    async with group.consumer("a", auto_commit=False) as consumer:
        assert numbers_of(await consumer.poll(1)) == [0]
        clock_of(ep).advance(1_000)
        events = await poll_all(consumer)
        assert numbers_of(events) == [2, 4]
        assert [event.headers for event in events] == [{}, {}]
        assert await committed(group) == {(TOPIC, 0): None}
        await consumer.commit()
        assert await committed(group) == {(TOPIC, 0): 6}


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_a_batch_of_expired_events_moves_the_number_and_stalls_nobody(
    ep: Eventproc, auto_commit: bool
) -> None:
    topic = await timed_topic(ep, [10] * 3_000, partitions=2)
    clock_of(ep).advance(10)
    group = await group_of(ep)
    async with group.consumer("a", auto_commit=auto_commit) as consumer:
        assert await consumer.poll(timeout_ms=0) == []
        await produce_timed(topic, [None], first=3_000)
        with anyio.fail_after(20):
            assert numbers_of(await consumer.poll()) == [3_000]
    assert await lag_of(group) == (0 if auto_commit else 1)


async def test_expired_events_do_not_commit_the_events_before_them(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [None] * 2)
    group = await group_of(ep)
    async with group.consumer("a", auto_commit=False) as consumer:
        assert numbers_of(await consumer.poll(2)) == [0, 1]
        await produce_timed(topic, [10] * 3, first=2)
        clock_of(ep).advance(10)
        assert await poll_all(consumer) == []
        assert consumer.position == {(TOPIC, 0): 5}
    async with group.consumer("b") as again:
        assert numbers_of(await poll_all(again)) == [0, 1]


async def test_a_group_reader_skips_expired_events_and_plain_readers_do_not(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [10, None, 10, 10, None, 10])
    clock_of(ep).advance(10)
    async with topic.reader() as reader:
        found = [event async for event in reader.until(await topic.tail())]
    assert [int(event.payload) for event in found] == list(range(6))
    assert {tuple(event.headers) for event in found} == {()}
    for batches in (False, True):
        group = await ep.create_group(f"s/g{int(batches)}", [TOPIC])
        seen: list[int] = []
        async with group.reader("a") as member:
            if batches:
                async for batch in member.batches(until=await topic.tail()):
                    seen += [int(event.payload) for event in batch]
            else:
                seen += [int(event.payload) async for event in member.until(await topic.tail())]
        assert seen == [1, 4]
        assert (await group.describe()).events == 0


async def test_an_event_expires_while_the_consumer_has_read_it_ahead(ep: Eventproc) -> None:
    await timed_topic(ep, [None, None, 50, None, 50])
    group = await group_of(ep)
    async with group.consumer("a") as consumer:
        assert numbers_of(await consumer.poll(2)) == [0, 1]
        clock_of(ep).advance(50)
        assert numbers_of(await poll_all(consumer, events_max=1)) == [3]
        assert consumer.position == {(TOPIC, 0): 5}


async def test_a_changed_ttl_takes_effect_within_a_second(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [None], ttl_ms=60_000)
    assert (await topic.describe()).config.ttl_ms == 60_000
    group = await group_of(ep)
    async with group.consumer("a") as consumer:
        assert numbers_of(await poll_all(consumer)) == [0]
        await topic.alter(ttl_ms=5)
        await produce_timed(topic, [None] * 2, first=1)
        clock_of(ep).advance(1_000)
        assert await poll_all(consumer) == []
        await topic.alter(ttl_ms=0)
        assert (await topic.describe()).config.ttl_ms is None
        await produce_timed(topic, [None], first=3)
        clock_of(ep).advance(10_000)
        assert numbers_of(await poll_all(consumer)) == [3]


async def test_a_processor_skips_expired_events_and_its_lag_ends(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [10, None, 10, None, 10])
    clock_of(ep).advance(10)
    app = eventproc.App()
    seen: list[int] = []

    @app.processor(TOPIC, group="s/p")
    async def handle(event: Event, context: Context) -> None:
        seen.append(event.number)

    async with ep.run(app) as running:
        await running.wait_idle()
        assert seen == [1, 3]
        await produce_timed(topic, [None], first=5)
        await running.wait_idle()
    assert seen == [1, 3, 5]
    await run_until_idle(ep, app)
    assert seen == [1, 3, 5]
    assert (await (await ep.group("s/p")).describe()).events == 0


async def test_a_processor_passes_over_a_topic_that_expired_completely(ep: Eventproc) -> None:
    await timed_topic(ep, [10] * 2_000, partitions=2)
    clock_of(ep).advance(10)
    app = eventproc.App()

    @app.processor(TOPIC, group="s/p")
    async def handle(event: Event, context: Context) -> None:
        raise AssertionError("no event is alive")

    await run_until_idle(ep, app)
    assert (await (await ep.group("s/p")).describe()).events == 0


async def test_a_share_group_skips_expired_events_and_finishes_them(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [10, None, 10, None] + [10] * 3_000)
    clock_of(ep).advance(10)
    group = await ep.create_share_group("s/w", [TOPIC])
    async with group.consumer("w") as consumer:
        events = []
        while found := await consumer.poll(timeout_ms=0):
            events += found
        assert [int(each.event.payload) for each in events] == [1, 3]
        await consumer.accept(events)
        await produce_timed(topic, [None], first=9_999)
        (last,) = await consumer.poll()
        assert last.event.payload == b"9999"
        await consumer.release([last])
        await topic.alter(ttl_ms=1)
        clock_of(ep).advance(1)
        assert await consumer.poll(timeout_ms=0) == []
        await topic.seal()
        assert await consumer.poll() == []
    assert await ep.dead_letters("s/w").list() == []


async def test_a_joint_transaction_moves_progress_over_expired_events(ep: Eventproc) -> None:
    await timed_topic(ep, [10, None, 10, None, 10])
    await ep.create_stream("s/out")
    clock_of(ep).advance(10)
    group = await group_of(ep)
    async with group.consumer("a", auto_commit=False) as consumer:
        for commits in (False, True):
            async with ep.transaction(consumer=consumer) as txn:
                events = await consumer.poll(timeout_ms=0)
                assert numbers_of(events) == [1, 3]
                await txn.write_many("s/out", [(event.payload, None) for event in events])
                if not commits:
                    await txn.abort()
        assert await committed(group) == {(TOPIC, 0): 5}


async def test_the_reserved_header_and_invalid_ttls_are_refused(ep: Eventproc) -> None:
    topic = await timed_topic(ep, [])
    async with topic.producer() as producer:
        with pytest.raises(InvalidArgument, match="reserved; pass ttl_ms"):
            await producer.write(b"", headers={"ep-ttl-ms": "5"})
        for ttl_ms in (0, -1, 2**60):
            with pytest.raises(InvalidArgument, match="ttl_ms"):
                await producer.write(b"", ttl_ms=ttl_ms)
    with pytest.raises(InvalidArgument, match="ttl_ms"):
        await topic.alter(ttl_ms=-1)


@pytest.mark.parametrize("seed", range(12))
async def test_deliveries_equal_those_of_a_naive_twin(ep: Eventproc, seed: int) -> None:
    """The twin: a list of (append time, own ttl). An event is delivered if it is alive when its poll begins."""
    rng = random.Random(seed)
    topic_ttl = rng.choice([None, 4 * STEP_MS])
    topic = await timed_topic(ep, [], ttl_ms=topic_ttl)
    group = await group_of(ep)
    clock = clock_of(ep)
    expiries: list[float] = []
    position = now_ms = 0
    async with group.consumer("a", auto_commit=rng.random() < 0.5) as consumer:
        for _ in range(40):
            if rng.random() < 0.5:
                ttls = [
                    rng.choice([None, None, STEP_MS, 3 * STEP_MS, 100 * STEP_MS])
                    for _ in range(rng.randrange(1, 9))
                ]
                first = len(expiries)
                await produce_timed(topic, ttls, first=first)
                for ttl in ttls:
                    ttl_ms = topic_ttl if ttl is None else ttl
                    expiries.append(float("inf") if ttl_ms is None else now_ms + ttl_ms)
            else:
                events_max = rng.randrange(1, 6)
                live = [number for number in range(position, len(expiries)) if expiries[number] > now_ms]
                expected = live[:events_max]
                found: list[int] = []
                while len(found) < len(expected) or not found:
                    events = await consumer.poll(events_max - len(found), timeout_ms=0)
                    if not events:
                        break
                    found += numbers_of(events)
                assert found == expected
                position = expected[-1] + 1 if len(live) > len(expected) else len(expiries)
            step_ms = rng.randrange(3) * STEP_MS
            now_ms += step_ms
            clock.advance(step_ms)
        await consumer.commit()


class ShortLived:
    """A codec whose events live for a while."""

    ttl_ms: int = 1_000

    def encode(self, value: int, /) -> bytes:
        return b"%d" % value

    def decode(self, payload: bytes, /) -> int:
        return int(payload)


async def test_the_ttl_of_a_codec_is_that_of_every_event_it_encodes(ep: Eventproc) -> None:
    topic = await ep.create_topic(TOPIC, codec=ShortLived(), ttl_ms=100_000)
    async with topic.producer(name="p") as producer:
        await producer.write(0)
        await producer.post(1, headers={"a": "b"})
        await producer.write(2, ttl_ms=60_000)  # its own precedes the codec's
        await producer.write_many([(3, None), NewEvent(4, ttl_ms=60_000)])
        await producer.write_many([NewEvent(5), NewEvent(6, ttl_ms=60_000)], sequence=producer.sequence + 1)
    async with topic.transaction() as txn:
        await txn.write(7)
    async with ep.transaction() as joint:
        await joint.write(topic, 8)
        await joint.write_many(topic, [NewEvent(9), NewEvent(10, ttl_ms=60_000)])
    source = await ep.create_topic("s/u")
    async with source.producer() as writer:
        await writer.write(b"11")
    app = eventproc.App()

    @app.processor("s/u", group="s/p")
    async def copy(event: Event, ctx: Context) -> None:
        ctx.emit(topic, int(event.payload))

    await run_until_idle(ep, app)
    async with topic.producer(codec=Lasting()) as producer:
        await producer.write(13)
    clock_of(ep).advance(1_000)
    group = await group_of(ep)
    async with group.consumer("a", codec=ShortLived()) as consumer:
        found: list[int] = []
        while events := await consumer.poll(timeout_ms=0):
            found += [event.payload for event in events]
    assert found == [2, 4, 6, 10, 13]


class Lasting(ShortLived):
    ttl_ms = None  # type: ignore[assignment]


async def test_a_codec_with_an_invalid_ttl_is_refused(ep: Eventproc) -> None:
    codec = ShortLived()
    for ttl_ms in (0, -1, "soon"):
        codec.ttl_ms = ttl_ms  # type: ignore[assignment]
        with pytest.raises(InvalidArgument, match="ttl_ms"):
            await ep.create_topic(TOPIC, codec=codec)
