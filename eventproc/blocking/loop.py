"""The thread that runs the event loop behind the blocking classes, and how work is handed to it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Final, Generic, Self, TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import BlockingPortal

from eventproc.store.model.errors import Closed, ForkedError

T = TypeVar("T")
Args = TypeVarTuple("Args")


SIGNAL_LOOK_S: Final = 0.5
"""Longest time for which a thread waits without checking for signals. A Ctrl-C between the interpreter's last check and
the wait is noticed only after the wait, so the wait needs a limit."""


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
        call = _Call(partial(function, *args))
        try:
            future = self._portal.start_task_soon(call.run)
            while not future.done():
                with suppress(TimeoutError):
                    future.exception(timeout=SIGNAL_LOOK_S)
            return future.result()
        except BaseException:
            # The interrupt may have come before there was a future to cancel, while the coroutine was running.
            if not call.ended:
                self._portal.start_task_soon(call.cancel)
            raise

    def start(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> Future[T]:
        """Start a coroutine on the loop, and return the future of its result; cancelling that cancels the coroutine.

        Raises Closed, and ForkedError in a forked child.
        """
        self.check()
        return self._portal.start_task_soon(function, *args)

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that runs the loop: its thread does not exist here."""
        return self._pid != os.getpid()

    def entered(self, context: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Return a context manager that enters and leaves `context` on the loop, both in one task."""
        self.check()
        return self._portal.wrap_async_context_manager(context)

    def check(self) -> None:
        """Raise Closed after the end of the block, and ForkedError in a forked child."""
        if self.forked:
            raise ForkedError(what="the directory")
        if not self._running:
            raise Closed(what="the directory")

    def stop(self) -> None:
        """Refuse further calls."""
        self._running = False


class _Call(Generic[T]):
    """A coroutine that can be cancelled as soon as it is handed over."""

    def __init__(self, begin: Callable[[], Awaitable[T]]) -> None:
        self._begin = begin
        self._scope: anyio.CancelScope | None = None
        self.cancelled = False
        self.ended = False

    async def run(self) -> T:
        """Return or raise what the coroutine does."""
        try:
            with anyio.CancelScope() as self._scope:
                if not self.cancelled:
                    return await self._begin()
        finally:
            self.ended = True
        raise CancelledError  # no caller waits for it any more

    async def cancel(self) -> None:
        """Cancel it, begun or not."""
        self.cancelled = True
        if self._scope is not None:
            self._scope.cancel()


class _GivenUp(Exception):
    """Replaces what ended the block: an interrupt raised again on the loop's thread would end the loop."""


class Block:
    """A class whose `with` enters and leaves its twin's `async with` on the loop, both in one task."""

    def __init__(self, loop: Loop, twin: AbstractAsyncContextManager[object]) -> None:
        self._loop = loop
        self._twin = twin
        self._context: AbstractContextManager[object] | None = None

    def __enter__(self) -> Self:
        context = self._loop.entered(self._twin)
        context.__enter__()
        self._context = context
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        context, self._context = self._context, None
        if context is not None and not self._loop.forked:  # a forked child must not end its parent's block
            self._loop.check()
            self._leave(context, why)

    def _leave(self, context: AbstractContextManager[object], why: BaseException | None) -> None:
        """Leave the twin's block, which learns that it failed but not why."""
        if why is None:
            context.__exit__(None, None, None)
        else:
            with suppress(_GivenUp):
                context.__exit__(_GivenUp, _GivenUp(), None)


@contextmanager
def running_loop() -> Iterator[Loop]:
    """Run a loop while the block runs. If the block raises, running calls are cancelled.

    Leaving the block in a forked child does nothing: the loop is its parent's.
    """
    begun: Future[BlockingPortal] = Future()
    thread = Thread(target=_run, args=[begun], name="eventproc", daemon=True)
    thread.start()
    # anyio's own context manager for this would wait, in a forked child, for a thread that does not exist there.
    pid, interrupted = os.getpid(), False
    try:
        loop = Loop(begun.result())
        try:
            yield loop
        finally:
            loop.stop()
    except BaseException:
        interrupted = True
        raise
    finally:
        if os.getpid() == pid:
            portal = begun.result()
            with suppress(RuntimeError):  # an error on the loop has ended it
                portal.call(portal.stop, interrupted)
            thread.join()


def _run(begun: Future[BlockingPortal]) -> None:
    """Run a loop until its portal is stopped. An error that ends it earlier is raised to the waiting callers too."""

    async def serve() -> None:
        async with BlockingPortal() as portal:
            begun.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve, backend="asyncio")
    except BaseException as error:
        if not begun.done():
            begun.set_exception(error)
