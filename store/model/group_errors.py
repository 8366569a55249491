"""Errors of reader groups. Users import them from `eventproc.errors`."""

from __future__ import annotations

from typing import Final

from eventproc.store.model.errors import Fenced, Pending, Rejected, error

OWNERS: Final = {
    "readers": "readers",
    "processor": "a processor",
    "share": "share consumers",
    "kafka": "clients of Kafka",
    "pravega": "clients of Pravega",
}
"""Who a group of each kind belongs to, in words."""

LOST_SHOWN_MAX: Final = 5
"""Events that the text of `LockLost` names; its field names all of them."""


@error
class ReaderOnline(Rejected):
    """A live process reads under that reader id; ids are unique within a group.

    Use another id, or end that reader first.
    """

    group: str
    reader: str
    pid: int | None

    def __str__(self) -> str:
        owner = f"process {self.pid}" if self.pid is not None else "a live process"
        return f"{self.group}: reader {self.reader!r} is online in {owner}; use another id, or end that one first"


@error
class NotAReaderGroup(Rejected):
    """The group belongs to a processor, or to clients of Kafka or Pravega, so readers cannot join it.

    Read the stream directly, or create another reader group.
    """

    group: str
    streams: tuple[str, ...]
    kind: str = "processor"

    def __str__(self) -> str:
        owners = OWNERS.get(self.kind, self.kind)
        streams = " and ".join(self.streams) or "its streams"
        return (
            f"group {self.group!r} belongs to {owners}; read {streams} directly, or create another reader group "
            f"(`eventproc group create`)"
        )


@error
class AssignorDiffers(Rejected):
    """The reader brought an own assignor that is not the one of the group, so it did not join.

    Join without it, or change the assignor of the group.
    """

    _text = (
        "{group}: the group uses the assignor {assignor!r}, and the reader brought {brought!r}; "
        "join without it, or change the assignor of the group"
    )
    group: str
    assignor: str
    brought: str


@error
class GroupStreamReplaced(Rejected):
    """A stream of the group was deleted, and another stream, or none, has its name now.

    Reset the group by name: `eventproc group reset GROUP`.
    """

    group: str
    stream: str
    stream_id: int
    current_id: int | None

    def __str__(self) -> str:
        now = f"is now stream {self.current_id}" if self.current_id is not None else "is gone"
        return (
            f"{self.group} reads stream {self.stream_id} of {self.stream}, which was deleted; the name {now}. "
            f"Reset the group by name to go on (`eventproc group reset {self.group}`)"
        )


@error
class GroupNotEmpty(Rejected):
    """The group has consumers online, which would continue elsewhere or be fenced; nothing was changed.

    Stop them first, or declare those offline that hang: one that runs joins again.
    """

    group: str
    event: str
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.group}: {self.event} needs a group without consumers online, and {', '.join(self.readers)} "
            f"{'is' if len(self.readers) == 1 else 'are'}; nothing was changed. Stop them first, or declare "
            f"those offline that hang (`eventproc group offline {self.group} READER`): one that runs joins again"
        )


@error
class TooManyCheckpoints(Rejected):
    """The group has as many checkpoints under way as are allowed simultaneously.

    Wait for one of them, or declare the reader offline that delays them.
    """

    group: str
    outstanding: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.group}: checkpoints {', '.join(self.outstanding)} are under way; wait for one of them, "
            f"or declare the reader offline that delays them (`eventproc group offline {self.group} READER`)"
        )


@error
class CheckpointPending(Pending):
    """The wait ended before every reader had reported its position; the checkpoint goes on.

    Wait again, or declare a hanging reader offline.
    """

    group: str
    checkpoint: str
    waited_ms: int
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.group}: checkpoint {self.checkpoint} is not complete after {self.waited_ms / 1000:.1f} s; "
            f"it goes on, and waits for {', '.join(self.readers)}. A reader passes it when it asks for its next "
            f"event; a hanging reader can be declared offline (`eventproc group offline {self.group} READER`)"
        )


@error
class SegmentFenced(Fenced):
    """A segment of a group was taken from the reader that owned it; nothing was written.

    Continue with the reader's other segments; the new owner reads this one.
    """

    group: str
    reader: str
    stream_id: int
    segment: str
    owner_epoch: int

    def __str__(self) -> str:
        what = f"segment {self.segment}" + (f" of stream {self.stream_id}" if self.stream_id else "")
        if self.owner_epoch < 0:
            return f"{self.group}: {what} is not assigned to reader {self.reader!r}"
        return f"{self.group}: {what} was taken from reader {self.reader!r} (owner epoch {self.owner_epoch})"


@error
class ReaderFenced(Fenced):
    """Another process has taken over this reader's id; nothing was written.

    Open a new reader. This one was considered dead, or was declared offline.
    """

    _text = "{group}: reader {reader!r} was taken over by another process; nothing was written"
    group: str
    reader: str


@error
class LockLost(Fenced):
    """The consumer no longer holds some of the events: their lock expired or ended, or they were settled before.

    Nothing changed. Drop the effects of these events if possible, because another consumer may handle them; settle
    the others again without them.
    """

    group: str
    consumer: str
    events: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.events) - LOST_SHOWN_MAX
        shown = ", ".join(self.events[:LOST_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
        return (
            f"{self.group}: consumer {self.consumer!r} does not hold {shown}; nothing was changed. The lock ended, or "
            f"the event was settled before: choose a longer lock_ms, or renew it while the handler works"
        )


@error
class JobFailed(Rejected):
    """A job failed in all of its attempts, and is a dead letter now.

    Mend the cause, and retry the job.
    """

    _text = "job {job} of {group} failed: {reason}"
    group: str
    job: str
    reason: str


@error
class JobCancelled(Rejected):
    """The job was cancelled, or its stream was deleted.

    Submit it again under another id, if it shall be done.
    """

    _text = "job {job} of {group} was cancelled"
    group: str
    job: str


@error
class ShareStreamsDeleted(Rejected):
    """All streams of a share group were deleted.

    Reset the group to streams that exist, or delete it: `eventproc share reset GROUP --stream SCOPE/STREAM`.
    """

    _text = (
        "{group}: all its streams were deleted. Reset it to streams that exist "
        "(`eventproc share reset {group} --stream SCOPE/STREAM`), or delete it"
    )
    group: str
