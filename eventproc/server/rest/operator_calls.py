"""What an operator does at the shell, for programs, where it is more than a method: of streams and of the directory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeAlias

import attrs

from eventproc.cluster import CompactTask, DeleteScopeTask, OffloadTask, VerifyTask
from eventproc.groups.position_texts import cut_at_position, parse_cuts
from eventproc.ingestion import SegmentRange
from eventproc.ingestion.changes import PartitionReset, SpecEffect
from eventproc.ingestion.status import SupervisorInfo
from eventproc.ingestion.supervisor import Supervisor
from eventproc.ingestion.visibility import may_know_supervisor, may_know_table
from eventproc.runtime import Eventproc
from eventproc.runtime.lists import SeenLists
from eventproc.runtime.requests import Requests
from eventproc.runtime.users import Users
from eventproc.server.rest.method_answers import POSITION, STREAMS_MAX, Position, Target, Text, named
from eventproc.server.rest.problems import HttpProblem
from eventproc.server.rest.routes import (
    PAGE,
    After,
    EventStream,
    LocalName,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.store.access.permissions import EVERYTHING, Permission
from eventproc.store.catalog import StoredHistory, get_scope, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.cuts import CutOrder, StreamCut
from eventproc.store.model.delays import DelayedEvent
from eventproc.store.model.epochs import Segment
from eventproc.store.model.errors import NotFound, NotSupported
from eventproc.store.model.history import predecessors, successors
from eventproc.store.model.ids import SegmentId, as_segment, printable
from eventproc.store.model.list_pages import NameFilter
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.records.plain import JsonObject, Limits
from eventproc.store.requests import Request, RequestOrigin, RequestStatus
from eventproc.store.task_queue import TaskInfo
from eventproc.streams import (
    SegmentDescription,
    Stream,
    StreamDescription,
    Transaction,
    TransactionDescription,
)
from eventproc.streams.delayed_events import DelayedEvents
from eventproc.streams.description import describe_segment as segment_description
from eventproc.streams.operations import opened_segments
from eventproc.streams.picture import StreamPicture
from eventproc.streams.position_texts import parse_moment, parse_position, parse_time
from eventproc.streams.queries import Moment

SegmentText: TypeAlias = Annotated[str, Limits(about="Id of a segment, such as 2.1.")]
TransactionId: TypeAlias = Annotated[str, Limits(about="Id of the transaction.")]
TableName: TypeAlias = Annotated[str, Limits(about="Name of the table.")]
SupervisorId: TypeAlias = Annotated[str, Limits(about="Id of the supervisor.")]
DelayedId: TypeAlias = Annotated[str, Limits(about="Id of the delayed event.")]
RequestId: TypeAlias = Annotated[str, Limits(about="Id of the request.")]

NO_USERS: Final = "a change of users through a server that knows none"
FIRST_USER: Final = "add the first one at the shell of the server, with `eventproc user add NAME`"


def _position(_: RestCall, stream: Stream, text: str) -> Moment | StreamCut:
    return parse_position(text, stream.name, stream.stream_id)


async def _cut(call: RestCall, stream: Stream, text: str) -> StreamCut:
    return await cut_at_position(stream, _position(call, stream, text))


ReadPosition: TypeAlias = Annotated[str, Text(about=POSITION, read=_position)]
Cut: TypeAlias = Annotated[str, Text(about=POSITION, read=_cut)]
At: TypeAlias = Annotated[
    str, Text(about="head, tail, or a time (ISO 8601, or ms).", read=lambda _, __, text: parse_moment(text))
]
RowTimeText: TypeAlias = Annotated[str | None, Limits(about="A time (ISO 8601, or ms).")]
Time: TypeAlias = Annotated[
    str | None, Text(about="A time (ISO 8601, or ms).", read=lambda _, __, text: parse_time(text))
]


def _changeable(call: RestCall) -> Users:
    """Return the users, to one of them.

    Without users a server trusts every program of its machine. One of them could then add the first user, and so lock
    out all others. The first user is therefore added at the shell.
    """
    if call.caller.user is None:
        raise NotSupported(what=NO_USERS, remedy=FIRST_USER)
    return call.ep.users


async def _transaction(call: RestCall, scope: str, stream: str, transaction: str) -> Transaction[Any]:
    return (await call.ep.stream(f"{scope}/{stream}")).transaction_of(transaction)


STREAM: Final = named(Eventproc.stream, "stream")


async def _seen_supervisor(call: RestCall, supervisor: str) -> Supervisor:
    """Return a supervisor to a caller that may read all streams that it ever read. Raises NotFound, NotPermitted."""
    await _verify_seen(call, may_know_supervisor, supervisor)
    return await call.ep.supervisor(supervisor)


async def _seen_table(call: RestCall, table: str) -> tuple[Eventproc, str]:
    """Return a table to a caller that may read all streams whose events were ever published in it, as the above."""
    await _verify_seen(call, may_know_table, table)
    return call.ep, table


async def _verify_seen(call: RestCall, knows: Callable[[Tx, str, NameFilter], bool], name: str) -> None:
    """Raise NotPermitted unless the caller may know what has a name; the same if there is nothing of that name."""
    readable = call.caller.readable
    if readable is not None and not await call.ep.db.read(lambda tx: knows(tx, name, readable)):
        call.caller.verify(Permission.READ, EVERYTHING)


LISTS: Final = Target(lambda call: SeenLists(call.ep.db, call.caller.readable))
SUPERVISOR: Final = Target(lambda call, id: call.ep.supervisor(id), {"supervisor": SupervisorId})
SEEN_SUPERVISOR: Final = Target(_seen_supervisor, {"supervisor": SupervisorId})
SEEN_TABLE: Final = Target(_seen_table, {"table": TableName}, arguments=2)
TASKS: Final = Target(lambda call: call.ep.tasks)
USERS: Final = Target(lambda call: call.ep.users)
CHANGEABLE: Final = Target(_changeable)
CLUSTER: Final = Target(lambda call: call.ep.cluster)


@attrs.frozen
class CutReport:
    """A cut of a stream."""

    stream: str
    cut: StreamCut


async def plot_stream(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    from_ms: RowTimeText = None,
    to_ms: RowTimeText = None,
) -> StreamPicture:
    """Show the segments of a stream over time and keys, and where the groups are that the caller may read.

    A caller that accepts image/svg+xml gets the picture.
    """
    times = (None if each is None else parse_time(each) for each in (from_ms, to_ms))
    found = await (await call.ep.stream(f"{scope}/{stream}")).plot(*times)
    visible = [each for each in found.positions if call.caller.may(Permission.READ, each.group)]
    return attrs.evolve(found, positions=tuple(visible))


async def get_cut(call: RestCall, scope: ScopeName, stream: LocalName, at: Position = "tail") -> CutReport:
    """Show the cut at a position, for a truncation or a reset."""
    found = await call.ep.stream(f"{scope}/{stream}")
    return CutReport(found.name, await _cut(call, found, at))


@attrs.frozen
class SegmentSuccessor:
    """A segment that replaced another one. predecessors: all that must be read to their ends before it."""

    id: SegmentId
    predecessors: tuple[SegmentId, ...]


@attrs.frozen
class SegmentFamily:
    """A segment, the ones that it replaced, and those that replaced it; none for an active one."""

    segment: SegmentDescription
    predecessors: tuple[SegmentId, ...]
    successors: tuple[SegmentSuccessor, ...]


async def describe_segment(
    call: RestCall, scope: ScopeName, stream: LocalName, segment: SegmentText
) -> SegmentFamily:
    """Show a segment, active or sealed, with its predecessors and successors, all of one moment."""
    name, chosen = str(StreamName.parse(f"{scope}/{stream}")), as_segment(segment)

    def look(tx: Tx) -> SegmentFamily:
        record = get_stream(tx, name).value
        history = StoredHistory(tx, record)
        return SegmentFamily(
            segment_description(tx, record, chosen),
            tuple(map(printable, predecessors(history, chosen))),
            tuple(
                SegmentSuccessor(printable(each), tuple(map(printable, before)))
                for each, before in successors(history, chosen).items()
            ),
        )

    return await call.ep.db.read(look)


@attrs.frozen
class CutComparison:
    """How one cut relates to another. order: of `one`: before, equal_or_after, or overlaps."""

    one: StreamCut
    other: StreamCut
    order: CutOrder


async def compare_stream_cuts(
    call: RestCall, scope: ScopeName, stream: LocalName, one: Position, other: Position
) -> CutComparison:
    """Compare two positions of a stream."""
    handle = await call.ep.stream(f"{scope}/{stream}")
    left, right = await _cut(call, handle, one), await _cut(call, handle, other)
    return CutComparison(left, right, await handle.compare_cuts(left, right))


async def opened(call: RestCall, done: Request) -> tuple[Segment, ...]:
    """Return the segments that a scale has opened."""
    return await opened_segments(call.ep.db, done)


async def changed_stream(call: RestCall, done: Request) -> StreamDescription:
    """Return the stream that was changed."""
    return await (await call.ep.stream(done.target)).describe()


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


def shown_transaction(call: RestCall, _: object, found: TransactionDescription) -> TransactionDescription:
    """Return a transaction without the streams and the group of a joint one that the caller may not read.

    The reason of its abort may name them, too.
    """
    may_read = partial(call.caller.may, Permission.READ)
    streams = tuple(filter(may_read, found.streams))
    group = None if found.group is None or not may_read(found.group) else found.group
    if (streams, group) == (found.streams, found.group):
        return found
    return attrs.evolve(found, streams=streams, group=group, reason=None)


async def describe_transaction(
    call: RestCall, scope: ScopeName, stream: LocalName, transaction: TransactionId
) -> TransactionDescription:
    """Show a transaction; of a joint one the streams that the caller may read."""
    found = await _transaction(call, scope, stream, transaction)
    return shown_transaction(call, found, await found.status())


async def _decidable(call: RestCall, scope: str, stream: str, transaction: str) -> Transaction[Any]:
    """Return a transaction to a caller that may change all of its streams, as one decision is of them all.

    Raises NotPermitted.
    """
    found = await _transaction(call, scope, stream, transaction)
    streams = (await found.status()).streams
    call.caller.verify_streams(f"transaction {found.id}", streams, Permission.READ_UPDATE)
    return found


async def commit_transaction(
    call: RestCall, scope: ScopeName, stream: LocalName, transaction: TransactionId
) -> TransactionDescription:
    """Decide that the staged events of a transaction become visible, which they do soon."""
    found = await _decidable(call, scope, stream, transaction)
    await found.commit(wait=False)
    return shown_transaction(call, found, await found.status())


async def abort_transaction(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    transaction: TransactionId,
    force: Annotated[bool, Limits(about="Also if its commit is decided, and fails.")] = False,
) -> TransactionDescription:
    """Abort a transaction: discard its staged events for ever."""
    found = await _decidable(call, scope, stream, transaction)
    await found.abort(force=force)
    return shown_transaction(call, found, await found.status())


async def list_delayed(
    call: RestCall, scope: ScopeName, stream: LocalName, after: After = None, limit: PageLimit = PAGE
) -> Page[DelayedEvent[bytes]]:
    """List the events of a stream that are not due yet, in the order of their ids."""
    found = await call.ep.delayed.list(stream=f"{scope}/{stream}", after=after, limit=limit + 1)
    return page_of(found, limit, lambda each: each.id, lambda each: each.payload)


async def _delayed(call: RestCall, scope: str, stream: str, event: str) -> tuple[DelayedEvents, str]:
    """Find a delayed event of the stream, for which the caller's permission was checked."""
    found = await call.ep.delayed.get(event)
    if found.stream != f"{scope}/{stream}":
        raise NotFound(kind="delayed event", name=event)
    return call.ep.delayed, found.id  # another event may get a given id meanwhile


