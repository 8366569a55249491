"""Tasks in the background of a block or of a handle, and work that a cancellation must not interrupt.

A task group and a cancel scope belong to the task that entered them, which must also leave them. So `open`, writers
and everything else that users may close from another task hold none across a `yield`: their background runs in
`HandleTasks`. This module is the only one that starts tasks without a parent (docs/design/lifecycle.md).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, _AsyncGeneratorContextManager
from contextvars import copy_context
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from threading import get_ident
from types import AsyncGeneratorType, CoroutineType, MethodType, TracebackType
from typing import Any, Final, TypeVar, TypeVarTuple
from weakref import WeakSet

import anyio

Args = TypeVarTuple("Args")
T = TypeVar("T")


_ROOT_TASKS: Final[set[asyncio.Task[None]]] = set()
"""The running tasks of all handles on asyncio, which itself keeps only weak references to tasks."""

_LOOP_ENDS: Final[set[AsyncGenerator[None, None]]] = set()
"""What the end of an event loop runs; see `LoopEnd`."""


_SUSPENDED: Final = (
    CoroutineType,
    AsyncGeneratorType,
    MethodType,  # the `__aexit__` of a block that is entered
    _AsyncGeneratorContextManager,
)
"""Between a task and what it is suspended in."""


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


class HandleTasks:
    """Tasks in the background of an open handle. Any task of the event loop may start and stop them.

    Each runs without a parent: in a task of asyncio, or in a system task of trio. If one fails, the others are
    cancelled, and `stop` raises the error.

    failure: the error of the first task that failed; None without one.
    """

    def __init__(self, on_failure: Callable[[BaseException | None], object] | None = None) -> None:
        """on_failure: wakes the callers that wait for a task; called with the error of the first one that fails.

        If the end of the event loop cancels a task, it is called with None, and `stop` raises nothing.
        """
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        self._running: dict[anyio.CancelScope, asyncio.Task[None] | None] = {}
        self._ended: anyio.Event | None = None

    def start_soon(
        self, function: Callable[[*Args], Coroutine[Any, Any, object]], *args: *Args
    ) -> anyio.CancelScope:
        """Start a task, and return its cancel scope, which names it."""
        scope = anyio.CancelScope()
        self._running[scope] = None
        run = partial(self._run, scope, partial(function, *args))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            import trio

            trio.lowlevel.spawn_system_task(partial(_run_on_trio, run), context=copy_context())
            return scope
        task = _start_on_asyncio(run)  # it cannot leak: `stop` waits for its end
        self._running[scope] = task
        task.add_done_callback(partial(self._ended_on_asyncio, scope))
        return scope

    def cancel(self) -> None:
        """Cancel the tasks, without waiting for their ends."""
        for scope in list(self._running):
            scope.cancel()

    async def stop(self) -> None:
        """Cancel the tasks and return when all have ended, also if the caller is cancelled meanwhile.

        Raises the failure of the first task that failed, except what the main task gets: an interrupt or an exit.
        """
        while self._running:
            self.cancel()
            self._ended = self._ended or anyio.Event()
            await wait_uninterrupted(self._ended)
        await anyio.lowlevel.cancel_shielded_checkpoint()
        match self.failure:
            case None | KeyboardInterrupt():
                pass
            case SystemExit() as ending if _has_reached_program(ending):
                pass
            case failure:
                raise failure

    async def wait_ended(self, within_ms: int) -> bool:
        """Cancel the tasks, wait for their ends for so long at most, and return whether all have ended."""
        self.cancel()
        if self._running:
            self._ended = self._ended or anyio.Event()
            with anyio.move_on_after(within_ms / 1000):
                await self._ended.wait()
        return not self._running

    def abandon(self, scope: anyio.CancelScope) -> None:
        """Wait no longer for a task that ignores its cancellation, which goes on. It may have started others.

        The end of `asyncio.run` does not wait for it either; `trio.run` waits for every task.
        """
        task = self._running.get(scope)
        self._note_end(scope)
        if task is not None:
            _detach(task)

    async def _run(
        self, scope: anyio.CancelScope, function: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        try:
            with scope:
                await function()
        except BaseException as error:
            if (failed := _without_cancellations(error)) is None:
                raise  # the event loop ends
            leaf = first_leaf(failed)
            if not isinstance(leaf, KeyboardInterrupt | SystemExit):
                self._fail(failed)
                return
            self._fail(leaf)
            if not _has_reached_program(leaf):
                raise leaf from None  # it is the program's
        finally:
            self._note_end(scope)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self.cancel()
            if self._on_failure is not None:
                self._on_failure(error)

    def _note_end(self, scope: anyio.CancelScope) -> None:
        self._running.pop(scope, None)
        if self._ended is not None and not self._running:
            self._ended.set()
            self._ended = None

    def _ended_on_asyncio(self, scope: anyio.CancelScope, task: asyncio.Task[None]) -> None:
        self._note_end(scope)  # of a task that was cancelled before it began
        if not task.cancelled():
            task.exception()  # `failure` has it; without this call asyncio would log it too
        elif self._on_failure is not None:
            self._on_failure(None)


def _has_reached_program(interrupt: BaseException) -> bool:
    """Whether an interrupt has left the event loop, which one in a child task does at once.

    Raised again it would end the end of `asyncio.run`: tasks, and the threads that wait for them, would never end.
    """
    trace = interrupt.__traceback__
    return trace is not None and not trace.tb_frame.f_code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)


def _detach(root: asyncio.Task[None]) -> None:
    """Hide a task, and what it has started, from the end of its event loop.

    That would wait for the tasks, and then close the asynchronous generators in which they are suspended.
    """
    generators: object = getattr(asyncio.get_running_loop(), "_asyncgens", None)
    tasks = {id(each): each for each in asyncio.all_tasks()}
    started: dict[int | None, list[int]] = {}
    for each in anyio.get_running_tasks():
        started.setdefault(each.parent_id, []).append(each.id)
    left = [id(root)]
    while left:
        number = left.pop()
        left += started.get(number, ())
        if (task := tasks.get(number)) is not None:
            asyncio._unregister_task(task)
            _keep_for_ever(task)
            if isinstance(generators, WeakSet):
                generators.difference_update(_generators_of(task))


def _generators_of(task: asyncio.Task[Any]) -> list[AsyncGeneratorType[Any, Any]]:
    """Return the asynchronous generators in which a task is suspended, such as those of `asynccontextmanager`."""
    import gc  # few programs need it

    found: list[AsyncGeneratorType[Any, Any]] = []
    left: list[object] = [task.get_coro()]
    known = {id(left[0])}
    while left:
        for each in gc.get_referents(left.pop()):
            if isinstance(each, _SUSPENDED) and id(each) not in known:
                known.add(id(each))
                left.append(each.__dict__ if isinstance(each, AbstractAsyncContextManager) else each)
                if isinstance(each, AsyncGeneratorType):
                    found.append(each)
    return found


def _keep_for_ever(task: asyncio.Task[Any]) -> None:
    """Never delete a task: its coroutine ignores that too, and could keep the end of the interpreter in a loop."""
    import ctypes  # few programs need it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))


def _start_on_asyncio(run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    task = asyncio.create_task(run())  # noqa: TID251 - `_ROOT_TASKS` has it until it ends
    _ROOT_TASKS.add(task)
    task.add_done_callback(_ROOT_TASKS.discard)
    return task


async def _run_on_trio(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a system task. An error that left it would be one of trio itself."""
    try:
        await run()
    except KeyboardInterrupt:
        signal.raise_signal(signal.SIGINT)  # trio raises it in the main task: system tasks are protected
    except SystemExit:
        pass  # the handle raises it


