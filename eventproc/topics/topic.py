"""The handle of a topic: a stream with partitions, to which more can be added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from typing_extensions import TypeVar, Unpack

from eventproc.store.catalog import current_epoch
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int, check_iterable, check_mapping, invalid_argument
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import SegmentId, number_of, printable
from eventproc.store.model.partitions import Router
from eventproc.store.model.policies import (
    CompactionPolicy,
    OffloadPolicy,
    Partitioning,
    RetentionPolicy,
    ScalingPolicy,
    as_compaction,
    as_offload,
    as_retention,
    check_id_window,
    check_ttl,
)
from eventproc.store.segments import READ_BYTES_MAX, Event, EventRun, offset_of_number
from eventproc.streams.codec import Codec, PayloadCodec, chosen_codec, decode_of
from eventproc.streams.fetch import fetch
from eventproc.streams.partitioners import Partitioner
from eventproc.streams.request_calls import ChangeOptions, run_request
from eventproc.streams.stream import Stream
from eventproc.streams.writer import EventWriter
from eventproc.topics.description import (
    PartitionDescription,
    PartitionPosition,
    TopicDescription,
    describe_topic,
    position_at,
)
from eventproc.topics.operations import AddPartitions, TruncatePartitions, delete_topic

if TYPE_CHECKING:
    from eventproc.streams.compaction import CompactionResult

P = TypeVar("P")
T = TypeVar("T", default=bytes)

Strategy: TypeAlias = Literal["key", "round_robin"]
"""The strategies that a topic knows by name; an own one is a `Partitioner`."""

RANGE_EVENTS: Final = 1_000
"""Default of the events of a page of `read_range`. Higher: fewer calls, and more memory for each."""

_MEANT: Final = (
    "it must be 'key', 'round_robin', or an object with a method `partition`, such as a Partitioner"
)


def as_ttl(ttl_ms: int) -> int | None:
    """Return the time to live that a change asks for; None for 0. Raises InvalidArgument."""
    return None if ttl_ms == 0 else check_ttl(ttl_ms)


def as_partitioning(value: object) -> tuple[Partitioning, Partitioner[Any] | None]:
    """Return what is stored of a strategy, and the partitioner if it is the user's own. Raises InvalidArgument."""
    if isinstance(value, str) and value in (Partitioning.KEY, Partitioning.ROUND_ROBIN):
        return Partitioning(value), None
    if not isinstance(value, (str, type)) and isinstance(value, Partitioner):
        return Partitioning.OWN, value
    raise invalid_argument("partitioning", value, _MEANT)


