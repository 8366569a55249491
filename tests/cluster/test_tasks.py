"""Tasks: one instance at a time, one per resource, taken over after a death, brought to their end or cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

import anyio
import attrs
import pytest

import eventproc
from eventproc.cluster import run_tasks
from eventproc.cluster.buckets import JOIN_MS
from eventproc.cluster.task_runner import Job, TaskContext
from eventproc.store.clock import new_id
from eventproc.store.database import Tx
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.records import RecordKind, create, find, replace
from eventproc.store.task_queue import (
    ATTEMPTS_MAX,
    TASK_MEMORY_MS,
    TaskInfo,
    TaskStatus,
    forget_tasks,
    submit_task,
)
from eventproc.testing import SimulatedInstance, SimulatedWorld, VirtualClock, VirtualRuntime, check
from eventproc.testing.virtual_runtime import BACKENDS
from tests.cluster.counters import CountedSteps

COUNTER = RecordKind(name="counter of the tests", value=CountedSteps)
STEPS = 5


@pytest.fixture(params=BACKENDS)
def runtime(request: pytest.FixtureRequest) -> VirtualRuntime:
    return VirtualRuntime(seed=11, backend=request.param)


class Jobs:
    """A job that counts in the database, a step a second, and notes where it runs."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.runs: list[str] = []
        self.fails = False

    def of(self, instance: SimulatedInstance) -> Mapping[str, Job]:
        return {"count": partial(self._count, instance.name)}

    async def _count(self, name: str, ctx: TaskContext) -> Mapping[str, str | int]:
        self.runs.append(f"{name}:{ctx.task.attempt}")
        self.running[ctx.task.resource] += 1
        assert self.running[ctx.task.resource] == 1, "one task of a resource at a time"
        try:
            while ctx.done < STEPS:
                await anyio.sleep(1)
                ctx.progress(ctx.done + 1, STEPS)
                await ctx.write(partial(count_up, key=ctx.task.id, number=ctx.done))
                if self.fails:
                    raise ValueError("no luck")
            return {"steps": ctx.done}
        finally:
            self.running[ctx.task.resource] -= 1


def count_up(tx: Tx, key: str, number: int) -> None:
    found = find(tx, COUNTER, key)
    if found is None:
        create(tx, COUNTER, key, CountedSteps(number))
    else:
        assert found.value.number == number - 1, "the step and its progress are one transaction"
        replace(tx, COUNTER, found, CountedSteps(number))


async def with_jobs(world: SimulatedWorld, jobs: Jobs, **options: object) -> SimulatedInstance:
    instance = await world.start(**options)  # type: ignore[arg-type]
    if instance.alive:
        instance.start_soon(run_tasks, instance.ep.db, jobs.of(instance))
    return instance


async def submit(world: SimulatedWorld, resource: str = "stream s/t", **arguments: int) -> TaskInfo:
    make = partial(
        submit_task, task_id=new_id(world.clock), kind="count", resource=resource, arguments=arguments
    )
    return await world.ep.db.write(make)


async def counted(world: SimulatedWorld, task: TaskInfo) -> int:
    found = await world.ep.db.read(lambda tx: find(tx, COUNTER, task.id))
    return 0 if found is None else found.value.number


