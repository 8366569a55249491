"""Readers get the bytes of a key back, whichever call wrote them."""

from __future__ import annotations

import pytest

import eventproc
from eventproc import NewEvent, Topic
from eventproc.errors import InvalidArgument
from eventproc.testing import VirtualRuntime
from tests.support.reading import events_of

KEYS = [b"ana", b"\x00\x00\x00\x05", b"\xff\x00", "ü".encode(), b"\xff" * 756, b""]


@pytest.fixture
async def topic(ep: eventproc.Eventproc) -> Topic:
    return await ep.create_topic("s/t", partitions=7)


async def keys_of(topic: Topic) -> list[bytes | None]:
    return [event.key_bytes for event in sorted(await events_of(topic), key=lambda each: each.payload)]


async def test_readers_get_the_bytes_of_keys_back_from_every_kind_of_write(topic: Topic) -> None:
    async with topic.producer() as producer:
        for key in KEYS:
            written = await producer.write(b"1", key=key)
            assert written.key_bytes == key
            await producer.post(b"2", key=key)
            await producer.write(b"3", key=key, partition=6)
            await producer.write(b"4", key=key, id=f"{key!r:.100}")
        await producer.write_many([(b"5", key) for key in KEYS])
        await producer.write_many([NewEvent(b"6", key) for key in KEYS])
    async with topic.transaction() as txn:
        for key in KEYS:
            await txn.write(b"7", key=key)
        await txn.write_many([(b"8", key) for key in KEYS])
    assert sorted(filter(None, await keys_of(topic))) == sorted(each for each in KEYS * 8 if each)
    async with topic.producer() as producer:
        assert (await producer.write(b"9")).key_bytes is None


async def test_a_text_and_its_utf8_are_one_key(topic: Topic) -> None:
    async with topic.producer() as producer:
        for text in ("ana", "ü", "data:;base64,/w==x", ""):
            as_text, as_bytes = [await producer.write(b"", key=key) for key in (text, text.encode())]
            assert (as_text.key, as_text.partition) == (as_bytes.key, as_bytes.partition)
        binary = await producer.write(b"", key=b"\xff")
        copied = await producer.write(b"", key=binary.key)
    assert (binary.key, binary.partition) == (copied.key, copied.partition)
    assert copied.key_bytes == b"\xff"


async def test_a_partitioner_gets_the_text_of_a_key(ep: eventproc.Eventproc) -> None:
    class ByText:
        def partition(self, key: str | None, payload: bytes, partitions: int) -> int:
            return int(key == "data:;base64,/w==")

    topic = await ep.create_topic("s/own", partitions=2, partitioning=ByText())
    async with topic.producer() as producer:
        assert (await producer.write(b"", key=b"\xff")).partition == 1
        assert (await producer.write(b"", key=b"\xfe")).partition == 0


async def test_a_key_that_is_too_long_names_itself_and_writes_nothing(topic: Topic) -> None:
    async with topic.producer() as producer:
        with pytest.raises(InvalidArgument, match="routing key"):
            await producer.write(b"", key=b"\xff" * 757)
    assert await events_of(topic) == []


async def test_keys_of_bytes_pass_through_processors_and_dead_letters(
    eventproc_runtime: VirtualRuntime,
) -> None:
    app = eventproc.App()
    seen: list[bytes | None] = []

    @app.processor("s/in", group="s/g", retry=eventproc.RetryPolicy(attempts=1))
    async def copy(event: eventproc.Event, ctx: eventproc.Context) -> None:
        seen.append(event.key_bytes)
        ctx.emit("s/out", event.payload, key=event.key_bytes)
        if event.payload == b"bad":
            raise ValueError

    async with eventproc_runtime.running(app) as running:
        await running.ep.create_topic("s/out", partitions=2)
        await running.write("s/in", b"good", key=b"\xff")
        await running.write("s/in", b"bad", key=b"\xfe")
        await running.settled()
        assert sorted(filter(None, seen)) == [b"\xfe", b"\xff"]
        assert [event.key_bytes for event in await events_of(await running.ep.topic("s/out"))] == [b"\xff"]
        letters = running.ep.dead_letters("s/g")
        await letters.redrive([letter.id for letter in await running.dead_letters("s/g")])
        await running.settled()
        assert sorted(filter(None, seen)) == [b"\xfe", b"\xfe", b"\xff"]