class LoopEnd:
    """Runs a function when an event loop ends and nobody has called `discard`.

    Both `asyncio.run` and `trio.run` finalize the asynchronous generators that are left, after they have cancelled
    all other tasks and waited for them. A suspended generator is therefore a function at the end of the loop.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._work = work
        self._generator = self._wait()

    async def register(self) -> None:
        """Begin. Never waits."""
        await anext(self._generator)
        _LOOP_ENDS.add(self._generator)

    async def discard(self) -> None:
        """End without running the function. Never waits; a second call does nothing."""
        if self._generator in _LOOP_ENDS:
            _LOOP_ENDS.discard(self._generator)
            await anext(self._generator, None)

    async def _wait(self) -> AsyncGenerator[None, None]:
        try:
            yield
        except GeneratorExit:
            _LOOP_ENDS.discard(self._generator)
            await run_uninterrupted(self._work)
            raise


class LoopOfThreads:
    """The running event loop, for threads that have no part in it."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self._start_soon: Callable[[Callable[[], Coroutine[Any, Any, None]]], object]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            import trio

            token, spawn = trio.lowlevel.current_trio_token(), trio.lowlevel.spawn_system_task
            self._start_soon = lambda run: token.run_sync_soon(spawn, partial(_run_on_trio, run))
        else:
            self._start_soon = lambda run: loop.call_soon_threadsafe(_start_on_asyncio, run)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], *, wait_s: float) -> T | None:
        """Run `work` on the event loop, and return its result.

        None: it took longer than `wait_s`, and was cancelled; the loop has ended; or this is the loop's own thread,
        which would wait for itself.
        """
        if get_ident() == self._thread:
            return None
        done = Future[T | None]()

        async def answer() -> None:
            if not done.set_running_or_notify_cancel():
                return
            found: T | None = None
            try:
                with anyio.move_on_after(wait_s):
                    found = await work()
            except Exception as why:
                done.set_exception(why)
            finally:
                if not done.done():
                    done.set_result(found)

        try:
            self._start_soon(answer)
        except RuntimeError:  # the loop has ended
            return None
        try:
            return done.result(wait_s)
        except TimeoutError:
            done.cancel()
            return None


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


async def wait_uninterrupted(event: anyio.Event) -> None:
    """Return when the event is set. A cancellation meanwhile is raised after that."""
    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not event.is_set():
            try:
                await event.wait()
            except asyncio.CancelledError as why:  # `Task.cancel`; trio knows anyio's scopes only
                cancelled = why
    if cancelled is not None:
        try:
            raise cancelled
        finally:
            del cancelled  # it holds this frame


def _without_cancellations(error: BaseException) -> BaseException | None:
    """Return the error without the cancellations that a group of errors contains; None if nothing else is left."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(anyio.get_cancelled_exc_class())[1]
    return None if isinstance(error, anyio.get_cancelled_exc_class()) else error


def first_leaf(error: BaseException) -> BaseException:
    """Return the first error in an exception group, however deeply groups are nested; any other error as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
