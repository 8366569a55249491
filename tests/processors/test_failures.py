"""Events that cannot be handled, handlers that cannot be started, and what a supervisor decides."""

from __future__ import annotations

from typing import ClassVar, Literal

import anyio
import attrs
import pytest

import eventproc
from eventproc.processors import App, Context, Directive, Failure, ProcessorFailed, RetryPolicy
from eventproc.processors.observe.status import ProcessorState
from eventproc.processors.options import Supervisor
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.segments import Event
from eventproc.testing import Fault, FaultPlan, VirtualClock, VirtualRuntime
from tests.processors.support import (
    GROUP,
    STREAM,
    finish,
    finished,
    lag,
    letters,
    payloads,
    progress,
    system,
    write,
)
from tests.support.virtual_time import in_virtual_time

TWICE = RetryPolicy(attempts=2, wait_ms=0, wait_ms_max=0, jitter_ms=0)


@pytest.mark.acceptance(
    "D2", differs="a failed event is tried again in place, its key held, and never written back behind others"
)
async def test_progress_continues_after_a_retried_event_and_one_given_up() -> None:
    calls: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        calls.append(int(event.payload))
        if event.payload == b"1" and context.attempt == 1:
            raise OSError("try again")
        if event.payload == b"3":
            raise KeyError("never")

    async with system() as ep:
        await write(ep, "abcde")
        app = App()
        app.add(
            handle, STREAM, group=GROUP, retry=RetryPolicy(wait_ms=0, jitter_ms=0, permanent=(LookupError,))
        )
        await finish(ep, app)
        assert await lag(ep) == 0
        assert sorted(calls) == [0, 1, 1, 2, 3, 4]
        assert await letters(ep) == [(3, "KeyError", 1)]


@pytest.mark.parametrize("order", ["segment", "key", None])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_poison_event_becomes_a_letter_and_blocks_nothing(
    order: str | None, exactly_once: bool
) -> None:
    async def handle(event: Event, context: Context) -> None:
        context.emit("s/out", event.payload, key=event.key)
        if event.payload == b"2":
            raise ValueError("poison")

    async with system() as ep:
        await write(ep, "aaabbb")
        app = App()
        app.add(handle, STREAM, group=GROUP, order=order, exactly_once=exactly_once, retry=TWICE)  # type: ignore[arg-type]
        await finish(ep, app)
        assert await lag(ep) == 0
        assert await letters(ep) == [(2, "ValueError", 2)]
        assert sorted(await payloads(ep)) == [0, 1, 3, 4, 5], "failed calls emit nothing"


async def test_a_poison_event_may_be_skipped() -> None:
    async def handle(event: Event) -> None:
        raise ValueError("poison")

    async with system() as ep:
        await write(ep, "ab")
        app = App()
        app.add(handle, STREAM, group=GROUP, on_failure="skip", retry=TWICE)
        async with ep.run(app) as running:
            await finished(running, 2)
            (status,) = await running.status()
            assert (status.skipped, status.dead_letters, status.failed_calls) == (2, 0, 4)
        assert await lag(ep) == 0
        assert await letters(ep) == []


async def test_a_poison_event_may_stop_the_processor_and_the_next_run_handles_it() -> None:
    mended = False
    seen: list[int] = []

    async def handle(event: Event) -> None:
        if event.payload == b"1" and not mended:
            raise ValueError("poison")
        seen.append(int(event.payload))

    async with system() as ep:
        await write(ep, "aaa")
        app = App()
        app.add(handle, STREAM, group=GROUP, on_failure="stop", retry=TWICE)
        with pytest.raises(ProcessorFailed, match=r"event 1 \(key 'a'\) failed 2 times: ValueError"):
            async with ep.run(app) as running:
                await running.wait()
        assert (await progress(ep))[0].number == 1, "what was finished before is durable"
        mended = True
        await finish(ep, app)
    assert seen == [0, 1, 2]


class Counter:
    """Counts its events; fails on the third of each life, and remembers what became of all of them."""

    made: ClassVar[list[Counter]] = []
    starts: ClassVar[int] = 0
    fail_from: ClassVar[int] = 100

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.stopped = 0
        Counter.made.append(self)

    async def start(self) -> None:
        Counter.starts += 1
        if Counter.starts >= Counter.fail_from:
            raise OSError("no connection")

    def stop(self) -> None:
        self.stopped += 1

    async def process(self, event: Event) -> None:
        if len(self.seen) == 2:
            self.seen.append(-1)
            raise ValueError("the third")
        self.seen.append(int(event.payload))


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    Counter.made, Counter.starts, Counter.fail_from = [], 0, 100


