"""BackgroundTasks tasks of a block, and work that a cancellation must not interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, TypeVarTuple

import anyio

Args = TypeVarTuple("Args")
T = TypeVar("T")


class BackgroundTasks:
    """A task group for `async with` whose end cancels its tasks and waits for them.

    An error of the block is raised unchanged. A plain task group would wrap it in an exception group, and so turn every
    error in a user's `async with open(...)` into a group of one. An error of a task ends the block and is raised as an
    exception group.
    """

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()

    def start_soon(self, function: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args) -> None:
        """Start a task. The end of the block cancels it."""
        self._tasks.start_soon(function, *args)

    def cancel(self) -> None:
        """Cancel the tasks, and the block if it is still running."""
        self._tasks.cancel_scope.cancel()

    async def __aenter__(self) -> BackgroundTasks:
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


async def run_uninterrupted(
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
) -> T:
    """Run `work` to its end even if the caller is cancelled, and return its result. For opening, closing, and the like.

    On asyncio the work runs in a task of its own: a shield of anyio stops only the cancellations of anyio's scopes, not
    `Task.cancel`, `asyncio.timeout`, Ctrl-C, or the end of `asyncio.run`. Such a cancellation is raised after the work
    ended, instead of its result or error; `undo`, which is not interrupted either, then reverts the result. A
    cancellation by an anyio scope is raised at the caller's next await.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio: only anyio's scopes cancel
        with anyio.CancelScope(shield=True):
            return await work()
    task = asyncio.create_task(work())  # noqa: TID251 - it cannot leak: this function waits for its end
    # The end of `asyncio.run` cancels all registered tasks.
    asyncio._unregister_task(task)
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as why:
                cancelled = why
    if cancelled is None:
        return task.result()
    try:
        if (error := task.exception()) is None and undo is not None:
            await run_uninterrupted(partial(undo, task.result()))
        raise cancelled from error
    finally:
        del cancelled  # it holds this frame


def first_leaf(error: BaseException) -> BaseException:
    """Return the first error in an exception group, however deeply groups are nested; any other error as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
