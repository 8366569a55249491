"""Publications: compare-and-set, retries, crashes around COMMIT, two supervisors on one table, random histories."""

from __future__ import annotations

import random
from contextlib import suppress

import anyio
import attrs
import pytest

from eventproc import ScalingPolicy
from eventproc.errors import InvalidSpec, NotFound, TaskFenced
from eventproc.ingestion import Granularity
from eventproc.store.ingestion.rows import IngestOffset, write_offset
from eventproc.store.ingestion.view import IngestView
from eventproc.store.model.ingestion import PublishOutcome, SequenceState
from tests.ingestion.support import HOUR_MS, Bench, ScriptedTask, spec_of


@pytest.mark.acceptance("S21")
async def test_a_publication_compares_its_start_with_the_committed_offsets(bench: Bench) -> None:
    worker = await bench.start_tasks(2, task_count=2)
    left, _ = worker.tasks
    await bench.write(20)
    await left.step()
    first_ends = await left.close()
    left.n, left.read = 1, {}
    await bench.write(20)
    await left.step()
    await left.close()
    assert await left.publish() is PublishOutcome.RETRY  # its predecessor comes first
    assert bench.files == []
    left.n = 0
    assert await left.publish() is PublishOutcome.PUBLISHED
    assert await left.publish() is PublishOutcome.ALREADY
    offsets = await bench.offsets()
    (mine,) = first_ends
    assert offsets[mine].offset == first_ends[mine]
    assert [each.offset for key, each in offsets.items() if key != mine] == [0]
    left.n = 1
    assert await left.publish() is PublishOutcome.PUBLISHED
    await bench.check_ranges()