DELAYED: Final = Target(_delayed, {**STREAM.parameters, "event": DelayedId}, arguments=2)


@attrs.frozen
class SpecBody:
    """A spec, as a file of `eventproc supervisor submit`. dry_run: only show what it would change."""

    spec: JsonObject
    dry_run: bool = False


@attrs.frozen
class SpecReport:
    """What a spec changes, and whether it was submitted."""

    submitted: bool
    effect: SpecEffect


async def submit_supervisor(call: RestCall, body: SpecBody) -> SpecReport:
    """Submit the spec of a supervisor, or show what that would change."""
    effect = await call.ep.preview_supervisor(body.spec)
    if not body.dry_run:
        await call.ep.submit_supervisor(body.spec)
    return SpecReport(not body.dry_run, effect)


async def check_supervisor(call: RestCall, supervisor: SupervisorId) -> SupervisorInfo:
    """Show a supervisor if it is healthy; one that is not answers with 503, so that a probe needs only the status."""
    found = await (await _seen_supervisor(call, supervisor)).status()
    if not found.healthy:
        last = f": {found.errors[-1].message}" if found.errors else ""
        raise HttpProblem(
            HTTPStatus.SERVICE_UNAVAILABLE, f"supervisor {supervisor} is {found.state.value}{last}"
        )
    return found