def test_a_task_runs_to_its_end_with_its_progress(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            await with_jobs(world, jobs)
            task = await submit(world)
            await anyio.sleep(2.5)
            half = await world.ep.tasks.get(task.id)
            assert (half.status, half.done, half.total) == (TaskStatus.RUNNING, 2, STEPS)
            ended = await world.ep.tasks.wait(task.id)
            assert (ended.status, ended.result, ended.done) == (TaskStatus.DONE, {"steps": STEPS}, STEPS)
            assert [each.id for each in await world.ep.tasks.list()] == [task.id]

    runtime.run(main)


@pytest.mark.parametrize(
    "point",
    [
        f"task.{step}.{moment}"
        for step in ("start", "run", "end")
        for moment in ("begun", "commit", "committed")
    ],
)
def test_a_task_is_brought_to_its_end_by_another_instance(runtime: VirtualRuntime, point: str) -> None:
    """The only worker dies at the point; the next one finishes what is left, and repeats no durable step."""

    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            first = await with_jobs(world, jobs, faults=[(point, "die")])
            task = await submit(world)
            await first.ended()
            assert first.killed
            await with_jobs(world, jobs)
            ended = await world.ep.tasks.wait(task.id)
            assert (ended.status, ended.done, await counted(world, task)) == (TaskStatus.DONE, STEPS, STEPS)
            assert ended.attempt <= 2
            await check(world.ep.db)

    runtime.run(main)


def test_a_running_task_stays_where_it_is_when_an_instance_joins(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            await with_jobs(world, jobs)
            tasks = [await submit(world, f"stream s/{number}") for number in range(4)]
            await anyio.sleep(0.5)
            for _ in range(3):
                await with_jobs(world, jobs)
            for each in tasks:
                assert (await world.ep.tasks.wait(each.id)).attempt == 1
            assert sorted(jobs.runs) == ["i1:1"] * 4

    runtime.run(main)


def test_survivors_take_over_the_tasks_of_a_dead_instance_and_nobody_else_does(
    runtime: VirtualRuntime,
) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            instances = [await with_jobs(world, jobs) for _ in range(3)]
            await anyio.sleep(2 * JOIN_MS / 1000)
            tasks = [await submit(world, f"stream s/{number}") for number in range(8)]
            await anyio.sleep(1.5)
            dead = instances[1]
            left = {
                each.id for each in await world.ep.tasks.list() if each.instance == dead.ep.db.instance_id
            }
            assert left
            dead.kill()
            for each in tasks:
                ended = await world.ep.tasks.wait(each.id)
                assert (ended.status, ended.attempt) == (TaskStatus.DONE, 2 if each.id in left else 1)
                assert await counted(world, each) == STEPS

    runtime.run(main)


def test_tasks_of_one_resource_run_in_the_order_of_submission(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            await with_jobs(world, jobs)
            tasks: list[TaskInfo] = []
            for number in range(3):
                tasks.append(await submit(world, number=number))
                await anyio.sleep(0.002)  # ids order by the millisecond
            assert (await submit(world, number=1)).id == tasks[1].id, "an equal task is joined"
            ended = [await world.ep.tasks.wait(each.id) for each in tasks]
            times = [each.finished_ms or 0 for each in ended]
            assert times == sorted(times)
            assert times[2] - times[0] >= 2 * STEPS * 1_000

    runtime.run(main)


def test_a_cancelled_task_ends_and_what_it_stored_stays(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            await with_jobs(world, jobs)
            running = await submit(world)
            await anyio.sleep(2.5)
            waiting = await submit(world, number=1)
            assert (await world.ep.tasks.cancel(waiting.id)).status is TaskStatus.CANCELLED
            await world.ep.tasks.cancel(running.id)
            ended = await world.ep.tasks.wait(running.id)
            assert (ended.status, ended.done, await counted(world, running)) == (TaskStatus.CANCELLED, 2, 2)
            assert await counted(world, waiting) == 0
            assert (await world.ep.tasks.cancel(running.id)).status is TaskStatus.CANCELLED

    runtime.run(main)


def test_an_earlier_attempt_cannot_write_any_more(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        async with SimulatedWorld(seed=runtime.seed) as world:
            task = await submit(world)
            jobs = Jobs()
            first = await with_jobs(world, jobs)
            await anyio.sleep(1.5)
            first.kill()
            await with_jobs(world, jobs)
            await anyio.sleep(0.5)
            with pytest.raises(OwnerFenced):
                await TaskContext(world.ep.db, attempt_of(task, 1)).write(lambda _: None)
            await world.ep.tasks.wait(task.id)
            with pytest.raises(OwnerFenced):
                await TaskContext(world.ep.db, attempt_of(task, 2)).write(lambda _: None)

    runtime.run(main)


def attempt_of(task: TaskInfo, attempt: int) -> TaskInfo:
    return attrs.evolve(task, attempt=attempt, status=TaskStatus.RUNNING)


def test_a_failing_task_says_why_and_lets_the_next_one_run(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            await with_jobs(world, jobs)
            jobs.fails = True
            failed = await world.ep.tasks.wait((await submit(world)).id)
            assert (failed.status, failed.error) == (TaskStatus.FAILED, "ValueError: no luck")
            jobs.fails = False
            assert (await world.ep.tasks.wait((await submit(world)).id)).status is TaskStatus.DONE

    runtime.run(main)


def test_a_task_that_kills_its_instances_fails_in_the_end(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        jobs = Jobs()
        async with SimulatedWorld(seed=runtime.seed) as world:
            task = await submit(world)
            for _ in range(ATTEMPTS_MAX):
                instance = await with_jobs(world, jobs, faults=[("task.run.begun", "die")])
                await instance.ended()
            await with_jobs(world, jobs)
            ended = await world.ep.tasks.wait(task.id)
            assert (ended.status, ended.attempt) == (TaskStatus.FAILED, ATTEMPTS_MAX)
            assert ended.error == "5 instances ended while they ran it; submit it again to try again"

    runtime.run(main)


@pytest.mark.acceptance("B14", differs="a stream has no row of its bucket, so none can be left behind")
@pytest.mark.acceptance("B20", differs="the scope's streams are deleted by a task, with progress")
def test_a_large_scope_is_deleted_by_a_task_whose_instance_dies(runtime: VirtualRuntime) -> None:
    async def main() -> None:
        async with SimulatedWorld(seed=runtime.seed) as world:
            first = await world.start(faults=[("task.run.committed", "die")])
            await world.ep.create_scope("s")
            for number in range(6):
                await world.ep.create_stream(f"s/t{number}")
            task = await world.ep.tasks.submit(eventproc.DeleteScopeTask("s"))
            await first.ended()
            await world.start()
            ended = await world.ep.tasks.wait(task.id)
            assert (ended.status, ended.result, ended.attempt) == (TaskStatus.DONE, {"streams": 6}, 2)
            assert await world.ep.scopes() == []
            await check(world.ep.db)

    runtime.run(main)


async def test_a_missing_scope_fails_the_task() -> None:
    async with eventproc.open_memory() as ep:
        task = await ep.tasks.submit(eventproc.DeleteScopeTask("missing"))
        ended = await ep.tasks.wait(task.id)
        assert ended.status is TaskStatus.FAILED
        assert ended.error is not None
        assert "missing" in ended.error


async def test_tasks_are_forgotten_a_day_after_their_end() -> None:
    clock = VirtualClock(1)
    async with eventproc.open_memory(host=False, clock=clock) as ep:
        task = await ep.tasks.submit(eventproc.DeleteScopeTask("s"))
        await ep.tasks.cancel(task.id)
        await ep.db.write(forget_tasks)
        assert len(await ep.tasks.list()) == 1
        clock.step_wall(TASK_MEMORY_MS + 1_000)
        await ep.db.write(forget_tasks)
        assert await ep.tasks.list() == []
