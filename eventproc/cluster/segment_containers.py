"""Segment containers: which serving process owns which segments, so that a client finds each at one place.

A container is a row of `owner`; what a client writes into a segment compares the row of its container (`Owner.check`).
The record SERVERS lists the serving processes with their addresses. Joining, leaving, and removing a dead or silent
process is one transaction that also shares the containers, by the function that shares the buckets. A process that was
removed while it was suspended joins again. docs/design/host-store.md gives the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

import anyio
import attrs
from mmh3 import hash64

from eventproc.cluster.background_steps import STOPPED, repeat_step
from eventproc.cluster.buckets import share_names
from eventproc.cluster.owner_watch import OWNER_WATCH, working
from eventproc.processors.retry import RETRY_MS_MAX
from eventproc.store.database import Database, SharedSlot, Subscription, Tx, Watch
from eventproc.store.faults import Step
from eventproc.store.model.errors import NotSupported, Retryable
from eventproc.store.ownership import Owner, find_owner
from eventproc.store.records import RecordKind, create, find, replace
from eventproc.store.tasks import BackgroundTasks

LOG = logging.getLogger("eventproc.containers")

CONTAINER_COUNT: Final = 64
"""Number of containers of a directory, fixed for its life. Higher: more even shares, and each change of the serving
processes writes more rows."""

POLL_MS: Final = 200
"""Pause between two looks at the locks of the other serving processes: how long the segments of a dead one wait."""

DYING_MS_MAX: Final = 1_000
"""How long a process that answers no more may hold its lock until it counts as suspended; its clients wait. One
question to it (`Answers`) may take longer, and is awaited."""

DYING_POLL_MS: Final = 20
"""Pause between two looks at such a process."""

LEAVE_WAIT_S: Final = 2
"""How long a process that ends waits for its turn to leave. It counts as dead soon after, in any case."""

CONTAINERS_TOPIC: Final = "containers"
OWNED_TOPIC: Final = "owned containers"

TABLE_SUFFIX: Final = "_kvtable"
"""End of the names of tables as clients write them. A table has no container: every process serves it."""

Address: TypeAlias = tuple[str, int]

Answers: TypeAlias = Callable[[Address], Awaitable[bool]]
"""Whether the segment store at an address answers."""


@attrs.frozen
class ContainerServer:
    """A process that serves Pravega's clients.

    Attributes:
        instance: its opening of the directory.
        segment_store: host and port of its segment store.
        controller: host and port of its controller.
    """

    instance: str
    segment_store: Address
    controller: Address


@attrs.frozen
class ContainerServers:
    """The processes that share the containers, in the order in which they joined."""

    servers: tuple[ContainerServer, ...] = ()


SERVERS: Final = RecordKind(name="servers", value=ContainerServers)
"""One record, of the key ALL. Whenever owners change, its version grows."""

ALL: Final = "all"

NOBODY: Final = ContainerServers()


class _Serving:
    """Whether an opening of the directory serves."""

    is_serving = False


SERVING: Final = SharedSlot(_Serving)


def container_of(stream: str, segment: int) -> int | None:
    """Return the container of a segment of "scope/stream", which need not exist; None for a table. About 0.5 us."""
    if stream.endswith(TABLE_SUFFIX):
        return None
    return hash64(f"{stream}/{segment}".encode())[0] % CONTAINER_COUNT


def container_owner_name(container: int) -> str:
    """Return the name of the container's row of `owner`."""
    return f"container/{container}"


NAMES: Final = tuple(map(container_owner_name, range(CONTAINER_COUNT)))


@attrs.frozen
class ContainerMap:
    """What the directory says: the serving processes, and the owner of each container; None if it never had one.

    version: that of the record SERVERS; 0 if nobody ever served.
    """

    version: int = 0
    servers: tuple[ContainerServer, ...] = ()
    owners: tuple[Owner | None, ...] = (None,) * CONTAINER_COUNT


def read_containers(tx: Tx) -> ContainerMap:
    """Return the serving processes and the owners. One look-up for each container."""
    found = find(tx, SERVERS, ALL)
    if found is None:
        return ContainerMap()
    return ContainerMap(found.version, found.value.servers, tuple(find_owner(tx, each) for each in NAMES))


