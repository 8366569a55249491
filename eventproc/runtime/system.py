"""An open directory: scopes and streams by name, requests by id, and the host in the background."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import cast

from eventproc.cluster import run_host
from eventproc.cluster.extent_joiner import join_tiny_extents
from eventproc.groups import (
    READERS,
    GroupEnd,
    GroupInfo,
    GroupOptions,
    GroupStart,
    ReaderGroup,
    TruncatedPolicy,
    ensure_group,
    get_group,
    group_name,
    list_group_infos,
)
from eventproc.processors import (
    GRACE_MS,
    App,
    ProcessorDescription,
    Running,
    describe_processor,
    describe_processors,
    pause_processor,
    run_app,
)
from eventproc.processors.dead_letters.letters import DeadLetters
from eventproc.store.catalog import (
    SYSTEM_MIGRATION,
    Scope,
    StreamRecord,
    get_stream,
    list_scopes,
    list_streams,
)
from eventproc.store.clock import Clock
from eventproc.store.database import Database, Durability, open_database, open_memory_database
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.argument_checks import check_instance, check_int, check_str, invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.model.policies import ScalingPolicy, StreamConfig, as_scaling
from eventproc.store.requests import Request, get_request, list_requests
from eventproc.store.tasks import BackgroundTasks
from eventproc.streams import perform
from eventproc.streams.perform import WAIT_MS
from eventproc.streams.stream import Stream
from eventproc.workflows.requests import AnyRequest, CreateStream, DeleteScope
from eventproc.workflows.scopes import create_scope, delete_empty_scope


class Eventproc:
    """An open directory, or memory. Made by `open` and `open_memory`; usable until their block ends."""

    def __init__(self, db: Database) -> None:
        self._db = db

    @property
    def path(self) -> Path | None:
        """The directory; None in memory."""
        return self._db.path

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        return self._db.durability

    @property
    def db(self) -> Database:
        """The database beneath, for extensions and tests."""
        return self._db

    async def create_scope(self, name: str) -> None:
        """Make a scope; one that is there is fine.

        Raises InvalidArgument, and IllegalTransition while one of that name is being deleted.
        """
        await self._db.write(lambda tx: create_scope(tx, name))

    async def delete_scope(self, name: str, *, recursive: bool = False, timeout_ms: int = WAIT_MS) -> None:
        """Remove a scope.

        Raises NotFound, and unless `recursive`, which deletes its groups and streams, ScopeNotEmpty, and
        IllegalTransition while it is being deleted.
        """
        check_scope_name(name)
        if recursive:
            await perform.perform(self._db, DeleteScope(name), timeout_ms=timeout_ms)
        else:
            await self._db.write(lambda tx: delete_empty_scope(tx, name))

    async def scopes(self) -> list[Scope]:
        """Return the scopes, by name."""
        return await self._db.read(list_scopes)

    async def create_stream(
        self, name: str, *, scaling: ScalingPolicy | None = None, timeout_ms: int = WAIT_MS
    ) -> Stream:
        """Make a stream and return its handle; one that is there with an equal configuration is fine.

        name: "scope/stream". scaling: one segment unless given. Raises NotFound (no such scope),
        AlreadyExists (with a different configuration), InvalidArgument, StillPending.
        """
        StreamName.parse(name)
        config = StreamConfig() if scaling is None else StreamConfig(as_scaling(scaling))
        request = await perform.perform(self._db, CreateStream(name, config), timeout_ms=timeout_ms)
        if isinstance(request.result, int):
            return Stream(self._db, name, request.result)
        return await self.stream(name)

    async def stream(self, name: str) -> Stream:
        """Return the handle of a stream. Raises NotFound naming what is missing, InvalidArgument."""
        StreamName.parse(name)
        record = await self._db.read(lambda tx: get_stream(tx, name))
        return Stream(self._db, name, record.value.stream_id)

    async def streams(self, scope: str | None = None) -> list[StreamRecord]:
        """Return the streams of a scope, or of all, by name. Raises NotFound."""
        if scope is not None:
            check_str("scope", scope)
        return await self._db.read(lambda tx: list_streams(tx, scope))

    async def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        until: GroupEnd = None,
        lease_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
    ) -> ReaderGroup:
        """Make a group of readers that share `streams`, and return its handle; one that is there and equal is fine.

        name: "scope/group", or "group" in the scope of the first stream. start, until: where it begins and ends; only
        looked at when it is made. lease_ms: longest silence of a reader before it counts as hung; None: only the dead
        are given up. checkpoint_ms: pause between checkpoints that nobody asks for. on_truncated: where to go on when
        what was not read is gone. Raises NotFound, AlreadyExists (with other streams or options),
        GroupStreamReplaced, InvalidArgument, InvalidCut, Truncated.
        """
        options = GroupOptions(lease_ms=lease_ms, checkpoint_ms=checkpoint_ms, on_truncated=on_truncated)
        full = group_name(name, streams)
        make = partial(
            ensure_group, name=full, streams=streams, start=start, until=until, kind=READERS, options=options
        )
        await self._db.write(make)
        return ReaderGroup(self._db, full)

    async def reader_group(self, name: str) -> ReaderGroup:
        """Return the handle of a group, "scope/group". Raises NotFound, InvalidArgument."""
        full = group_name(name)
        await self._db.read(partial(get_group, name=full))
        return ReaderGroup(self._db, full)

    async def reader_groups(self, scope: str | None = None) -> list[GroupInfo]:
        """Return the groups of a scope, or of all, those of processors included, by name. Raises NotFound."""
        if scope is not None:
            check_str("scope", scope)
        return await self._db.read(partial(list_group_infos, scope=scope))

    async def submit(
        self,
        request: AnyRequest,
        *,
        request_id: str | None = None,
        within_ms: int | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> Request:
        """Post a request without waiting for its outcome, and return it: its id finds it from any process, for a day.

        An equal pending one is joined: it is that which is returned, under its id. request_id: a UUID version
        7; repeating it returns what became of the first. within_ms: how long from now it may be begun; after
        that its outcome is Expired. timeout_ms: how long to wait until it is recorded, while a process that is
        stopped holds the lock of the writers; then LockHeld, and it is not. Raises what is refused at once,
        InProgress, Expired (an id older than a day).
        """
        asked = perform.as_request(request)
        return await perform.post(
            self._db, asked, request_id=request_id, within_ms=within_ms, timeout_ms=timeout_ms
        )

    async def request(self, request_id: str) -> Request:
        """Return a request and what became of it. Raises NotFound."""
        check_str("request id", request_id)
        return await self._db.read(lambda tx: get_request(tx, request_id))

    async def requests(self, *, limit: int = 100) -> list[Request]:
        """Return the newest requests, newest first."""
        limit = check_int("limit", limit, least=1)
        return await self._db.read(lambda tx: list_requests(tx, limit=limit))

    async def wait_request(self, request_id: str, *, timeout_ms: int = WAIT_MS) -> Request:
        """Return a request once it is done or rejected, whoever runs it. Raises NotFound, StillPending."""
        return await perform.wait(self._db, request_id, timeout_ms=timeout_ms)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of the processors' group `group`, "scope/group". Raises InvalidArgument."""
        return DeadLetters(self._db, group)

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> AbstractAsyncContextManager[Running]:
        """Run the app's processors while the block does: `async with ep.run(app) as running:`.

        Leaving the block drains: no call of a handler begins any more, those that run get `grace_ms` to return,
        what is finished is made durable, and the segments go to other processes. So does the first Ctrl-C, like
        every cancellation of the block; a second one cancels the calls too, and their events are handled again.

        A stream that was deleted and made again since the last run is read from its head. One that is made again
        while the app runs fails its processor within seconds: the next run reads it.

        Raises what the app's `setup` raises, NotFound (a stream, or its scope), AlreadyExists (a group with other
        streams), GroupStreamReplaced, InvalidArgument; at the end of the block ProcessorFailed, if one failed.
        """
        check_instance(App, "app", app, "it must be an eventproc.App")
        return run_app(self._db, app, grace_ms=check_int("grace_ms", grace_ms, least=0))

    async def processors(self) -> list[ProcessorDescription]:
        """Return the processors that ever ran here, by name of their groups: all processes, lag, members."""
        return await self._db.read(lambda tx: describe_processors(tx, self._db.path))

    async def processor(self, group: str) -> ProcessorDescription:
        """Return the processor whose group is `group`, "scope/group". Raises NotFound, NotAProcessorGroup."""
        check_str("group", group)
        return await self._db.read(lambda tx: describe_processor(tx, self._db.path, group))

    async def pause_processor(self, group: str) -> None:
        """Pause a processor durably, in all processes: calls that run end, no other begins.

        group: its name, "scope/group". One that is paused is fine. Raises NotFound, NotAProcessorGroup.
        """
        check_str("group", group)
        await self._db.write(lambda tx: pause_processor(tx, group, paused=True))

    async def resume_processor(self, group: str) -> None:
        """Take back `pause_processor`. Raises NotFound, NotAProcessorGroup."""
        check_str("group", group)
        await self._db.write(lambda tx: pause_processor(tx, group, paused=False))


