"""Checkpoints, which copy the log (WAL) into the database file, and the room of the log.

The log has zeros behind its end, so that synced commits overwrite blocks instead of adding some. A sync after a write
beyond the end of a file also waits for the file system to record the new length and blocks: on ext4 it takes 1.4 to 2
times as long as one after an overwrite. SQLite overwrites the log once a checkpoint has copied it, and until then adds
to it, which is what most synced commits of a young directory pay for.

Zeros are not part of the log: recovery ends at a frame without the salts of its header. They are appended atomically,
so they never overwrite what another process has written meanwhile.

A checkpoint runs after the acknowledgements, never inside a commit, once CHECKPOINT_BYTES of different pages, or
LOG_BYTES of frames, were written since the last one, or once the database is CHECKPOINT_BYTES shorter than then. The
size of the log file is no measure because it never shrinks; the number of valid frames and the page of each are in
`-shm`, which all processes share. A log above TRUNCATE_BYTES means that a reader holds one old snapshot for very long:
the log is truncated if possible, else the warning names the reader.

On SQLite before 3.51.3 a commit during a checkpoint may reset the log wrongly. There the checkpoint runs inside
write.lock. Source: architecture.md section 1; reference pitfalls.md S1.3 and S2.20; SQLite's "WAL-mode file format",
sections 2 and 4 (the wal-index).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import struct
from array import array
from typing import Final

import attrs

from eventproc.base import kernel
from eventproc.store.database.connections import PAGE_BYTES
from eventproc.store.database.guard import LogRecorder
from eventproc.store.database.locks import ForkBlocker, WriteLock
from eventproc.store.faults import CHECKPOINT, Faults

STEP_BYTES: Final = 1024 * 1024
"""Zeros added at a time: about 2 ms in which the thread does not commit. Higher: it does not for longer; lower: the
syncs of the zeros cost more than they save."""

AHEAD_BYTES: Final = 128 * 1024
"""Room behind the end of the log below which zeros are added. Higher: more of them are never used; lower: more commits
are larger than the room."""

LOG_BYTES_MIN: Final = 128 * 1024
"""Size of the log from which on it gets room: that of some ten commits. Higher: more commits go without; lower: a
program that only makes a stream waits for the zeros, too."""

_FRAME_BYTES: Final = PAGE_BYTES + 24
_HEADER_BYTES: Final = 32


@attrs.define
class LogRoom:
    """The room of one log."""

    path: str
    """Of the log."""
    bytes_max: int
    """No zeros are added beyond this size of the file, because a checkpoint lets the log begin again before."""
    _size_bytes: int = attrs.field(default=0, init=False)

    def keep(self, frames: int | None) -> None:
        """Add zeros if the log, which has `frames`, nearly fills the file. 1 us, or 2 ms. Not inside write.lock.

        A failure, such as a full disk, is left to the next commit, which meets it, too.
        """
        end_bytes = _HEADER_BYTES + (frames or 0) * _FRAME_BYTES
        if not LOG_BYTES_MIN <= end_bytes <= self.bytes_max or end_bytes + AHEAD_BYTES <= self._size_bytes:
            return
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                self._size_bytes = os.fstat(descriptor).st_size
                if end_bytes + AHEAD_BYTES > self._size_bytes:
                    self._size_bytes += os.write(descriptor, bytes(STEP_BYTES))
                    kernel.sync_data(descriptor)
            finally:
                os.close(descriptor)


LOG = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of different pages in the log after which a checkpoint is due: it copies each page once. A higher value means
longer stalls; a lower one copies pages more often, and syncs the file more often. With 8 MiB the stalls were twice as
long, and throughput was the same."""

LOG_BYTES: Final = 32 * 1024 * 1024
"""Bytes of frames after which a checkpoint is due even if they are of few pages: small commits rewrite the pages of the
commits before them. Higher: a longer log, which a recovery reads; lower: checkpoints cost each small transaction more,
100 of 700 us with 4 MiB."""

