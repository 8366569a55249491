"""A Ctrl-C between the end of a call on the loop and its return: nothing that the caller did not get is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from itertools import islice
from typing import Any

import pytest

import eventproc.blocking.loop
from eventproc import Event
from eventproc.blocking import BlockingEventproc, BlockingStream

Interrupted = Callable[[Callable[[], object]], None]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Interrupted:
    """Call a function, and lose what its first call of the loop returns."""

    def lose(future: Future[Any]) -> None:
        wait([future])
        raise KeyboardInterrupt

    def call(function: Callable[[], object]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(eventproc.blocking.loop, "result_of", lose)
            with pytest.raises(KeyboardInterrupt):
                function()

    return call


@pytest.fixture
def filled(stream: BlockingStream) -> BlockingStream:
    with stream.writer() as writer:
        writer.write_many((b"%d" % number, "customer-42") for number in range(4))
    return stream


def numbers(events: Iterable[Event], count: int | None = None) -> list[int]:
    return [int(event.payload) for event in islice(events, count)]


def test_the_first_event_of_a_loop_comes_again(
    ep: BlockingEventproc, filled: BlockingStream, interrupted: Interrupted
) -> None:
    with ep.create_group("billing", ["shop/orders"]).reader("r1") as reader:
        interrupted(lambda: next(iter(reader)))
        reader.commit()
        assert numbers(reader.until(filled.tail())) == [0, 1, 2, 3]


def test_an_event_before_which_the_reader_followed_its_group_comes_again(
    ep: BlockingEventproc, filled: BlockingStream, interrupted: Interrupted
) -> None:
    with ep.create_group("billing", ["shop/orders"]).reader("r1") as reader:
        events = iter(reader)
        assert numbers(events, 1) == [0]
        reader.commit()
        interrupted(lambda: next(events))
        assert numbers(reader.until(filled.tail())) == [1, 2, 3]


def test_a_batch_of_a_group_reader_comes_again(
    ep: BlockingEventproc, filled: BlockingStream, interrupted: Interrupted
) -> None:
    group = ep.create_group("billing", ["shop/orders"])
    with group.reader("r1") as reader:
        interrupted(lambda: next(reader.batches()))
        reader.commit()
        assert group.describe().events == 4
        assert numbers(next(reader.batches())) == [0, 1, 2, 3]


@pytest.mark.parametrize("auto_commit", [True, False])
def test_what_a_consumer_polled_comes_again(
    auto_commit: bool, ep: BlockingEventproc, filled: BlockingStream, interrupted: Interrupted
) -> None:
    group = ep.create_group("billing", ["shop/orders"])
    with group.consumer("c", auto_commit=auto_commit) as consumer:
        assert numbers(consumer.poll(1)) == [0]
        interrupted(lambda: consumer.poll(2))
        consumer.commit()
        assert group.describe().events == 3
        interrupted(lambda: next(iter(consumer)))
        assert numbers(consumer.poll()) == [1, 2, 3]
        interrupted(lambda: consumer.poll(timeout_ms=0))
        assert consumer.poll(timeout_ms=0) == []


def test_what_a_consumer_of_a_share_group_received_comes_again_and_counts_no_delivery(
    ep: BlockingEventproc, filled: BlockingStream, interrupted: Interrupted
) -> None:
    group = ep.create_share_group("work", ["shop/orders"])
    with group.consumer("a", payload=int, auto_accept=True) as consumer:
        interrupted(lambda: consumer.poll(2))
        interrupted(lambda: next(iter(consumer)))
        found = [*consumer.poll(), *consumer.poll(timeout_ms=0)]
        assert sorted((each.event.payload, each.deliveries) for each in found) == [(n, 1) for n in range(4)]
