"""What tests do with apps: a system to run them in, events to handle, and looks at what became of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio

import eventproc
from eventproc.groups import GroupDescription, describe_group
from eventproc.processors import App, Running
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.progress import progress_of_text
from eventproc.store.segments import Event
from eventproc.testing import check
from tests.support.reading import events_of

STREAM, OUT, GROUP = "s/t", "s/out", "s/g"

Append: TypeAlias = Callable[[Eventproc, range], Awaitable[None]]


@asynccontextmanager
async def system() -> AsyncIterator[Eventproc]:
    """A system in memory with two streams of one segment."""
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        for name in (STREAM, OUT):
            await ep.create_stream(name)
        yield ep
        await check(ep.db)


async def write(ep: Eventproc, keys: Iterable[str | None], stream: str = STREAM) -> None:
    """Append an event for each key; their payloads count them."""
    async with (await ep.stream(stream)).writer() as writer:
        await writer.write_many((b"%d" % number, key) for number, key in enumerate(keys))


async def events(ep: Eventproc, name: str = OUT) -> list[Event]:
    """Return all events of a stream."""
    return await events_of(await ep.stream(name))


async def payloads(ep: Eventproc, name: str = OUT) -> list[int]:
    return [int(event.payload) for event in await events(ep, name)]


async def group(ep: Eventproc) -> GroupDescription:
    return await ep.db.read(lambda tx: describe_group(tx, GROUP))


async def lag(ep: Eventproc) -> int:
    """Return how many events are not durably finished."""
    return (await group(ep)).events


async def progress(ep: Eventproc) -> list[Progress]:
    """Return the durable progress of the group's open segments."""
    rows = await ep.db.read(
        lambda tx: tx.execute(
            "SELECT finished FROM group_segment WHERE group_name = ? AND waiting IS NULL ORDER BY segment",
            (GROUP,),
        ).fetchall()
    )
    return [progress_of_text(text, GROUP, 0, SegmentId(0)) for (text,) in rows]


async def finish(ep: Eventproc, app: App) -> None:
    """EventRun the app until it has finished everything, and no longer."""
    async with ep.run(app) as running:
        await finished(running, await lag(ep))


async def finished(running: Running, count: int, name: str | None = None) -> None:
    """Return when a processor finished that many events, durably or not; leaving the app makes them durable."""
    while True:
        (status,) = [each for each in await running.status() if name in (None, each.name)]
        if status.finished >= count or status.error is not None:
            return
        await until_next()


async def until_next() -> None:
    """Let others run, before the next look at something that costs a read."""
    await anyio.sleep(0.02)


async def letters(ep: Eventproc) -> list[tuple[int, str | None, int | None]]:
    """Return payload, kind of error and attempts of each dead letter."""
    found = await ep.dead_letters(GROUP).list()
    return [(int(each.payload), each.error_type, each.attempts) for each in found]


async def grow(ep: Eventproc, append: Append, numbers: range) -> None:
    """Append events of these numbers while the stream is split, or merged if it was split."""
    stream = await ep.stream(STREAM)
    await append(ep, numbers[: len(numbers) // 2])
    segments = [each.id for each in (await stream.describe()).segments if not each.sealed]
    if len(segments) == 1:
        await stream.split(segments[0])
    else:
        await stream.merge(*segments)
    await append(ep, numbers[len(numbers) // 2 :])
