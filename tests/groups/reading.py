"""What tests of group readers share: streams to read, and waiting for what must become true."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from eventproc import ScalingPolicy, Stream
from eventproc.groups import GroupReader, ReaderGroup, watch_group
from eventproc.runtime import Eventproc


async def written(ep: Eventproc, count: int, *, segments: int = 1, name: str = "s/t") -> Stream:
    stream = await ep.create_stream(name, scaling=ScalingPolicy.fixed(segments))
    await write(stream, range(count))
    return stream


async def write(stream: Stream, numbers: range) -> None:
    async with stream.writer() as writer:
        await writer.write_many((b"%d" % number, str(number % 7)) for number in numbers)


async def eventually(ep: Eventproc, condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(20), ep.db.subscribe([watch_group("s/g")]) as changes:
        while not await condition():
            await changes.wait(50)


async def is_number(group: ReaderGroup, number: int) -> bool:
    return (await group.describe()).segments[0].number == number


async def read_until_tail(reader: GroupReader, stream: Stream) -> list[int]:
    return [int(event.payload) async for event in reader.until(await stream.tail())]


async def are_shared(readers: list[GroupReader], each: int | None = None) -> bool:
    """Return whether every reader owns `each` segments; None: its share of six."""
    return [len(reader.owned) for reader in readers] == [each or 6 // len(readers)] * len(readers)
