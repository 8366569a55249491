"""What the classes that are used in `with` have in common: their awaited twin is in a block of its own meanwhile."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from types import TracebackType
from typing import Self

from eventproc.blocking.loop import Loop


class _GivenUp(Exception):
    """Stands for what ended the block: an interrupt raised again on the loop's thread would end the loop."""


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
        if context is not None and not self._loop.forked:  # a forked child ends nothing of its parent's
            self._loop.check()
            self._leave(context, why)

    def _leave(self, context: AbstractContextManager[object], why: BaseException | None) -> None:
        """Leave the twin's block, which is told that something ended it but not what."""
        if why is None:
            context.__exit__(None, None, None)
        else:
            with suppress(_GivenUp):
                context.__exit__(_GivenUp, _GivenUp(), None)
