"""The transactions of producers: batches that become visible together, and commits of groups that count with them.

A producer is known by its transactional id, in one record: its number and epoch, and the transaction that is open. The
events are staged in a joint transaction of the store. Its end, the commits of groups, and the record change in one
transaction of the database. Source: docs/design/kafka-transactions.md.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from eventproc.base.clock import Clock, new_id
from eventproc.groups.kafka_groups import store_commits
from eventproc.server.access.authority import Caller, NotPermitted
from eventproc.server.kafka.calls import InitProducerId, TopicPlace
from eventproc.server.kafka.group_calls import PlaceAnswer
from eventproc.server.kafka.groups import KafkaGroups
from eventproc.server.kafka.kafka_errors import (
    GROUP_REFUSALS,
    REFUSALS,
    KafkaCode,
    KafkaRefusal,
    code_of,
    group_code_of,
)
from eventproc.server.kafka.record_batches import RecordBatch
from eventproc.server.kafka.served_topics import ServedTopic, ServedTopics
from eventproc.server.kafka.transaction_calls import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    ProducerSeat,
    TxnOffsetCommit,
)
from eventproc.store.access.permissions import Permission
from eventproc.store.database import Database, Tx
from eventproc.store.groups import (
    KAFKA_PRODUCER,
    PendingCommits,
    TransactionalProducer,
    add_pending,
    is_over,
    take_pending,
)
from eventproc.store.model.errors import IllegalTransition, NotFound, Retryable, TransactionAborted
from eventproc.store.model.limits import LEASE_MS_MAX, LEASE_MS_MIN
from eventproc.store.model.producer_sequences import EPOCH_MAX, Misfit, next_position
from eventproc.store.model.transactions import TxnState
from eventproc.store.records import Versioned, create, find, replace
from eventproc.store.segments import SegmentEvents, WriterSequence
from eventproc.store.transactions import (
    create_txn,
    decide_abort,
    decide_joint_commit,
    joint_rows,
    last_staged_sequence,
    stage,
    staged_sequences,
)

ID_CHARS_MAX: Final = 512
"""Characters of a transactional id, which is the key of a record."""

GROUPS_MAX: Final = 100
"""Groups of one transaction. Each is in the record of the producer."""

POSITIONS_MAX: Final = 10_000
"""Partitions of a transaction, and those whose last batch is known after it, the latest ones. A producer that goes on
in another partition gets an error after which its client takes a new epoch. Higher: each batch decodes a larger
record."""

_Found = Versioned[TransactionalProducer]


class ProducerTransactions:
    """The transactions of the producers of one scope, for all connections of one server."""

    def __init__(self, db: Database, topics: ServedTopics, groups: KafkaGroups) -> None:
        self._db = db
        self._topics = topics
        self._groups = groups

    async def begin_producer(self, call: InitProducerId, caller: Caller) -> tuple[int, int]:
        """Return the number and the epoch of a producer; what an earlier one has left open is aborted.

        Raises KafkaRefusal.
        """
        self.verify(caller, call.transactional_id)
        if not 0 < call.timeout_ms <= LEASE_MS_MAX:
            text = f"a transaction lasts {LEASE_MS_MAX:,} ms at most"
            raise KafkaRefusal(KafkaCode.INVALID_TRANSACTION_TIMEOUT, text)
        fresh = new_producer_id(self._db.clock)
        try:
            begun = await self._db.write(partial(self._begin_producer, call=call, fresh=fresh))
        except Retryable as why:
            raise KafkaRefusal(KafkaCode.COORDINATOR_NOT_AVAILABLE, str(why)) from None
        return begun.producer_id, begun.epoch

    def verify(self, caller: Caller, transactional_id: str | None) -> None:
        """Raise KafkaRefusal unless the caller may be the producer of this id."""
        key = self._key(transactional_id)
        try:
            caller.verify(Permission.READ_UPDATE, key)
        except NotPermitted as why:
            raise KafkaRefusal(KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, str(why)) from None

    def _begin_producer(self, tx: Tx, call: InitProducerId, fresh: int) -> TransactionalProducer:
        key = self._key(call.transactional_id)
        timeout_ms = max(call.timeout_ms, LEASE_MS_MIN)
        if (found := find(tx, KAFKA_PRODUCER, key)) is None:
            if call.producer_id >= 0:
                raise KafkaRefusal(KafkaCode.INVALID_PRODUCER_ID_MAPPING, "this producer is not known")
            new = TransactionalProducer(producer_id=fresh, epoch=0, timeout_ms=timeout_ms, used_ms=tx.now_ms)
            create(tx, KAFKA_PRODUCER, key, new)
            return new
        before, asked = found.value, (call.producer_id, call.epoch)
        if call.producer_id >= 0:
            if asked == before.asked:
                return before  # it did not get the answer
            _verify_producer(before, call.producer_id, call.epoch)
        self._abort(tx, key, before, "its producer began once more")
        number, epoch = before.producer_id, before.epoch + 1
        if epoch >= EPOCH_MAX:
            number, epoch = fresh, 0
        after = TransactionalProducer(
            producer_id=number, epoch=epoch, timeout_ms=timeout_ms, used_ms=tx.now_ms, asked=asked
        )
        replace(tx, KAFKA_PRODUCER, found, after)
        return after

    async def add_partitions(self, call: AddPartitionsToTxn, caller: Caller) -> list[PlaceAnswer]:
        """Let a transaction have partitions; it begins with the first ones. All of them or none."""
        answers = await self._added(call, caller)
        if any(each.code is not KafkaCode.NONE for each in answers):
            left = KafkaCode.OPERATION_NOT_ATTEMPTED
            return [attrs.evolve(each, code=each.code or left) for each in answers]
        return answers

    async def _added(self, call: AddPartitionsToTxn, caller: Caller) -> list[PlaceAnswer]:
        try:
            self.verify(caller, call.seat.transactional_id)
            return await self._db.write(partial(self._add_partitions, call=call, caller=caller))
        except Retryable:
            return [PlaceAnswer(each, KafkaCode.COORDINATOR_NOT_AVAILABLE) for each in call.places]
        except REFUSALS as why:
            return [PlaceAnswer(each, code_of(why)) for each in call.places]

    def _add_partitions(self, tx: Tx, call: AddPartitionsToTxn, caller: Caller) -> list[PlaceAnswer]:
        found = self._current(tx, call.seat)
        answers, topics = [], dict[TopicPlace, ServedTopic]()
        for place in call.places:
            code = KafkaCode.NONE
            try:
                self._topics.verify(caller, Permission.READ_UPDATE, place.topic)
                topics[place] = self._topics.get(tx, place.topic)
                topics[place].segment(place)
            except REFUSALS as why:
                code = code_of(why)
            answers.append(PlaceAnswer(place, code))
        if any(each.code for each in answers):
            return answers
        begun = self._begun(tx, found.value)
        assert begun.txn is not None, "it has begun"
        places, joined = dict.fromkeys(begun.places), {stream_id for _, stream_id, _ in begun.places}
        for place, topic in topics.items():
            if topic.stream_id not in joined:
                self._join(tx, found.key, topic, begun)
                joined.add(topic.stream_id)
            places[topic.stream, topic.stream_id, place.partition] = None
        if len(places) > POSITIONS_MAX:
            text = f"a transaction has {POSITIONS_MAX:,} partitions at most"
            raise KafkaRefusal(KafkaCode.INVALID_REQUEST, text)
        self._replace(tx, found, attrs.evolve(begun, places=tuple(places)))
        return answers

    def _begun(self, tx: Tx, producer: TransactionalProducer) -> TransactionalProducer:
        """Return the producer with an open transaction."""
        if producer.txn is not None:
            return producer
        until_ms = tx.monotonic_ms + producer.timeout_ms
        txn = new_id(tx.clock)
        return attrs.evolve(producer, txn=txn, until_ms=until_ms, committed=None, used_ms=tx.now_ms)

    def _join(self, tx: Tx, key: str, topic: ServedTopic, producer: TransactionalProducer) -> None:
        """Let the transaction have events in a topic. Only its producer may commit it, with the commits of groups."""
        assert producer.txn is not None, "it has begun"
        try:
            create_txn(
                *(tx, topic.stream, topic.stream_id, producer.txn),
                instance=self._db.instance_id,
                lease_ms=producer.timeout_ms,
                joint=key,
            )
        except (TransactionAborted, IllegalTransition) as why:
            raise _over(str(why)) from None

    def stage(
        self,
        tx: Tx,
        transactional_id: str | None,
        topic: ServedTopic,
        place: TopicPlace,
        batch: RecordBatch,
    ) -> None:
        """Stage a batch in the producer's transaction, unless it is there. Raises KafkaRefusal."""
        seat = ProducerSeat(transactional_id or "", batch.producer_id, batch.epoch)
        try:
            producer = self._current(tx, seat).value
        except KafkaRefusal as why:
            raise KafkaRefusal(KafkaCode.INVALID_PRODUCER_EPOCH, str(why)) from None
        if producer.txn is None or (topic.stream, topic.stream_id, place.partition) not in producer.places:
            text = "the partition was not added to the transaction"
            raise KafkaRefusal(KafkaCode.INVALID_TXN_STATE, text)
        writer = _writer(place.partition, producer)
        where = tx, topic.stream, topic.stream_id, producer.txn
        try:
            staged = last_staged_sequence(*where, writer)
            last = staged or producer.positions.get(f"{topic.stream_id}/{place.partition}", 0)
            position = next_position(last, batch.epoch, batch.first_sequence, batch.events.count)
            if position is Misfit.REPEATED:
                if not staged:
                    text = "the batch was a part of an earlier transaction"
                    raise KafkaRefusal(KafkaCode.DUPLICATE_SEQUENCE_NUMBER, text)
                return
            if isinstance(position, Misfit):
                raise KafkaRefusal(
                    KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "records before this batch are missing"
                )
            identity = WriterSequence(writer, position, after=staged)
            stage(*where, [SegmentEvents(topic.segment(place), batch.events)], identity=identity)
        except (TransactionAborted, IllegalTransition, NotFound) as why:
            raise KafkaRefusal(KafkaCode.INVALID_PRODUCER_EPOCH, str(why)) from None

    async def add_group(self, call: AddOffsetsToTxn, caller: Caller) -> KafkaCode:
        """Let a transaction have commits of a group."""
        try:
            self.verify(caller, call.seat.transactional_id)
            name = self._groups.name(caller, Permission.READ_UPDATE, call.group)
            await self._db.write(partial(self._add_group, seat=call.seat, name=name))
        except GROUP_REFUSALS as why:
            return group_code_of(why)
        return KafkaCode.NONE

    def _add_group(self, tx: Tx, seat: ProducerSeat, name: str) -> None:
        found = self._current(tx, seat)
        begun = self._begun(tx, found.value)
        groups = tuple(dict.fromkeys((*begun.groups, name)))
        if len(groups) > GROUPS_MAX:
            text = f"a transaction has commits of {GROUPS_MAX} groups at most"
            raise KafkaRefusal(KafkaCode.INVALID_REQUEST, text)
        self._replace(tx, found, attrs.evolve(begun, groups=groups))

    async def commit_offsets(self, call: TxnOffsetCommit, caller: Caller) -> list[PlaceAnswer]:
        """Keep what a member has processed until the transaction is committed."""
        try:
            self.verify(caller, call.seat.transactional_id)
            name = self._groups.name(caller, Permission.READ_UPDATE, call.commit.seat.group)
            write = partial(self._commit_offsets, name=name, call=call, caller=caller)
            return await self._db.write(write)
        except GROUP_REFUSALS as why:
            return [PlaceAnswer(each.place, group_code_of(why)) for each in call.commit.commits]

    def _commit_offsets(self, tx: Tx, name: str, call: TxnOffsetCommit, caller: Caller) -> list[PlaceAnswer]:
        producer = self._current(tx, call.seat).value
        if producer.txn is None or name not in producer.groups:
            raise KafkaRefusal(KafkaCode.INVALID_TXN_STATE, f"{name} was not added to the transaction")
        answers, commits = self._groups.read_commits(tx, name, call.commit, caller, is_transactional=True)
        if commits:
            pending = PendingCommits(
                txn=producer.txn,
                until_ms=producer.until_ms,
                timeout_ms=producer.timeout_ms,
                commits=tuple(commits),
            )
            add_pending(tx, name, call.seat.transactional_id, pending)
        return answers

    async def end(self, call: EndTxn, caller: Caller) -> KafkaCode:
        """Commit or abort a transaction, with the commits of its groups."""
        try:
            self.verify(caller, call.seat.transactional_id)
            await self._db.write(partial(self._end, call=call))
        except GROUP_REFUSALS as why:
            return group_code_of(why)
        return KafkaCode.NONE

    def _end(self, tx: Tx, call: EndTxn) -> None:
        found = self._current(tx, call.seat)
        producer, key = found.value, found.key
        if producer.txn is None:
            if producer.committed is call.committed:
                return  # the answer did not arrive
            raise KafkaRefusal(KafkaCode.INVALID_TXN_STATE, "no transaction is open")
        staged = self._staged_positions(tx, producer)
        older = {place: each for place, each in producer.positions.items() if place not in staged}
        positions = dict([*older.items(), *staged.items()][-POSITIONS_MAX:])
        if call.committed:
            # A topic that was deleted has aborted the transaction, of which it has no record any more.
            stream_ids = {stream_id for _, stream_id, _ in producer.places}
            try:
                decide_joint_commit(tx, producer.txn, stream_ids)
            except (TransactionAborted, NotFound) as why:
                raise _over(str(why)) from None
            for name in producer.groups:
                store_commits(tx, name, take_pending(tx, name, call.seat.transactional_id))
        else:
            self._abort(tx, key, producer, "its producer aborted it")
        ended = attrs.evolve(
            producer,
            txn=None,
            places=(),
            groups=(),
            committed=call.committed,
            positions=positions,
            used_ms=tx.now_ms,
        )
        self._replace(tx, found, ended)

    def _staged_positions(self, tx: Tx, producer: TransactionalProducer) -> dict[str, int]:
        """Return the positions that the batches of the open transaction have reached."""
        assert producer.txn is not None, "it has begun"
        found: dict[str, int] = {}
        for stream_id in {stream_id for _, stream_id, _ in producer.places}:
            staged = staged_sequences(tx, stream_id, producer.txn)
            for partition in [each for _, own_id, each in producer.places if own_id == stream_id]:
                if position := staged.get(_writer(partition, producer)):
                    found[f"{stream_id}/{partition}"] = position
        return found

    def _abort(self, tx: Tx, key: str, producer: TransactionalProducer, reason: str) -> None:
        """Abort what is open, and forget what groups would have committed with it."""
        if producer.txn is None:
            return
        for row in joint_rows(tx, producer.txn)[:1]:
            if row.state is TxnState.OPEN:
                decide_abort(tx, row.stream_id, producer.txn, reason=reason)
        for name in producer.groups:
            take_pending(tx, name, key.partition("/")[2])

    def _current(self, tx: Tx, seat: ProducerSeat) -> _Found:
        """Return a producer whose identity is the last one, and whose transaction may go on. Raises KafkaRefusal."""
        found = find(tx, KAFKA_PRODUCER, self._key(seat.transactional_id))
        if found is None:
            raise KafkaRefusal(KafkaCode.INVALID_PRODUCER_ID_MAPPING, "this producer is not known")
        _verify_producer(found.value, seat.producer_id, seat.epoch)
        if found.value.txn is not None and is_over(tx, found.value.until_ms, found.value.timeout_ms):
            raise _over("its time is over")
        return found

    def _replace(self, tx: Tx, found: _Found, after: TransactionalProducer) -> None:
        if after != found.value:
            replace(tx, KAFKA_PRODUCER, found, after)

    def _key(self, transactional_id: str | None) -> str:
        if not transactional_id or len(transactional_id) > ID_CHARS_MAX or "\0" in transactional_id:
            text = f"a transactional id has 1 to {ID_CHARS_MAX} characters, none of them NUL"
            raise KafkaRefusal(KafkaCode.INVALID_REQUEST, text)
        return f"{self._topics.scope}/{transactional_id}"


def _writer(partition: int, producer: TransactionalProducer) -> str:
    return f"kafka/{partition}/{producer.producer_id}"


def _verify_producer(known: TransactionalProducer, producer_id: int, epoch: int) -> None:
    if producer_id != known.producer_id:
        raise KafkaRefusal(
            KafkaCode.INVALID_PRODUCER_ID_MAPPING, "another producer has this transactional id"
        )
    if epoch != known.epoch:
        raise _over("a later producer has the same transactional id")


def _over(why: str) -> KafkaRefusal:
    return KafkaRefusal(KafkaCode.PRODUCER_FENCED, f"the transaction cannot go on: {why}")


def new_producer_id(clock: Clock) -> int:
    """Return a number of 62 bits that no other producer gets, also after a restart."""
    return int.from_bytes(clock.random_bytes(8), "big") >> 2
