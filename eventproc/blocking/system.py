"""An open directory, without `await`.

The twins of topics, share groups and supervisors are imported by the first call that needs them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from eventproc.blocking._generated import (
    ClusterCalls,
    DeadLettersCalls,
    EventprocCalls,
    RequestsCalls,
    TasksCalls,
    UsersCalls,
)
from eventproc.blocking.group import BlockingGroupReader, BlockingReaderGroup
from eventproc.blocking.joint_transaction import BlockingJointTransaction, twin_of
from eventproc.blocking.loop import Loop, Opened
from eventproc.blocking.running import BlockingRunning, running_app
from eventproc.blocking.stream import BlockingStream
from eventproc.blocking.synchronizer import BlockingStateSynchronizer
from eventproc.cluster import ClusterChange
from eventproc.groups import EQUAL, GroupEnd, GroupStart, RetainedPart, TruncatedPolicy
from eventproc.processors import GRACE_MS, App
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.store.clock import Clock
from eventproc.store.database import Durability
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.groups import DELIVERIES_MAX, LOCK_MS
from eventproc.store.model.policies import DATABASE_STORAGE, KEEP_ALL, RetentionPolicy, ScalingPolicy
from eventproc.store.openable import Opening
from eventproc.store.replicated import ReplicatedType
from eventproc.streams import Codec
from eventproc.streams.request_calls import WAIT_MS
from eventproc.streams.transaction import LEASE_MS

if TYPE_CHECKING:
    from eventproc.blocking.consumer import BlockingConsumer, BlockingConsumerGroup
    from eventproc.blocking.share import BlockingShareGroup
    from eventproc.blocking.supervisor import BlockingSupervisor
    from eventproc.blocking.topic import BlockingTopic
    from eventproc.ingestion import SpecEffect, SupervisorInfo, SupervisorSpec
    from eventproc.shares import ShareGroupInfo
    from eventproc.streams.partitioners import Partitioner
    from eventproc.topics.topic import Strategy

P = TypeVar("P")
S = TypeVar("S")
U = TypeVar("U")


class BlockingRequests(RequestsCalls):
    """The requests of a directory; `ep.requests`. See `Requests`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    def new_id(self) -> str:
        """Return a new id for a request. See `Requests.new_id`."""
        return self._twin.new_id()


class BlockingTasks(TasksCalls):
    """The tasks of a directory; `ep.tasks`. See `Tasks`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"


class BlockingUsers(UsersCalls):
    """The users of a directory; `ep.users`. See `Users`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"


class BlockingCluster(ClusterCalls):
    """The instances of a directory; `ep.cluster`. See `Cluster`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    def changes(self) -> Iterator[ClusterChange]:
        """Yield an event for each instance that is open, then one for each that comes or goes, without an end.

        See `Cluster.changes`.
        """
        found = self._twin.changes()
        while True:
            yield self._loop.call(partial(anext, found))


class BlockingDeadLetters(DeadLettersCalls):
    """The dead letters of one group; made by `BlockingEventproc.dead_letters`. See `DeadLetters`."""

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @property
    def group(self) -> str:
        """The group's full name."""
        return self._twin.group


