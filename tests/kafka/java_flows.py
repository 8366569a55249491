"""What clients of Kafka do, with the Java client at its default settings, called from Python through py4j.

So it needs a Java, and no compiler: the Java in a wheel has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from eventproc.spark.java import find_java
from eventproc.testing.crash import PATIENCE_S

CHEAP = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
"""The JVM's settings for a short life."""

POLL_MS = 50
START = 1_700_000_000_000


@contextmanager
def java_flows(jars: Sequence[Path], address: str, topic: str) -> Iterator[JavaFlows]:
    """Run a JVM with these jars while the block runs."""
    launched: Any = launch_gateway(
        classpath=":".join(map(str, jars)),
        javaopts=CHEAP,
        java_path=str(find_java().home / "bin" / "java"),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    port, secret, process = launched
    parameters = GatewayParameters(port=port, auth_token=secret, auto_convert=True)
    gateway = JavaGateway(gateway_parameters=parameters)
    try:
        yield JavaFlows(gateway.jvm, address, topic)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(PATIENCE_S)


class JavaFlows:
    """The flows, in the JVM behind `jvm`, on a topic that does not exist yet."""

    def __init__(self, jvm: Any, address: str, topic: str) -> None:
        self._jvm = jvm
        self._clients = jvm.org.apache.kafka.clients
        self._common = jvm.org.apache.kafka.common
        self._address = address
        self._topic = topic

    def flows(self) -> dict[str, object]:
        with closing(self._clients.admin.Admin.create(self._settings())) as admin:
            return {
                "topics": self._topics(admin),
                "sent": self._produce(),
                "read": self._read(),
                "group": self._group(admin),
                "commit": self._commit(admin),
                "seek": self._seek(admin),
                "transactions": self._transactions(admin),
            }

    def resume(self) -> list[list[object]]:
        self._send(self._topic, b"later")
        with self._member("commit", self._topic) as member:
            return [each[:4] for each in self._take(member, 1)]

    def _settings(self, **more: str) -> dict[str, str]:
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self._address, **named}

    def _producer(self, **more: str) -> Any:
        codec = self._common.serialization.ByteArraySerializer
        return closing(self._clients.producer.KafkaProducer(self._settings(**more), codec(), codec()))

    @contextmanager
    def _member(self, group: str, topic: str, **more: str) -> Iterator[Any]:
        codec = self._common.serialization.ByteArrayDeserializer
        settings = self._settings(group_id=f"{self._topic}-{group}", auto_offset_reset="earliest", **more)
        with closing(self._clients.consumer.KafkaConsumer(settings, codec(), codec())) as consumer:
            consumer.subscribe([topic])
            yield consumer

    def _place(self, topic: str, partition: int = 0) -> Any:
        return self._common.TopicPartition(topic, partition)

    def _poll(self, consumer: Any) -> list[Any]:
        return [*consumer.poll(self._jvm.java.time.Duration.ofMillis(POLL_MS)).iterator()]

    def _take(self, consumer: Any, count: int) -> list[list[object]]:
        found: list[list[object]] = []
        while len(found) < count:
            found += map(_shown, self._poll(consumer))
        return found

    def _record(
        self, topic: str, value: bytes | None, key: bytes | None = None, time_ms: int | None = None
    ) -> Any:
        return self._clients.producer.ProducerRecord(topic, 0, time_ms, key, value)

    def _send(self, topic: str, *values: bytes) -> None:
        with self._producer() as producer:
            for each in values:
                producer.send(self._record(topic, each)).get()

    def _create(self, admin: Any, partitions: int, *topics: str) -> None:
        optional = self._jvm.java.util.Optional
        new = self._clients.admin.NewTopic
        admin.createTopics(
            [new(each, optional.of(partitions), optional.empty()) for each in topics]
        ).all().get()

    def _topics(self, admin: Any) -> dict[str, object]:
        def listed() -> list[str]:
            return sorted(each for each in admin.listTopics().names().get() if each.startswith(self._topic))

        others = [f"{self._topic}-1", f"{self._topic}-2"]
        self._create(admin, 2, self._topic, *others)
        again = True
        try:
            self._create(admin, 2, self._topic)
        except Py4JJavaError as why:
            again = "TopicExistsException" not in str(why.java_exception)
        before = listed()
        admin.deleteTopics(others).all().get()
        after = listed()
        grown = self._clients.admin.NewPartitions.increaseTo(3)
        admin.createPartitions({self._topic: grown}).all().get()
        described = admin.describeTopics([self._topic]).allTopicNames().get()[self._topic]
        return {
            "created": True,
            "again": again,
            "before": before,
            "after": after,
            "grown": len(described.partitions()),
        }

    def _produce(self) -> list[int]:
        key = b"key"
        records = [
            (b"plain", key, [("name", b"value")]),
            (b"no key", None, []),
            (None, key, []),
            (b"", key, []),
            (b"binary key", b"\xff\x00\xfe", []),
            (b"twice", key, [("name", b"1"), ("name", b"2"), ("binary", b"\xff")]),
        ]
        offsets = []
        with self._producer() as producer:
            for number, (value, each, headers) in enumerate(records):
                record = self._record(self._topic, value, each, START + number)
                for name, content in headers:
                    record.headers().add(name, content)
                offsets.append(producer.send(record).get().offset())
        return offsets

    def _read(self) -> list[list[object]]:
        with self._member("read", self._topic) as member:
            return self._take(member, 6)

    def _group(self, admin: Any) -> dict[str, object]:
        topic = f"{self._topic}-group"
        self._create(admin, 2, topic)
        sent = [0, 0]
        read: set[tuple[int, int]] = set()

        def poll(member: Any) -> None:
            read.update((each.partition(), each.offset()) for each in self._poll(member))

        def poll_until(condition: Callable[[], bool], *members: Any) -> None:
            while not condition():
                for partition in (0, 1):
                    value = str(sent[partition]).encode()
                    producer.send(self._clients.producer.ProducerRecord(topic, partition, None, value))
                    sent[partition] += 1
                for each in members:
                    poll(each)

        def partitions(*members: Any) -> list[int]:
            return sorted(each.partition() for member in members for each in member.assignment())

        with self._producer() as producer, self._member("group", topic) as two:
            with self._member("group", topic) as one:
                poll_until(lambda: partitions(one) == [0, 1], one)
                poll_until(lambda: len(partitions(one)) == len(partitions(two)) == 1, one, two)
                shared = partitions(one, two)
            poll_until(lambda: partitions(two) == [0, 1], two)
            while len(read) < sum(sent):
                poll(two)
            alone = partitions(two)
        return {"shared": shared, "alone": alone, "missing": sum(sent) - len(read)}

    def _committed(self, admin: Any, group: str, topic: str) -> int:
        found = admin.listConsumerGroupOffsets(f"{self._topic}-{group}").partitionsToOffsetAndMetadata().get()
        committed = found.get(self._place(topic))
        return -1 if committed is None else committed.offset()

    def _commit(self, admin: Any) -> int:
        with self._member("commit", self._topic) as member:
            self._take(member, 6)
        return self._committed(admin, "commit", self._topic)

    def _seek(self, admin: Any) -> dict[str, object]:
        topic = f"{self._topic}-seek"
        self._create(admin, 1, topic)
        self._send(topic, b"a", b"b")
        self._jvm.Thread.sleep(50)
        between = self._jvm.System.currentTimeMillis()
        self._jvm.Thread.sleep(50)
        self._send(topic, b"c", b"d")
        place = self._place(topic)
        with self._member("seek", topic) as member:
            self._take(member, 4)
            by_time = member.offsetsForTimes({place: between})[place].offset()
            ends = [member.beginningOffsets([place])[place], member.endOffsets([place])[place]]
            member.seek(place, 3)
            return {"byTime": by_time, "ends": ends, "sought": self._take(member, 1)[0][1]}

    def _transactions(self, admin: Any) -> dict[str, object]:
        source, target = f"{self._topic}-source", f"{self._topic}-target"
        self._create(admin, 1, source, target)
        self._send(source, b"1", b"2")
        offsets = {self._place(source): self._clients.consumer.OffsetAndMetadata(2)}
        place = self._place(target)

        def state() -> list[int]:
            latest = self._clients.admin.OffsetSpec.latest()
            end = admin.listOffsets({place: latest}).partitionResult(place).get().offset()
            return [end, self._committed(admin, "copy", source)]

        def copy(*values: bytes) -> None:
            producer.beginTransaction()
            for each in values:
                producer.send(self._record(target, each)).get()
            producer.sendOffsetsToTransaction(offsets, reader.groupMetadata())

        reading = self._member("copy", source, enable_auto_commit="false")
        with self._producer(transactional_id=self._topic) as producer, reading as reader:
            self._take(reader, 2)
            producer.initTransactions()
            copy(b"never")
            producer.abortTransaction()
            aborted = state()
            copy(b"1", b"2")
            opened = state()
            producer.commitTransaction()
        with self._member("committed", target, isolation_level="read_committed") as member:
            values = [each[3] for each in self._take(member, 2)]
        return {"aborted": aborted, "open": opened, "committed": state(), "values": values}


def _shown(record: Any) -> list[object]:
    headers = [[each.key(), _hex(each.value())] for each in record.headers().iterator()]
    key, value = _hex(record.key()), _hex(record.value())
    return [record.partition(), record.offset(), key, value, headers, record.timestamp()]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else bytes(value).hex()
