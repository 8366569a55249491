"""What simulations share: lives that end at commits which a seed chooses, and scales at random."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from eventproc.store.database import Database
from eventproc.store.model.errors import InProgress, InvalidArgument, NotFound, ScaleRefused, StreamSealed
from eventproc.streams import Stream
from eventproc.testing import Deaths, check, run_until_death


async def live_through_deaths(
    live: Callable[[], Awaitable[object]],
    db: Database,
    faults: Deaths,
    random: Random,
    *,
    deaths: int,
    commits_max: int,
) -> None:
    """Call `live` until it returns; so many of its calls may die, each before or after one of the next commits.

    All invariants are checked after each call.
    """
    while True:
        if deaths > 0:
            plan = random.choice([faults.die_before_commit, faults.die_after_commit])
            plan(random.randint(1, commits_max))
        died = await run_until_death(live)
        faults.heal()
        await check(db)
        if not died:
            return
        deaths -= 1


async def scale_at_random(stream: Stream, random: Random, *, into_max: int = 2) -> None:
    """Split an active segment or merge two neighbours. A refusal, because others scale or seal, changes nothing."""
    try:
        ids = [segment.id for segment in await stream.segments()]
        if random.random() < 0.6 or len(ids) == 1:
            await stream.split(random.choice(ids), random.randint(2, into_max))
        else:
            first = random.randrange(len(ids) - 1)
            await stream.merge(*ids[first : first + 2])
    except (ScaleRefused, NotFound, InvalidArgument, InProgress, StreamSealed):
        pass
