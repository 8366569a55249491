"""What a fork must not do: keep the locks of its parent, or use a handle that the parent opened.

A lock taken with flock, and an open-file-description lock, belongs to the open file, and a forked child
shares that file: as long as the child lives, the lock of a parent that was killed stays held, and everybody
believes the parent to be alive. So every descriptor that carries a lock is opened and closed here, and
closed in each child before it runs any code of its own. (A child that runs another program loses them by
close-on-exec, which Python sets.)

Invariant: a descriptor is in `_private` from before it can carry a lock until it is closed; no fork happens
in between, for the hooks below hold `_mutex` across it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from eventproc.store.model.errors import ForkedError

# Reentrant, because a signal handler of the program may fork while this thread is inside.
_mutex: Final = threading.RLock()
_private: Final[set[int]] = set()
_in_child: Final[list[Callable[[], None]]] = []


class Guarded:
    """Base of handles that are of no use in a forked child: it remembers the process that made them."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the handle. Costs one getpid, under 0.1 us."""
        return os.getpid() != self._pid

    def check_fork(self, what: str) -> None:
        """Raise ForkedError, naming `what`, in a child of the process that made the handle."""
        if self.forked:
            raise ForkedError(what=what)


def open_private(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Open a file whose descriptor no forked child keeps. `flags` must not make the open wait. Raises OSError."""
    with _mutex:
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        _private.add(descriptor)
        return descriptor


def close_private(descriptor: int) -> None:
    """Close a descriptor of `open_private`, once. In a forked child, where it is closed already: nothing."""
    with _mutex:
        if descriptor in _private:
            _private.remove(descriptor)
            os.close(descriptor)


def when_forked(forget: Callable[[], None]) -> None:
    """Call `forget` in every forked child, after its private descriptors were closed; for tables of them."""
    _in_child.append(forget)


def _after_in_child() -> None:
    try:
        for descriptor in _private:
            os.close(descriptor)
        _private.clear()
        for forget in _in_child:
            forget()
    finally:
        _mutex.release()


os.register_at_fork(before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_after_in_child)
