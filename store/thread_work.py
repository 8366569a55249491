"""Long work in a thread, such as a backup, that ends soon after its caller was cancelled or the directory is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from eventproc.base.tasks import run_uninterrupted
from eventproc.store.openable import Openable, OpenObjects

T = TypeVar("T")


class WorkStopped(Exception):
    """The caller was cancelled, or the directory is being closed."""


class ThreadWork(Openable):
    """Work that is being done. Closing the directory, whose handles it is one of, ends it first. what: for errors."""

    def __init__(self, what: str, handles: OpenObjects) -> None:
        self._stop = threading.Event()
        self._ended = anyio.Event()
        super().__init__(what, handles, is_open=True)

    async def _start(self) -> None:
        """It is made open."""

    async def _finish(self, why: BaseException | None) -> None:
        self._stop.set()
        await self._ended.wait()

    async def end(self) -> None:
        """Note that nothing of it runs any more."""
        self._ended.set()
        await self.close()

    def is_stopped(self) -> bool:
        """Return whether it must end. Callable from any thread."""
        return self._stop.is_set()

    def check(self) -> None:
        """Raise WorkStopped if it must end. Callable from any thread."""
        if self._stop.is_set():
            raise WorkStopped

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, which calls `check` often. A cancellation is raised once the thread has ended."""
        ended = anyio.Event()
        # Never released: if the cancellation takes it, the work does not begin; if the thread does, its end is awaited.
        turn = threading.Lock()

        def run() -> T:
            if not turn.acquire(blocking=False):
                raise WorkStopped
            try:
                return work()
            finally:
                anyio.from_thread.run_sync(ended.set)

        try:
            return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            self._stop.set()
            if not turn.acquire(blocking=False):
                await run_uninterrupted(ended.wait)
            raise
