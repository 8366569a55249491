"""Retention by consumption: a stream loses what all its groups have passed, between a minimum and a maximum."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest

import eventproc
from eventproc import Delivery, RetentionPolicy, ScalingPolicy, StreamCut
from eventproc.base.clock import new_id
from eventproc.errors import InvalidArgument, InvalidCut
from eventproc.groups.operations import reset_group
from eventproc.runtime import Eventproc
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.groups import RetainedPart, consumed_cut
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.scaling import windows_ms
from eventproc.store.requests import RequestOrigin
from eventproc.streams import Stream
from eventproc.testing import VirtualClock, check, run_seeded
from eventproc.workflows.policies import look_at_stream
from eventproc.workflows.policies.look import RETENTION_MS
from eventproc.workflows.policies.retention import retained_head
from eventproc.workflows.request_runner import submit
from eventproc.workflows.requests import TruncateStream
from tests.support.memory import (
    clock as clock,  # a fixture
    timed_ep as timed_ep,  # a fixture, too: ep
)

EVENT = FRAME_BYTES + 1
MINUTE_MS = 60_000


async def write(stream: Stream, clock: VirtualClock, count: int) -> None:
    """Append events of one byte, one a minute."""
    async with stream.writer() as writer:
        for number in range(count):
            clock.advance(MINUTE_MS)
            await writer.write(b"x", key=str(number))


async def group_at(
    ep: Eventproc, name: str, cut: StreamCut, retains: RetainedPart | None = "progress"
) -> eventproc.Group:
    return await ep.create_group(name, ["s/t"], start={"s/t": cut}, retains=retains)


def at(stream: Stream, events: int) -> StreamCut:
    """Return the cut after so many events of the first segment."""
    return StreamCut("s/t", stream.stream_id, {SegmentId(0): events * EVENT})


async def head_after(ep: Eventproc) -> StreamCut:
    """Return the head that the policy asks for."""

    def look(tx: Tx) -> StreamCut:
        return retained_head(tx, get_stream(tx, "s/t").value)

    return await ep.db.read(look)


@pytest.mark.acceptance(
    "F2", differs="sizes count from the tail of the index; there is no retention set whose cuts could tie"
)
@pytest.mark.parametrize(
    "policy, groups, kept_from",
    [
        (RetentionPolicy(consumed=True), [7, 4], 4),  # the earlier group decides
        (RetentionPolicy(consumed=True), [10], 10),
        (RetentionPolicy(consumed=True), [], 0),  # no subscriber, and no minimum
        (RetentionPolicy(consumed=True, size_bytes_min=3 * EVENT), [], 7),  # no subscriber: the minimum
        (RetentionPolicy(consumed=True, size_bytes_min=3 * EVENT), [9], 7),  # within the minimum
        (RetentionPolicy(consumed=True, size_bytes_min=3 * EVENT), [5], 5),
        (RetentionPolicy(consumed=True, size_bytes=4 * EVENT), [1], 6),  # far behind the maximum
        (RetentionPolicy(consumed=True, size_bytes=4 * EVENT), [8], 8),
        (RetentionPolicy(consumed=True, size_bytes_min=2 * EVENT, size_bytes=4 * EVENT), [7], 7),
        (RetentionPolicy(consumed=True, age_ms_min=3 * MINUTE_MS + 30_000), [9], 6),
        (RetentionPolicy(consumed=True, age_ms_min=60 * MINUTE_MS), [9], 0),
        (RetentionPolicy(consumed=True, age_ms=4 * MINUTE_MS + 30_000), [1], 5),
        (
            RetentionPolicy(consumed=True, age_ms_min=2 * MINUTE_MS, size_bytes_min=5 * EVENT),
            [9],
            5,
        ),  # both keep
    ],
)
async def test_the_head_is_that_of_all_groups_between_the_minimum_and_the_maximum(
    ep: Eventproc, clock: VirtualClock, policy: RetentionPolicy, groups: list[int], kept_from: int
) -> None:
    stream = await ep.create_stream("s/t", retention=policy)
    await write(stream, clock, 10)
    for number, events in enumerate(groups):
        await group_at(ep, f"s/g{number}", at(stream, events))
    assert await head_after(ep) == at(stream, kept_from)


async def test_a_stream_that_scales_by_rate_keeps_the_consumed_events_of_its_longest_window(
    ep: Eventproc, clock: VirtualClock
) -> None:
    scaling = ScalingPolicy.by_event_rate(1_000_000)
    stream = await ep.create_stream("s/t", scaling=scaling, retention=RetentionPolicy(consumed=True))
    window = windows_ms(scaling)[-1] // MINUTE_MS
    await write(stream, clock, window + 10)
    await group_at(ep, "s/g", await stream.tail())
    clock.advance(MINUTE_MS // 2)
    assert await head_after(ep) == at(stream, 10)


async def test_only_groups_that_retain_hold_events_back(ep: Eventproc, clock: VirtualClock) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await write(stream, clock, 10)
    await group_at(ep, "s/spectator", at(stream, 1), retains=None)
    assert await head_after(ep) == at(stream, 0)
    await group_at(ep, "s/g", at(stream, 8))
    assert await head_after(ep) == at(stream, 8)


@pytest.mark.acceptance("F3", differs="a group that has allowed nothing keeps everything")
async def test_a_manual_group_keeps_what_it_has_not_allowed_to_be_truncated(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await write(stream, clock, 10)
    group = await group_at(ep, "s/g", at(stream, 9), retains="manual")
    assert await head_after(ep) == at(stream, 0)
    await group.allow_truncation(at(stream, 4))
    assert await head_after(ep) == at(stream, 4)
    with pytest.raises(InvalidCut, match="has allowed truncation up to"):
        await group.allow_truncation(at(stream, 3))
    with pytest.raises(InvalidCut, match="inside an event"):
        await group.allow_truncation(StreamCut("s/t", stream.stream_id, {SegmentId(0): 5 * EVENT + 1}))
    other = await ep.create_stream("s/other")
    with pytest.raises(InvalidArgument, match="does not read it"):
        await group.allow_truncation(await other.tail())
    await group_at(ep, "s/plain", at(stream, 9))
    with pytest.raises(InvalidArgument, match="manual"):
        await (await ep.group("s/plain")).allow_truncation(at(stream, 9))
    await group.delete()
    assert await head_after(ep) == at(stream, 9)


async def test_what_a_group_allowed_counts_no_longer_once_it_has_left_the_stream(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await ep.create_stream("s/other")
    await write(stream, clock, 10)
    group = await group_at(ep, "s/g", at(stream, 9), retains="manual")
    await group_at(ep, "s/behind", at(stream, 0))
    await group.allow_truncation(at(stream, 8))
    await group.reset(streams=["s/other"])
    await group.reset(streams=["s/t"])
    await (await ep.group("s/behind")).delete()
    assert await head_after(ep) == at(stream, 0)
    await group.allow_truncation(at(stream, 2))
    assert await head_after(ep) == at(stream, 2)


async def test_a_group_in_the_middle_of_a_split_keeps_its_own_half(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await write(stream, clock, 10)
    await stream.split("0.0")
    await write(stream, clock, 10)
    group = await ep.create_group("s/g", ["s/t"])
    await ep.create_group("s/ahead", ["s/t"], start="tail")
    async with group.reader("r") as reader, aclosing(aiter(reader)) as events:
        for _ in range(13):
            await anext(events)
            await reader.commit()
        position = (await group.cuts())["s/t"]
        assert len(position.offsets) == 2
        assert await head_after(ep) == position


async def test_a_share_group_keeps_what_it_has_not_finished(ep: Eventproc, clock: VirtualClock) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await ep.create_share_group("s/shared", ["s/t"])
    await write(stream, clock, 4)
    await stream.split("0.0")
    await write(stream, clock, 4)

    def consumed(tx: Tx) -> StreamCut | None:
        return consumed_cut(tx, get_stream(tx, "s/t").value)

    assert await ep.db.read(consumed) == at(stream, 0)
    async with (await ep.share_group("s/shared")).consumer("c") as consumer:
        polled: list[Delivery] = []
        while len(polled) < 8:
            polled += await consumer.poll(8)
        old = [each for each in polled if each.event.segment == 0]
        await consumer.accept([each for each in polled if each.event.segment != 0])
        assert await ep.db.read(consumed) == at(stream, 0)  # though it has finished successors
        await consumer.accept(old[0])
        assert await ep.db.read(consumed) == at(stream, 1)
        await consumer.accept(old[1:])
        assert await ep.db.read(consumed) == await stream.tail()


async def test_a_share_group_keeps_segments_that_it_has_not_opened(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await ep.create_share_group("s/shared", ["s/t"], start="head")
    left, last = await stream.split("0.0")
    await write(stream, clock, 10)
    for _ in range(3):
        _, last = await stream.split(last)
    segments = [each.id for each in await stream.segments()]
    await stream.truncate(StreamCut("s/t", stream.stream_id, dict.fromkeys(segments, 0)))
    truncation = await stream.truncation()
    assert truncation is not None
    assert truncation.first_epoch > 1  # the epoch that created the left segment was dropped
    kept = await stream.size_between()
    assert kept.events > 0
    assert await head_after(ep) == await stream.head()
    async with (await ep.share_group("s/shared")).consumer("c") as consumer:
        assert {each.event.segment for each in await consumer.poll(100)} == {left}


async def test_a_share_group_keeps_a_stream_that_was_created_again_before_it_polls(
    ep: Eventproc, clock: VirtualClock
) -> None:
    policy = RetentionPolicy(consumed=True)
    stream = await ep.create_stream("s/t", retention=policy)
    await ep.create_share_group("s/shared", ["s/t"])
    await stream.seal()
    await stream.delete()
    stream = await ep.create_stream("s/t", retention=policy)
    await write(stream, clock, 10)
    await group_at(ep, "s/readers", at(stream, 4))
    assert await head_after(ep) == at(stream, 0)
    async with (await ep.share_group("s/shared")).consumer("c") as consumer:
        await consumer.accept(await consumer.poll(10))
    assert await head_after(ep) == at(stream, 4)


async def test_a_processor_keeps_a_stream_that_was_created_again_while_its_app_is_down(
    ep: Eventproc, clock: VirtualClock
) -> None:
    app, policy = eventproc.App(), RetentionPolicy(consumed=True)

    @app.processor("s/t", group="s/p")
    async def handle(event: eventproc.Event) -> None: ...

    stream = await ep.create_stream("s/t", retention=policy)
    async with ep.run(app):
        pass
    await stream.seal()
    await stream.delete()
    stream = await ep.create_stream("s/t", retention=policy)
    await write(stream, clock, 3)
    await group_at(ep, "s/g", at(stream, 3))
    assert await head_after(ep) == at(stream, 0)


@pytest.mark.parametrize("was_online", [False, True])
async def test_a_group_that_drops_deleted_streams_keeps_one_that_was_created_again_before_it_reads(
    ep: Eventproc, clock: VirtualClock, was_online: bool
) -> None:
    policy = RetentionPolicy(consumed=True)
    stream = await ep.create_stream("s/t", retention=policy)
    dropping = await ep.create_group("s/d", ["s/t"], on_deleted="drop")
    await stream.seal()
    await stream.delete()
    if was_online:
        async with dropping.reader("r"):
            pass
    stream = await ep.create_stream("s/t", retention=policy)
    await write(stream, clock, 3)
    await group_at(ep, "s/g", at(stream, 3))
    assert await head_after(ep) == at(stream, 0)
    async with dropping.reader("r") as reader:
        events = [each async for each in reader.until(at(stream, 2))]
        assert len(events) == 2
    assert await head_after(ep) == at(stream, 2)


async def test_a_group_before_the_kept_history_counts_with_the_head(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await write(stream, clock, 2)
    group = await group_at(ep, "s/g", at(stream, 0), retains="manual")
    await group.allow_truncation(at(stream, 2))
    last = SegmentId(0)
    for _ in range(4):
        last = (await stream.split(last))[-1]
    await stream.truncate(await stream.tail())
    head = await stream.head()
    await write(stream, clock, 5)
    assert await head_after(ep) == head  # alone
    await ep.create_group("s/ahead", ["s/t"], start="tail")
    assert await head_after(ep) == head  # and beside another group


@pytest.mark.acceptance("F1", differs="no set of cuts is kept, so there is none to trim")
def test_what_was_consumed_is_freed_within_a_minute() -> None:
    async def run() -> None:
        async with eventproc.open_memory(clock=VirtualClock()) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
            async with stream.writer() as writer:
                await writer.write_many([(b"x" * 5_000, None)] * 6)
            group = await ep.create_group("s/g", ["s/t"])
            async with group.reader("r") as reader, aclosing(aiter(reader)) as events:
                for _ in range(6):
                    await anext(events)
                await reader.commit()
                assert (await stream.describe()).events == 6
                await anyio.sleep(2 * RETENTION_MS / 1000)
            found = await stream.describe()
            assert (found.events, found.size_bytes) == (0, 0)
            assert await ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM blob").fetchone()[0]) == 0
            (request,) = [each for each in await ep.requests.list() if each.kind == "truncate"]
            assert request.origin is RequestOrigin.POLICY
            await check(ep.db)

    run_seeded(run, seed=0)


async def test_a_truncation_of_the_policy_is_refused_if_a_group_went_back_meanwhile(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await write(stream, clock, 10)
    await group_at(ep, "s/g", at(stream, 8))

    def submit_wanted(tx: Tx) -> str:
        look = look_at_stream(tx, "s/t")
        assert look is not None
        (request,) = look.requests
        assert isinstance(request, TruncateStream)
        made = submit(tx, request, new_id(ep.db.clock), origin=RequestOrigin.POLICY)
        reset_group(tx, group="s/g", start="head")
        return made.id

    ended = await ep.requests.wait(await ep.db.write(submit_wanted))
    assert "a group needs events before it" in str(ended.error)
    assert await stream.head() == at(stream, 0)


@pytest.mark.parametrize(
    "policy, reason",
    [
        (RetentionPolicy(age_ms_min=5), "consumed=True"),
        (RetentionPolicy(consumed=True, age_ms_min=5, age_ms=4), "above 4 ms"),
        (RetentionPolicy(consumed=True, size_bytes_min=0), "smallest retention size"),
    ],
)
async def test_minimums_must_fit(ep: Eventproc, policy: RetentionPolicy, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        await ep.create_stream("s/t", retention=policy)
