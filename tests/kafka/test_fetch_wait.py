"""A consumer that wants many bytes gets its answer when they have come, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import anyio
import pytest
from anyio import to_thread

from eventproc.runtime import Eventproc
from tests.kafka.peer import KafkaPeer, batch_of
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

LONG_MS = 30_000
"""A consumer waits no longer. A test that sees the end of it fails before."""


@pytest.fixture
def producer(server: ServerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(server.kafka) as producer:
        yield producer


@pytest.fixture
def consumer(server: ServerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(server.kafka) as consumer:
        yield consumer


BATCHES = {
    "small": [batch_of(b"v" * 10, key=None)] * 200,
    "many in a batch": [batch_of(*[b"v" * 100] * 100)] * 3,
    "large keys": [batch_of(b"", key=b"k" * 200)] * 100,
    "a large one behind small ones": [*[batch_of(b"v")] * 20, batch_of(b"v" * 20_000)],
}


@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "stored"])
@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
async def test_the_answer_comes_when_the_bytes_are_there(
    batches: list[bytes], is_kept: bool, producer: KafkaPeer, consumer: KafkaPeer, ep: Eventproc
) -> None:
    """Kept: the batches are in the server's memory. Events with a time to live are read from the database."""
    name = f"wait-{batches[0][:21].hex()}-{len(batches)}-{is_kept}"
    await ep.create_topic(f"shop/{name}", ttl_ms=None if is_kept else 10**9)
    found: list[tuple[int, int, bytes]] = []
    bytes_min = sum(map(len, batches)) if is_kept else len(batches[-1]) + len(batches)
    fetch = partial(consumer.fetch, wait_ms=LONG_MS, bytes_min=bytes_min)
    with anyio.fail_after(LONG_MS / 1_000 - 5):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                found.append(await to_thread.run_sync(fetch, name, 0))

            tasks.start_soon(wait)
            for each in batches[:-1]:
                assert (await to_thread.run_sync(producer.produce, name, each))[0] == 0
            assert not found or not is_kept
            await to_thread.run_sync(producer.produce, name, batches[-1])
    ((code, _, records),) = found
    assert code == 0
    assert len(records) >= bytes_min


async def test_what_there_is_comes_when_the_time_is_over(
    producer: KafkaPeer, consumer: KafkaPeer, topic: str
) -> None:
    producer.produce(topic, batch_of(b"first"))
    code, end, records = consumer.fetch(topic, 0, wait_ms=50, bytes_min=100_000)
    assert (code, end, b"first" in records) == (0, 1, True)
    assert consumer.fetch(topic, 1, wait_ms=50, bytes_min=100_000) == (0, 1, b"")


@pytest.mark.parametrize("change", ["truncate", "delete"])
async def test_a_consumer_that_waits_hears_that_its_place_is_gone(
    change: str, producer: KafkaPeer, consumer: KafkaPeer, ep: Eventproc
) -> None:
    topic = await ep.create_topic(f"shop/{change}")
    producer.produce(change, batch_of(*[b"v"] * 10))
    found: list[tuple[int, int, bytes]] = []
    with anyio.fail_after(LONG_MS / 1_000 - 5):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                fetch = partial(consumer.fetch, wait_ms=LONG_MS, bytes_min=100_000)
                found.append(await to_thread.run_sync(fetch, change, 2))

            tasks.start_soon(wait)
            if change == "truncate":
                await topic.truncate(partition=0, before_number=6)
            else:
                await topic.seal()
                await topic.delete()
            # An append wakes the consumer after a truncation. A deleted topic refuses it.
            producer.produce(change, batch_of(b"v"))
    assert found[0][0] == (
        1 if change == "truncate" else 3
    )  # OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
