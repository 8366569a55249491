"""All that is in a stream, as one reader gets it."""

from __future__ import annotations

from contextlib import aclosing
from typing import TypeVar

from eventproc import Event
from eventproc.streams import Stream

P = TypeVar("P")


async def events_of(stream: Stream[P]) -> list[Event[P]]:
    async with stream.reader() as reader, aclosing(reader.until(await stream.tail())) as events:
        return [event async for event in events]


async def payloads_of(stream: Stream[P]) -> list[P]:
    return [event.payload for event in await events_of(stream)]
