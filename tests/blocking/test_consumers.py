"""Consumers without `await`: batches, commits, callbacks and handlers in threads."""

from __future__ import annotations

import threading

import pytest

from eventproc import Event, TopicPartition, errors
from eventproc.blocking import BlockingConsumer, BlockingEventproc, BlockingStream


def ten_numbers(ep: BlockingEventproc) -> BlockingStream[int]:
    """Return s/topic, which has the numbers from 0 to 9."""
    ep.create_scope("s")
    stream = ep.create_stream("s/topic", payload=int)
    with stream.writer() as writer:
        for number in range(10):
            writer.post(number)
    return stream


def test_a_consumer_polls_commits_and_seeks(ep: BlockingEventproc) -> None:
    ten_numbers(ep)
    group = ep.create_group("consumers", ["s/topic"], on_deleted="drop")
    heard: list[tuple[TopicPartition, ...]] = []
    with group.consumer("c", payload=int, auto_commit=False, on_assigned=heard.append) as consumer:
        assert [event.payload for event in consumer.poll(4)] == [0, 1, 2, 3]
        consumer.commit()
        consumer.seek(("s/topic", 0), 8)
        assert [event.payload for event in consumer.poll()] == [8, 9]
        assert consumer.committed == {("s/topic", 0): 4}
        assert consumer.position == {("s/topic", 0): 10}
        consumer.pause(consumer.assignment)
        assert consumer.poll(timeout_ms=0) == []
        assert consumer.paused == heard[0]
        with pytest.raises(errors.GroupNotEmpty):
            group.reset_partitions("head")
    group.reset_partitions("tail")
    (partition,) = ep.group("s/consumers").partitions()
    assert (partition.committed, partition.lag) == (10, 0)


def test_a_callback_in_a_thread_may_commit(ep: BlockingEventproc) -> None:
    ten_numbers(ep)
    group = ep.create_group("consumers", ["s/topic"], on_deleted="drop")
    consumer: BlockingConsumer[int] = group.consumer(
        "c", payload=int, auto_commit=False, on_revoked=lambda partitions: consumer.commit()
    )
    with consumer:
        consumer.poll(1)
    assert group.partitions()[0].committed == 1


def test_a_plain_function_handles_the_events_in_other_threads(ep: BlockingEventproc) -> None:
    stream = ten_numbers(ep)
    stream.seal()
    seen: list[int] = []

    def handle(events: list[Event[int]]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.extend(event.payload for event in events)

    with ep.create_group("consumers", ["s/topic"], on_deleted="drop").consumer("c", payload=int) as consumer:
        consumer.run(handle, poll_max=3)
        assert list(consumer) == []
    assert seen == list(range(10))
