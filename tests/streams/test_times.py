"""A cut at a time: what was appended at or after it comes after the cut, whatever the clock did meanwhile."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.streams.stream import Stream
from tests.support.virtual_time import SteppingClock


async def read(stream: Stream, time_ms: int) -> list[tuple[bytes, int]]:
    async with stream.reader(time_ms) as reader:
        return [(event.payload, event.timestamp) async for event in reader.until(await stream.tail())]


@pytest.mark.parametrize("step_ms", [0, 1, -1, -3_600_000])
async def test_no_event_is_skipped_when_the_clock_steps_back_before_a_scale(
    step_ms: int,
) -> None:
    clock = SteppingClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/a")
        async with stream.writer() as writer:
            clock.now_ms += 1000
            await writer.write(b"before", key="k")
            clock.now_ms += step_ms
            await stream.split(0)
            await writer.write(b"after", key="k")
        (before, first_ms), (after, second_ms) = await read(stream, 0)
        assert (before, after) == (b"before", b"after")
        assert first_ms < second_ms
        assert await read(stream, first_ms) == [(b"before", first_ms), (b"after", second_ms)]
        assert await read(stream, first_ms + 1) == [(b"after", second_ms)]
        assert await read(stream, second_ms) == [(b"after", second_ms)]
        assert await read(stream, second_ms + 1) == []
        first, second = await stream.epochs()
        assert first.created_ms < first_ms < second.created_ms <= second_ms


@pytest.mark.usefixtures("commit_path")
async def test_a_committed_transaction_is_not_earlier_than_the_event_before_it() -> None:
    clock = SteppingClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/a")
        async with stream.writer() as writer:
            await writer.write(b"before")
        clock.now_ms -= 1000
        async with stream.transaction() as txn:
            await txn.write(b"after")
        (_, first_ms), (after, second_ms) = await read(stream, 0)
        assert (after, second_ms) == (b"after", first_ms)
