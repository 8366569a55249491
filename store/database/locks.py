"""The lock files of a directory: write.lock, format.lock and controller.lock.

All are flock on a file of its own: the kernel releases it when its process dies, whatever the death, and a
waiting process costs nothing. The files are never deleted, so a descriptor may be kept for ever; only an
initialisation that failed takes its `format.lock` away again.

`WriteLock` queues the writers of several processes, `FormatLock` keeps migrations and openers apart,
`TryLock` is for what at most one process does and nobody waits for.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import Final

import attrs

from eventproc.store.clock import Clock
from eventproc.store.database import fork_safety
from eventproc.store.model.errors import DirectoryInUse

FORMAT_WAIT_MS_MAX: Final = 10_000
"""How long an opener waits for format.lock: an init takes milliseconds, a long migration should be told of."""

FORMAT_POLL_MS: Final = 20
"""Pause between two tries for format.lock. A blocking flock has no time limit, and only opening waits here."""

_RECORD_BYTES: Final = 48
"""Two integers of at most 20 digits, a blank, a line feed, padded: the record never changes its length."""


@attrs.frozen
class LockHolder:
    """Who is inside write.lock: the pid (in its own pid namespace), since when (`Clock.monotonic_ms`)."""

    pid: int
    since_ms: int


class WriteLock(fork_safety.ProcessBound):
    """The queue of all writers of a directory. One thread acquires and releases; any may ask for the holder.

    Each hold writes who and since when into the file, so that those who wait for a stopped process can name
    it (reference pitfalls.md S1.8). SQLite's own write lock still protects the data; this one is for order.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__()
        self._path = path
        self._clock = clock
        self._descriptor = _open_lock(path)
        self._busy = fork_safety.ForkBlocker()
        self._held = False

    def acquire(self) -> None:
        """Wait until no other process, and no other handle of this one, is inside; without a time limit.

        A blocking call, for the writer's thread: callers with a deadline leave the writer's queue instead.
        A fork of this process waits for the release. Costs about 3 us when free. Raises ForkedError.
        """
        self.check_fork("write.lock")
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self._busy.__enter__()
        self._held = True
        record = b"%d %d" % (self._pid, self._clock.monotonic_ms())
        with contextlib.suppress(OSError):  # such as of a full disk: the record is for people
            os.pwrite(self._descriptor, record.ljust(_RECORD_BYTES - 1) + b"\n", 0)

    def release(self) -> None:
        """Let the next writer in. In a forked child: nothing, the lock is the parent's."""
        if self._held and not self.forked:
            self._held = False
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._busy.__exit__()

    def holder(self) -> LockHolder | None:
        """Return who is inside now, or None. From any thread, also while another one waits in `acquire`. 100 us."""
        probe = fork_safety.open_private(self._path, os.O_RDONLY)
        try:
            # The record outlives its hold, so the lock itself must say whether anyone is inside. A shared
            # lock, for two who ask at the same moment must not take each other for a writer.
            if _try_flock(probe, fcntl.LOCK_SH):
                return None
            words = os.pread(probe, _RECORD_BYTES, 0).split()
            recorded = LockHolder(int(words[0]), int(words[1])) if len(words) == 2 else None
            # Who was stopped between taking the lock and its record left there that of the holder before it.
            inside = lock_holders(self._path)
            if not inside or (recorded is not None and recorded.pid in inside):
                return recorded
            return LockHolder(
                inside[0], self._clock.monotonic_ms() if recorded is None else recorded.since_ms
            )
        finally:
            fork_safety.close_private(probe)

    def close(self) -> None:
        """Release, and give the descriptor back. Not while another thread waits in `acquire`."""
        self.release()
        fork_safety.close_private(self._descriptor)


class FormatLock(fork_safety.ProcessBound):
    """Held shared by everyone who has the directory open, exclusively by who initialises or migrates it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.made = not path.exists()  # by this handle, so that it may be taken away again
        self._descriptor = _open_lock(path)

    def acquire_shared(self, timeout_ms: int = FORMAT_WAIT_MS_MAX) -> None:
        """Become one of the openers. Blocks the thread; raises DirectoryInUse when a migration outlasts it."""
        self._acquire(fcntl.LOCK_SH, timeout_ms)

    def acquire_exclusive(self, timeout_ms: int = FORMAT_WAIT_MS_MAX) -> None:
        """Become the only one, from shared or from nothing; raises DirectoryInUse with the pids of the others.

        Going up from shared is not atomic: another process may migrate in between, so look at the version
        again afterwards. After the error nothing is held.
        """
        self._acquire(fcntl.LOCK_EX, timeout_ms)

    def downgrade(self) -> None:
        """Go from exclusive to shared. Never waits, but a waiting migration may slip in first: see above."""
        self._acquire(fcntl.LOCK_SH, FORMAT_WAIT_MS_MAX)

    def remove(self) -> None:
        """Take the file away, while held exclusively: the directory could not be initialised."""
        self._path.unlink(missing_ok=True)

    def remove_unused(self) -> None:
        """Take the file away unless another handle holds it: the directory is none of ours."""
        if self._try(fcntl.LOCK_EX):
            self.remove()

    def close(self) -> None:
        """Stop being an opener."""
        if not self.forked:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        fork_safety.close_private(self._descriptor)

    def _acquire(self, kind: int, timeout_ms: int) -> None:
        self.check_fork("format.lock")
        pause = threading.Event()  # never set: a wait on it is a pause of this thread
        for _ in range(max(timeout_ms // FORMAT_POLL_MS, 1)):
            if self._try(kind):
                return
            pause.wait(FORMAT_POLL_MS / 1000)
        if not self._try(kind):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            raise DirectoryInUse(path=str(self._path.parent), pids=lock_holders(self._path))

    def _try(self, kind: int) -> bool:
        """Take the lock if it is free, on the file that has the name now: `remove` may have given it up."""
        while _try_flock(self._descriptor, kind):
            if os.fstat(self._descriptor).st_nlink:
                return True
            fork_safety.close_private(self._descriptor)
            self._descriptor = _open_lock(self._path)
        return False


class TryLock(fork_safety.ProcessBound):
    """A lock that one process has or has not; nobody waits. The descriptor stays open between tries."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._descriptor = _open_lock(path)
        self.held = False

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True when this handle has it now. One system call, 1.5 us."""
        self.check_fork("the lock")
        if not self.held:
            self.held = _try_flock(self._descriptor, fcntl.LOCK_EX)
        return self.held

    def release(self) -> None:
        """Let somebody else have it; nothing when not held, or in a forked child."""
        if self.held and not self.forked:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self.held = False

    def close(self) -> None:
        """Release, and give the descriptor back."""
        self.release()
        fork_safety.close_private(self._descriptor)


def lock_holders(path: Path) -> tuple[int, ...]:
    """Return the pids that hold flock on `path`, ascending; empty where the kernel does not tell (not Linux).

    Raises OSError when it cannot be asked now.
    Source: /proc/locks, "1: FLOCK  ADVISORY  READ 4711 08:01:131 0 EOF"; waiting ones have an arrow. Compared
    by inode only: on btrfs the device there is not the one that stat reports.
    """
    inode = str(os.stat(path).st_ino)
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, PermissionError):
        return ()
    locks = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
    return tuple(sorted({int(words[4]) for words in locks if words[5].rsplit(":", 1)[1] == inode}))


def _open_lock(path: Path) -> int:
    return fork_safety.open_private(path, os.O_RDWR | os.O_CREAT)


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
