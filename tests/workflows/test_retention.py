"""Retention: streams are truncated by age and by size, beside a twin that goes through the events one by one."""

from __future__ import annotations

import anyio
import attrs
import pytest
from hypothesis import given, strategies as st

import eventproc
from eventproc import RetentionPolicy
from eventproc.base.clock import new_id
from eventproc.cluster import policies
from eventproc.cluster.policies import FAILED_MS
from eventproc.errors import CorruptRecord, InvalidArgument
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.requests import RequestOrigin, RequestStatus, finish_request, submit_request
from eventproc.streams import Stream
from eventproc.testing import VirtualClock, run_seeded
from eventproc.workflows.policies import PassedOffsets, PolicyLook, look_at_stream
from eventproc.workflows.policies.look import RETENTION_MS
from eventproc.workflows.requests import TruncateStream
from tests.support.memory import (
    clock as clock,  # a fixture
    timed_ep as timed_ep,  # a fixture, too: ep
)
from tests.support.reading import payloads_of
from tests.support.virtual_time import anyio_backend as anyio_backend  # a fixture

HOUR_MS = 3_600_000
AGE_MS = 600_000


async def wanted(ep: Eventproc, name: str = "s/t") -> list[TruncateStream]:
    def look(tx: Tx) -> list[TruncateStream]:
        found = look_at_stream(tx, name)
        return [each for each in (found.requests if found else ()) if isinstance(each, TruncateStream)]

    return await ep.db.read(look)


@attrs.frozen
class Written:
    """An event as the twin knows it."""

    at_ms: int
    size_bytes: int


def kept_by_twin(events: list[Written], policy: RetentionPolicy, now_ms: int) -> int:
    """Return how many of the newest events the policy keeps; events of one time stay or go together."""
    for count in range(len(events) + 1):
        kept, gone = events[len(events) - count :], events[: len(events) - count]
        if kept and gone and gone[-1].at_ms == kept[0].at_ms:
            continue
        too_old = gone and policy.age_ms is not None and gone[-1].at_ms < now_ms - policy.age_ms
        enough = policy.size_bytes is not None and sum(each.size_bytes for each in kept) >= policy.size_bytes
        if not gone or too_old or enough:
            return count
    return len(events)


@given(
    steps=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40)), min_size=1, max_size=25),
    age_ms=st.none() | st.integers(1, 400),
    size_bytes=st.none() | st.integers(1, 600),
)
def test_the_policy_keeps_what_the_twin_keeps(
    steps: list[tuple[int, int]], age_ms: int | None, size_bytes: int | None
) -> None:
    policy = RetentionPolicy(age_ms=age_ms, size_bytes=size_bytes)

    async def run() -> None:
        clock = VirtualClock()
        async with eventproc.open_memory(clock=clock, host=True) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t", retention=policy)
            written: list[Written] = []
            async with stream.writer() as writer:
                clock.advance(1)
                for pause_ms, size in steps:
                    clock.advance(pause_ms)
                    await writer.write(b"x" * size)
                    written.append(Written(clock.wall_ms(), FRAME_BYTES + size))
            for request in await wanted(ep):
                await stream.truncate(eventproc.StreamCut("s/t", stream.stream_id, request.offsets))
            kept = await payloads_of(stream)
            assert len(kept) == kept_by_twin(written, policy, clock.wall_ms())

    run_seeded(run, seed=0)


async def test_the_truncations_of_a_policy_leave_one_outcome_beside_those_of_persons(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(size_bytes=1))
    await _write(stream, b"first")
    await stream.truncate(await stream.tail())
    for _ in range(5):
        await _write(stream, b"x", b"y")
        clock.step_wall(2)
        await _write(stream, b"z")
        await anyio.sleep(RETENTION_MS / 1000)
    assert await payloads_of(stream) == [b"z"]
    found = [each for each in await ep.requests.list() if each.kind == "truncate"]
    assert [each.origin for each in found] == [RequestOrigin.POLICY, RequestOrigin.PERSON]
    assert all(each.status is RequestStatus.DONE for each in found)


async def test_an_outcome_that_a_person_joined_stays() -> None:
    async with eventproc.open_memory(host=False) as ep:
        ids = [new_id(ep.db.clock) for _ in range(4)]

        def repeat(tx: Tx) -> None:
            for number, request_id in enumerate(ids[:3]):
                submit_truncation(tx, request_id, RequestOrigin.POLICY)
                if number == 0:
                    submit_truncation(tx, ids[3], RequestOrigin.PERSON)
                finish_request(tx, request_id)

        await ep.db.write(repeat)
        assert {each.id for each in await ep.requests.list()} == {ids[0], ids[2]}
        assert (await ep.requests.get(ids[3])).id == ids[0]


def submit_truncation(tx: Tx, request_id: str, origin: RequestOrigin) -> None:
    submit_request(
        tx,
        request_id=request_id,
        target="s/t",
        kind="truncate",
        asked=b"{}",
        plan=lambda: b"{}",
        satisfied=lambda: False,
        origin=origin,
    )


