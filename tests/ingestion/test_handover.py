"""Groups that end: limits, early hand-off, failures and time-outs while publishing, sequences, streams that change."""

from __future__ import annotations

from typing import Any

import pytest

from eventproc import ScalingPolicy
from eventproc.describe import SupervisorState
from eventproc.errors import NotFound, TaskFenced
from eventproc.ingestion.decisions import RETRIES_MAX
from eventproc.store.model.ingestion import PublishOutcome, SequenceState
from tests.ingestion.support import HOUR_MS, Bench, ScriptedWorker


async def started(bench: Bench, segments: int, **io: Any) -> ScriptedWorker:
    """Return a worker whose tasks have read ten events per segment."""
    worker = await bench.start_tasks(segments, **io)
    await bench.write(10 * segments)
    await worker.step()
    return worker


@pytest.mark.acceptance("S13")
async def test_no_more_groups_end_than_the_spec_allows(bench: Bench) -> None:
    await bench.start_supervisor(4, task_count=4, stop_task_count=1)
    worker = await bench.worker()
    await bench.write(100)
    for _ in range(4):
        (task,) = await worker.claim(1)
        await task.step()
        bench.clock.advance(1_000)
    await bench.run_after(HOUR_MS)
    assert [each.gid for each in await bench.pending()] == [0]
    await bench.run()
    assert [each.gid for each in await bench.pending()] == [0]
    await worker.complete_pending()
    await bench.run()
    assert [each.gid for each in await bench.pending()] == [1]


async def test_a_group_that_must_end_takes_no_place_of_one_whose_time_is_over(bench: Bench) -> None:
    for name in ("s/a", "s/b"):
        await bench.ep.create_stream(name)
        await bench.write(10, name)
    await bench.submit_and_run(streams=["s/a", "s/b"], task_count=2, stop_task_count=1)
    worker = await bench.worker()
    failed, oldest = sorted(await worker.claim(), key=lambda each: each.order.group.gid)
    await oldest.step()
    await failed.finish("failed")  # its replacement begins later, so the other group is the oldest one
    await bench.run_after(1_000)
    (other,) = await worker.claim()
    await other.step()
    ((stream_id, _),) = oldest.order.starts
    await (await bench.ep.stream(oldest.order.streams[stream_id])).seal()
    await oldest.step()  # it reports that it has read everything
    await bench.run_after(HOUR_MS)
    assert {each.base for each in await bench.pending()} == {oldest.order.group.base, other.order.group.base}


@pytest.mark.acceptance("S14")
async def test_listed_groups_hand_off_at_the_next_run_beyond_any_limit(bench: Bench) -> None:
    await started(bench, 3, task_count=3, stop_task_count=1)
    await bench.handoff([1, 2])
    assert sorted(each.gid for each in await bench.pending()) == [1, 2]
    assert sorted(await bench.active()) == [0, 1, 2]


@pytest.mark.acceptance("S14", differs="a number without a group that reads is refused, with those that read")
async def test_hand_off_of_a_group_that_does_not_read_is_refused(bench: Bench) -> None:
    await bench.ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    await bench.submit(task_count=2)
    supervisor = await bench.ep.supervisor("clicks")
    with pytest.raises(
        NotFound, match="no group '0' of supervisor clicks, which has no group that reads now"
    ):
        await supervisor.handoff([0])
    await bench.run()
    with pytest.raises(NotFound, match="no group '7' of supervisor clicks, which reads in groups 0, 1"):
        await supervisor.handoff([0, 7])
    await bench.run()
    assert await bench.pending() == []


@pytest.mark.acceptance(
    "S17", differs="its range is read again to the same ends, so the groups behind it go on, too"
)
async def test_a_group_that_completes_too_late_is_read_again_while_those_behind_it_go_on(
    bench: Bench,
) -> None:
    worker = await started(bench, 2, task_count=2, completion_timeout_ms=600_000)
    await bench.handoff([0])
    (late,) = await bench.pending()
    active = await bench.active()
    assert active[0].starts == late.ends
    (behind,) = await worker.claim()
    await bench.write(20)
    await behind.step()
    tasks = await bench.live(late.base)
    await bench.run_after(600_000)
    assert await bench.active() == active
    (again,) = await bench.pending()
    assert (again.base, again.starts, again.ends) == (late.base, late.starts, late.ends)
    assert "did not complete within 600,000 ms" in await bench.last_error()
    with pytest.raises(TaskFenced):
        await worker.tasks[0].step()
    assert not {each.id for each in tasks} & {each.id for each in await bench.live(late.base)}

    await bench.handoff([0])
    assert await behind.publish() is PublishOutcome.RETRY  # what lies before it is not published yet
    (replaced,) = [each for each in await worker.claim() if each.order.task.base == late.base]
    await replaced.complete()
    assert await behind.publish() is PublishOutcome.PUBLISHED
    await behind.finish()
    await bench.run()
    assert await bench.pending() == []
    assert (await bench.active())[1] == active[1]
    await bench.check_ranges()