def _counting(supervise: Supervisor | None) -> App:
    app = App()
    retry = RetryPolicy(attempts=1)
    choices = {} if supervise is None else {"supervise": supervise}
    app.add(Counter, STREAM, group=GROUP, order="segment", retry=retry, **choices)  # type: ignore[call-overload]
    return app


@pytest.mark.acceptance(
    "D4", differs="the failed event becomes a dead letter; nothing is resumed behind it in silence"
)
async def test_resume_keeps_the_state_of_a_handler() -> None:
    async with system() as ep:
        await write(ep, "a" * 6)
        await finish(ep, _counting(lambda _: Directive.RESUME))
        assert [each.seen for each in Counter.made] == [[0, 1, -1, 3, 4, 5]]
        assert [each.stopped for each in Counter.made] == [1]
        assert [number for number, *_ in await letters(ep)] == [2]


@pytest.mark.acceptance("D4")
async def test_restart_goes_on_with_a_fresh_handler() -> None:
    async with system() as ep:
        await write(ep, "a" * 7)
        app = _counting(lambda _: Directive.RESTART)
        async with ep.run(app) as running:
            await finished(running, 7)
            (status,) = await running.status()
            assert status.restarts == 2
        assert [each.seen for each in Counter.made] == [[0, 1, -1], [3, 4, -1], [6]]
        assert [each.stopped for each in Counter.made] == [1, 1, 1]
        assert await lag(ep) == 0


@pytest.mark.acceptance("D4")
async def test_stop_leaves_the_event_unfinished() -> None:
    failures: list[Failure] = []

    def supervise(failure: Failure) -> Directive:
        failures.append(failure)
        return Directive.STOP

    async with system() as ep:
        await write(ep, "a" * 4)
        with pytest.raises(ProcessorFailed, match="failed 1 time: ValueError"):
            async with ep.run(_counting(supervise)) as running:
                await running.wait()
        assert [each.number for each in await progress(ep)] == [2]
        assert [each.stopped for each in Counter.made] == [1]
    ((name, event, error, attempts),) = [attrs.astuple(each, recurse=False) for each in failures]
    assert (name, event.number, str(error), attempts) == ("Counter", 2, "the third", 1)


@pytest.mark.acceptance(
    "D4", differs="no directive is asked for: a handler that cannot be started stops its processor"
)
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_handler_that_cannot_be_started_stops_the_processor(nth: int) -> None:
    Counter.fail_from = nth
    async with system() as ep:
        await write(ep, "a" * 6)
        with pytest.raises(ProcessorFailed, match="could not be started: OSError"):
            async with ep.run(_counting(lambda _: Directive.RESTART)) as running:
                await running.wait()
        assert await lag(ep) == (6 if nth == 1 else 3)
        assert [each.stopped for each in Counter.made] == [0] if nth == 1 else [1, 0]


async def test_a_processor_that_failed_says_so_while_its_app_runs_on() -> None:
    Counter.fail_from = 1

    async def run() -> None:
        async with ep.run(_counting(None)) as running:
            with pytest.raises(ProcessorFailed):
                await running.wait()
            (status,) = await running.status()
            assert status.state is ProcessorState.FAILED
            assert "OSError" in str(status.error)

    async with system() as ep:
        with pytest.raises(ProcessorFailed, match="could not be started"):
            await run()


class SlowToFail:
    """A handler that finds out slowly that it cannot be started."""

    async def start(self) -> None:
        await anyio.sleep(2)
        raise OSError("no connection")

    async def process(self, event: Event) -> None: ...


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_an_app_whose_handler_cannot_be_started_meanwhile_ends_immediately(
    eventproc_runtime: VirtualRuntime, exactly_once: bool
) -> None:
    app = App()
    app.add(SlowToFail, STREAM, group=GROUP, exactly_once=exactly_once)
    async with system() as ep:
        began = anyio.current_time()
        with pytest.raises(ProcessorFailed, match="could not be started"):
            async with ep.run(app):
                await anyio.sleep(1)
        assert anyio.current_time() - began < 3  # and not after the grace period


def _raises(_failure: Failure) -> Directive:
    raise LookupError("where is it")


def _no_directive(_failure: Failure) -> Directive:
    return "restart"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("supervise", "says"),
    [(_raises, "its supervisor failed: LookupError"), (_no_directive, "its supervisor returned 'restart'")],
)
async def test_a_supervisor_that_fails_stops_the_processor(supervise: Supervisor, says: str) -> None:
    async with system() as ep:
        await write(ep, "a" * 4)
        with pytest.raises(ProcessorFailed, match=says):
            async with ep.run(_counting(supervise)) as running:
                await running.wait()
        assert [each.number for each in await progress(ep)] == [2]


