"""A writer: what it promises when sends fail, are cancelled, or meet a scale, and that order never breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Literal

import anyio
import attrs
import pytest

from eventproc.runtime import Eventproc
from eventproc.store.model.errors import (
    DiskFull,
    InvalidArgument,
    NotFound,
    StreamReplaced,
    StreamSealed,
    WriterFailed,
)
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.segments import Event
from eventproc.streams import NewEvent, Stream
from eventproc.streams.writer import BUFFER_BYTES_MAX
from eventproc.testing import disk_full

BIG = b"x" * 200_000


async def sizes(stream: Stream) -> list[int]:
    """Return the sizes of all events, in the order of reading one key."""
    async with stream.reader() as reader:
        found = []
        async for batch in reader.batches(until=await stream.tail()):
            found.extend([len(event.payload) for event in batch])
        return found


async def test_a_full_disk_fails_posted_events_until_flush_raises(ep: Eventproc, stream: Stream) -> None:
    async with stream.writer() as writer:
        await writer.post(b"1", key="k")
        await writer.flush()
        async with disk_full(ep.db):
            await writer.post(BIG, key="k")
            for _ in range(3):
                await anyio.wait_all_tasks_blocked()
            with pytest.raises(WriterFailed, match="disk is full"):
                await writer.post(b"after", key="k")
            with pytest.raises(WriterFailed):
                await writer.write(b"after", key="k")
            with pytest.raises(DiskFull):
                await writer.flush()
        await writer.flush()
        await writer.write(b"22", key="k")
    assert await sizes(stream) == [1, 2]


async def test_the_end_of_the_block_raises_a_failure_of_a_posted_event(ep: Eventproc, stream: Stream) -> None:
    async with disk_full(ep.db):
        with pytest.raises(DiskFull):
            async with stream.writer() as writer:
                await writer.post(BIG, key="k")
        with pytest.raises(DiskFull):
            async with stream.writer() as writer:
                await writer.write(BIG, key="k")
    assert await sizes(stream) == []


async def test_a_failed_write_raises_in_its_caller_only(ep: Eventproc, stream: Stream) -> None:
    async with stream.writer() as writer:
        async with disk_full(ep.db):
            with pytest.raises(DiskFull):
                await writer.write(BIG, key="k")
        await writer.write(b"1", key="k")
        await writer.flush()
    assert await sizes(stream) == [1]


async def test_a_sealed_stream_refuses_a_writer_and_ends_an_open_one(stream: Stream) -> None:
    async with stream.writer() as writer:
        await writer.write(b"1", key="k")
        await stream.seal()
        with pytest.raises(StreamSealed):
            await writer.write(b"2", key="k")
        with pytest.raises(StreamSealed):
            await writer.write_many([(b"3", "k")])
    with pytest.raises(StreamSealed):
        await stream.writer().__aenter__()
    assert await sizes(stream) == [1]


async def test_a_writer_of_a_deleted_stream_never_writes_to_its_successor(
    ep: Eventproc, stream: Stream
) -> None:
    async with stream.writer() as writer:
        await writer.write(b"1", key="k")
        await stream.seal()
        await stream.delete()
        again = await ep.create_stream("s/t")
        with pytest.raises((StreamReplaced, StreamSealed, NotFound)):
            await writer.write(b"2", key="k")
    with pytest.raises(StreamReplaced):
        await stream.writer().__aenter__()
    assert await sizes(again) == []


async def test_a_cancelled_write_is_appended_or_not_and_the_writer_continues(stream: Stream) -> None:
    for steps in range(6):
        async with stream.writer() as writer:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(writer.write, b"cancelled", key="k"))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            await writer.write(b"1", key="k")
    found = await sizes(stream)
    assert found.count(1) == 6
    assert set(found) <= {1, 9}


async def test_posting_waits_when_too_much_is_ahead_of_it(ep: Eventproc, stream: Stream) -> None:
    async with stream.writer() as writer:
        posted = 0
        for _ in range(4 * BUFFER_BYTES_MAX // len(BIG)):
            await writer.post(BIG, key="k")
            posted += 1
            assert (posted - writer.events_written) * len(BIG) <= 2 * BUFFER_BYTES_MAX + 2 * len(BIG)
        await writer.flush()
        assert writer.events_written == posted


async def test_headers_count_among_the_bytes_that_wait(ep: Eventproc, stream: Stream) -> None:
    headers = {"h": "x" * 60_000}
    async with stream.writer() as writer:
        ahead = 0
        for posted in range(1, 3 * BUFFER_BYTES_MAX // 60_000):
            await writer.post(b"", key="k", headers=headers)
            ahead = max(ahead, posted - writer.events_written)
        assert ahead * 60_000 <= 2 * BUFFER_BYTES_MAX + 120_000
        too_many = [NewEvent(b"", key="k", headers=headers)] * (BUFFER_BYTES_MAX // 60_000 + 1)
    async with stream.writer(name="w") as named:
        with pytest.raises(InvalidArgument, match="one sequence takes at most"):
            await named.write_many(too_many, sequence=1)


async def test_many_events_of_any_length_are_written_in_order(stream: Stream) -> None:
    async with stream.writer() as writer:
        count = await writer.write_many(NewEvent(b"x" * number, "k") for number in range(2000))
        assert count == 2000
        assert await writer.write_many([]) == 0
    assert await sizes(stream) == list(range(2000))


async def test_a_name_keeps_its_sequence_across_writers(stream: Stream) -> None:
    async with stream.writer(name="w") as writer:
        await writer.write(b"1", key="k")
        await writer.write(b"2", key="k")
        assert (writer.name, writer.sequence) == ("w", 2)
    async with stream.writer(name="w") as writer:
        assert writer.sequence == 2
        assert await writer.write_many([(b"333", "k")], sequence=3) == 1
        assert await writer.write_many([(b"333", "k")], sequence=3) == 0
    await stream.split(0)
    async with stream.writer(name="w") as writer:
        assert await writer.write_many([(b"333", "k")], sequence=3) == 0
        assert await writer.write_many([(b"4444", "k")], sequence=4) == 1
    assert await sizes(stream) == [1, 1, 3, 4]


@pytest.mark.parametrize(
    "options",
    [
        {"key": "\ud800"},
        {"key": "k" * 100_000},
        {"event_time": 2**63},
        {"event_time": 1.5},
        {"headers": {"a": 1}},
        {"headers": {"\ud800": "b"}},
        {"headers": {str(number): "" for number in range(10_000)}},
    ],
    ids=repr,
)
async def test_an_invalid_event_is_refused_and_the_writer_continues(
    stream: Stream, options: dict[str, object]
) -> None:
    async with stream.writer() as writer:
        with pytest.raises(InvalidArgument):
            await writer.write(b"bad", **options)  # type: ignore[call-overload]
        with pytest.raises(InvalidArgument):
            await writer.write(bytes(EVENT_BYTES_MAX + 1))
        with pytest.raises(InvalidArgument):
            await writer.write("text")  # type: ignore[call-overload]
        await writer.write(b"1", key="k")
    assert await sizes(stream) == [1]


@attrs.frozen
class Item:
    name: str


@attrs.frozen
class Order:
    number: int
    item: Item


async def test_a_payload_of_another_type_is_refused_and_the_writer_continues(stream: Stream) -> None:
    good, bad = Order(1, Item("a")), Order(1, None)  # type: ignore[arg-type]
    async with stream.writer(payload=Order) as writer:
        for write in (writer.write, writer.post, lambda payload: writer.write_many([(payload, None)])):
            with pytest.raises(InvalidArgument) as caught:
                await write(bad)
            assert caught.value.what == "payload"
        await writer.write(good)
    async with stream.reader(payload=Order) as reader, aclosing(reader.until(await stream.tail())) as events:
        assert [event.payload async for event in events] == [good]


async def test_events_posted_beside_a_lone_write_are_sent(stream: Stream) -> None:
    for steps in range(6):
        async with stream.writer() as writer:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(writer.write, b"1", key="k"))
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                await writer.post(b"22", key="k")
                await writer.post(b"333", key="k")
                await writer.flush()
            assert writer.events_written == 3
    found = await sizes(stream)
    assert sorted(found) == [1] * 6 + [2] * 6 + [3] * 6
    assert [size for size in found if size > 1] == [2, 3] * 6


@pytest.mark.parametrize("partitioning", [None, "key", "round_robin"])
async def test_writing_returns_the_event_as_readers_get_it(
    ep: Eventproc, partitioning: Literal["key", "round_robin"] | None
) -> None:
    stream: Stream
    grow: Callable[[], Awaitable[object]]
    if partitioning is None:
        stream = await ep.create_stream("s/written")
        writer, grow = stream.writer(), partial(stream.split, 0)
    else:
        stream = topic = await ep.create_topic("s/written", partitions=2, partitioning=partitioning)
        writer, grow = topic.producer(), partial(topic.add_partitions, 1)
    returned: list[Event] = []

    async def write(number: int) -> None:
        key = None if number % 4 == 0 else f"k{number % 4}"
        await writer.post(b"x" * number, key=key)
        headers = {"a": "b"} if number % 2 else None
        event_time = number if number % 3 else None
        returned.append(
            await writer.write(
                b"same", key=key, headers=headers, event_time=event_time, ttl_ms=number or None
            )
        )

    async with writer:
        for add in (False, True):
            if add:  # the writer routes what waits once more, because its first send meets a sealed segment
                await grow()
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(write, number)
        returned.append(await writer.write(b"alone"))
    async with stream.reader() as reader:
        read = [event async for event in reader.until(await stream.tail())]
    kept = [event for event in read if event.payload in (b"same", b"alone")]
    assert len(returned) == 41
    assert sorted(map(repr, returned)) == sorted(map(repr, kept))