@pytest.mark.acceptance("S18", differs="the group gets new tasks, and the groups behind it go on")
async def test_a_pending_group_without_tasks_gets_others_without_waiting_for_its_time(bench: Bench) -> None:
    worker = await started(bench, 1)
    await bench.run_after(HOUR_MS)
    (task,) = worker.tasks
    behind, (failed,) = await bench.active(), await bench.pending()
    await task.finish("cannot write")
    await bench.run()
    assert await bench.active() == behind
    (again,) = await bench.pending()
    assert (again.starts, again.ends) == (failed.starts, failed.ends)
    replaced = next(each for each in await worker.claim() if each.order.task.base == failed.base)
    await replaced.complete()
    await bench.run()
    assert await bench.pending() == []
    await bench.check_ranges()


async def test_the_time_of_a_group_begins_when_what_lies_before_it_is_published(bench: Bench) -> None:
    worker = await started(bench, 1, completion_timeout_ms=600_000)
    for _ in range(2):
        await bench.handoff()
        await bench.write(10)
        for task in await worker.claim():
            await task.step()
    first, second = await bench.pending()
    bench.clock.advance(400_000)
    assert await worker.tasks[1].publish() is PublishOutcome.RETRY
    await worker.tasks[0].complete()
    await bench.run()
    await bench.run_after(400_000)
    assert [each.base for each in await bench.pending()] == [second.base]
    assert [each.id for each in await bench.live(second.base)] == [worker.tasks[1].id]
    assert (await bench.memory()).health.errors == ()
    await worker.tasks[1].complete()
    await bench.run()
    assert first.base not in {each.base for each in await bench.groups()}
    await bench.check_ranges()


async def test_a_group_begins_at_what_was_published_past_a_group_that_read_nothing_of_it(
    bench: Bench,
) -> None:
    await bench.start_supervisor(2)
    worker = await bench.worker()
    await bench.write(20)
    first, second = sorted(tails := await bench.tails())
    (slow,) = await worker.claim()
    await slow.step({first: tails[first]})
    await bench.handoff()
    (quick,) = await worker.claim()
    await quick.step({second: tails[second]})
    await bench.handoff()
    await quick.complete()  # it has read nothing of the first partition, so it need not wait
    await bench.run()
    assert [each.base for each in await bench.pending()] == [slow.order.task.base]
    await bench.submit(
        tuning={"max_rows_per_segment": 10}
    )  # a new group takes the place of one that read nothing
    await bench.run()
    # The slow group read nothing of the second partition, and its end there lies before what is published.
    assert (await bench.active())[0].starts == tails
    await bench.check_groups()


async def test_a_group_that_fails_again_and_again_is_shown_and_read_by_a_new_group(bench: Bench) -> None:
    worker = await started(bench, 1)
    await bench.run_after(HOUR_MS)
    (failed,) = await bench.pending()
    behind = (await bench.active())[0]
    for attempt in range(1 + RETRIES_MAX):
        assert [each.base for each in await bench.pending()] == [failed.base], attempt
        assert (await bench.active())[0] == behind
        task = next(each for each in worker.tasks if each.order.task.base == failed.base)
        worker.tasks.remove(task)
        await task.finish("cannot write")
        await bench.run()
        bench.clock.advance(60_000)
        await worker.claim()
    assert await bench.pending() == []
    again = (await bench.active())[0]
    assert again.base not in {failed.base, behind.base}
    assert again.starts == failed.starts
    health = (await bench.memory()).health
    assert health.state is SupervisorState.UNHEALTHY_TASKS
    assert f"group 0 did not complete in {1 + RETRIES_MAX} attempts" in health.errors[-1].message
    assert (await bench.memory()).retries == {}
    await bench.check_ranges()


async def test_a_group_whose_tasks_find_no_worker_takes_the_place_of_those_behind_it(bench: Bench) -> None:
    await bench.start_supervisor(tuning={"task_timeout_ms": 60_000})
    workers = [await bench.worker(name, slots=1) for name in ("w1", "w2")]
    await bench.write(10)
    (first,) = await workers[0].claim(1)
    await first.step()
    await bench.handoff()
    (behind,) = await workers[1].claim(1)
    bench.dead.add("w1")
    await bench.run()
    (lost,) = await bench.pending()
    for _ in range(3):
        bench.clock.advance(20_001)
        await behind.step()
        await bench.run()
    # The only slot is that of the group behind it, which could publish nothing.
    assert await bench.pending() == []
    (again,) = (await bench.active()).values()
    assert again.starts == lost.starts
    assert "no worker took the tasks of group 0 for 60,000 ms" in await bench.last_error()
    with pytest.raises(TaskFenced):
        await behind.step()
    (task,) = await workers[1].claim(1)
    await task.step()
    await bench.handoff()
    await task.complete()
    await bench.run()
    await bench.check_ranges()


