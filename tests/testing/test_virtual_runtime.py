"""Apps in memory and in virtual time, on both event loops: retries, timers and leases pass without waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
import pytest

import eventproc
from eventproc.errors import InvalidArgument, ProcessorFailed
from eventproc.testing import RunningApp, VirtualRuntime

ONCE = eventproc.RetryPolicy(attempts=1)


@pytest.fixture(params=["asyncio", "trio"])
def runtime(request: pytest.FixtureRequest) -> VirtualRuntime:
    return VirtualRuntime(backend=request.param)


def shop(
    retry: eventproc.RetryPolicy = ONCE, on_failure: Literal["dead_letter", "stop"] = "dead_letter"
) -> tuple[eventproc.App, list[tuple[str | None, bytes, int]]]:
    """Return an app whose handler fails for payloads that begin with a digit, as often as the digit says."""
    app, calls = eventproc.App(), list[tuple[str | None, bytes, int]]()

    @app.processor("shop/orders", group="mailer", retry=retry, on_failure=on_failure)
    async def mail(event: eventproc.Event, context: eventproc.Context) -> None:
        calls.append((event.key, event.payload, context.attempt))
        if event.payload[:1].isdigit() and context.attempt <= int(event.payload[:1]):
            raise ConnectionError("not yet")

    return app, calls


def in_app(
    runtime: VirtualRuntime, app: eventproc.App, test: Callable[[RunningApp], Awaitable[None]]
) -> float:
    """Run a test in an app, and return how many virtual seconds passed."""

    async def run() -> float:
        began = anyio.current_time()
        async with runtime.running(app) as t:
            await test(t)
        return anyio.current_time() - began

    return runtime.run(run)


def test_events_of_a_processor_that_runs_no_more_end_the_wait_with_an_error(runtime: VirtualRuntime) -> None:
    app, other = shop()[0], eventproc.App()

    @other.processor("shop/parcels")
    async def send(_: eventproc.Event) -> None: ...

    async def test(t: RunningApp) -> None:
        await t.write("shop/parcels", b"1 parcel")
        async with t.ep.run(other):
            await t.settled()
        await t.write("shop/parcels", b"2 parcels")
        with pytest.raises(TimeoutError, match="work is left after 60000 ms"):
            await t.settled(timeout_ms=60_000)

    assert in_app(runtime, app, test) < 70


def test_long_retries_pass_in_virtual_time(runtime: VirtualRuntime) -> None:
    wait_ms = 600_000
    app, calls = shop(retry=eventproc.RetryPolicy(attempts=4, wait_ms=wait_ms, wait_ms_max=wait_ms))

    async def test(t: RunningApp) -> None:
        await t.write("shop/orders", b"3 failures", key="ana")
        await t.settled()
        assert await t.lag("shop/mailer") == 0
        assert await t.dead_letters("shop/mailer") == []

    assert in_app(runtime, app, test) >= 3 * 600
    assert [attempt for _, _, attempt in calls] == [1, 2, 3, 4]


def test_a_batch_that_lingers_for_a_minute_is_handled(runtime: VirtualRuntime) -> None:
    app, batches = eventproc.App(), list[int]()

    @app.processor("shop/orders", batch=10, linger_ms=60_000)
    async def count(events: list[eventproc.Event]) -> None:
        batches.append(len(events))

    async def test(t: RunningApp) -> None:
        for number in range(13):
            await t.write("shop/orders", b"%d" % number, key=f"k{number}")
        await t.settled()

    in_app(runtime, app, test)
    assert sum(batches) == 13


def test_emitted_events_are_handled_by_the_next_processor(runtime: VirtualRuntime) -> None:
    app = eventproc.App()

    @app.processor("shop/loud", group="last")
    async def last(event: eventproc.Event, context: eventproc.Context) -> None:
        context.emit("shop/done", event.payload + b"!", key=event.key)

    @app.processor("shop/orders", group="first")
    async def first(event: eventproc.Event, context: eventproc.Context) -> None:
        context.emit("shop/loud", event.payload.upper(), key=event.key)

    async def run() -> list[tuple[str | None, bytes]]:
        async with runtime.running(app, streams=["shop/done"]) as t:
            await t.write("shop/orders", b"apple", key="ana")
            await t.settled()
            return [(event.key, event.payload) for event in await t.events("shop/done")]

    assert runtime.run(run) == [("ana", b"APPLE!")]


def test_an_abandoned_transaction_expires_before_all_is_settled(runtime: VirtualRuntime) -> None:
    app, calls = shop()

    async def test(t: RunningApp) -> None:
        orders = await t.ep.stream("shop/orders")
        txn = await orders.begin(lease_ms=600_000)
        await txn.write(b"apple", key="ana")
        await txn.flush()
        await t.settled()
        (ended,) = await orders.transactions(finished=True)
        assert ended.state.name == "ABORTED"

    assert in_app(runtime, app, test) >= 600
    assert calls == []


def test_time_does_not_jump_while_a_handler_works_on_a_thread_for_a_moment(runtime: VirtualRuntime) -> None:
    app, seen = eventproc.App(), list[str | None]()

    @app.processor("shop/orders", concurrency=1)
    def handle(event: eventproc.Event) -> None:
        threading.Event().wait(0.002)
        seen.append(event.key)

    async def test(t: RunningApp) -> None:
        for key in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN":
            await t.write("shop/orders", b"apple", key=key)
        await t.settled()

    assert in_app(runtime, app, test) < 10, "it may jump a few times: a busy machine needs longer"
    assert "".join(map(str, seen)) == "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"


def test_values_are_written_and_read_with_their_type(runtime: VirtualRuntime) -> None:
    app, _ = shop()

    async def test(t: RunningApp) -> None:
        await t.write("shop/notes", "hello", key="ana")
        assert [event.payload for event in await t.events("shop/notes", payload=str)] == ["hello"]
        assert await t.events("shop/nothing") == []

    in_app(runtime, app, test)


def test_settled_raises_what_stopped_a_processor(runtime: VirtualRuntime) -> None:
    app, _ = shop(on_failure="stop")

    async def run() -> None:
        async with runtime.running(app) as t:
            await t.write("shop/orders", b"1 failure")
            await t.settled()

    with pytest.RaisesGroup(ProcessorFailed, allow_unwrapped=True, flatten_subgroups=True):
        runtime.run(run)


def test_settled_gives_up_after_virtual_time(runtime: VirtualRuntime) -> None:
    app, _ = shop(retry=eventproc.RetryPolicy(attempts=9, wait_ms=3_600_000, wait_ms_max=3_600_000))

    async def test(t: RunningApp) -> None:
        await t.write("shop/orders", b"9 failures")
        with pytest.raises(TimeoutError):
            await t.settled(timeout_ms=60_000)
        assert await t.lag() == 1

    in_app(runtime, app, test)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_same_seed_gives_the_same_pauses_and_another_seed_others(backend: str) -> None:
    def pauses(seed: int) -> float:
        app, _ = shop(retry=eventproc.RetryPolicy(attempts=4, wait_ms=1, jitter_ms=60_000))

        async def test(t: RunningApp) -> None:
            await t.write("shop/orders", b"3 failures")
            await t.settled()

        return in_app(VirtualRuntime(seed=seed, backend=backend), app, test)  # type: ignore[arg-type]

    assert pauses(1) == pauses(1) != pauses(2)


def test_an_unknown_event_loop_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="asyncio"):
        VirtualRuntime(backend="twisted")  # type: ignore[arg-type]


def test_virtual_time_takes_no_real_time(runtime: VirtualRuntime) -> None:
    async def sleep_for_a_year() -> float:
        await anyio.sleep(365 * 86_400)
        return anyio.current_time()

    began = time.process_time()
    assert runtime.run(sleep_for_a_year) >= 365 * 86_400
    assert time.process_time() - began < 5
