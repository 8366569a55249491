"""Named points at which a test may let the process, or the disk, fail.

Production uses `NO_FAULTS`, which does nothing. The points are part of the contract of the code that
reaches them; tests count them, so that "dies after every step" is a loop and not a list.
"""

from __future__ import annotations

WRITE_BEGUN = "write.begun"
"""In the writer, after BEGIN IMMEDIATE of a group, before its first function."""
WRITE_COMMIT = "write.commit"
"""In the writer, before COMMIT of a group: a death here loses the group."""
WRITE_COMMITTED = "write.committed"
"""In the writer, after COMMIT and before anyone is told: a death here makes the group durable, unacknowledged."""
CHECKPOINT = "checkpoint"
"""In the writer, before a checkpoint."""


class Died(BaseException):
    """An injected death: not an error to be handled, the process is gone."""


class Faults:
    """Fault points that never fail. Subclasses in `eventproc.testing` do."""

    def reach(self, point: str) -> None:
        """Announce that execution reached `point`; a subclass may raise, kill or count here."""


NO_FAULTS = Faults()