async def test_a_group_that_published_before_its_task_died_is_complete(bench: Bench) -> None:
    worker = await started(bench, 1)
    await bench.run_after(HOUR_MS)
    (task,) = worker.tasks
    behind = (await bench.active())[0]
    assert await task.publish() is PublishOutcome.PUBLISHED
    bench.dead.add(worker.name)
    await bench.run()
    assert await bench.pending() == []
    assert (await bench.active())[0] == behind
    await bench.check_ranges()


@pytest.mark.acceptance(
    "S19", differs="a task closes its sequence in a transaction of its own; replicas find it closed"
)
async def test_a_full_sequence_is_published_while_reading_goes_on(bench: Bench) -> None:
    worker = await started(bench, 1, replicas=2)
    first, second = worker.tasks
    ends = await first.close()
    assert await second.close() == ends  # the request of a replica changes nothing
    assert await first.publish() is PublishOutcome.PUBLISHED
    assert await second.publish() is PublishOutcome.ALREADY
    await bench.write(10)
    for task in worker.tasks:
        task.n, task.read = 1, {}
        plan = await task.step()
        assert plan.starts == ends
        assert not plan.closed
    await first.finish("died")
    await bench.run()
    (replaced,) = await worker.claim()
    assert (replaced.n, replaced.order.starts) == (1, ends)
    await bench.run_after(HOUR_MS)
    await second.complete()
    await bench.run()
    assert len(bench.files) == 2
    await bench.check_ranges()


@pytest.mark.acceptance(
    "S20",
    differs="the boundaries of sequences lie in the store, so no task can have others; a slow one skips",
)
async def test_a_slow_replica_skips_what_was_published(bench: Bench) -> None:
    worker = await started(bench, 1, replicas=2)
    first, second = worker.tasks
    await first.close()
    await first.publish()
    plan = await second.plan()
    assert plan.state is SequenceState.PUBLISHED
    assert plan.until == {}


@pytest.mark.acceptance(
    "S27", differs="a new partition is added to a group that reads on; nothing is stopped"
)
async def test_a_split_stops_no_task(bench: Bench) -> None:
    worker = await started(bench, 2, task_count=2)
    before = await bench.active()
    stream = await bench.ep.stream("s/t")
    await stream.split("0.0", 2)
    await bench.write(40)
    await bench.run()
    after = await bench.active()
    assert {each.base for each in after.values()} == {each.base for each in before.values()}
    assert await bench.pending() == []
    covered = {key for each in after.values() for key in each.starts}
    assert covered == set(await bench.partitions())
    await worker.step()
    await bench.run_after(HOUR_MS)
    for task in list(worker.tasks):
        await task.complete()
    await bench.run()
    offsets = await bench.offsets()
    assert {key: each.offset for key, each in offsets.items()} == await bench.tails()
    assert [each.closed for _, each in sorted(offsets.items())] == [True, False, False, False]
    assert len(await bench.active()) == 2
    await bench.check_ranges()


async def test_partitions_that_are_read_to_their_sealed_ends_end_their_group(bench: Bench) -> None:
    worker = await started(bench, 1)
    stream = await bench.ep.stream("s/t")
    await stream.seal()
    (task,) = worker.tasks
    await task.step()
    await task.plan({})
    await bench.run()
    assert await bench.active() == {}
    await task.complete()
    await bench.run()
    assert await bench.groups() == []
    assert all(each.closed for each in (await bench.offsets()).values())
    assert (await bench.memory()).health.state is SupervisorState.RUNNING


async def test_a_group_that_cannot_be_read_any_more_leaves_the_groups_before_it(bench: Bench) -> None:
    worker = await started(bench, 1)
    for _ in range(2):
        await bench.handoff()
        (task,) = await worker.claim()
        await bench.write(10)
        await task.step()
    await bench.handoff()
    first, second, third = await bench.pending()
    for _ in range(1 + RETRIES_MAX):
        task = next(each for each in reversed(worker.tasks) if each.order.task.base == second.base)
        await task.finish("cannot write")
        await bench.run()
        bench.clock.advance(60_000)
        await worker.claim()
    assert [each.base for each in await bench.pending()] == [first.base]
    again = (await bench.active())[0]
    assert again.starts == second.starts == first.ends
    assert again.base not in {second.base, third.base}