TRUNCATE_BYTES: Final = 512 * 1024 * 1024
"""Bytes of frames above which the log counts as stuck."""

UNDER_LOCK: Final = sqlite3.sqlite_version_info < (3, 51, 3)
"""Whether this SQLite has the bug that a commit and a checkpoint may disagree about a reset of the log."""

BATCH_BYTES_MIN: Final = 4 * PAGE_BYTES
"""Estimate of what a small batch adds to the log, used where `-shm` cannot be read."""

# The wal-index header up to mxFrame: iVersion, unused, iChange, isInit, bigEndCksum, szPage, mxFrame.
_HEADER: Final = struct.Struct("=IIIBBHI")
# WalCkptInfo, after two copies of the header of 48 bytes: nBackfill and five read marks.
_READ_MARKS: Final = struct.Struct("=5I")
_READ_MARKS_AT: Final = 2 * 48 + 4
_READ_LOCKS_AT: Final = 120 + 3
# Blocks of 32 KiB, each of 4,096 words, which are the pages of frames, and a hash table of as many bytes. In the first
# block the header takes the place of 34 words.
_BLOCK_BYTES: Final = 32768
_BLOCK_WORDS: Final = 4096
_HEADER_WORDS: Final = 34
_UNUSED_MARK: Final = 0xFFFFFFFF


