"""The thread that runs the event loop behind the blocking classes, and how work is handed to it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import TypeVar, TypeVarTuple

from anyio.from_thread import BlockingPortal, start_blocking_portal

from eventproc.store.model.errors import Closed, ForkedError

T = TypeVar("T")
Args = TypeVarTuple("Args")


class Loop:
    """An asyncio event loop in a thread; usable from any thread, until its block ends."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._pid = os.getpid()
        self._running = True

    def call(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
        """Run a coroutine on the loop, and return or raise what it does.

        An interrupt of the waiting thread cancels it. Raises Closed, and ForkedError in a forked child.
        """
        self.check()
        future = self._portal.start_task_soon(function, *args)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # does nothing when it is the coroutine that raised
            raise

    def entered(self, context: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Return a context manager that enters and leaves `context` on the loop, both in one task."""
        self.check()
        return self._portal.wrap_async_context_manager(context)

    def check(self) -> None:
        """Raise Closed after the end of the block, and ForkedError in a forked child, which has no such thread."""
        if self._pid != os.getpid():
            raise ForkedError(what="the directory")
        if not self._running:
            raise Closed(what="the directory")

    def stop(self) -> None:
        """Refuse further calls."""
        self._running = False


@contextmanager
def running_loop() -> Iterator[Loop]:
    """Run a loop while the block does. What is under way when the block raises is cancelled."""
    with start_blocking_portal("asyncio") as portal:
        loop = Loop(portal)
        try:
            yield loop
        finally:
            loop.stop()