@attrs.frozen
class SupervisorResetBody:
    """Where a supervisor reads from. dry_run: only show what would move.

    to: cuts, at most one of each stream; only their segments move. null: as the spec says for a first run.
    """

    to: Annotated[tuple[Position, ...], Limits(1, STREAMS_MAX)] | None = None
    dry_run: bool = False


@attrs.frozen
class SupervisorResetReport:
    """The segments that a reset moves, and whether it was only shown."""

    dry_run: bool
    partitions: tuple[PartitionReset, ...]


async def reset_supervisor(
    call: RestCall, supervisor: SupervisorId, body: SupervisorResetBody
) -> SupervisorResetReport:
    """Let a supervisor read again from another position, or show what that would do. What was published stays."""
    found = await call.ep.supervisor(supervisor)
    cuts: list[StreamCut] | None = None
    if body.to is not None:
        ids = {each: (await call.ep.stream(each)).stream_id for each in (await found.status()).streams}
        cuts = list(parse_cuts(body.to, ids).values())
    partitions = await found.preview_reset(cuts)
    if not body.dry_run:
        await found.reset(cuts)
    return SupervisorResetReport(body.dry_run, tuple(partitions))


@attrs.frozen
class BackfillBody:
    """How to backfill. dry_run: only show what would be published.

    id: of the bounded supervisor; null: that of the supervisor with "-backfill-" and a number.
    task_count: groups of the bounded supervisor; null: as many as the supervisor began with.
    """

    id: str | None = None
    task_count: Annotated[int, Limits(1)] | None = None
    dry_run: bool = False