@asynccontextmanager
async def open(
    path: str | PathLike[str],
    *,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> AsyncIterator[Eventproc]:
    """Open the directory `path`, shared with any number of processes of this machine; asyncio only.

    create: make it when it is missing or empty. durability: of a new directory, "fsync" (default:
    acknowledged means synced) or "os" (survives kill -9); another than an existing one's is refused.
    host: whether this instance may run the internal processors; one that may not waits for another that
    does. Raises StoreMissing, StoreUnusable, NotSupported, InvalidArgument.
    """
    _verify_given(clock, faults)
    if not isinstance(cast("object", path), (str, PathLike)):
        raise invalid_argument("directory", path, "it must be a path, as str or pathlib.Path")
    if str(path) in ("memory", ":memory:"):
        raise InvalidArgument(
            what="directory", value=str(path), reason="use eventproc.open_memory() for memory"
        )
    chosen = None if durability is None else _durability(durability)
    opening = open_database(
        Path(path),
        migrations=[SYSTEM_MIGRATION],
        durability=chosen,
        create=create,
        clock=clock,
        faults=faults,
    )
    async with opening as db, _running(db, host=host) as system:
        yield system


@asynccontextmanager
async def open_memory(
    *, host: bool = True, clock: Clock | None = None, faults: Faults = NO_FAULTS
) -> AsyncIterator[Eventproc]:
    """Open an empty system in memory, gone at the end of the block: the same code, on asyncio and trio.

    Raises InvalidArgument.
    """
    _verify_given(clock, faults)
    opening = open_memory_database(migrations=[SYSTEM_MIGRATION], clock=clock, faults=faults)
    async with opening as db, _running(db, host=host) as system:
        yield system


@asynccontextmanager
async def _running(db: Database, *, host: bool) -> AsyncIterator[Eventproc]:
    async with BackgroundTasks() as tasks:
        tasks.start_soon(join_tiny_extents, db)
        if host:
            tasks.start_soon(run_host, db)
        yield Eventproc(db)


def _verify_given(clock: object, faults: object) -> None:
    if clock is not None and not isinstance(clock, Clock):
        raise invalid_argument(
            "clock", clock, "it must be an eventproc.store.clock.Clock, or None for the machine's"
        )
    check_instance(Faults, "faults", faults, "it must be an eventproc.store.faults.Faults")


def _durability(text: Durability | str) -> Durability:
    try:
        return Durability(text)
    except ValueError:
        known = " or ".join(repr(each.value) for each in Durability)
        raise InvalidArgument(what="durability", value=str(text), reason=f"it must be {known}") from None
