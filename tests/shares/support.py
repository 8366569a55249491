"""Support for the tests of share groups: streams with numbered events, and what a consumer does with them."""

from __future__ import annotations

from collections.abc import Iterable

import anyio

from eventproc import ScalingPolicy, Stream
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery, ShareConsumer, ShareGroup

GROUP_NAME = "s/work"


async def written_to(ep: Eventproc, count: int, *, segments: int = 1, name: str = "s/t") -> Stream:
    stream = await ep.create_stream(name, scaling=ScalingPolicy.fixed(segments))
    await write_numbers(stream, range(count))
    return stream


async def write_numbers(stream: Stream, numbers: Iterable[int]) -> None:
    async with stream.writer() as writer:
        await writer.write_many((b"%d" % number, str(number % 7)) for number in numbers)


def numbers_of(events: Iterable[Delivery]) -> list[int]:
    return sorted(int(event.event.payload) for event in events)


async def poll_now(consumer: ShareConsumer, events_max: int = 500) -> list[Delivery]:
    """Return all that is available, up to `events_max`, without waiting for more."""
    found: list[Delivery] = []
    while len(found) < events_max:
        events = await consumer.poll(events_max - len(found), timeout_ms=0)
        if not events:
            break
        found += events
    return found


async def drain(group: ShareGroup, consumer: str = "drain") -> list[int]:
    """Accept all that is available; return the numbers."""
    async with group.consumer(consumer) as member:
        events = await poll_now(member)
        await member.accept(events)
    return numbers_of(events)


async def pass_ms(ep: Eventproc, ms: int) -> None:
    """Let time pass: virtual time where the loop has it, real time otherwise."""
    await anyio.sleep(ms / 1000)
