"""A processor consumes a topic: batches of a partition, several partitions simultaneously, retries that hold theirs."""

from __future__ import annotations

import pytest

import eventproc
from eventproc import Context, Event, RetryPolicy
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import number_of


@pytest.mark.parametrize("form", ["memory"])
@pytest.mark.acceptance("K13")
async def test_a_retry_holds_its_partition_and_a_spent_one_becomes_a_dead_letter(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    async with topic.producer() as producer:
        for number in range(8):
            await producer.write(b"%d" % number, partition=number % 2)
    app = eventproc.App()
    seen: list[tuple[int, int, int]] = []

    @app.processor(
        "s/t",
        group="s/p",
        order="segment",
        concurrency=2,
        retry=RetryPolicy(attempts=2, wait_ms=1, wait_ms_max=1, jitter_ms=0),
    )
    async def handle(event: Event, context: Context) -> None:
        seen.append((number_of(event.segment), event.number, context.attempt))
        if event.payload == b"2":
            raise ValueError("poison")

    async with ep.run(app) as running:
        await running.wait_idle()
    first = [(number, attempt) for partition, number, attempt in seen if partition == 0]
    assert first == [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]
    assert [number for partition, number, _ in seen if partition == 1] == [0, 1, 2, 3]
    (letter,) = await ep.dead_letters("s/p").list()
    assert letter.attempts == 2