class Topic(Stream[T]):
    """A topic: produce to its partitions, consume them, add more. Made by `ep.create_topic` and `ep.topic`.

    A topic is a stream, so everything works on it that works on a stream, except changes of its key ranges. Partition
    p is segment number p. It keeps its number, its events and its order when partitions are added.

    name: "scope/topic".
    stream_id: the incarnation; never reused.
    codec: encodes and decodes the payloads.
    partitioner: the own strategy that its producers use; None: that of the topic.
    """

    def __init__(
        self,
        db: Database,
        name: str,
        stream_id: int,
        codec: PayloadCodec[T],
        partitioner: Partitioner[T] | None = None,
    ) -> None:
        super().__init__(db, name, stream_id, codec)
        self.partitioner = partitioner

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    @overload
    def producer(
        self, *, name: str | None = None, partitioner: Partitioner[T] | None = None
    ) -> EventWriter[T]: ...
    @overload
    def producer(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        name: str | None = None,
        partitioner: Partitioner[P] | None = None,
    ) -> EventWriter[P]: ...
    def producer(
        self,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        name: str | None = None,
        partitioner: Partitioner[Any] | None = None,
    ) -> EventWriter[Any]:
        """Return a writer that follows the topic's strategy, for `async with`, or for `await` and `close`.

        The partition of an event is, in this order: the one that the call names; what `partitioner` says; by the
        topic's strategy. With the strategy "key", the events of a key go to one partition, in order. Events without a
        key go to one partition per send, the partitions in turn. With "round_robin" each event goes to the next
        partition, from a random one on.

        Args:
            payload: type of the payloads, such as `str` or a dataclass. None (default): that of this handle.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            name: identity by which a repeated send is recognised across restarts, until it has sent nothing for
                7 days. None (default): nothing is remembered.
            partitioner: chooses the partition of each event. None (default): that of this handle, else the
                topic's strategy.

        Raises:
            InvalidArgument: no codec serves the type, the name is not a str, or the partitioner has no method
                `partition`.
            InvalidArgument: entering; the topic's strategy is the user's own, and no partitioner is given.
        """
        chosen = self.partitioner if partitioner is None else partitioner
        if chosen is not None:
            as_partitioning(chosen)
        return EventWriter(
            self._db,
            self.name,
            self.stream_id,
            chosen_codec(self.codec, payload, codec),
            name=name,
            partitioner=chosen,
            follows_strategy=True,
        )

    async def describe(self) -> TopicDescription:
        """Return the topic's state, strategy, partitions and sizes, all of one moment.

        Raises:
            StreamReplaced: the handle belongs to a deleted topic of this name.
        """
        return await self._db.read(lambda tx: describe_topic(tx, self._record(tx)))

    async def partitions(self) -> list[PartitionDescription]:
        """Return the partitions, by number.

        Raises:
            StreamReplaced: the handle belongs to a deleted topic of this name.
        """
        return list((await self.describe()).partitions)

    async def positions_at(self, at: int | Mapping[int, int]) -> list[PartitionPosition]:
        """Return where the events begin that were appended at a time or later, by partition.

        Args:
            at: the wall time, in ms since 1970; or {partition: time} for some partitions.

        Returns:
            The number of the first such event, for each partition; the end, where there is none yet. A compaction may
            have removed the event; those that were truncated do not count.

        Raises:
            InvalidArgument: there is no such partition, or a time is no int of ms.
            StreamReplaced: the handle belongs to a deleted topic of this name.

        Cost:
            One read, which decodes an extent for each partition.
        """
        shape = "it must be a time in ms, or {partition: time}"
        given = {-1: at} if isinstance(at, int) else check_mapping("at", at, shape)
        times = {each: check_int("time", time, least=0, unit="ms") for each, time in given.items()}

        def look(tx: Tx) -> list[PartitionPosition]:
            router = Router(current_epoch(tx, self._record(tx)))
            every = range(len(router.segments))
            wanted = dict.fromkeys(every, times[-1]) if isinstance(at, int) else times
            segments = {router.partition(each, topic=self.name): time for each, time in wanted.items()}
            return [position_at(tx, self.stream_id, *each) for each in sorted(segments.items())]

        return await self._db.read(look)

    async def read_range(
        self, partition: int, start: int = 0, end: int | None = None, *, events_max: int = RANGE_EVENTS
    ) -> list[Event[T]]:
        """Return events of a partition by their numbers, without a group: a page of the range from `start` to `end`.

        The next page begins behind the last event of this one. An empty list means that nothing of the range is kept,
        or written yet. Expired events are returned as long as they are kept.

        Args:
            partition: its number.
            start: number of the first event. Default: 0. Events that were truncated are left out.
            end: number behind the last event. None (default): the present end of the partition.
            events_max: the most events to return. Default: 1000. A page ends after about 4 MiB, too.

        Raises:
            InvalidArgument: there is no such partition, or `end` lies before `start`.
            StreamReplaced: the handle belongs to a deleted topic of this name.

        Cost:
            One read, and another one for each 4 MiB of events that a compaction has removed.
        """
        number = check_int("partition", partition)
        check_int("start", start, least=0)
        if end is not None:
            check_int("end", end, least=start)
        check_int("events_max", events_max, least=1)

        def read(tx: Tx) -> list[EventRun]:
            segment = Router(current_epoch(tx, self._record(tx))).partition(number, topic=self.name)
            low = offset_of_number(tx, self.stream_id, segment, at)
            high = None if end is None else offset_of_number(tx, self.stream_id, segment, end)
            if low == high:
                return []
            return fetch(tx, self.name, self.stream_id, {segment: (low, high)}, READ_BYTES_MAX).runs

        at, decode = start, decode_of(self.codec)
        while runs := await self._db.read(read):
            shown = chain.from_iterable(map(EventRun.without_removed, runs))
            events = chain.from_iterable(run.events(self.name, decode) for run in shown)
            if page := list(islice(events, events_max)):
                return page
            at = runs[-1].first_number + len(runs[-1])  # a compaction removed all of them
        return []

    async def segments_of(self, partitions: Iterable[int]) -> tuple[SegmentId, ...]:
        """Return the segments of partitions, for `reader(segments=...)`.

        Args:
            partitions: their numbers.

        Raises:
            InvalidArgument: there is no such partition.
            StreamReplaced: the handle belongs to a deleted topic of this name.
        """
        router = Router(await self._db.read(lambda tx: current_epoch(tx, self._record(tx))))
        numbers = check_iterable("partitions", partitions, "an iterable of numbers is needed")
        return tuple(
            [printable(router.partition(check_int("partition", each), topic=self.name)) for each in numbers]
        )

    async def add_partitions(
        self,
        count: int,
        **options: Unpack[ChangeOptions],
    ) -> tuple[int, ...]:
        """Add partitions, and return their numbers. No other partition is touched or waits.

        Keys move: with the strategy "key", most keys go to another partition from now on, so a key's events are in
        order within the old and within the new partition, and not across them. Groups read new partitions from their
        beginning.

        Args:
            count: how many, at least 1. A topic has at most 1,023.
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            InvalidArgument: the number is not valid, or the topic would have too many.
            ScaleRefused: another call added partitions meanwhile.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StreamSealed: the topic is sealed.
            InProgress: partitions are being added.
            HistoryCompacted: the call is repeated, and a truncation has dropped the epoch that it had opened.
            StillPending: the wait ended first; the change goes on.
        """
        asked = AddPartitions(self.name, self.stream_id, count)
        added = await self._scale(asked, **options)
        return tuple([number_of(each) for each in added[:-1]])  # the last one is the new reserve

    async def alter(
        self,
        *,
        partitions: int | None = None,
        partitioning: Strategy | Partitioner[Any] | None = None,
        retention: RetentionPolicy | None = None,
        offload: OffloadPolicy | None = None,
        ttl_ms: int | None = None,
        id_window_ms: int | None = None,
        compaction: CompactionPolicy | None = None,
        **options: Unpack[ChangeOptions],
    ) -> None:
        """Change the number of partitions, the strategy, or how long events are kept and delivered.

        The first two move keys to other partitions: see `add_partitions`. An own strategy is used by producers that are
        made from this handle.

        Args:
            partitions: how many the topic has afterwards, at least as many as now. None (default): as now.
            partitioning: "key", "round_robin", or a Partitioner. None (default): as now.
            retention: how long events are kept; `RetentionPolicy()` keeps everything. None (default): as now.
            offload: how many of them stay in the database; `OffloadPolicy()`: all. None (default): as now.
            ttl_ms: how long groups deliver an event after it was appended, in ms; 0: as long as it is kept. Consumers
                use a new value within a second, except for events that they have read ahead. None (default): as now.
            id_window_ms: for how long ids of events are remembered, as for `Stream.update`. None (default): as now.
            compaction: whether only the newest event of each key is kept; `CompactionPolicy()`: all are. Without it,
                events that were removed stay removed. None (default): as now.
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            InvalidArgument: the number, the strategy or a policy is not valid.
            NotSupported: `offload` in a system that has no place for files: in memory, or on a server without `chunks`.
            ScaleRefused: the topic would lose partitions.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StreamSealed: the topic is sealed, and more than `offload` is to change.
            InProgress: the topic is being altered.
            StillPending: the wait ended first; the change goes on.
        """
        strategy, own = (None, None) if partitioning is None else as_partitioning(partitioning)
        scaling = None if partitions is None else ScalingPolicy.partitions(partitions)
        given = {
            "scaling": scaling,
            "partitioning": strategy,
            "retention": None if retention is None else as_retention(retention),
            "offload": None if offload is None else as_offload(offload),
            "id_window_ms": None if id_window_ms is None else check_id_window(id_window_ms),
            "compaction": None if compaction is None else as_compaction(compaction),
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if ttl_ms is not None:
            changes["ttl_ms"] = as_ttl(ttl_ms)  # None of 0: no time to live
        await self._update(changes, partitions is None, **options)
        if strategy is not None:
            self.partitioner = own

    async def truncate(
        self,
        cut: StreamCut | None = None,
        *,
        partition: int | None = None,
        before_ms: int | None = None,
        before_number: int | None = None,
        **options: Unpack[ChangeOptions],
    ) -> None:
        """Remove the oldest events of all partitions, or of one.

        Exactly one of `cut`, `before_ms` and `before_number` says up to where. Events that are gone already stay gone.

        Args:
            cut: a cut of this topic: the events before it are removed, from all partitions.
            partition: its number. None (default): all partitions.
            before_ms: remove the events that were appended before this wall time, in ms since 1970.
            before_number: remove the events of `partition` before this event number.
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            InvalidArgument: not exactly one limit is given, it lies beyond the end, or there is no such partition.
            InvalidCut: the cut is not one of this topic.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StreamSealed: the topic is sealed.
            InProgress: the topic is being truncated.
            StillPending: the wait ended first; the truncation goes on.
        """
        if cut is not None and (partition, before_ms, before_number) == (None, None, None):
            await super().truncate(cut, **options)
            return
        asked = TruncatePartitions(
            *(self.name, self.stream_id, partition, before_ms, before_number),
            cut=None if cut is None else str(cut),
        )
        await run_request(self._db, asked, **options)

    async def compact(self) -> CompactionResult:
        """Remove the events that the policy of compaction no longer keeps, now; return how many, and their bytes.

        The system does the same in the background. Numbers and offsets of the other events stay as they are.

        Raises:
            InvalidArgument: the topic has no policy of compaction.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            CorruptRecord: a stored event is damaged.
            DiskFull: no space for what replaces them.

        Cost:
            Reads the topic once, and once more what was written since the last compaction; 2 us for each event. Writes
            what changes, with short transactions.
        """
        from eventproc.streams.compaction import compact_topic  # few programs need it

        return await compact_topic(self._db, self.name, self.stream_id)

    async def delete(self, **options: Unpack[ChangeOptions]) -> None:
        """Seal and delete the topic, with all its events. Repeat the call if it failed in between.

        Args:
            options: see `ChangeOptions`.

        Raises:
            StaleVersion: the topic has another version than `if_version`; nothing changed.
            StreamReplaced: the handle belongs to a deleted topic of this name.
            StillPending: the wait ended first; the deletion goes on, if the topic is sealed.
        """
        await delete_topic(self._db, self.name, self.stream_id, **options)
