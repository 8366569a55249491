"""Backfill: the supervisor goes on from now, a bounded one publishes what is behind; in one transaction."""

from __future__ import annotations

import pytest

import eventproc
from eventproc import RetentionPolicy
from eventproc.describe import SupervisorState
from eventproc.errors import BackfillRefused, InvalidArgument, InvalidSpec, NotFound, TaskFenced
from eventproc.ingestion.supervisor import Supervisor
from eventproc.runtime import system
from eventproc.store.catalog import get_stream
from eventproc.store.faults import Died, Moment, Step, point_of
from eventproc.store.ingestion.unpublished import unpublished_events
from eventproc.store.model.ingestion import PartitionKey
from eventproc.testing import FaultPlan, VirtualClock, check
from eventproc.workflows.policies.retention import retained_head
from tests.ingestion.conftest import run_none
from tests.ingestion.support import ID, Bench, ScriptedWorker, spec_of

BACKFILL = "clicks-backfill-1"


async def behind(
    bench: Bench, segments: int = 2, **io: object
) -> tuple[Supervisor, ScriptedWorker, dict[PartitionKey, int]]:
    """Return a supervisor that has published once and read 20 of the 40 events behind that, and where these begin."""
    supervisor, worker = await bench.published_once(segments, **io)
    starts = await bench.tails()
    await bench.write(20)
    await worker.step()
    await bench.write(20)
    return supervisor, worker, starts


async def complete(bench: Bench, supervisor: str, worker: ScriptedWorker) -> None:
    """Let a worker read and publish everything that a supervisor has now."""
    for _ in range(10):
        await bench.run(supervisor)
        await worker.claim()
        mine = [each for each in worker.tasks if each.order.group.supervisor == supervisor]
        for task in mine:
            await task.step()
            await task.plan({})
        await (await bench.ep.supervisor(supervisor)).handoff()
        await bench.run(supervisor)
        pending = {each.base for each in await bench.groups(supervisor=supervisor) if each.ends is not None}
        for task in mine:
            if task.order.group.base in pending:
                await task.complete()
                worker.tasks.remove(task)
        await bench.run(supervisor)
        if not pending:
            return
    raise AssertionError("there is always more to publish")


async def assert_published_once(bench: Bench) -> None:
    """Assert that the published ranges cover each partition to its tail, without a gap or an overlap."""
    tails = await bench.tails()
    assert bench.published_ranges() == {key: (0, tail) for key, tail in tails.items() if tail}


@pytest.mark.acceptance(
    "S34", differs="the spec may begin at the heads; both publish to a table without locks"
)
async def test_a_backfill_publishes_what_is_behind_while_the_supervisor_goes_on(bench: Bench) -> None:
    supervisor, worker, starts = await behind(bench)
    tails = await bench.tails()
    preview = await supervisor.preview_backfill()
    bounded = await supervisor.backfill()
    assert await bounded.spec() == preview
    assert bounded.id == BACKFILL
    assert await bench.committed() == tails
    assert await bench.committed(BACKFILL) == starts
    worker.tasks.clear()
    await bench.write(20)
    await complete(bench, ID, worker)
    assert (await supervisor.status()).lag == 0
    assert (await bounded.status()).lag == 40
    await complete(bench, BACKFILL, worker)
    await assert_published_once(bench)
    assert (await bounded.status()).state is SupervisorState.COMPLETED
    assert (await supervisor.status()).state is SupervisorState.RUNNING
    assert (await bounded.status()).healthy and (await supervisor.status()).healthy


@pytest.mark.acceptance("S34")
async def test_a_task_that_read_what_is_backfilled_cannot_publish_it(bench: Bench) -> None:
    supervisor, worker, _ = await behind(bench, 1)
    (task,) = worker.tasks
    await task.close()
    await supervisor.backfill()
    with pytest.raises(TaskFenced):
        await task.publish()
    assert len(bench.files) == 1


@pytest.mark.acceptance("S34")
async def test_a_backfill_takes_what_a_group_is_about_to_publish(bench: Bench) -> None:
    supervisor, worker, starts = await behind(bench, 1)
    await bench.handoff()
    assert len(await bench.pending()) == 1
    (late,) = worker.tasks
    await supervisor.backfill()
    with pytest.raises(TaskFenced):
        await late.publish()
    worker.tasks.clear()
    await complete(bench, BACKFILL, worker)
    await assert_published_once(bench)
    assert (await bench.offsets(BACKFILL)).keys() == starts.keys()


