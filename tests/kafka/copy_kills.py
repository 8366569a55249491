"""Clients of Kafka copy a topic in transactions while their server is killed: each record must be copied once.

    python -m tests.kafka.copy_kills KILLS

Two members of a group read a topic, write each record to another one, and commit what they have read in the same
transaction. The server is killed with SIGKILL after numbers of copied records that a seeded generator chooses, and
started again at once. A member whose transaction fails aborts it, or begins as a new producer, and goes on where the
group has committed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Condition

import anyio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from eventproc import open_blocking
from eventproc.testing import check_directory
from tests.kafka.clients import ONE_BROKER, Record, confluent_consume, confluent_produce, member
from tests.kafka.kafka_kills import free_port, in_thread
from tests.server.support import ServerProcess

PARTITIONS = 4
MEMBERS = 2
TOGETHER = 100
"""Records of a transaction, at most."""

RECORDS_OF_A_LIFE = 200
"""Records that are copied between two kills, on average."""

PATIENCE_S = 120


class Copying:
    """How many records are copied."""

    def __init__(self, total: int) -> None:
        self._changed = Condition()
        self._copied = 0
        self.total = total

    @property
    def is_over(self) -> bool:
        return self._copied >= self.total

    def note(self, count: int) -> None:
        with self._changed:
            self._copied += count
            self._changed.notify_all()

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are copied, or all."""
        with self._changed:
            target = min(self._copied + more, self.total)
            assert self._changed.wait_for(lambda: self._copied >= target, PATIENCE_S), "nobody copies"


def run(directory: Path, kills: int) -> int:
    """Kill the server so many times while records are copied, then compare; return the number of records."""
    random, each = Random(11), RECORDS_OF_A_LIFE * (kills + 1) // PARTITIONS
    with open_blocking(directory, durability="os") as ep:
        ep.create_scope("shop")
        for name in ("source", "target"):
            ep.create_topic(f"shop/{name}", partitions=PARTITIONS)
    port = free_port()
    address, copying = f"127.0.0.1:{port}", Copying(each * PARTITIONS)
    server = ServerProcess(directory, kafka_scope="shop", kafka_port=port)
    for partition in range(PARTITIONS):
        records = [Record(b"%d %d" % (partition, number)) for number in range(each)]
        confluent_produce(address, "source", partition, records)
    members = [in_thread(copy_all, address, number, copying) for number in range(MEMBERS)]
    try:
        for _ in range(kills):
            copying.wait_for(random.randint(1, 2 * RECORDS_OF_A_LIFE))
            server.kill()
            server = ServerProcess(directory, kafka_scope="shop", kafka_port=port)
        copying.wait_for(copying.total)
        for member in members:
            member()
        found = Counter(
            record.value for record in confluent_consume(address, "target", PARTITIONS, copying.total)
        )
    finally:
        server.kill()
    wanted = {b"%d %d" % (partition, number) for partition in range(PARTITIONS) for number in range(each)}
    assert found.keys() == wanted, "records are missing"
    assert set(found.values()) == {1}, "records were copied twice"
    with open_blocking(directory) as ep:
        (lag,) = {part.lag for part in ep.group("shop/copiers").partitions()}
        assert lag == 0, "the group has not committed what it copied"
        assert [part.end for part in ep.topic("shop/target").describe().partitions] == [each] * PARTITIONS
    anyio.run(check_directory, directory)
    return copying.total


def copy_all(address: str, number: int, copying: Copying) -> None:
    """Copy until everything is copied, as one producer after the other."""
    settings = {**ONE_BROKER, "session.timeout.ms": 10_000}
    with member(address, "copiers", "source", settings) as consumer:
        while not copying.is_over:
            try:
                producer = Producer(
                    {"bootstrap.servers": address, "transactional.id": f"copier {number}", **ONE_BROKER}
                )
                producer.init_transactions(PATIENCE_S)
                while not copying.is_over:
                    copying.note(copy_some(consumer, producer))
            except KafkaException:
                rewind(consumer)


def copy_some(consumer: Consumer, producer: Producer) -> int:
    """Copy some records in one transaction; return how many. Raises KafkaException if another producer is needed."""
    messages = [each for each in consumer.consume(TOGETHER, 0.5) if each.error() is None]
    if not messages:
        return 0
    producer.begin_transaction()
    try:
        for each in messages:
            partition = each.partition()
            assert partition is not None
            producer.produce("target", each.value(), partition=partition)
        places = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [each for each in places if each.offset >= 0], consumer.consumer_group_metadata(), PATIENCE_S
        )
        finish(producer)
    except KafkaException as why:
        error = why.args[0]
        if isinstance(error, KafkaError) and error.txn_requires_abort():
            producer.abort_transaction(PATIENCE_S)
            rewind(consumer)
            return 0
        raise
    return len(messages)


def finish(producer: Producer) -> None:
    """Commit, again if that is what the client asks for."""
    while True:
        try:
            producer.commit_transaction(PATIENCE_S)
        except KafkaException as why:
            if not why.args[0].retriable():
                raise
        else:
            return


def rewind(consumer: Consumer) -> None:
    """Go back to what the group has committed."""
    while True:
        places = consumer.assignment()
        if not places:
            return
        try:
            seek_committed(consumer, consumer.committed(places, PATIENCE_S))
        except KafkaException:
            consumer.poll(0.1)
        else:
            return


def seek_committed(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    for each in places:
        consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        copied = run(Path(folder) / "served", int(sys.argv[1]))
    sys.stdout.write(f"{copied:,} records, {sys.argv[1]} kills: each is copied once\n")
