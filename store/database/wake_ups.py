"""Wakes other instances after a commit, with one byte into the FIFO of each, and finds out what they committed.

The byte only says that something was committed; the woken instance asks the database what changed. A full FIFO, a dead
owner and a lost byte are harmless: a full FIFO wakes its owner anyway, and every instance reads `PRAGMA data_version`
once a second as a fallback (architecture.md section 1, "Notification").

A byte in this instance's FIFO says that something was committed; reading `PRAGMA data_version` once a second finds
commits whose notification was lost. Either leads to one read that runs the probes of all watches. While it runs,
further notifications lead to one more read. Source: architecture.md section 1, "Notification"; reference pitfalls.md
S2.23.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final, Generic

from eventproc.base.clock import Clock
from eventproc.store.database.commit_batch import CommitJob
from eventproc.store.database.connections import C, ReaderPool
from eventproc.store.database.database import Subscriptions, Watch, run_probes
from eventproc.store.database.files import DirectoryWatch
from eventproc.store.database.instances import DIRECTORY, FIFO
from eventproc.store.database.locks import ProcessBound, close_private, open_private
from eventproc.store.database.tx import Connection, Tx

_FIFO_BYTES: Final = 65536
"""Capacity of a FIFO on Linux; one read of this size empties it."""


class CommitNotifier(ProcessBound):
    """Wakes all instances of a directory except `own_id`. For use by the writer's thread."""

    def __init__(self, directory: Path, own_id: str, clock: Clock) -> None:
        super().__init__()
        self._home = directory / DIRECTORY
        self._directory_watch = DirectoryWatch(self._home, clock)
        self._own_id = own_id
        self._fifos: dict[str, int] = {}

    def notify(self) -> None:
        """Wake all other instances. Never waits, and ignores their failures. 2.5 us, plus 0.7 us per instance."""
        self.find_instances()
        self.wake()

    def find_instances(self) -> bool:
        """Find the other instances; return whether some may have come or gone. 2 us."""
        self.check_fork("the notifier")
        if not self._directory_watch.may_have_changed():
            return False
        if self._scan():
            self._directory_watch.mark_seen()
        return True

    def wake(self) -> None:
        """Wake the instances that `find_instances` has found."""
        for descriptor in self._fifos.values():
            with contextlib.suppress(BlockingIOError):  # full: the instance wakes up anyway
                os.write(descriptor, b"\0")

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self._fifos.values():
            close_private(descriptor)
        self._fifos.clear()

    def _scan(self) -> bool:
        """Open the FIFOs of new instances and close those of gone ones. Return False if some could not be opened."""
        try:
            names = {entry.name for entry in self._home.iterdir() if entry.suffix == FIFO}
        except FileNotFoundError:  # the directory was removed
            names = set()
        except OSError:  # too many open files
            return False
        names.discard(self._own_id + FIFO)
        for gone in self._fifos.keys() - names:
            close_private(self._fifos.pop(gone))
        complete = True
        for new in names - self._fifos.keys():
            try:
                # O_RDWR, because a write to a FIFO without a reader raises SIGPIPE: a program that restored the
                # default action of that signal, as filters do, would die when another instance dies.
                self._fifos[new] = open_private(self._home / new, os.O_RDWR | os.O_NONBLOCK)
            except FileNotFoundError:  # the instance closed meanwhile
                continue
            except OSError:
                complete = False
        return complete


def drain(fifo_fd: int) -> bool:
    """Empty the FIFO of this instance; return whether it held a notification. Never waits."""
    try:
        return bool(os.read(fifo_fd, _FIFO_BYTES))
    except BlockingIOError:
        return False


LOG = logging.getLogger(__name__)

TRY_AGAIN_S: Final = 1
"""Pause before another attempt to read what other processes changed, in s. Higher: waiters learn of it later. Lower:
more attempts while a server is away."""


class CommitListener(Generic[C]):
    """Wakes subscriptions after commits of other processes. All methods run on the event loop and do not wait."""

    def __init__(self, *, subscriptions: Subscriptions, readers: ReaderPool[C]) -> None:
        self._subscriptions = subscriptions
        self._readers = readers
        self._reading = False
        self._notified = False
        self._stopped = False

    def stop(self) -> None:
        """Stop listening. The result of a running read is ignored."""
        self._stopped = True

    def notice(self) -> None:
        """Run the probes, because another process has committed something."""
        if not self._stopped:
            self._read_changes(lambda _: True, certain=True)

    def _read_changes(self, may_have_changed: Callable[[Tx], bool], *, certain: bool) -> None:
        """Run the probes in a read, unless nothing may have changed. certain: if a read runs, another follows."""
        watches = self._subscriptions.watches
        if self._reading:
            self._notified = self._notified or certain
        elif watches:
            self._reading = True

            def fn(tx: Tx) -> dict[Watch, Hashable]:
                return run_probes(watches, tx) if may_have_changed(tx) else {}

            job = CommitJob(fn, 0)
            self._readers.submit(job, lambda: self._on_result(job))

    def _on_result(self, job: CommitJob[dict[Watch, Hashable]]) -> None:
        self._reading = False
        if self._stopped:
            return
        try:
            self._subscriptions.compare(job.result())
        except Exception:
            LOG.warning(
                "failed to read what other processes changed; the next attempt follows in a second",
                exc_info=True,
            )
            asyncio.get_running_loop().call_later(TRY_AGAIN_S, self.notice)
        if self._notified:
            self._notified = False
            self.notice()


class FifoListener(CommitListener[sqlite3.Connection]):
    """Listens for the commits of other processes to a file: for bytes in a FIFO, and for changes of data_version."""

    def __init__(
        self,
        *,
        fifo_fd: int,
        subscriptions: Subscriptions,
        readers: ReaderPool[sqlite3.Connection],
        poll_ms: int,
    ) -> None:
        """poll_ms: pause between two reads of data_version."""
        super().__init__(subscriptions=subscriptions, readers=readers)
        self._fifo_fd = fifo_fd
        self._poll_s = poll_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._versions: dict[Connection, int] = {}

    def start(self) -> None:
        """Start listening."""
        self._loop.add_reader(self._fifo_fd, self._on_notification)
        self._timer = self._loop.call_later(self._poll_s, self._on_timer)

    def stop(self) -> None:
        """See `CommitListener.stop`."""
        super().stop()
        self._loop.remove_reader(self._fifo_fd)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_notification(self) -> None:
        drain(self._fifo_fd)
        self._read_changes(self._note_version, certain=True)

    def _on_timer(self) -> None:
        self._timer = self._loop.call_later(self._poll_s, self._on_timer)
        self._read_changes(self._version_changed, certain=False)

    def _note_version(self, tx: Tx) -> bool:
        self._version_changed(tx)
        return True

    def _version_changed(self, tx: Tx) -> bool:
        # Only a difference to the previous number of the same connection has a meaning.
        (version,) = tx.execute("PRAGMA data_version").fetchone()
        before = self._versions.get(tx.connection)
        self._versions[tx.connection] = version
        return bool(before != version)
