"""The thread that runs the event loop behind the blocking classes, and how work is handed to it."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial
from threading import Thread, current_thread
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, TypeVarTuple

import anyio
import anyio.from_thread
import anyio.lowlevel
import attrs
from anyio.from_thread import BlockingPortal

from eventproc.base.user_tx import is_in_tx
from eventproc.store.model.errors import Closed, ForkedError, NotSupported
from eventproc.store.openable import Openable

T = TypeVar("T")
Args = TypeVarTuple("Args")


SIGNAL_LOOK_S: Final = 0.5
"""Longest time for which a thread waits without checking for signals. A Ctrl-C between the interpreter's last check and
the wait is noticed only after the wait, so the wait needs a limit."""


CLOSE_S: Final = 5.0
"""How long `end` lets calls of other threads finish before it cancels them, and then waits for the cancelled ones.
More delays the end of a program that has left a thread waiting; less cancels calls that would have finished."""

LOG: Final = logging.getLogger("eventproc.blocking")


@attrs.frozen
class _RunningPortal:
    """What `_run` gives to the thread that began it. cancel: cancels all calls, from any thread."""

    portal: BlockingPortal
    cancel: Callable[[], object]


class Loop:
    """An asyncio event loop in a thread; usable from any thread, until `end`."""

    def __init__(self, begun: _RunningPortal, thread: Thread) -> None:
        self.opened: dict[Opened, None] = {}
        """What is open on this loop, in the order in which it was opened."""
        self._background: dict[Future[Any], None] = {}
        self._portal = begun.portal
        self._cancel = begun.cancel
        self._thread = thread
        self._pid = os.getpid()
        self._running = True

    @classmethod
    def begin(cls) -> Loop:
        """Run a loop in a new thread until `end`."""
        begun: Future[_RunningPortal] = Future()
        thread = Thread(target=_run, args=[begun], name="eventproc", daemon=True)
        thread.start()
        try:
            return cls(begun.result(), thread)
        except BaseException:
            with suppress(Exception):  # an interrupt while the loop began; any other error has ended it
                cls(begun.result(), thread).end(interrupted=True)
            raise

    def end(self, *, interrupted: bool) -> None:
        """Refuse further calls, and return when the loop has ended. interrupted: cancel the running calls.

        Cancels what `start_background` started. Calls of other threads that still run after CLOSE_S are cancelled:
        they raise Closed there. If the loop does not end within another CLOSE_S, its thread is left to the end of the
        process. Both are logged.
        Does nothing in a forked child: the loop is its parent's.
        """
        self._running = False
        if self.forked:
            return
        for task in list(self._background):
            task.cancel()
        with suppress(RuntimeError):  # it has ended already, perhaps by an error
            self._portal.call(self._portal.stop, interrupted)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            LOG.warning(
                "closing the directory: calls of other threads still run after %g s; cancelling", CLOSE_S
            )
            with suppress(RuntimeError):  # it has ended meanwhile
                self._cancel()
            self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            LOG.error("closing the directory: its thread does not end; the end of the process will end it")

    def call(
        self,
        function: Callable[[*Args], Awaitable[T]],
        *args: *Args,
        undo: Callable[[T], Awaitable[object]] | None = None,
    ) -> T:
        """Run a coroutine on the loop, and return or raise what it does.

        An interrupt of the waiting thread cancels it. undo: called on the loop with a result that the thread did not
        get, because the interrupt came too late to cancel. Raises Closed, NotSupported on the loop's own thread and
        in a transaction, and ForkedError in a forked child.
        """
        self.check()
        if is_in_tx():  # a write would wait for the end of the transaction, and so for itself
            what = "a call in a function that runs in a transaction, such as on_commit,"
            raise NotSupported(what=what, remedy="use the transaction that the function got")
        if current_thread() is self._thread:  # it would wait for itself
            what = "a call without await on the thread of its event loop, as in an async handler,"
            raise NotSupported(
                what=what, remedy="let the handler be a plain function, which runs on another thread"
            )
        call = _Call(partial(function, *args), undo)
        try:
            future = self._portal.start_task_soon(call.run)
            return result_of(future)
        except CancelledError:
            self.check()  # the directory was closed while the call ran
            raise
        except BaseException:
            # The interrupt may have come before there was a future to cancel, while the coroutine was running.
            if not call.failed:
                with suppress(RuntimeError):  # the loop has ended
                    self._portal.start_task_soon(call.cancel)
            raise

    def start(self, function: Callable[[*Args], Awaitable[T]], *args: *Args) -> Future[T]:
        """Start a coroutine on the loop, and return the future of its result; cancelling that cancels the coroutine.

        Raises Closed, and ForkedError in a forked child.
        """
        self.check()
        return self._portal.start_task_soon(function, *args)

    def start_background(
        self, function: Callable[[*Args], Awaitable[object]], *args: *Args
    ) -> Future[object]:
        """Start a coroutine as `start` does; `end` cancels it without waiting for CLOSE_S."""
        task: Future[object] = self.start(function, *args)
        self._background[task] = None
        task.add_done_callback(lambda ended: self._background.pop(ended, None))
        return task

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that runs the loop: its thread does not exist here."""
        return self._pid != os.getpid()

    def entering(self, block: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Return a block for `with`, which enters and leaves this one in one task of the loop."""
        return self._portal.wrap_async_context_manager(block)

    def check(self) -> None:
        """Raise Closed after `end`, and ForkedError in a forked child."""
        if self.forked:
            raise ForkedError(what="the directory")
        if not self._running:
            raise Closed(what="the directory")


def result_of(future: Future[T]) -> T:
    """Wait for a future, and return or raise what it does. An interrupt ends the wait within SIGNAL_LOOK_S."""
    while not future.done():
        with suppress(TimeoutError):
            future.exception(timeout=SIGNAL_LOOK_S)
    return future.result()


class _Call(Generic[T]):
    """A coroutine that can be cancelled as soon as it is handed over. Its methods run on the loop."""

    def __init__(
        self, begin: Callable[[], Awaitable[T]], undo: Callable[[T], Awaitable[object]] | None
    ) -> None:
        self._begin = begin
        self._undo = undo
        self._scope: anyio.CancelScope | None = None
        self._results: list[T] = []
        self.cancelled = False
        self.failed = False

    async def run(self) -> T:
        """Return or raise what the coroutine does."""
        try:
            with anyio.CancelScope() as self._scope:
                if not self.cancelled:
                    self._results.append(await self._begin())
        except BaseException:
            self.failed = True
            raise
        if self.cancelled:
            await self._undo_result()
            raise CancelledError  # no caller waits for it any more
        return self._results[0]

    async def cancel(self) -> None:
        """Cancel it, begun or not; undo its result if it has ended."""
        self.cancelled = True
        if self._scope is not None:
            self._scope.cancel()
        await self._undo_result()

    async def _undo_result(self) -> None:
        if self._undo is not None and self._results:
            await self._undo(self._results.pop())


class _GivenUp(Exception):
    """Replaces the error that ended a block: its traceback stays as it is."""


class _Interrupted(BaseException):
    """Replaces an interrupt that ended a block: raised again on the loop's thread it would end the loop."""


def reason_given_up(why: BaseException | None) -> BaseException | None:
    """Return what a block on the loop learns of the error that ended the block on the caller's side."""
    if why is None:
        return None
    return _GivenUp() if isinstance(why, Exception) else _Interrupted()


class Block:
    """A class whose `with` enters and leaves its twin's `async with`."""

    def __init__(self, loop: Loop, twin: AbstractAsyncContextManager[object]) -> None:
        self._loop = loop
        self._twin = twin
        self._entered = False

    def __enter__(self) -> Self:
        async def leave(_: object) -> None:
            await self._twin.__aexit__(_Interrupted, _Interrupted(), None)

        self._loop.call(self._twin.__aenter__, undo=leave)
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, False
        if entered and not self._loop.forked:  # a forked child must not end its parent's block
            self._loop.check()
            self._leave(why)

    def _leave(self, why: BaseException | None) -> None:
        reason = reason_given_up(why)
        self._loop.call(self._twin.__aexit__, None if reason is None else type(reason), reason, None)


class Opened:
    """A class whose twin is opened when it is made, and closed by `close` or by leaving `with`.

    A forked child cannot close it.
    """

    _loop: Loop
    _twin: Any  # an Openable; each class knows its own
    _in_block = False
    _left = False

    def _opened(self) -> Self:
        """Open the twin, unless it is made open; note it with the loop."""
        if self._twin._is_new:
            self._loop.call(self._twin._open_once, undo=Openable.close)
        self._loop.opened[self] = None
        return self

    @property
    def _state(self) -> str:
        return "closed" if self.closed else "open"

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._left or self._twin.closed

    def close(self) -> None:
        """Close it, as leaving its `with` without an error does. A second call does nothing."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self._loop.check()
        if self._in_block or self._twin.closed:
            self._loop.call(self._twin.__aenter__)  # raises
        self._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._left or self._loop.forked:
            return
        self._left = True
        self._loop.check()
        self._loop.opened.pop(self, None)
        self._leave(why)

    def _leave(self, why: BaseException | None) -> None:
        reason = reason_given_up(why)
        self._loop.call(self._twin.__aexit__, None if reason is None else type(reason), reason, None)


@contextmanager
def running_loop() -> Iterator[Loop]:
    """Run a loop while the block runs. If the block raises, running calls are cancelled.

    Leaving the block in a forked child does nothing.
    """
    loop = Loop.begin()
    try:
        yield loop
    except BaseException:
        loop.end(interrupted=True)
        raise
    loop.end(interrupted=False)


def _run(begun: Future[_RunningPortal]) -> None:
    """Run a loop until its portal is stopped. An error that ends it earlier is raised to the waiting callers too."""

    async def serve() -> None:
        token = anyio.lowlevel.current_token()
        with anyio.CancelScope() as scope:
            async with BlockingPortal() as portal:
                begun.set_result(
                    _RunningPortal(portal, lambda: anyio.from_thread.run_sync(scope.cancel, token=token))
                )
                await portal.sleep_until_stopped()

    try:
        anyio.run(serve, backend="asyncio")
    except BaseException as error:
        if not begun.done():
            begun.set_exception(error)
