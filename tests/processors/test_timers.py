"""Timers by event time: called once for a key, when event time has come so far, with what the call leaves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import attrs
import pytest

import eventproc
from eventproc import App, Context, Event, Eventproc, KeyState, NewEvent, ProcessorFailed, RetryPolicy
from eventproc.errors import CallEnded, InvalidArgument
from eventproc.testing import VirtualRuntime
from eventproc.windows import Timer
from tests.processors.support import GROUP, OUT, STREAM, events, system
from tests.support.apps import run_until_idle

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)


@attrs.define
class HeardCount:
    count: int = 0


async def hear(event: Event, heard: HeardCount, context: Context) -> None:
    """Let the key be called 10 ms after its last event."""
    heard.count += 1
    assert event.event_time is not None
    context.call_at(event.event_time + 10)


async def report(timer: Timer, heard: HeardCount, context: Context) -> None:
    context.emit(OUT, b"%d" % heard.count, key=timer.key, event_time=timer.time)
    heard.count = 0


def app_of(handler: Any = hear, on_timer: Any = report, **choices: Any) -> App:
    app = App()
    choices = {"retry": AT_ONCE, "state": HeardCount, "group": GROUP, **choices}
    app.add(handler, STREAM, on_timer=on_timer, **choices)
    return app


async def write(ep: Eventproc, *times: tuple[str, int | None]) -> None:
    async with (await ep.stream(STREAM)).writer() as writer:
        await writer.write_many(NewEvent(b"", key=key, event_time=time) for key, time in times)


async def called(ep: Eventproc) -> list[tuple[str | None, int | None, int]]:
    return [(each.key, each.event_time, int(each.payload)) for each in await events(ep)]


@pytest.mark.parametrize("choices", [{}, {"order": "segment"}, {"exactly_once": True}])
async def test_a_key_is_called_once_event_time_has_come_so_far(choices: dict[str, Any]) -> None:
    async with system() as ep:
        await write(ep, ("a", 0), ("a", 5), ("b", 14))
        await run_until_idle(ep, app_of(**choices))
        assert await called(ep) == []
        await write(ep, ("b", 15))
        await run_until_idle(ep, app_of(**choices))
        assert await called(ep) == [("a", 15, 2)]
        await write(ep, ("c", 100))
        await run_until_idle(ep, app_of(**choices))
        assert await called(ep) == [("a", 15, 2), ("b", 25, 2)]
        states = {each.key: each for each in await ep.state(GROUP, HeardCount).list()}
        assert (states["a"].value, states["a"].timer_ms) == (HeardCount(0), None)
        assert states["c"].timer_ms == 110


async def test_a_later_timer_takes_the_place_of_one_that_is_set() -> None:
    async with system() as ep:
        await write(ep, ("a", 0))
        await run_until_idle(ep, app_of())
        await write(ep, ("a", 9), ("b", 12))
        await run_until_idle(ep, app_of())
        assert await called(ep) == []
        assert (await ep.state(GROUP, HeardCount).list())[0].timer_ms == 19


async def test_a_timer_may_be_called_off_and_goes_with_the_state() -> None:
    async def handle(event: Event, heard: HeardCount, context: Context) -> None:
        if event.payload == b"off":
            context.call_at(None)
        elif event.payload == b"forget":
            context.forget_state()
        else:
            context.call_at(datetime.fromtimestamp(1, UTC))

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            for key, payload in [("a", b""), ("b", b""), ("c", b""), ("a", b"off"), ("b", b"forget")]:
                await writer.write(payload, key=key, event_time=0)
        await run_until_idle(ep, app_of(handle))
        assert {each.key: each.timer_ms for each in await ep.state(GROUP, HeardCount).list()} == {
            "a": None,
            "c": 1_000,
        }
        await write(ep, ("d", 1_000))
        await run_until_idle(ep, app_of(handle))
        assert await called(ep) == [("c", 1_000, 0), ("d", 1_000, 0)]


async def test_a_call_of_a_timer_may_set_the_next_one() -> None:
    async def again(timer: Timer, heard: HeardCount, context: Context) -> HeardCount:
        context.emit(OUT, b"1", key=timer.key, event_time=timer.time)
        context.call_at(timer.time + 10)
        assert context.watermark == timer.watermark
        return HeardCount(heard.count + 1)

    async with system() as ep:
        await write(ep, ("a", 0), ("b", 39))
        await run_until_idle(ep, app_of(on_timer=again))
        assert [time for key, time, _ in await called(ep) if key == "a"] == [10, 20, 30]
        assert await ep.state(GROUP, HeardCount).get("a") == HeardCount(4)


async def test_plain_functions_have_timers_on_threads() -> None:
    def handle(event: Event, heard: HeardCount, context: Context) -> None:
        heard.count += 1
        context.call_at(event.event_time + 10 if event.event_time is not None else None)

    def call(timer: Timer, heard: HeardCount, context: Context) -> None:
        context.emit(OUT, b"%d" % heard.count, key=timer.key, event_time=timer.time)

    async with system() as ep:
        await write(ep, ("a", 0), ("b", 20))
        await run_until_idle(ep, app_of(handle, call))
        assert await called(ep) == [("a", 10, 1)]


async def test_an_event_without_a_time_counts_with_its_timestamp() -> None:
    seen: list[int | None] = []

    async def handle(event: Event, heard: HeardCount, context: Context) -> None:
        seen.append(context.watermark)

    async with system() as ep:
        await write(ep, ("a", None))
        app = app_of(handle)
        async with ep.run(app) as running:
            await running.wait_idle()
            await write(ep, ("a", None))
            await running.wait_idle()
        (first, _) = await events(ep, STREAM)
        assert seen == [None, first.timestamp]


async def test_a_segment_with_unfinished_events_holds_event_time() -> None:
    """The event that waits has a lower time than the timer, and another segment is far ahead."""
    go_on = anyio.Event()

    async def handle(event: Event, heard: HeardCount, context: Context) -> None:
        if event.payload == b"slow":
            await go_on.wait()
        else:
            await hear(event, heard, context)

    async with system() as ep, ep.run(app_of(handle, idle_ms=0)) as running:
        async with (await ep.stream(STREAM)).writer() as writer:
            first = await writer.write(b"slow", key="a", event_time=0)
            second = await writer.write(b"", key="b", event_time=5)
            await writer.write(b"", key="c", event_time=1_000)
        await running.wait_for(second)
        assert (await ep.state(GROUP).describe()).watermark_ms is None
        go_on.set()
        await running.wait_for(first)
        await running.wait_idle()
        assert [key for key, _, _ in await called(ep)] == ["b"]


async def test_event_time_comes_as_far_as_the_first_unfinished_event_of_those_read_together(
    eventproc_runtime: VirtualRuntime,
) -> None:
    """The next owner reads on behind it, and never sees the times of the events before it."""

    async def wait_for_ever(event: Event, heard: HeardCount, context: Context) -> None:
        if event.key == "c":
            await anyio.sleep_forever()
        await hear(event, heard, context)

    async with eventproc_runtime.running(streams=[STREAM, OUT]) as t:
        await write(t.ep, ("a", 0), ("b", 100), ("c", 95))
        async with t.ep.run(app_of(wait_for_ever), grace_ms=0):
            await anyio.sleep(5)
            assert (await t.ep.state(GROUP).describe()).watermark_ms == 100
            assert await called(t.ep) == [("a", 10, 1)]
        await run_until_idle(t.ep, app_of())
        assert (await t.ep.state(GROUP).describe()).watermark_ms == 100


@pytest.mark.parametrize("back_ms", [0, 24 * 3_600_000])
async def test_a_silent_segment_is_left_out_after_a_while(
    back_ms: int, eventproc_runtime: VirtualRuntime
) -> None:
    """Also if the wall clock is set back meanwhile."""
    async with eventproc_runtime.running(streams=[OUT]) as running:
        ep = running.ep
        stream = await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(2))
        async with stream.writer() as writer:
            segment_of = {key: (await writer.write(b"", key=key, event_time=0)).segment for key in "abcdefgh"}
        low = "a"
        high = next(key for key, segment in segment_of.items() if segment != segment_of[low])
        async with ep.run(app_of(idle_ms=30_000)) as app:
            await write(ep, (high, 500))
            await app.wait_idle()
            running.clock.step_wall(-back_ms)
            await anyio.sleep(25)
            assert (await ep.state(GROUP).describe()).watermark_ms == 0
            await anyio.sleep(6)
            await app.wait_idle()
            assert (await ep.state(GROUP).describe()).watermark_ms == 500
            assert {key for key, _, _ in await called(ep)} == set(segment_of) - {high}
            await write(ep, (low, 20), (high, 600))
            await app.wait_idle()
            assert (await ep.state(GROUP).describe()).watermark_ms == 500, "it never falls"


async def test_a_timer_that_fails_for_ever_stops_the_processor_or_is_skipped() -> None:
    async def fail(timer: Timer, heard: HeardCount, context: Context) -> None:
        raise ValueError("no")

    async with system() as ep:
        await write(ep, ("a", 0), ("b", 10))
        with pytest.raises(ProcessorFailed, match="timer of key 'a' failed 3 times: ValueError: no"):
            await run_until_idle(ep, app_of(on_timer=fail))
        assert (await ep.state(GROUP, HeardCount).list())[0].timer_ms == 10
        await run_until_idle(ep, app_of(on_timer=fail, on_failure="skip"))
        assert [each.timer_ms for each in await ep.state(GROUP, HeardCount).list()] == [None, 20]
        assert await ep.state(GROUP, HeardCount).get("a") == HeardCount(1)


async def test_a_timer_whose_state_left_the_cache_during_its_last_call_is_skipped() -> None:
    began, go_on = anyio.Event(), anyio.Event()

    async def fail(timer: Timer, heard: HeardCount, context: Context) -> None:
        began.set()
        await go_on.wait()
        raise ValueError("no")

    state = KeyState(HeardCount, cache_bytes=1)
    app = app_of(on_timer=fail, state=state, on_failure="skip", retry=RetryPolicy(attempts=1))
    async with system() as ep, ep.run(app) as running:
        await write(ep, ("a", 0), ("b", 10))
        await began.wait()
        for key in ("c", "d"):
            async with (await ep.stream(STREAM)).writer() as writer:
                await running.wait_for(await writer.write(b"", key=key, event_time=10))
        go_on.set()
        await running.wait_idle()
        assert [each.timer_ms for each in await ep.state(GROUP).list()] == [None, 20, 20, 20]


async def test_timers_that_were_due_before_a_reset_are_left_to_process() -> None:
    """The segments have no event time any more, but what the watermark has reached stays due."""
    go_on = anyio.Event()

    async def fail(timer: Timer, heard: HeardCount, context: Context) -> None:
        raise ValueError("no")

    async def wait(timer: Timer, heard: HeardCount, context: Context) -> None:
        await go_on.wait()
        await report(timer, heard, context)

    async with system() as ep:
        await write(ep, ("a", 0), ("b", 10))
        with pytest.raises(ProcessorFailed):
            await run_until_idle(ep, app_of(on_timer=fail))
        await write(ep, ("c", 1_000))
        await (await ep.group(GROUP)).reset("tail")
        async with ep.run(app_of(on_timer=wait)) as running:
            with pytest.raises(TimeoutError):
                await running.wait_idle(timeout_ms=100)
            go_on.set()
            await running.wait_idle()
        assert await called(ep) == [("a", 10, 1)]


async def test_a_failed_call_of_a_timer_leaves_nothing() -> None:
    async def fail_once(timer: Timer, heard: HeardCount, context: Context) -> None:
        context.emit(OUT, b"%d" % heard.count, key=timer.key)
        heard.count += 100
        if context.attempt == 1:
            raise ValueError("once")

    async with system() as ep:
        await write(ep, ("a", 0), ("b", 10))
        await run_until_idle(ep, app_of(on_timer=fail_once))
        assert [int(each.payload) for each in await events(ep)] == [1]
        assert await ep.state(GROUP, HeardCount).get("a") == HeardCount(101)


async def test_timers_are_exported_and_restored_with_their_states() -> None:
    async with system() as ep:
        await write(ep, ("a", 0))
        await run_until_idle(ep, app_of())
        states = ep.state(GROUP, HeardCount)
        kept = await states.list()
        assert await states.drop() == 1
        await states.restore(kept)
        assert await states.list() == kept
        await write(ep, ("b", 10))
        await run_until_idle(ep, app_of())
        assert await called(ep) == [("a", 10, 1)]


async def test_event_time_begins_anew_when_the_state_is_dropped() -> None:
    async with system() as ep:
        await write(ep, ("a", 0), ("b", 1_000))
        await run_until_idle(ep, app_of())
        await ep.state(GROUP).drop()
        await (await ep.group(GROUP)).reset("head")
        assert [each.timer_ms for each in await _run_again(ep)] == [None, 1_010]
        assert await called(ep) == [("a", 10, 1)] * 2


async def _run_again(ep: Eventproc) -> list[Any]:
    await run_until_idle(ep, app_of())
    return [*await ep.state(GROUP, HeardCount).list()]


@pytest.mark.parametrize(
    ("choices", "what"),
    [
        ({"state": None}, "on_timer"),
        ({"on_timer": 5}, "on_timer"),
        ({"on_timer": lambda timer, heard: None}, "on_timer"),
        ({"on_timer": lambda timer, heard, context: None}, "on_timer"),
        ({"idle_ms": -1}, "idle_ms"),
        ({"idle_ms": "60"}, "idle_ms"),
    ],
)
def test_timers_that_cannot_be_called_are_refused(choices: dict[str, Any], what: str) -> None:
    async def handle(event: Event) -> None: ...

    with pytest.raises(InvalidArgument) as refused:
        app_of(**{"handler": handle if choices.get("state", 1) is None else hear, **choices})
    assert refused.value.what == what


async def test_a_time_that_cannot_be_is_refused_and_so_is_a_timer_without_on_timer() -> None:
    seen: list[str] = []
    named: set[str] = set()
    kept: list[Context] = []

    async def handle(event: Event, heard: HeardCount, context: Context) -> None:
        kept.append(context)
        for time in (2**63, "soon", datetime(2026, 1, 1)):  # that is what is refused
            try:
                context.call_at(time)  # type: ignore[arg-type]
            except InvalidArgument as why:
                seen.append(why.reason)
                named.add(why.what)

    async with system() as ep:
        await write(ep, ("a", 0))
        app = App()
        app.add(handle, STREAM, group="s/other", state=HeardCount)
        await run_until_idle(ep, app)
        assert seen == ["the processor has no timers: declare it with on_timer="] * 3
        assert kept[0].watermark is None
        seen.clear()
        await run_until_idle(ep, app_of(handle))
        assert len(seen) == 3
        assert named == {"call_at"}
        with pytest.raises(CallEnded):
            kept[-1].call_at(1)


async def test_a_timer_may_be_set_to_a_date_before_1970() -> None:
    async def handle(event: Event, heard: HeardCount, context: Context) -> None:
        context.call_at(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC))

    async with system() as ep:
        await write(ep, ("a", -2_000))
        await run_until_idle(ep, app_of(handle))
        assert [each.timer_ms for each in await ep.state(GROUP).list()] == [-1_000]
        await write(ep, ("b", -1_000))
        await run_until_idle(ep, app_of(handle))
        assert sorted(await called(ep)) == [("a", -1_000, 0), ("b", -1_000, 0)]


async def test_timers_of_a_key_move_with_it_when_its_segment_is_split_and_merged() -> None:
    async with system() as ep:
        stream = await ep.stream(STREAM)
        await write(ep, *((f"k{number}", 0) for number in range(20)))
        await run_until_idle(ep, app_of())
        (only,) = await stream.segments()
        await stream.split(only.id, 4)
        await stream.merge(*[each.id for each in (await stream.segments())[1:3]])
        await write(ep, *((f"k{number}", 10) for number in range(20)))
        await run_until_idle(ep, app_of())
        assert await called(ep) == []
        await write(ep, *((f"x{number}", 20) for number in range(40)))
        await run_until_idle(ep, app_of(idle_ms=0))
        assert sorted(await called(ep)) == sorted((f"k{number}", 20, 2) for number in range(20))


@pytest.mark.parametrize("order", ["segment", "key"])
async def test_a_key_is_called_in_the_next_segment_once_the_call_for_its_timer_has_ended(
    order: str, eventproc_runtime: VirtualRuntime
) -> None:
    began, gate, calls = anyio.Event(), anyio.Event(), list[str]()

    async def handle(event: Event, heard: HeardCount, context: Context) -> None:
        calls.append(f"{event.key} {event.event_time}")
        if event.event_time == 0:
            context.call_at(10)

    async def on_timer(timer: Timer, heard: HeardCount, context: Context) -> None:
        began.set()
        await gate.wait()
        calls.append("timer")

    app = app_of(handle, on_timer, order=order, concurrency=4)
    async with eventproc_runtime.running(streams=[STREAM, OUT]) as t, t.ep.run(app) as running:
        await write(t.ep, ("a", 0), ("b", 100))
        await began.wait()
        stream = await t.ep.stream(STREAM)
        await stream.split((await stream.segments())[0].id)
        await write(t.ep, ("a", 200))
        await anyio.sleep(10)
        assert calls == ["a 0", "b 100"]
        gate.set()
        await running.wait_idle()
    assert calls == ["a 0", "b 100", "timer", "a 200"]


async def test_a_segment_without_events_after_a_split_holds_event_time_for_a_while(
    eventproc_runtime: VirtualRuntime,
) -> None:
    async with eventproc_runtime.running(streams=[STREAM, OUT]) as running:
        ep = running.ep
        stream = await ep.stream(STREAM)
        await write(ep, ("a", 0))
        async with ep.run(app_of(idle_ms=30_000)) as app:
            await app.wait_idle()
            await stream.split((await stream.segments())[0].id)
            async with stream.writer() as writer:
                await writer.write(b"", key="b", event_time=500)
            await app.wait_idle()
            assert (await ep.state(GROUP).describe()).watermark_ms == 0
            await anyio.sleep(31)
            await app.wait_idle()
            assert (await ep.state(GROUP).describe()).watermark_ms == 500


async def test_a_state_without_a_timer_expires_as_before_and_a_timer_with_it() -> None:
    state = KeyState(HeardCount, ttl_ms=1)

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        for name in (STREAM, OUT):
            await ep.create_stream(name)
        await write(ep, ("a", 0))
        await run_until_idle(ep, app_of(state=state))
        await anyio.sleep(0.01)
        await write(ep, ("b", 100))
        await run_until_idle(ep, app_of(state=state))
        assert await called(ep) == []


async def test_a_timer_whose_state_expires_between_two_attempts_is_called_off(
    eventproc_runtime: VirtualRuntime,
) -> None:
    calls: list[tuple[int, int]] = []

    async def fail(timer: Timer, heard: HeardCount, context: Context) -> None:
        calls.append((context.attempt, heard.count))
        raise ValueError("no")

    app = app_of(
        on_timer=fail,
        state=KeyState(HeardCount, ttl_ms=2_000),
        on_failure="skip",
        retry=RetryPolicy(attempts=2, wait_ms=5_000, wait_ms_max=5_000, jitter_ms=0),
    )
    async with eventproc_runtime.running(streams=[STREAM, OUT]) as running, running.ep.run(app):
        await write(running.ep, ("a", 0), ("b", 10))
        await anyio.sleep(7)
        assert calls == [(1, 1)]
        assert await running.ep.state(GROUP, HeardCount).list() == []


async def test_timers_that_wait_for_a_retry_do_not_keep_later_ones_waiting(
    eventproc_runtime: VirtualRuntime,
) -> None:
    """One look finds a thousand timers, so these are more, and all of them are earlier than those that succeed."""
    failing = [f"failing-{number}" for number in range(1_500)]
    later = [f"later-{number}" for number in range(1_500)]
    failed: list[str] = []

    async def call(timer: Timer, heard: HeardCount, context: Context) -> None:
        if timer.key in failing:
            failed.append(timer.key)
            raise ValueError("no")
        await report(timer, heard, context)

    hour_ms = 3_600_000
    retry = RetryPolicy(attempts=None, wait_ms=hour_ms, wait_ms_max=hour_ms, jitter_ms=0)
    async with eventproc_runtime.running(streams=[STREAM, OUT]) as running:
        await write(running.ep, *((key, 0) for key in failing), *((key, 1) for key in later), ("last", 100))
        async with running.ep.run(app_of(on_timer=call, retry=retry)):
            await anyio.sleep(60)
            assert sorted(failed) == sorted(failing)
            assert {key for key, _, _ in await called(running.ep)} == set(later)
