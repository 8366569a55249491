"""An open directory: its scopes, streams, groups and processors by name, and the host in the background."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from typing_extensions import Unpack

from eventproc.base.tasks import HandleTasks, LoopEnd, run_uninterrupted
from eventproc.base.telemetry_use import uses_metrics
from eventproc.cluster import (
    TASK_JOBS,
    Cluster,
    keep_buckets,
    keep_policies,
    keep_supervisors,
    run_host,
    run_tasks,
)
from eventproc.cluster.extent_joiner import join_tiny_extents
from eventproc.groups.liveness import LOCAL_MEMBERSHIPS
from eventproc.processors import (
    GRACE_MS,
    App,
    Running,
    run_app,
)
from eventproc.processors.dead_letters.operations import DeadLetters
from eventproc.processors.options import Options
from eventproc.processors.run import ProcessorRun
from eventproc.runtime.groups import GroupSystem
from eventproc.runtime.lists import ListSystem
from eventproc.runtime.maintenance import MaintenanceSystem
from eventproc.runtime.processors import ProcessorSystem
from eventproc.runtime.requests import Requests
from eventproc.runtime.supervisors import SupervisorSystem
from eventproc.runtime.tables import TableSystem
from eventproc.runtime.tasks import Tasks
from eventproc.runtime.topics import TopicSystem
from eventproc.store.catalog import (
    get_stream,
    list_scopes,
)
from eventproc.store.database import (
    Database,
    Durability,
    SqlParameters,
    SqlValue,
    query_app_tables,
)
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_instance, check_int, check_str, invalid_argument
from eventproc.store.model.errors import NotFound
from eventproc.store.model.list_pages import ListPage, PageOptions
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.model.policies import (
    DATABASE_STORAGE,
    ID_WINDOW_MS,
    KEEP_ALL,
    OFFLOAD_NOTHING,
    OffloadPolicy,
    RetentionPolicy,
    ScalingPolicy,
    StreamConfig,
    as_scaling,
    as_tags,
)
from eventproc.store.model.transactions import check_lease
from eventproc.store.openable import Opening, OpenState
from eventproc.store.replicated import (
    ReplicatedType,
    StateSynchronizer,
    create_named,
    delete_named,
    find_named,
    named_objects,
)
from eventproc.streams import JointTransaction, ProgressSource, ScopeInfo, request_calls
from eventproc.streams.codec import Codec, codec_for
from eventproc.streams.request_calls import CreateOptions, RequestOptions
from eventproc.streams.stream import Stream
from eventproc.streams.transaction import LEASE_MS
from eventproc.streams.txn_attendant import TRANSACTION_ATTENDANT
from eventproc.workflows.requests import CreateStream, DeleteScope
from eventproc.workflows.scopes import create_scope, delete_empty_scope

if TYPE_CHECKING:
    from eventproc.jobs.jobs import Jobs
    from eventproc.processors.key_state import KeyState
    from eventproc.processors.key_states import KeyStates
    from eventproc.runtime.users import Users
    from eventproc.streams.delayed_events import DelayedEvents
    from eventproc.streams.schedules import Schedules

P = TypeVar("P")
R = TypeVar("R")
S = TypeVar("S")
U = TypeVar("U")
V = TypeVar("V")


class Eventproc(
    GroupSystem, ListSystem, MaintenanceSystem, ProcessorSystem, SupervisorSystem, TableSystem, TopicSystem
):
    """An open directory, or memory. Made by `open` and `open_memory`; usable until their block ends, or until `close`.

    Closing it closes the writers, readers and running apps that are still open, the newest first.

    requests: submits requests, and finds them by id.
    tasks: submits long work, and finds it by id.
    cluster: the instances that have it open, and an event for each that comes or goes.
    """

    def __init__(self, db: Database) -> None:
        in_memory = "the system in memory" if db.in_memory else f"the store {db.name}"
        super().__init__(db, "the directory" if db.path else in_memory)
        self._tasks = HandleTasks(self._background_failed)
        self._loop_end = LoopEnd(self._close_unclosed)
        self._warned = False
        self.requests = Requests(db)
        self.cluster = Cluster(db)
        self.tasks = Tasks(db)

    @cached_property
    def delayed(self) -> DelayedEvents:
        """The events that are not due yet."""
        from eventproc.streams.delayed_events import DelayedEvents  # few programs need it

        return DelayedEvents(self._db)

    @overload
    def jobs(self, share_group: str, stream: str | None = None) -> Jobs[bytes]: ...
    @overload
    def jobs(
        self,
        share_group: str,
        stream: str | None = None,
        *,
        payload: type[P],
        codec: Codec[P] | None = None,
    ) -> Jobs[P]: ...
    @overload
    def jobs(
        self,
        share_group: str,
        stream: str | None = None,
        *,
        payload: type[P] = ...,
        codec: Codec[P] | None = None,
        result: type[R],
    ) -> Jobs[P, R]: ...
    def jobs(
        self,
        share_group: str,
        stream: str | None = None,
        *,
        payload: type[Any] = bytes,
        codec: Codec[Any] | None = None,
        result: type[Any] | None = None,
    ) -> Jobs[Any, Any]:
        """Return the jobs of a share group: to submit some, and to ask what became of them. Nothing is read.

        Args:
            share_group: full name of the group, whose workers do them.
            stream: full name of the stream that takes them. None (default): the only stream of the group.
            payload: type of their payloads, as for readers. Default: bytes.
            codec: converts payloads. None (default): the codec of `payload`.
            result: type of what their handler returns. None (default): what JSON has.

        Raises:
            InvalidArgument: a name is not valid, or no codec serves the type.
        """
        from eventproc.jobs.jobs import Jobs  # few programs need it

        return Jobs(self._db, share_group, stream, payload=payload, codec=codec, result=result)

    @overload
    def state(self, group: str) -> KeyStates[bytes]: ...
    @overload
    def state(self, group: str, state: type[V] | KeyState[V]) -> KeyStates[V]: ...
    def state(self, group: str, state: type[Any] | KeyState[Any] = bytes) -> KeyStates[Any]:
        """Return the states that a processor keeps by key. Nothing is read.

        Args:
            group: full name of the processor's group.
            state: what the processor declares as its state: the class of the values, or a `KeyState`. Default: bytes,
                as they are stored.

        Raises:
            InvalidArgument: no codec serves the class.
        """
        from eventproc.processors.key_states import KeyStates  # few programs need it

        return KeyStates(self._db, group, state)

    @cached_property
    def schedules(self) -> Schedules:
        """What appends an event at each time that a cron expression names."""
        from eventproc.streams.schedules import Schedules  # few programs need it

        return Schedules(self._db)

    @cached_property
    def users(self) -> Users:
        """Who may call the endpoints of `eventproc serve`, and do what."""
        from eventproc.runtime.users import Users  # few programs need it

        return Users(self._db)

    def __repr__(self) -> str:
        return f"Eventproc({self._db.name!r}, {self._state})"

    def __del__(self) -> None:
        if self._state is OpenState.OPEN:
            self._warn_unclosed()

    @classmethod
    async def _begin(cls, db: Database, *, host: bool) -> Self:
        """Start the background of a database, and return its handle."""
        self = cls(db)
        await self._loop_end.register()
        if uses_metrics():
            from eventproc.runtime.store_instruments import observe

            observe(db)
        self._tasks.start_soon(join_tiny_extents, db)
        self._tasks.start_soon(db.shared[TRANSACTION_ATTENDANT].run)
        self._tasks.start_soon(db.shared[LOCAL_MEMBERSHIPS].run)
        if host:
            self._tasks.start_soon(run_host, db)
            self._tasks.start_soon(keep_buckets, db)
            self._tasks.start_soon(keep_policies, db)
            self._tasks.start_soon(keep_supervisors, db)
            self._tasks.start_soon(run_tasks, db, TASK_JOBS)
        return self

    async def _start(self) -> None:
        """Never called: it is made open."""

    async def _finish(self, why: BaseException | None) -> None:
        try:
            await self._db.handles.close_all(why)
        finally:
            try:
                await self._tasks.stop()
            finally:
                await run_uninterrupted(self._release)

    async def _release(self) -> None:
        try:
            await self._db.close()
        finally:
            await self._loop_end.discard()

    def _background_failed(self, error: BaseException | None) -> None:
        if error is not None:  # else the end of the event loop: what unwinds now still uses the database
            self._db.fail(error)

    async def _close_unclosed(self) -> None:
        """Close it at the end of the event loop: nobody else can."""
        try:
            self._warn_unclosed()  # raises, if warnings are errors
        finally:
            await self.close()

    def _warn_unclosed(self) -> None:
        if not self._warned:
            self._warned = True
            text = f"unclosed {self!r}: leave its `async with`, or call `await ep.close()`"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    @property
    def path(self) -> Path | None:
        """The directory; None in memory and on a server."""
        return self._db.path

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        return self._db.durability

    @property
    def db(self) -> Database:
        """The database beneath, for extensions and tests; not part of the public API."""
        return self._db

    async def query(self, sql: str, parameters: SqlParameters = ()) -> list[tuple[SqlValue, ...]]:
        """Read with SQL: the tables of apps, whose names begin with `app_`.

        Other tables may change with any version.

        Args:
            sql: one SELECT.
            parameters: values of its placeholders. Default: none.

        Returns:
            All rows.

        Raises:
            InvalidArgument: the statement or its parameters are not valid, or it would change something.
            NotSupported: the statement is not allowed, such as PRAGMA and COMMIT.

        Cost:
            One snapshot. All rows are in memory.
        """

        return await query_app_tables(self._db, sql, parameters)

    async def create_scope(self, name: str) -> None:
        """Create a scope; does nothing if it exists.

        Args:
            name: the scope's name, unique in the directory.

        Raises:
            InvalidArgument: the name is not valid.
            IllegalTransition: a scope of that name is being deleted.
        """
        await self._db.write(lambda tx: create_scope(tx, name), step=Step.SCOPE_CREATE)

    async def delete_scope(
        self,
        name: str,
        *,
        recursive: bool = False,
        **options: Unpack[RequestOptions],
    ) -> None:
        """Delete a scope.

        Args:
            name: the scope's name.
            recursive: delete its reader groups, synchronizers, schedules, key-value tables and streams first. Default:
                an empty scope only.
            options: for a recursive delete: see `RequestOptions`.

        Raises:
            NotFound: no such scope.
            ScopeNotEmpty: the scope has streams, reader groups, synchronizers, schedules or key-value tables, and
                `recursive` is False.
            IllegalTransition: the scope is being deleted.
            InvalidArgument: an id is given without `recursive`, or an argument is not valid.
            StillPending: the wait ended first; the deletion goes on.
        """
        check_scope_name(name)
        if recursive:
            await request_calls.run_request(self._db, DeleteScope(name), **options)
        elif (request_id := options.get("request_id")) is not None:
            reason = "only a recursive delete is a request: leave the id out, or give recursive=True"
            raise invalid_argument("request id", request_id, reason)
        else:
            await self._db.write(lambda tx: delete_empty_scope(tx, name), step=Step.SCOPE_DELETE)

    async def scopes(self, **options: Unpack[PageOptions]) -> list[ScopeInfo]:
        """Return the scopes, by name.

        Args:
            options: see `PageOptions`.

        Raises:
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        page = ListPage.of(**options)
        return await self._db.read(lambda tx: [ScopeInfo.of(tx, each) for each in list_scopes(tx, page)])

    @overload
    async def create_stream(
        self,
        name: str,
        *,
        scaling: ScalingPolicy | None = None,
        tags: Iterable[str] = (),
        **options: Unpack[CreateOptions],
    ) -> Stream: ...
    @overload
    async def create_stream(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        scaling: ScalingPolicy | None = None,
        tags: Iterable[str] = (),
        **options: Unpack[CreateOptions],
    ) -> Stream[P]: ...
    async def create_stream(
        self,
        name: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        scaling: ScalingPolicy | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        offload: OffloadPolicy = OFFLOAD_NOTHING,
        tags: Iterable[str] = (),
        id_window_ms: int = ID_WINDOW_MS,
        **options: Unpack[RequestOptions],
    ) -> Stream[Any]:
        """Create a stream and return its handle; returns the existing one if its configuration is equal.

        Args:
            name: "scope/stream".
            payload: type of the payloads, which writers and readers of this handle take from it: `bytes` (default),
                `str`, or a type that a codec serves. It is not stored.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            scaling: number of segments. None (default): one segment.
            storage: where the bytes of its events lie. "database" (default); in a system in memory also "array",
                "linked_list", or a name given to `register_storage`.
            retention: how long events are kept. Default: until they are truncated.
            offload: how many of them stay in the database; older ones move into files. Default: all.
            tags: labels by which `streams(tag=...)` lists it, at most 128. Default: none.
            id_window_ms: for how long after an event another one with its `id` is not appended, in ms. Default: a day.
            options: see `RequestOptions`.

        Raises:
            NotFound: no such scope.
            AlreadyExists: the stream exists with another configuration.
            InvalidArgument: the name, a policy or the storage is not valid, or no codec serves the type.
            NotSupported: `offload` in a system that has no place for files: in memory, or on a server without `chunks`.
            StillPending: the wait ended first; the creation goes on.
        """
        StreamName.parse(name)
        chosen = codec_for(payload, codec)
        config = StreamConfig(
            ScalingPolicy.fixed(1) if scaling is None else as_scaling(scaling),
            storage=storage,
            retention=retention,
            tags=as_tags(tags),
            offload=offload,
            id_window_ms=id_window_ms,
        )
        request = await request_calls.run_request(self._db, CreateStream(name, config), **options)
        if isinstance(request.result, int):
            return Stream(self._db, name, request.result, chosen)
        return await self.stream(name, payload=payload, codec=codec)

    @overload
    async def stream(self, name: str) -> Stream: ...
    @overload
    async def stream(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> Stream[P]: ...
    async def stream(
        self, name: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> Stream[Any]:
        """Return the handle of a stream.

        Args:
            name: "scope/stream".
            payload: type of the payloads, as for `create_stream`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            NotFound: no such stream, or scope.
            InvalidArgument: the name is not valid, or no codec serves the type.
        """
        StreamName.parse(name)
        chosen = codec_for(payload, codec)
        record = await self._db.read(lambda tx: get_stream(tx, name))
        return Stream(self._db, name, record.value.stream_id, chosen)

    def transaction(
        self, *, consumer: ProgressSource | None = None, lease_ms: int | None = LEASE_MS
    ) -> JointTransaction:
        """Return a new joint transaction, to be used in `async with`: events of several streams, all or none.

        Leaving the block commits; an exception aborts. For one stream without a consumer, `Stream.transaction` costs
        less.

        Args:
            consumer: a `GroupReader` or a `Consumer`, whose progress moves with the commit, or a `ShareConsumer`,
                for which the commit accepts what it accepted in the block. If the block does not commit, the events
                of the block are delivered again: those of a `ShareConsumer` when their locks end. None (default):
                no progress.
            lease_ms: how long the transaction outlives its last ping, in ms, 1000 to 600,000; the block pings by
                itself. Default: 30 s. None: as long as this process lives.

        Raises:
            InvalidArgument: the lease is out of range, or the consumer is none.
            Closed: entering; the consumer is not open.
            IllegalTransition: entering; another transaction has the consumer.
        """
        check_lease(lease_ms)
        if consumer is not None and not callable(getattr(consumer, "hold_progress", None)):
            raise invalid_argument(
                "consumer", consumer, "it must be a GroupReader, a Consumer or a ShareConsumer"
            )
        return JointTransaction(self._db, lease_ms=lease_ms, consumer=consumer)

    async def synchronizer(
        self, name: str, kind: ReplicatedType[S, U], *, initial: S | None = None
    ) -> StateSynchronizer[S, U]:
        """Return a member's copy of an object that several processes share, with its newest state.

        Args:
            name: "scope/name" of the object.
            kind: its type; define it once, at module level, and alike in all processes.
            initial: the first state, if the object does not exist yet: it is then created. None (default): the
                object must exist.

        Raises:
            NotFound: the scope does not exist, or the object does not and `initial` is None.
            AlreadyExists: the object exists with a type of another name.
            IllegalTransition: the scope is being deleted.
            InvalidArgument: the name is not valid, or the first state is larger than 8 MiB, or is none of the type's.

        Cost:
            Two reads; a write if the object is created.
        """
        StreamName.parse(name)
        check_instance(ReplicatedType, "kind", kind, "it must be a ReplicatedType")
        log = await self._db.read(partial(find_named, name=name, kind=kind))
        if log is None:
            if initial is None:
                raise NotFound(kind="synchronizer", name=name)
            log = await self._db.write(partial(create_named, name=name, kind=kind, initial=initial))
        member = StateSynchronizer(self._db, log, kind)
        await member.fetch()
        return member

    async def synchronizers(self, scope: str | None = None, **options: Unpack[PageOptions]) -> list[str]:
        """Return the names of the shared objects, by scope and name.

        Args:
            scope: only those of this scope. None (default): of all scopes.
            options: see `PageOptions`.

        Raises:
            NotFound: no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        if scope is not None:
            check_str("scope", scope)
        page = ListPage.of(**options)
        return await self._db.read(partial(named_objects, scope=scope, page=page))

    async def delete_synchronizer(self, name: str) -> None:
        """Delete a shared object. Its members get NotFound from then on.

        Args:
            name: "scope/name" of the object.

        Raises:
            NotFound: it does not exist.
        """
        StreamName.parse(name)
        await self._db.write(partial(delete_named, name=name))

    @overload
    def dead_letters(self, group: str) -> DeadLetters: ...
    @overload
    def dead_letters(
        self, group: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> DeadLetters[P]: ...
    def dead_letters(
        self, group: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> DeadLetters[Any]:
        """Return the dead letters of a processor's or worker's group, or of a share group.

        Args:
            group: "scope/group".
            payload: type of the payloads of the originals, for `DeadLetter.value`. None (default): bytes.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            InvalidArgument: the name is not valid, or no codec serves the type.
        """
        return DeadLetters(self._db, group, codec_for(payload, codec))

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> Opening[Running]:
        """Run the app's processors while the block does: `async with ep.run(app) as running:`.

        `running = await ep.run(app)` runs them until `await running.close()`, which may be in another task.

        Leaving the block drains: no further call of a handler begins, running calls may return, finished work is made
        durable, and the segments go to other processes. The first Ctrl-C, or another cancellation of the block, drains
        too; a second one cancels the calls, and their events are handled again.

        A stream that was deleted and created again since the last run is read from its head. If that happens while the
        app runs, its processor fails within seconds, and the next run reads the new stream.

        Args:
            app: the app.
            grace_ms: how long running calls may take to return while draining, in ms.

        Raises:
            NotFound: entering; a stream, or its scope, does not exist.
            AlreadyExists: entering; a group has other streams.
            InvalidArgument: `app` is not an App, or an option is not valid.
            ProcessorFailed: leaving; a processor failed.
            HandlerAbandoned: leaving; a handler ignores its cancellation, and still ran 10 s after it. It goes on.
            Exception: entering; whatever the app's `setup` raises.
        """
        check_instance(App, "app", app, "it must be an eventproc.App")
        grace_ms = check_int("grace_ms", grace_ms, least=0)
        return run_app(self._db, app, grace_ms=grace_ms, run_of=_run_of)


def _run_of(options: Options) -> type[ProcessorRun]:
    """Return the class that runs a processor of an app."""
    if options.worker is None:
        return ProcessorRun
    from eventproc.jobs.engine import WorkerRun  # few programs need it

    return WorkerRun


async def begin_system(db: Database, *, host: bool) -> Eventproc:
    """Start the background of a database, and return its handle. host: whether it may run the internal processors."""
    return await Eventproc._begin(db, host=host)
