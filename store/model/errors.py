"""Errors, sorted by what the caller should do next.

Four classes say what to do: `Retryable` (nothing changed; try again), `Rejected` (wrong in the present
state; repeating cannot help), `Fenced` (a newer owner exists; stop) and `Corrupt` (stored bytes break an
invariant; a person must look). The details are fields, the text is for people, and every error pickles
with its fields. Source: architecture.md section 4.
"""

from __future__ import annotations

from eventproc.store.model.errors import Corrupt as Corrupt
from eventproc.store.model.errors import EventprocError as EventprocError
from eventproc.store.model.errors import Fenced as Fenced
from eventproc.store.model.errors import Rejected as Rejected
from eventproc.store.model.errors import Retryable as Retryable
from eventproc.store.model.errors import error as error
from eventproc.store.model.group_errors import CheckpointPending as CheckpointPending
from eventproc.store.model.group_errors import GroupStreamReplaced as GroupStreamReplaced
from eventproc.store.model.group_errors import NotAReaderGroup as NotAReaderGroup
from eventproc.store.model.group_errors import ReaderFenced as ReaderFenced
from eventproc.store.model.group_errors import ReaderOnline as ReaderOnline
from eventproc.store.model.group_errors import ScopeNotEmpty as ScopeNotEmpty
from eventproc.store.model.group_errors import SegmentFenced as SegmentFenced
from eventproc.store.model.group_errors import TooManyCheckpoints as TooManyCheckpoints


@error
class VersionConflict(Retryable):
    """A record changed between its read and its replace."""

    key: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"{self.key}: expected version {self.expected}, found {self.actual}"


@error
class LockHeld(Retryable):
    """Another process kept a lock of the directory until this call's deadline."""

    path: str
    pid: int | None
    for_ms: int

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid is not None else "another process"
        return (
            f"{self.path} has been held by {holder} for {self.for_ms / 1000:.1f} s; this was not written. "
            f"If that process is stopped, continue it (kill -CONT) or end it, then try again"
        )


@error
class DirectoryInUse(Retryable):
    """Something that needs the directory for itself, while other processes have it open."""

    path: str
    pids: tuple[int, ...]

    def __str__(self) -> str:
        who = f"process {', '.join(map(str, self.pids))}" if self.pids else "another process"
        return f"{self.path} is open in {who}; nothing was changed. Close it there and try again"


@error
class DiskFull(Retryable):
    """The disk, or a quota on it, is full; the transaction was rolled back."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: the disk is full; this was not written. Free some space and try again"


@error
class StillPending(Retryable):
    """The wait ended before the request did; the request goes on and may be waited for again."""

    request_id: str
    target: str
    waited_ms: int

    def __str__(self) -> str:
        return (
            f"{self.target}: request {self.request_id} is still running after {self.waited_ms / 1000:.1f} s; "
            f"it goes on. Wait again with `eventproc request wait {self.request_id}`"
        )


@error
class NotFound(Rejected):
    """No object of that kind has that name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"no {self.kind} {self.name!r}"


@error
class AlreadyExists(Rejected):
    """The object is there already, and differs in the named fields."""

    kind: str
    name: str
    differing: tuple[str, ...] = ()
    remedy: str = ""

    def __str__(self) -> str:
        if not self.differing:
            return f"{self.kind} {self.name!r} exists already; {self.remedy or 'take another name'}"
        remedy = self.remedy or "use it as it is, or take another name"
        return (
            f"{self.kind} {self.name!r} exists already and differs in {', '.join(self.differing)}; {remedy}"
        )


@error
class InvalidArgument(Rejected):
    """A value that no state of the system would accept: a bad name, range, number or option."""

    what: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what} {self.value!r}: {self.reason}"


