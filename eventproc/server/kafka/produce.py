"""Appending the batches of producers, each record once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import anyio.lowlevel

from eventproc.base.bounded_cache import BoundedCache
from eventproc.server.access.authority import Caller
from eventproc.server.kafka.calls import BatchAnswer, InitProducerId, Produce, TopicPlace
from eventproc.server.kafka.compression import Decompressor
from eventproc.server.kafka.kafka_errors import REFUSALS, KafkaCode, KafkaRefusal, code_of
from eventproc.server.kafka.recent_batches import RecentBatches
from eventproc.server.kafka.record_batches import (
    NO_PRODUCER,
    DecodedRoom,
    PlacedBatch,
    RecordBatch,
    decode_batch,
    place,
)
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.server.kafka.transactions import ProducerTransactions, new_producer_id
from eventproc.store.access.permissions import Permission
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument, NotFound, SegmentSealed
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import BATCH_BYTES_MAX
from eventproc.store.model.producer_sequences import (
    EPOCH_MAX,
    SEQUENCES,
    Misfit,
    next_position,
    position_at,
)
from eventproc.store.segments import (
    SegmentEvents,
    WriterSequence,
    append,
    last_sequence,
    note_sequence,
)

BRIEF_BYTES_MAX: Final = 64 * 1024
"""Bytes of batches that are appended on the event loop if nothing else waits: a switch of threads costs more."""

BRIEF_BATCHES_MAX: Final = 8
"""Batches, likewise: each takes some 30 us."""

TOGETHER_MAX: Final = 500
"""Batches that share a transaction. Higher: other writers wait for longer than the 20 ms of a group commit."""

REPEATABLE: Final = 5
"""Batches of a producer and partition whose offsets are known to its repetitions: as many as clients have in flight."""

PRODUCERS_MAX: Final = 10_000
"""Producers and partitions whose batches are known. Those of others are told that a repeated batch is stored, without
its offset. Higher: more memory."""

UNKNOWN: Final = -1
"""The offset of a batch that has none yet, or whose offset is forgotten."""

SENT_AGAIN: Final = (KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaCode.KAFKA_STORAGE_ERROR)
"""Why a batch is refused that its producer sends again."""

_MISFITS: Final = {
    Misfit.OLD_EPOCH: (KafkaCode.INVALID_PRODUCER_EPOCH, "the producer has written in a later epoch"),
    Misfit.GAP: (KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "records before this batch are missing"),
}


class _Appended(NamedTuple):
    """Where a batch lies. offset: UNKNOWN until its transaction is committed. is_new: false if it was there before."""

    stream_id: int
    segment: SegmentId
    offset: int
    is_new: bool = True


class DecodedBatch(NamedTuple):
    """What a producer sent for a partition, or why it is refused. transactional_id: of the request."""

    place: TopicPlace
    batch: RecordBatch | Exception
    transactional_id: str | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes that its events take in their segment."""
        return 0 if isinstance(self.batch, Exception) else self.batch.events.size_bytes


