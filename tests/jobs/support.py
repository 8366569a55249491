"""What tests do with workers: jobs to be done, and looks at what became of them."""

from __future__ import annotations

from collections.abc import Iterable

import eventproc
from eventproc import Event, Eventproc
from tests.support.reading import payloads_of

JOBS, OUT, GROUP = "s/jobs", "s/out", "s/work"


async def with_jobs(ep: Eventproc, payloads: Iterable[bytes]) -> eventproc.Stream:
    """Create the streams, and write jobs."""
    await ep.create_scope("s")
    stream = await ep.create_stream(JOBS)
    await ep.create_stream(OUT)
    await submit(stream, payloads)
    return stream


async def submit(stream: eventproc.Stream, payloads: Iterable[bytes]) -> None:
    async with stream.writer() as writer:
        await writer.write_many((each, None) for each in payloads)


async def outcome(ep: Eventproc, name: str = OUT) -> list[bytes]:
    """Return the payloads of all events of a stream, in order."""
    return await payloads_of(await ep.stream(name))


def number_of(event: Event) -> int:
    return int(event.payload)