class SegmentContainers:
    """The containers as this process knows them. Only `Owner.check` in a transaction is certain.

    own_server: where this process serves.
    """

    def __init__(self, db: Database, own_server: ContainerServer) -> None:
        self._db = db
        self._instance = own_server.instance
        self._own_server = own_server
        self._map = ContainerMap()
        self._by_instance: Mapping[str, ContainerServer] = MappingProxyType({})
        self._listeners: dict[Subscription, None] = {}

    @property
    def servers(self) -> tuple[ContainerServer, ...]:
        """The serving processes, this one first."""
        others = [each for each in self._map.servers if each.instance != self._instance]
        return (self._own_server, *others)

    @property
    def is_serving(self) -> bool:
        """Whether the directory lists this process, as far as it knows."""
        return self._instance in self._by_instance

    @property
    def owned_count(self) -> int:
        """How many containers this process owns."""
        return sum(each is not None and each.instance == self._instance for each in self._map.owners)

    def own(self, container: int) -> Owner | None:
        """Return this process's ownership of a container; None if another process owns it."""
        owner = self._map.owners[container]
        return owner if owner is not None and owner.instance == self._instance else None

    def server_of(self, container: int | None) -> ContainerServer:
        """Return the process that owns a container, as this one knows it. This one if the owner serves no longer."""
        owner = None if container is None else self._map.owners[container]
        if owner is None:
            return self._own_server
        return self._by_instance.get(owner.instance, self._own_server)

    async def locate(self, container: int | None, answers: Answers) -> ContainerServer:
        """Return the process that owns a container now; this one for None. Replaces an owner that does not work.

        The Rust client connects to the address that it is given until it succeeds, so that the address of a process
        that has just been killed would stop it for ever. A lock may outlive the connections of its process for some
        ms, so that the owner must answer.

        Args:
            container: that of the segment.
            answers: whether the process at an address answers.

        Raises:
            Retryable: such an owner cannot be replaced now.
        """
        suspended_ms = self._db.clock.monotonic_ms() + DYING_MS_MAX
        while container is not None:
            self.replace(await self._db.read(read_containers))
            server = self.server_of(container)
            if server.instance == self._instance or await answers(server.segment_store):
                return server
            if not working(self._db)(server.instance):
                await self.share()
            elif self._db.clock.monotonic_ms() < suspended_ms:
                await anyio.sleep(DYING_POLL_MS / 1000)
            else:  # suspended, and not beyond its deadline
                return server
        return self._own_server

    async def share(self) -> None:
        """Add this process, remove those that do not work, and share the containers, unless that was done already."""
        self._db.shared[OWNER_WATCH].beat(self._db)
        share = partial(share_containers, is_working=working(self._db), joining=self._own_server)
        await self._db.write(share, step=Step.CONTAINER_SHARE)  # it may have joined also if this is cancelled
        self.replace(await self._db.read(read_containers))

    @contextmanager
    def notifying(self, changes: Subscription) -> Iterator[None]:
        """Wake the subscription, as by OWNED_TOPIC, at each change of the owners within the block."""
        self._listeners[changes] = None
        try:
            yield
        finally:
            del self._listeners[changes]

    def replace(self, found: ContainerMap) -> None:
        """Note what the directory said. Does nothing with what is known, or older: reads may end in another order."""
        if found.version <= self._map.version:
            return
        self._map = found
        self._by_instance = MappingProxyType({each.instance: each for each in found.servers})
        for each in self._listeners:
            each.notify(OWNED_TOPIC)


def share_containers(
    tx: Tx,
    is_working: Callable[[str], bool],
    *,
    joining: ContainerServer | None = None,
    leaving: str | None = None,
) -> None:
    """Remove processes that do not work and `leaving`, add `joining`, and share the containers.

    Fairly, with the fewest moves.

    Does nothing if the processes are the same. The last one that leaves keeps its rows, which the next one claims.
    """
    found = find(tx, SERVERS, ALL)
    before = NOBODY if found is None else found.value
    stay = [
        each
        for each in before.servers
        if each == joining or (each.instance != leaving and is_working(each.instance))
    ]
    after = ContainerServers(tuple(stay if joining is None or joining in stay else [*stay, joining]))
    if after == before:
        return
    if found is None:
        create(tx, SERVERS, ALL, after)
    else:
        replace(tx, SERVERS, found, after)
    share_names(tx, NAMES, [each.instance for each in after.servers])
    tx.wake(CONTAINERS_TOPIC)


def watch_containers() -> Watch:
    """Return the watch for changes of the serving processes and of what they own."""

    def probe(tx: Tx) -> int:
        found = find(tx, SERVERS, ALL)
        return 0 if found is None else found.version

    return Watch(CONTAINERS_TOPIC, probe)


@asynccontextmanager
async def serving_containers(
    db: Database, segment_store: Address, controller: Address
) -> AsyncIterator[SegmentContainers]:
    """Own a share of the containers while the block runs; yield them. At its end the others take this share over.

    Raises NotSupported if this opening of the directory serves already: containers are owned by openings, so that the
    segments of one server would seem to be at the other one.
    """
    serving = db.shared[SERVING]
    if serving.is_serving:
        raise NotSupported(
            what="a second server in one opening of the directory",
            remedy="open the directory once more for that server",
        )
    serving.is_serving = True
    try:
        async with _sharing_containers(db, segment_store, controller) as containers:
            yield containers
    finally:
        serving.is_serving = False


@asynccontextmanager
async def _sharing_containers(
    db: Database, segment_store: Address, controller: Address
) -> AsyncIterator[SegmentContainers]:
    server = ContainerServer(db.instance_id, segment_store, controller)
    containers = SegmentContainers(db, server)
    try:
        await containers.share()
        async with BackgroundTasks() as tasks:
            tasks.start_soon(_keep, db, containers)
            yield containers
    finally:
        leave = partial(share_containers, is_working=working(db), leaving=db.instance_id)
        with anyio.move_on_after(LEAVE_WAIT_S, shield=True):
            try:
                await db.write(leave, step=Step.CONTAINER_SHARE)
            except (Retryable, *STOPPED) as why:
                LOG.warning("the containers of this process wait until the others see its end: %s", why)


async def _keep(db: Database, containers: SegmentContainers) -> None:
    """Follow the owners, and replace processes that do not work, until cancelled or closed."""
    with db.subscribe([watch_containers()]) as changes:
        follow = partial(_follow, db, containers, changes)
        pause = partial(anyio.sleep, RETRY_MS_MAX / 1000)
        await repeat_step(follow, pause, LOG, "the containers cannot be shared now")


async def _follow(db: Database, containers: SegmentContainers, changes: Subscription) -> None:
    """Learn the owners, and replace a process that does not work. Returns after a change of owners."""
    containers.replace(await db.read(read_containers))
    others = [each.instance for each in containers.servers[1:]]
    watch, is_working = db.shared[OWNER_WATCH], working(db)
    while containers.is_serving:  # else it was suspended, and others took its segments over
        if others:
            watch.keep(db)
        if await changes.wait(POLL_MS if others else None):
            return
        if gone := [each for each in others if not is_working(each)]:
            LOG.info("serving process %s is dead or silent; sharing its segments", ", ".join(gone))
            break
    await containers.share()
