"""Clients of Kafka write while their server is killed: each record must be stored once, and in order.

    python -m tests.kafka.kafka_kills KILLS

Four idempotent producers write to a topic of four partitions, each with keys of its own. The server is killed with
SIGKILL after numbers of acknowledged records that a seeded generator chooses, and started again at once. At the end a
client reads everything.
"""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Condition, Thread

import anyio

from eventproc import open_blocking
from eventproc.testing import check_directory
from tests.kafka.clients import confluent_consume, confluent_producer
from tests.server.support import ServerProcess

PRODUCERS = 4
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
        verify(address, writing.counts)
    finally:
        server.kill()
    anyio.run(check_directory, directory)
    return sum(writing.counts)


def write(address: str, number: int, writing: Writing) -> None:
    """Write records until all kills are over."""
    settings = {"message.timeout.ms": PATIENCE_S * 1_000, "log_level": 0, "reconnect.backoff.max.ms": 200}
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


def verify(address: str, counts: list[int]) -> None:
    """Read everything from a client, and compare it with what was written."""
    found = confluent_consume(address, "orders", PARTITIONS, sum(counts))
    assert len({(each.partition, each.offset) for each in found}) == len(found)
    values = Counter(each.value for each in found)
    written = {b"%d %d" % (number, each) for number, count in enumerate(counts) for each in range(count)}
    assert values.keys() == written, "records are missing"
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
    said = f"{written:,} records, {sys.argv[1]} kills: each is stored once, and those of a key in order\n"
    sys.stdout.write(said)
