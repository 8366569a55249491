"""Attempts, pauses and timeouts of calls, in virtual time."""

from __future__ import annotations

import logging
from itertools import pairwise

import anyio
import pytest
from hypothesis import given, strategies as st

from eventproc.processors import Context, RetryPolicy
from eventproc.processors.options import ProcessingOrder
from eventproc.processors.retry import retry_transient
from eventproc.store.model.errors import DiskFull, InvalidArgument
from eventproc.store.segments import Event
from eventproc.testing import VirtualClock
from tests.processors.worker import WorkerHarness, settled
from tests.support.virtual_time import in_virtual_time

SECONDS = RetryPolicy(attempts=5, wait_ms=1_000, wait_ms_max=4_000, jitter_ms=0)


@given(st.integers(1, 12), st.integers(0, 500), st.integers(0, 5_000), st.integers(0, 300))
def test_pauses_double_up_to_their_maximum_and_some_jitter(
    attempt: int, wait_ms: int, more_ms: int, jitter_ms: int
) -> None:
    policy = RetryPolicy(wait_ms=wait_ms, wait_ms_max=wait_ms + more_ms, jitter_ms=jitter_ms)
    least = min(wait_ms * 2 ** (attempt - 1), wait_ms + more_ms)
    assert least - 1 <= policy.pause_ms(attempt, VirtualClock()) <= least + jitter_ms + 1


