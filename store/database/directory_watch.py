"""Detects changes to a directory with one `stat`, so that a commit need not list it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from eventproc.store.clock import Clock

SETTLED_MS: Final = 100
"""Age from which the time of a directory's last change is trusted. File times advance in steps of up to 10 ms, so a
change right after a listing may have the same time. A higher value means more listings after each change."""

COARSE_SETTLED_MS: Final = 2_100
"""The same for file systems that store times in steps of one or two seconds, such as those with small inodes."""

_Change = tuple[int, int, int]
"""Device, inode and ctime. Programs cannot set the ctime; tools that restore backups set the other times."""


class DirectoryWatch:
    """Remembers when the entries of a directory last changed. For use by one thread."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._name = str(directory)  # `os.stat` of a str costs half of that of a Path
        self._clock = clock
        self._found: _Change | None = None
        self._noted: _Change | None = None

    def may_have_changed(self) -> bool:
        """Return whether an entry may have been added, removed or replaced since the last `mark_seen`. 1.5 us."""
        try:
            status = os.stat(self._name)
        except OSError:  # deleted, or not accessible
            self._found = None
            return True
        found = status.st_dev, status.st_ino, status.st_ctime_ns
        if found == self._noted:
            return False
        # Decided before the caller lists the entries: a change after the listing must not count as seen.
        self._found = found if self._is_settled(status.st_ctime_ns) else None
        return True

    def mark_seen(self) -> None:
        """Record that the caller listed the entries after the last call of `may_have_changed`."""
        self._noted = self._found

    def _is_settled(self, changed_ns: int) -> bool:
        enough_ms = SETTLED_MS if changed_ns % 1_000_000_000 else COARSE_SETTLED_MS
        return abs(self._clock.wall_ms() - changed_ns // 1_000_000) > enough_ms
