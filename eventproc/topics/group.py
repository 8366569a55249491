"""The handle of a group of readers or consumers: everything that can be done with one, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, overload

import anyio
from typing_extensions import TypeVar, Unpack

from eventproc.base.clock import new_id
from eventproc.groups import (
    GroupCheckpoint,
    GroupDescription,
    GroupReader,
    GroupResetEnd,
    GroupStart,
    MemberOptions,
    ResetPreview,
    describe_group,
)
from eventproc.groups.assignors import Assignor
from eventproc.groups.changes import GroupUpdate, update_options, verify_movable
from eventproc.groups.cuts import group_cuts
from eventproc.groups.liveness import POLL_MS, expire_silent, has_silent
from eventproc.groups.named_group import NamedGroup
from eventproc.groups.operations import (
    GroupPartitionReset,
    PartitionTarget,
    commit_numbers,
    find_checkpoint,
    list_checkpoints,
    pending_readers,
    reader_offline,
    reset_group,
    reset_partitions,
    start_checkpoint,
    verify_empty,
)
from eventproc.store.database import Tx
from eventproc.store.faults import Step
from eventproc.store.groups import (
    GroupOptions,
    allow_truncation,
    delete_group,
    get_group,
    watch_group,
)
from eventproc.store.model.argument_checks import check_int, check_str
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.group_errors import CheckpointPending
from eventproc.store.model.ids import SegmentId
from eventproc.streams.codec import Codec, chosen_codec, decode_of
from eventproc.streams.queries import Moment
from eventproc.topics.consumer import Consumer, PartitionRef, as_numbers, as_partitions
from eventproc.topics.group_partitions import GroupPartition, group_partitions
from eventproc.topics.rebalance_callbacks import PartitionsCallback, RebalanceCallbacks

P = TypeVar("P")
T = TypeVar("T", default=bytes)

CHECKPOINT_WAIT_MS = 30_000
"""How long `checkpoint` waits by default. A reader answers when it asks for its next event."""


class Group(NamedGroup[T]):
    """Readers or consumers, in any number of processes, that share streams: each segment is one's at a time.

    Made by `Eventproc.create_group` and `Eventproc.group`. Consumers read topics, and are readers that commit and seek
    by event numbers. T is the type of its payloads, bytes by default: its readers and consumers take it from here.
    """

    _is_share = False

    @overload
    def reader(self, reader: str) -> GroupReader[T]: ...
    @overload
    def reader(
        self, reader: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> GroupReader[P]: ...
    def reader(
        self, reader: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> GroupReader[Any]:
        """Return a reader of the group, for `async with`, or for `await` and `close`.

        Args:
            reader: its id, unique among the readers that are online. The id of a dead reader may be used again.
            payload: type of the payloads, as for `Stream.reader`. None (default): that of this handle.
            codec: object with `encode` and `decode`, used instead of the type's own codec.

        Raises:
            InvalidArgument: no codec serves the type.
            ReaderOnline: entering; a live process reads under that id.
            NotFound: entering; no such group.
            NotAReaderGroup: entering; the group belongs to a processor.
            GroupStreamReplaced: entering; a stream of the group was deleted.
        """
        return GroupReader[Any](
            self._db, self.name, reader, decode=decode_of(chosen_codec(self._codec, payload, codec))
        )

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
    ) -> Consumer[T]: ...
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
    ) -> Consumer[Any]:
        """Return a consumer of the group, for `async with`, or for `await` and `close`.

        The callbacks get only the partitions that changed. The consumer awaits them between two polls; while no
        delivered event is uncommitted, a task in the background does, so that the group need not wait for the next
        poll. They may commit and seek, but not poll. A callback that exceeds the group's `patience_ms` is cancelled;
        after `on_revoked` the consumer is then fenced: it gives up all partitions without a commit, and joins again.

        Args:
            consumer: its id, unique among the consumers that are online.
            payload: type of the payloads, as for `Stream.reader`. None (default): that of this handle.
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

        Raises:
            InvalidArgument: no codec serves the type.
            ReaderOnline: entering; a live process consumes under that id.
            NotFound: entering; no such group.
            NotAReaderGroup: entering; the group belongs to a processor.
            AssignorDiffers: entering; the group has another assignor.
        """
        return Consumer[Any](
            *(self._db, self.name, consumer),
            decode=decode_of(chosen_codec(self._codec, payload, codec)),
            auto_commit=auto_commit,
            callbacks=RebalanceCallbacks(on_assigned, on_revoked, on_lost),
            chosen=MemberOptions(subscription=topics, static_ms=static_ms, assignor=assignor),
        )

    async def describe(self) -> GroupDescription:
        """Return the group's readers, its segments with their owners, and how much is not finished.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each segment of its streams.
        """
        return await self._db.read(partial(describe_group, name=self.name, peers=self._db.peers))

    async def cuts(self) -> dict[str, StreamCut]:
        """Return the durable position of the group in each of its streams.

        The streams may be truncated there: no reader of the group will ever need earlier events.

        Returns:
            {name of the stream: cut}.

        Raises:
            NotFound: no such group.
            StreamReplaced: a stream of the group was deleted.
        """
        return await self._db.read(partial(group_cuts, name=self.name))

    async def partitions(self) -> tuple[GroupPartition, ...]:
        """Return the committed number and the lag of each partition, sorted.

        Raises:
            NotFound: no such group.

        Cost:
            A few look-ups for each partition.
        """
        return await self._db.read(lambda tx: group_partitions(tx, describe_group(tx, self.name)))

    async def commit(self, numbers: Mapping[PartitionRef, int]) -> None:
        """Set the committed numbers of a group without consumers online.

        Args:
            numbers: {(topic, partition): number of the next event to read}.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
            InvalidArgument: the group does not read the partition, or the number lies outside it.
        """
        chosen = {(where.topic, where.partition): number for where, number in as_numbers(numbers).items()}
        await self._db.write(lambda tx: commit_numbers(tx, self._db, self.name, chosen))

    async def checkpoint(
        self, name: str | None = None, *, timeout_ms: int = CHECKPOINT_WAIT_MS
    ) -> GroupCheckpoint:
        """Ask every reader for its position, and return the positions once all readers have answered.

        A reader answers between two events. A reader that leaves, dies, or exceeds the group's patience is not waited
        for. Without readers the checkpoint is complete immediately.

        Args:
            name: of the checkpoint. If one of that name is under way or kept, it is that one. None (default): a new
                name.
            timeout_ms: how long to wait for the readers, in ms. Default: 30 s.

        Returns:
            The checkpoint, with a cut of each stream: to reset to, or to truncate at.

        Raises:
            CheckpointPending: the wait ended first; the checkpoint stays under way.
            TooManyCheckpoints: 3 others are under way.
            NotFound: no such group, or a reset dropped the checkpoint.
            InvalidArgument: the name is not valid.

        Cost:
            One write; a read every 200 ms while waiting.
        """
        timeout_ms = check_int("timeout", timeout_ms, least=0, unit="ms")
        chosen = f"checkpoint-{new_id(self._db.clock)}" if name is None else check_str("checkpoint", name)

        def look(tx: Tx) -> tuple[GroupCheckpoint | None, tuple[str, ...], bool]:
            found = find_checkpoint(tx, self.name, chosen)
            return found, pending_readers(tx, self.name, chosen), has_silent(tx, self._db, self.name)

        def start(tx: Tx) -> tuple[GroupCheckpoint | None, tuple[str, ...], bool]:
            expire_silent(tx, self._db, self.name)
            start_checkpoint(tx, self.name, chosen)
            return look(tx)

        with self._db.subscribe([watch_group(self.name)]) as changes:
            found, pending, is_silent = await self._db.write(start, step=Step.GROUP_CHECKPOINT)
            with anyio.move_on_after(timeout_ms / 1000):
                while found is None:
                    if is_silent:
                        await self._db.write(
                            partial(expire_silent, db=self._db, group=self.name), step=Step.GROUP_EXPIRE
                        )
                    else:
                        await changes.wait(POLL_MS)
                    found, pending, is_silent = await self._db.read(look)
        if found is not None:
            return found
        raise CheckpointPending(group=self.name, checkpoint=chosen, waited_ms=timeout_ms, readers=pending)

    async def checkpoints(self) -> list[GroupCheckpoint]:
        """Return the complete checkpoints that are kept, oldest first, automatic ones included.

        The newest 8 named ones are kept, and the newest automatic one.

        Raises:
            NotFound: no such group.
            GroupStreamReplaced: a stream of the group was deleted.
        """
        return await self._db.read(partial(list_checkpoints, group=self.name))

    async def reset(
        self,
        start: GroupStart = "head",
        *,
        checkpoint: str | None = None,
        streams: Sequence[str] | None = None,
        until: GroupResetEnd = "same",
        dry_run: bool = False,
    ) -> list[ResetPreview]:
        """Move the group to another position. Readers that are online continue there.

        Streams are found by name, so a stream that was deleted and created again is read from now on.

        Args:
            start: "head" (default), "tail", a time in wall ms, a cut, or {stream: cut}.
            checkpoint: name of a complete checkpoint to go back to, instead of `start`.
            streams: the streams to read from now on. None (default): the same as before.
            until: where the group ends, as a cut or {stream: cut}. None: it does not end. "same" (default): as before.
                With a different end all checkpoints of the group are dropped.
            dry_run: only return what would change. Default: False.

        Returns:
            Each stream that the group reads afterwards, before and after the reset.

        Raises:
            NotFound: no such group, stream or checkpoint.
            InvalidArgument: the checkpoint is not complete, or an argument has the wrong form.
            InvalidCut: a cut is not one of its stream, or the end lies before the start.
            Truncated: `start` lies before the head of a stream.
        """

        act = partial(
            reset_group,
            group=self.name,
            start=start,
            checkpoint=checkpoint,
            streams=streams,
            until=until,
            dry_run=dry_run,
        )
        return await (self._db.read(act) if dry_run else self._db.write(act, step=Step.GROUP_CHANGE))

    async def reset_partitions(
        self,
        start: Moment | None = None,
        *,
        duration_ms: int | None = None,
        number: int | None = None,
        shift: int | None = None,
        partitions: Iterable[PartitionRef] | None = None,
        dry_run: bool = False,
    ) -> tuple[GroupPartitionReset, ...]:
        """Move partitions of a group without consumers online, by event numbers. Exactly one argument says where to.

        Args:
            start: "head", "tail", or the first event appended at that wall time or later, in ms since 1970.
            duration_ms: to the first event that is not older than that, in ms.
            number: of the event to go to, in each partition.
            shift: so many events further, or back if negative.
            partitions: (topic, partition) of those to move. None (default): all.
            dry_run: only return what would change; allowed while consumers are online. Default: False.

        Returns:
            The partitions as before and after. A number outside a partition is moved to its nearest end.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: consumers are online.
            GroupStreamReplaced: a topic of the group was deleted.
            InvalidArgument: not exactly one target, or a partition that the group does not read.
        """
        request = PartitionTarget(start=start, duration_ms=duration_ms, number=number, shift=shift)
        chosen = None if partitions is None else as_partitions(partitions)

        def act(tx: Tx) -> list[GroupPartitionReset]:
            return reset_partitions(tx, self._db, self.name, request, partitions=chosen, dry_run=dry_run)

        return tuple(await (self._db.read(act) if dry_run else self._db.write(act)))

    async def allow_truncation(self, cut: StreamCut) -> None:
        """Let a stream with retention by consumption lose the events before `cut`, as far as this group is concerned.

        For a group created with `retains="manual"`: until the first call it keeps the stream from losing anything.

        Args:
            cut: of one of the group's streams, at or after the one of the last call.

        Raises:
            NotFound: no such group.
            StreamReplaced: the stream of the cut was deleted.
            NotAReaderGroup: the group belongs to clients of Pravega, which say so themselves.
            InvalidArgument: the group was not created with `retains="manual"`, or does not read the stream.
            InvalidCut: the cut is not one of the stream, or is before the last one.
        """
        as_cut(cut, "cut")

        def act(tx: Tx) -> None:
            verify_movable(get_group(tx, self.name))
            allow_truncation(tx, self.name, cut)

        await self._db.write(act, step=Step.GROUP_CHANGE)

    async def update(self, **options: Unpack[GroupUpdate]) -> GroupOptions:
        """Change options of the group, and return all of them. Readers stay online, and follow before their next event.

        Another patience counts silence from now.

        Args:
            options: see `GroupUpdate`.

        Raises:
            NotFound: no such group.
            NotAReaderGroup: the group belongs to a processor.
            InvalidArgument: an option is not valid.
        """
        step = partial(update_options, name=self.name, changes=options)
        return await self._db.write(step, step=Step.GROUP_CHANGE)

    async def reader_offline(
        self, reader: str, position: Mapping[str, Mapping[SegmentId, int]] | None = None
    ) -> None:
        """Declare a reader dead. Its segments go to other readers; if it is alive, it is fenced and joins again.

        Does nothing if the reader is not online.

        Args:
            reader: its id.
            position: what it finished, {stream: {segment: offset}}, as `GroupReader.position` returns it. None
                (default), and segments without an offset: its last durable progress.

        Raises:
            NotFound: no such group.
            InvalidArgument: `position` names a stream or a segment that is not the reader's.
            InvalidCut: an offset is not the boundary of an event.
        """
        step = partial(reader_offline, group=self.name, reader=reader, position=position)
        await self._db.write(step, step=Step.GROUP_CHANGE)

    async def delete(self, *, if_empty: bool = False) -> None:
        """Delete the group and its progress. Its readers are fenced; its streams stay unchanged.

        Args:
            if_empty: only delete it while no reader or consumer is online. Default: False.

        Raises:
            NotFound: no such group.
            GroupNotEmpty: `if_empty`, and readers are online.
            InvalidArgument: `if_empty`, and the group belongs to clients of Pravega, which do not show their readers.
        """

        def act(tx: Tx) -> None:
            get_group(tx, self.name)  # a share group may have the name since
            if if_empty:
                verify_empty(tx, self._db, self.name, event="deletion")
            delete_group(tx, self.name)

        await self._db.write(act, step=Step.GROUP_DELETE)
