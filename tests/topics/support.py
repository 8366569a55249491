"""What tests of topics share."""

from __future__ import annotations

from eventproc.streams import Stream
from tests.support.reading import events_of


async def by_partition(topic: Stream) -> dict[int, list[bytes]]:
    """Return the payloads of each partition that has any, in order."""
    found: dict[int, list[bytes]] = {}
    for event in await events_of(topic):
        found.setdefault(event.partition, []).append(event.payload)
    return dict(sorted(found.items()))
