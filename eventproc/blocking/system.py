"""An open directory without `await`, and an app that runs in it."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, suppress
from os import PathLike
from typing import TypeVar

from eventproc.base.clock import Clock
from eventproc.blocking.loop import Loop, Opened, reason_given_up, result_of
from eventproc.blocking.twins import BlockingTwin, twin_of
from eventproc.processors import GRACE_MS, App, ProcessorFailed, Running
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.store.database import Durability
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.openable import Openable, Opening

H = TypeVar("H", bound=Openable)


@twin_of(Running)
class BlockingRunning(BlockingTwin, Opened):
    """An app that runs; made by `BlockingEventproc.run`. `close`, or leaving its `with`, drains it. See `Running`."""

    def _leave(self, why: BaseException | None) -> None:
        """Drain; an interrupt meanwhile cancels the running calls."""
        reason = reason_given_up(why)
        left = self._loop.start(self._twin.__aexit__, None if reason is None else type(reason), reason, None)
        try:
            result_of(left)
        except KeyboardInterrupt:
            self.cancel_now()
            with suppress(ProcessorFailed):
                result_of(left)
            raise
        except ProcessorFailed:
            if why is None:
                raise  # else the block's own error is raised; this failure was logged


@twin_of(Eventproc)
class BlockingEventproc(BlockingTwin, Opened):
    """An open directory; made by `open_blocking`, usable from any thread until it is closed. See `Eventproc`.

    Closing it closes the writers, readers and running apps that are still open, the newest first.
    """

    def __del__(self) -> None:
        if not (self.closed or self._loop.forked):
            text = f"unclosed {self!r}: leave its `with`, or call `ep.close()`"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _leave(self, why: BaseException | None) -> None:
        interrupted = True
        try:
            with ExitStack() as closing:
                closing.callback(super()._leave, why)
                for each in list(self._loop.opened):  # other threads may open and close meanwhile
                    closing.callback(each.__exit__, None if why is None else type(why), why, None)
            interrupted = False
        finally:
            self._loop.end(interrupted=interrupted)

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors until the result is closed: `with ep.run(app) as running: running.wait()`.

        Async handlers run on the loop's thread, plain functions on other threads; none runs on the caller's. Ctrl-C
        interrupts the block and drains, as its end does; a second one while it drains cancels the running calls. See
        `Eventproc.run`.
        """
        opening = self._twin.run(app, grace_ms=grace_ms)
        return BlockingRunning(self._loop, open_on(self._loop, opening))._opened()


def open_blocking(
    path: str | PathLike[str],
    *,
    schema: str | None = None,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> BlockingEventproc:
    """Open the directory `path` for code without `await`; everything as `open`.

    Use it in `with`, or call `close`. Runs an event loop in a thread of its own until then. A forked child can use
    nothing of it (ForkedError); closing it there does nothing, and what was posted is its parent's to write.
    """
    opening = open_directory(
        path,
        schema=schema,
        durability=durability,
        create=create,
        host=host,
        chunks=chunks,
        clock=clock,
        faults=faults,
    )
    loop = Loop.begin()
    try:
        return BlockingEventproc(loop, open_on(loop, opening))
    except BaseException:
        loop.end(interrupted=True)
        raise


def open_on(loop: Loop, opening: Opening[H]) -> H:
    """Open a directory, or an app, on a loop."""

    async def start() -> H:
        return await opening

    return loop.call(start, undo=Openable.close)
