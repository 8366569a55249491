"""What the workers do with handlers of every kind: order, holding, clearing, and ends."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random

import anyio
import pytest

from eventproc.processors.engine.calls import EVENTS_A_TURN
from eventproc.processors.engine.workers import PUT_EVENTS, WAITING_ENOUGH
from eventproc.processors.options import ProcessingOrder
from eventproc.store.segments import Event
from eventproc.testing import run_seeded
from tests.processors.worker import WorkerHarness, segment_at, settled, until


def _lane(order: ProcessingOrder, key: str | None) -> object:
    queues: dict[ProcessingOrder, object] = {
        ProcessingOrder.SEGMENT: "segment",
        ProcessingOrder.KEY: key,
        ProcessingOrder.NONE: None,
    }
    return queues[order]


class Seen:
    """What a handler saw, by the key of its queue, and which queues run. Fails an event as often as asked."""

    def __init__(self, seed: int, order: ProcessingOrder) -> None:
        self.random = Random(seed)
        self.order = order
        self.by_lane: defaultdict[object, list[int]] = defaultdict(list)
        self.running: set[object] = set()
        self.at_once = 0
        self.failing: defaultdict[int, int] = defaultdict(int)

    def queue(self, event: Event) -> object:
        return _lane(self.order, event.key)

    async def handle(self, event: Event) -> None:
        queue = self.queue(event)
        assert queue is None or queue not in self.running, f"two calls for {queue!r} at the same time"
        self.running.add(queue)
        self.at_once = max(self.at_once, len(self.running))
        try:
            if self.random.random() < 0.6:
                await anyio.sleep(self.random.choice([0, 0, 0.5]))
            if self.failing[event.number]:
                self.failing[event.number] -= 1
                raise ValueError("asked to")
        finally:
            self.running.discard(queue)
        self.by_lane[queue].append(event.number)

    async def handle_batch(self, events: list[Event]) -> None:
        queues = {self.queue(event) for event in events} - {None}
        assert not queues & self.running, f"two calls for {queues & self.running} at the same time"
        self.running |= queues
        try:
            if self.random.random() < 0.6:
                await anyio.sleep(self.random.choice([0, 0, 0.5]))
            bad = [event.number for event in events if self.failing[event.number]]
            for number in bad:
                self.failing[number] -= 1
            if bad:
                raise ValueError("asked to")
        finally:
            self.running -= queues
        for event in events:
            self.by_lane[self.queue(event)].append(event.number)


async def _process(seed: int, order: ProcessingOrder, batch: int | None) -> None:
    random = Random(seed)
    seen = Seen(seed, order)
    harness = WorkerHarness(
        seen.handle if batch is None else seen.handle_batch,
        order=order,
        concurrency=random.randint(1, 6),
        batch=batch,
        linger_ms=random.choice([0, 200]),
    )
    expected: defaultdict[object, list[int]] = defaultdict(list)
    poisoned = set()
    number = 0
    async with harness.running():
        for _ in range(random.randint(1, 12)):
            keys = [random.choice([None, "a", "b", "c", "d"]) for _ in range(random.randint(0, 40))]
            for key in keys:
                queue = _lane(order, key)
                if random.random() < 0.08:
                    seen.failing[number] = random.choice([1, 2, 99])
                if seen.failing[number] == 99:
                    poisoned.add(number)
                else:
                    expected[queue].append(number)
                number += 1
            await harness.put(keys)
            if random.random() < 0.3:
                await harness.pool.drain()
                assert not harness.pool.queues.unfinished
            if random.random() < 0.2:
                harness.pool.block("test")
                await harness.pool.wait_quiet()
                assert not seen.running
                await anyio.sleep(1)
                assert not seen.running
                harness.pool.unblock("test")
        await harness.pool.drain()
    for queue, numbers in expected.items():
        seen_here = sorted(seen.by_lane[queue]) if queue is None else seen.by_lane[queue]
        assert seen_here == numbers
    assert {gone for gone, _, _ in harness.gone} == poisoned
    assert {attempts for _, attempts, _ in harness.gone} <= {3}
    assert sorted(harness.done) == sorted(set(range(number)) - poisoned)
    assert harness.owned.is_quiet
    assert seen.at_once <= harness.options.concurrency


@pytest.mark.parametrize("order", list(ProcessingOrder))
@pytest.mark.parametrize("batch", [None, 1, 7])
@pytest.mark.hunt(seeds=12)
def test_each_event_is_handled_in_the_order_it_needs(
    seed: int, order: ProcessingOrder, batch: int | None
) -> None:
    run_seeded(partial(_process, seed, order, batch), seed=seed)


@pytest.mark.acceptance("D8")
async def test_events_of_a_key_follow_each_other_and_keys_run_side_by_side() -> None:
    release: dict[str | None, anyio.Event] = {"a": anyio.Event(), "b": anyio.Event()}
    begun: list[int] = []

    async def handle(event: Event) -> None:
        begun.append(event.number)
        await release[event.key].wait()

    harness = WorkerHarness(handle)
    async with harness.running():
        await harness.put(["a", "a", "b"])
        await settled()
        assert sorted(begun) == [0, 2]
        release["b"].set()
        await until(lambda: harness.done == [2])
        release["a"].set()
        await harness.pool.drain()
    assert harness.done == [2, 0, 1]


async def test_serial_order_handles_one_event_per_segment_and_segments_in_parallel() -> None:
    gate, begun = anyio.Event(), []

    async def handle(event: Event) -> None:
        begun.append((event.segment, event.number))
        await gate.wait()

    harness, other = WorkerHarness(handle, order=ProcessingOrder.SEGMENT), segment_at(segment=1)
    async with harness.running():
        await harness.put(["a", "b", None])
        await harness.put(["a", "b"], other)
        await settled()
        assert sorted(begun) == [(0, 0), (1, 0)]
        gate.set()
        await harness.pool.drain()
    assert [number for segment, number in begun if segment == 0] == [0, 1, 2]


async def test_no_more_calls_run_than_the_concurrency_says() -> None:
    gate, running = anyio.Event(), 0

    async def handle(event: Event) -> None:
        nonlocal running
        running += 1
        await gate.wait()

    harness = WorkerHarness(handle, order=ProcessingOrder.NONE, concurrency=4)
    async with harness.running():
        await harness.put([None] * 20)
        await settled()
        assert (running, len(harness.pool.running)) == (4, 4)
        gate.set()
        await harness.pool.drain()
    assert sorted(harness.done) == list(range(20))


async def test_a_long_lane_lets_others_have_their_turn() -> None:
    order: list[str | None] = []

    async def handle(event: Event) -> None:
        order.append(event.key)

    harness = WorkerHarness(handle, concurrency=1)
    await harness.process([*["a"] * (3 * EVENTS_A_TURN), "b"])
    assert order.index("b") <= EVENTS_A_TURN


async def test_what_waits_is_bounded_and_put_waits_for_room() -> None:
    gate = anyio.Event()

    async def handle(event: Event) -> None:
        await gate.wait()

    harness = WorkerHarness(handle, order=ProcessingOrder.NONE)
    rounds = 3 * WAITING_ENOUGH // PUT_EVENTS

    async def put() -> None:
        for _ in range(rounds):
            await harness.put([None] * PUT_EVENTS)

    async with harness.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(put)
        await settled()
        assert WAITING_ENOUGH <= harness.pool.queues.unfinished < WAITING_ENOUGH + PUT_EVENTS
        gate.set()
    assert len(harness.done) + harness.pool.queues.unfinished == rounds * PUT_EVENTS


async def test_put_goes_on_when_all_that_waits_is_behind_a_stuck_call() -> None:
    async def handle(event: Event) -> None:
        if event.key == "stuck":
            await anyio.sleep_forever()

    harness = WorkerHarness(handle)
    async with harness.running():
        await settled()  # all workers wait, and one is woken
        with anyio.fail_after(2):
            await harness.put(["stuck"] * WAITING_ENOUGH)
            await harness.put(["a"])
            await until(lambda: harness.done == [WAITING_ENOUGH])


async def test_a_lost_segment_ends_the_calls_for_it_and_no_others() -> None:
    gate, begun = anyio.Event(), []

    async def handle(event: Event) -> None:
        begun.append((event.segment, event.number))
        await gate.wait()

    harness, other = WorkerHarness(handle), segment_at(segment=1)
    async with harness.running():
        await harness.put(["a", "b", "a"])
        await harness.put(["c"], other)
        await settled()
        harness.owned.closing = True
        harness.calls.cancel(harness.owned)
        await harness.pool.clear(harness.owned)
        assert len(harness.pool.running) == 1
        gate.set()
        await harness.pool.drain()
    assert sorted(begun) == [(0, 0), (0, 1), (1, 0)]
    assert not harness.owned.is_quiet
    assert other.is_quiet


async def test_a_cleared_cell_ends_what_runs_and_begins_nothing_more() -> None:
    gate, begun = anyio.Event(), []

    async def handle(event: Event) -> None:
        begun.append(event.number)
        await gate.wait()

    harness = WorkerHarness(handle)
    async with harness.running():
        await harness.put(["a", "b", "a", "b"])
        await settled()
        harness.owned.closing = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.pool.clear, harness.owned)
            await settled()
            gate.set()
        await harness.pool.drain()
    assert sorted(begun) == [0, 1]
    assert harness.owned.snapshot().number == 2


async def test_work_that_is_held_begins_nothing_until_the_last_reason_is_gone() -> None:
    async def handle(event: Event) -> None:
        pass

    harness = WorkerHarness(handle)
    async with harness.running():
        harness.pool.block("one")
        harness.pool.block("two")
        await harness.put(["a", None])
        harness.pool.unblock("one")
        await settled()
        assert harness.done == []
        harness.pool.unblock("two")
        await harness.pool.drain()
    assert sorted(harness.done) == [0, 1]


async def test_holding_stops_a_lane_in_the_middle_of_a_turn() -> None:
    async def handle(event: Event) -> None:
        if event.number == 1:
            harness.pool.block("now")

    harness = WorkerHarness(handle)
    async with harness.running():
        await harness.put(["a"] * 5)
        await harness.pool.wait_quiet()
        await settled()
        assert harness.done == [0, 1]
        harness.pool.unblock("now")
        await harness.pool.drain()
    assert harness.done == [0, 1, 2, 3, 4]


async def test_what_the_sink_raises_ends_the_workers() -> None:
    async def handle(event: Event) -> None:
        raise KeyError(event.number)

    harness = WorkerHarness(handle)
    harness.stop_on = (KeyError,)
    with pytest.raises(BaseExceptionGroup) as raised:
        await harness.process(["a"])
    assert raised.group_contains(KeyError)
    assert harness.failures == [(0, 1, "KeyError"), (0, 2, "KeyError")]


async def test_a_worker_begins_when_one_more_is_needed() -> None:
    gate = anyio.Event()

    async def handle(event: Event) -> None:
        if event.key != "quick":
            await gate.wait()

    harness = WorkerHarness(handle, concurrency=40)
    async with harness.running():
        await settled()
        without = len(anyio.get_running_tasks())
        await harness.put(["quick"] * 10)
        await harness.pool.drain()
        assert len(anyio.get_running_tasks()) == without + 1
        await harness.put([f"slow-{number}" for number in range(60)])
        await until(lambda: len(harness.pool.running) == 40)
        gate.set()
        await harness.pool.drain()
    assert len(harness.done) == 70
