"""`eventproc serve --kafka` beside its floor: events from one unmodified client to another one.

The server, the producer and the consumer are processes of their own. The time is from the first event produced to the
last one consumed, and CPU time is that of the server. The clients in Python share the machine with it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial
from importlib import import_module
from typing import Any, Final

import anyio
import attrs

import eventproc
from benchmarks.floors import inserts
from benchmarks.peers import EmptyWork
from benchmarks.samples import KEYS_COUNT, PAYLOAD_BYTES, Sample, Task, keys, payloads
from benchmarks.serving import ServerAtWork, server_process

BATCH_EVENTS: Final = 8_000
"""Events of a batch by the client's default: those that fit into 1 MB."""

SMALL_BATCH_EVENTS: Final = 100

_ADDRESS: Final = re.compile(r"clients of Kafka: ([^,]+),")

_PRODUCER: Final = f"""
import sys, time
from confluent_kafka import Producer

address, count, together = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
producer = Producer({{"bootstrap.servers": address, "batch.num.messages": together, "linger.ms": 5,
                     "queue.buffering.max.messages": 10**6}})
producer.list_topics("events", 60)
value, begun = bytes({PAYLOAD_BYTES}), time.time()
for number in range(count):
    producer.produce("events", value)
    if not number % 10_000:
        producer.poll(0)
assert producer.flush(120) == 0
print(begun)
"""

_CONSUMER: Final = """
import sys, time
from confluent_kafka import Consumer, TopicPartition

address, count = sys.argv[1], int(sys.argv[2])
consumer = Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False,
                     "queued.min.messages": 10**6})
consumer.assign([TopicPartition("events", 0, 0)])
print("ready", flush=True)
left = count
while left:
    left -= len(consumer.consume(10_000, 10))
print(time.time())
"""


async def end_to_end(task: Task) -> Sample:
    """Produce with the client's default batches, and consume."""
    return await _end_to_end(task, 10_000)


async def small(task: Task) -> Sample:
    """The same with SMALL_BATCH_EVENTS in a batch at most."""
    return await _end_to_end(task, SMALL_BATCH_EVENTS)


async def _end_to_end(task: Task, together: int) -> Sample:
    async with eventproc.open(task.directory, durability=eventproc.Durability.OS) as ep:
        await ep.create_scope("benchmark")
        await ep.create_topic("benchmark/events")
    options = ("--kafka", "0", "--kafka-scope", "benchmark")
    async with server_process(task, options, _ADDRESS) as (process, said):
        server = ServerAtWork(process, 0, 0)
        cpu_s = server.cpu_s()
        seconds = await anyio.to_thread.run_sync(partial(_clients, said[1], task.count, together))
        return server.sample(task.count / seconds, cpu_s, task.count)


def _clients(address: str, count: int, together: int) -> float:
    """Let both clients run; return the seconds from the first event to the last."""
    run = partial(subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    consumer = run([sys.executable, "-c", _CONSUMER, address, str(count)])
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == "ready\n"
    producer = run([sys.executable, "-c", _PRODUCER, address, str(count), str(together)])
    begun, _ = producer.communicate()
    ended, _ = consumer.communicate()
    return float(ended) - float(begun)


async def faust_state(task: Task) -> Sample:
    """Let Faust count the events of each of 1,000 keys in a table, from the first one until the last.

    Its broker is the server, which syncs before it acknowledges.
    """
    faust: Any = import_module("faust")
    await _fill_topic(task)
    options = ("--kafka", "0", "--kafka-scope", "benchmark")
    async with server_process(task, options, _ADDRESS) as (_, said):
        settings = {"broker": f"kafka://{said[1]}", "datadir": str(task.directory / "faust")}
        app: Any = faust.App("counts", **settings, topic_partitions=1, web_enabled=False)
        totals: Any = app.Table("totals", default=int)
        work = EmptyWork(task.count)
        count = work.function()

        async def agent(stream: Any) -> None:
            async for key, payload in stream.items():
                totals[key] += 1
                count(payload)

        app.agent(app.topic("events", key_type=str, value_type=bytes, value_serializer="raw"))(agent)
        await app.start()
        try:
            return await work.sample()
        finally:
            await app.stop()


async def _fill_topic(task: Task) -> None:
    pairs = list(zip(payloads(), keys(), strict=True))
    async with eventproc.open(task.directory, durability=task.durability) as ep:
        await ep.create_scope("benchmark")
        topic = await ep.create_topic("benchmark/events", partitions=1)
        async with topic.producer() as producer:
            for _ in range(task.count // KEYS_COUNT):
                await producer.write_many(pairs)


async def floor(task: Task) -> Sample:
    """Commit the bytes of a default batch one after the other, each through one crossing to a thread and back."""
    return await _floor(task, BATCH_EVENTS)


async def small_floor(task: Task) -> Sample:
    """The same with the bytes of a small batch."""
    return await _floor(task, SMALL_BATCH_EVENTS)


async def _floor(task: Task, together: int) -> Sample:
    count = task.count // together
    done = await inserts(attrs.evolve(task, count=count), bytes(PAYLOAD_BYTES) * together, callers=1)
    return attrs.evolve(done, value=done.value * together, cpu_us=done.cpu_us / together)
