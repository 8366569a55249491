"""Membership: which instances have the directory open, and an event for each that comes or goes.

The kernel knows which instances are alive (`Peers`); nothing is stored. So a death is seen without a timeout, and a
suspended instance is a member until it dies.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Final, TypeAlias

import attrs

from eventproc.base.clock import id_time_ms
from eventproc.cluster.buckets import bucket_owners
from eventproc.cluster.host import CONTROLLER
from eventproc.cluster.segment_containers import CONTAINERS, ContainerServer
from eventproc.store.database import Database, Tx
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.ownership import Owner, find_owner

LOOK_MS: Final = 200
"""Pause between two looks at the instances: how late a change is seen. Each look costs about 10 us per instance."""


@attrs.frozen
class ClusterInstance:
    """An instance: one opening of the directory by a process.

    Attributes:
        id: UUID version 7.
        pid: its process; None in memory.
        opened_ms: when it was opened, wall clock.
        is_host: whether it runs the requests, commits and sweeps of the directory.
        is_self: whether it is the instance that was asked.
        buckets: how many of the buckets of periodic work and tasks it owns.
    """

    __repr__ = short_repr_of_fields

    id: str
    pid: int | None
    opened_ms: int
    is_host: bool
    is_self: bool
    buckets: int


@attrs.frozen
class ClusterServer:
    """An instance that serves Pravega's clients: `eventproc serve`.

    Attributes:
        instance: its id.
        controller: host and port of its controller.
        segment_store: host and port of its segment store.
        containers: how many of the containers of segments it owns.
    """

    __repr__ = short_repr_of_fields

    instance: str
    controller: str
    segment_store: str
    containers: int


@attrs.frozen
class ClusterDescription:
    """The instances, and what they share.

    Attributes:
        instances: those that are alive, oldest first.
        host: id of the host; None if there is none now.
        host_epoch: how many instances were the host until now, one after the other.
        buckets: the instance that owns each bucket; None for a bucket whose owner is dead.
        servers: the instances that serve Pravega's clients, in the order in which they joined.
    """

    __repr__ = short_repr_of_fields

    instances: tuple[ClusterInstance, ...]
    host: str | None
    host_epoch: int
    buckets: tuple[str | None, ...]
    servers: tuple[ClusterServer, ...] = ()


@attrs.frozen
class InstanceAdded:
    """An instance was opened, or was open when the iteration began. pid: its process; None in memory."""

    __repr__ = short_repr_of_fields

    id: str
    pid: int | None


@attrs.frozen
class InstanceRemoved:
    """An instance was closed, or died. pid: that of its process; None in memory."""

    __repr__ = short_repr_of_fields

    id: str
    pid: int | None


ClusterChange: TypeAlias = InstanceAdded | InstanceRemoved
"""An event of `Cluster.changes`."""


class Cluster:
    """The instances of a directory; `ep.cluster`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def __repr__(self) -> str:
        return f"Cluster({self._db.name!r})"

    async def list(self) -> builtins.list[ClusterInstance]:
        """Return the instances that are alive, oldest first. A suspended one is alive."""
        return [*(await self.describe()).instances]

    async def describe(self) -> ClusterDescription:
        """Return the instances, the host, and the owners of the buckets."""
        return await self._db.read(partial(describe_cluster, db=self._db))

    async def changes(self) -> AsyncIterator[ClusterChange]:
        """Yield an event for each instance that is open, then one for each that comes or goes, without an end.

        An instance that comes and goes within 200 ms may be left out; it never yields only one of its two events.

        Raises:
            Closed: the directory was closed meanwhile.
            DatabaseStopped: the directory cannot be used any more.

        Cost:
            A look at the instances every 200 ms, about 10 us each.
        """
        known: dict[str, int | None] = {}
        while True:
            live = self._db.peers.live()
            for each in [each for each in known if each not in live]:
                yield InstanceRemoved(each, known.pop(each))
            for each in [each for each in live if each not in known]:
                known[each] = self._db.peers.pid_of(each)
                yield InstanceAdded(each, known[each])
            await self._pause()

    async def _pause(self) -> None:
        """Wait until the next look. Raises Closed, DatabaseStopped."""
        with self._db.subscribe([]) as changes:
            await changes.wait(LOOK_MS)


def describe_cluster(tx: Tx, db: Database) -> ClusterDescription:
    """Return the instances, the host, and the owners of the buckets."""
    live = db.peers.live()
    owner = find_owner(tx, CONTROLLER)
    host = owner.instance if owner is not None and owner.instance in live else None
    buckets = tuple(each if each in live else None for each in bucket_owners(tx))
    found = CONTAINERS.read(tx)
    instances = tuple(
        ClusterInstance(
            id=each,
            pid=db.peers.pid_of(each),
            opened_ms=id_time_ms(each),
            is_host=each == host,
            is_self=each == db.instance_id,
            buckets=buckets.count(each),
        )
        for each in live
    )
    servers = tuple(_server(each, found.owners) for each in found.members if each.instance in live)
    return ClusterDescription(instances, host, 0 if owner is None else owner.owner_epoch, buckets, servers)


def _server(server: ContainerServer, owners: Iterable[Owner | None]) -> ClusterServer:
    owned = sum(each is not None and each.instance == server.instance for each in owners)
    controller, segment_store = (f"{host}:{port}" for host, port in (server.controller, server.segment_store))
    return ClusterServer(server.instance, controller, segment_store, owned)