class Unshowable(Exception):
    """An error that cannot be printed."""

    def __repr__(self) -> str:
        raise AttributeError("repr")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("start", "its handler could not be started: Unshowable"),
        ("process", r"event 0 \(key 'a'\) failed 1 time: Unshowable"),
        ("supervise", "its supervisor failed: Unshowable"),
    ],
)
async def test_why_a_processor_stopped_is_logged_of_an_error_that_cannot_be_shown_too(
    where: str, says: str
) -> None:
    def fail(here: str) -> None:
        if where == here:
            raise Unshowable

    class FailingHandler:
        def start(self) -> None:
            fail("start")

        async def process(self, event: Event) -> None:
            fail("process")
            raise ValueError("poison")

    def supervise(failure: Failure) -> Directive:
        fail("supervise")
        return Directive.STOP

    async with system() as ep:
        await write(ep, "a")
        app = App()
        app.add(FailingHandler, STREAM, group=GROUP, retry=RetryPolicy(attempts=1), supervise=supervise)
        with pytest.raises(ProcessorFailed, match=says):
            async with ep.run(app) as running:
                await running.wait()


async def test_a_handler_whose_stop_fails_ends_in_order() -> None:
    class Stubborn:
        async def process(self, event: Event) -> None:
            pass

        async def stop(self) -> None:
            raise OSError("no")

    async with system() as ep:
        await write(ep, "ab")
        app = App()
        app.add(Stubborn, STREAM, group=GROUP)
        await finish(ep, app)
        assert await lag(ep) == 0


async def test_one_processor_that_fails_lets_the_others_of_the_app_go_on() -> None:
    seen: list[int] = []

    async def bad(event: Event) -> None:
        raise ValueError("poison")

    async def good(event: Event) -> None:
        seen.append(int(event.payload))

    async with system() as ep:
        await write(ep, "ab")
        app = App()
        app.add(bad, STREAM, on_failure="stop", retry=TWICE)
        app.add(good, STREAM, group=GROUP)

        async def run() -> None:
            async with ep.run(app) as running:
                with pytest.raises(ProcessorFailed):
                    await running.wait()
                await write(ep, "c")
                await finished(running, 3, "good")

        with pytest.raises(ProcessorFailed, match="processor bad stopped"):
            await run()
        assert await lag(ep) == 0
    assert seen == [0, 1, 0]


@pytest.mark.parametrize(("name", "error"), [(STREAM, InvalidArgument), ("gone/dead", NotFound)])
async def test_a_stream_that_cannot_take_dead_letters_is_refused_at_the_start(
    name: str, error: type[Exception]
) -> None:
    async def handle(event: Event) -> None:
        raise AssertionError("it must not begin")

    async with system() as ep:
        await write(ep, "a")
        app = App()
        app.add(handle, STREAM, group=GROUP, dead_letters=name)
        with pytest.raises(error):
            async with ep.run(app):
                raise AssertionError("it must not begin")


async def test_one_line_says_at_the_start_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(event: Event) -> None:
        pass

    app = App()
    app.add(handle, STREAM, group=GROUP, name="mail", exactly_once=True)
    with caplog.at_level("INFO", logger="eventproc.processors"):
        async with system() as ep, ep.run(app):
            pass
    logged = [each.getMessage() for each in caplog.records if each.getMessage().startswith("running")]
    assert logged == ["running mail (group s/g, streams s/t, keyed, 100 at a time, exactly once)"]


@pytest.mark.parametrize("kind", ["processor", "worker"])
@pytest.mark.parametrize("action", ["full", "busy"])
@in_virtual_time
async def test_a_processor_that_cannot_join_its_group_for_now_tries_again(
    kind: str, action: Literal["full", "busy"]
) -> None:
    seen: list[bytes] = []
    app = App()

    async def handle(event: Event) -> None:
        seen.append(event.payload)

    if kind == "worker":
        app.worker(STREAM, share_group=GROUP)(handle)
    else:
        app.add(handle, STREAM, group=GROUP)
    faults = FaultPlan([Fault("group.join.commit", action, times=3)])
    async with eventproc.open_memory(clock=VirtualClock(), faults=faults) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        await write(ep, "a")
        async with ep.run(app) as running:
            await running.wait_idle(timeout_ms=60_000)
    assert (seen, faults.reached["group.join.commit"]) == ([b"0"], 4)
