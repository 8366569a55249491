"""Batch handlers, and plain functions on threads."""

from __future__ import annotations

import threading

import anyio
import pytest

from eventproc import App, RetryPolicy
from eventproc.processors import Context
from eventproc.processors.errors import HandlerStuck
from eventproc.processors.options import ProcessingOrder
from eventproc.store.model.limits import FINISHED_RANGES_MAX
from eventproc.store.segments import Event
from eventproc.testing import VirtualRuntime
from tests.processors.support import GROUP, OUT, STREAM, payloads, progress, write
from tests.processors.worker import WorkerHarness, segment_at, settled, until


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_batch_has_at_most_its_size_and_waits_for_no_more_without_a_linger(concurrency: int) -> None:
    sizes: list[int] = []

    async def handle(events: list[Event]) -> None:
        sizes.append(len(events))

    harness = WorkerHarness(handle, order=ProcessingOrder.NONE, batch=4, concurrency=concurrency)
    async with harness.running():
        await harness.put([None] * 10)
        await harness.pool.drain()
    assert sum(sizes) == 10
    assert max(sizes) == 4


async def test_a_batch_of_a_keyed_handler_has_events_of_several_keys_each_in_order() -> None:
    batches: list[list[int]] = []

    async def handle(events: list[Event]) -> None:
        batches.append([event.number for event in events])

    harness = WorkerHarness(handle, batch=5, concurrency=1)
    harness.pool.block("collect")
    async with harness.running():
        await harness.put(["a", "b", "a", "b", "a", "c"])
        harness.pool.unblock("collect")
        await harness.pool.drain()
    assert batches == [[0, 2, 4, 1, 3], [5]]


async def test_a_batch_that_lingers_leaves_the_rest_to_others() -> None:
    gate, begun = anyio.Event(), 0

    async def handle(events: list[Event]) -> None:
        nonlocal begun
        begun += 1
        await gate.wait()

    harness = WorkerHarness(handle, order=ProcessingOrder.NONE, batch=2, linger_ms=60_000, concurrency=2)
    async with harness.running():
        await settled()  # both wait; the worker woken for the first event is woken for the next ones too
        await harness.put([None])
        await settled()
        assert begun == 0
        await harness.put([None] * 3)
        await until(lambda: begun == 2)
        gate.set()
        await harness.pool.drain()


async def test_a_drain_lets_no_batch_linger() -> None:
    async def handle(events: list[Event]) -> None:
        pass

    harness = WorkerHarness(handle, batch=100, linger_ms=3_600_000)
    async with harness.running():
        await harness.put(["a", "b", None])
        await settled()
        assert harness.done == []
        await harness.pool.drain()
    assert sorted(harness.done) == [0, 1, 2]


async def test_a_cell_that_closed_while_a_batch_lingered_is_left_out_of_it() -> None:
    seen: list[int] = []

    async def handle(events: list[Event]) -> None:
        seen.extend(event.segment for event in events)

    harness, other = WorkerHarness(handle, batch=3, linger_ms=60_000, concurrency=1), segment_at(segment=1)
    async with harness.running():
        await harness.put(["a"])
        await harness.put(["a"], other)
        await settled()
        harness.owned.closing = True
        await harness.pool.clear(harness.owned)
        await harness.pool.drain()
    assert seen == [1]
    assert harness.owned.snapshot().number == 0


async def test_a_batch_that_fails_is_repeated_one_event_at_a_time() -> None:
    calls: list[list[int]] = []

    async def handle(events: list[Event], context: Context) -> None:
        calls.append([event.number for event in events])
        context.emit("s/out", b"%d" % context.attempt)
        if any(event.number == 1 for event in events):
            raise ValueError("poison")

    harness = WorkerHarness(handle, order=ProcessingOrder.SEGMENT, batch=4, concurrency=1)
    async with harness.running():
        await harness.put(["a"] * 4)
        await harness.pool.drain()
    assert calls == [[0, 1, 2, 3], [0], [1], [1], [2], [3]]
    assert harness.gone == [(1, 3, "ValueError")], "the batch counts as its first attempt"
    assert [each.payload for each in harness.emitted] == [b"2", b"2", b"2"]


