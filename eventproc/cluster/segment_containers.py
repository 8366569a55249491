"""Segment containers: which serving process owns which segments, so that a client finds each at one place.

The record `servers` lists the serving processes with their addresses. They divide the containers as the instances
divide the buckets. docs/design/host-store.md gives the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio
import attrs
from mmh3 import hash64

from eventproc.base.tasks import BackgroundTasks
from eventproc.cluster.background_steps import STOPPED
from eventproc.cluster.divisions import Division, OwnedNames
from eventproc.cluster.owner_watch import working
from eventproc.store.database import Database, SharedSlot
from eventproc.store.faults import Step
from eventproc.store.model.errors import NotSupported, Retryable
from eventproc.store.ownership import Owner
from eventproc.store.records import RecordKind

LOG = logging.getLogger("eventproc.containers")

CONTAINER_COUNT: Final = 64
"""Number of containers of a directory, fixed for its life. Higher: more even shares, and each change of the serving
processes writes more rows."""

DYING_MS_MAX: Final = 1_000
"""How long a process that answers no more may hold its lock until it counts as suspended; its clients wait. One
question to it (`Answers`) may take longer, and is awaited."""

DYING_POLL_MS: Final = 20
"""Pause between two looks at such a process."""

LEAVE_WAIT_S: Final = 2
"""How long a process that ends waits for its turn to leave. It counts as dead soon after, in any case."""

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


CONTAINERS: Final[Division[ContainerServer]] = Division(
    record=RecordKind(name="servers", value=ContainerServers),
    members_of=lambda found: found.servers,
    instance_of=lambda server: server.instance,
    names=tuple(map(container_owner_name, range(CONTAINER_COUNT))),
    channel="containers",
    step=Step.CONTAINER_SHARE,
)


class SegmentContainers(OwnedNames[ContainerServer]):
    """The containers as this process knows them.

    own_server: where this process serves.
    """

    def __init__(self, db: Database, own_server: ContainerServer) -> None:
        super().__init__(CONTAINERS)
        self._db = db
        self._own_server = own_server

    @property
    def servers(self) -> tuple[ContainerServer, ...]:
        """The serving processes, this one first."""
        others = [each for each in self.known.members if each.instance != self._own_server.instance]
        return (self._own_server, *others)

    def own(self, container: int) -> Owner | None:
        """Return this process's ownership of a container; None if another process owns it."""
        return self.owned.get(container)

    def server_of(self, container: int | None) -> ContainerServer:
        """Return the process that owns a container, as this one knows it. This one if the owner serves no longer."""
        owner = None if container is None else self.known.owners[container]
        if owner is None:
            return self._own_server
        found = (each for each in self.known.members if each.instance == owner.instance)
        return next(found, self._own_server)

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
            await self.learn(self._db)
            server = self.server_of(container)
            if server.instance == self._own_server.instance or await answers(server.segment_store):
                return server
            if not working(self._db)(server.instance):
                await self.join(self._db, self._own_server)
            elif self._db.clock.monotonic_ms() < suspended_ms:
                await anyio.sleep(DYING_POLL_MS / 1000)
            else:  # suspended, and not beyond its deadline
                return server
        return self._own_server


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
        await containers.join(db, server)
        async with BackgroundTasks() as tasks:
            tasks.start_soon(containers.keep, db, server)
            yield containers
    finally:
        leave = partial(CONTAINERS.divide, is_working=working(db), leaving=db.instance_id)
        with anyio.move_on_after(LEAVE_WAIT_S, shield=True):
            try:
                await db.write(leave, step=Step.CONTAINER_SHARE)
            except (Retryable, *STOPPED) as why:
                LOG.warning("the containers of this process wait until the others see its end: %s", why)
