"""Errors of reader groups. Users import them from `eventproc.errors`."""

from __future__ import annotations

from eventproc.store.model.errors import Fenced, Rejected, Retryable, error


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
    """The group belongs to a processor, so readers cannot join it.

    Read the stream directly, or create another reader group.
    """

    group: str
    streams: tuple[str, ...]

    def __str__(self) -> str:
        streams = " and ".join(self.streams)
        return (
            f"group {self.group!r} belongs to a processor; read {streams} directly, or create another reader group "
            f"(`eventproc group create`)"
        )


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
class CheckpointPending(Retryable):
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
        what = f"segment {self.segment} of stream {self.stream_id}"
        return f"{self.group}: {what} was taken from reader {self.reader!r} (owner epoch {self.owner_epoch})"


@error
class ReaderFenced(Fenced):
    """Another process has taken over this reader's id; nothing was written.

    Open a new reader. This one was considered dead, or was declared offline.
    """

    group: str
    reader: str

    def __str__(self) -> str:
        return f"{self.group}: reader {self.reader!r} was taken over by another process; nothing was written"
