"""What an operator does at the shell, for programs: /eventproc/v1. Values have the names of the Python API."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import attrs

from eventproc.cluster import (
    Cluster,
    ClusterDescription,
    CompactTask,
    DeleteScopeTask,
    OffloadTask,
    VerifyTask,
)
from eventproc.groups import (
    GroupDescription,
    GroupInfo,
    GroupOptions,
    GroupStart,
    ResetPreview,
)
from eventproc.groups.position_texts import cut_at_position, parse_group_start
from eventproc.runtime import Eventproc
from eventproc.runtime.tasks import Tasks
from eventproc.server.rest.method_answers import DIRECTORY, Target, calling, changing, listing, named
from eventproc.server.rest.routes import (
    PAGE,
    After,
    AfterNumber,
    EventStream,
    LocalName,
    OfScope,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.store.access.permissions import EVERYTHING, Permission
from eventproc.store.catalog import get_scope
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.epochs import Epoch, Segment
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import SEGMENTS_MAX
from eventproc.store.model.names import check_scope_name
from eventproc.store.records.plain import Limits
from eventproc.store.requests import Request, RequestOrigin, RequestStatus
from eventproc.store.task_queue import TaskInfo
from eventproc.streams import (
    SegmentDescription,
    Stream,
    StreamDescription,
    StreamInfo,
    Transaction,
    TransactionDescription,
)
from eventproc.streams.operations import (
    MergeNeighbours,
    SplitSegment,
    TruncateTo,
    opened_segments,
)
from eventproc.streams.position_texts import parse_position, parse_time
from eventproc.streams.queries import Moment
from eventproc.topics import Group
from eventproc.workflows.requests import ScaleStream

Position: TypeAlias = Annotated[str, Limits(about="head, tail, a time (ISO 8601, or ms), or a cut.")]
Segments: TypeAlias = Annotated[tuple[SegmentId, ...], Limits(1, SEGMENTS_MAX)]
TaskId: TypeAlias = Annotated[str, Limits(about="Id of the task.")]
TransactionId: TypeAlias = Annotated[str, Limits(about="Id of the transaction.")]
RequestId: TypeAlias = Annotated[str, Limits(about="Id of the request.")]


STREAM: Final = named(Eventproc.stream, "stream")

list_all_streams = listing(
    *("list_all_streams", Eventproc.streams, DIRECTORY, StreamInfo),
    scope=OfScope,
    tag=Annotated[str, Limits(about="Only streams with this tag.")],
    prefix=Annotated[str, Limits(about="Only names in their scopes that begin with it.")],
)
describe_stream = calling("describe_stream", Stream.describe, STREAM, StreamDescription)
list_epochs = listing("list_epochs", Stream.epochs, STREAM, Epoch, by="number", after=AfterNumber)
list_transactions = listing(
    *("list_transactions", Stream.transactions, STREAM, TransactionDescription),
    by="id",
    finished=Annotated[bool, Limits(about="Those that ended within the last day.")],
)


async def list_segments(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    at: Position = "tail",
    epoch: Annotated[int | None, Limits(0, about="Number of an epoch, instead of `at`.")] = None,
) -> tuple[SegmentDescription, ...]:
    """List the segments at the head, at the tail, at a time, or of an epoch."""
    found = await call.ep.stream(f"{scope}/{stream}")
    moment: Moment = "head" if at == "head" else "tail" if at == "tail" else parse_time(at)
    return tuple(await found.segments(moment, epoch=epoch))


@attrs.frozen
class CutReport:
    """A cut of a stream."""

    stream: str
    cut: StreamCut


async def get_cut(call: RestCall, scope: ScopeName, stream: LocalName, at: Position = "tail") -> CutReport:
    """Show the cut at a position, for a truncation or a reset."""
    found = await call.ep.stream(f"{scope}/{stream}")
    return CutReport(
        found.name, await cut_at_position(found, parse_position(at, found.name, found.stream_id))
    )


async def _opened(call: RestCall, done: Request) -> tuple[Segment, ...]:
    return await opened_segments(call.ep.db, done)


async def _stream(call: RestCall, done: Request) -> StreamDescription:
    return await (await call.ep.stream(done.target)).describe()


_scaling = partial(changing, result=tuple[Segment, ...], then=_opened)

scale_stream = _scaling("scale_stream", ScaleStream, omitted=("reason",))
split_segment = _scaling("split_segment", SplitSegment)
merge_segments = _scaling("merge_segments", MergeNeighbours)
truncate_stream = changing("truncate_stream", TruncateTo, StreamDescription, _stream)


@attrs.frozen
class OffloadBody:
    """Which events move. older_than_ms: age of the youngest one, in ms."""

    older_than_ms: Annotated[int, Limits(0)] = 0


async def offload_stream(call: RestCall, scope: ScopeName, stream: LocalName, body: OffloadBody) -> TaskInfo:
    """Begin a task that moves old events of a stream from the database into files."""
    found = await call.ep.stream(f"{scope}/{stream}")
    return await call.ep.tasks.submit(OffloadTask(found.name, body.older_than_ms))


async def verify_directory(call: RestCall) -> TaskInfo:
    """Begin a task that checks all pages, all invariants and all files of the directory."""
    return await call.ep.tasks.submit(VerifyTask())


async def compact_directory(call: RestCall) -> TaskInfo:
    """Begin a task that returns the free bytes of the database file to the file system."""
    return await call.ep.tasks.submit(CompactTask())


async def delete_scope_with_streams(call: RestCall, scope: ScopeName) -> TaskInfo:
    """Begin a task that seals and deletes the streams of a scope, then the scope with all that is left in it."""
    check_scope_name(scope)
    await call.ep.db.read(lambda tx: get_scope(tx, scope))
    return await call.ep.tasks.submit(DeleteScopeTask(scope))


async def _transaction(call: RestCall, scope: str, stream: str, transaction: str) -> Transaction[Any]:
    return (await call.ep.stream(f"{scope}/{stream}")).transaction_of(transaction)


TRANSACTION: Final = Target(_transaction, {**STREAM.parameters, "transaction": TransactionId})

describe_transaction = calling(
    "describe_transaction", Transaction.status, TRANSACTION, TransactionDescription
)


async def commit_transaction(
    call: RestCall, scope: ScopeName, stream: LocalName, transaction: TransactionId
) -> TransactionDescription:
    """Decide that the staged events of a transaction become visible, which they do soon."""
    found = await _transaction(call, scope, stream, transaction)
    await found.commit(wait=False)
    return await found.status()


async def abort_transaction(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    transaction: TransactionId,
    force: Annotated[bool, Limits(about="Also if its commit is decided, and fails.")] = False,
) -> TransactionDescription:
    """Abort a transaction: discard its staged events for ever."""
    found = await _transaction(call, scope, stream, transaction)
    await found.abort(force=force)
    return await found.status()


list_groups = listing("list_groups", Eventproc.groups, DIRECTORY, GroupInfo, scope=OfScope)


@attrs.frozen
class GroupReport:
    """A reader group: its lag in all segments, its position, its options, and its readers and segments.

    events, bytes: unfinished ones. age_ms: time since the oldest unfinished event was appended; None without one.
    cuts: its durable position in each stream; none if a stream was deleted.
    """

    name: str
    events: int
    bytes: int
    age_ms: int | None
    cuts: dict[str, StreamCut]
    options: GroupOptions
    description: GroupDescription


async def group_report(found: Group) -> GroupReport:
    """Return a reader group with its lag."""
    described, info = await found.describe(), await found.info()
    return GroupReport(
        found.name,
        described.events,
        described.bytes,
        described.age_ms,
        {} if described.replaced else await found.cuts(),
        info.options,
        described,
    )


GROUP: Final = named(Eventproc.group)

describe_group = calling("describe_group", group_report, GROUP, GroupReport)


@attrs.frozen(kw_only=True)
class ResetBody:
    """The new position, or a checkpoint. Nothing changes unless `execute` is true.

    to: head, tail or a time; or cuts, at most one of each stream.
    """

    to: Annotated[tuple[Position, ...], Limits(1, 1_000)] | None = None
    checkpoint: str | None = None
    execute: bool = False


@attrs.frozen
class ResetReport:
    """Each stream of a group before and after a reset, and whether it was done."""

    executed: bool
    streams: tuple[ResetPreview, ...]


async def reset_group(call: RestCall, scope: ScopeName, group: LocalName, body: ResetBody) -> ResetReport:
    """Move a reader group to another position, or show what that would do. Its online readers continue there."""
    if (body.to is None) == (body.checkpoint is None):
        raise invalid_argument("to", body.to, "give either `to` or `checkpoint`")
    found = await call.ep.group(f"{scope}/{group}")
    start: GroupStart = "head"
    if body.to is not None:
        names = [each.name for each in (await found.info()).streams]
        start = parse_group_start(body.to, {each: (await call.ep.stream(each)).stream_id for each in names})
    rows = await found.reset(start, checkpoint=body.checkpoint, dry_run=not body.execute)
    return ResetReport(body.execute, tuple(rows))


TASKS: Final = Target(lambda call: call.ep.tasks)

list_tasks = listing("list_tasks", Tasks.list, TASKS, TaskInfo, by="id")
describe_task = calling("describe_task", Tasks.get, TASKS, TaskInfo, task=TaskId)
cancel_task = calling("cancel_task", Tasks.cancel, TASKS, TaskInfo, task=TaskId)


@attrs.frozen(kw_only=True)
class RequestReport:
    """A request to change a stream or scope. error: why it was refused. Times: in ms since 1970."""

    id: str
    kind: str
    target: str
    origin: RequestOrigin
    status: RequestStatus
    created_ms: int
    finished_ms: int | None
    error: str | None

    @classmethod
    def of(cls, request: Request) -> RequestReport:
        """Return what callers see of a request."""
        return cls(
            id=request.id,
            kind=request.kind,
            target=request.target,
            origin=request.origin,
            status=request.status,
            created_ms=request.created_ms,
            finished_ms=request.finished_ms,
            error=None if request.error is None else str(request.error),
        )


async def list_requests(call: RestCall, after: After = None, limit: PageLimit = PAGE) -> Page[RequestReport]:
    """List requests to change streams and scopes, the newest first."""
    found = await call.ep.requests.list(limit=limit + 1, after=after)
    return page_of([RequestReport.of(each) for each in found], limit, lambda each: each.id)


async def describe_request(call: RestCall, request: RequestId) -> RequestReport:
    """Show a request and its outcome, to a caller that may read its target."""
    try:
        found = await call.ep.requests.get(request)
    except NotFound:
        call.caller.verify(Permission.READ, EVERYTHING)  # whether it exists is for those who may list all
        raise
    if not call.caller.may(Permission.READ, found.target):
        call.caller.verify(Permission.READ, EVERYTHING)  # the same words, which do not name the target
    return RequestReport.of(found)


describe_cluster = calling(
    "describe_cluster", Cluster.describe, Target(lambda call: call.ep.cluster), ClusterDescription
)


async def watch_changes(call: RestCall) -> EventStream:
    """Send an event for each change of a request, scope, group or instance, until the caller leaves."""
    return EventStream(call.last_event_id)