@error
class NotSupported(Rejected):
    """Something that is understood but not enforced, and therefore refused rather than ignored."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what} is not supported; {self.remedy}"


@error
class IllegalTransition(Rejected):
    """The state of the object does not allow that event; nothing changed."""

    state: str
    event: str
    name: str = ""

    def __str__(self) -> str:
        subject = f"{self.name}: " if self.name else ""
        return f"{subject}{self.event.replace('_', ' ')} is not possible in state {self.state}"


@error
class InProgress(Rejected):
    """A different request of the same kind is still running on the same object."""

    target: str
    kind: str
    request_id: str

    def __str__(self) -> str:
        wait = f"`eventproc request wait {self.request_id}`"
        return f"{self.target}: another {self.kind} is in progress; wait for it with {wait}"


@error
class ScaleRefused(Rejected):
    """A scale whose precondition does not hold: a segment is not active, or too few would remain."""

    stream: str
    reason: str

    def __str__(self) -> str:
        return f"{self.stream}: {self.reason}"


@error
class InvalidCut(Rejected):
    """A stream cut that is not one of this stream, or does not cover its key space exactly once."""

    stream: str
    cut: str
    reason: str

    def __str__(self) -> str:
        return f"{self.stream}: the cut {self.cut} is not valid: {self.reason}"


@error
class StreamReplaced(Rejected):
    """The handle, cut or position belongs to a deleted stream of the same name."""

    stream: str
    stream_id: int
    current_id: int | None

    def __str__(self) -> str:
        now = f"is now stream {self.current_id}" if self.current_id is not None else "was deleted"
        return f"{self.stream}: this belongs to stream {self.stream_id}, which {now}; open it again by name"


@error
class StreamSealed(Rejected):
    """The stream accepts no more events, for ever; reading goes on."""

    stream: str

    def __str__(self) -> str:
        return f"{self.stream} is sealed: it can be read and deleted, not written or changed"


@error
class SegmentSealed(Rejected):
    """The segment accepts no more events; its successors do."""

    stream: str
    segment: str

    def __str__(self) -> str:
        return f"{self.stream}: segment {self.segment} is sealed; write to its successors"


@error
class StreamNotSealed(Rejected):
    """Only a sealed stream can be deleted."""

    stream: str

    def __str__(self) -> str:
        return f"{self.stream} is not sealed; seal it first (`eventproc stream seal {self.stream}`)"


@error
class Truncated(Rejected):
    """The position lies before the head of the stream: the events there are gone.

    head: where the segment begins now, 0 when it is gone as a whole. head_cut: where reading can go on.
    """

    stream: str
    segment: str
    offset: int
    head: int
    head_cut: str = ""

    def __str__(self) -> str:
        gone = f"{self.stream}: offset {self.offset} of segment {self.segment} was truncated"
        return f"{gone}; read on from the head, {self.head_cut}" if self.head_cut else gone


@error
class OffsetConflict(Rejected):
    """A conditional append whose expected offset is not the tail of the segment."""

    stream: str
    segment: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return f"{self.stream}: segment {self.segment} ends at {self.actual}, not at {self.expected}"


@error
class Expired(Rejected):
    """The request's deadline passed before its first step; it never ran."""

    target: str
    request_id: str

    def __str__(self) -> str:
        return f"{self.target}: request {self.request_id} did not start before its deadline and never will"


@error
class WriterFailed(Rejected):
    """An earlier write of this writer failed; what was posted after it was not written either."""

    stream: str
    reason: str

    def __str__(self) -> str:
        return f"{self.stream}: an earlier write failed ({self.reason}); call flush() to see it and go on"


@error
class Closed(Rejected):
    """The handle was closed; open a new one."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} is closed"


@error
class ForkedError(Rejected):
    """A handle opened before a fork was used in the child."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} was opened before a fork; open it again in the child process"


@error
class StoreMissing(Rejected):
    """The directory is not there, or holds nothing of ours."""

    path: str

    def __str__(self) -> str:
        return f"no eventproc directory at {self.path}; make one with `eventproc init {self.path}`"


@error
class StoreUnusable(Rejected):
    """The directory is there but cannot be used: not ours, newer, read-only, on a network file system."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@error
class OwnerFenced(Fenced):
    """A newer owner took over what this process believed to own."""

    what: str
    owner_epoch: int
    current_epoch: int

    def __str__(self) -> str:
        return f"{self.what}: owner epoch {self.owner_epoch} was fenced by {self.current_epoch}"


@error
class WriterFenced(Fenced):
    """Another writer of the same name wrote to the stream since; its sends and this one's would mix."""

    stream: str
    writer: str

    def __str__(self) -> str:
        return f"{self.stream}: another writer named {self.writer!r} has written since; nothing was written"


@error
class CorruptRecord(Corrupt):
    """Stored bytes that cannot be what was written."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}; run `eventproc doctor` and restore a backup"


@error
class InvariantBroken(Corrupt):
    """A replace would break an invariant that is attached to the record's kind."""

    key: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


@error
class WorkflowFailed(Corrupt):
    """A workflow raised what it never should; its request was given up, and what it changed was undone."""

    target: str
    kind: str
    reason: str

    def __str__(self) -> str:
        return f"{self.target}: {self.kind} failed unexpectedly ({self.reason}); the log of the host has more"


@error
class DatabaseStopped(Corrupt):
    """The database failed in a way that leaves its last transaction unknown; this handle has stopped."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; this handle has stopped. Close it, look at the disk, open again"
