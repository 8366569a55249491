"""The bell: one byte into the FIFO of every other instance tells it that something was committed.

It carries no meaning beyond "look": the woken one asks the database what changed. A full FIFO, a dead owner,
a lost ring are all harmless, for a full one wakes its owner anyway, and `PRAGMA data_version`, once a second,
is the net below (architecture.md section 1, "Bell").
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from eventproc.store.clock import Clock
from eventproc.store.database import fork, instances
from eventproc.store.database.entries import Entries

_FIFO_BYTES: Final = 65536
"""Capacity of a FIFO on Linux; one read of this size empties it."""


class Ringer(fork.Guarded):
    """Rings all instances of a directory but `own_id`. For one thread, the writer's."""

    def __init__(self, directory: Path, own_id: str, clock: Clock) -> None:
        super().__init__()
        self._home = directory / instances.DIRECTORY
        self._entries = Entries(self._home, clock)
        self._own_id = own_id
        self._bells: dict[str, int] = {}

    def ring(self) -> None:
        """Wake everyone else. Never waits, never raises for what others do. 2.5 us, and 0.7 us per instance."""
        self.check_fork("the bell")
        if self._entries.may_differ() and self._scan():
            self._entries.note()
        for descriptor in self._bells.values():
            with contextlib.suppress(BlockingIOError):  # full: it has enough reasons to wake up
                os.write(descriptor, b"\0")

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in self._bells.values():
            fork.close_private(descriptor)
        self._bells.clear()

    def _scan(self) -> bool:
        """Open the bells of who came, close those of who left. Return False to be asked again at the next ring."""
        try:
            names = {entry.name for entry in self._home.iterdir() if entry.suffix == instances.BELL}
        except FileNotFoundError:  # somebody removed all of it
            names = set()
        except OSError:  # for want of descriptors
            return False
        names.discard(self._own_id + instances.BELL)
        for gone in self._bells.keys() - names:
            fork.close_private(self._bells.pop(gone))
        complete = True
        for new in names - self._bells.keys():
            try:
                # Not for writing only: a write to a FIFO that lost its reader raises SIGPIPE, and a
                # program that restored its default, as filters do, would die of another's death.
                self._bells[new] = fork.open_private(self._home / new, os.O_RDWR | os.O_NONBLOCK)
            except FileNotFoundError:  # it left while we looked
                continue
            except OSError:
                complete = False
        return complete


def drain(bell_fd: int) -> bool:
    """Take all rings out of one's own bell; whether there were any. Never waits."""
    try:
        return bool(os.read(bell_fd, _FIFO_BYTES))
    except BlockingIOError:
        return False
