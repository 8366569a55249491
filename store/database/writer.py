"""The write path of the file form: the thread takes `write.lock`, runs the waiting jobs as one batch, and unlocks.

A lone brief job skips the thread if commits do not wait for the disk: the event loop runs it, which saves two switches
of threads. `_turn` says who uses the connection. If commits wait for the disk, the event loop waits with the caller of
such a job for a moment instead of going to sleep, if no other caller waits and other tasks are not busy.

The thread blocks in flock, which the kernel serves in order, while the event loop watches the deadlines.
Source: architecture.md section 1; reference pitfalls.md S1.4, S1.8 and S1.9.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from eventproc.base.clock import Clock
from eventproc.base.kernel import thread_waits
from eventproc.store.database.checkpoint import Checkpointer, LogRoom
from eventproc.store.database.commit_batch import BatchCommitter, CommitBatch
from eventproc.store.database.connections import LoopCallbacks, ThreadConnection
from eventproc.store.database.files import primary_code
from eventproc.store.database.guard import LogRecorder
from eventproc.store.database.locks import WriteLock
from eventproc.store.database.wake_ups import CommitNotifier
from eventproc.store.database.write_queue import Attend, AwaitedJob, WriteQueue
from eventproc.store.model.errors import LockHeld

LOG = logging.getLogger(__name__)

T = TypeVar("T")

INLINE_BYTES_MAX: Final = 16 * 1024
"""Bytes that a job may write to run on the event loop: its commit then takes less than 1 ms. Higher: the loop is busy
for longer; lower: more writes pay for the thread."""

INLINE_MS_MAX: Final = 5
"""How long a commit on the event loop may take, in ms: fifty times as long as usual. After a slower one that waited, as
for the disk, the thread commits for INLINE_PAUSE_MS. Higher: a busy disk stalls the loop for longer; lower: more writes
pay for the thread."""

ALONE_MS_MAX: Final = 1
"""How long a task whose jobs are alone may run them without giving other tasks a turn, in ms: some ten jobs. Higher:
other tasks wait longer; lower: each job pays 8 us for a turn of the event loop."""

ALONE_TURN_MS_MAX: Final = 0.1
"""How long a turn of the event loop may take, in ms, in which other tasks have nothing to do. Higher: the event loop
waits with one task while others could work; lower: a slow machine never waits so."""

SYNC_WAIT_MS_MAX: Final = 1
"""How long the event loop waits with the caller of a lone brief job for its synced commit, in ms: some four commits of
a fast disk. Higher: other tasks wait longer; lower: on slower disks it goes to sleep, and wakes 50 us later.
After a wait that ended without the commit, it waits so for none during a pause. The pause begins with this length,
doubles with each such wait, and is at most INLINE_PAUSE_MS_MAX."""

INLINE_PAUSE_MS: Final = 50
"""How long the thread commits after a slow commit on the event loop, in ms. It doubles with each further slow one, up
to INLINE_PAUSE_MS_MAX. Higher: a disk that was slow once costs more; lower: one that stays slow stalls the loop
more."""

SETTLE_AGAIN_MS: Final = 10
"""When the event loop tries again, in ms, to record its commits while the thread uses the connection. Higher: after a
death the record is older; lower: more wake-ups during a checkpoint."""

INLINE_PAUSE_MS_MAX: Final = 5_000
"""Longest such pause: a slow disk stalls the loop once in this time."""


class FileWriter(WriteQueue):
    """Queue and thread of the writer of one file.

    Methods run on the event loop, except `_drain` and those below the line, which run on the writer's thread.
    """

    def __init__(
        self,
        connection: ThreadConnection[sqlite3.Connection],
        committer: BatchCommitter,
        *,
        lock: WriteLock,
        lock_path: Path,
        notifier: CommitNotifier,
        checkpointer: Checkpointer,
        log: LogRecorder,
        room: LogRoom,
        clock: Clock,
        callbacks: LoopCallbacks,
        publish: Callable[[CommitBatch], None],
        lock_warn_ms: int,
        inline: bool,
    ) -> None:
        """Create the writer.

        publish: as for `WriteQueue`. lock_warn_ms: waiting time for write.lock after which a warning names its holder.
        inline: whether brief jobs may run on the event loop, because a commit does not wait for the disk.
        """
        super().__init__(
            connection,
            committer,
            name=str(lock_path.parent),
            clock=clock,
            callbacks=callbacks,
            publish=publish,
            look_ms=lock_warn_ms,
        )
        self.checkpointer = checkpointer
        self._log = log
        self._room = room
        self._lock = lock
        self._lock_path = lock_path
        self._notifier = notifier
        self._turn = threading.Lock()
        self._inline = inline
        self._inline_from = 0.0  # time of the event loop
        self._alone_until = 0.0  # time of the event loop
        self._inline_pause_ms = INLINE_PAUSE_MS
        self._synced = not inline
        self._wait_from = 0.0  # time of the event loop
        self._wait_pause_ms = SYNC_WAIT_MS_MAX
        self._jobs_count = 0
        self._checkpoint_due = False  # by a commit on the event loop
        self._settles = False  # `_settle` will be called
        self._lock_wanted_ms: int | None = None
        self._warned_ms: int | None = None

    def _admit(self, job: AwaitedJob[T], brief: bool) -> Attend | None:
        """See `WriteQueue`."""
        alone = brief and self._inline and not self._awake and not self._queue
        waits = brief and self._synced and not self._callers_count and job.size_bytes <= INLINE_BYTES_MAX
        self._queue.append(job)
        self._jobs_count += 1
        if alone:
            self._awake = True
            return self._run_alone
        self._wake_thread()
        return self._wait_beside if waits and job.queued >= self._wait_from else None

    async def _run_alone(self, job: AwaitedJob[Any]) -> None:
        """Run a job that waits alone on the event loop, or let the thread run it."""
        if job.queued >= self._alone_until:
            # Jobs of other tasks that are ready share a commit of the thread.
            try:
                await anyio.lowlevel.checkpoint()
            except BaseException:
                self._connection.post(self._drain)
                raise
            lone = len(self._queue) == 1
            self._alone_until = self._loop.time() + ALONE_MS_MAX / 1000 if lone else 0.0
        self._run_inline(job.size_bytes)

    async def _wait_beside(self, job: AwaitedJob[Any]) -> None:
        """Let the event loop wait with the caller of a job that waits alone, if other tasks have nothing to do."""
        number = self._jobs_count
        if job.queued >= self._alone_until:
            await anyio.lowlevel.checkpoint()
            now = self._loop.time()
            idle = self._jobs_count == number and now - job.queued <= ALONE_TURN_MS_MAX / 1000
            self._alone_until = now + ALONE_MS_MAX / 1000 if idle else 0.0
        if self._alone_until:
            self._wait_synced(job)

    def _late(self, waited_ms: int) -> LockHeld:
        """See `WriteQueue`."""
        return LockHeld(path=str(self._lock_path), pid=self._holder_pid(), for_ms=waited_ms)

    def _notice_wait(self) -> None:
        """Warn if another process holds the lock for long."""
        wanted_ms = self._lock_wanted_ms
        if wanted_ms is None or wanted_ms == self._warned_ms:
            return
        waited_ms = self._clock.monotonic_ms() - wanted_ms
        if waited_ms >= self._look_s * 1000:
            self._warned_ms = wanted_ms
            LOG.warning(
                "%s has been held by process %s for more than %.1f s; writes wait for its release",
                self._lock_path,
                self._holder_pid(),
                waited_ms / 1000,
            )

    def _run_inline(self, size_bytes: int) -> None:
        """Run the only job on the event loop, or let the thread run what waits.

        The thread commits what may wait for another process or for the disk: the first commit of a log that begins
        again syncs its header.
        """
        began, waits, batch = self._loop.time(), thread_waits(), None
        try:
            if (
                len(self._queue) == 1
                and size_bytes <= INLINE_BYTES_MAX
                and began >= self._inline_from
                and self._log.is_marked
                and self._log.appends
                and self._turn.acquire(blocking=False)
            ):
                try:
                    batch = self._commit_inline()
                finally:
                    self._turn.release()
        finally:  # also if it was interrupted, as by Ctrl-C
            if batch is None:
                self._connection.post(self._drain)
            else:
                self._awake = False
                self._deliver(batch)
        if batch is not None:
            self._note_inline(began, waits)

    def _note_inline(self, began: float, waits: int) -> None:
        """Let the thread commit for a while if a commit on the event loop was slow, unless only the CPU was busy."""
        now = self._loop.time()
        if now - began <= INLINE_MS_MAX / 1000:
            self._inline_pause_ms = INLINE_PAUSE_MS
            return
        if thread_waits() == waits:
            return
        self._inline_from = now + self._inline_pause_ms / 1000
        self._inline_pause_ms = min(2 * self._inline_pause_ms, INLINE_PAUSE_MS_MAX)

    def _commit_inline(self) -> CommitBatch | None:
        """Commit the only job; None if another process has the lock, or nothing can be committed any more."""
        if self._committer.stopped is not None or not self._lock.acquire_nowait(brief=True):
            return None
        batch = self._commit(None, self._log.note_end)
        if batch is not None and batch.changed:
            self._notifier.wake()
            if not self._settles:
                self._settles = True
                self._loop.call_soon(self._settle)
            if not self._checkpoint_due and self.checkpointer.is_due(_size_bytes(batch)):
                self._checkpoint_due = True
                self._connection.post(self._checkpoint)
        return batch

    def _settle(self) -> None:
        """Do once, in the next turn of the event loop, what several commits of the last turn need.

        Record where the log ends, unless another process has committed, and so recorded, since. Wake instances that
        came since.
        """
        if not self._inline:  # the database is being closed
            return
        if not self._turn.acquire(blocking=False):  # the thread commits, or runs a checkpoint
            self._loop.call_later(SETTLE_AGAIN_MS / 1000, self._settle)
            return
        self._settles = False
        try:
            if self._lock.acquire_nowait(brief=True):
                try:
                    if self._log.continues():
                        self._log.record_end()
                finally:
                    self._lock.release()
            if self._notifier.find_instances():
                self._notifier.wake()
        finally:
            self._turn.release()

    def _wait_synced(self, job: AwaitedJob[T]) -> None:
        """Wait a moment for the commit of a job without giving other tasks a turn."""
        if job.future is None:
            return
        if self._callbacks.wait(SYNC_WAIT_MS_MAX / 1000):
            self._wait_pause_ms = SYNC_WAIT_MS_MAX
            return
        self._wait_from = self._loop.time() + self._wait_pause_ms / 1000
        self._wait_pause_ms = min(2 * self._wait_pause_ms, INLINE_PAUSE_MS_MAX)

    def stop_inline(self) -> None:
        """Let the thread do everything from now on."""
        self._inline = False

    def _holder_pid(self) -> int | None:
        try:
            holder = self._lock.holder()
        except OSError:  # too many open files, or the file was removed; the pid is only for display
            return None
        return None if holder is None else holder.pid

    # --- on the writer's thread -----------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Run the checkpoint that is due after commits on the event loop, which go on during its longest part."""
        try:
            self.checkpointer.sync_log()
            with self._turn:
                self.checkpointer.run()
        except BaseException as why:
            self._stop(why)
        finally:
            self._checkpoint_due = False

    def shorten(self) -> bool:
        """See `Database.shorten`. Runs on the writer's thread."""
        try:
            with self._turn:
                return self._committer.stopped is None and self.checkpointer.shorten()
        except (OSError, sqlite3.Error):
            raise
        except BaseException as why:
            self._stop(why)
            raise

    def _run_batch(self) -> None:
        with self._turn:
            if self._committer.stopped is not None:
                self._send(self._committer.run_batch(self._queue))
                return
            self._lock_wanted_ms = self._clock.monotonic_ms()
            self._lock.acquire()
            self._lock_wanted_ms = None
            # While the event loop wakes up, the thread does the rest. Where jobs run inline, the callers continue
            # after it, so that their next jobs find the turn free.
            sent = not self._inline
            batch = self._commit(self._send if sent else None, self._log.after_batch)
            if batch is None:
                return
            if batch.changed:
                self._notifier.notify()
                if self.checkpointer.is_due(_size_bytes(batch)):
                    if not sent:
                        self._send(batch)
                    sent = True
                    self.checkpointer.run()
                elif self._synced:
                    self._room.keep(self._log.frames)
        if not sent:
            self._awake = False  # `_drain` looks at the queue after this
            self._send(batch)

    def _commit(
        self, send: Callable[[CommitBatch], None] | None, note: Callable[[], None]
    ) -> CommitBatch | None:
        """Run the waiting jobs in one commit, and release write.lock, which is held. None if BEGIN failed.

        note: called after a commit, inside the lock. send: called with the batch after that.
        """
        try:
            self._log.before_batch()
            batch = self._committer.run_batch(self._queue)
            if batch.changed:
                note()
            if send is not None:
                send(batch)
            return batch
        except sqlite3.OperationalError as why:
            # BEGIN failed. If a program that ignores write.lock holds SQLite's own lock, the jobs keep waiting.
            if primary_code(why) != sqlite3.SQLITE_BUSY:
                self._committer.stop(f"a transaction could not begin ({why})")
            return None
        finally:
            self._lock.release()


def _size_bytes(batch: CommitBatch) -> int:
    return sum([job.size_bytes for job in batch.jobs])