class BlockingEventproc(EventprocCalls, Opened):
    """An open directory; made by `open_blocking`, usable from any thread until it is closed. See `Eventproc`.

    Closing it closes the writers, readers and running apps that are still open, the newest first.
    """

    def __init__(self, loop: Loop, system: Eventproc) -> None:
        super().__init__(loop, system)
        self.requests = BlockingRequests(loop, system.requests)
        self.cluster = BlockingCluster(loop, system.cluster)
        self.tasks = BlockingTasks(loop, system.tasks)

    @cached_property
    def users(self) -> BlockingUsers:
        """Who may call the endpoints of `eventproc serve`, and do what."""
        return BlockingUsers(self._loop, self._twin.users)

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    def __del__(self) -> None:
        if not (self.closed or self._loop.forked):
            text = f"unclosed {self!r}: leave its `with`, or call `ep.close()`"
            warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    def _leave(self, why: BaseException | None) -> None:
        interrupted = True
        try:
            with ExitStack() as closing:
                closing.callback(super()._leave, why)
                for each in self._loop.opened:
                    closing.callback(each.__exit__, None if why is None else type(why), why, None)
            interrupted = False
        finally:
            self._loop.end(interrupted=interrupted)

    @property
    def path(self) -> Path | None:
        """The directory."""
        return self._twin.path

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        return self._twin.durability

    @overload
    def create_stream(
        self,
        name: str,
        *,
        scaling: ScalingPolicy | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        tags: Iterable[str] = (),
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingStream: ...
    @overload
    def create_stream(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        scaling: ScalingPolicy | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        tags: Iterable[str] = (),
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingStream[P]: ...
    def create_stream(
        self,
        name: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        scaling: ScalingPolicy | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        tags: Iterable[str] = (),
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingStream[Any]:
        """Create a stream and return its handle. See `Eventproc.create_stream`."""
        made = self._loop.call(
            partial(
                self._twin.create_stream,
                name,
                payload=payload,
                codec=codec,
                scaling=scaling,
                storage=storage,
                retention=retention,
                tags=tags,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )
        return BlockingStream(self._loop, made)

    @overload
    def stream(self, name: str) -> BlockingStream: ...
    @overload
    def stream(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingStream[P]: ...
    def stream(
        self, name: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> BlockingStream[Any]:
        """Return the handle of a stream. See `Eventproc.stream`."""
        found = self._loop.call(partial(self._twin.stream, name, payload=payload, codec=codec))
        return BlockingStream(self._loop, found)

    def transaction(
        self,
        *,
        consumer: BlockingGroupReader[Any] | BlockingConsumer[Any] | None = None,
        lease_ms: int | None = LEASE_MS,
    ) -> BlockingJointTransaction:
        """Return a new joint transaction, to be used in `with`. See `Eventproc.transaction`.

        consumer: the reader whose progress moves with the commit.
        """
        return BlockingJointTransaction(
            self._loop, self._twin.transaction(consumer=twin_of(consumer), lease_ms=lease_ms)
        )

    @overload
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy = "key",
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingTopic: ...
    @overload
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy | Partitioner[P] = "key",
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingTopic[P]: ...
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy | Partitioner[Any] = "key",
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = WAIT_MS,
    ) -> BlockingTopic[Any]:
        """Create a topic and return its handle. See `Eventproc.create_topic`."""
        from eventproc.blocking.topic import BlockingTopic

        made = self._loop.call(
            partial(
                self._twin.create_topic,
                name,
                partitions=partitions,
                partitioning=partitioning,
                payload=payload,
                codec=codec,
                storage=storage,
                retention=retention,
                ttl_ms=ttl_ms,
                request_id=request_id,
                timeout_ms=timeout_ms,
            )
        )
        return BlockingTopic(self._loop, made)

    @overload
    def topic(self, name: str) -> BlockingTopic: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        partitioner: Partitioner[P] | None = None,
    ) -> BlockingTopic[P]: ...
    def topic(
        self,
        name: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        partitioner: Partitioner[Any] | None = None,
    ) -> BlockingTopic[Any]:
        """Return the handle of a topic. See `Eventproc.topic`."""
        from eventproc.blocking.topic import BlockingTopic

        found = self._loop.call(
            partial(self._twin.topic, name, payload=payload, codec=codec, partitioner=partitioner)
        )
        return BlockingTopic(self._loop, found)

    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        until: GroupEnd = None,
        lease_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
        assignor: str = EQUAL,
        retains: RetainedPart | None = "progress",
    ) -> BlockingReaderGroup:
        """Create a group of readers that share `streams`. See `Eventproc.create_reader_group`."""
        made = self._loop.call(
            partial(
                self._twin.create_reader_group,
                name,
                streams,
                start=start,
                until=until,
                lease_ms=lease_ms,
                checkpoint_ms=checkpoint_ms,
                on_truncated=on_truncated,
                assignor=assignor,
                retains=retains,
            )
        )
        return BlockingReaderGroup(self._loop, made)

    def reader_group(self, name: str) -> BlockingReaderGroup:
        """Return the handle of a reader group. See `Eventproc.reader_group`."""
        return BlockingReaderGroup(self._loop, self._loop.call(self._twin.reader_group, name))

    def create_share_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        lock_ms: int = LOCK_MS,
        deliveries_max: int = DELIVERIES_MAX,
    ) -> BlockingShareGroup:
        """Create a share group: a queue. See `Eventproc.create_share_group`."""
        from eventproc.blocking.share import BlockingShareGroup

        make = partial(
            self._twin.create_share_group,
            name,
            streams,
            start=start,
            lock_ms=lock_ms,
            deliveries_max=deliveries_max,
        )
        return BlockingShareGroup(self._loop, self._loop.call(make))

    def share_group(self, name: str) -> BlockingShareGroup:
        """Return the handle of a share group. See `Eventproc.share_group`."""
        from eventproc.blocking.share import BlockingShareGroup

        return BlockingShareGroup(self._loop, self._loop.call(self._twin.share_group, name))

    def share_groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ShareGroupInfo]:
        """Return the share groups, by scope and name. See `Eventproc.share_groups`."""
        return self._loop.call(
            partial(self._twin.share_groups, scope, prefix=prefix, after=after, limit=limit)
        )

    def submit_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> BlockingSupervisor:
        """Submit the spec of a supervisor. See `Eventproc.submit_supervisor`."""
        from eventproc.blocking.supervisor import BlockingSupervisor

        return BlockingSupervisor(self._loop, self._loop.call(self._twin.submit_supervisor, spec))

    def preview_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> SpecEffect:
        """Return what submitting a spec would do. See `Eventproc.preview_supervisor`."""
        return self._loop.call(self._twin.preview_supervisor, spec)

    def supervisor(self, id: str) -> BlockingSupervisor:
        """Return the handle of a supervisor. See `Eventproc.supervisor`."""
        from eventproc.blocking.supervisor import BlockingSupervisor

        return BlockingSupervisor(self._loop, self._loop.call(self._twin.supervisor, id))

    def supervisors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[SupervisorInfo]:
        """Return the supervisors that have not ended, by id. See `Eventproc.supervisors`."""
        return self._loop.call(partial(self._twin.supervisors, prefix=prefix, after=after, limit=limit))

    def create_consumer_group(
        self,
        name: str,
        topics: Sequence[str],
        *,
        assignor: str = EQUAL,
        start: GroupStart = "head",
        lease_ms: int | None = None,
        rebalance_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
    ) -> BlockingConsumerGroup:
        """Create a group of consumers that share `topics`. See `Eventproc.create_consumer_group`."""
        from eventproc.blocking.consumer import BlockingConsumerGroup

        made = self._loop.call(
            partial(
                self._twin.create_consumer_group,
                name,
                topics,
                assignor=assignor,
                start=start,
                lease_ms=lease_ms,
                rebalance_ms=rebalance_ms,
                on_truncated=on_truncated,
            )
        )
        return BlockingConsumerGroup(self._loop, made)

    def consumer_group(self, name: str) -> BlockingConsumerGroup:
        """Return the handle of a consumer group. See `Eventproc.consumer_group`."""
        from eventproc.blocking.consumer import BlockingConsumerGroup

        return BlockingConsumerGroup(self._loop, self._loop.call(self._twin.consumer_group, name))

    def synchronizer(
        self, name: str, kind: ReplicatedType[S, U], *, initial: S | None = None
    ) -> BlockingStateSynchronizer[S, U]:
        """Return a member's copy of an object that several processes share. See `Eventproc.synchronizer`."""
        member = self._loop.call(partial(self._twin.synchronizer, name, kind, initial=initial))
        return BlockingStateSynchronizer(self._loop, member)

    def dead_letters(self, group: str) -> BlockingDeadLetters:
        """Return the dead letters of a processor's group. See `Eventproc.dead_letters`."""
        return BlockingDeadLetters(self._loop, self._twin.dead_letters(group))

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors until the result is closed: `with ep.run(app) as running: running.wait()`.

        Async handlers run on the loop's thread, plain functions on other threads; none runs on the caller's. Ctrl-C
        interrupts the block and drains, as its end does; a second one while it drains cancels the running calls. See
        `Eventproc.run`.
        """
        return running_app(self._loop, self._twin.run(app, grace_ms=grace_ms))


def open_blocking(
    path: str | PathLike[str],
    *,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> BlockingEventproc:
    """Open the directory `path` for code without `await`; everything as `open`.

    Use it in `with`, or call `close`. Runs an event loop in a thread of its own until then. A forked child can use
    nothing of it (ForkedError); closing it there does nothing, and what was posted is its parent's to write.
    """
    opening = open_directory(
        path, durability=durability, create=create, host=host, chunks=chunks, clock=clock, faults=faults
    )
    loop = Loop.begin()
    try:
        return BlockingEventproc(loop, open_on(loop, opening))
    except BaseException:
        loop.end(interrupted=True)
        raise


def open_on(loop: Loop, opening: Opening[Eventproc]) -> Eventproc:
    """Open a directory on a loop."""

    async def start() -> Eventproc:
        return await opening

    return loop.open(start, Eventproc.close)
