"""The internal processors: what the host runs, each an event processor like those of users.

They differ from users' processors in two ways. The host owns all of their segments (`HostMembership`). And their
handlers publish by themselves: the progress of an event moves in the transaction that publishes its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import anyio
import attrs

from eventproc.cluster.request_handler import REQUESTS_IN_FLIGHT_MAX, run_request
from eventproc.cluster.transaction_handlers import (
    ABORTS_IN_FLIGHT_MAX,
    COMMITS_IN_FLIGHT_MAX,
    run_abort,
    run_commit,
)
from eventproc.groups import Membership, SegmentKey, SegmentOwnership
from eventproc.processors.engine.engine import Engine
from eventproc.processors.handler import make_handler
from eventproc.processors.options import Options, ProcessingOrder
from eventproc.store.catalog import ABORT_STREAM, COMMIT_STREAM, REQUEST_STREAM, SYSTEM_EPOCH, SystemStream
from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_events, get_progress
from eventproc.store.segments import Event


@attrs.frozen
class InternalProcessor:
    """One internal processor.

    order: as for users' processors. concurrency: calls in flight, at most. handler: compares the owner, then finishes
    the event in the transaction that publishes its result.
    """

    stream: SystemStream
    order: ProcessingOrder
    concurrency: int
    handler: Callable[[Database, Owner, Event], Awaitable[None]]


INTERNAL_PROCESSORS: Final = (
    InternalProcessor(REQUEST_STREAM, ProcessingOrder.KEY, REQUESTS_IN_FLIGHT_MAX, run_request),
    InternalProcessor(COMMIT_STREAM, ProcessingOrder.KEY, COMMITS_IN_FLIGHT_MAX, run_commit),
    InternalProcessor(ABORT_STREAM, ProcessingOrder.NONE, ABORTS_IN_FLIGHT_MAX, run_abort),
)


async def run_internal_processors(
    db: Database, owner: Owner, processors: Sequence[InternalProcessor] = INTERNAL_PROCESSORS
) -> None:
    """Run the processors from their progress on, until cancelled.

    Raises, in groups, OwnerFenced, DatabaseStopped, and any other error of a handler.
    """
    async with anyio.create_task_group() as tasks:
        for each in processors:
            tasks.start_soon(make_engine(db, owner, each).run)


def make_engine(db: Database, owner: Owner, internal: InternalProcessor) -> Engine:
    """Return the engine that runs the processor once, for as long as `owner` is the host."""
    options = Options(
        name=internal.stream.name,
        streams=(internal.stream.name,),
        group=internal.stream.name,
        order=internal.order,
        concurrency=internal.concurrency,
        on_truncated="error",
        publishes=True,
    )
    make = partial(make_handler, partial(internal.handler, db, owner))
    return Engine(db, options, make, HostMembership(db, internal.stream, owner))


class HostMembership(Membership):
    """The host's membership in the group of an internal stream: it owns all segments while it is the host.

    The group is named like its stream. One instance serves all segments, and the row that `Owner` compares decides
    which instance. The host's owner epoch replaces the segment's owner epoch of a users' group: it is compared in
    every transaction that moves progress.
    """

    def __init__(self, db: Database, stream: SystemStream, owner: Owner) -> None:
        self.group = stream.name
        self.reader = owner.instance
        self._db = db
        self._stream = stream
        self._owner = owner
        self._owned: Mapping[SegmentKey, SegmentOwnership] = MappingProxyType({})

    @property
    def owned(self) -> Mapping[SegmentKey, SegmentOwnership]:
        """All segments of the stream, from the first refresh on."""
        return self._owned

    @property
    def surplus(self) -> frozenset[SegmentKey]:
        """Always empty: no other instance shares the segments."""
        return frozenset()

    @property
    def paused(self) -> bool:
        """Always False: commands would wait permanently."""
        return False

    async def refresh(self) -> None:
        """Acquire the segments at the first call. Raises OwnerFenced."""
        if not self._owned:
            self._owned = MappingProxyType(await self._db.read(self._acquire))

    def _acquire(self, tx: Tx) -> dict[SegmentKey, SegmentOwnership]:
        self._owner.check(tx)
        return {
            (self._stream.stream_id, segment): self._assigned(tx, segment) for segment in SYSTEM_EPOCH.ids
        }

    def _assigned(self, tx: Tx, segment: SegmentId) -> SegmentOwnership:
        progress = get_progress(tx, self.group, self._stream.stream_id, segment)
        return SegmentOwnership(
            self._stream.name, self._stream.stream_id, segment, self._owner.owner_epoch, progress
        )

    async def wait_change(self, timeout_ms: int | None = None) -> None:
        """Wait for `timeout_ms`, or until cancelled. A replaced host is fenced by its next transaction."""
        if timeout_ms is None:
            await anyio.sleep_forever()
        else:
            await anyio.sleep(timeout_ms / 1000)

    async def release(self, keys: Collection[SegmentKey]) -> None:
        """Drop the segments; the next host acquires all of them."""
        self._owned = MappingProxyType({key: each for key, each in self._owned.items() if key not in keys})

    def move(
        self, tx: Tx, moved: Mapping[SegmentOwnership, Progress], held: Iterable[SegmentOwnership] = ()
    ) -> None:
        """Make progress durable with the rest of `tx`. Raises OwnerFenced."""
        self._owner.check(tx)
        for assigned, progress in moved.items():
            prefix = (0, progress.number, progress.offset)
            for low, high, end in (prefix, *progress.finished):
                finish_events(tx, EventRef(self.group, *assigned.key, low, end), high - low)

    def complete(self, tx: Tx, assigned: SegmentOwnership) -> Sequence[SegmentId]:
        """Never called: internal streams are never sealed."""
        raise AssertionError(f"segment {assigned.segment} of {self.group} is never sealed")

    def publish(self, tx: Tx, status: str) -> None:
        """Do nothing: the status of an internal processor is not shown to users."""
