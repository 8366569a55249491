"""Whether entries of a directory came or went, for who would otherwise look at each of them in every commit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from eventproc.store.clock import Clock

SETTLED_MS: Final = 100
"""Age from which the time of a directory's last change is believed. File times step by up to 10 ms: a change within
the same step as a look, but after it, would stay unseen. Higher: more looks after each change."""

COARSE_SETTLED_MS: Final = 2_100
"""The same where the time is one of whole seconds, as file systems with small inodes store it, or of two."""

_Change = tuple[int, int, int]
"""Device, inode and time of the last change; nobody can set that time, as tools that restore backups set others."""


class DirectoryWatch:
    """Remembers when the entries of a directory were last changed. For one thread."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._name = str(directory)  # asking for a text costs half of asking for a Path
        self._clock = clock
        self._found: _Change | None = None
        self._noted: _Change | None = None

    def may_have_changed(self) -> bool:
        """Return whether some entry may have come, gone, or been replaced since the last `note`. 1.5 us."""
        try:
            status = os.stat(self._name)
        except OSError:  # it is gone, or nobody may look
            self._found = None
            return True
        found = status.st_dev, status.st_ino, status.st_ctime_ns
        if found == self._noted:
            return False
        # Judged before anybody looks at the entries: what changes after that must not pass for older.
        self._found = found if self._is_settled(status.st_ctime_ns) else None
        return True

    def mark_seen(self) -> None:
        """Say that the entries were looked at, after `may_have_changed` was asked."""
        self._noted = self._found

    def _is_settled(self, changed_ns: int) -> bool:
        enough_ms = SETTLED_MS if changed_ns % 1_000_000_000 else COARSE_SETTLED_MS
        return abs(self._clock.wall_ms() - changed_ns // 1_000_000) > enough_ms
