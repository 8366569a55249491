"""The bell: one byte into the FIFO of every other instance tells it that something was committed.

It carries no meaning beyond "look": the woken one asks the database what changed. A full FIFO, a dead owner,
a lost notify are all harmless, for a full one wakes its owner anyway, and `PRAGMA data_version`, once a second,
is the net below (architecture.md section 1, "Bell").
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from eventproc.store.clock import Clock
from eventproc.store.database import fork_safety, instances
from eventproc.store.database.directory_watch import DirectoryWatch

_FIFO_BYTES: Final = 65536
"""Capacity of a FIFO on Linux; one read of this size empties it."""


class CommitNotifier(fork_safety.ProcessBound):
    """Rings all instances of a directory but `own_id`. For one thread, the writer's."""

    def __init__(self, directory: Path, own_id: str, clock: Clock) -> None:
        super().__init__()
        self._home = directory / instances.DIRECTORY
        self._directory_watch = DirectoryWatch(self._home, clock)
        self._own_id = own_id
        self._bells: dict[str, int] = {}

    def notify(self) -> None:
        """Wake everyone else. Never waits, never raises for what others do. 2.5 us, and 0.7 us per instance."""
        self.check_fork("the bell")
        if self._directory_watch.may_have_changed() and self._scan():
            self._directory_watch.mark_seen()
        for descriptor in self._bells.values():
            with contextlib.suppress(BlockingIOError):  # full: it has enough reasons to wake up
                os.write(descriptor, b"\0")

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in self._bells.values():
            fork_safety.close_private(descriptor)
        self._bells.clear()

    def _scan(self) -> bool:
        """Open the bells of who came, close those of who left. Return False to be asked again at the next notify."""
        try:
            names = {entry.name for entry in self._home.iterdir() if entry.suffix == instances.FIFO}
        except FileNotFoundError:  # somebody removed all of it
            names = set()
        except OSError:  # for want of descriptors
            return False
        names.discard(self._own_id + instances.FIFO)
        for gone in self._bells.keys() - names:
            fork_safety.close_private(self._bells.pop(gone))
        complete = True
        for new in names - self._bells.keys():
            try:
                # Not for writing only: a write to a FIFO that lost its reader raises SIGPIPE, and a
                # program that restored its default, as filters do, would die of another's death.
                self._bells[new] = fork_safety.open_private(self._home / new, os.O_RDWR | os.O_NONBLOCK)
            except FileNotFoundError:  # it left while we looked
                continue
            except OSError:
                complete = False
        return complete


def drain(fifo_fd: int) -> bool:
    """Take all rings out of one's own bell; whether there were any. Never waits."""
    try:
        return bool(os.read(fifo_fd, _FIFO_BYTES))
    except BlockingIOError:
        return False
