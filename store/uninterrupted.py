"""Work that must not be left half done, such as opening and closing, whoever cancels it meanwhile.

A shield of anyio keeps off the cancellations of anyio's own scopes only. On asyncio a task is cancelled past them by
`Task.cancel`, and so by `asyncio.timeout`, Ctrl-C, and the end of `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def uninterrupted(
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
) -> T:
    """Run `work` to its end, on asyncio in a task of its own, and return its result.

    A cancellation that came meanwhile is raised then, instead of what `work` returned or raised; `undo` takes back
    what it returned, uninterrupted as well. (What is cancelled by a scope of anyio learns it at its next await.)
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # trio: there are no other cancellations
        with anyio.CancelScope(shield=True):
            return await work()
    task = asyncio.create_task(work())  # noqa: TID251 - it cannot leak: nobody goes on before it ended
    # So that it is not among all tasks, which the end of `asyncio.run` cancels.
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
            await uninterrupted(partial(undo, task.result()))
        raise cancelled from error
    finally:
        del cancelled  # it holds this frame
