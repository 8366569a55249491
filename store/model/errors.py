"""Every error of the store and of streams, sorted by what the caller should do next.

Five classes say what to do: `Retryable` (try again), `Pending` (wait again), `Rejected` (wrong in the present state;
repeating cannot help), `Fenced` (a newer owner exists; stop) and `Corrupt` (the stored state needs a person). Details
are fields, the text is for people, and every error pickles with its fields.

The first sentence of a concrete error's docstring says when it is raised, the second paragraph what to do:
`docs/errors.md` is made of them. Users import from `eventproc.errors`. Source: architecture.md section 4.
"""

from __future__ import annotations

from typing import TypeVar, dataclass_transform

import attrs

from eventproc.base.counts import counted

_E = TypeVar("_E", bound="EventprocError")


def _rebuild(kind: type[EventprocError], fields: dict[str, object]) -> EventprocError:
    return kind(**fields)


class EventprocError(Exception):
    """Base class of every error that eventproc raises on purpose; pickles with its fields."""

    _text = ""
    """What `str` returns, with the names of fields; an error whose text depends on its fields has a `__str__`."""

    def __str__(self) -> str:
        return self._text.format_map(vars(self)) or super().__str__()

    def __reduce__(self) -> tuple[object, ...]:
        kind = type(self)
        names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
        return (_rebuild, (kind, {name: getattr(self, name) for name in names}))


class Retryable(EventprocError):
    """Nothing changed: repeat the same call, a limited number of times."""


class Pending(EventprocError):
    """Only the wait ended; what the caller asked for goes on. Do not repeat the call: wait again."""


class Rejected(EventprocError):
    """The call is wrong in the present state. Repeating it cannot help."""


class Fenced(EventprocError):
    """A newer owner exists. Stop immediately: do not write, do not retry."""


class Corrupt(EventprocError):
    """The stored state needs a person: bytes are damaged, the disk failed, or eventproc has a bug. Stop."""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(attrs.field,))
def error(kind: type[_E]) -> type[_E]:
    """Decorate a concrete error: keyword-only fields, compared by identity, picklable."""
    return attrs.define(kind, kw_only=True, eq=False, slots=False)


# The directory and its database.


@error
class VersionConflict(Retryable):
    """A record changed between its read and its replace.

    Read the record again and repeat the change.
    """

    _text = "{key}: expected version {expected}, found {actual}"
    key: str
    expected: int
    actual: int


@error
class LockHeld(Retryable):
    """Another process held a lock of the directory until this call's deadline.

    If the named process is stopped, continue it (`kill -CONT`) or end it; then try again.
    """

    path: str
    pid: int | None
    for_ms: int

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid is not None else "another process"
        return (
            f"{self.path} has been held by {holder} for {self.for_ms / 1000:.1f} s; nothing was written. "
            f"If that process is stopped, continue it (kill -CONT) or end it, then try again"
        )


@error
class DirectoryInUse(Retryable):
    """The operation needs the directory for itself, and other processes have it open.

    Close the directory in the named processes, then try again.
    """

    path: str
    pids: tuple[int, ...]

    def __str__(self) -> str:
        holder = f"process {', '.join(map(str, self.pids))}" if self.pids else "another process"
        return f"{self.path} is open in {holder}; nothing was changed. Close it there and try again"


@error
class DiskFull(Retryable):
    """The disk, or a quota on it, is full; the database transaction was rolled back.

    Free some space, then try again.
    """

    _text = "{path}: the disk is full; nothing was written. Free some space and try again"
    path: str


@error
class Unreachable(Retryable):
    """The server or the object storage of the store does not answer, or refuses the request; nothing changed.

    Do what the reason says, then try again: short failures were waited for already.
    """

    _text = "{place} cannot be reached: {reason}. Nothing was changed; try again after that"
    place: str
    reason: str


