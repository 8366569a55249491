"""Errors of reader groups, and of what holds them; `errors` is where everyone imports them from."""

from __future__ import annotations

from eventproc.store.model.advice import Fenced, Rejected, Retryable, error


@error
class ReaderOnline(Rejected):
    """A live process reads under that id; ids are unique within a group."""

    group: str
    reader: str
    pid: int | None

    def __str__(self) -> str:
        who = f"process {self.pid}" if self.pid is not None else "a live process"
        return (
            f"{self.group}: reader {self.reader!r} is online in {who}; use another id, or end that one first"
        )


@error
class NotOfReaders(Rejected):
    """The group is there, and a processor's: what a reader took of it the processor would never handle."""

    group: str
    streams: tuple[str, ...]

    def __str__(self) -> str:
        streams = " and ".join(self.streams)
        return (
            f"group {self.group!r} is a processor's, which would not handle what a reader takes; "
            f"read {streams} itself, or make a group of readers (`eventproc group create`)"
        )


@error
class GroupStreamReplaced(Rejected):
    """A stream of the group was deleted; what has its name now is another one, or nothing."""

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
    """As many checkpoints of the group are under way as may be at once."""

    group: str
    outstanding: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.group}: checkpoints {', '.join(self.outstanding)} are under way; wait for one of them, "
            f"or declare the reader offline that holds them up (`eventproc group offline {self.group} READER`)"
        )


@error
class CheckpointPending(Retryable):
    """The wait ended before every reader had said where it stands; the checkpoint goes on."""

    group: str
    checkpoint: str
    waited_ms: int
    readers: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.group}: checkpoint {self.checkpoint} is not complete after {self.waited_ms / 1000:.1f} s; "
            f"it goes on, and waits for {', '.join(self.readers)}. A reader passes it when it asks for its next "
            f"event; one that hangs can be declared offline (`eventproc group offline {self.group} READER`)"
        )


@error
class SegmentFenced(Fenced):
    """A segment of a group was taken from the reader that believed to own it; nothing was written."""

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
    """Another process reads under this reader's id since: this one was taken for dead, or was expired by hand."""

    group: str
    reader: str

    def __str__(self) -> str:
        return f"{self.group}: reader {self.reader!r} was taken over by another process; nothing was written"


@error
class ScopeNotEmpty(Rejected):
    """The scope still has streams, or reader groups."""

    scope: str
    streams: int
    groups: int

    def __str__(self) -> str:
        held = f"{self.streams} streams and {self.groups} groups"
        return f"scope {self.scope!r} has {held}; delete them first, or the scope with all that is in it (recursive)"
