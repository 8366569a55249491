"""Named points at which a test may inject a failure of the process or the disk.

Production uses `NO_FAULTS`, which does nothing. The points are part of the contract of the code that reaches them.
Tests count them, so that a test can loop over a death at every step.

Each `Step` names one kind of database transaction, and has three points: see `Moment`.
"""

from __future__ import annotations

import enum
from typing import Final

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


class Step(enum.StrEnum):
    """A kind of database transaction, by what it does."""

    WRITER_APPEND = "writer.append"
    """A writer makes events durable."""
    TRANSACTION_BEGIN = "transaction.begin"
    """A transaction becomes visible to other processes."""
    TRANSACTION_STAGE = "transaction.stage"
    """A batch of a transaction is stored, not visible to readers yet."""
    TRANSACTION_PING = "transaction.ping"
    """A transaction renews its lease."""
    TRANSACTION_END = "transaction.end"
    """A transaction commits or aborts."""
    TRANSACTION_TIMEOUT = "transaction.timeout"
    """The host aborts transactions whose lease or process ended."""
    PROCESSOR_SET_UP = "processor.set_up"
    """An app creates its groups and runs its setup functions."""
    STATE_CHANGE = "state.change"
    """A caller stores or deletes states of keys."""
    TABLES_CHANGE = "tables.change"
    """A function of the user changes its tables."""
    PROCESSOR_PROGRESS = "processor.progress"
    """A processor makes its progress durable, with what its handlers emitted, their SQL and dead letters."""
    PROCESSOR_WATERMARK = "processor.watermark"
    """Event time goes on for a processor with timers."""
    PROCESSOR_SKIP = "processor.skip"
    """A processor moves over events that were truncated."""
    PROCESSOR_STATUS = "processor.status"
    """A processor publishes its status."""
    PROCESSOR_PAUSE = "processor.pause"
    """A processor is paused or resumed."""
    DEAD_LETTER_DECIDE = "dead_letter.decide"
    """Dead letters are written again or discarded."""
    GROUP_CREATE = "group.create"
    """A reader group is created."""
    GROUP_CHANGE = "group.change"
    """A reader group is reset, or a reader is declared offline."""
    GROUP_DELETE = "group.delete"
    """A reader group is deleted."""
    GROUP_JOIN = "group.join"
    """A reader or a processor joins its group."""
    GROUP_REFRESH = "group.refresh"
    """A member takes its segments, writes a heartbeat, or removes dead members."""
    GROUP_RELEASE = "group.release"
    """A member hands segments over."""
    GROUP_LEAVE = "group.leave"
    """A member leaves its group."""
    GROUP_PROGRESS = "group.progress"
    """A reader makes its progress durable."""
    GROUP_SKIP = "group.skip"
    """A reader moves over events that were truncated."""
    GROUP_CHECKPOINT = "group.checkpoint"
    """A checkpoint begins."""
    GROUP_EXPIRE = "group.expire"
    """A checkpoint removes dead readers."""
    SHARE_CREATE = "share.create"
    """A share group is created."""
    SHARE_CHANGE = "share.change"
    """A share group is reset."""
    SHARE_DELETE = "share.delete"
    """A share group is deleted."""
    SHARE_ACQUIRE = "share.acquire"
    """A consumer locks events, and what it accepted before is stored."""
    SHARE_SETTLE = "share.settle"
    """A consumer accepts, releases, rejects or renews events."""
    SCOPE_CREATE = "scope.create"
    """A scope is created."""
    SCOPE_DELETE = "scope.delete"
    """An empty scope is deleted."""
    REQUEST_SUBMIT = "request.submit"
    """A request is stored: create, update, scale, truncate, seal, delete."""
    REQUEST_RUN = "request.run"
    """The host runs one step of a request; the last one writes the outcome."""
    HOST_CLAIM = "host.claim"
    """An instance becomes the host."""
    HOST_PROGRESS = "host.progress"
    """The host makes decided transactions visible, and moves its own progress."""
    HOST_SWEEP = "host.sweep"
    """The host frees what is no longer readable."""
    SUPERVISOR_RUN = "supervisor.run"
    """A supervisor handles a notice."""
    SUPERVISOR_CHANGE = "supervisor.change"
    """A supervisor is submitted, suspended, resumed, reset or terminated, or asked to hand over."""
    HOST_FAILOVER = "host.failover"
    """The host frees what a dead instance held of a group."""
    BUCKET_SHARE = "bucket.share"
    """An instance takes part in periodic work, or takes over the buckets of a dead one."""
    CONTAINER_SHARE = "container.share"
    """A serving process joins or leaves, or takes over the segments of a dead one."""
    DELAYED_DELIVERY = "delayed.delivery"
    """The host appends delayed events that are due."""
    DELAYED_CHANGE = "delayed.change"
    """A delayed event is cancelled or moved, or a schedule changes."""
    JOB_CHANGE = "job.change"
    """A job is submitted, cancelled or retried."""
    TASK_SUBMIT = "task.submit"
    """A task is stored, or asked to end."""
    TASK_START = "task.start"
    """An instance starts a task, or takes over that of a dead one."""
    TASK_RUN = "task.run"
    """A task makes a step durable, with its progress."""
    TASK_END = "task.end"
    """A task ends: its outcome is stored."""
    EXTENT_JOIN = "extent.join"
    """Small runs of events are joined."""
    OFFLOAD = "offload"
    """Events are moved to chunk files."""
    COMPACTION = "compaction"
    """Older events of keys are removed from a topic."""
    STATE_UPDATE = "state.update"
    """A shared state is created or changed."""
    STATE_COMPACT = "state.compact"
    """The log of a shared state is replaced by a snapshot."""


class Moment(enum.StrEnum):
    """When a step is at a fault point, named "<step>.<moment>"."""

    BEGUN = "begun"
    """The caller asks for the transaction; nothing of it ran."""
    COMMIT = "commit"
    """Its functions ran; a death here loses it."""
    COMMITTED = "committed"
    """It is durable, and its caller does not know yet."""


FILE_POINTS: Final = (
    WRITE_BEGUN,
    WRITE_COMMIT,
    WRITE_COMMITTED,
    CHECKPOINT,
    LAST_CLOSE,
    LAST_CLOSE_COPIED,
    LAST_CLOSE_MARKED,
    BACKUP_COPIED,
    BACKUP_WRITTEN,
    BACKUP_NAMED,
    RESTORE_COPIED,
    RESTORE_MOVED,
)
"""The points that belong to no step."""


def point_of(step: Step, moment: Moment) -> str:
    """Return the name of the point."""
    return f"{step}.{moment}"


class Died(BaseException):
    """An injected death of the process. Code must not handle it."""


class Faults:
    """Fault points that never fail. Subclasses in `eventproc.testing` do."""

    def reach(self, point: str) -> None:
        """Report that execution reached `point`. A subclass may raise, kill or count here."""

    def delay_ms(self, point: str) -> int:
        """Return how long the step that reached `point` waits, in ms. Asked at "begun" and "committed"."""
        return 0


NO_FAULTS = Faults()
