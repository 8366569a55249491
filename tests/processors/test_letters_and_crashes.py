"""Dead letters belong to the transaction that moves progress: no crash and no failing commit loses or doubles one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

import eventproc
from eventproc.processors import App, AppTx, RetryPolicy
from eventproc.store.segments import Event
from eventproc.testing import Deaths, check, run_until_death
from tests.processors.support import GROUP, STREAM, finish, lag, letters, system, write

ONCE = RetryPolicy(attempts=1)
COMMITS_MAX = 100


async def fail_on_one(event: Event) -> None:
    if event.payload == b"1":
        raise ValueError("poison")


def app_of_poison() -> App:
    app = App()
    app.add(fail_on_one, STREAM, group=GROUP, retry=ONCE)
    return app


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_at_any_commit_loses_no_dead_letter(when: str) -> None:
    for commit in range(1, COMMITS_MAX):
        deaths = Deaths()
        async with eventproc.open_memory(faults=deaths) as ep:
            await ep.create_scope("s")
            await ep.create_stream(STREAM)
            await write(ep, "abc")
            (deaths.die_before_commit if when == "before" else deaths.die_after_commit)(commit)
            died = await run_until_death(partial(finish, ep, app_of_poison()))
            deaths.heal()
            await finish(ep, app_of_poison())
            assert (await letters(ep), await lag(ep)) == ([(1, "ValueError", 1)], 0)
            await check(ep.db)
        if not died:
            return
    pytest.fail(f"the app made more than {COMMITS_MAX} commits")


async def test_a_dead_letter_is_kept_when_its_commit_is_repeated() -> None:
    failures = 0

    def fail_twice(tx: AppTx, batch: Sequence[Event]) -> None:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise LookupError("not yet")

    async with system() as ep:
        await write(ep, "abc")
        app = App()
        retry = RetryPolicy(attempts=3, wait_ms=0, jitter_ms=0, permanent=(ValueError,))
        app.add(fail_on_one, STREAM, group=GROUP, retry=retry, exactly_once=True, on_commit=fail_twice)
        await finish(ep, app)
        assert failures == 2
        assert await letters(ep) == [(1, "ValueError", 1)]
