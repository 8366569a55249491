"""Seeded scheduling: the same seed gives the same interleaving of tasks.

Trio shuffles the ready tasks in each round intentionally. It has no public way to seed that, only names that its own
tests use. This module is the only one that uses them; tests/testing/test_seeds.py fails first if trio changes them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

import anyio

from eventproc.testing.virtual_loop import THREAD_GRACE_S

T = TypeVar("T")
Args = TypeVarTuple("Args")


@contextmanager
def seeded_schedule(seed: int) -> Iterator[dict[str, object]]:
    """Make trio runs within the block schedule their tasks by `seed`, in virtual time.

    Args:
        seed: any int.

    Returns:
        Options for `anyio.run(..., backend="trio", backend_options=...)`.
    """
    # Imported here: trio.testing imports pytest, which processes that only die at a named point do not need.
    import trio.testing
    from trio._core import _run as trio_run

    private: Any = trio_run
    before = private._ALLOW_DETERMINISTIC_SCHEDULING, private._r.getstate()
    private._ALLOW_DETERMINISTIC_SCHEDULING = True
    private._r.seed(seed)
    try:
        yield {"clock": _patient(trio.testing.MockClock(autojump_threshold=0))}
    finally:
        private._ALLOW_DETERMINISTIC_SCHEDULING, state = before
        private._r.setstate(state)


def _patient(clock: Any) -> Any:
    """Return the clock, which now waits for threads as that of asyncio does: they may hold the next result."""
    import trio.testing

    jump = clock._autojump

    def jump_or_wait() -> None:
        waits = not clock.autojump_threshold and trio.testing.active_thread_count()
        clock.autojump_threshold = THREAD_GRACE_S if waits else 0
        if not waits:
            jump()

    clock._autojump = jump_or_wait
    return clock


def run_seeded(main: Callable[[*Args], Awaitable[T]], *args: *Args, seed: int) -> T:
    """Run an async function on trio, in virtual time, with its tasks interleaved by `seed`.

    Args:
        main: the async function.
        args: its arguments.
        seed: any int; the same seed gives the same schedule.

    Returns:
        What `main` returns.
    """
    with seeded_schedule(seed) as options:
        return anyio.run(main, *args, backend="trio", backend_options=options)