@pytest.mark.acceptance("S21")
async def test_a_publication_behind_the_committed_offset_publishes_nothing(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    await bench.write(20)
    await task.step()
    ends = await task.close()
    (key,) = ends
    await bench.db.write(lambda tx: write_offset(tx, "clicks", key, IngestOffset(ends[key], 20)))
    assert await task.publish() is PublishOutcome.MISMATCH
    assert bench.files == []


@pytest.mark.acceptance("S22")
async def test_of_replicas_that_publish_simultaneously_one_wins(bench: Bench) -> None:
    await bench.start_supervisor(2, replicas=3)
    await bench.write(20)
    tasks = [(await (await bench.worker(name)).claim(1))[0] for name in ("w1", "w2", "w3")]
    for task in tasks:
        await task.step()
    await tasks[0].close()
    outcomes: list[PublishOutcome] = []

    async def publish_one(task: ScriptedTask) -> None:
        outcomes.append(await task.publish())

    async with anyio.create_task_group() as group:
        for task in tasks:
            group.start_soon(publish_one, task)
    assert sorted(outcomes) == ["already", "already", "published"]
    assert len(bench.files) == 2  # a file for each partition
    await bench.check_ranges()


@pytest.mark.acceptance(
    "S35", differs="a supervisor that names other streams keeps the offsets of each stream"
)
async def test_two_supervisors_of_one_table_have_their_own_offsets(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.create_stream("s/u")
    for supervisor, stream in (("clicks", "s/t"), ("more", "s/u")):
        await bench.submit(spec_of(id=supervisor, streams=[stream]))
        await bench.run(supervisor)
    _, tasks = await bench.claim()
    await bench.write(10)
    await bench.write(20, "s/u")
    for task in tasks:
        await task.step()
    bench.clock.advance(HOUR_MS)
    for supervisor in ("clicks", "more"):
        await bench.run(supervisor)
    for task in tasks:
        await task.complete()
    assert len(bench.files) == 2
    for supervisor, stream in (("clicks", "s/t"), ("more", "s/u")):
        offsets = await bench.offsets(supervisor)
        assert {key: each.offset for key, each in offsets.items()} == await bench.tails(stream)


ACTS = "write step step step close publish publish kill fail run time split scale handoff"


@pytest.mark.hunt(seeds=8)
async def test_random_deaths_splits_and_scales_publish_every_byte_once(bench: Bench, seed: int) -> None:
    """Replicas, deaths of workers and tasks, splits, scales, sequences, time-outs, in a random order; then the ranges
    of the published files are adjacent and end at the tails."""
    rng = random.Random(seed)
    stream = await bench.ep.create_stream("s/t", scaling=ScalingPolicy.fixed(3))
    spec = spec_of(task_count=2, replicas=2, completion_timeout_ms=600_000)
    await bench.submit_and_run(spec)
    workers = [await bench.worker(f"w{number}") for number in range(3)]
    born = len(workers)
    for _ in range(120):
        match rng.choice(ACTS.split()):
            case "write":
                await bench.write(rng.randrange(1, 8))
            case "step" | "close" | "publish" | "fail" as what:
                await _act(bench, rng, workers[rng.randrange(3)].tasks, what)
            case "kill" if rng.random() < 0.4:
                index = rng.randrange(3)
                bench.dead.add(workers[index].name)
                workers[index] = await bench.worker(f"w{born}")
                born += 1
            case "time":
                bench.clock.advance(rng.choice((1_000, 60_000, 600_000, HOUR_MS)))
            case "split" if rng.random() < 0.3:
                segments = await stream.segments()
                await stream.split(rng.choice(segments).id, 2)
            case "scale" if rng.random() < 0.5:
                await bench.submit(
                    spec_of(task_count=rng.randrange(1, 4), replicas=2, completion_timeout_ms=600_000)
                )
            case "handoff":
                with suppress(NotFound):  # the group does not read
                    await (await bench.ep.supervisor("clicks")).handoff([rng.randrange(3)])
            case _:
                pass
        before = (await bench.situation()).view
        await bench.run()
        await bench.check_groups()
        await _check_lost(bench, before)
        await workers[rng.randrange(3)].claim(rng.randrange(1, 4))
    await _drain(bench)
    tails, offsets = await bench.tails(), await bench.offsets()
    assert {key: each.offset for key, each in offsets.items()} == tails
    await bench.check_ranges()


async def _check_lost(bench: Bench, before: IngestView) -> None:
    """Assert that a group loses what its tasks have read only if one before it was given up."""
    kept, offsets = {each.base for each in await bench.groups()}, await bench.offsets()
    lost = {each.base: each for each in before.groups if each.base not in kept}
    if any(offsets[key].offset < end for each in lost.values() for key, end in (each.ends or {}).items()):
        return
    for task in before.tasks:
        if task.base in lost and task.state.live and task.worker not in bench.dead:
            starts = lost[task.base].starts
            assert all(end <= max(starts[key], offsets[key].offset) for key, end in task.planned.items())


async def _act(bench: Bench, rng: random.Random, tasks: list[ScriptedTask], what: str) -> None:
    if not tasks:
        return
    task = rng.choice(tasks)
    try:
        if what == "fail" and rng.random() < 0.3:
            await task.finish("failed")
        elif what == "close":
            await task.close()
        elif what == "step":
            await task.step()
        elif what == "publish":
            plan = await task.plan()
            done = plan.closed and plan.ends == {**plan.starts, **task.read}
            outcome = None
            if done and plan.state is not SequenceState.PUBLISHED:
                outcome = await task.publish()
                assert outcome is not PublishOutcome.MISMATCH
            if plan.state is SequenceState.PUBLISHED or outcome in (
                PublishOutcome.PUBLISHED,
                PublishOutcome.ALREADY,
            ):
                if plan.final:
                    await task.finish()
                    tasks.remove(task)
                else:
                    task.n, task.read = task.n + 1, {}
    except TaskFenced:
        tasks.remove(task)


async def _drain(bench: Bench) -> None:
    """Let one fresh worker read and publish everything."""
    for name in [f"w{number}" for number in range(200)]:
        bench.dead.add(name)
    worker = await bench.worker("last")
    for _ in range(200):
        await bench.run_after(60_000)
        await worker.claim()
        for task in list(worker.tasks):
            alone = [task]
            for what in ("step", "publish"):
                await _act(bench, random.Random(0), alone, what)
            if not alone:
                worker.tasks.remove(task)
        await (await bench.ep.supervisor("clicks")).handoff()
        tails = await bench.tails()
        if await bench.committed() == tails:
            return
    raise AssertionError("the supervisor does not catch up")


async def test_a_table_of_one_interval_has_no_retention(bench: Bench) -> None:
    spec = attrs.evolve(spec_of(), retention_ms=48 * HOUR_MS)
    with pytest.raises(InvalidSpec, match="retention_ms"):
        attrs.evolve(spec, schema=attrs.evolve(spec.schema, segment_granularity=Granularity.ALL)).validate()
