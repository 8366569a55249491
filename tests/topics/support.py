"""What tests of topics share."""

from __future__ import annotations

from eventproc import Event
from eventproc.streams import Stream


async def all_events(topic: Stream) -> list[Event[bytes]]:
    """Return all events, as one reader gets them."""
    async with topic.reader() as reader:
        return [event async for event in reader.until(await topic.tail())]


async def by_partition(topic: Stream) -> dict[int, list[bytes]]:
    """Return the payloads of each partition that has any, in order."""
    found: dict[int, list[bytes]] = {}
    for event in await all_events(topic):
        found.setdefault(event.partition, []).append(event.payload)
    return dict(sorted(found.items()))
