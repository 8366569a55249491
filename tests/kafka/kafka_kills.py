"""Clients of Kafka write and read while their server is killed: each record must be stored once, and in order.

    python -m tests.kafka.kafka_kills KILLS

Four idempotent producers write to a topic of four partitions, each with keys of its own. The server is killed with
SIGKILL after numbers of acknowledged records that a seeded generator chooses, and started again at once. Meanwhile a
group of three consumers reads, and commits before it counts: no consumer may get what was committed, and nothing may be
left out. At the end a client reads everything.
"""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Condition, Lock, Thread

import anyio
from confluent_kafka import Consumer, KafkaException, TopicPartition

from eventproc import open_blocking
from eventproc.testing import check_directory
from tests.kafka.clients import ONE_BROKER, confluent_consume, confluent_consumer, confluent_producer
from tests.server.support import ServerProcess

PRODUCERS = 4
CONSUMERS = 3
PARTITIONS = 4
KEYS = 10
PATIENCE_S = 600
LIFE = 200, 2_000
"""Acknowledged records after which a server is killed, at least and at most."""


class Writing:
    """What all producers have written so far."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._acknowledged = 0
        self.refused: list[object] = []
        self.counts = [0] * PRODUCERS
        self.is_over = False
        self.is_written = False

    def note(self, why: object, _: object) -> None:
        """Called for each record when it is acknowledged, or refused."""
        with self._changed:
            if why is not None:
                self.refused.append(why)
            self._acknowledged += 1
            self._changed.notify_all()

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        with self._changed:
            target = self._acknowledged + more
            assert self._changed.wait_for(lambda: self._acknowledged >= target, PATIENCE_S), "nobody writes"


def run(directory: Path, kills: int) -> int:
    """Kill the server so many times while records are written, then compare; return the number of records."""
    with open_blocking(directory, durability="os") as ep:
        ep.create_scope("shop")
        ep.create_topic("shop/orders", partitions=PARTITIONS)
    port = free_port()
    address, writing, random = f"127.0.0.1:{port}", Writing(), Random(7)
    reading = Reading()
    readers = [in_thread(read, address, number, writing, reading) for number in range(CONSUMERS)]
    threads = [in_thread(write, address, number, writing) for number in range(PRODUCERS)]
    server = ServerProcess(directory, kafka_scope="shop", kafka_port=port)
    for _ in range(kills):
        writing.wait_for(random.randint(*LIFE))
        server.kill()
        server = ServerProcess(directory, kafka_scope="shop", kafka_port=port)
    writing.is_over = True
    try:
        for each in threads:
            each()
        assert not writing.refused, writing.refused[:3]
        writing.is_written = True
        for each in readers:
            each()
        reading.verify(writing.counts)
        verify(address, writing.counts)
    finally:
        server.kill()
    anyio.run(check_directory, directory)
    return sum(writing.counts)


def write(address: str, number: int, writing: Writing) -> None:
    """Write records until all kills are over."""
    settings = {"message.timeout.ms": PATIENCE_S * 1_000, **ONE_BROKER}
    producer = confluent_producer(address, settings)
    count = 0
    while not writing.is_over:
        for _ in range(50):
            key = b"%d-%d" % (number, count % KEYS)
            producer.produce("orders", b"%d %d" % (number, count), key, on_delivery=writing.note)
            count += 1
        while len(producer) > 500:
            producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0, "records were not acknowledged"
    writing.counts[number] = count


class Reading:
    """What the group has committed, and what its members got."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._committed: dict[int, int] = {}
        self.values: set[bytes] = set()

    def begin(self, partition: int) -> int:
        with self._lock:
            return self._committed.get(partition, 0)

    def note(self, got: Iterable[tuple[int, int, bytes]]) -> None:
        """Count records, (partition, offset, value), whose commit was acknowledged."""
        with self._lock:
            for partition, offset, value in got:
                self._committed[partition] = max(offset + 1, self._committed.get(partition, 0))
                self.values.add(value)

    def count(self) -> int:
        with self._lock:
            return len(self.values)

    def verify(self, counts: Sequence[int]) -> None:
        """Compare what was committed with what was written. Raises AssertionError."""
        assert self.values == written_values(counts), "the group has left records out"


def read(address: str, number: int, writing: Writing, reading: Reading) -> None:
    """Read in the group until it has committed everything that is written."""
    began: dict[int, int] = {}
    pending: list[tuple[int, int, bytes]] = []

    def begin(_: Consumer, places: Sequence[TopicPartition]) -> None:
        began.update((each.partition, reading.begin(each.partition)) for each in places)
        pending.clear()  # what was not committed comes again, to this consumer or another one

    settings = {"group.id": "shippers", "auto.offset.reset": "earliest", **ONE_BROKER}
    consumer = confluent_consumer(address, settings)
    consumer.subscribe(["orders"], on_assign=begin)
    try:
        while not (writing.is_written and reading.count() == sum(writing.counts)):
            for each in consumer.consume(500, 0.2):
                partition, offset, value = each.partition(), each.offset(), each.value()
                if each.error() is None:
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    assert offset >= began[partition], f"{partition} {offset} was committed before"
                    pending.append((partition, offset, value))
            if pending and has_committed(consumer):
                reading.note(pending)
                pending.clear()
    finally:
        consumer.close()


def has_committed(consumer: Consumer) -> bool:
    """Commit what the consumer got; return whether that is acknowledged."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException:
        return False
    return True


def written_values(counts: Sequence[int]) -> set[bytes]:
    return {b"%d %d" % (number, each) for number, count in enumerate(counts) for each in range(count)}


def verify(address: str, counts: list[int]) -> None:
    """Read everything from a client, and compare it with what was written."""
    found = confluent_consume(address, "orders", PARTITIONS, sum(counts))
    assert len({(each.partition, each.offset) for each in found}) == len(found)
    values = Counter(each.value for each in found)
    assert values.keys() == written_values(counts), "records are missing"
    assert set(values.values()) == {1}, "records are stored twice"
    last: dict[bytes | None, int] = {}
    for each in sorted(found):
        assert each.value is not None
        count = int(each.value.split()[1])
        assert last.get(each.key, -1) < count, f"{each} is out of order"
        last[each.key] = count


def in_thread(call: Callable[..., None], *arguments: object) -> Callable[[], None]:
    """Run a function in a thread; return what waits for its end, and raises its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call(*arguments)
        except BaseException as why:
            errors.append(why)

    thread = Thread(target=run, daemon=True)
    thread.start()

    def join() -> None:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a producer does not end"
        if errors:
            raise errors[0]

    return join


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        written = run(Path(folder) / "served", int(sys.argv[1]))
    held = "each is stored once, and those of a key in order; the group got what it had not committed"
    sys.stdout.write(f"{written:,} records, {sys.argv[1]} kills: {held}\n")
