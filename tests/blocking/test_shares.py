"""Share groups without `await`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.errors import LockLost


def write(stream: BlockingStream, count: int) -> None:
    with stream.writer() as writer:
        writer.write_many((b"%d" % number, str(number)) for number in range(count))


def test_threads_settle_what_one_thread_polls(ep: BlockingEventproc, stream: BlockingStream) -> None:
    write(stream, 20)
    group = ep.create_share_group("work", ["shop/orders"])
    assert repr(group) == "BlockingShareGroup('shop/work')"
    with group.consumer("a", payload=str) as consumer, ThreadPoolExecutor(4) as pool:
        events = consumer.poll(100)
        assert consumer.held_events == 20
        list(pool.map(consumer.accept, events))
        assert consumer.held_events == 0
        with pytest.raises(LockLost):
            consumer.accept(events)
        assert consumer.poll(timeout_ms=0) == []
    assert group.describe().events == 0


def test_iterating_without_await_accepts_each_event_and_ends(
    ep: BlockingEventproc, stream: BlockingStream
) -> None:
    write(stream, 10)
    stream.seal()
    group = ep.create_share_group("work", ["shop/orders"])
    with group.consumer("a", payload=int) as consumer:
        assert sorted(event.event.payload for event in consumer) == list(range(10))
    assert group.describe().events == 0


def test_a_thread_accepts_deliveries_with_the_events_that_it_wrote_for_them(
    ep: BlockingEventproc, stream: BlockingStream
) -> None:
    write(stream, 3)
    bills = ep.create_stream("shop/bills")
    group = ep.create_share_group("work", ["shop/orders"])
    with group.consumer("a") as consumer:
        events = consumer.poll(100)

        def fail() -> None:
            with ep.transaction(consumer=consumer) as txn:
                txn.write(bills, b"lost")
                consumer.accept(events)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert group.describe().events == consumer.held_events == 3
        with ep.transaction(consumer=consumer) as txn:
            txn.write(bills, b"kept")
            consumer.accept(events)
            assert group.describe().events == 3
    assert group.describe().events == 0
    with bills.reader() as reader:
        assert [event.payload for event in reader.until(bills.tail())] == [b"kept"]


def test_a_group_is_changed_and_a_consumer_taken_offline_without_await(
    ep: BlockingEventproc, stream: BlockingStream
) -> None:
    write(stream, 2)
    group = ep.create_share_group("work", ["shop/orders"])
    assert group.update(lock_ms=60_000).lock_ms == 60_000
    with group.consumer("a") as consumer:
        held = consumer.poll(100)
        assert group.consumer_offline("a") == 2
        with pytest.raises(LockLost):
            consumer.accept(held)
