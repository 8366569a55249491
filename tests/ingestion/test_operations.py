"""What people do to supervisors: reset, suspend, resume, terminate, update; notices; what the status says."""

from __future__ import annotations

import tracemalloc
from typing import Any, NoReturn

import anyio
import attrs
import pytest

from eventproc.cluster import keep_supervisors
from eventproc.describe import SpecEffect, SupervisorState
from eventproc.errors import (
    InvalidArgument,
    InvalidCut,
    InvalidSpec,
    NotFound,
    SupervisorTerminated,
    TaskFenced,
)
from eventproc.ingestion import loop
from eventproc.store.faults import Step
from eventproc.store.ingestion import WATCH_INGESTION, post_notice, waiting_notices
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ingestion import TaskState, TaskStats
from tests.ingestion.support import HOUR_MS, Bench, due_supervisors, spec_of


@pytest.mark.acceptance(
    "S23", differs="groups that publish are dropped too, so that nothing is published twice"
)
async def test_a_reset_without_a_position_begins_as_a_first_run(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(2, task_count=2)
    before = await bench.active()
    await supervisor.reset()
    await bench.run()
    after = await bench.active()
    assert {each.base for each in after.values()}.isdisjoint(each.base for each in before.values())
    assert all(set(each.starts.values()) == {0} for each in after.values())
    assert {each.offset for each in (await bench.offsets()).values()} == {0}
    assert worker.tasks != []


@pytest.mark.acceptance("S23")
async def test_a_reset_to_a_cut_moves_only_its_segments(bench: Bench) -> None:
    supervisor, _ = await bench.published_once(2, task_count=2)
    before, offsets = await bench.active(), await bench.offsets()
    (left, right) = await bench.partitions()
    stream_id = left[0]
    (moved,) = await supervisor.preview_reset(StreamCut("s/t", stream_id, {left[1]: 0}))
    assert (moved.stream, moved.segment) == ("s/t", left[1])
    assert (moved.offset, moved.offset_after) == (offsets[left].offset, 0)
    every = await supervisor.preview_reset()
    assert [(each.segment, each.offset_after) for each in every] == [(left[1], None), (right[1], None)]
    assert await bench.offsets() == offsets, "a preview changes nothing"
    await supervisor.reset(StreamCut("s/t", stream_id, {left[1]: 0}))
    await bench.run()
    after = await bench.active()
    assert after[1] == before[1]
    assert after[0].starts == {left: 0}
    assert (await bench.offsets())[right] == offsets[right]
    for wrong in (
        StreamCut("s/t", stream_id, {left[1]: 1}),  # inside an event
        StreamCut("s/t", stream_id + 1, {left[1]: 0}),
        StreamCut("s/u", stream_id, {left[1]: 0}),
    ):
        for call in (supervisor.reset, supervisor.preview_reset):
            with pytest.raises(InvalidCut):
                await call(wrong)
    untyped: Any = supervisor
    for call in (untyped.reset, untyped.preview_reset):
        with pytest.raises(InvalidArgument, match="StreamCut"):
            await call(["head"])
    await bench.run()
    assert await bench.active() == after


@pytest.mark.acceptance("S25", differs="suspending twice does nothing")
async def test_suspend_publishes_and_resume_goes_on_at_the_offsets(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(1)
    await bench.write(10)
    await worker.step()
    await supervisor.suspend()
    await supervisor.suspend()
    await bench.run()
    assert await bench.active() == {}
    await worker.complete_pending()
    await bench.begin()  # another host
    await bench.run()
    assert await bench.groups() == []
    status = await supervisor.status()
    assert (status.state, status.suspended, status.healthy) == (SupervisorState.SUSPENDED, True, True)
    await bench.write(10)
    await supervisor.resume()
    await bench.run()
    offsets = await bench.offsets()
    assert (await bench.active())[0].starts == {key: each.offset for key, each in offsets.items()}
    assert [each.version for each in await supervisor.history()] == [3, 2, 1]


async def test_what_a_run_reads_does_not_grow_with_the_versions_of_the_spec(bench: Bench) -> None:
    spec = spec_of(schema={"filter": f"page <> '{'x' * 50_000}'"})
    await bench.ep.create_stream("s/t")
    await bench.submit_and_run(spec)
    supervisor = await bench.ep.supervisor(spec.id)
    for _ in range(50):
        await supervisor.suspend()
        await supervisor.resume()
    await supervisor.status()
    tracemalloc.start()
    try:
        await supervisor.status()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(spec.text())


@pytest.mark.acceptance("S25")
async def test_terminate_publishes_and_keeps_history_offsets_and_files(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(1)
    await bench.write(10)
    await worker.step()
    await supervisor.terminate()
    await bench.run()
    assert (await supervisor.status()).state is SupervisorState.STOPPING
    await worker.complete_pending()
    await bench.run()
    assert await bench.ep.supervisors() == []
    when = r"no supervisor 'clicks': it was terminated at 20\d\d-.*Z; submit its spec again to go on at its offsets"
    with pytest.raises(SupervisorTerminated, match=when):
        await supervisor.status()
    for change in (supervisor.suspend, supervisor.handoff, supervisor.reset, supervisor.terminate):
        with pytest.raises(SupervisorTerminated, match=when):
            await change()
    with pytest.raises(NotFound, match="nothing"):
        await bench.ep.supervisor("nothing")
    newest, first = await supervisor.history()
    assert newest.spec is None
    assert first.spec is not None
    assert len(bench.files) == 2
    await bench.ep.submit_supervisor(spec_of(start_delay_ms=0))
    await bench.run()
    assert (await bench.active())[0].starts == await bench.tails()


@pytest.mark.acceptance("S26", differs="a run is never dropped: an equal notice that waits is not added")
async def test_equal_notices_wait_once_and_a_failing_one_stops_nothing(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(1)
    for _ in range(100):
        await bench.db.write(lambda tx: post_notice(tx, "clicks"))
    assert len(await bench.db.read(lambda tx: waiting_notices(tx, "clicks"))) == 1
    await bench.run()
    assert await bench.db.read(lambda tx: waiting_notices(tx, "clicks")) == []
    await bench.db.write(lambda tx: post_notice(tx, "clicks", "scale", '["not a number"]'))
    await loop.handle_next(bench.db, bench.owner, "clicks", bench.is_alive)
    assert await bench.db.read(lambda tx: waiting_notices(tx, "clicks")) == []
    assert "Error" in (await supervisor.status()).errors[-1].message
    await bench.run_after(1_000)
    assert {each.state for each in await bench.live()} == {TaskState.RUNNING}
    assert len(worker.tasks) == 1


async def test_a_run_is_due_after_the_period_and_when_a_groups_time_is_over(bench: Bench) -> None:
    await bench.published_once(1, task_duration_ms=40_000, period_ms=30_000)
    began = bench.clock.wall_ms()
    await bench.run_at_due()
    assert 0 < bench.clock.wall_ms() - began < 40_000
    await bench.run_at_due()
    assert bench.clock.wall_ms() - began < 60_000
    assert await bench.db.read(due_supervisors) == []


@pytest.mark.acceptance("S32")
async def test_the_status_says_how_far_everything_is(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(1, task_duration_ms=600_000)
    await bench.write(7)
    (task,) = worker.tasks
    task.stats = attrs.evolve(task.stats, processed=10, unparseable=1, samples=("{",))
    await task.plan({})
    status = await supervisor.status()
    (partition,) = status.partitions
    assert (status.lag, partition.lag, partition.group) == (7, 7, 0)
    assert partition.tail > partition.read == partition.offset
    (active,) = status.active
    assert (active.state, active.publishing, active.stats.samples) == (TaskState.RUNNING, False, ("{",))
    assert active.remaining_ms is not None
    assert 0 < active.remaining_ms <= 600_000
    await task.step()
    bench.clock.advance(HOUR_MS)
    assert (await supervisor.status()).active[0].remaining_ms == 0
    await bench.run()
    status = await supervisor.status()
    assert [each.id for each in status.publishing] == [task.id]
    assert status.waiting == 1
    for number in range(30):
        fresh = next((each for each in await bench.live() if each.state is TaskState.WAITING), None)
        if fresh is not None:
            bench.clock.advance(60_000)
            (claimed,) = await worker.claim()
            await claimed.finish(f"failure {number}")
            await bench.run()
    assert len((await supervisor.status()).errors) == 10
    assert [each.state for each in await supervisor.tasks()].count(TaskState.FAILED) == 30


async def test_the_totals_count_what_each_task_did_once(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(1)
    first = (await supervisor.status()).totals
    assert (first.published, first.succeeded, first.failed) == (1, 1, 0)
    task = worker.tasks[-1]
    task.stats = TaskStats(processed=10, processed_bytes=100, thrown_away=2, unparseable=3, rows=4)
    await bench.write(10)
    await task.step()
    running = (await supervisor.status()).totals
    assert (running.processed, running.processed_bytes, running.rows) == (10, 100, 4), "of a running task"
    assert (running.thrown_away, running.unparseable, running.succeeded) == (2, 3, 1)
    await task.finish("no space")
    ended = (await supervisor.status()).totals
    assert ended == attrs.evolve(running, failed=1)
    await bench.run()
    assert (await supervisor.status()).totals == ended, "the end of the task was counted"
    (task,) = await worker.claim()
    task.stats = TaskStats(processed=1)
    await task.step()
    await bench.run_after(101 * HOUR_MS)
    totals = (await supervisor.status()).totals
    assert (totals.processed, totals.hung, totals.stopped) == (11, 1, ended.stopped + 1)


@pytest.mark.acceptance("S37")
async def test_the_effect_of_a_spec_is_known_before_it_is_submitted(bench: Bench) -> None:
    supervisor, worker = await bench.published_once(1)
    await bench.write(10)
    await worker.step()
    same = spec_of(start_delay_ms=0)
    assert await bench.ep.preview_supervisor(same) is SpecEffect.NONE
    await bench.ep.submit_supervisor(same)
    assert len(await supervisor.history()) == 1
    assert await bench.ep.preview_supervisor(spec_of(replicas=2)) is SpecEffect.UPDATE
    assert await bench.ep.preview_supervisor(spec_of(id="other")) is SpecEffect.CREATE
    changed = spec_of(schema={"dimensions": ["page", "country"]})
    assert await bench.ep.preview_supervisor(changed) is SpecEffect.REPLACE_TASKS
    await bench.ep.submit_supervisor(changed)
    await bench.run()
    (old,) = await bench.pending()
    assert (await bench.active())[0].starts == old.ends
    with pytest.raises(NotFound, match="s/none"):
        await bench.ep.submit_supervisor(spec_of(streams=["s/none"]))
    with pytest.raises(InvalidSpec, match=r"io\.replicas"):
        await bench.ep.submit_supervisor(
            {"io": {"streams": ["s/t"], "replicas": 0}, "schema": {"datasource": "x"}}
        )


async def test_the_loop_runs_a_supervisor_when_it_is_submitted(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_supervisors, bench.db)
        with bench.db.subscribe([WATCH_INGESTION]) as changes:
            await bench.ep.submit_supervisor(spec_of(start_delay_ms=100))
            while not await bench.live():
                await changes.wait()
        tasks.cancel_scope.cancel()
    assert len(await bench.active()) == 1


async def test_a_supervisor_that_begins_again_reads_new_segments_from_their_heads(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    supervisor = await bench.ep.submit_supervisor(spec_of(start_delay_ms=0, use_earliest_offset=False))
    await bench.run()
    await supervisor.terminate()
    await bench.run()
    assert await bench.ep.supervisors() == []
    await stream.split("0.0", 2)
    await bench.write(5)
    await bench.ep.submit_supervisor(spec_of(start_delay_ms=0, use_earliest_offset=False))
    await bench.run()
    assert list((await bench.active())[0].starts.values()) == [0, 0]


async def test_a_supervisor_that_begins_again_uses_no_name_twice(bench: Bench) -> None:
    supervisor = await bench.start_supervisor(start_delay_ms=0)
    worker, (old,) = await bench.claim()
    (base,) = [each.base for each in await bench.groups()]
    await supervisor.terminate()
    await bench.run()
    await bench.ep.submit_supervisor(spec_of(start_delay_ms=0))
    await bench.run()
    assert base not in {each.base for each in await bench.groups()}
    (new,) = await worker.claim()
    with pytest.raises(TaskFenced):
        await old.step()
    await new.step()


async def test_a_change_just_before_a_run_applies_its_decision_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = await bench.start_supervisor(start_delay_ms=0)
    await bench.db.write(lambda tx: post_notice(tx, "clicks"))
    write = bench.db.write

    async def terminate_before(fn: Any, *, step: Step | None = None) -> Any:
        monkeypatch.undo()
        await supervisor.terminate()
        return await write(fn, step=step)

    monkeypatch.setattr(bench.db, "write", terminate_before)
    await loop.handle_next(bench.db, bench.owner, "clicks", bench.is_alive)
    if "clicks" in await bench.db.read(due_supervisors):
        await bench.run()
    assert await bench.ep.supervisors() == []


async def test_notices_that_wait_together_are_handled_without_a_pause(bench: Bench) -> None:
    supervisor = await bench.start_supervisor(start_delay_ms=0, period_ms=30_000)
    await bench.db.write(lambda tx: post_notice(tx, "clicks"))
    await supervisor.reset()
    began_ms = bench.clock.wall_ms()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keep_supervisors, bench.db)
        with bench.db.subscribe([WATCH_INGESTION]) as changes:
            while await bench.db.read(lambda tx: waiting_notices(tx, "clicks")):
                await changes.wait()
        tasks.cancel_scope.cancel()
    assert bench.clock.wall_ms() - began_ms < 20_000


async def test_a_due_run_that_fails_removes_no_notice_that_comes_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.start_supervisor()
    bench.clock.advance(HOUR_MS)  # a run is due, without a notice
    write = bench.db.write

    def fail(*_: object) -> NoReturn:
        raise ValueError("no decision")

    async def post_after_failure(fn: Any, *, step: Step | None = None) -> Any:
        try:
            return await write(fn, step=step)
        except Exception:
            monkeypatch.undo()
            await bench.db.write(lambda tx: post_notice(tx, "clicks"))
            raise

    monkeypatch.setattr(loop, "handle", fail)
    monkeypatch.setattr(bench.db, "write", post_after_failure)
    await loop.handle_next(bench.db, bench.owner, "clicks", bench.is_alive)
    assert len(await bench.db.read(lambda tx: waiting_notices(tx, "clicks"))) == 1
    assert "no decision" in await bench.last_error()


async def test_notices_of_a_supervisor_that_has_ended_go(bench: Bench) -> None:
    await bench.start_supervisor()
    await (await bench.ep.supervisor("clicks")).terminate()
    await bench.run()
    assert await bench.ep.supervisors() == []
    await bench.db.write(lambda tx: post_notice(tx, "clicks"))  # of a task that ended late
    await bench.run()
    assert await bench.db.read(lambda tx: waiting_notices(tx, "clicks")) == []