@error
class StoreMissing(Rejected):
    """The directory does not exist, or contains no eventproc database, and `create` is off.

    Correct the path, or make the directory with `eventproc init DIR`.
    """

    _text = "no eventproc directory at {path}; make one with `eventproc init {path}`"
    path: str


@error
class StoreUnusable(Rejected):
    """The directory exists but cannot be used: not eventproc's, newer, read-only, without its log, or a backup.

    The message names the reason and its remedy.
    """

    _text = "{path}: {reason}"
    path: str
    reason: str


@error
class Closed(Rejected):
    """A handle was used after it was closed.

    Open a new one.
    """

    _text = "{what} is closed"
    what: str


@error
class ForkedError(Rejected):
    """A handle that was opened before a fork was used in the child process.

    Open the directory again in the child process.
    """

    _text = "{what} was opened before a fork; open it again in the child process"
    what: str


@error
class OwnerFenced(Fenced):
    """A newer owner took over what this process owned.

    Stop the work; the new owner continues it.
    """

    _text = "{what}: owner epoch {owner_epoch} was fenced by {current_epoch}"
    what: str
    owner_epoch: int
    current_epoch: int


@error
class CorruptRecord(Corrupt):
    """Stored bytes differ from anything that eventproc writes.

    Run `eventproc doctor`, and restore a backup.
    """

    _text = "{key}: {reason}; {remedy}"
    key: str
    reason: str
    remedy: str = "run `eventproc doctor` and restore a backup"


@error
class InvariantBroken(Corrupt):
    """A replace would break an invariant of the record's kind; nothing was written.

    This is a bug: report it.
    """

    _text = "{key}: {reason}"
    key: str
    reason: str


@error
class DatabaseStopped(Corrupt):
    """The database failed in a way that leaves its last transaction unknown; this handle has stopped.

    Close the handle, check the disk, and open the directory again.
    """

    _text = "{path}: {reason}; this handle has stopped. Close it, check the disk, open it again"
    path: str
    reason: str


# Arguments, names and states.


