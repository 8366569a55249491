"""What a fork must not do: keep the locks of its parent, or use a handle that the parent opened.

A lock taken with flock, and an open-file-description lock, belongs to the open file, and a forked child
shares that file: as long as the child lives, the lock of a parent that was killed stays held, and everybody
believes the parent to be alive. So every descriptor that carries a lock is opened and closed here, and
closed in each child before it runs any code of its own. (A child that runs another program loses them by
close-on-exec, which Python sets.)

A child also gets a copy of SQLite's memory as it is at that moment, with a mutex locked for ever or a write
lock that nobody in the child will release. (Tried: of 100 children of a busy process, 22 could not open the
database again.) So a fork waits until no thread of ours is inside SQLite: threads hold a `busy_lock` there.

Invariant: a descriptor is in `_private` from before it can carry a lock until it is closed; no fork happens
in between, for the hooks below hold `mutex` across it.
"""

from __future__ import annotations

import logging  # noqa: F401  # pyright: ignore[reportUnusedImport] - its hook comes before ours, see below
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final

from eventproc.store.model.errors import ForkedError

mutex: Final = threading.RLock()
"""Held while descriptors of this process are opened, noted and closed; never while waiting for anything else.
Reentrant, because a signal handler of the program may fork while this thread is inside."""

_private: Final[set[int]] = set()
_busy: Final[weakref.WeakSet[ForkBlocker]] = weakref.WeakSet()
_in_child: Final[list[Callable[[], None]]] = []


class ForkBlocker:
    """A lock that one thread holds while it is inside SQLite, and that every fork of the process waits for.

    Not to be held while waiting for another process: the fork would wait for it as well. 0.2 us.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        with mutex:
            _busy.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def enter_nowait(self) -> bool:
        """Enter if no other thread is inside; whether it was possible."""
        return self._lock.acquire(blocking=False)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class ProcessBound:
    """Base of handles that are of no use in a forked child: it remembers the process that made them."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that made the handle. Costs one getpid, 0.2 us."""
        return os.getpid() != self._pid

    def check_fork(self, what: str) -> None:
        """Raise ForkedError, naming `what`, in a child of the process that made the handle."""
        if os.getpid() != self._pid:  # not by `forked`: a call less, in what every write does three times
            raise ForkedError(what=what)


def open_private(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Open a file whose descriptor no forked child keeps. `flags` must not make the open wait. Raises OSError."""
    with mutex:
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        _private.add(descriptor)
        return descriptor


def close_private(descriptor: int) -> None:
    """Close a descriptor of `open_private`, once. In a forked child, where it is closed already: nothing."""
    with mutex:
        if descriptor in _private:
            _private.remove(descriptor)
            os.close(descriptor)


def when_forked(forget: Callable[[], None]) -> None:
    """Call `forget` in every forked child, after its private descriptors were closed; for tables of them."""
    _in_child.append(forget)


_waited_for: Final[list[ForkBlocker]] = []


def _before() -> None:
    # Busy threads first: they may need the mutex to get done.
    entered = _enter_all()
    mutex.acquire()
    while set(_busy) - set(entered):  # one was made meanwhile, and may be entered already
        mutex.release()
        _leave_all(entered)
        entered = _enter_all()
        mutex.acquire()
    _waited_for.extend(entered)


def _enter_all() -> list[ForkBlocker]:
    """Enter every busy lock, and wait for one only while holding none.

    A thread may need a second one to leave its first (a checkpoint inside write.lock): to wait for the first with
    the second in hand would be for ever.
    """
    contended: list[ForkBlocker] = []
    while True:
        entered = contended
        for lock in entered:
            lock.__enter__()
        with mutex:
            missing = [lock for lock in _busy if lock not in entered]
        contended = []
        for lock in missing:
            if not lock.enter_nowait():
                contended = [lock]
                break
            entered.append(lock)
        if not contended:
            return entered
        _leave_all(entered)


def _leave_all(entered: list[ForkBlocker]) -> None:
    for lock in entered:
        lock.__exit__()


def _after() -> None:
    waited_for = _waited_for.copy()
    _waited_for.clear()
    mutex.release()
    _leave_all(waited_for)


def _after_in_child() -> None:
    try:
        for descriptor in _private:
            os.close(descriptor)
        _private.clear()
        for forget in _in_child:
            forget()
    finally:
        _after()


# Of several hooks before a fork the last one registered runs first. A busy thread may want to log, so the lock
# of logging must be taken after it is done.
os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
