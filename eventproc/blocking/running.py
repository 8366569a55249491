"""An app that runs, without `await`: its processors work on the loop's thread while the block goes on beside them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress

import anyio

from eventproc.blocking._generated import RunningCalls
from eventproc.blocking.loop import Loop
from eventproc.processors import ProcessorFailed, Running


class BlockingRunning(RunningCalls):
    """An app that runs; given by `BlockingEventproc.run`, whose block's end drains it. See `Running`."""

    @property
    def in_flight(self) -> int:
        """Calls of handlers that run now."""
        return self._twin.in_flight

    def cancel_now(self) -> None:
        """Do not wait for running calls at the end of the block: cancel them. See `Running.cancel_now`."""

        async def cancel_now() -> None:
            self._twin.cancel_now()

        self._loop.call(cancel_now)

    def raise_failure(self) -> None:
        """Raise ProcessorFailed if a processor failed."""
        self._twin.raise_failure()


@contextmanager
def running_app(loop: Loop, app: AbstractAsyncContextManager[Running]) -> Iterator[BlockingRunning]:
    """Run the app on the loop while the block runs. An interrupt drains; a second one cancels the running calls."""
    hosted = _Hosted(loop, app)
    running = BlockingRunning(loop, hosted.enter())
    try:
        yield running
    except BaseException:
        with suppress(ProcessorFailed):  # the block's own error is raised; this failure was logged
            hosted.leave(running)
        raise
    hosted.leave(running)


class _Hosted:
    """The task on the loop that is inside `async with app`, and ends when the block on the caller's thread does."""

    def __init__(self, loop: Loop, app: AbstractAsyncContextManager[Running]) -> None:
        self._loop = loop
        self._app = app
        self._entered: Future[Running] = Future()
        self._left: Future[anyio.Event] = Future()
        self._task = loop.start(self._host)

    async def _host(self) -> None:
        left = anyio.Event()
        self._left.set_result(left)
        try:
            async with self._app as running:
                self._entered.set_result(running)
                await left.wait()
        except BaseException as why:
            if self._entered.done():
                raise
            self._entered.set_exception(why)

    def enter(self) -> Running:
        """Return the running app. Raises what entering the app raises."""
        try:
            return self._entered.result()
        except BaseException:
            if not self._entered.done() or self._entered.exception() is None:
                with suppress(ProcessorFailed):  # this thread was interrupted: what runs by now drains
                    self._let_go()
                    self._task.result()
            raise

    def leave(self, running: BlockingRunning) -> None:
        """Drain, and raise ProcessorFailed if a processor failed; an interrupt meanwhile ends the draining."""
        if self._loop.forked:
            return
        try:
            self._let_go()
            self._task.result()
        except KeyboardInterrupt:
            running.cancel_now()
            with suppress(ProcessorFailed):
                self._task.result()
            raise

    def _let_go(self) -> None:
        async def let_go() -> None:
            self._left.result().set()

        self._loop.call(let_go)