@error
class NotFound(Rejected):
    """No object of that kind has that name.

    Check the name; `eventproc scope list`, `stream list` and `group list` show what exists.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        kind, of, owner = self.kind.partition(" of ")  # such as "segment of shop/orders in epoch 3"
        return f"no {kind} {self.name!r}{of}{owner}"


@error
class AlreadyExists(Rejected):
    """An object of that name exists and differs in the named fields.

    Use it as it is, or take another name.
    """

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
    """A value that no state of the system accepts: a bad name, range, number, type or option.

    Pass a value as the message asks.
    """

    _text = "{what} {value!r}: {reason}"
    what: str
    value: str
    reason: str


@error
class NotSupported(Rejected):
    """An option that is known but not enforced, and therefore refused.

    Leave the option out, or follow the message.
    """

    _text = "{what} is not supported; {remedy}"
    what: str
    remedy: str


@error
class IllegalTransition(Rejected):
    """The object's state does not allow the operation; nothing changed.

    Wait for the operation that is running, or read the object's state first.
    """

    state: str
    event: str
    name: str = ""

    def __str__(self) -> str:
        subject = f"{self.name}: " if self.name else ""
        return f"{subject}{self.event.replace('_', ' ')} is not possible in state {self.state}"


@error
class ScopeNotEmpty(Rejected):
    """A scope to be deleted still has streams, reader groups, synchronizers, schedules or key-value tables.

    Delete them first, or delete the scope with `recursive=True`.
    """

    scope: str
    streams: int
    groups: int
    synchronizers: int = 0
    schedules: int = 0
    tables: int = 0

    @property
    def contents(self) -> str:
        """What the scope has, such as "2 streams and 1 group"."""
        found = [counted(self.streams, "stream"), counted(self.groups, "group")]
        found += [counted(self.synchronizers, "synchronizer")] if self.synchronizers else []
        found += [counted(self.schedules, "schedule")] if self.schedules else []
        found += [counted(self.tables, "key-value table")] if self.tables else []
        return f"{', '.join(found[:-1])} and {found[-1]}"

    def __str__(self) -> str:
        remedy = "delete them first, or the scope with all that is in it (recursive)"
        return f"scope {self.scope!r} has {self.contents}; {remedy}"


# Requests.


@error
class StillPending(Pending):
    """The wait ended before the request did; the request goes on.

    Wait again: `ep.requests.wait(request_id)`.
    """

    request_id: str
    target: str
    waited_ms: int

    def __str__(self) -> str:
        return (
            f"{self.target}: request {self.request_id} is still running after {self.waited_ms / 1000:.1f} s; "
            f"it goes on. Wait again with `eventproc request wait {self.request_id}`"
        )


@error
class InProgress(Rejected):
    """A different request of the same kind is still running on the same object.

    Wait for that request, then repeat the call.
    """

    target: str
    kind: str
    request_id: str

    def __str__(self) -> str:
        wait = f"`eventproc request wait {self.request_id}`"
        return f"{self.target}: another {self.kind} is in progress; wait for it with {wait}"


@error
class Expired(Rejected):
    """The request's deadline passed before its first step; it never ran.

    Submit the request again under a new id.
    """

    _text = "{target}: request {request_id} did not start before its deadline and never will"
    target: str
    request_id: str


@error
class WorkflowFailed(Corrupt):
    """A workflow failed unexpectedly and its request was given up; only the changes of the failing step were undone.

    Changes of earlier steps stay, such as streams that a recursive delete of a scope has deleted. This is a bug: report
    it with the host's log.
    """

    _text = "{target}: {kind} failed unexpectedly ({reason}); the log of the host has more"
    target: str
    kind: str
    reason: str


# Streams and segments.


@error
class StreamReplaced(Rejected):
    """A handle, cut or position belongs to a deleted stream of the same name.

    Get a new handle with `ep.stream(name)`.
    """

    stream: str
    stream_id: int
    current_id: int | None
    remedy: str = "open it again by name"

    def __str__(self) -> str:
        now = f"is now stream {self.current_id}" if self.current_id is not None else "was deleted"
        return f"{self.stream}: this belongs to stream {self.stream_id}, which {now}; {self.remedy}"


@error
class StreamSealed(Rejected):
    """A write, or another change, to a sealed stream.

    Read or delete the stream; write to another one.
    """

    _text = "{stream} is sealed: it can be read and deleted, not written or changed"
    stream: str


@error
class StreamNotSealed(Rejected):
    """A stream to be deleted is not sealed.

    Seal it first: `await stream.seal()`.
    """

    _text = "{stream} is not sealed; seal it first (`eventproc stream seal {stream}`)"
    stream: str


@error
class SegmentSealed(Rejected):
    """An internal append reached a sealed segment; no call of the public API raises this.

    Nothing to do: writers and transactions continue on the successors.
    """

    _text = "{stream}: segment {segment} is sealed; write to its successors"
    stream: str
    segment: str


@error
class ScaleRefused(Rejected):
    """A scale's precondition does not hold: a segment is not active, or too few would remain.

    Read the active segments with `stream.describe()`, and scale those.
    """

    _text = "{stream}: {reason}"
    stream: str
    reason: str


@error
class InvalidCut(Rejected):
    """A cut is of another stream, does not cover the key space once, is inside an event, or is outside head to tail.

    Take cuts from `stream.head()`, `stream.tail()`, `stream.cut_at()` or a reader. A cut from before the last
    truncation lies before the head; reading from it raises `Truncated`.
    """

    _text = "{stream}: the cut {cut} is not valid: {reason}"
    stream: str
    cut: str
    reason: str


@error
class Truncated(Rejected):
    """A position lies before the head of the stream: its events are gone.

    Continue at `head_cut`.

    head: offset where the segment begins now; 0 when the entire segment is gone.
    head_cut: where reading can continue.
    """

    stream: str
    segment: str
    offset: int
    head: int
    head_cut: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        gone = f"{self.stream}: offset {self.offset} of segment {self.segment} was truncated"
        if self.remedy:
            return f"{gone}; {self.remedy}"
        return f"{gone}; continue at the head, {self.head_cut}" if self.head_cut else gone


@error
class OffsetConflict(Rejected):
    """An internal conditional append expected another tail of the segment; no call of the public API raises this.

    This is a bug: report it.
    """

    _text = "{stream}: segment {segment} ends at {actual}, not at {expected}"
    stream: str
    segment: str
    expected: int
    actual: int


@error
class WriterFailed(Rejected):
    """An earlier write of this writer failed, and later events were not written either.

    Call `flush()`: it raises the failure, and the writer continues.
    """

    _text = "{stream}: an earlier write failed ({reason}); call flush() to see it and continue"
    stream: str
    reason: str


@error
class WriterFenced(Fenced):
    """Another writer of the same name has written to the stream since; nothing was written.

    Give each writer that runs at the same time its own name.
    """

    _text = "{stream}: another writer named {writer!r} has written since; nothing was written"
    stream: str
    writer: str


# Transactions.


@error
class TransactionAborted(Rejected):
    """The transaction was aborted, or is being aborted; none of its events becomes visible.

    Begin a new transaction and write the events again.
    """

    _text = "{stream}: transaction {txn} was aborted ({reason}); begin a new one"
    stream: str
    txn: str
    reason: str


@error
class TransactionDecided(Rejected):
    """The transaction is already decided: it accepts no events and no other decision.

    Begin a new transaction.
    """

    stream: str
    txn: str
    state: str
    event: str

    def __str__(self) -> str:
        now = f"{self.stream}: transaction {self.txn} is {self.state}"
        if self.event == "abort":
            return f"{now}: a commit cannot be undone"
        return f"{now}: {self.event} is not possible any more; begin a new one"


@error
class TransactionMovesProgress(Rejected):
    """The joint transaction moves progress, so only the block or the Kafka producer that began it may commit it.

    Let that process commit it, or abort it.
    """

    _text = (
        "{stream}: transaction {txn} belongs to group or Kafka producer {group}, so only the process that"
        " began it may commit it; `eventproc txn abort {stream} {txn}` aborts it"
    )
    stream: str
    txn: str
    group: str


@error
class TransactionNotFound(NotFound):
    """The stream has no transaction of that id: it never began, or ended more than a day ago.

    Check the id; `eventproc txn list STREAM --finished` shows the known ones.
    """

    stream: str

    def __str__(self) -> str:
        return (
            f"{self.stream} has no transaction {self.name!r}: it never began, or ended more than a day ago; "
            f"`eventproc txn list {self.stream} --finished` shows the known ones"
        )


@error
class TransactionPending(Pending):
    """The wait ended before the commit did; the transaction is decided and will become visible.

    Call `commit()` again to wait. If `failure` is set, the commit fails repeatedly and a person must look.

    failure: why the commit fails; None if it has not failed.
    """

    stream: str
    txn: str
    waited_ms: int
    failure: str | None = None

    def __str__(self) -> str:
        if self.failure is not None:
            return (
                f"{self.stream}: transaction {self.txn} is decided, but its commit fails ({self.failure}) and is"
                f" retried; `eventproc txn abort --force {self.stream} {self.txn}` gives it up"
            )
        return (
            f"{self.stream}: transaction {self.txn} is decided, but not visible after {self.waited_ms / 1000:.1f} s; "
            f"it will be. Wait again with `eventproc txn commit {self.stream} {self.txn}`"
        )


@error
class CommitsPending(Retryable):
    """An operation must wait until the stream's decided transactions are committed.

    Nothing to do: the host repeats the operation.
    """

    _text = "{stream}: {event} waits until its decided transactions are committed"
    stream: str
    stream_id: int
    event: str
