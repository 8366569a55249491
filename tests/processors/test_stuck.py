"""A handler that blocks, and a slow one: what continues, what is reported, what is held; and pausing."""

from __future__ import annotations

import anyio
import pytest

import eventproc
from eventproc.groups.owned_segment import WAITING_BYTES_MAX
from eventproc.processors import App, Context
from eventproc.processors.engine.engine import Engine
from eventproc.processors.engine.fetch import FETCHED_BYTES_MAX
from eventproc.processors.observe.status import ProcessorState
from eventproc.processors.run import BLOCKED_MS
from eventproc.runtime import Eventproc
from eventproc.store.model.limits import FINISHED_RANGES_MAX, FRAME_BYTES
from eventproc.store.segments import READ_BYTES_MAX, Event
from eventproc.testing import VirtualClock
from tests.processors.support import (
    GROUP,
    STREAM,
    finished,
    group,
    lag,
    progress,
    system,
    until_next,
    write,
)
from tests.processors.worker import until
from tests.support.virtual_time import in_virtual_time

NO_GRACE = 0


def app_of(handler: object, **choices: object) -> App:
    app = App()
    app.add(handler, STREAM, group=GROUP, **choices)  # type: ignore[call-overload]
    return app


async def made_durable(ep: Eventproc, events: int) -> None:
    """Return when no more than so many events are not durably finished."""
    while await lag(ep) > events:
        await until_next()


@pytest.mark.acceptance(
    "D1", differs="what is finished beyond the stuck event is durable too, as ranges, and never handled again"
)
async def test_progress_stops_at_a_stuck_event_and_then_jumps() -> None:
    gate = anyio.Event()

    async def handle(event: Event) -> None:
        if event.payload == b"2":
            await gate.wait()

    size = FRAME_BYTES + 1
    async with system() as ep:
        await write(ep, "abcde")
        async with ep.run(app_of(handle)) as running:
            await made_durable(ep, 1)
            (stuck,) = await progress(ep)
            assert (stuck.number, stuck.offset, stuck.finished) == (2, 2 * size, ((3, 5, 5 * size),))
            gate.set()
            await running.wait_idle()
        (done,) = await progress(ep)
        assert (done.number, done.offset, done.finished) == (5, 5 * size, ())