async def _write(stream: Stream, *payloads: bytes) -> None:
    async with stream.writer() as writer:
        for payload in payloads:
            await writer.write(payload)


async def test_a_topic_keeps_its_policy_over_partitions_that_were_added(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2, retention=RetentionPolicy(age_ms=AGE_MS))
    await _write(topic, b"old", b"older")
    await topic.add_partitions(2)
    await anyio.sleep((AGE_MS + 2 * RETENTION_MS) / 1000)
    await _write(topic, b"young")
    assert await payloads_of(topic) == [b"young"]
    assert len(await topic.partitions()) == 4
    await topic.alter(retention=RetentionPolicy())
    assert len(await topic.partitions()) == 4
    await anyio.sleep(2 * AGE_MS / 1000)
    assert await payloads_of(topic) == [b"young"]


@pytest.mark.parametrize("back_ms", [2 * HOUR_MS, 30 * 365 * 24 * HOUR_MS])
async def test_a_limit_of_size_holds_although_the_clock_went_back(
    ep: Eventproc, clock: VirtualClock, back_ms: int
) -> None:
    size = 2 * (FRAME_BYTES + 1)
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(size_bytes=size))
    clock.step_wall(HOUR_MS)
    for payload in (b"a", b"b", b"c", b"d"):
        await _write(stream, payload)
        clock.advance(1)
    clock.step_wall(-back_ms)
    [request] = await wanted(ep)
    await stream.truncate(eventproc.StreamCut("s/t", stream.stream_id, request.offsets))
    assert await payloads_of(stream) == [b"c", b"d"]


async def test_limits_truncate_where_the_head_is_behind_them_and_leave_the_rest(
    ep: Eventproc, clock: VirtualClock
) -> None:
    stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
    ahead, behind = [each.id for each in await stream.segments()]
    async with stream.writer() as writer:
        await writer.write_many([(b"x", str(number)) for number in range(20)])
        clock.advance(HOUR_MS)
        begin_ms = clock.wall_ms()
        at_hour = await stream.tail()
        await writer.write_many([(b"x", str(number)) for number in range(20)])
    tail = await stream.tail()
    offsets = {ahead: tail.offsets[ahead], behind: 0}
    await stream.truncate(eventproc.StreamCut("s/t", stream.stream_id, offsets))
    expected = {ahead: tail.offsets[ahead], behind: at_hour.offsets[behind]}
    assert (await stream.cut_at(begin_ms)).offsets == expected
    await stream.update(retention=RetentionPolicy(age_ms=clock.wall_ms() - begin_ms + 1))
    [request] = await wanted(ep)
    assert request.offsets == expected


async def test_a_stream_whose_policies_fail_does_not_hold_up_the_others(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def look(tx: Tx, name: str, passed: PassedOffsets | None) -> PolicyLook | None:
        if name == "s/bad":
            raise CorruptRecord(key=name, reason="planted")
        return look_at_stream(tx, name, passed)

    monkeypatch.setattr(policies, "look_at_stream", look)
    policy = RetentionPolicy(age_ms=AGE_MS)
    streams = [await ep.create_stream(f"s/{name}", retention=policy) for name in ("a", "bad", "c")]
    for stream in streams:
        await _write(stream, b"old")
    await anyio.sleep(AGE_MS / 1000 + 2 * RETENTION_MS / 1000)
    assert [await payloads_of(each) for each in streams] == [[], [b"old"], []]
    monkeypatch.undo()  # it passed
    await anyio.sleep(2 * FAILED_MS / 1000)
    assert await payloads_of(streams[1]) == []
    assert "s/bad: its policies wait after a failure" in caplog.text


async def test_a_policy_leaves_the_segments_as_they_were_scaled(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    await stream.split((await stream.describe()).segments[0].id, 3)
    await stream.update(retention=RetentionPolicy(age_ms=HOUR_MS))
    found = await stream.describe()
    assert len(found.segments) == 3
    assert found.config.retention == RetentionPolicy(age_ms=HOUR_MS)


async def test_sealed_streams_and_streams_without_a_policy_stay(ep: Eventproc) -> None:
    sealed, without = await ep.create_stream("s/a"), await ep.create_stream("s/b")
    for stream in (sealed, without):
        await _write(stream, b"x", b"y")
    await anyio.sleep(0.002)  # append times count in ms
    await sealed.update(retention=RetentionPolicy(age_ms=1))
    await sealed.seal()
    assert await wanted(ep, "s/a") == await wanted(ep, "s/b") == []


@pytest.mark.parametrize("policy", [RetentionPolicy(age_ms=0), RetentionPolicy(size_bytes=-1)])
async def test_limits_must_be_positive(ep: Eventproc, policy: RetentionPolicy) -> None:
    with pytest.raises(InvalidArgument, match="retention"):
        await ep.create_stream("s/t", retention=policy)
    assert await ep.streams("s") == []
