"""Streams that are truncated or deleted under a processor."""

from __future__ import annotations

import anyio
import pytest

from eventproc.groups import TruncatedPolicy
from eventproc.processors import App, ProcessorFailed, ProcessorState, Running
from eventproc.runtime import Eventproc
from eventproc.store.model.cuts import StreamCut
from eventproc.store.segments import Event
from tests.processors.support import (
    GROUP,
    STREAM,
    events,
    finish,
    finished,
    group,
    lag,
    progress,
    system,
    until_next,
    write,
)
from tests.processors.worker import until


class Recorder:
    """A handler that may be held, and what it saw."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.begun: list[int] = []
        self.gate = anyio.Event()

    async def handle(self, event: Event) -> None:
        self.begun.append(int(event.payload))
        await self.gate.wait()
        self.seen.append(int(event.payload))

    def app(self, on_truncated: TruncatedPolicy = "earliest", *, exactly_once: bool = False) -> App:
        app = App()
        app.add(
            self.handle,
            STREAM,
            name="p",
            group=GROUP,
            order="segment",
            on_truncated=on_truncated,
            exactly_once=exactly_once,
        )
        return app


async def make_group(ep: Eventproc, recorder: Recorder) -> None:
    """Let the group begin at the head, handling nothing."""
    async with ep.run(recorder.app()):
        pass


async def until_paused(running: Running) -> None:
    while (await running.status())[0].state is not ProcessorState.PAUSED:
        await until_next()


async def until_lost(running: Running, events: int) -> None:
    while (await running.status())[0].truncated != events:
        await until_next()


async def cut_before(ep: Eventproc, number: int) -> None:
    """Truncate the stream, which has one segment, so that event `number` becomes its first."""
    stream = await ep.stream(STREAM)
    event = (await events(ep, STREAM))[number]
    await stream.truncate(StreamCut(STREAM, stream.stream_id, {event.segment: event.offset}))


@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize(("on_truncated", "expected"), [("earliest", [3, 4, 0]), ("latest", [0])])
async def test_a_processor_goes_on_behind_what_was_truncated_and_counts_it(
    on_truncated: TruncatedPolicy, expected: list[int], exactly_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    async with system() as ep:
        await make_group(ep, recorder)
        await write(ep, "aaaaa")
        await cut_before(ep, 3)
        recorder.gate.set()
        async with ep.run(recorder.app(on_truncated, exactly_once=exactly_once)) as running:
            await running.wait_idle()
            await write(ep, "a")
            await running.wait_idle()
            (status,) = await running.status()
            assert status.truncated == 6 - len(expected)
            assert (await group(ep)).lost_events == status.truncated, (
                "as with readers, the group counts the loss"
            )
        assert recorder.seen == expected
        assert [each.number for each in await progress(ep)] == [6]
        (said,) = [each.getMessage() for each in caplog.records if "were truncated" in each.getMessage()]
        assert said.startswith(
            f"processor p: {6 - len(expected)} events that follow <segment 0.0 of {STREAM}"
        )


@pytest.mark.parametrize(("on_truncated", "lost"), [("earliest", 2), ("latest", 3)])
async def test_what_was_handled_before_its_turn_does_not_count_as_truncated(
    on_truncated: TruncatedPolicy, lost: int
) -> None:
    async def handle(event: Event) -> None:
        if is_stuck and event.key == "a":
            await anyio.sleep_forever()

    is_stuck = True
    app = App()
    app.add(handle, STREAM, group=GROUP, on_truncated=on_truncated)
    async with system() as ep:
        await write(ep, "abbac")
        async with ep.run(app, grace_ms=0) as running:
            await finished(running, 3)
        assert [(each.number, len(each.finished)) for each in await progress(ep)] == [(0, 2)]
        await write(ep, "a")
        await cut_before(ep, 5)
        is_stuck = False
        async with ep.run(app) as running:
            await running.wait_idle()
            (status,) = await running.status()
            assert status.truncated == lost


async def test_a_processor_that_shall_not_lose_events_stops_where_they_were_truncated() -> None:
    recorder = Recorder()
    async with system() as ep:
        await make_group(ep, recorder)
        await write(ep, "aaaaa")
        await cut_before(ep, 3)
        recorder.gate.set()
        with pytest.raises(ProcessorFailed, match="truncated"):
            async with ep.run(recorder.app("error")) as running:
                await running.wait()
        assert recorder.seen == []
        assert [each.number for each in await progress(ep)] == [0]


async def test_what_was_read_before_a_truncation_is_handled() -> None:
    recorder = Recorder()
    async with system() as ep:
        stream = await ep.stream(STREAM)
        await write(ep, "aaaa")
        async with ep.run(recorder.app()) as running:
            await until(lambda: len(recorder.begun) == 1)
            await stream.truncate(await stream.tail())
            await write(ep, "aa")
            recorder.gate.set()
            await running.wait_idle()
            (status,) = await running.status()
            assert status.truncated == 0
        assert recorder.seen == [0, 1, 2, 3, 0, 1]
        assert await lag(ep) == 0


async def test_a_segment_that_skips_a_truncation_leaves_calls_for_other_segments_alone() -> None:
    seen: list[str] = []
    begun, gate = anyio.Event(), anyio.Event()
    app = App()

    @app.processor(STREAM, name="p", group=GROUP)
    async def handle(event: Event) -> None:
        if event.key == slow:
            begun.set()
            await gate.wait()
        seen.append(str(event.key))

    async with system() as ep:
        stream = await ep.stream(STREAM)
        left, _ = await stream.split(0)
        keys = [f"k{n}" for n in range(20)]
        await write(ep, keys)
        of_left = {event.key for event in await events(ep, STREAM) if event.segment == left}
        slow = next(key for key in keys if key in of_left)
        quick = next(key for key in keys if key not in of_left)
        await stream.truncate(await stream.tail())
        async with ep.run(app) as running:
            await running.wait_idle()
            await write(ep, [slow])
            await begun.wait()
            await running.pause("p")
            await until_paused(running)
            await write(ep, [quick] * 3)
            await stream.truncate(await stream.tail())
            before = (await running.status())[0].truncated
            await running.resume("p")
            await until_lost(running, before + 3)
            gate.set()
            await write(ep, [quick])
            await running.wait_idle()
        assert seen == [slow, quick]
        assert (await group(ep)).lost_events == before + 3


@pytest.mark.parametrize("splits", [1, 2, 3])
@pytest.mark.parametrize("read_first", [False, True])
async def test_a_processor_goes_on_when_whole_segments_were_truncated_across_scales(
    splits: int, read_first: bool
) -> None:
    recorder = Recorder()
    async with system() as ep:
        stream = await ep.stream(STREAM)
        await make_group(ep, recorder)
        await write(ep, "aaaa")
        async with ep.run(recorder.app()) as running:
            if read_first:
                await until(lambda: len(recorder.begun) == 1)
            else:
                await running.pause("p")
            for _ in range(splits):
                (first, *_) = await stream.segments()
                await stream.split(first.id, 2)
                await write(ep, "b" * 4)
            await stream.truncate(await stream.tail())
            await write(ep, [f"k{n}" for n in range(10)])
            recorder.gate.set()
            await running.resume("p")
            await running.wait_idle(timeout_ms=20_000)
        assert sorted(recorder.seen[-10:]) == list(range(10))
        assert await lag(ep) == 0


async def test_a_stream_that_was_deleted_under_a_processor_stops_it_with_its_name() -> None:
    recorder = Recorder()
    recorder.gate.set()
    async with system() as ep:
        stream = await ep.stream(STREAM)
        await write(ep, "a")

        async def run() -> None:
            async with ep.run(recorder.app()) as running:
                await finished(running, 1)
                await stream.seal()
                await stream.delete()
                await running.wait()

        with pytest.raises(ProcessorFailed, match=STREAM):
            await run()


async def test_a_sealed_stream_is_processed_to_its_end_and_the_processor_keeps_running() -> None:
    recorder = Recorder()
    recorder.gate.set()
    async with system() as ep:
        stream = await ep.stream(STREAM)
        await write(ep, "aaa")
        await stream.seal()
        async with ep.run(recorder.app()) as running:
            await running.wait_idle()
            while (await running.status())[0].segments:
                await until_next()
        assert recorder.seen == [0, 1, 2]
        await finish(ep, recorder.app())
        assert recorder.seen == [0, 1, 2]