@pytest.mark.parametrize("stuck_in", ["call", "retry"])
@in_virtual_time
async def test_a_blocked_key_is_reported_and_others_continue_until_ranges_are_full(stuck_in: str) -> None:
    handled: list[int] = []
    begun = 0

    async def handle(event: Event) -> None:
        nonlocal begun
        if event.key == "stuck":
            begun += 1
            if stuck_in == "call":
                await anyio.sleep_forever()
            raise OSError("never")
        handled.append(event.number)

    events = 6 * FINISHED_RANGES_MAX
    clock = VirtualClock()
    retry = eventproc.RetryPolicy(attempts=10**9, wait_ms=1_000, wait_ms_max=1_000, jitter_ms=0)
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        begun_ms = clock.wall_ms()
        app = app_of(handle, retry=retry)
        async with ep.run(app, grace_ms=NO_GRACE) as running:
            for _ in range(8):
                await write(ep, ["stuck" if n % 3 == 0 else f"k{n % 7}" for n in range(events // 8)])
                await anyio.sleep(5)
            (status,) = await running.status()
            blocker = status.blocker
            assert blocker is not None
            assert (blocker.stream, blocker.segment, blocker.number, blocker.key) == (
                STREAM,
                "0.0",
                0,
                "stuck",
            )
            assert begun_ms <= blocker.since_ms <= begun_ms + BLOCKED_MS
            assert blocker.error == (None if stuck_in == "call" else "OSError: never")
            assert blocker.attempt == (1 if stuck_in == "call" else begun + 1)
            (durable,) = await progress(ep)
            assert durable.number == 0
            assert len(durable.finished) == FINISHED_RANGES_MAX
            assert len(handled) >= 2 * FINISHED_RANGES_MAX
            (member,) = (await ep.processor(GROUP)).members
            assert member.status is not None
            assert member.status.blocker is not None
            assert (member.status.blocker.key, member.status.blocker.number) == ("stuck", 0)


@in_virtual_time
async def test_many_events_set_aside_stay_bounded_and_are_retried_until_they_succeed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every second event fails until it is mended: each is a gap in the progress of its segment."""
    is_mended = False
    handled: list[int] = []

    async def handle(event: Event) -> None:
        if event.number % 2 and not is_mended:
            raise OSError("away")
        handled.append(event.number)

    events = 6 * FINISHED_RANGES_MAX
    retry = eventproc.RetryPolicy(
        attempts=None, wait_ms=1_000, wait_ms_max=1_000, jitter_ms=0, frees_key=True
    )
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        async with ep.run(app_of(handle, retry=retry), grace_ms=NO_GRACE) as running:
            for _ in range(events // 32):
                await write(ep, ["one key"] * 32)
                await anyio.sleep(0.1)
            await anyio.sleep(5)
            (status,) = await running.status()
            assert FINISHED_RANGES_MAX <= status.retrying == status.waiting < events // 2, (
                "it stopped reading"
            )
            assert handled == list(range(0, 2 * len(handled), 2)), "the others of the key went on, in order"
            assert status.blocker is not None
            assert status.blocker.error == "OSError: away"
            (durable,) = await progress(ep)
            assert (durable.number, len(durable.finished)) == (1, FINISHED_RANGES_MAX)
            (member,) = (await ep.processor(GROUP)).members
            assert member.status is not None
            assert member.status.retrying == status.retrying
            is_mended = True
            await running.wait_idle()
        assert sorted(handled) == list(range(events))
        (durable,) = await progress(ep)
        assert (durable.number, durable.finished) == (events, ())
    assert (
        "attempt 2 of unlimited failed for s/t segment 0.0 event 1 (key 'one key'): OSError: away"
        in caplog.text
    )


async def test_a_stuck_segment_does_not_hold_up_the_others() -> None:
    gate, seen = anyio.Event(), []

    async def handle(event: Event) -> None:
        if event.payload == b"0":
            await gate.wait()
        seen.append(event.payload)

    async with system() as ep:
        stream = await ep.stream(STREAM)
        await write(ep, "a")
        async with ep.run(app_of(handle, order="segment", concurrency=4)) as running:
            await stream.split(0, 2)
            await ep.create_stream("s/u")
            await until(lambda: running.in_flight == 1)
            assert await lag(ep) == 1
            await write(ep, [f"k{n}" for n in range(1, 9)])
            assert seen == [], "what follows a split waits for what was before it"
            gate.set()
            await finished(running, 9)
        assert await lag(ep) == 0
    assert sorted(seen)[1:] == [b"%d" % n for n in range(8)]


@pytest.mark.parametrize(
    "anyio_backend", ["asyncio"]
)  # 40 MB: what is held does not depend on the event loop
@pytest.mark.parametrize("order", ["key", None, "segment"])
async def test_a_slow_handler_and_many_events_hold_no_more_than_the_limits_say(
    order: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload, count = bytes(1_000), 40_000
    most = {"events": 0, "bytes": 0, "owned": 0}
    slow = 0

    def look(engine: Engine) -> None:
        segments = list(engine.segments)
        most["events"] = max(most["events"], engine.pool.queues.unfinished)
        most["bytes"] = max(most["bytes"], sum(owned.waiting_bytes for owned in segments))
        most["owned"] = max(most["owned"], *(owned.waiting_bytes for owned in segments), 0)

    async def handle(event: Event) -> None:
        nonlocal slow
        slow += 1
        if slow % 50 == 0:
            look(engines[0])
            await anyio.lowlevel.checkpoint()

    engines: list[Engine] = []
    run = Engine.run

    async def watched(self: Engine) -> None:
        engines.extend([self] if self.options.group == GROUP else [])
        await run(self)

    monkeypatch.setattr(Engine, "run", watched)
    async with system() as ep:
        stream = await ep.stream(STREAM)
        async with stream.writer() as writer:
            await writer.write_many((payload, f"k{n % 97}") for n in range(count))
        async with ep.run(app_of(handle, order=order, concurrency=8)) as running:
            await finished(running, count)
        assert await lag(ep) == 0
    size = len(payload) + FRAME_BYTES
    assert 0 < most["events"] * size <= WAITING_BYTES_MAX + READ_BYTES_MAX
    assert 0 < most["owned"] <= WAITING_BYTES_MAX + READ_BYTES_MAX
    assert 0 < most["bytes"] <= FETCHED_BYTES_MAX + READ_BYTES_MAX
    assert count * size > 2 * (WAITING_BYTES_MAX + READ_BYTES_MAX), "there is much more than may be held"


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_paused_processor_begins_nothing_until_it_is_resumed(exactly_once: bool) -> None:
    gate, seen = anyio.Event(), []

    async def handle(event: Event) -> None:
        seen.append(int(event.payload))
        if len(seen) == 1:
            await gate.wait()

    async with system() as ep:
        await write(ep, "a" * 10)
        app = app_of(handle, **({"exactly_once": True, "round_events": 4} if exactly_once else {}))
        async with ep.run(app) as running:
            await until(lambda: len(seen) == 1)
            await running.pause("handle")
            while (await running.status())[0].state is not ProcessorState.PAUSED:
                await until_next()
            gate.set()
            await until(lambda: not running.in_flight)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            assert len(seen) == (4 if exactly_once else 1)
            await running.resume("handle")
            await running.wait_idle()
        assert seen == list(range(10))


async def test_a_pause_outlives_the_app() -> None:
    async def handle(event: Event) -> None:
        raise AssertionError("it is paused")

    async with system() as ep:
        async with ep.run(app_of(handle)) as running:
            await running.pause("handle")
        await write(ep, "abc")
        async with ep.run(app_of(handle)) as running:
            while not (await running.status())[0].segments:
                await until_next()
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            (status,) = await running.status()
            assert (status.state, status.finished) == (ProcessorState.PAUSED, 0)
        assert await lag(ep) == 3


async def test_the_status_says_what_is_under_way() -> None:
    gate = anyio.Event()

    async def handle(event: Event, context: Context) -> None:
        context.emit("s/out", event.payload)
        if event.key == "b":
            await gate.wait()

    async with system() as ep:
        await write(ep, "aab")
        async with ep.run(app_of(handle)) as running:
            await made_durable(ep, 1)
            (status,) = await running.status()
            assert (status.name, status.group, status.order) == ("handle", GROUP, "key")
            assert (status.lag_events, status.in_flight, status.waiting) == (1, 1, 1)
            assert (status.finished, status.emitted, status.segments) == (2, 2, 1)
            assert status.lag_bytes == FRAME_BYTES + 1
            assert status.lag_ms is not None
            assert status.last_commit_ms is not None
            assert status.state is ProcessorState.RUNNING
            gate.set()
        (status,) = await running.status()
        assert (status.state, status.in_flight, status.lag_events) == (ProcessorState.STOPPED, 0, 0)
        assert [each.owner for each in (await group(ep)).segments] == [None]