@attrs.frozen
class BackfillReport:
    """The bounded supervisor, the ranges that it publishes, and whether it was only shown."""

    dry_run: bool
    backfill: str
    ranges: tuple[SegmentRange, ...]


async def backfill_supervisor(call: RestCall, supervisor: SupervisorId, body: BackfillBody) -> BackfillReport:
    """Let a supervisor go on with new events, and a bounded one publish what it is behind, or show the latter."""
    found = await call.ep.supervisor(supervisor)
    if body.dry_run:
        spec = await found.preview_backfill(body.id, task_count=body.task_count)
    else:
        spec = await (await found.backfill(body.id, task_count=body.task_count)).spec()
    return BackfillReport(body.dry_run, spec.id, spec.io.ranges)


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
    """List requests to change streams and scopes, the newest first, of those whose targets the caller may read."""
    found = await Requests(call.ep.db, call.caller.readable).list(limit=limit + 1, after=after)
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


@attrs.frozen
class CallerReport:
    """Who calls, and what it may do with a resource.

    user: None if the store has no users. reads, updates: whether the caller has READ and READ_UPDATE on the resource.
    """

    user: str | None
    reads: bool
    updates: bool


async def describe_caller(
    call: RestCall,
    on: Annotated[str, Limits(about="Scope, scope/name, or * for the server.")] = EVERYTHING,
) -> CallerReport:
    """Show who calls, and what it may do. Whether the resource exists is not said."""
    may = call.caller.may
    return CallerReport(call.caller.name or None, may(Permission.READ, on), may(Permission.READ_UPDATE, on))


async def watch_changes(call: RestCall) -> EventStream:
    """Send an event for each change of a request, scope, group or instance, until the caller leaves."""
    return EventStream(call.last_event_id)
