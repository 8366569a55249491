"""Keeps forked children from holding the locks of their parent and from using its handles.

An flock, and an open-file-description lock, belongs to the open file, which a forked child shares. While the child
lives, the lock of a killed parent would stay held, and other processes would believe that the parent is alive. So every
descriptor that carries a lock is opened and closed here, and closed in each child before the child runs its own code.
(A child that executes another program loses the descriptors by close-on-exec, which Python sets.)

A child also gets a copy of SQLite's memory as of that moment, perhaps with a locked mutex or a write lock that no
thread of the child will release. (Measured: 22 of 100 children of a busy process could not open the database again.) So
a fork waits until no thread of this library is inside SQLite: such a thread holds a `ForkBlocker`.

Invariant: a descriptor is in `_private` from before it can carry a lock until it is closed. No fork happens in between,
because the hooks below hold `mutex` across it.
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
"""Held while descriptors of this process are opened, registered and closed; never while waiting for something else.
Reentrant, because a signal handler of the program may fork while this thread holds it."""

_private: Final[set[int]] = set()
_busy: Final[weakref.WeakSet[ForkBlocker]] = weakref.WeakSet()
_in_child: Final[list[Callable[[], None]]] = []


class ForkBlocker:
    """A lock that a thread holds while it is inside SQLite. Every fork of the process waits for it. 0.2 us.

    A thread must not hold it while it waits for another process, because a fork would wait as well.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        with mutex:
            _busy.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def enter_nowait(self) -> bool:
        """Enter if no other thread is inside; return whether that succeeded."""
        return self._lock.acquire(blocking=False)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class ProcessBound:
    """Base of handles that work only in the process that created them, not in a forked child."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that created the handle. Costs one getpid, 0.2 us."""
        return os.getpid() != self._pid

    def check_fork(self, what: str) -> None:
        """Raise ForkedError, naming `what`, in a child of the process that created the handle."""
        if os.getpid() != self._pid:  # not `self.forked`: every write comes here three times
            raise ForkedError(what=what)


def open_private(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Open a file whose descriptor forked children close. `flags` must not make the open wait. Raises OSError."""
    with mutex:
        descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
        _private.add(descriptor)
        return descriptor


def close_private(descriptor: int) -> None:
    """Close a descriptor of `open_private` once. Does nothing in a forked child, where it is already closed."""
    with mutex:
        if descriptor in _private:
            _private.remove(descriptor)
            os.close(descriptor)


def when_forked(forget: Callable[[], None]) -> None:
    """Call `forget` in every forked child, after its private descriptors were closed."""
    _in_child.append(forget)


_waited_for: Final[list[ForkBlocker]] = []


def _before() -> None:
    # The threads inside SQLite first: they may need the mutex to leave.
    entered = _enter_all()
    mutex.acquire()
    while set(_busy) - set(entered):  # one was created meanwhile, and a thread may have entered it
        mutex.release()
        _leave_all(entered)
        entered = _enter_all()
        mutex.acquire()
    _waited_for.extend(entered)


def _enter_all() -> list[ForkBlocker]:
    """Enter every ForkBlocker, and wait for one only while holding no other.

    A thread may need a second one to leave its first (a checkpoint inside write.lock). Waiting for the first while
    holding the second would be a deadlock.
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


# Of several hooks before a fork, the last one registered runs first. A thread inside SQLite may want to log, so the
# lock of `logging` must be taken after that thread has left.
os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
