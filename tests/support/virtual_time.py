"""Virtual time for tests: trio's, which passes while all tasks wait, and that of a database, which a test advances.

A module or a folder whose tests all run in virtual time imports the fixture by name.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import pytest
import trio.testing

from eventproc.base.clock import SystemClock
from eventproc.runtime import Eventproc
from eventproc.testing import VirtualClock, run_seeded


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
