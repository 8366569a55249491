"""Offload by policy: old events move out of the database in the background, and readers notice nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import anyio
import pytest

import eventproc
from eventproc import Eventproc, OffloadPolicy, RetentionPolicy, ScalingPolicy, Stream
from eventproc.describe import TaskStatus
from eventproc.errors import InvalidArgument, NotSupported, StreamSealed
from eventproc.streams import offload as offloading
from eventproc.testing import VirtualClock
from tests.cluster.support import ended_task
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.checked_directory import clock as clock, ep as ep  # fixtures
from tests.support.reading import events_of

HOUR_MS = 3_600_000
LOOK_MS = 60_000
"""Pause between two looks at a stream with a policy."""

EVENT_BYTES = 1_008
"""Size of an event of `write`, with its frame."""


async def write(stream: Stream, count: int) -> None:
    async with stream.writer() as writer:
        for number in range(count):
            await writer.post(b"x" * 1_000, key=f"k{number % 10}")


async def look_again(ep: Eventproc, clock: VirtualClock, after_ms: int = LOOK_MS) -> None:
    """Let the policies of all streams be looked at: their time has come, and a new stream wakes the loop."""
    clock.advance(after_ms)
    await ep.create_stream(f"s/new-{clock.wall_ms()}")


async def test_events_older_than_the_age_move_and_reading_stays_one_ordered_stream(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t")
    await write(stream, 1_000)
    clock.advance(2 * HOUR_MS)
    await write(stream, 600)
    known = await events_of(stream)
    await stream.update(offload=OffloadPolicy(age_ms=HOUR_MS))
    task = await ended_task(ep, "stream s/t")
    assert (task.status, task.result["events"]) == (TaskStatus.DONE, 1_000)
    assert await events_of(stream) == known
    assert [event.number for event in known] == list(range(1_600))
    assert (await stream.describe()).config.offload == OffloadPolicy(age_ms=HOUR_MS)
    assert (await stream.offload()).events == 600  # the young ones had stayed


async def test_the_newest_events_of_the_size_stay_in_the_database(ep: Eventproc, clock: VirtualClock) -> None:
    topic = await ep.create_topic("s/t", offload=OffloadPolicy(size_bytes=500 * EVENT_BYTES))
    for _ in range(20):
        await write(topic, 50)
        clock.advance(1)
    known = await events_of(topic)
    await look_again(ep, clock)
    task = await ended_task(ep, "stream s/t")
    assert (task.status, task.result["events"]) == (TaskStatus.DONE, 500)
    assert await events_of(topic) == known
    assert (await topic.offload()).events == 500


async def test_a_policy_waits_for_what_is_worth_a_file_and_ends_with_its_removal(
    ep: Eventproc, clock: VirtualClock
) -> None:
    hourly = OffloadPolicy(age_ms=HOUR_MS)
    small, ended, kept = [await ep.create_stream(f"s/{name}") for name in ("small", "ended", "kept")]
    began_ms = clock.wall_ms()
    await write(small, 200)  # less than 256 KiB
    for stream in (ended, kept):
        await write(stream, 400)
    for stream in (small, ended, kept):
        await stream.update(offload=hourly)
    await ended.update(offload=OffloadPolicy())
    clock.advance(HOUR_MS + 1)
    await look_again(ep, clock)
    clock.advance(HOUR_MS // 8)
    await look_again(ep, clock)
    first = await ended_task(ep, "stream s/kept")
    assert first.created_ms >= began_ms + HOUR_MS + HOUR_MS // 8, "it waited for others that share the file"
    await write(kept, 400)
    clock.advance(2 * HOUR_MS)
    await look_again(ep, clock)
    second = await ended_task(ep, "stream s/kept", after=first)
    assert [each.id for each in await ep.tasks.list()] == [second.id]
    assert (await ended.describe()).config.offload == OffloadPolicy()


async def test_what_fills_a_file_moves_without_a_pause(ep: Eventproc, clock: VirtualClock) -> None:
    stream = await ep.create_stream("s/t", offload=OffloadPolicy(age_ms=HOUR_MS))
    async with stream.writer() as writer:
        for _ in range(64):
            await writer.post(b"x" * 2**20)
    clock.advance(HOUR_MS + LOOK_MS)  # less than an eighth beyond the age
    await look_again(ep, clock)
    task = await ended_task(ep, "stream s/t")
    assert task.result["events"] == 64


@pytest.mark.parametrize(
    "policy", [OffloadPolicy(age_ms=60_000), OffloadPolicy(size_bytes=500 * EVENT_BYTES)]
)
async def test_events_before_and_between_files_move(
    ep: Eventproc, clock: VirtualClock, policy: OffloadPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await ep.create_stream("s/t")
    for _ in range(3):
        await write(stream, 400)
        await write_to_file(stream, 300, monkeypatch)
    clock.advance(HOUR_MS)
    await write_to_file(stream, 500, monkeypatch)
    await stream.update(offload=policy)
    task = await ended_task(ep, "stream s/t")
    assert task.result["events"] == 1_200


async def test_a_look_continues_where_the_last_one_ended(
    ep: Eventproc, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.chunks.offload.LOOK_EXTENTS", 1)
    stream = await ep.create_stream("s/t")
    for _ in range(3):
        await write_to_file(stream, 300, monkeypatch)
        await write(stream, 10)
    await write_to_file(stream, 300, monkeypatch)
    await write(stream, 400)
    clock.advance(HOUR_MS)
    await stream.update(offload=OffloadPolicy(age_ms=60_000))
    while not await ep.tasks.list():
        await look_again(ep, clock)
    task = await ended_task(ep, "stream s/t")
    assert task.result["events"] == 400


async def write_to_file(stream: Stream, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write events into a file, as Spark's sink does; those before them stay in the database."""
    since, find = max((await stream.tail()).offsets.values()), vars(offloading)["next_cold_run"]
    await write(stream, count)
    with monkeypatch.context() as patch:
        patch.setattr(offloading, "next_cold_run", partial(find_since, find, since))
        assert (await stream.offload()).events == count


