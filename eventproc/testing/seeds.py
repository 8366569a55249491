"""Seeded scheduling: the same seed, the same interleaving of tasks.

Trio shuffles the tasks that are ready in each round, on purpose. It has no public way to seed that, only
what its own tests use; this module is the one place that touches it, and tests/testing/test_seeds.py fails
first when trio changes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

import anyio
import trio.testing
from trio._core import _run as trio_run

T = TypeVar("T")
Args = TypeVarTuple("Args")

_PRIVATE: Any = trio_run


@contextmanager
def seeded_schedule(seed: int) -> Iterator[dict[str, object]]:
    """Let trio runs within the block schedule by `seed`; yields anyio's backend options, virtual time included."""
    before = _PRIVATE._ALLOW_DETERMINISTIC_SCHEDULING, _PRIVATE._r.getstate()
    _PRIVATE._ALLOW_DETERMINISTIC_SCHEDULING = True
    _PRIVATE._r.seed(seed)
    try:
        yield {"clock": trio.testing.MockClock(autojump_threshold=0)}
    finally:
        _PRIVATE._ALLOW_DETERMINISTIC_SCHEDULING, state = before
        _PRIVATE._r.setstate(state)


def run_seeded(main: Callable[[*Args], Awaitable[T]], *args: *Args, seed: int) -> T:
    """Run `main` to its end on trio, in virtual time, its tasks interleaved by `seed`."""
    with seeded_schedule(seed) as options:
        return anyio.run(main, *args, backend="trio", backend_options=options)
