"""Keeps zeros behind the end of the log (WAL), so that synced commits overwrite blocks instead of adding some.

A sync after a write beyond the end of a file also waits for the file system to record the new length and blocks: on
ext4 it takes 1.4 to 2 times as long as one after an overwrite. SQLite overwrites the log once a checkpoint has copied
it, and until then adds to it, which is what most synced commits of a young directory pay for.

Zeros are not part of the log: recovery ends at a frame without the salts of its header. They are appended atomically,
so they never overwrite what another process has written meanwhile.
Source: SQLite's "WAL-mode file format", section 2.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import attrs

from eventproc.store.database.connection import PAGE_BYTES

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
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
