"""Virtual time for tests: trio's, which passes while all tasks wait, and that of a database, which a test advances.

A module or a folder whose tests all run in virtual time imports the fixture by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable

import pytest
import trio.testing

from eventproc.base.clock import SystemClock
from eventproc.processors import App
from eventproc.runtime import Eventproc
from eventproc.testing import RunningApp, VirtualClock, VirtualRuntime, check, run_seeded


def virtual_time() -> tuple[str, dict[str, object]]:
    """Return trio with a clock of its own: one that tests share would carry its offset from one into the next."""
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return virtual_time()


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Let an async test run on trio alone, where an hour takes a moment, and in the same order each time."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        run_seeded(functools.partial(test, **arguments), seed=1)

    return run


def run_live(
    test: Callable[[RunningApp], Awaitable[None]], *apps: App, backend: str = "asyncio", checked: bool = False
) -> None:
    """Run a test in virtual time on a new system with the stream s/t. checked: `check` it when all is done."""
    runtime = VirtualRuntime(backend="trio" if backend == "trio" else "asyncio")

    async def run() -> None:
        async with runtime.running(*apps, streams=["s/t"]) as t:
            await test(t)
            if checked:
                await t.settled()
                await check(t.ep.db)

    runtime.run(run)


def live(test: Callable[..., Awaitable[None]], *, checked: bool = False) -> Callable[..., None]:
    """Let an async test run as `run_live` does; `t` is the system."""

    @functools.wraps(test)
    def run(**arguments: object) -> None:
        run_live(functools.partial(test, **arguments), checked=checked)

    fixtures = [each for each in inspect.signature(test).parameters.values() if each.name != "t"]
    run.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
    return run


def clock_of(ep: Eventproc) -> VirtualClock:
    """Return the clock of a directory that was opened with a virtual one."""
    clock = ep.db.clock
    assert isinstance(clock, VirtualClock)
    return clock


class SteppingClock(SystemClock):
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_700_000_000_000

    def wall_ms(self) -> int:
        return self.now_ms