@pytest.mark.acceptance("S34")
async def test_a_backfill_that_is_not_possible_changes_nothing(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    supervisor = await bench.ep.submit_supervisor(spec_of(start_delay_ms=0))
    with pytest.raises(BackfillRefused, match="is published"):
        await supervisor.backfill()
    await bench.run()
    await bench.write(5)
    with pytest.raises(BackfillRefused, match="supervisor clicks exists; choose another id"):
        await supervisor.backfill("clicks")
    with pytest.raises(InvalidSpec, match="id: it must be letters"):
        await supervisor.preview_backfill("no id")
    with pytest.raises(InvalidArgument, match="task_count"):
        await supervisor.backfill(task_count=0)
    await supervisor.reset()
    with pytest.raises(BackfillRefused, match="reset has not happened yet"):
        await supervisor.backfill()
    await bench.run()
    await supervisor.suspend()
    with pytest.raises(BackfillRefused, match="resume it first"):
        await supervisor.backfill()
    await supervisor.resume()
    assert [each.id for each in await bench.ep.supervisors()] == ["clicks"]
    bounded = await supervisor.backfill("gap", task_count=2)
    assert (bounded.id, (await bounded.spec()).io.task_count) == ("gap", 2)
    with pytest.raises(BackfillRefused, match="given ranges"):
        await bounded.backfill()
    with pytest.raises(BackfillRefused, match="is published"):
        await supervisor.backfill()
    await bench.write(5)
    assert (await supervisor.preview_backfill()).id == BACKFILL
    await supervisor.terminate()
    with pytest.raises(NotFound):
        await supervisor.backfill()


async def test_a_backfill_reads_segments_that_its_supervisor_has_not_found_yet(bench: Bench) -> None:
    supervisor, worker, _ = await behind(bench, 1)
    stream = await bench.ep.stream("s/t")
    await stream.split("0.0", 2)
    await bench.write(20)
    await supervisor.backfill()
    assert len((await (await bench.ep.supervisor(BACKFILL)).spec()).io.ranges) == 3
    worker.tasks.clear()
    await bench.write(20)
    await complete(bench, ID, worker)
    await complete(bench, BACKFILL, worker)
    await assert_published_once(bench)


async def test_what_is_backfilled_outlives_retention_from_the_first_moment(bench: Bench) -> None:
    supervisor, worker, _ = await behind(bench, 2)
    stream = await bench.ep.stream("s/t")
    await stream.update(retention=RetentionPolicy(consumed=True))
    await supervisor.backfill()
    head = await bench.db.read(lambda tx: retained_head(tx, get_stream(tx, "s/t").value))
    assert dict(head.offsets) == dict((await stream.tail()).offsets)  # the policy does not wait for it
    await stream.truncate(await stream.tail())
    worker.tasks.clear()
    await complete(bench, BACKFILL, worker)
    await assert_published_once(bench)


@pytest.mark.parametrize("moment", list(Moment))
async def test_a_death_during_a_backfill_leaves_all_of_it_or_nothing(
    monkeypatch: pytest.MonkeyPatch, moment: Moment
) -> None:
    monkeypatch.setattr(system, "keep_supervisors", run_none)
    faults = FaultPlan()
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock, faults=faults) as ep:
        await ep.create_scope("s")
        bench = Bench(ep, clock)
        await bench.begin()
        supervisor, worker, starts = await behind(bench)
        groups, offsets = await bench.groups(), await bench.offsets()
        faults.add((point_of(Step.SUPERVISOR_CHANGE, moment), "die"))
        with pytest.raises(Died):
            await supervisor.backfill()
        faults.heal()
        unpublished = await bench.db.read(lambda tx: unpublished_events(tx, ID))
        if moment is Moment.COMMITTED:
            assert [each.id for each in await ep.supervisors()] == [ID, BACKFILL]
            assert unpublished == []
            with pytest.raises(BackfillRefused, match="is published"):  # a repetition begins no second one
                await supervisor.backfill()
        else:
            assert [each.id for each in await ep.supervisors()] == [ID]
            assert (await bench.groups(), await bench.offsets()) == (groups, offsets)
            await supervisor.backfill()
        assert await bench.committed(BACKFILL) == starts
        worker.tasks.clear()
        await complete(bench, ID, worker)
        await complete(bench, BACKFILL, worker)
        await assert_published_once(bench)
        await check(ep.db)


async def test_a_backfill_leaves_out_streams_that_the_spec_no_longer_names(bench: Bench) -> None:
    await bench.ep.create_stream("s/former")
    supervisor, _, starts = await behind(bench, streams=["s/t", "s/former"])
    await bench.write(20, "s/former")
    await bench.ep.submit_supervisor(spec_of(start_delay_ms=0))
    await bench.run()
    spec = await supervisor.preview_backfill()
    assert spec.stream_names == ("s/t",)
    assert len(spec.io.ranges) == len(starts)
