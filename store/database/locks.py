"""The lock files of a directory, and the rules that keep a forked child from holding the locks of its parent.

write.lock, format.lock and controller.lock are each an flock on a file of its own: the kernel releases it at any death
of the process, and a waiting process uses no CPU. The files are never deleted, so a descriptor stays valid permanently;
only a failed initialisation removes its `format.lock`. `WriteLock` queues the writers of all processes. `FormatLock`
separates migrations from openers. `TryLock` is for work that at most one process does and no process waits for.

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

import fcntl
import logging  # noqa: F401  # pyright: ignore[reportUnusedImport] - its hook comes before ours, see below
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from eventproc.base.clock import Clock
from eventproc.base.kernel import lock_holders
from eventproc.store.model.errors import DirectoryInUse, ForkedError

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


FORMAT_WAIT_MS_MAX: Final = 10_000
"""How long an opener waits for format.lock. An initialisation takes milliseconds; a longer migration is reported."""

FORMAT_POLL_MS: Final = 20
"""Longest pause between two attempts to take format.lock. A blocking flock has no time limit, and only opening waits
here. The first pauses are shorter, because an opener, and the last process that closes, hold it for about 1 ms."""

_RECORD_BYTES: Final = 48
"""Two integers of at most 20 digits, a blank, a line feed, and padding, so that the record has a fixed length."""


@attrs.frozen
class LockHolder:
    """The process that holds write.lock: its pid (in its pid namespace), and since when (`Clock.monotonic_ms`)."""

    pid: int
    since_ms: int


class WriteLock(ProcessBound):
    """Queues all writers of a directory. One thread acquires and releases; any thread may ask for the holder.

    The holder writes its pid and the time into the file, so that processes that wait for a stopped one can name it
    (reference pitfalls.md S1.8). SQLite's own write lock still protects the data; this lock provides the order.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__()
        self._path = path
        self._clock = clock
        self._descriptor = _open_lock(path)
        self._busy = ForkBlocker()
        self._held = False

    def acquire(self) -> None:
        """Take the lock; wait without a time limit while another process, or another handle of this one, holds it.

        This call blocks the writer's thread. Callers with a deadline leave the writer's queue instead. A fork of this
        process waits for the release. Costs about 3 us if the lock is free. Raises ForkedError.
        """
        self.check_fork("write.lock")
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._enter()

    def acquire_nowait(self, *, brief: bool = False) -> bool:
        """Take the lock if it is free; return whether it is held now. Raises ForkedError.

        brief: for less than 1 ms. The time is not written into the file, where processes that wait then find an earlier
        one.
        """
        self.check_fork("write.lock")
        if not _try_flock(self._descriptor, fcntl.LOCK_EX):
            return False
        if brief:
            self._busy.__enter__()
            self._held = True
        else:
            self._enter()
        return True

    def _enter(self) -> None:
        self._busy.__enter__()
        self._held = True
        record = b"%d %d" % (self._pid, self._clock.monotonic_ms())
        try:  # not `suppress`, which costs 1 us
            os.pwrite(self._descriptor, record.ljust(_RECORD_BYTES - 1) + b"\n", 0)
        except OSError:  # such as a full disk: the record is only for display
            return

    def release(self) -> None:
        """Release the lock. Does nothing in a forked child, because the lock is the parent's."""
        if self._held and not self.forked:
            self._held = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._busy.__exit__()

    def holder(self) -> LockHolder | None:
        """Return the holder, or None. Callable from any thread, also while another waits in `acquire`. 100 us."""
        probe = open_private(self._path, os.O_RDONLY)
        try:
            # The record outlives its hold, so only the lock itself says whether it is held. A shared lock, so that two
            # simultaneous calls do not take each other for a writer.
            if _try_flock(probe, fcntl.LOCK_SH):
                return None
            words = os.pread(probe, _RECORD_BYTES, 0).split()
            recorded = LockHolder(int(words[0]), int(words[1])) if len(words) == 2 else None
            # A process that was stopped between taking the lock and writing its record left the previous record.
            inside = lock_holders(self._path)
            if not inside or (recorded is not None and recorded.pid in inside):
                return recorded
            return LockHolder(
                inside[0], self._clock.monotonic_ms() if recorded is None else recorded.since_ms
            )
        finally:
            close_private(probe)

    def close(self) -> None:
        """Release the lock and close its descriptor. Not while another thread waits in `acquire`."""
        self.release()
        close_private(self._descriptor)


