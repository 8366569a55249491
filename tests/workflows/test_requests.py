"""Submit, outcome, ids and owners: what is asked twice runs once, and a fenced host changes nothing."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.base.clock import new_id
from eventproc.store.model.errors import (
    AlreadyExists,
    Expired,
    InProgress,
    InvalidArgument,
    NotFound,
    OwnerFenced,
    StillPending,
    StreamReplaced,
    WorkflowFailed,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamState
from eventproc.store.requests import OUTCOME_MEMORY_MS, RequestStatus, forget_outcomes
from eventproc.workflows.request_runner import step
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteScope,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from eventproc.workflows.sweeps import free_due
from tests.workflows.support import Life, event_of, summary


def _config(count: int) -> StreamConfig:
    return StreamConfig(scaling=ScalingPolicy.fixed(count))


async def test_equal_request_joins_a_pending_one_and_a_different_one_is_refused(
    life: Life,
) -> None:
    first = await life.ep.requests.submit(CreateStream("s/t", _config(2)))
    joined = await life.ep.requests.submit(CreateStream("s/t", _config(2)))
    assert joined == first
    with pytest.raises(InProgress) as caught:
        await life.ep.requests.submit(CreateStream("s/t", _config(3)))
    assert caught.value.request_id == first.id
    assert len(await life.ep.requests.list()) == 1
    await life.run()
    assert (await life.ep.requests.get(first.id)).status is RequestStatus.DONE
    with pytest.raises(AlreadyExists):
        await life.ep.requests.submit(CreateStream("s/t", _config(3)))


async def test_the_order_of_segments_to_seal_makes_no_other_request(life: Life) -> None:
    await life.done(CreateStream("s/t", StreamConfig(scaling=ScalingPolicy.fixed(2))))
    ranges = (KeyRange(0.0, 0.25), KeyRange(0.25, 1.0))
    first = await life.ep.requests.submit(ScaleStream("s/t", 4, (SegmentId(0), SegmentId(1)), ranges))
    assert await life.ep.requests.submit(ScaleStream("s/t", 4, (SegmentId(1), SegmentId(0)), ranges)) == first


@pytest.mark.acceptance(
    "B18", differs="requests of one stream run one after the other: none is postponed for another"
)
async def test_requests_of_other_kinds_and_streams_do_not_stand_in_the_way(life: Life) -> None:
    for name in ("s/t", "s/u"):
        await life.done(CreateStream(name, _config(1)))
    submitted = [
        await life.ep.requests.submit(request)
        for request in (
            UpdateStream("s/t", 4, _config(2)),
            UpdateStream("s/u", 5, _config(2)),
            SealStream("s/t", 4),
            SealStream("s/u", 5),
        )
    ]
    assert len({request.id for request in submitted}) == 4
    await life.run()
    assert {(await life.ep.requests.get(each.id)).status for each in submitted} == {RequestStatus.DONE}
    assert (await life.record("s/t")).value.epoch == 1


async def test_repeated_request_id_returns_the_first_outcome(life: Life) -> None:
    request_id = life.new_id()
    first = await life.perform(CreateStream("s/t", _config(2)), request_id=request_id)
    before = await life.db.read(summary)
    again = await life.perform(CreateStream("s/t", _config(2)), request_id=request_id)
    assert (again, await life.db.read(summary)) == (first, before)
    await life.done(SealStream("s/t", 4))
    await life.done(DeleteStream("s/t", 4))
    assert await life.perform(CreateStream("s/t", _config(2)), request_id=request_id) == first
    assert await life.ep.streams() == [], "a late retry never runs twice"
    with pytest.raises(InvalidArgument, match="belongs to a different request"):
        await life.ep.requests.submit(CreateStream("s/u", _config(2)), request_id=request_id)


async def test_outcomes_are_kept_a_day_and_an_older_id_is_refused(life: Life) -> None:
    request_id = life.new_id()
    await life.perform(CreateStream("s/t", _config(1)), request_id=request_id)
    life.clock.advance(OUTCOME_MEMORY_MS - 60_000)
    await life.db.write(forget_outcomes)
    assert (await life.ep.requests.get(request_id)).status is RequestStatus.DONE
    life.clock.advance(60_001)
    await life.db.write(forget_outcomes)
    with pytest.raises(NotFound):
        await life.ep.requests.get(request_id)
    with pytest.raises(Expired):
        await life.ep.requests.submit(CreateStream("s/u", _config(1)), request_id=request_id)


async def test_pending_request_is_never_forgotten(life: Life) -> None:
    submitted = await life.ep.requests.submit(CreateStream("s/t", _config(1)))
    life.clock.advance(3 * OUTCOME_MEMORY_MS)
    await life.db.write(forget_outcomes)
    assert (
        await life.ep.requests.submit(CreateStream("s/t", _config(1)), request_id=submitted.id)
    ) == submitted
    await life.run()
    assert (await life.ep.requests.get(submitted.id)).status is RequestStatus.DONE


@pytest.mark.acceptance(
    "B5", differs="the slow run is fenced by the owner epoch, or finds the request finished"
)
@pytest.mark.parametrize("kind", ["update", "truncate"])
@pytest.mark.parametrize("fenced", [True, False])
async def test_a_slow_run_overtaken_by_a_second_one_changes_nothing_more(
    life: Life, kind: str, fenced: bool
) -> None:
    await life.done(CreateStream("s/t", _config(1)))
    stream = await life.ep.stream("s/t")
    async with stream.writer() as writer:
        await writer.write(b"event")
    asked: AnyRequest = UpdateStream("s/t", 4, _config(2))
    if kind == "truncate":
        asked = TruncateStream("s/t", 4, dict((await stream.tail()).offsets))
    slow = await life.claim()
    submitted = await life.ep.requests.submit(asked)
    event = await life.db.read(partial(event_of, submitted.id))
    await life.run() if fenced else await life.db.write(
        partial(step, request_id=submitted.id, event=event, owner=slow)
    )
    before, record = await life.db.read(summary), await life.record("s/t")
    assert record.value.state is StreamState.ACTIVE
    assert record.version == 2
    again = partial(step, request_id=submitted.id, event=event, owner=slow)
    if fenced:
        with pytest.raises(OwnerFenced):
            await life.db.write(again)
    else:
        assert await life.db.write(again) is True
    assert (await life.db.read(summary), await life.record("s/t")) == (before, record)


async def test_a_fenced_owner_changes_nothing_at_all(life: Life) -> None:
    old = await life.claim()
    submitted = await life.ep.requests.submit(CreateStream("s/t", _config(1)))
    event = await life.db.read(partial(event_of, submitted.id))
    await life.claim()
    before = await life.db.read(summary)
    for act in (partial(step, request_id=submitted.id, event=event, owner=old), old.fencing(free_due)):
        with pytest.raises(OwnerFenced):
            await life.db.write(act)
    assert await life.db.read(summary) == before


@pytest.mark.acceptance("B13")
async def test_anevent_of_an_old_incarnation_does_not_touch_the_new_one(life: Life) -> None:
    await life.done(CreateStream("s/t", _config(1)))
    old = await life.ep.stream("s/t")
    async with old.writer() as writer:
        await writer.write(b"old")
    cut = await old.tail()
    await life.done(SealStream("s/t", 4))
    delete = await life.perform(DeleteStream("s/t", 4))
    event = await life.db.read(partial(event_of, delete.id))
    await life.done(CreateStream("s/t", _config(1)))
    new = await life.ep.stream("s/t")
    async with new.writer() as writer:
        await writer.write(b"new")
    await life.done(SealStream("s/t", new.stream_id))
    before = await life.db.read(summary)
    owner = await life.claim()
    assert await life.db.write(partial(step, request_id=delete.id, event=event, owner=owner)) is True
    await life.run()
    requests: tuple[AnyRequest, ...] = (
        DeleteStream("s/t", 4),
        SealStream("s/t", 4),
        UpdateStream("s/t", 4, _config(2)),
        ScaleStream("s/t", 4, (SegmentId(0),), ()),
        TruncateStream("s/t", 4, dict(cut.offsets)),
    )
    for late in requests:
        with pytest.raises(StreamReplaced):
            await life.ep.requests.submit(late)
    assert await life.db.read(summary) == before
    await life.check()


async def test_pending_request_for_a_replaced_stream_is_refused(life: Life) -> None:
    await life.done(CreateStream("s/t", _config(1)))
    await life.done(SealStream("s/t", 4))
    await life.ep.requests.submit(DeleteStream("s/t", 4))
    scope = await life.ep.requests.submit(DeleteScope("s"))
    again = await life.ep.requests.submit(SealStream("s/t", 4))
    assert again.status is RequestStatus.DONE
    await life.run()
    assert (await life.ep.requests.get(scope.id)).status is RequestStatus.DONE
    assert await life.ep.scopes() == []
    await life.check()


@pytest.mark.acceptance("B19", differs="the waiter gets StillPending with the request's id")
async def test_a_wait_that_runs_out_says_so_and_the_work_completes_later(life: Life) -> None:
    with pytest.raises(StillPending) as caught:
        await life.ep.create_stream("s/t", timeout_ms=20)
    pending = await life.ep.requests.get(caught.value.request_id)
    assert (pending.status, pending.target) == (RequestStatus.PENDING, "s/t")
    with pytest.raises(StillPending):
        await life.ep.requests.wait(pending.id, timeout_ms=0)
    await life.run()
    assert (await life.ep.requests.wait(pending.id, timeout_ms=0)).status is RequestStatus.DONE
    assert (await life.record("s/t")).value.state is StreamState.ACTIVE


async def test_a_request_that_cannot_be_run_is_given_up_and_those_behind_it_go_on(life: Life) -> None:
    await life.done(CreateStream("s/t", _config(1)))
    poison = await life.ep.requests.submit(UpdateStream("s/t", 4, _config(2)))
    behind = await life.ep.requests.submit(SealStream("s/t", 4))
    await life.db.write(
        lambda tx: tx.execute("UPDATE request SET body = ? WHERE id = ?", (b"{nonsense", poison.id)).rowcount
    )
    await life.run()
    assert isinstance((await life.ep.requests.get(poison.id)).error, WorkflowFailed)
    assert (await life.ep.requests.get(behind.id)).status is RequestStatus.DONE
    assert (await life.record("s/t")).value.epoch == 0
    await life.check()


async def test_ids_sort_by_time_so_that_the_newest_requests_come_first_by_pages(life: Life) -> None:
    for number in range(3):
        life.clock.advance(5)
        await life.ep.requests.submit(CreateStream(f"s/{number}", _config(1)), request_id=new_id(life.clock))
    first = await life.ep.requests.list(limit=2)
    assert [request.target for request in first] == ["s/2", "s/1"]
    assert [request.target for request in await life.ep.requests.list(after=first[-1].id)] == ["s/0"]