@in_virtual_time
async def test_two_runs_with_the_same_seed_wait_equally() -> None:
    async def pauses(seed: int) -> list[float]:
        """Return when each attempt of a step began that fails eight times, and the pauses of a policy, in ms."""
        clock = VirtualClock(seed)
        policy = RetryPolicy(attempts=9)
        begun = anyio.current_time()
        moments: list[float] = []

        async def step() -> None:
            moments.append(round(anyio.current_time() - begun, 3))
            if len(moments) < 9:
                raise DiskFull(path="data")

        await retry_transient(step, "a step", clock, logging.getLogger("tests"))
        return moments + [policy.pause_ms(attempt, clock) for attempt in range(1, 9)]

    first, again, other = await pauses(1), await pauses(1), await pauses(2)
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "wrong",
    [
        *({"attempts": 0}, {"wait_ms": -1}, {"wait_ms": 5, "wait_ms_max": 4}, {"jitter_ms": -1}),
        *({"frees_key": 1}, {"attempts": True}),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


@in_virtual_time
async def test_a_failing_call_is_retried_after_growing_pauses_until_attempts_are_spent() -> None:
    at: list[float] = []
    attempts: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        at.append(anyio.current_time())
        attempts.append(context.attempt)
        raise ValueError("always")

    harness = WorkerHarness(handle, retry=SECONDS)
    await harness.process(["a"])
    assert [round(after - before, 3) for before, after in pairwise(at)] == [1, 2, 4, 4]
    assert attempts == [1, 2, 3, 4, 5]
    assert harness.gone == [(0, 5, "ValueError")]
    assert [attempt for _, attempt, _ in harness.failures] == [1, 2, 3, 4]


@in_virtual_time
@pytest.mark.acceptance("K13", differs="a processor; the order is that of a key")
async def test_a_retry_holds_its_key_and_no_other() -> None:
    order: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        if event.number == 0 and context.attempt < 3:
            raise ValueError("not yet")
        order.append(event.number)

    harness = WorkerHarness(handle, retry=SECONDS)
    await harness.process(["a", "b", "a", "c"])
    assert order[:2] in ([1, 3], [3, 1])
    assert order[2:] == [0, 2]


SET_ASIDE = RetryPolicy(attempts=5, wait_ms=1_000, wait_ms_max=4_000, jitter_ms=0, frees_key=True)


@pytest.mark.parametrize("is_sync", [False, True])
@pytest.mark.parametrize("order", [ProcessingOrder.KEY, ProcessingOrder.SEGMENT])
@in_virtual_time
async def test_a_retry_that_frees_its_key_lets_later_events_of_the_key_go_on(
    order: ProcessingOrder, is_sync: bool
) -> None:
    done: list[int] = []
    attempts: list[int] = []

    def handle(event: Event, context: Context) -> None:
        if event.number == 1:
            attempts.append(context.attempt)
            if context.attempt < 3:
                raise ValueError("not yet")
        done.append(event.number)

    async def handle_on_loop(event: Event, context: Context) -> None:
        handle(event, context)

    harness = WorkerHarness(
        handle if is_sync else handle_on_loop, order=order, concurrency=1, retry=SET_ASIDE
    )
    await harness.process(["a"] * 4)
    assert done == [0, 2, 3, 1]
    assert attempts == [1, 2, 3]
    assert sorted(harness.done) == [0, 1, 2, 3]


@in_virtual_time
async def test_a_failed_batch_that_frees_its_keys_is_divided_without_a_pause() -> None:
    done: list[tuple[float, int]] = []
    began = anyio.current_time()

    async def handle(events: list[Event], context: Context) -> None:
        if any(event.number == 1 for event in events) and context.attempt < 4:
            raise ValueError("not yet")
        done.extend((round(anyio.current_time() - began), event.number) for event in events)

    harness = WorkerHarness(handle, concurrency=1, batch=4, retry=SET_ASIDE)
    await harness.process(["a"] * 4)
    assert done == [(0, 0), (0, 2), (0, 3), (3, 1)], "attempt 1 was that of the batch"
    assert harness.failures == [(0, 1, "ValueError"), (1, 2, "ValueError"), (1, 3, "ValueError")]


@in_virtual_time
async def test_events_set_aside_become_dead_letters_when_their_attempts_are_spent() -> None:
    async def handle(event: Event) -> None:
        raise ValueError("always")

    harness = WorkerHarness(handle, concurrency=1, retry=SET_ASIDE)
    await harness.process(["a"] * 3)
    assert sorted(harness.gone) == [(number, 5, "ValueError") for number in range(3)]
    assert not harness.pool.queues.failing


@in_virtual_time
async def test_unlimited_attempts_end_with_success_or_a_permanent_error() -> None:
    calls: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        calls.append(event.number)
        if context.attempt < 40:
            raise ValueError("not yet")
        if event.number == 1:
            raise LookupError("gone")

    retry = RetryPolicy(attempts=None, wait_ms=1, wait_ms_max=5, jitter_ms=0, permanent=(LookupError,))
    harness = WorkerHarness(handle, retry=retry)
    await harness.process(["a", "a"])
    assert calls == [0] * 40 + [1] * 40
    assert harness.done == [0]
    assert harness.gone == [(1, 40, "LookupError")]


@in_virtual_time
async def test_a_retry_of_an_event_without_order_lets_those_it_was_taken_with_go_on() -> None:
    order: list[int] = []

    def handle(event: Event, context: Context) -> None:
        if event.number == 0 and context.attempt < 3:
            raise ValueError("not yet")
        order.append(event.number)

    harness = WorkerHarness(handle, order=ProcessingOrder.NONE, concurrency=1, retry=SECONDS)
    async with harness.running():
        await harness.put([None] * 8)
        await harness.pool.drain()
    assert order == [1, 2, 3, 4, 5, 6, 7, 0]


@pytest.mark.parametrize("order", list(ProcessingOrder))
@pytest.mark.parametrize("batch", [None, 2])
@in_virtual_time
async def test_a_call_that_overruns_is_cancelled_and_counts_as_failed(
    order: ProcessingOrder, batch: int | None
) -> None:
    ends: list[float] = []

    async def handle(subject: Event | list[Event]) -> None:
        begun = anyio.current_time()
        try:
            await anyio.sleep_forever()
        finally:
            ends.append(anyio.current_time() - begun)

    harness = WorkerHarness(handle, order=order, batch=batch, timeout_ms=500)
    await harness.process(["a"])
    assert harness.gone == [(0, 3, "HandlerTimeout")]
    assert all(0.5 <= each < 0.51 for each in ends)


@in_virtual_time
async def test_a_timeout_hits_the_call_that_overran_and_not_the_next_one() -> None:
    done: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        await anyio.sleep(0.5 if event.number == 0 else 0.2)
        done.append(event.number)

    harness = WorkerHarness(handle, timeout_ms=500, concurrency=1)
    async with harness.running():
        await harness.put(["a"] * 4)
        await harness.pool.drain()
    assert done[-3:] == [1, 2, 3]
    assert all(number == 0 for number, _, _ in harness.failures)


@in_virtual_time
async def test_an_event_whose_handler_swallows_its_cancellation_is_finished() -> None:
    async def handle(event: Event) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(2)

    harness = WorkerHarness(handle, timeout_ms=500)
    await harness.process(["a", "a"])
    assert harness.done == [0, 1]


@in_virtual_time
async def test_what_begins_later_is_timed_from_its_own_beginning() -> None:
    async def handle(event: Event) -> None:
        await anyio.sleep(0.4)

    harness = WorkerHarness(handle, timeout_ms=500, concurrency=2)
    async with harness.running():
        for key in "abcde":
            await harness.put([key])
            await anyio.sleep(0.3)
        await harness.pool.drain()
    assert sorted(harness.done) == [0, 1, 2, 3, 4]
    assert harness.failures == []


@in_virtual_time
async def test_a_lane_that_waits_for_its_retry_is_dropped_when_its_segment_is_lost() -> None:
    async def handle(event: Event) -> None:
        raise ValueError("always")

    harness = WorkerHarness(handle, retry=SECONDS)
    async with harness.running():
        await harness.put(["a"] * 3)
        await settled()
        harness.owned.closing = True
        await harness.pool.clear(harness.owned)
        await harness.pool.drain()
    assert (harness.gone, harness.done, len(harness.failures)) == ([], [], 1)