def find_since(find: Callable[..., object], since: int, tx: object, offset: int, **options: object) -> object:
    return find(tx, offset=max(offset, since), **options)


async def test_a_policy_of_the_longest_age_moves_nothing_and_hinders_no_other_policy(
    ep: Eventproc, clock: VirtualClock
) -> None:
    longest = OffloadPolicy(age_ms=2**63 - 1)
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(age_ms=HOUR_MS), offload=longest)
    await write(stream, 400)
    clock.advance(2 * HOUR_MS)
    with anyio.fail_after(60):
        while (await stream.describe()).events:
            await look_again(ep, clock)
    assert await ep.tasks.list() == []


async def test_a_sealed_stream_still_moves_its_events(ep: Eventproc, clock: VirtualClock) -> None:
    stream = await ep.create_stream("s/t", offload=OffloadPolicy(age_ms=HOUR_MS))
    await write(stream, 400)
    await stream.seal()
    clock.advance(2 * HOUR_MS)
    await look_again(ep, clock)
    task = await ended_task(ep, "stream s/t")
    assert task.result["events"] == 400


async def test_the_policy_of_a_sealed_stream_changes_and_nothing_else_of_it(ep: Eventproc) -> None:
    hourly = OffloadPolicy(age_ms=HOUR_MS)
    stream, topic = await ep.create_stream("s/t"), await ep.create_topic("s/topic", offload=hourly)
    await stream.seal()
    await topic.seal()
    await stream.update(offload=hourly)
    await topic.alter(offload=OffloadPolicy())
    sealed = await stream.describe()
    assert (sealed.state, sealed.config.offload) == ("sealed", hourly)
    assert (await topic.describe()).config.offload == OffloadPolicy()
    with pytest.raises(StreamSealed):
        await stream.update(offload=OffloadPolicy(), tags=["a"])
    with pytest.raises(StreamSealed):
        await stream.update(retention=RetentionPolicy(age_ms=HOUR_MS))
    assert await stream.describe() == sealed


async def test_an_offload_that_fails_says_why_and_is_tried_again(
    ep: Eventproc, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert ep.path is not None
    chunks = ep.path / "chunks"
    stream = await ep.create_stream("s/t", offload=OffloadPolicy(age_ms=HOUR_MS))
    await write(stream, 400)
    chunks.write_text("in the way")
    clock.advance(2 * HOUR_MS)
    await look_again(ep, clock)
    failed = await ended_task(ep, "stream s/t")
    assert failed.status is TaskStatus.FAILED
    assert len([each for each in caplog.records if f"task {failed.id}" in each.getMessage()]) == 1
    chunks.unlink()
    await look_again(ep, clock)
    done = await ended_task(ep, "stream s/t", after=failed)
    assert (done.status, done.result["events"]) == (TaskStatus.DONE, 400)


async def test_an_offload_that_fails_again_waits_longer(ep: Eventproc, clock: VirtualClock) -> None:
    assert ep.path is not None
    scaling = ScalingPolicy.by_event_rate(10**6, window_ms=1_000)  # it is looked at four times a second
    stream = await ep.create_stream("s/t", scaling=scaling)
    await write(stream, 400)
    (ep.path / "chunks").write_text("in the way")
    clock.advance(HOUR_MS)
    await stream.update(offload=OffloadPolicy(age_ms=60_000))
    await look_again(ep, clock)
    failed = [await ended_task(ep, "stream s/t")]
    while len(failed) < 4:
        await look_again(ep, clock, 5_000)
        [last] = await ep.tasks.list()
        if last.id != failed[-1].id:
            failed.append(await ended_task(ep, "stream s/t", after=failed[-1]))
    assert {each.status for each in failed} == {TaskStatus.FAILED}
    for number, (one, other) in enumerate(pairwise(failed)):
        assert other.created_ms - one.created_ms >= LOOK_MS * 2**number


@pytest.mark.parametrize(
    "policy, reason",
    [
        (OffloadPolicy(age_ms=0), "offload age"),
        (OffloadPolicy(size_bytes=-1), "offload size"),
        (HOUR_MS, "offload"),
    ],
)
async def test_wrong_values_are_refused_by_their_names(
    ep: Eventproc, policy: OffloadPolicy, reason: str
) -> None:
    stream, topic = await ep.create_stream("s/t"), await ep.create_topic("s/topic")
    with pytest.raises(InvalidArgument, match=reason):
        await ep.create_stream("s/new", offload=policy)
    with pytest.raises(InvalidArgument, match=reason):
        await ep.create_topic("s/new", offload=policy)
    with pytest.raises(InvalidArgument, match=reason):
        await stream.update(offload=policy)
    with pytest.raises(InvalidArgument, match=reason):
        await topic.alter(offload=policy)


async def test_a_system_without_a_place_for_files_refuses_the_policy() -> None:
    daily = OffloadPolicy(age_ms=24 * HOUR_MS)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream, topic = await ep.create_stream("s/t"), await ep.create_topic("s/topic")
        with pytest.raises(NotSupported, match="a place for them"):
            await ep.create_stream("s/new", offload=daily)
        with pytest.raises(NotSupported, match="a place for them"):
            await stream.update(offload=daily)
        with pytest.raises(NotSupported, match="a place for them"):
            await topic.alter(offload=daily)
        await stream.update(offload=OffloadPolicy())
