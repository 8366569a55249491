"""The container of a segment: the check before a command runs, and the fence within what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eventproc.cluster.segment_containers import SegmentContainers, container_of
from eventproc.server.wire.commands import WrongHost
from eventproc.server.wire.segment_names import WireSegment
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.ownership import Owner

T = TypeVar("T")


class MovedSegment(Exception):
    """Another process owns the container of the segment."""

    def __init__(self, target: WireSegment) -> None:
        super().__init__(str(target))
        self.target = target


class WireOwnership:
    """What a connection may do with segments. Raises MovedSegment for those of other processes."""

    def __init__(self, db: Database, containers: SegmentContainers) -> None:
        self._db = db
        self.containers = containers

    def verify(self, target: WireSegment) -> Owner | None:
        """Return this process's ownership of a segment; None for one that every process serves."""
        container = container_of(target.stream, target.segment)
        if container is None:
            return None
        if (owner := self.containers.own(container)) is None:
            raise MovedSegment(target)
        return owner

    async def write(self, target: WireSegment, call: Callable[[Tx], T], *, size_bytes: int = 0) -> T:
        """Run `call` in a transaction that compares the owner of the segment."""
        owner = self.verify(target)

        def run(tx: Tx) -> T:
            if owner is not None:
                owner.check(tx)
            return call(tx)

        try:
            return await self._db.write(run, size_bytes=size_bytes, brief=True)
        except OwnerFenced:
            raise MovedSegment(target) from None

    def wrong_host(self, request_id: int, name: str, target: WireSegment) -> WrongHost:
        """Return the refusal that leads a client to the owner of a segment."""
        host, port = self.containers.server_of(container_of(target.stream, target.segment)).segment_store
        return WrongHost(request_id, name, f"{host}:{port}", "")
