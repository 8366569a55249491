"""What simulations share: a host, lives that end at commits which a seed chooses, and scales at random."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from eventproc.base.tasks import BackgroundTasks
from eventproc.cluster import run_host
from eventproc.runtime import Eventproc
from eventproc.store.database import Database
from eventproc.store.model.errors import InProgress, InvalidArgument, NotFound, ScaleRefused, StreamSealed
from eventproc.streams import Stream
from eventproc.testing import Deaths, check, run_until_death


@asynccontextmanager
async def hosted(ep: Eventproc) -> AsyncIterator[BackgroundTasks]:
    """Run a host while the block runs, which begins when the requests of the life before have ended.

    A seal among them would end the writers. The block may start tasks that end with it.
    """
    async with BackgroundTasks() as tasks:
        tasks.start_soon(run_host, ep.db)
        for request in await ep.requests.list():
            await ep.requests.wait(request.id)
        yield tasks


async def ensured(ep: Eventproc, name: str) -> Stream:
    """Return a stream, which one of the lives creates."""
    try:
        return await ep.stream(name)
    except NotFound:
        return await ep.create_stream(name)


async def live_through_deaths(
    live: Callable[[], Awaitable[object]],
    db: Database,
    faults: Deaths,
    random: Random,
    *,
    deaths: int,
    commits_max: int,
) -> int:
    """Call `live` until it returns; so many of its calls may die, each before or after one of the next commits.

    All invariants are checked after each call. Returns how many died.
    """
    died = 0
    while True:
        if died < deaths:
            plan = random.choice([faults.die_before_commit, faults.die_after_commit])
            plan(random.randint(1, commits_max))
        has_died = await run_until_death(live)
        faults.heal()
        await check(db)
        if not has_died:
            return died
        died += 1


async def scale_at_random(stream: Stream, random: Random, *, into_max: int = 2) -> bool:
    """Split an active segment or merge two neighbours; return whether it was not refused, as others scale or seal."""
    try:
        ids = [segment.id for segment in await stream.segments()]
        if random.random() < 0.6 or len(ids) == 1:
            await stream.split(random.choice(ids), random.randint(2, into_max))
        else:
            first = random.randrange(len(ids) - 1)
            await stream.merge(*ids[first : first + 2])
    except (ScaleRefused, NotFound, InvalidArgument, InProgress, StreamSealed):
        return False
    return True