async def test_a_plain_function_runs_on_a_thread_and_its_events_keep_their_order() -> None:
    threads: set[str] = set()
    seen: list[int] = []

    def handle(event: Event, context: Context) -> None:
        threads.add(threading.current_thread().name)
        seen.append(event.number)
        context.emit("s/out", event.payload)
        if event.number == 3 and context.attempt < 3:
            raise ValueError("not yet")

    harness = WorkerHarness(handle)
    async with harness.running():
        await harness.put(["a"] * 6)
        await harness.pool.drain()
    assert threading.current_thread().name not in threads
    assert seen == [0, 1, 2, 3, 3, 3, 4, 5]
    assert harness.failures == [(3, 1, "ValueError"), (3, 2, "ValueError")]
    assert [each.payload for each in harness.emitted] == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_a_plain_batch_function_runs_on_a_thread() -> None:
    seen: list[int] = []

    def handle(events: list[Event]) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.extend(event.number for event in events)

    harness = WorkerHarness(handle, order=ProcessingOrder.NONE, batch=3, concurrency=1)
    async with harness.running():
        await harness.put([None] * 7)
        await harness.pool.drain()
    assert sorted(seen) == list(range(7))


async def test_threads_run_side_by_side() -> None:
    meeting = threading.Barrier(3)

    def handle(event: Event) -> None:
        meeting.wait(timeout=30)

    harness = WorkerHarness(handle)
    await harness.process(["a", "b", "c"])


async def test_a_call_on_a_thread_that_overruns_stops_the_processor_and_says_where() -> None:
    gate = threading.Event()

    def handle(event: Event) -> None:
        gate.wait(timeout=30)

    harness = WorkerHarness(handle, timeout_ms=10)
    try:
        with pytest.raises(BaseExceptionGroup) as raised:
            await harness.process(["a"])
    finally:
        gate.set()
    assert raised.group_contains(HandlerStuck, match="s/t segment 0.0 event 0")


async def test_losing_a_segment_during_a_thread_call_begins_no_second_call_of_its_key() -> None:
    gate, running = threading.Event(), 0

    def handle(event: Event) -> None:
        nonlocal running
        running += 1
        assert running == 1
        if event.segment == 0:
            gate.wait(timeout=30)
        running -= 1

    harness, other = WorkerHarness(handle), segment_at(segment=1)
    async with harness.running():
        await harness.put(["a", "a"])
        await harness.put(["a"], other)
        await until(lambda: running == 1)
        harness.owned.closing = True
        harness.calls.cancel(harness.owned)
        await settled()
        assert running == 1
        gate.set()
        await harness.pool.drain()
    assert harness.done == [0, 0]
    assert other.is_quiet


async def test_what_a_batch_left_is_durable_with_the_first_of_its_events_that_is(
    eventproc_runtime: VirtualRuntime,
) -> None:
    """So many events are stuck that the progress has no room for the first event of a batch, but for the second one."""
    stuck, good = iter(range(1_000)), iter(range(1_000))
    keys = ["gate", "gate too", "x", "y", "filler", "x", "y", "filler too"]

    def add_ranges(count: int) -> None:
        for _ in range(count):
            keys.extend(f"stuck {next(stuck)}" for _ in range(2))
            keys.extend(f"good {next(good)}" for _ in range(2))

    add_ranges(FINISHED_RANGES_MAX - 6)
    second = len(keys)
    keys.append("y")
    add_ranges(12)
    first = len(keys)
    keys.append("x")
    gate, batches, app = anyio.Event(), list[list[int]](), App()
    later = RetryPolicy(wait_ms=600_000, wait_ms_max=600_000)

    @app.processor(STREAM, group=GROUP, batch=2, concurrency=1, retry=later)
    async def handle(events: list[Event], context: Context) -> None:
        if events[0].key == "gate":
            await gate.wait()
        if any(str(event.key).startswith("stuck") for event in events):
            raise ValueError("not now")
        batches.append([event.number for event in events])
        if first in batches[-1]:
            context.emit(OUT, b"1")

    async with eventproc_runtime.running(streams=[STREAM, OUT]) as t:
        await write(t.ep, keys)
        async with t.ep.run(app):
            await anyio.sleep(1)
            gate.set()
            await anyio.sleep(10)
            assert batches[-1] == [first, second]
            (durable,) = await progress(t.ep)
            assert durable.is_finished(second)
            assert not durable.is_finished(first)
            assert await payloads(t.ep) == [1]


async def test_a_batch_of_a_round_has_events_of_one_segment_with_which_it_is_kept_or_lost(
    eventproc_runtime: VirtualRuntime,
) -> None:
    batches, app = list[list[Event]](), App()

    @app.processor(STREAM, group=GROUP, batch=10, concurrency=1, exactly_once=True)
    async def handle(events: list[Event], context: Context) -> None:
        batches.append(events)
        context.emit(OUT, str(len(events)).encode())

    async with eventproc_runtime.running(streams=[STREAM, OUT]) as t:
        await (await t.ep.stream(STREAM)).split("0.0", 4)
        await write(t.ep, [f"key {number}" for number in range(40)])
        async with t.ep.run(app):
            await anyio.sleep(10)
        assert sum(await payloads(t.ep)) == 40
    assert {len({event.segment for event in batch}) for batch in batches} == {1}
    assert max(map(len, batches)) > 1
