"""The system scales streams by their rates: in virtual time, with the requests and the reasons that callers see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc import ScalingPolicy, Stream
from eventproc.base.clock import new_id
from eventproc.cli.demo.auto_scale import AutoScaleRun
from eventproc.cli.demo.report import DemoTask
from eventproc.errors import AlreadyExists, InvalidArgument, ScaleRefused
from eventproc.runtime import Eventproc
from eventproc.store.catalog import get_stream, insert_stream
from eventproc.store.database import Tx
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.scaling import LoadVerdict
from eventproc.store.requests import Request, RequestOrigin
from eventproc.testing import VirtualClock
from eventproc.workflows.policies import wanted_scale
from eventproc.workflows.request_runner import submit
from eventproc.workflows.requests import ScaleStream
from tests.support.memory import (
    clock as clock,  # a fixture
    timed_ep as timed_ep,  # a fixture, too: ep
)
from tests.support.virtual_time import anyio_backend as anyio_backend  # a fixture

WINDOW_MS = 1_000
TARGET = 10


def by_events(**options: int) -> ScalingPolicy:
    return ScalingPolicy.by_event_rate(TARGET, **{"window_ms": WINDOW_MS, **options})


@asynccontextmanager
async def written_to(stream: Stream, per_second: int, payload: bytes = b"x") -> AsyncIterator[None]:
    """Write events of many keys at this rate while the block runs."""

    async def write() -> None:
        async with stream.writer() as writer:
            number = 0
            while True:
                await writer.write_many([(payload, str(number + each)) for each in range(per_second)])
                number += per_second
                await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        yield
        tasks.cancel_scope.cancel()


async def scales(ep: Eventproc) -> list[Request]:
    return [each for each in await ep.requests.list() if each.kind == "scale"]


async def test_a_policy_waits_until_the_clock_has_come_as_far_as_before_it_was_set_back(
    ep: Eventproc, clock: VirtualClock
) -> None:
    """New events have the time of the last one until then: their rates are not known."""
    stream = await ep.create_stream("s/t", scaling=by_events())
    async with written_to(stream, TARGET // 2):
        await anyio.sleep(60)
        clock.step_wall(-50_000)
        await anyio.sleep(40)
        assert await scales(ep) == []
        described = await stream.describe()
        assert described.scaling is not None
        (seen,) = described.scaling.segments
        assert seen.reason == "young: left alone for 14 s more"
        assert seen.rates == (0, 0, 0, 0)


async def test_a_burst_scales_a_stream_up_and_quiet_scales_it_down(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=by_events(segments_max=4))
    async with written_to(stream, 3 * TARGET):
        await anyio.sleep(4)
        assert len(await stream.segments()) == 1  # it is young
        await anyio.sleep(2)
        assert len(await stream.segments()) == 2
        await anyio.sleep(6)
        assert len(await stream.segments()) > 2
        await anyio.sleep(30)
        assert len(await stream.segments()) <= 4
    up = await scales(ep)
    assert {each.origin for each in up} == {RequestOrigin.POLICY}
    assert all(each.error is None for each in up)
    await anyio.sleep(60)
    assert len(await stream.segments()) == 1
    count = len(await scales(ep))
    await anyio.sleep(600)
    assert len(await scales(ep)) == count  # it rests


async def test_the_rate_in_bytes_counts_what_events_weigh(ep: Eventproc) -> None:
    policy = ScalingPolicy.by_byte_rate(1000, window_ms=WINDOW_MS)
    light = await ep.create_stream("s/light", scaling=policy)
    heavy = await ep.create_stream("s/heavy", scaling=policy)
    async with written_to(light, 5), written_to(heavy, 5, b"x" * 500):
        await anyio.sleep(7)
    assert len(await light.segments()) == 1
    assert len(await heavy.segments()) == 2


@pytest.mark.acceptance("B7", differs="the policy looks again later: its scale is not recorded meanwhile")
async def test_a_policy_waits_while_a_change_of_a_person_is_pending() -> None:
    # Without a host, so that the person's scale stays pending.
    async with eventproc.open_memory(clock=VirtualClock(), host=False) as ep:
        await ep.create_scope("s")
        await ep.db.write(lambda tx: insert_stream(tx, "s/t", StreamConfig(by_events())))
        stream = await ep.stream("s/t")
        async with written_to(stream, 100):
            await anyio.sleep(6)

        def wants(tx: Tx) -> bool:
            return wanted_scale(tx, get_stream(tx, "s/t").value) is not None

        async def waits_for() -> str | None:
            described = (await stream.describe()).scaling
            assert described is not None
            return described.waits_for

        assert await ep.db.read(wants)
        assert await waits_for() is None
        (segment,) = (await stream.epochs())[-1].segments
        request = ScaleStream("s/t", stream.stream_id, (segment.id,), segment.range.split(3))
        await ep.db.write(lambda tx: submit(tx, request, new_id(ep.db.clock)))
        assert not await ep.db.read(wants)
        assert "scale of a person" in str(await waits_for())


async def test_describe_says_what_the_policy_sees_and_why_it_acted(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=by_events())
    async with written_to(stream, 6 * TARGET):
        await anyio.sleep(3)
        found = (await stream.describe()).scaling
        assert found is not None
        (only,) = found.segments
        assert only.verdict is LoadVerdict.YOUNG
        assert only.rates[1] >= TARGET
        assert found.last_action is None
        await anyio.sleep(3)
    found = (await stream.describe()).scaling
    assert found is not None
    assert [str(each.segment) for each in found.segments] == ["1.1", "2.1"]
    assert str(found.last_action).startswith("0.0 is hot: ")
    assert (await (await ep.create_stream("s/fixed")).describe()).scaling is None


async def test_an_update_to_a_policy_by_rate_keeps_the_segments_down_to_its_minimum(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(3))
    await stream.update(scaling=by_events())
    assert len(await stream.segments()) == 3
    await anyio.sleep(60)  # and the policy is kept from now on: they are merged
    assert len(await stream.segments()) == 1
    await stream.update(scaling=by_events(segments_min=4))
    assert len(await stream.segments()) == 4
    await anyio.sleep(60)
    assert len(await stream.segments()) == 4
    await stream.update(scaling=ScalingPolicy.fixed(2))
    assert len(await stream.segments()) == 2


async def test_a_person_may_not_leave_the_limits_of_the_policy(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=by_events(segments_min=2, segments_max=3))
    first, second = await stream.segments()
    with pytest.raises(ScaleRefused, match="2 to 3 are possible"):
        await stream.split(first.id, 3)
    with pytest.raises(ScaleRefused, match="2 to 3 are possible"):
        await stream.merge(first.id, second.id)
    with pytest.raises(AlreadyExists, match=r"stream\.update"):
        await ep.create_stream("s/t", scaling=by_events(segments_min=2))


async def test_sealed_and_fixed_streams_are_never_scaled(ep: Eventproc) -> None:
    fixed = await ep.create_stream("s/fixed", scaling=ScalingPolicy.fixed(2))
    sealed = await ep.create_stream("s/sealed", scaling=by_events())
    async with written_to(fixed, 100), written_to(sealed, 100):
        await anyio.sleep(4)
    await sealed.seal()
    await anyio.sleep(60)
    assert await scales(ep) == []
    assert (await sealed.describe()).scaling is not None


@pytest.mark.parametrize(
    "options",
    [
        {"target": 0},
        {"target": 1, "factor": 1},
        {"target": 1, "segments_min": 0},
        {"target": 1, "segments_min": 3, "segments_max": 2},
        {"target": 1, "window_ms": 999},
    ],
)
def test_a_policy_out_of_range_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument):
        ScalingPolicy.by_event_rate(**options)


async def test_the_demo_scales_up_in_its_burst_and_down_afterwards(ep: Eventproc, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("tailnum,dep_delay\n" + "".join(f"N{number % 40},{number}\n" for number in range(1_500)))

    task = DemoTask(file, "tailnum", None, tmp_path, None)
    report = await AutoScaleRun(task, ep, "s", lambda _, __: None).run()
    assert report.flawless
    assert report.missed == ""
    assert report.facts["segments_max"] >= 4
    assert report.facts["segments_at_the_end"] == 1
    assert report.facts["ms_until_scaled_down"] < 40_000