class FormatLock(ProcessBound):
    """Every opener of the directory holds it shared; a process that initialises or migrates holds it exclusively."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.made = not path.exists()  # if this handle creates the file, it may remove it again
        self._descriptor = _open_lock(path)

    def acquire_shared(self, timeout_ms: int = FORMAT_WAIT_MS_MAX) -> None:
        """Take the lock shared, as an opener. Blocks the thread. Raises DirectoryInUse if a migration takes longer."""
        self._acquire(fcntl.LOCK_SH, timeout_ms)

    def try_exclusive(self) -> bool:
        """Take the lock exclusively if no other handle has the directory open; return whether that succeeded.

        If it fails, the lock is not held any more, not even shared. So of several processes that close at the same
        time, the last one to try succeeds.
        """
        self.check_fork("format.lock")
        return self._try(fcntl.LOCK_EX)

    def acquire_exclusive(self, timeout_ms: int = FORMAT_WAIT_MS_MAX) -> None:
        """Take the lock exclusively, also from shared. Raises DirectoryInUse with the pids of the other openers.

        Upgrading from shared is not atomic: another process may migrate in between, so check the version again
        afterwards. After the error the lock is not held.
        """
        self._acquire(fcntl.LOCK_EX, timeout_ms)

    def downgrade(self) -> None:
        """Change from exclusive to shared. Never waits, but a waiting migration may run first, see above."""
        self._acquire(fcntl.LOCK_SH, FORMAT_WAIT_MS_MAX)

    def remove(self) -> None:
        """Delete the file, while the lock is held exclusively: the directory could not be initialised."""
        self._path.unlink(missing_ok=True)

    def remove_unused(self) -> None:
        """Delete the file unless another handle holds it: the directory is not ours."""
        if self._try(fcntl.LOCK_EX):
            self.remove()

    def close(self) -> None:
        """Release the lock and close its descriptor."""
        if not self.forked:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        close_private(self._descriptor)

    def _acquire(self, kind: int, timeout_ms: int) -> None:
        self.check_fork("format.lock")
        pause = threading.Event()  # never set: a wait on it is a pause of this thread
        left_ms, pause_ms = timeout_ms, 1
        while not self._try(kind) and left_ms > 0:
            pause.wait(pause_ms / 1000)
            left_ms, pause_ms = left_ms - pause_ms, min(2 * pause_ms, FORMAT_POLL_MS)
        if not self._try(kind):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            raise DirectoryInUse(path=str(self._path.parent), pids=lock_holders(self._path))

    def _try(self, kind: int) -> bool:
        """Take the lock if it is free, on the file that has the name now: `remove` may have deleted the old one."""
        while _try_flock(self._descriptor, kind):
            if os.fstat(self._descriptor).st_nlink:
                return True
            close_private(self._descriptor)
            self._descriptor = _open_lock(self._path)
        return False


class TryLock(ProcessBound):
    """A lock that one process holds and no process waits for. The descriptor stays open between attempts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = _open_lock(path)
        self.held = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether this handle holds it now. One system call, 1.5 us."""
        self.check_fork("the lock")
        if not self.held:
            self.held = _try_flock(self._descriptor, fcntl.LOCK_EX)
        return self.held

    def release(self) -> None:
        """Release the lock. Does nothing if it is not held, or in a forked child."""
        if self.held and not self.forked:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.held = False

    def close(self) -> None:
        """Release the lock and close its descriptor."""
        self.release()
        close_private(self._descriptor)


def _open_lock(path: Path) -> int:
    return open_private(path, os.O_RDWR | os.O_CREAT)


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path, *, remove: bool = False) -> bool:
    """Return whether a process holds the lock of a file, which need not exist.

    remove: remove a file that nobody has locked, and lock it meanwhile.
    """
    try:
        probe = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, so that two simultaneous checks do not take each other for the owner.
        if not _try_flock(probe, fcntl.LOCK_EX if remove else fcntl.LOCK_SH):
            return True
        if remove:
            path.unlink(missing_ok=True)
        return False
    finally:
        os.close(probe)