class BatchAppender:
    """Appends for all connections of one server."""

    def __init__(
        self, db: Database, topics: ServedTopics, recent: RecentBatches, transactions: ProducerTransactions
    ) -> None:
        self._db = db
        self._topics = topics
        self._transactions = transactions
        self._recent = recent
        self._decompressor = Decompressor()
        self._known = BoundedCache[tuple[int, SegmentId, int], deque[tuple[int, int, int, int]]](
            PRODUCERS_MAX
        )
        """{(stream, segment, producer): (epoch, number of the first record, count, offset) of the last batches}."""
        self._refused = BoundedCache[tuple[int, int, int], int](PRODUCERS_MAX)
        """{identity of the producer in a partition: number of the first record of a batch that it sends again}"""

    async def new_identity(self, call: InitProducerId, caller: Caller) -> tuple[int, int]:
        """Return the identity of a producer: its number and epoch. Raises KafkaRefusal."""
        if call.transactional_id is not None:
            return await self._transactions.begin_producer(call, caller)
        if call.producer_id >= 0 and 0 <= call.epoch < EPOCH_MAX - 1:
            return call.producer_id, call.epoch + 1
        # Nothing need be stored of a producer without transactions.
        return new_producer_id(self._db.clock), 0

    async def decode(self, call: Produce, caller: Caller) -> list[DecodedBatch]:
        """Return the batches of a request, each with why it is refused, if it is."""
        decoded: list[DecodedBatch] = []
        room = DecodedRoom()
        for where, raw in call.batches:
            try:
                self._topics.verify(caller, Permission.READ_UPDATE, where.topic)
                batch = decode_batch(raw, where.partition, self._decompressor, room)
                if batch.is_transactional:
                    self._transactions.verify(caller, call.transactional_id)
                decoded.append(DecodedBatch(where, batch, call.transactional_id))
            except REFUSALS as why:
                decoded.append(DecodedBatch(where, why.with_traceback(None)))  # which holds what was decoded
            if len(call.batches) > 1:
                await anyio.lowlevel.checkpoint()
        return decoded

    async def append(self, batches: Sequence[DecodedBatch]) -> list[BatchAnswer]:
        """Append the batches in order, in as few transactions as take them; return where, or why not."""
        return [each for together in _transactions(batches) for each in await self._append_together(together)]

    async def _append_together(self, batches: Sequence[DecodedBatch]) -> list[BatchAnswer]:
        size_bytes = sum(each.size_bytes for each in batches)
        is_brief = size_bytes <= BRIEF_BYTES_MAX and len(batches) <= BRIEF_BATCHES_MAX
        write = partial(self._append_all, batches=batches)
        try:
            appended = await self._db.write(write, size_bytes=size_bytes, brief=is_brief)
        except REFUSALS as why:
            appended = [why] * len(batches)
        return [self._note(each, found) for each, found in zip(batches, appended, strict=True)]

    def _append_all(self, tx: Tx, batches: Sequence[DecodedBatch]) -> list[_Appended | Exception]:
        """Append each batch, or find out why not: a refusal concerns one batch alone."""
        found: list[_Appended | Exception] = []
        for where, batch, transactional_id in batches:
            try:
                found.append(
                    batch
                    if isinstance(batch, Exception)
                    else self._append(tx, where, batch, transactional_id)
                )
            except (KafkaRefusal, NotFound, InvalidArgument, SegmentSealed) as why:
                found.append(why)
        return found

    def _append(
        self, tx: Tx, where: TopicPlace, batch: RecordBatch, transactional_id: str | None
    ) -> _Appended:
        topic = self._topics.get(tx, where.topic)
        segment = topic.segment(where)
        if topic.needs_keys and not batch.has_keys:
            raise invalid_argument("key", None, f"{topic.stream} is compacted, and its events need keys")
        if batch.is_transactional:
            self._transactions.stage(tx, transactional_id, topic, where, batch)
            return _Appended(topic.stream_id, segment, UNKNOWN)
        identity = end = None
        if batch.producer_id != NO_PRODUCER:
            writer = f"kafka/{where.partition}/{batch.producer_id}"
            last = last_sequence(tx, topic.stream_id, writer)
            position = next_position(last, batch.epoch, batch.first_sequence, batch.events.count)
            begin, end = f"{writer}/begin", f"{writer}/end"
            if position is Misfit.UNKNOWN:
                refused = self._refused.find(_identity(where, batch))
                if refused is not None and refused < batch.first_sequence:
                    raise KafkaRefusal(*_MISFITS[Misfit.GAP])
                # As in Kafka: its records before this batch are given up, or were forgotten.
                first = position_at(batch.epoch, batch.first_sequence)
                note_sequence(tx, topic.stream_id, WriterSequence(begin, first))
                position = first + batch.events.count
            if position is Misfit.REPEATED:
                behind = (last - batch.first_sequence) % SEQUENCES
                if last - behind < last_sequence(tx, topic.stream_id, begin):
                    raise KafkaRefusal(*_MISFITS[Misfit.GAP])
                is_last = behind == batch.events.count
                offset = last_sequence(tx, topic.stream_id, end) - batch.events.count if is_last else UNKNOWN
                return _Appended(topic.stream_id, segment, max(offset, UNKNOWN), is_new=False)
            if isinstance(position, Misfit):
                raise KafkaRefusal(*_MISFITS[position])
            identity = WriterSequence(writer, position, after=last)
        part = SegmentEvents(segment, batch.events)
        (done,) = append(tx, topic.stream, topic.stream_id, [part], identity=identity)
        if end is not None:
            note_sequence(tx, topic.stream_id, WriterSequence(end, done.number + done.count))
        return _Appended(topic.stream_id, segment, done.number)

    def _note(self, sent: DecodedBatch, found: _Appended | Exception) -> BatchAnswer:
        """Keep what consumers and repetitions ask for of a batch that is durable; return the answer to its producer."""
        where, batch, _ = sent
        if isinstance(found, Exception) or isinstance(batch, Exception):
            assert isinstance(found, Exception), "what was refused is not appended"
            code = code_of(found)
            if isinstance(batch, RecordBatch) and code in SENT_AGAIN:
                self._note_refused(where, batch)
            return BatchAnswer(where, code, text=str(found))
        key = found.stream_id, found.segment, batch.producer_id
        numbers = batch.epoch, batch.first_sequence, batch.events.count
        if not found.is_new:
            known = [offset for *each, offset in self._known.find(key) or () if (*each,) == numbers]
            offset = known[0] if known else found.offset
            code = KafkaCode.DUPLICATE_SEQUENCE_NUMBER if offset == UNKNOWN else KafkaCode.NONE
            return BatchAnswer(where, code, offset)
        if found.offset == UNKNOWN:
            return BatchAnswer(where, KafkaCode.NONE)
        if batch.producer_id != NO_PRODUCER:
            batches = self._known.find(key) or deque(maxlen=REPEATABLE)
            batches.append((*numbers, found.offset))
            self._known.keep(key, batches)
            self._refused.forget(_identity(where, batch))
        if batch.has_times:  # else consumers get the times of the database
            end = found.offset + batch.events.count
            placed = PlacedBatch(found.offset, end, place(batch.raw, found.offset))
            self._recent.add(found.stream_id, found.segment, placed)
        return BatchAnswer(where, KafkaCode.NONE, found.offset)

    def _note_refused(self, where: TopicPlace, batch: RecordBatch) -> None:
        """Let no later batch of this producer be its first one in the partition: the order would be another one."""
        if batch.producer_id == NO_PRODUCER or batch.is_transactional:
            return
        key = _identity(where, batch)
        before = self._refused.find(key)
        if before is None or batch.first_sequence < before:
            self._refused.keep(key, batch.first_sequence)


def _identity(where: TopicPlace, batch: RecordBatch) -> tuple[int, int, int]:
    """Return a key of a few bytes for a producer in one epoch and partition: names of topics may be long."""
    return hash(where), batch.producer_id, batch.epoch


def _transactions(batches: Sequence[DecodedBatch]) -> Iterator[list[DecodedBatch]]:
    """Yield the batches in groups that one transaction takes."""
    together: list[DecodedBatch] = []
    size_bytes = 0
    for each in batches:
        is_full = size_bytes + each.size_bytes > BATCH_BYTES_MAX or len(together) == TOGETHER_MAX
        if together and is_full:
            yield together
            together, size_bytes = [], 0
        together.append(each)
        size_bytes += each.size_bytes
    if together:
        yield together
