"""What stands in the way of a processor from outside: a disk that is full, another process that wants a segment."""

from __future__ import annotations

import anyio
import pytest

import eventproc
from eventproc.groups.owned_segment import WAITING_BYTES_MAX
from eventproc.processors import App, Context, RetryPolicy
from eventproc.processors.engine.commit import ProgressCommit, SegmentCommitter
from eventproc.processors.engine.committer import BEHIND_BYTES_MAX
from eventproc.processors.engine.engine import RELEASE_MS
from eventproc.processors.engine.fetch import FETCHED_BYTES_MAX
from eventproc.store.database import Tx
from eventproc.store.model.errors import VersionConflict
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.segments import READ_BYTES_MAX, Event
from eventproc.testing import VirtualClock
from tests.processors.support import GROUP, OUT, STREAM, events, write
from tests.support.virtual_time import in_virtual_time

SIZE = 256 * 2**10


@in_virtual_time
async def test_while_the_disk_takes_nothing_the_calls_wait_and_then_all_is_there_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = False
    publish = SegmentCommitter.publish

    def refuse(self: SegmentCommitter, tx: Tx, commit: ProgressCommit) -> None:
        if full:
            raise VersionConflict(key="the disk", expected=1, actual=2)
        publish(self, tx, commit)

    monkeypatch.setattr(SegmentCommitter, "publish", refuse)
    calls = 0

    async def handle(event: Event, context: Context) -> None:
        nonlocal calls
        calls += 1
        context.emit(OUT, event.payload + bytes(SIZE))
        await anyio.sleep(0.001)

    count, most = 1_000, BEHIND_BYTES_MAX // SIZE
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        for name in (STREAM, OUT):
            await ep.create_stream(name)
        await write(ep, (f"k{n}" for n in range(count)))
        app = App()
        app.add(handle, STREAM, group=GROUP, concurrency=10)
        full = True
        async with ep.run(app) as running:
            await anyio.sleep(60)
            assert most <= calls <= 3 * most, "those of the first commit, those behind it, those under way"
            full = False
            await running.wait_idle()
        assert calls == count
        there = [int(event.payload.rstrip(b"\0")) for event in await events(ep)]
        assert sorted(there) == list(range(count))


@in_virtual_time
async def test_the_release_of_a_segment_does_not_wait_permanently_for_a_stuck_call() -> None:
    seen: list[tuple[str, int]] = []

    def app_of(name: str) -> App:
        async def handle(event: Event) -> None:
            if name == "one" and event.key is not None and event.key.startswith("stuck"):
                await anyio.sleep_forever()
            seen.append((name, event.number))

        app = App()
        app.add(handle, STREAM, group=GROUP, name=name)
        return app

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
        await write(ep, [f"stuck{n}" for n in range(20)])
        async with ep.run(app_of("one"), grace_ms=0):
            await anyio.sleep(1)
            async with ep.run(app_of("two")) as two:
                await anyio.sleep(RELEASE_MS / 1000 - 5)
                assert not seen, "the calls get their time"
                await anyio.sleep(10)
                (status,) = await two.status()
                assert status.segments == 1
                assert len(seen) == status.finished > 0


@in_virtual_time
async def test_a_stuck_call_does_not_keep_a_segment_before_a_truncation_permanently() -> None:
    seen: list[str | None] = []
    begun = anyio.Event()
    app = App()

    @app.processor(STREAM, group=GROUP, name="p")
    async def handle(event: Event) -> None:
        if event.key == "stuck":
            begun.set()
            await anyio.sleep_forever()
        seen.append(event.key)

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream(STREAM)
        await write(ep, ["stuck"])
        async with ep.run(app, grace_ms=0) as running:
            await begun.wait()
            await running.pause("p")
            await anyio.sleep(1)
            await write(ep, ["gone"] * 3)
            await stream.truncate(await stream.tail())
            await write(ep, ["next"])
            await running.resume("p")
            await anyio.sleep(RELEASE_MS / 1000 - 5)
            assert not seen, "the call gets its time"
            await anyio.sleep(RELEASE_MS / 1000 + 10)
            (status,) = await running.status()
        assert (seen, status.truncated) == (["next"], 4)


@in_virtual_time
async def test_blocked_keys_of_some_segments_leave_room_for_the_others() -> None:
    seen: list[str] = []
    names = ["s/a", "s/b", "s/c", "s/d"]
    size = 256 * 2**10
    count = 2 * WAITING_BYTES_MAX // size  # twice what one segment may hold; two hold as much as all may

    async def handle(event: Event) -> None:
        if event.key == "stuck":
            await anyio.sleep_forever()
        seen.append(str(event.key))

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        for name, key in zip(names, ["stuck", "stuck", "c", "d"], strict=True):
            stream = await ep.create_stream(name)
            async with stream.writer() as writer:
                await writer.write_many((bytes(size), key) for _ in range(count))
        app = App()
        app.add(handle, *names, group=GROUP)
        async with ep.run(app, grace_ms=0) as running:
            await anyio.sleep(10)
            (status,) = await running.status()
        assert (seen.count("c"), seen.count("d")) == (count, count)
        assert status.waiting * size <= FETCHED_BYTES_MAX + len(names) * READ_BYTES_MAX


@in_virtual_time
async def test_new_events_are_read_when_all_running_calls_wait_for_a_retry() -> None:
    seen = anyio.Event()
    size = 256 * 2**10

    async def handle(event: Event) -> None:
        if event.key == "failing":
            await anyio.sleep(1)
            raise ValueError
        seen.set()

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        streams = [await ep.create_stream(name) for name in ("s/a", "s/b", "s/c")]
        for stream in streams[:2]:  # two hold as much as all may
            async with stream.writer() as writer:
                await writer.write_many(
                    (bytes(size), "failing") for _ in range(WAITING_BYTES_MAX // size + 1)
                )
        app = App()
        retry = RetryPolicy(attempts=10**6, wait_ms=20_000, wait_ms_max=20_000, jitter_ms=0)
        app.add(
            handle,
            *(stream.name for stream in streams),
            group=GROUP,
            order="segment",
            concurrency=1,
            retry=retry,
        )
        async with ep.run(app, grace_ms=0), streams[2].writer() as writer:
            await anyio.sleep(22.5)  # the second attempt of the one is under way, the other's begins then
            await writer.write(b"good")
            with anyio.fail_after(5):
                await seen.wait()


@in_virtual_time
async def test_a_retry_of_what_another_position_left_behind_holds_up_no_round() -> None:
    seen = anyio.Event()

    async def handle(event: Event) -> None:
        if event.key == "failing":
            raise ValueError
        seen.set()

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream(STREAM)
        await write(ep, ["failing"])
        app = App()
        retry = RetryPolicy(attempts=10, wait_ms=60_000, wait_ms_max=60_000, jitter_ms=0)
        app.add(handle, STREAM, group=GROUP, exactly_once=True, retry=retry)
        async with ep.run(app, grace_ms=0), stream.writer() as writer:
            await anyio.sleep(1)
            await (await ep.group(GROUP)).reset("tail")
            await writer.write(b"good", key="good")
            with anyio.fail_after(30):
                await seen.wait()
