"""Named points at which a test may inject a failure of the process or the disk.

Production uses `NO_FAULTS`, which does nothing. The points are part of the contract of the code that reaches them.
Tests count them, so that a test can loop over a death at every step.
"""

from __future__ import annotations

WRITE_BEGUN = "write.begun"
"""In the writer, after BEGIN IMMEDIATE of a batch, before its first function."""
WRITE_COMMIT = "write.commit"
"""In the writer, before COMMIT of a batch: a death here loses the batch."""
WRITE_COMMITTED = "write.committed"
"""In the writer, after COMMIT and before any acknowledgement: a death here leaves the batch durable but
unacknowledged."""
CHECKPOINT = "checkpoint"
"""In the writer, before a checkpoint."""
LAST_CLOSE = "close.last"
"""In the last process that closes the directory, before it copies the log into the file."""
LAST_CLOSE_COPIED = "close.copied"
"""There, after the copy and before the file is marked as complete."""
LAST_CLOSE_MARKED = "close.marked"
"""There, after the mark and before the log is cut to nothing."""
BACKUP_COPIED = "backup.copied"
"""In a backup, when all files are copied and before the copy of the database gets its name."""
BACKUP_WRITTEN = "backup.written"
"""In a backup, when all files are durable and before the folder gets its name."""
BACKUP_NAMED = "backup.named"
"""In a backup, after the folder got its name and before that is durable."""
RESTORE_COPIED = "restore.copied"
"""In a restore, when all files are copied and durable, and before any is moved into place."""
RESTORE_MOVED = "restore.moved"
"""In a restore, after the files with events were moved into place and before the database is."""


class Died(BaseException):
    """An injected death of the process. Code must not handle it."""


class Faults:
    """Fault points that never fail. Subclasses in `eventproc.testing` do."""

    def reach(self, point: str) -> None:
        """Report that execution reached `point`. A subclass may raise, kill or count here."""


NO_FAULTS = Faults()