@attrs.define
class Checkpointer:
    """Runs checkpoints on the writer's connection, between batches."""

    connection: sqlite3.Connection
    lock: WriteLock
    shm_fd: int | None
    faults: Faults
    path: str
    log: LogRecorder
    checkpoint_bytes: int = CHECKPOINT_BYTES
    truncate_bytes: int = TRUNCATE_BYTES
    under_lock: bool = UNDER_LOCK
    log_bytes: int = LOG_BYTES
    frames_seen: int = 0
    frames_counted: int = 0
    frames_copied: int = 0
    pages_due: set[int] = attrs.field(factory=set)
    pages_before: int = 0
    estimated_bytes: int = 0
    warned: bool = False
    forks_wait: ForkBlocker = attrs.field(factory=ForkBlocker)

    def is_due(self, batch_bytes: int) -> bool:
        """Return whether to `run` a checkpoint now. 1 us.

        batch_bytes: size of the batch just committed, as announced by its jobs. Used where `-shm` cannot be read.
        """
        frames = None if self.shm_fd is None else self.log.frames
        if frames is None:
            self.estimated_bytes += batch_bytes + BATCH_BYTES_MIN
            due_bytes = self.estimated_bytes
        else:
            if frames < self.frames_seen:  # a writer restarted the log
                self._begin_count(0)
            self.frames_seen = frames
            if (frames - self.frames_copied) * PAGE_BYTES >= self.log_bytes:
                return True
            pages = self.log.pages or 0
            self.pages_before = max(pages, self.pages_before)
            if (self.pages_before - pages) * PAGE_BYTES >= self.checkpoint_bytes:
                return True  # only a checkpoint shortens the file
            due_bytes = (len(self.pages_due) + frames - self.frames_counted) * PAGE_BYTES
            if due_bytes >= self.checkpoint_bytes:  # if all uncounted frames are of different pages
                self._count_pages()
                due_bytes = len(self.pages_due) * PAGE_BYTES
        return due_bytes >= self.checkpoint_bytes

    def _begin_count(self, frames: int) -> None:
        """Count the pages from now on, when the log has `frames`."""
        self.frames_seen = self.frames_counted = self.frames_copied = frames
        self.pages_due.clear()

    def _count_pages(self) -> None:
        """Count the pages of the frames that were not counted yet."""
        assert self.shm_fd is not None, "the frames are known from there"
        at, end = self.frames_counted + _HEADER_WORDS, self.frames_seen + _HEADER_WORDS
        while at < end:
            block, word = divmod(at, _BLOCK_WORDS)
            words = array("I")
            count = min(end - at, _BLOCK_WORDS - word)
            size_bytes = count * words.itemsize
            words.frombytes(os.pread(self.shm_fd, size_bytes, block * _BLOCK_BYTES + word * words.itemsize))
            self.pages_due.update(words)
            at += count
        self.frames_counted = self.frames_seen

    def sync_log(self) -> None:
        """Write the log to the disk, so that a checkpoint, which begins with that, finds it done.

        For logs that commits do not sync. A failure is left to the checkpoint, which meets it, too.
        """
        with contextlib.suppress(OSError), open(f"{self.path}-wal", "rb", buffering=0) as log:
            kernel.sync_data(log.fileno())

    def run(self) -> None:
        """Copy into the file all frames that no reader still needs, and shorten a log that is too long."""
        frames_now = self._frames()
        truncate = frames_now is not None and frames_now * PAGE_BYTES > self.truncate_bytes
        if self.under_lock:
            self.lock.acquire()
        try:
            with self.forks_wait:
                if truncate:
                    self.log.release_log()
                busy, frames, copied = self._checkpoint("TRUNCATE" if truncate else "PASSIVE")
                if self.under_lock and not busy and frames == copied:
                    self.log.release_log()
        finally:
            if self.under_lock:
                self.lock.release()
        self._begin_count(frames)
        self.pages_before = self.log.pages or 0
        self.estimated_bytes = 0
        if truncate and busy and not self.warned:
            self.warned = True
            LOG.warning(
                "%s-wal has grown to %d MiB because %s has held one read snapshot for long; end that read",
                self.path,
                frames * PAGE_BYTES >> 20,
                self._oldest_reader(),
            )
        elif not busy:
            self.warned = False

    def shorten(self) -> bool:
        """Run a checkpoint if the file is longer than the database; return whether it is not any more."""
        if self._is_longer():
            self.run()
        return not self._is_longer()

    def _is_longer(self) -> bool:
        pages = int(self.connection.execute("PRAGMA page_count").fetchone()[0])
        return os.stat(self.path).st_size > pages * PAGE_BYTES

    def _checkpoint(self, mode: str) -> tuple[bool, int, int]:
        """Return whether a reader or another checkpoint blocked this one, the frames in the log, and those copied."""
        execute = self.connection.execute
        (wait_ms,) = execute("PRAGMA busy_timeout").fetchone()
        # TRUNCATE would wait for readers, and every writer with it.
        execute("PRAGMA busy_timeout = 0")
        try:
            self.faults.reach(CHECKPOINT)
            busy, frames, copied = execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.OperationalError as why:
            # A failed checkpoint loses nothing, because the log keeps every frame. The next one is tried when due.
            LOG.warning(
                "%s: the checkpoint failed (%s); it is tried again after the next commits", self.path, why
            )
            return False, self._frames() or 0, -1
        finally:
            execute(f"PRAGMA busy_timeout = {wait_ms}")
        return bool(busy), max(frames, 0), max(copied, 0)

    def _frames(self) -> int | None:
        if self.shm_fd is None:
            return None
        header = os.pread(self.shm_fd, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            return None
        return int(_HEADER.unpack(header)[6])

    def _oldest_reader(self) -> str:
        """Return the process with the oldest read mark. The lock on a mark names its process.

        The first mark is that of readers whose snapshot is the file alone.
        """
        if self.shm_fd is None:
            return "a process"
        marks = _READ_MARKS.unpack(os.pread(self.shm_fd, _READ_MARKS.size, _READ_MARKS_AT))
        slots = sorted((mark, slot) for slot, mark in enumerate(marks) if mark != _UNUSED_MARK)
        for _, slot in slots:
            if (pid := kernel.byte_holder(self.shm_fd, _READ_LOCKS_AT + slot)) is not None:
                return f"process {pid}"
        return "this process"
