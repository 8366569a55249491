"""Lives of a simulated process: it dies at commits that a seed chooses, and lives again until its work is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from eventproc.store.database import Database
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
