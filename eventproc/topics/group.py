"""The handle of a consumer group: its consumers, its offsets, and what an administrator does with them.

A consumer group is a reader group, by the same record and the same engine; `Eventproc.reader_group` finds it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, overload

from eventproc.groups.assignors import Assignor
from eventproc.groups.changes import SAME, OptionChanges, Same, update_options
from eventproc.groups.describe import describe_group
from eventproc.groups.membership import MemberOptions
from eventproc.groups.operations import (
    OffsetReset,
    OffsetResetRequest,
    OffsetTarget,
    reset_offsets,
    set_offsets,
    verify_empty,
)
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import GroupOptions, RetainedPart, TruncatedPolicy, delete_group
from eventproc.store.model.argument_checks import check_int
from eventproc.streams.codec import Codec, codec_for, decode_of
from eventproc.topics.consumer import Consumer, PartitionRef, as_offsets, as_partitions
from eventproc.topics.consumer_session import CALLBACK_MS, PartitionsCallback, RebalanceCallbacks
from eventproc.topics.offsets import (
    ConsumerGroupDescription,
    PartitionOffsets,
    describe_consumer_group,
    partition_offsets,
)

P = TypeVar("P")


class ConsumerGroup:
    """Consumers, in any number of processes, that share topics: each partition is one consumer's at a time.

    Made by `Eventproc.create_consumer_group` and `Eventproc.consumer_group`.
    """

    def __init__(self, db: Database, name: str) -> None:
        self._db = db
        self.name = name

    def __repr__(self) -> str:
        return f"ConsumerGroup({self.name!r})"

    @overload
    def consumer(
        self,
        consumer: str,
        *,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
        callback_ms: int = CALLBACK_MS,
    ) -> Consumer[bytes]: ...
    @overload
    def consumer(
        self,
        consumer: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
        callback_ms: int = CALLBACK_MS,
    ) -> Consumer[P]: ...
    def consumer(
        self,
        consumer: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
        callback_ms: int = CALLBACK_MS,
    ) -> Consumer[Any]:
        """Return a consumer of the group, for `async with`, or for `await` and `close`.

        The callbacks get only the partitions that changed. The consumer awaits them between two polls; while no
        delivered event is uncommitted, a task in the background does, so that the group need not wait for the next
        poll. They may commit and seek, but not poll.

        Args:
            consumer: its id, unique among the consumers that are online.
            payload: type of the payloads, as for `Stream.reader`. None (default): bytes.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            topics: the topics that it consumes, by names or patterns ("shop/orders-*"). The group takes in those that
                it does not consume yet, also topics that are created later. None (default): every topic of the group.
            static_ms: makes it a static consumer: after it was closed or died, its partitions wait up to so many ms
                until a consumer of that id comes back. None (default): they go to the others immediately.
            assignor: the code of the group's own assignor.
            auto_commit: whether the next poll commits the events of the poll before. Default: True. False: only
                `commit` does.
            on_assigned: called after the consumer became the owner of partitions.
            on_revoked: called before partitions move to another consumer; it may commit. Also called on leaving.
            on_lost: called when the consumer is not the owner any more, after it was expired or the group was reset.
                Another consumer may own the partitions, so a commit raises SegmentFenced.
            callback_ms: longest time for each call, in ms. A later callback is cancelled; for `on_revoked` the consumer
                is then fenced: it gives up all partitions without a commit, and joins again. Default: 30 s.

        Raises:
            InvalidArgument: no codec serves the type.
            ReaderOnline: entering; a live process consumes under that id.
            NotFound: entering; no such group.
            NotAReaderGroup: entering; the group belongs to a processor.
            AssignorDiffers: entering; the group has another assignor.
        """
        callbacks = RebalanceCallbacks(
            on_assigned, on_revoked, on_lost, check_int("callback_ms", callback_ms, least=1)
        )
        return Consumer[Any](
            *(self._db, self.name, consumer),
            decode=decode_of(codec_for(payload, codec)),
            auto_commit=auto_commit,
            callbacks=callbacks,
            chosen=MemberOptions(
                subscription=None if topics is None else tuple(topics), static_ms=static_ms, assignor=assignor
            ),
        )

    async def describe(self) -> ConsumerGroupDescription:
        """Return the group's state, its consumers and what they own, and the offsets and lag of each partition.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each partition.
        """
        return await self._db.read(partial(describe_consumer_group, name=self.name))

    async def update(
        self,
        *,
        lease_ms: int | Same | None = SAME,
        rebalance_ms: int | Same | None = SAME,
        on_truncated: TruncatedPolicy | None = None,
        assignor: str | None = None,
        retains: RetainedPart | Same | None = SAME,
    ) -> GroupOptions:
        """Change options of the group, and return all of them. Consumers stay online, and follow at their next poll.

        A lease that is new or other than before counts from now.

        Args:
            lease_ms: how long a consumer may go without a poll, in ms; None: as long as its process lives.
                "same" (default): as now.
            rebalance_ms: how long a consumer may take to release a partition that another one shall own, in ms; None:
                until its next poll. "same" (default): as now.
            on_truncated: "earliest", "latest" or "error": what to do when unread events were truncated. None (default):
                as now.
            assignor: "equal", "range", "round_robin", "lag", or the name of an own one. None (default): as now.
            retains: what a stream with retention by consumption keeps for the group: "progress", "manual", or None for
                nothing. "same" (default): as now.

        Raises:
            NotFound: no such group.
            NotAReaderGroup: the group belongs to a processor.
            InvalidArgument: an option is not valid.
        """
        changes = OptionChanges(
            lease_ms=lease_ms,
            rebalance_ms=rebalance_ms,
            on_truncated=on_truncated,
            assignor=assignor,
            retains=retains,
        )
        step = partial(update_options, name=self.name, changes=changes)
        return await self._db.write(step, step=Step.GROUP_CHANGE)

    async def offsets(self) -> tuple[PartitionOffsets, ...]:
        """Return the offsets of each partition, sorted.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each partition.
        """
        return await self._db.read(lambda tx: partition_offsets(tx, describe_group(tx, self.name)))

    async def commit(self, offsets: Mapping[PartitionRef, int]) -> None:
        """Set offsets of a group without consumers online.

        Args:
            offsets: {(topic, partition): offset of the next event to read}.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
            InvalidArgument: the group does not read the partition, or the offset lies outside it.
        """
        chosen = {(where.topic, where.partition): offset for where, offset in as_offsets(offsets).items()}
        await self._db.write(lambda tx: set_offsets(tx, self._db, self.name, chosen))

    async def reset(
        self,
        to: OffsetTarget | None = None,
        *,
        offset: int | None = None,
        shift: int | None = None,
        time_ms: int | None = None,
        duration_ms: int | None = None,
        partitions: Iterable[PartitionRef] | None = None,
        dry_run: bool = False,
    ) -> tuple[OffsetReset, ...]:
        """Move the offsets of a group without consumers online. Exactly one argument says where to.

        Args:
            to: "earliest" or "latest".
            offset: the event number to go to, in each partition.
            shift: so many events further, or back if negative.
            time_ms: to the first event appended at that wall time or later, in ms since 1970.
            duration_ms: to the first event that is not older than that, in ms.
            partitions: (topic, partition) of those to move. None (default): all.
            dry_run: only return what would change; allowed while consumers are online. Default: False.

        Returns:
            The partitions as before and after. An offset outside a partition is moved to its nearest end.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
            GroupStreamReplaced: a topic of the group was deleted.
            InvalidArgument: not exactly one target, or a partition that the group does not read.
        """
        if duration_ms is not None:
            check_int("duration", duration_ms, least=0, unit="ms")

        def act(tx: Tx) -> list[OffsetReset]:
            since_ms = time_ms if duration_ms is None else tx.now_ms - duration_ms
            request = OffsetResetRequest(to=to, offset=offset, shift=shift, time_ms=since_ms)
            return reset_offsets(tx, self._db, self.name, request, partitions=chosen, dry_run=dry_run)

        if duration_ms is not None and time_ms is not None:
            OffsetResetRequest(to="latest", time_ms=time_ms)  # raises: two targets
        chosen = None if partitions is None else as_partitions(partitions)
        return tuple(await (self._db.read(act) if dry_run else self._db.write(act)))

    async def delete(self) -> None:
        """Delete the group and its offsets. Its topics stay unchanged.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
        """

        def act(tx: Tx) -> None:
            verify_empty(tx, self._db, self.name, event="deletion")
            delete_group(tx, self.name)

        await self._db.write(act)
