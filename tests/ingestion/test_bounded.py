"""Bounded supervisors: they read given ranges of segments, and nothing else, and are then completed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from eventproc import RetentionPolicy, ScalingPolicy
from eventproc.describe import SupervisorState
from eventproc.errors import InvalidCut, InvalidSpec
from eventproc.ingestion import SupervisorSpec
from eventproc.ingestion.supervisor import Supervisor
from eventproc.store.catalog import get_stream
from eventproc.store.ingestion import read_tasks
from eventproc.store.ingestion.holds import held_unpublished
from eventproc.store.ingestion.unpublished import unpublished_events
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import format_segment
from eventproc.store.model.ingestion import PartitionKey, PublishOutcome
from eventproc.workflows.policies.retention import retained_head
from tests.ingestion.support import HOUR_MS, Bench, ScriptedWorker, spec_of


def ranges_of(
    starts: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int], stream: str = "s/t"
) -> list[dict[str, object]]:
    return [
        {"stream": stream, "segment": format_segment(key[1]), "start": starts[key], "end": end}
        for key, end in ends.items()
    ]


def bounded(ranges: list[dict[str, object]], **io: Any) -> SupervisorSpec:
    return spec_of(streams=[], ranges=ranges, start_delay_ms=0, **io)


async def begin(
    bench: Bench, segments: int = 2, **io: Any
) -> tuple[Supervisor, dict[PartitionKey, int], dict[PartitionKey, int]]:
    """Return a bounded supervisor that has run once, and its starts and ends: the middle 20 events of 60."""
    await bench.ep.create_stream("s/t", scaling=ScalingPolicy.fixed(segments))
    await bench.write(20)
    starts = await bench.tails()
    await bench.write(20)
    ends = await bench.tails()
    await bench.write(20)
    supervisor = await bench.ep.submit_supervisor(bounded(ranges_of(starts, ends), **io))
    await bench.run()
    return supervisor, starts, ends


async def state_of(supervisor: Supervisor) -> SupervisorState:
    return (await supervisor.status()).state


async def drain(bench: Bench, worker: ScriptedWorker | None = None) -> None:
    """Let a worker read and publish until the supervisor rests without groups."""
    worker = worker or await bench.worker()
    for _ in range(10):
        await bench.run()
        await read_and_publish(bench, worker)
        if not await bench.groups():
            return
    raise AssertionError("the groups do not end")


async def read_and_publish(bench: Bench, worker: ScriptedWorker) -> None:
    await worker.claim()
    for task in worker.tasks:
        await task.step()
        await task.plan({})
    await bench.run_at_due()
    await worker.complete_pending()


async def complete(bench: Bench, supervisor: Supervisor, worker: ScriptedWorker | None = None) -> None:
    """Let a worker read and publish everything. Assert that the supervisor is completed then."""
    await drain(bench, worker)
    await bench.run()
    assert await state_of(supervisor) is SupervisorState.COMPLETED
    await bench.check_ranges()


@pytest.mark.acceptance("S33")
async def test_a_bounded_supervisor_publishes_its_ranges_and_is_completed(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, task_count=2)
    assert await state_of(supervisor) is SupervisorState.RUNNING
    assert {gid: dict(each.starts) for gid, each in (await bench.active()).items()} == {
        gid: {key: start} for gid, (key, start) in enumerate(starts.items())
    }
    assert (await supervisor.status()).lag == 20
    await drain(bench)
    await bench.run()
    assert await bench.committed() == ends
    await bench.check_ranges()
    status = await supervisor.status()
    assert (status.state, status.healthy, status.lag, status.active) == (
        SupervisorState.COMPLETED,
        True,
        0,
        (),
    )
    await bench.write(20)
    await bench.run_at_due()
    assert await bench.groups() == []
    await (await bench.ep.stream("s/t")).seal()
    await (await bench.ep.stream("s/t")).delete()
    await bench.run_at_due()
    assert await state_of(supervisor) is SupervisorState.COMPLETED  # it needs its streams no more


@pytest.mark.acceptance("S33")
async def test_empty_ranges_are_completed_in_the_first_run(bench: Bench) -> None:
    await bench.ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    await bench.write(10)
    tails = await bench.tails()
    supervisor = await bench.ep.submit_supervisor(bounded(ranges_of(tails, tails)))
    await bench.run()
    assert await state_of(supervisor) is SupervisorState.COMPLETED
    assert await bench.db.read(lambda tx: read_tasks(tx, "clicks")) == []


@pytest.mark.acceptance("S33")
async def test_a_failed_task_of_a_range_is_replaced_behind_the_last_publication(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1)
    worker, (task,) = await bench.claim()
    (key,) = starts
    middle = starts[key] + (ends[key] - starts[key]) // 20 * 10
    await task.step({key: middle})
    await task.close()
    assert await task.publish() == "published"
    task.n, task.read = 1, {}
    await task.step()
    await task.finish("an error")
    worker.tasks.remove(task)
    await bench.run()
    (replacement,) = await worker.claim()
    assert replacement.order.starts == {key: middle}
    await complete(bench, supervisor, worker)
    assert (await bench.offsets())[key].offset == ends[key]


@pytest.mark.acceptance("S33")
async def test_a_group_of_ranges_hands_over_when_its_time_is_over(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1, task_duration_ms=HOUR_MS)
    worker, (task,) = await bench.claim()
    (key,) = starts
    middle = starts[key] + (ends[key] - starts[key]) // 20 * 5
    await task.step({key: middle})
    await bench.run_after(HOUR_MS)
    assert [each.ends for each in await bench.pending()] == [{key: middle}]
    assert (await bench.active())[0].starts == {key: middle}
    await complete(bench, supervisor, worker)


@pytest.mark.acceptance(
    "S33", differs="reversed ranges and those behind a publication are refused at submission"
)
async def test_ranges_that_cannot_be_read_are_refused_with_their_paths(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1)
    (key,) = starts
    good = ranges_of(starts, ends)[0]
    for changed, path in (
        ({"start": ends[key], "end": starts[key]}, r"io\.ranges\[0\]: start"),
        ({"end": ends[key] + 1}, r"io\.ranges\[0\]: .*inside an event"),
        ({"end": 10**9}, r"io\.ranges\[0\]: .*beyond its end"),
        ({"segment": "7.0"}, r"io\.ranges\[0\]\.segment: .*not found"),
        ({"segment": "x"}, r"io\.ranges\[0\]\.segment"),
        ({"stream": "t"}, r"io\.ranges\[0\]\.stream"),
        ({"start": ends[key]}, r"io\.ranges\[0\]: clicks has published up to offset"),
    ):
        with pytest.raises(InvalidSpec, match=path):
            await bench.ep.submit_supervisor(bounded([{**good, **changed}]))
        if "published" not in path:
            with pytest.raises(InvalidSpec, match=path):
                await bench.ep.preview_supervisor(bounded([{**good, **changed}]))
    with pytest.raises(InvalidSpec, match="one range"):
        bounded([good, good])
    with pytest.raises(InvalidSpec, match="exactly one of"):
        spec_of(ranges=[good])
    with pytest.raises(InvalidSpec, match="idle_after_ms"):
        bounded([good], idle_after_ms=1)
    with pytest.raises(InvalidSpec, match="reads given ranges; submit the spec under another id"):
        await bench.ep.submit_supervisor(spec_of())
    assert len(await supervisor.history()) == 1


@pytest.mark.acceptance("S33")
async def test_a_publication_beyond_a_shortened_range_makes_it_unhealthy(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1)
    worker, (task,) = await bench.claim()
    (key,) = starts
    await task.step()
    shorter = {key: starts[key] + (ends[key] - starts[key]) // 20 * 5}
    await bench.ep.submit_supervisor(bounded(ranges_of(starts, shorter)))
    await bench.run()
    await worker.complete_pending()
    for _ in range(4):
        await bench.run_at_due()
    status = await supervisor.status()
    assert status.state is SupervisorState.UNHEALTHY_SUPERVISOR
    assert "outside of its range" in status.errors[-1].message
    assert await bench.groups() == []


async def test_a_longer_range_goes_on_behind_what_is_published(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1)
    await drain(bench)
    await bench.run()
    await bench.ep.submit_supervisor(bounded(ranges_of(starts, await bench.tails())))
    await bench.run()
    assert (await bench.active())[0].starts == ends
    await complete(bench, supervisor)


async def test_a_reset_of_a_bounded_supervisor_stays_within_its_ranges(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1)
    await drain(bench)
    await bench.run()
    ((stream_id, segment),) = starts
    with pytest.raises(InvalidCut, match="outside of the ranges"):
        await supervisor.reset(StreamCut("s/t", stream_id, {segment: 0}))
    await supervisor.reset()
    await bench.run()
    assert (await bench.active())[0].starts == starts
    await supervisor.reset(StreamCut("s/t", stream_id, {segment: ends[stream_id, segment]}))
    await bench.run()
    assert await state_of(supervisor) is SupervisorState.COMPLETED


async def test_ranges_stay_readable_though_their_stream_is_truncated(bench: Bench) -> None:
    supervisor, _, _ = await begin(bench, 2)
    stream = await bench.ep.stream("s/t")
    await stream.truncate(await stream.tail())
    await bench.run_at_due()
    assert (await supervisor.status()).errors == ()
    await complete(bench, supervisor)


async def test_a_reset_skips_only_what_is_not_readable_any_more(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1, tuning={"reset_offset_automatically": True})
    _, (task,) = await bench.claim()
    (key,) = starts
    middle = {key: (starts[key] + ends[key]) // 2}
    await task.step(middle)
    await task.close()
    assert await task.publish() is PublishOutcome.PUBLISHED
    stream = await bench.ep.stream("s/t")
    await stream.truncate(await stream.tail())
    await bench.run_at_due()
    await supervisor.reset()
    await bench.run()
    assert (await bench.active())[0].starts == middle


async def test_ranges_that_were_truncated_before_are_named_or_skipped(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    await bench.write(10)
    (key,) = await bench.partitions()
    starts, ends = {key: 0}, await bench.tails()
    await bench.write(10)
    await stream.truncate(await stream.tail())
    spec = bounded(ranges_of(starts, ends))
    supervisor = await bench.ep.submit_supervisor(spec)
    for _ in range(4):
        await bench.run_at_due()
    status = await supervisor.status()
    assert status.state is SupervisorState.UNHEALTHY_SUPERVISOR
    assert "truncated unread" in status.errors[-1].message
    skipping = spec_of(
        streams=[], ranges=ranges_of(starts, ends), tuning={"reset_offset_automatically": True}
    )
    await bench.ep.submit_supervisor(skipping)
    for _ in range(4):
        await bench.run_at_due()
    assert await state_of(supervisor) is SupervisorState.COMPLETED


async def test_only_ranges_count_as_unpublished_and_retention_does_not_wait_for_them(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 1)
    stream = await bench.ep.stream("s/t")
    (found,) = await bench.db.read(lambda tx: unpublished_events(tx, "clicks", bounds=ends))
    assert (found.starts, found.ends) == (starts, ends)
    other = await bench.ep.submit_supervisor(spec_of(id="other", use_earliest_offset=False))
    await bench.run("other")
    await stream.update(retention=RetentionPolicy(consumed=True))
    head = await bench.db.read(lambda tx: retained_head(tx, get_stream(tx, "s/t").value))
    assert dict(head.offsets) == dict((await stream.tail()).offsets)
    assert await state_of(other) is not SupervisorState.COMPLETED
    assert await state_of(supervisor) is SupervisorState.RUNNING


async def test_an_update_of_the_spec_keeps_ranges_readable_that_were_truncated(bench: Bench) -> None:
    _, starts, ends = await begin(bench, 2)
    stream = await bench.ep.stream("s/t")
    await stream.truncate(await stream.tail())
    await bench.ep.submit_supervisor(bounded(ranges_of(starts, ends), task_count=2))
    assert await bench.db.read(lambda tx: held_unpublished(tx, "clicks")) == starts


async def test_ranges_stay_readable_while_no_instance_runs_their_supervisor(bench: Bench) -> None:
    supervisor, starts, ends = await begin(bench, 2)
    bench.clock.advance(60 * HOUR_MS)  # a weekend
    assert await bench.db.read(lambda tx: held_unpublished(tx, "clicks")) == starts
    await bench.ep.submit_supervisor(bounded(ranges_of(starts, ends), task_count=2))
    bench.clock.advance(60 * HOUR_MS)
    assert await bench.db.read(lambda tx: held_unpublished(tx, "clicks")) == starts
    await complete(bench, supervisor)
    assert await bench.db.read(lambda tx: held_unpublished(tx, "clicks")) == {}


async def test_a_stream_may_be_deleted_as_soon_as_its_last_range_is_published(bench: Bench) -> None:
    supervisor, _, ends = await begin(bench)
    await read_and_publish(bench, await bench.worker())
    assert await bench.committed() == ends
    stream = await bench.ep.stream("s/t")  # before the supervisor runs again
    await stream.seal()
    await stream.delete()
    await bench.run()
    await bench.run_at_due()
    assert await state_of(supervisor) is SupervisorState.COMPLETED
    assert (await supervisor.status()).errors == ()
