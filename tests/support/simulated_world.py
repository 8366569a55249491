"""Async tests that run in a `SimulatedWorld`, in virtual time, once on each event loop."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable

import pytest

from eventproc.testing import SimulatedWorld, VirtualRuntime
from eventproc.testing.virtual_runtime import BACKENDS

RUNTIMES = [VirtualRuntime(seed=5, backend=each) for each in BACKENDS]


def in_simulated_world(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Return a test that opens a world and awaits `test` in it.

    test: takes the world as its first parameter; the others are fixtures and parameters, as of any test.
    """

    def run(runtime: VirtualRuntime, **others: object) -> None:
        async def main() -> None:
            async with SimulatedWorld(seed=runtime.seed) as world:
                await test(world, **others)

        runtime.run(main)

    parameters = [*inspect.signature(run).parameters.values()][:1]
    parameters += [*inspect.signature(test).parameters.values()][1:]
    functools.update_wrapper(run, test)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return pytest.mark.parametrize("runtime", RUNTIMES, ids=BACKENDS)(run)
