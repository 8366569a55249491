"""Tasks that fail, hang, or outlive their supervisor; replicas; what replaces them."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.describe import SupervisorState
from eventproc.errors import InvalidArgument, NotFound, TaskFenced
from eventproc.ingestion.status import describe_supervisor
from eventproc.store.ingestion import (
    find_task,
    forget_dead_workers,
    forget_worker,
    keep_worker,
    register_worker,
)
from eventproc.store.ingestion.logs import forget_old_logs
from eventproc.store.model.ingestion import PublishOutcome, TaskState
from tests.ingestion.support import HOUR_MS, Bench


@pytest.mark.acceptance("S9")
async def test_a_failed_task_is_replaced_with_the_same_range(bench: Bench) -> None:
    await bench.start_supervisor(replicas=2)
    group = (await bench.active())[0]
    worker, (first, second) = await bench.claim()
    await bench.write(5)
    await first.step()
    await first.finish("the disk failed")
    await bench.run()
    tasks = await bench.live()
    assert len(tasks) == 2
    assert {each.base for each in tasks} == {group.base}
    (replaced,) = await worker.claim()
    assert replaced.order.starts == first.order.starts
    await second.finish("again")
    await replaced.finish("and again")
    await bench.run()
    assert len(await bench.live()) == 2
    assert (await bench.active())[0] == group


@pytest.mark.acceptance(
    "S10", differs="tasks of another schema publish what they have read, and are then replaced"
)
@pytest.mark.acceptance("S36", differs="no task is ever paused, so there is none to resume")
async def test_running_tasks_survive_their_supervisor(bench: Bench) -> None:
    worker = await bench.start_tasks(replicas=2)
    first, _ = worker.tasks
    await bench.write(5)
    await first.step()
    await bench.begin()  # another host
    await bench.run()
    assert {each.id for each in await bench.live()} == {each.id for each in worker.tasks}
    await bench.submit_and_run(replicas=2, schema={"dimensions": ["page", "country"]})
    (old,) = await bench.pending()
    new = (await bench.active())[0]
    assert old.version == 1
    assert (new.version, new.starts) == (2, old.ends)
    assert new.fingerprint != old.fingerprint


@pytest.mark.acceptance("S11")
async def test_publishing_tasks_survive_their_supervisor(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    await bench.write(5)
    await task.step()
    await bench.run_after(HOUR_MS)
    await bench.begin()
    await bench.run()
    (pending,) = await bench.pending()
    assert (await bench.active())[0].starts == pending.ends
    await task.complete()
    await bench.run()
    assert await bench.pending() == []
    await bench.check_ranges()


@pytest.mark.acceptance(
    "S15", differs="nothing is paused: an unresponsive task is one that gives no sign for too long"
)
async def test_a_task_without_a_sign_is_fenced_and_replaced(bench: Bench) -> None:
    worker = await bench.start_tasks(replicas=2, tuning={"task_timeout_ms": 60_000})
    hung, good = worker.tasks
    await bench.write(5)
    bench.clock.advance(50_000)
    await good.step()
    await bench.run_after(20_000)
    with pytest.raises(TaskFenced, match="stopped"):
        await hung.step()
    await good.step()
    (replaced,) = await worker.claim()
    assert replaced.order.task.base == good.order.task.base
    bench.clock.advance(70_000)  # now both
    await bench.run()
    assert all(each.state is TaskState.WAITING for each in await bench.live())
    bench.clock.advance(60_000)  # the pause after three failures
    (fresh, _) = await worker.claim()
    assert set(fresh.order.starts.values()) == {0}


async def test_a_task_whose_job_makes_no_progress_is_shown_fenced_and_replaced(bench: Bench) -> None:
    worker = await bench.start_tasks(replicas=2, tuning={"job_timeout_ms": 600_000})
    hung, good = worker.tasks
    since_ms = bench.clock.wall_ms()

    async def keep_both() -> None:
        await hung.keep(progress_ms=since_ms)
        await good.keep(progress_ms=bench.clock.wall_ms())

    for _ in range(6):
        await keep_both()
        await bench.run()
        bench.clock.advance(100_000)
    await keep_both()
    status = describe_supervisor(await bench.situation())
    assert [each.stats.progress_ms for each in status.active if each.id == hung.id] == [since_ms]
    await bench.run_after(1_000)
    with pytest.raises(TaskFenced, match="stopped"):
        await hung.keep(progress_ms=since_ms)
    await good.keep(progress_ms=since_ms)
    assert "made no progress for 600,000 ms" in await bench.last_error()
    (replaced,) = await worker.claim()
    assert (replaced.order.task.base, replaced.order.task.replica) == (good.order.task.base, 0)


@pytest.mark.acceptance("S16")
async def test_the_first_success_ends_the_other_replicas(bench: Bench) -> None:
    worker = await bench.start_tasks(replicas=2)
    first, second = worker.tasks
    await bench.write(5)
    await first.step()
    await second.step()
    await bench.run_after(HOUR_MS)
    await first.complete()
    assert await second.publish() is PublishOutcome.ALREADY
    await bench.run()
    with pytest.raises(TaskFenced):
        await second.finish()
    assert len(bench.files) == 1
    await bench.check_ranges()


async def test_the_tasks_of_a_dead_worker_are_replaced(bench: Bench) -> None:
    await bench.start_supervisor()
    dead = await bench.worker("dead")
    (task,) = await dead.claim()
    await bench.write(5)
    await task.step()
    bench.dead.add("dead")
    await bench.run()
    worker = await bench.worker("alive")
    (replaced,) = await worker.claim()
    await replaced.step()
    await bench.run_after(HOUR_MS)
    await replaced.complete()
    with pytest.raises(TaskFenced):
        await task.publish()
    await bench.run()
    assert len(bench.files) == 1
    await bench.check_ranges()


async def test_replicas_go_to_different_workers_while_there_are_some(bench: Bench) -> None:
    await bench.start_supervisor(replicas=2)
    one, two = await bench.worker("one"), await bench.worker("two")
    assert len(await one.claim()) == 1
    assert await one.claim() == []
    bench.dead.add("two")
    assert len(await one.claim()) == 1
    assert await two.claim() == []


async def test_a_group_without_events_ends_without_a_publication(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    await task.step()
    await bench.run_after(HOUR_MS)
    assert await bench.pending() == []
    assert bench.files == []
    assert len(await bench.active()) == 1


@pytest.mark.acceptance(
    "S18", differs="a group that published everything before its tasks failed is complete"
)
async def test_three_failed_tasks_are_unhealthy_and_three_good_ones_healthy(bench: Bench) -> None:
    await bench.start_supervisor()
    worker = await bench.worker()
    for _ in range(3):
        bench.clock.advance(60_000)
        (task,) = await worker.claim()
        await task.finish("no")
        await bench.run()
    memory = await bench.memory()
    assert memory.health.state is SupervisorState.UNHEALTHY_TASKS
    assert "no" in memory.health.errors[-1].message
    for number in range(3):
        assert (await bench.memory()).health.state is SupervisorState.UNHEALTHY_TASKS, number
        bench.clock.advance(60_000)
        (task,) = await worker.claim()
        await bench.write(2)
        await task.step()
        await bench.run_after(HOUR_MS)
        await task.complete()
        await bench.run()
    assert (await bench.memory()).health.state is SupervisorState.RUNNING
    await bench.check_ranges()


async def test_the_pause_after_failures_counts_from_the_last_one_whatever_changes_meanwhile(
    bench: Bench,
) -> None:
    await bench.start_supervisor()
    worker = await bench.worker()
    for _ in range(4):
        bench.clock.advance(60_000)
        (task,) = await worker.claim()
        await task.finish("no")
        await bench.run()
    bench.clock.advance(2_000)
    await (await bench.ep.supervisor("clicks")).reset()
    await bench.run()
    assert await worker.claim() == []
    bench.clock.advance(2_000)  # the fourth failure is 4 s ago
    assert len(await worker.claim()) == 1


async def test_a_task_that_has_more_to_publish_cannot_succeed(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    with pytest.raises(InvalidArgument, match="has not published"):
        await task.finish()
    task.n = 7
    with pytest.raises(NotFound, match="/7"):
        await task.step()


async def test_a_waiting_task_of_a_group_that_has_published_everything_is_stopped(bench: Bench) -> None:
    await bench.start_supervisor(replicas=2)
    worker = await bench.worker()
    (task,) = await worker.claim(1)
    await bench.write(5)
    await task.step()
    await bench.run_after(HOUR_MS)
    assert await task.publish() is PublishOutcome.PUBLISHED
    (late,) = [each for each in await bench.live(task.order.task.base) if each.state is TaskState.WAITING]
    assert {each.order.task.base for each in await worker.claim()}.isdisjoint({late.base})
    stored = await bench.db.read(partial(find_task, task_id=late.id))
    assert stored is not None
    assert stored.state is TaskState.STOPPED


async def test_a_worker_that_leaves_or_dies_does_not_count_once_per_task(bench: Bench) -> None:
    await bench.ep.create_topic("s/t", partitions=8)
    await bench.submit_and_run(task_count=8)
    leaving, dying = await bench.worker("leaving"), await bench.worker("dying")
    assert len(await leaving.claim(4)) == len(await dying.claim(4)) == 4
    await bench.db.write(lambda tx: forget_worker(tx, "leaving"))
    await bench.run()
    assert (await bench.memory()).health.failed_tasks == 0
    bench.dead.add("dying")
    await bench.run()
    health = (await bench.memory()).health
    assert (health.state, health.failed_tasks) == (SupervisorState.RUNNING, 1)
    for _ in range(2):
        (failing, *_) = await (await bench.worker("third")).claim(1)
        await failing.finish("no")
        await bench.run()
    third = await bench.worker("third")
    assert len(await third.claim()) == 6  # two wait after failures
    bench.dead.add("third")
    await bench.run()
    assert len(await (await bench.worker("fourth")).claim()) == 6  # a death is no reason to wait


async def test_slots_go_to_groups_without_a_running_task_first(bench: Bench) -> None:
    await bench.ep.create_topic("s/t", partitions=2)
    await bench.submit_and_run(task_count=2, replicas=2)
    worker = await bench.worker()
    taken = await worker.claim(1) + await worker.claim(1)
    assert {each.order.group.gid for each in taken} == {0, 1}
    assert {each.order.group.gid for each in await worker.claim(2)} == {0, 1}


async def test_dead_workers_are_forgotten_after_an_hour_and_living_ones_stay(bench: Bench) -> None:
    await bench.worker("dead")
    await bench.worker("alive")

    async def forget() -> list[str]:
        await bench.db.write(lambda tx: forget_dead_workers(tx, lambda worker: worker == "alive"))
        return [each.instance for each in await bench.ep.ingestion_workers()]

    bench.clock.advance(HOUR_MS // 2)
    assert await forget() == ["alive", "dead"]
    bench.clock.advance(HOUR_MS // 2)
    assert await forget() == ["alive"]


async def test_lines_of_logs_are_forgotten_after_a_week(bench: Bench) -> None:
    (task,) = (await bench.start_tasks()).tasks
    lines = await bench.ep.ingestion_log(task.id)
    bench.clock.advance(7 * 23 * HOUR_MS)
    await bench.db.write(forget_old_logs)
    assert await bench.ep.ingestion_log(task.id) == lines
    bench.clock.advance(8 * HOUR_MS)
    await bench.db.write(forget_old_logs)
    assert await bench.ep.ingestion_log(task.id) == []


async def test_workers_are_listed_with_their_place_slots_tasks_and_last_heartbeat(bench: Bench) -> None:
    await bench.start_supervisor()
    dead, alive = await bench.worker("0", slots=3), bench.db.instance_id
    register = partial(register_worker, instance=alive, slots=2, machine="m1", pid=7)
    await bench.db.write(register)
    began_ms = bench.clock.wall_ms()
    bench.clock.advance(5)
    (task,) = await dead.claim()
    bench.clock.advance(60_000)
    await bench.db.write(partial(keep_worker, instance=alive))
    first, second = await bench.ep.ingestion_workers()
    assert (first.instance, first.alive, first.machine, first.slots) == ("0", False, None, 3)
    assert first.tasks == (task.order.task.id,)
    assert began_ms + 5 <= first.seen_ms < began_ms + 60_000, "its task's"
    assert (second.alive, second.machine, second.pid, second.tasks) == (True, "m1", 7, ())
    assert second.started_ms <= began_ms
    assert second.seen_ms >= began_ms + 60_005
    assert await bench.ep.ingestion_workers(limit=1) == [first]
    assert await bench.ep.ingestion_workers(after="0", limit=1) == [second]


async def test_a_worker_takes_a_second_replica_only_if_no_other_worker_can(bench: Bench) -> None:
    await bench.start_supervisor(replicas=3)
    first, second = await bench.worker("w1", slots=2), await bench.worker("w2", slots=1)
    assert len(await first.claim(2)) == 1
    assert len(await first.claim(1)) == 0, "the other worker runs no replica, and has a free slot"
    assert len(await second.claim(1)) == 1
    assert len(await first.claim(1)) == 1, "the other worker runs one"


async def test_a_worker_takes_all_replicas_if_the_other_one_is_dead(bench: Bench) -> None:
    await bench.start_supervisor(replicas=2)
    first, _ = await bench.worker("w1"), await bench.worker("w2")
    bench.dead.add("w2")
    assert len(await first.claim()) == 2


async def test_a_worker_that_cannot_go_on_gives_its_tasks_back_and_counts_as_one_failure(
    bench: Bench,
) -> None:
    await bench.ep.create_topic("s/t", partitions=2)
    await bench.submit_and_run(task_count=2)
    broken = await bench.worker("broken")
    first, second = await broken.claim()
    await bench.db.write(partial(forget_worker, instance="broken", failure="its JVM has ended"))
    for each in (first, second):
        with pytest.raises(TaskFenced):
            await each.step()
    await bench.run()
    health = (await bench.memory()).health
    assert health.failed_tasks == 1
    assert "its JVM has ended" in health.errors[-1].message
    other = await bench.worker("other")
    assert {each.order.group.base for each in await other.claim()} == {
        first.order.group.base,
        second.order.group.base,
    }


async def test_a_wall_clock_that_is_set_back_holds_up_no_task_after_failures(bench: Bench) -> None:
    worker = await bench.start_tasks()
    for _ in range(3):
        await worker.tasks[-1].finish("the disk failed")
        await bench.run()
        bench.clock.step_wall(-24 * HOUR_MS)
        await bench.run()
        bench.clock.advance(60_000)
        assert await worker.claim()
    bench.clock.step_wall(-24 * HOUR_MS)
    await bench.write(10)
    await worker.tasks[-1].step()
    await bench.handoff()
    bench.clock.advance(60_000)
    assert await worker.claim(), "the next group waits for the pause after failures at most"
