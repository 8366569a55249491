"""When the log (WAL) is copied into the database file, and what if a reader keeps it from being reused.

A checkpoint runs after the acknowledgements, never inside a commit, from CHECKPOINT_BYTES of frames since the
last one. The size of the log's file says nothing, for it never shrinks; the number of valid frames stands in
the first page of `-shm`, which all processes share. Above TRUNCATE_BYTES somebody reads one old snapshot for
very long: the log is truncated if it can be, and the reader named if not.

On SQLite before 3.51.3 a commit during a checkpoint may reset the log wrongly, so there the checkpoint runs
inside write.lock. Source: architecture.md section 1; reference pitfalls.md S1.3 and S2.20; SQLite's "WAL-mode
file format", section 4 (the wal-index).
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import struct
from typing import Final

import attrs

from eventproc.store.database.connection import PAGE_BYTES
from eventproc.store.database.fork_safety import ForkBlocker
from eventproc.store.database.locks import WriteLock
from eventproc.store.faults import CHECKPOINT, Faults

LOG = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 8 * 1024 * 1024
"""Frames since the last checkpoint. Higher: longer stalls, a longer recovery; lower: pages are copied more often."""

TRUNCATE_BYTES: Final = 512 * 1024 * 1024
"""Frames from which the log counts as stuck."""

UNDER_LOCK: Final = sqlite3.sqlite_version_info < (3, 51, 3)
"""Whether this SQLite has the bug that lets a commit and a checkpoint disagree about a reset of the log."""

GROUP_BYTES_MIN: Final = 4 * PAGE_BYTES
"""What a small group is taken to add to the log where `-shm` cannot be read."""

# The wal-index header up to mxFrame: iVersion, unused, iChange, isInit, bigEndCksum, szPage, mxFrame.
_HEADER: Final = struct.Struct("=IIIBBHI")
# WalCkptInfo, after two copies of the header of 48 bytes: nBackfill and five read marks.
_READ_MARKS: Final = struct.Struct("=5I")
_READ_MARKS_AT: Final = 2 * 48 + 4
_READ_LOCKS_AT: Final = 120 + 3
# struct flock: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("@hhqqi4x")
_UNUSED_MARK: Final = 0xFFFFFFFF


@attrs.define
class Checkpointer:
    """Runs checkpoints on the writer's connection, between groups."""

    connection: sqlite3.Connection
    lock: WriteLock
    shm_fd: int | None
    faults: Faults
    path: str
    checkpoint_bytes: int = CHECKPOINT_BYTES
    truncate_bytes: int = TRUNCATE_BYTES
    under_lock: bool = UNDER_LOCK
    frames_at_last: int = 0
    estimated_bytes: int = 0
    warned: bool = False
    forks_wait: ForkBlocker = attrs.field(factory=ForkBlocker)

    def maybe_run(self, group_bytes: int) -> bool:
        """Checkpoint if enough has been committed since the last time; say whether. Costs 1 us when not due.

        group_bytes: what the group just committed meant to write; counts where `-shm` cannot be read.
        """
        frames = self._frames()
        if frames is None:
            self.estimated_bytes += group_bytes + GROUP_BYTES_MIN
            due_bytes = self.estimated_bytes
        else:
            if frames < self.frames_at_last:  # a writer began the log anew
                self.frames_at_last = 0
            due_bytes = (frames - self.frames_at_last) * PAGE_BYTES
        if due_bytes < self.checkpoint_bytes:
            return False
        self.run(truncate=frames is not None and frames * PAGE_BYTES > self.truncate_bytes)
        return True

    def run(self, *, truncate: bool = False) -> None:
        """Copy what no reader needs any more from the log into the file; with `truncate` also shorten the log."""
        if self.under_lock:
            self.lock.acquire()
        try:
            with self.forks_wait:
                busy, frames = self._checkpoint("TRUNCATE" if truncate else "PASSIVE")
        finally:
            if self.under_lock:
                self.lock.release()
        self.frames_at_last, self.estimated_bytes = frames, 0
        if truncate and busy and not self.warned:
            self.warned = True
            LOG.warning(
                "%s-wal has grown to %d MiB, because %s has been reading one snapshot for long; end that read",
                self.path,
                frames * PAGE_BYTES >> 20,
                self._oldest_reader(),
            )
        elif not busy:
            self.warned = False

    def _checkpoint(self, mode: str) -> tuple[bool, int]:
        """Return whether a reader or another checkpoint stood in the way, and the frames in the log after it."""
        execute = self.connection.execute
        (wait_ms,) = execute("PRAGMA busy_timeout").fetchone()
        # TRUNCATE would wait for readers, and every writer with it.
        execute("PRAGMA busy_timeout = 0")
        try:
            self.faults.reach(CHECKPOINT)
            busy, frames, _copied = execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.OperationalError as why:
            # Nothing is lost by a checkpoint that did not happen: the log keeps all. Try again when due.
            LOG.warning("%s: the checkpoint failed (%s)", self.path, why)
            return False, self._frames() or 0
        finally:
            execute(f"PRAGMA busy_timeout = {wait_ms}")
        return bool(busy), max(frames, 0)

    def _frames(self) -> int | None:
        if self.shm_fd is None:
            return None
        header = os.pread(self.shm_fd, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            return None
        return int(_HEADER.unpack(header)[6])

    def _oldest_reader(self) -> str:
        """Name the process whose read mark is the oldest: the locks on the marks say who they belong to."""
        if self.shm_fd is None:
            return "a process"
        marks = _READ_MARKS.unpack(os.pread(self.shm_fd, _READ_MARKS.size, _READ_MARKS_AT))
        slots = sorted((mark, slot) for slot, mark in enumerate(marks) if slot > 0 and mark != _UNUSED_MARK)
        for _, slot in slots:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _READ_LOCKS_AT + slot, 1, 0)
            kind, _whence, _start, _length, pid = _FLOCK.unpack(
                fcntl.fcntl(self.shm_fd, fcntl.F_GETLK, asked)
            )
            if kind != fcntl.F_UNLCK:
                return f"process {pid}"
        return "this process"
