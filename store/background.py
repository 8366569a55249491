"""Tasks that serve a block and end with it, without changing what the block raises.

A plain task group wraps an error of its own block in an exception group. That is right for siblings; for
the block of `async with open(...)` it would turn every error of a user into a group of one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVarTuple

import anyio

Args = TypeVarTuple("Args")


class Background:
    """A task group for `async with`: leaving cancels its tasks and waits for them.

    What the block raised is raised as it is. What a task raised ends the block, and is raised as an
    exception group.
    """

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()

    def start_soon(self, function: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args) -> None:
        """Start a task; it is cancelled at the end of the block."""
        self._tasks.start_soon(function, *args)

    def cancel(self) -> None:
        """Cancel the tasks, and the block if it still runs."""
        self._tasks.cancel_scope.cancel()

    async def __aenter__(self) -> Background:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self.cancel()
        try:
            return await self._tasks.__aexit__(kind, why, trace)
        except BaseExceptionGroup as group:
            if why is not None and group.exceptions == (why,):
                return False
            raise
