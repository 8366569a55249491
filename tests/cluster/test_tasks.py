"""Tasks: one instance at a time, one per resource, taken over after a death, brought to their end or cancelled."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import attrs
import pytest

import eventproc
from eventproc.base.clock import new_id
from eventproc.cluster import run_tasks
from eventproc.cluster.buckets import JOIN_MS, OWNED_BUCKETS
from eventproc.cluster.task_runner import TASKS_MAX, Job, TaskContext
from eventproc.store import task_queue
from eventproc.store.database import Database, Tx
from eventproc.store.inspection.database_file import TableColumns
from eventproc.store.inspection.schema_check import expected_tables
from eventproc.store.model.buckets import bucket_of
from eventproc.store.model.errors import DiskFull, InvalidArgument, OwnerFenced
from eventproc.store.records import RecordKind, create, find, replace
from eventproc.store.task_queue import (
    ATTEMPTS_MAX,
    TASK_MEMORY_MS,
    TaskInfo,
    TaskStatus,
    due_tasks,
    forget_tasks,
    submit_task,
)
from eventproc.streams.request_calls import run_request
from eventproc.testing import Fault, SimulatedInstance, SimulatedWorld, VirtualClock, check
from eventproc.workflows.requests import AnyRequest, SealStream
from tests.support.simulated_world import in_simulated_world


@attrs.frozen
class CountedSteps:
    """A record that only grows by one."""

    number: int


COUNTER = RecordKind(name="counter of the tests", value=CountedSteps)
STEPS = 5
WAITING = 101
"""Tasks that wait for one resource."""


class TaskJobs:
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


async def with_jobs(
    world: SimulatedWorld,
    jobs: TaskJobs | None = None,
    faults: Sequence[Fault | tuple[str, str]] = (),
    **more: Job,
) -> SimulatedInstance:
    """Start an instance that runs tasks. more: jobs by their kind."""
    instance = await world.start(faults=faults)  # type: ignore[arg-type]
    if instance.alive:
        instance.start_soon(run_tasks, instance.ep.db, {**more, **(jobs.of(instance) if jobs else {})})
    return instance


async def submit(
    world: SimulatedWorld, resource: str = "stream s/t", kind: str = "count", **arguments: int
) -> TaskInfo:
    make = partial(
        submit_task, task_id=new_id(world.clock), kind=kind, resource=resource, arguments=arguments
    )
    return await world.ep.db.write(make)


async def wait_for_ever(ctx: TaskContext) -> Mapping[str, str | int]:
    await anyio.sleep_forever()
    return {}


async def counted(world: SimulatedWorld, task: TaskInfo) -> int:
    found = await world.ep.db.read(lambda tx: find(tx, COUNTER, task.id))
    return 0 if found is None else found.value.number


@in_simulated_world
async def test_a_task_runs_to_its_end_with_its_progress(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
    await with_jobs(world, jobs)
    task = await submit(world)
    await anyio.sleep(2.5)
    half = await world.ep.tasks.get(task.id)
    assert (half.status, half.done, half.total) == (TaskStatus.RUNNING, 2, STEPS)
    ended = await world.ep.tasks.wait(task.id)
    assert (ended.status, ended.result, ended.done) == (TaskStatus.DONE, {"steps": STEPS}, STEPS)
    assert [each.id for each in await world.ep.tasks.list()] == [task.id]


@pytest.mark.parametrize(
    "point",
    [
        f"task.{step}.{moment}"
        for step in ("start", "run", "end")
        for moment in ("begun", "commit", "committed")
    ],
)
@in_simulated_world
async def test_a_task_is_brought_to_its_end_by_another_instance(world: SimulatedWorld, point: str) -> None:
    """The only worker dies at the point; the next one finishes what is left, and repeats no durable step."""

    jobs = TaskJobs()
    first = await with_jobs(world, jobs, faults=[(point, "die")])
    task = await submit(world)
    await first.ended()
    assert first.killed
    await with_jobs(world, jobs)
    ended = await world.ep.tasks.wait(task.id)
    assert (ended.status, ended.done, await counted(world, task)) == (TaskStatus.DONE, STEPS, STEPS)
    assert ended.attempt <= 2
    await check(world.ep.db)


@in_simulated_world
async def test_a_running_task_stays_where_it_is_when_an_instance_joins(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
    await with_jobs(world, jobs)
    tasks = [await submit(world, f"stream s/{number}") for number in range(4)]
    await anyio.sleep(0.5)
    for _ in range(3):
        await with_jobs(world, jobs)
    for each in tasks:
        assert (await world.ep.tasks.wait(each.id)).attempt == 1
    assert sorted(jobs.runs) == ["i1:1"] * 4


@in_simulated_world
async def test_survivors_take_over_the_tasks_of_a_dead_instance_and_nobody_else_does(
    world: SimulatedWorld,
) -> None:
    jobs = TaskJobs()
    instances = [await with_jobs(world, jobs) for _ in range(3)]
    await anyio.sleep(2 * JOIN_MS / 1000)
    tasks = [await submit(world, f"stream s/{number}") for number in range(8)]
    await anyio.sleep(1.5)
    dead = instances[1]
    left = {each.id for each in await world.ep.tasks.list() if each.instance == dead.ep.db.instance_id}
    assert left
    dead.kill()
    for each in tasks:
        ended = await world.ep.tasks.wait(each.id)
        assert (ended.status, ended.attempt) == (TaskStatus.DONE, 2 if each.id in left else 1)
        assert await counted(world, each) == STEPS


@in_simulated_world
async def test_tasks_of_one_resource_run_in_the_order_of_submission(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
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


async def test_the_oldest_tasks_of_all_buckets_are_found_without_reading_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with eventproc.open_memory(host=False) as ep:
        found: list[str] = []
        firsts: dict[str, str] = {}

        def fill(tx: Tx) -> None:
            for number in range(1_000):
                name, task_id = f"r{number % 500}", new_id(tx.clock)
                firsts[name] = min(firsts.get(name, task_id), task_id)
                submit_task(tx, task_id=task_id, kind="k", resource=name, arguments={"n": number})

        def counted(tx: Tx, kind: RecordKind[Any], key: str) -> Any:
            found.append(key)
            return find(tx, kind, key)

        await ep.db.write(fill)
        monkeypatch.setattr(task_queue, "find", counted)
        due = await ep.db.read(partial(due_tasks, buckets=range(16), may_run=lambda _: True, limit=4))
        assert [each.id for each in due] == sorted(firsts.values())[:4]
        assert len(found) < 200


@in_simulated_world
async def test_a_cancelled_task_ends_and_what_it_stored_stays(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
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


@in_simulated_world
async def test_an_earlier_attempt_cannot_write_any_more(world: SimulatedWorld) -> None:
    task = await submit(world)
    jobs = TaskJobs()
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


def attempt_of(task: TaskInfo, attempt: int) -> TaskInfo:
    return attrs.evolve(task, attempt=attempt, status=TaskStatus.RUNNING)


@in_simulated_world
async def test_a_task_is_taken_over_although_its_bucket_moved_before_the_death(world: SimulatedWorld) -> None:
    start = partial(with_jobs, world, wait=wait_for_ever)
    first = await start()
    await anyio.sleep(1)
    tasks = [await submit(world, f"r{number}", "wait") for number in range(TASKS_MAX)]
    await anyio.sleep(1)
    others = [await start() for _ in range(5)]
    await anyio.sleep(3 * JOIN_MS / 1000)
    moved = [
        each
        for each in tasks
        if any(bucket_of(each.resource) in i.ep.db.shared[OWNED_BUCKETS].owned for i in others)
    ]
    assert moved
    first.kill()
    await anyio.sleep(5)
    live = world.ep.db.peers.live()
    for each in moved:
        found = await world.ep.tasks.get(each.id)
        assert (found.status, found.attempt) == (TaskStatus.RUNNING, 2)
        assert found.instance in live


@in_simulated_world
async def test_a_task_that_was_started_runs_although_the_next_one_cannot_be_started(
    world: SimulatedWorld,
) -> None:
    jobs = TaskJobs()
    tasks = [await submit(world, f"r{number}") for number in range(2)]
    await with_jobs(world, jobs, faults=[Fault("task.start.commit", "busy", nth=2)])
    for each in tasks:
        assert (await world.ep.tasks.wait(each.id)).attempt == 1


@in_simulated_world
async def test_a_task_whose_outcome_could_not_be_stored_runs_again_in_its_instance(
    world: SimulatedWorld,
) -> None:
    results: list[Any] = [{"steps": object()}, {"steps": 2}]

    async def job(_: TaskContext) -> Mapping[str, str | int]:
        found: Mapping[str, str | int] = results.pop(0)
        return found

    await with_jobs(world, count=job)
    with anyio.fail_after(600):
        done = await world.ep.tasks.wait((await submit(world)).id)
    assert (done.status, done.attempt, done.result) == (TaskStatus.DONE, 2, {"steps": 2})


@in_simulated_world
async def test_an_ending_task_makes_room_for_one_that_waits(world: SimulatedWorld) -> None:
    await with_jobs(world, TaskJobs(), wait=wait_for_ever)
    for number in range(TASKS_MAX - 1):
        await submit(world, f"long {number}", "wait")
    await anyio.sleep(1)
    for each in [await submit(world, f"short {number}") for number in range(3)]:
        assert (await world.ep.tasks.wait(each.id)).status is TaskStatus.DONE


@pytest.mark.parametrize("same_bucket", [True, False])
@in_simulated_world
async def test_a_task_starts_however_many_of_another_resource_wait(
    world: SimulatedWorld, same_bucket: bool
) -> None:
    jobs = TaskJobs()
    names = [f"r{number}" for number in range(100)]
    other = next(each for each in names[1:] if (bucket_of(each) == bucket_of(names[0])) is same_bucket)
    await with_jobs(world, jobs, wait=wait_for_ever)
    for number in range(WAITING):
        await submit(world, names[0], "wait", number=number)
    await anyio.sleep(1)
    task = await submit(world, other)
    assert (await world.ep.tasks.wait(task.id)).status is TaskStatus.DONE


@in_simulated_world
async def test_a_task_is_not_joined_while_it_is_being_cancelled(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
    await with_jobs(world, jobs)
    first = await submit(world)
    await anyio.sleep(1.5)
    make = partial(
        submit_task, task_id=new_id(world.clock), kind="count", resource="stream s/t", arguments={}
    )
    await world.ep.tasks.cancel(first.id)
    second = await world.ep.db.write(make)
    assert second.id != first.id
    assert (await world.ep.tasks.wait(second.id)).status is TaskStatus.DONE


async def test_a_given_id_names_one_task_and_runs_once() -> None:
    async with eventproc.open_memory(host=False) as ep:
        task, mine = eventproc.DeleteScopeTask("s"), new_id(ep.db.clock)
        other = await ep.tasks.submit(task)
        made = await ep.tasks.submit(task, task_id=mine)
        assert made.id == mine != other.id
        await ep.tasks.cancel(mine)
        assert (await ep.tasks.submit(task, task_id=mine)).status is TaskStatus.CANCELLED
        with pytest.raises(InvalidArgument, match="belongs to another task: delete-scope of scope s"):
            await ep.tasks.submit(eventproc.DeleteScopeTask("t"), task_id=mine)


@in_simulated_world
async def test_a_task_survives_any_number_of_orderly_stops(world: SimulatedWorld) -> None:
    task = await submit(world, kind="wait")
    for _ in range(ATTEMPTS_MAX + 1):
        instance = await with_jobs(world, wait=wait_for_ever)
        await anyio.sleep(1)
        assert (await world.ep.tasks.get(task.id)).status is TaskStatus.RUNNING
        await instance.stop()
        assert (await world.ep.tasks.get(task.id)).status is TaskStatus.WAITING
    assert (await world.ep.tasks.get(task.id)).stops == ATTEMPTS_MAX + 1


@in_simulated_world
async def test_a_job_that_fills_the_disk_fails(world: SimulatedWorld) -> None:
    async def fill(ctx: TaskContext) -> Mapping[str, str | int]:
        raise DiskFull(path="/backups")

    await with_jobs(world, fill=fill)
    ended = await world.ep.tasks.wait((await submit(world, kind="fill")).id)
    assert ended.status is TaskStatus.FAILED
    assert str(ended.error).startswith("DiskFull: /backups")


def test_a_backup_in_the_background_needs_an_absolute_path() -> None:
    with pytest.raises(InvalidArgument, match="absolute path"):
        eventproc.BackupTask("relative/dest")


@in_simulated_world
async def test_a_check_is_taken_over_after_a_death_and_can_be_cancelled(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = True

    tables = await expected_tables()

    async def expect() -> TableColumns:
        if hangs:
            await anyio.sleep_forever()
        return tables

    monkeypatch.setattr("eventproc.cluster.integrity_checks.expected_tables", expect)
    first = await world.start()
    cancelled = await world.ep.tasks.submit(eventproc.VerifyTask())
    await anyio.sleep(1)
    await world.ep.tasks.cancel(cancelled.id)
    assert (await world.ep.tasks.wait(cancelled.id)).status is TaskStatus.CANCELLED
    task = await world.ep.tasks.submit(eventproc.VerifyTask())
    await anyio.sleep(1)
    hangs = False
    first.kill()
    await world.start()
    ended = await world.ep.tasks.wait(task.id)
    assert (ended.status, ended.attempt, ended.done) == (TaskStatus.DONE, 2, ended.total)


async def test_a_scope_is_deleted_although_a_stream_is_replaced_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overtaken = list[str]()

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        for name in ("s/a", "s/b"):
            await ep.create_stream(name)

        async def run_overtaken(db: Database, request: AnyRequest) -> object:
            if isinstance(request, SealStream) and not overtaken:
                overtaken.append(request.stream)
                stream = await ep.stream(request.stream)
                await stream.seal()
                await stream.delete()
            return await run_request(db, request)

        monkeypatch.setattr("eventproc.cluster.task_jobs.run_request", run_overtaken)
        ended = await ep.tasks.wait((await ep.tasks.submit(eventproc.DeleteScopeTask("s"))).id)
        assert (ended.status, overtaken) == (TaskStatus.DONE, ["s/a"])
        assert await ep.scopes() == []


@in_simulated_world
async def test_a_failing_task_says_why_and_lets_the_next_one_run(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
    await with_jobs(world, jobs)
    jobs.fails = True
    failed = await world.ep.tasks.wait((await submit(world)).id)
    assert (failed.status, failed.error) == (TaskStatus.FAILED, "ValueError: no luck")
    jobs.fails = False
    assert (await world.ep.tasks.wait((await submit(world)).id)).status is TaskStatus.DONE


@in_simulated_world
async def test_a_task_that_kills_its_instances_fails_in_the_end(world: SimulatedWorld) -> None:
    jobs = TaskJobs()
    task = await submit(world)
    for _ in range(ATTEMPTS_MAX):
        instance = await with_jobs(world, jobs, faults=[("task.run.begun", "die")])
        await instance.ended()
    await with_jobs(world, jobs)
    ended = await world.ep.tasks.wait(task.id)
    assert (ended.status, ended.attempt) == (TaskStatus.FAILED, ATTEMPTS_MAX)
    assert ended.error == "5 instances ended while they ran it; submit it again to try again"


@pytest.mark.acceptance("B14", differs="a stream has no row of its bucket, so none can be left behind")
@pytest.mark.acceptance("B20", differs="the scope's streams are deleted by a task, with progress")
@pytest.mark.parametrize("fault", [Fault("task.run.committed"), Fault("task.run.begun", nth=3)])
@in_simulated_world
async def test_a_large_scope_is_deleted_by_a_task_whose_instance_dies(
    world: SimulatedWorld, fault: Fault
) -> None:
    """Its result counts all streams: also the last one before the death, which no progress counts."""
    first = await world.start(faults=[fault])
    await world.ep.create_scope("s")
    for number in range(6):
        await world.ep.create_stream(f"s/t{number}")
    task = await world.ep.tasks.submit(eventproc.DeleteScopeTask("s"))
    await first.ended()
    await world.start()
    ended = await world.ep.tasks.wait(task.id)
    assert (ended.status, ended.result, ended.attempt) == (TaskStatus.DONE, {"streams": 6}, 2)
    assert (ended.done, ended.total) == (6, 6)
    assert await world.ep.scopes() == []
    await check(world.ep.db)


async def test_a_missing_scope_fails_the_task() -> None:
    async with eventproc.open_memory() as ep:
        task = await ep.tasks.submit(eventproc.DeleteScopeTask("missing"))
        ended = await ep.tasks.wait(task.id)
        assert ended.status is TaskStatus.FAILED
        assert ended.error is not None
        assert "missing" in ended.error


async def test_tasks_are_listed_by_pages_the_newest_first() -> None:
    async with eventproc.open_memory(host=False, clock=VirtualClock(1)) as ep:
        tasks = [await ep.tasks.submit(eventproc.DeleteScopeTask(f"s{number}")) for number in range(3)]
        first = await ep.tasks.list(limit=2)
        listed = [*first, *await ep.tasks.list(after=first[-1].id)]
        assert [each.id for each in listed] == sorted((each.id for each in tasks), reverse=True)


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


@in_simulated_world
async def test_a_task_fails_whatever_the_text_of_its_error(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "eventproc.tasks")  # a report of pytest-xdist cannot hold this text

    async def fail(_: TaskContext) -> Mapping[str, str | int]:
        raise OSError("no such file: '/a\udcff'")

    await with_jobs(world, fails=fail)
    task = await submit(world, kind="fails")
    found = await world.ep.tasks.wait(task.id, timeout_ms=60_000)
    assert (found.status, found.error) == (TaskStatus.FAILED, "OSError: no such file: '/a\\udcff'")
