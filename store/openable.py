"""Handles: objects that a user opens and closes, in any task of the event loop.

A handle is opened by `await` or by `async with`, and closed by `close` or by the end of its block. Both may happen in
different tasks, so a handle holds no cancel scope and no task group while it is open: its background is in
`HandleTasks`. See docs/design/lifecycle.md.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio

from eventproc.base.tasks import wait_uninterrupted
from eventproc.store.model.errors import Closed, IllegalTransition


class OpenState(enum.StrEnum):
    """Where a handle stands between its creation and its end."""

    NEW = "not open"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class Openable(ABC):
    """Base of what is opened by `await` or `async with`, and closed by `close` or the end of the block."""

    def __init__(self, what: str, registry: OpenObjects | None = None, *, is_open: bool = False) -> None:
        """what: names the handle in errors, such as "the writer of shop/orders".

        registry: where it is listed while it is open. is_open: it is made open.
        """
        self._what = what
        self._registry = registry
        self._state = OpenState.OPEN if is_open else OpenState.NEW
        self._in_block = False
        self._end: anyio.Event | None = None
        if is_open and registry is not None:
            registry.add(self)

    @abstractmethod
    async def _start(self) -> None:
        """Open. If it raises, nothing stays open, and the handle may be opened again."""

    @abstractmethod
    async def _finish(self, why: BaseException | None) -> None:
        """Close, whatever is raised meanwhile. why: what ends the block; None for `close`. Called once."""

    @property
    def _is_new(self) -> bool:
        """Whether it was never opened."""
        return self._state is OpenState.NEW

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._state in (OpenState.CLOSING, OpenState.CLOSED)

    async def close(self) -> None:
        """Close it from any task of the event loop, as leaving its block without an error does.

        Does nothing if it is not open. A cancellation is raised after it has been closed. If another task is
        closing it, the call waits for that, and a cancellation is raised immediately.

        Raises:
            Exception: as leaving the block.
        """
        if self._end is not None:
            await self._end.wait()
        await self._close_once(None)

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._open_once().__await__()

    async def __aenter__(self) -> Self:
        if self._state is not OpenState.OPEN or self._in_block:
            await self._open_once()
        self._in_block = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end is not None:  # another task closes it: what is around the block may be closed next
            await wait_uninterrupted(self._end)
        await self._close_once(why)

    async def _open_once(self) -> Self:
        if self.closed:
            raise Closed(what=self._what)
        if self._state is not OpenState.NEW:
            state = f"{self._state} already; make another one"
            raise IllegalTransition(name=self._what, event="opening", state=state)
        self._state = OpenState.OPENING
        try:
            await self._start()
        except BaseException:
            self._state = OpenState.NEW
            raise
        self._state = OpenState.OPEN
        if self._registry is not None:
            self._registry.add(self)
        return self

    async def _close_once(self, why: BaseException | None) -> None:
        if self._state is not OpenState.OPEN:
            await anyio.lowlevel.checkpoint()
            return
        self._state, self._end = OpenState.CLOSING, anyio.Event()
        try:
            await self._finish(why)
        finally:
            self._state = OpenState.CLOSED
            self._end.set()
            if self._registry is not None:
                self._registry.discard(self)

    def _verify_opened(self, what: str) -> None:
        """Raise IllegalTransition if it was never opened."""
        if self._state in (OpenState.NEW, OpenState.OPENING):
            state = "not open; open it with `async with` or `await`"
            raise IllegalTransition(name=self._what, event=what, state=state)


H = TypeVar("H", bound=Openable)


class Opening(Generic[H]):
    """What `open` and `run` return: `async with opening as x:` closes x at the end, `x = await opening` leaves it open.

    An object opened by `await` is closed by its `close`, in any task of the event loop.
    """

    def __init__(self, what: str, start: Callable[[], Coroutine[Any, Any, H]]) -> None:
        """what: names what is opened. start: opens it, and leaves nothing open if it raises."""
        self._what = what
        self._start = start
        self._handle: H | None = None

    def __repr__(self) -> str:
        return f"Opening({self._what})"

    def __await__(self) -> Generator[Any, Any, H]:
        return self._start().__await__()

    async def __aenter__(self) -> H:
        if self._handle is not None:
            raise IllegalTransition(
                name=self._what, event="entering", state="entered already; open another one"
            )
        self._handle = await self._start()
        return await self._handle.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            await self._handle.__aexit__(kind, why, trace)


class OpenObjects:
    """The open handles of one database, in the order in which they were opened."""

    def __init__(self) -> None:
        self._handles: dict[Openable, None] = {}

    def add(self, handle: Openable) -> None:
        """List a handle."""
        self._handles[handle] = None

    def discard(self, handle: Openable) -> None:
        """Undo `add`."""
        self._handles.pop(handle, None)

    async def close_all(self, why: BaseException | None) -> None:
        """Close the handles that are open, the newest first, and those that are opened meanwhile.

        Raises the first error, after all are closed.
        """
        failure: BaseException | None = None
        while self._handles:
            handle, _ = self._handles.popitem()
            try:
                await handle.__aexit__(None if why is None else type(why), why, None)
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            try:
                raise failure
            finally:
                del failure
