"""Requests that join an equal pending one: their ids find it, and their patience counts."""

from __future__ import annotations

import anyio
import pytest

from eventproc.store.model.errors import Expired, InProgress, InvalidArgument, NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.requests import OUTCOME_MEMORY_MS, RequestStatus, forget_outcomes
from eventproc.streams.operations import SplitSegment
from eventproc.workflows.requests import PRESENT, CreateStream, ScaleStream
from tests.workflows.support import Life

CREATE = CreateStream("s/t", StreamConfig(scaling=ScalingPolicy.fixed(1)))


@pytest.mark.acceptance("A12")
async def test_a_joined_id_finds_the_request_and_never_runs_again(life: Life) -> None:
    await life.done(CREATE)
    asked = ScaleStream("s/t", 4, (SegmentId(0),), KeyRange(0, 1).split(2))
    first_id, second_id = life.new_id(), life.new_id()
    first = await life.ep.requests.submit(asked, request_id=first_id)
    assert await life.ep.requests.submit(asked, request_id=second_id) == first
    assert await life.ep.requests.submit(asked, request_id=second_id) == first
    assert await life.ep.requests.get(second_id) == first
    with pytest.raises(InProgress):
        await life.ep.requests.submit(ScaleStream("s/t", 4, (SegmentId(0),), KeyRange(0, 1).split(3)))
    await life.run()
    ended = await life.ep.requests.get(first_id)
    assert ended.status is RequestStatus.DONE
    assert await life.ep.requests.get(second_id) == ended
    assert await life.ep.requests.submit(asked, request_id=second_id) == ended
    assert await life.ep.requests.wait(second_id, timeout_ms=0) == ended
    with pytest.raises(InvalidArgument, match="belongs to a different request"):
        await life.ep.requests.submit(CREATE, request_id=second_id)
    assert (await life.record("s/t")).value.epoch == 1
    await life.check()


async def test_a_joined_id_names_what_its_own_caller_asked_for(life: Life) -> None:
    await life.done(CREATE)
    split = SplitSegment("s/t", PRESENT, "0.0")
    scale_id, split_id = life.new_id(), life.new_id()
    first = await life.ep.requests.submit(
        ScaleStream("s/t", 4, (SegmentId(0),), KeyRange(0, 1).split(2)), request_id=scale_id
    )
    assert (await life.ep.requests.submit(split, request_id=split_id)).id == first.id
    await life.run()
    assert (await life.ep.requests.submit(split, request_id=split_id)).status is RequestStatus.DONE
    for request_id, other in ((scale_id, split), (split_id, SplitSegment("s/t", PRESENT, "0.0", 3))):
        with pytest.raises(InvalidArgument, match="belongs to a different request: scale of s/t"):
            await life.ep.requests.submit(other, request_id=request_id)
    await life.check()


async def test_wait_by_a_joined_id_returns_the_outcome(life: Life) -> None:
    second_id = life.new_id()
    await life.ep.requests.submit(CREATE)
    await life.ep.requests.submit(CREATE, request_id=second_id)
    outcomes: list[RequestStatus] = []

    async def wait() -> None:
        outcomes.append((await life.ep.requests.wait(second_id)).status)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await life.run()
    assert outcomes == [RequestStatus.DONE]


async def test_a_joined_id_is_forgotten_with_its_request(life: Life) -> None:
    second_id = life.new_id()
    await life.ep.requests.submit(CREATE)
    await life.ep.requests.submit(CREATE, request_id=second_id)
    await life.run()
    life.clock.advance(OUTCOME_MEMORY_MS + 1)
    await life.db.write(forget_outcomes)
    with pytest.raises(NotFound):
        await life.ep.requests.get(second_id)
    with pytest.raises(Expired):
        await life.ep.requests.submit(CREATE, request_id=second_id)
    left = await life.db.read(lambda tx: tx.execute("SELECT count(*) FROM joined").fetchone()[0])
    assert left == 0


@pytest.mark.parametrize(
    "first, second, expired_after_50",
    [(10, None, False), (None, 10, False), (10, 100, False), (100, 10, False), (10, 20, True)],
)
async def test_a_joined_request_may_be_begun_for_as_long_as_anyone_allows(
    life: Life, first: int | None, second: int | None, expired_after_50: bool
) -> None:
    # In minutes, which only pass by hand: on asyncio the clock runs with the machine's, however slow that is.
    asked = await life.ep.requests.submit(CREATE, within_ms=_minutes(first))
    joined = await life.ep.requests.submit(CREATE, within_ms=_minutes(second))
    assert joined.id == asked.id
    assert joined == await life.ep.requests.get(asked.id)
    life.clock.advance(50 * 60_000)
    await life.run()
    ended = await life.ep.requests.get(asked.id)
    assert ended.status is (RequestStatus.REJECTED if expired_after_50 else RequestStatus.DONE)
    assert isinstance(ended.error, Expired) is expired_after_50


def _minutes(count: int | None) -> int | None:
    """Return so many minutes as a deadline in ms; None is none."""
    return None if count is None else count * 60_000
