"""Producing to a topic: a writer in the words of topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from eventproc.store.catalog import get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.policies import Partitioning
from eventproc.store.openable import Openable
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import NewEvent, headers_with_ttl
from eventproc.streams.partitioners import Partitioner
from eventproc.streams.writer import EventWriter

P = TypeVar("P")


class Producer(Openable, Generic[P]):
    """Writes events to the partitions of a topic. Made by `Topic.producer`; open it with `async with`, or `await`.

    Events are batched, ordered and made durable as by `EventWriter`: leaving the block, as `close`, waits until
    everything posted is durable, and raises the first failure. Several tasks may write simultaneously.

    The partition of an event is, in this order: the one that the call names; what the producer's own partitioner says;
    by the topic's strategy. With the strategy "key", the events of a key go to one partition, in order. Events without
    a key go to one partition per send, the partitions in turn. With "round_robin" each event goes to the next
    partition, from a random one on.

    writer: the writer beneath.
    """

    def __init__(
        self,
        db: Database,
        topic: str,
        stream_id: int,
        codec: PayloadCodec[P],
        *,
        name: str | None,
        partitioner: Partitioner[P] | None,
    ) -> None:
        super().__init__(f"the producer of {topic}", db.handles)
        self._db = db
        self._topic = topic
        self._stream_id = stream_id
        self._partitioner = partitioner
        self.writer = EventWriter(db, topic, stream_id, codec, name=name, partitioner=partitioner)

    def __repr__(self) -> str:
        return f"Producer({self._topic!r}, {self._state})"

    async def _start(self) -> None:
        if self._partitioner is None:
            await self._db.read(self._verify_strategy)
        await self.writer

    async def _finish(self, why: BaseException | None) -> None:
        await self.writer.__aexit__(None if why is None else type(why), why, None)

    def _verify_strategy(self, tx: Tx) -> None:
        """Raise InvalidArgument if only a partitioner could choose the partitions."""
        topic = get_stream(tx, self._topic, stream_id=self._stream_id).value
        if topic.config.partitioning is Partitioning.OWN:
            reason = f"{self._topic} has an own strategy; give the same one as its other producers have"
            raise InvalidArgument(what="partitioner", value="None", reason=reason)

    @property
    def name(self) -> str | None:
        """The identity by which a repeated send is recognised; None for a producer without one."""
        return self.writer.name

    @property
    def sequence(self) -> int:
        """The last sequence of this name on the topic; without a name, the number of this producer's sends."""
        return self.writer.sequence

    @property
    def events_written(self) -> int:
        """How many events this producer has made durable."""
        return self.writer.events_written

    async def write(
        self,
        payload: P,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Append one event and return when it is durable.

        If the call is cancelled, the event may still be appended: its send goes on.

        Args:
            payload: a value of the producer's payload type.
            key: routing key, at most 1024 characters. None (default): none.
            partition: number of the partition. None (default): the strategy chooses.
            headers: names and texts beside the payload. None (default): none.
            timestamp_ms: the event's own time, in ms, which readers get as its `event_time`. None (default): none.
            ttl_ms: how long groups deliver it after it was appended, in ms. None (default): as the topic says.

        Raises:
            InvalidArgument: the payload or an option is not valid, or there is no such partition.
            StreamSealed: the topic is sealed.
            NotFound: the topic was deleted.
            StreamReplaced: the topic was deleted and created again.
            WriterFailed: an earlier posted event failed; call `flush`.
            WriterFenced: another producer of this name has written since.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
            Closed: the block has ended.
        """
        await self.writer.write(
            payload,
            key=key,
            event_time=timestamp_ms,
            headers=headers_with_ttl(headers, ttl_ms),
            partition=partition,
        )

    async def post(
        self,
        payload: P,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Append one event without waiting until it is durable; waits only while 4 MiB are ahead of it.

        `flush`, or the end of the block, raises if the event failed.

        Args:
            payload: a value of the producer's payload type.
            key: routing key, as for `write`.
            partition: number of the partition. None (default): the strategy chooses.
            headers: names and texts beside the payload. None (default): none.
            timestamp_ms: the event's own time, as for `write`.
            ttl_ms: how long groups deliver it, as for `write`.

        Raises:
            InvalidArgument: the payload or an option is not valid, or there is no such partition.
            WriterFailed: an earlier event failed; nothing is written out of order. Call `flush`.
            Closed: the block has ended.
        """
        await self.writer.post(
            payload,
            key=key,
            event_time=timestamp_ms,
            headers=headers_with_ttl(headers, ttl_ms),
            partition=partition,
        )

    async def write_many(
        self, events: Iterable[NewEvent[P] | tuple[P, str | None]], *, sequence: int | None = None
    ) -> int:
        """Append events, in order, in few transactions; return their number when all are durable.

        Args:
            events: `NewEvent`s, or pairs of payload and key. Any iterable of any length.
            sequence: makes a retry safe, also after a crash and from another process, as for
                `EventWriter.write_many`. None (default): no such check.

        Raises:
            InvalidArgument: an event or the sequence is not valid; the events before it are written.
            StreamSealed: the topic is sealed.
            NotFound: the topic was deleted.
            StreamReplaced: the topic was deleted and created again.
            WriterFailed: an earlier posted event failed; call `flush`.
            WriterFenced: another producer of this name has written since.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
            Closed: the block has ended.
        """
        return await self.writer.write_many(events, sequence=sequence)

    async def flush(self) -> None:
        """Return when everything posted so far is durable. Raises the first failure, and only once.

        Raises:
            StreamSealed: the topic is sealed.
            NotFound: the topic was deleted.
            StreamReplaced: the topic was deleted and created again.
            WriterFenced: another producer of this name has written since.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        await self.writer.flush()
