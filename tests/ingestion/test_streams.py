"""Streams that are not there, are made again, are truncated or grow; where a supervisor begins; idle supervisors."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc import RetentionPolicy, ScalingPolicy, StreamCut
from eventproc.ingestion import SupervisorState
from eventproc.ingestion.changes import terminate
from eventproc.store.catalog import get_stream
from eventproc.store.model.ingestion import PublishOutcome
from eventproc.workflows.policies.retention import retained_head
from tests.ingestion.support import HOUR_MS, Bench


async def state_of(bench: Bench) -> SupervisorState:
    return (await bench.memory()).health.state


async def last_error(bench: Bench) -> str:
    return (await bench.memory()).health.errors[-1].message


@pytest.mark.acceptance("S5")
async def test_a_supervisor_without_its_stream_is_unhealthy_until_three_good_runs(bench: Bench) -> None:
    await bench.submit()
    for expected in (
        SupervisorState.CONNECTING_TO_STREAM,
        SupervisorState.CONNECTING_TO_STREAM,
        SupervisorState.UNABLE_TO_CONNECT_TO_STREAM,
    ):
        await bench.run()
        assert await state_of(bench) is expected
    assert await bench.groups() == []
    assert "stream s/t not found; create it" in await last_error(bench)
    await bench.ep.create_stream("s/t")
    for expected in (
        SupervisorState.UNABLE_TO_CONNECT_TO_STREAM,
        SupervisorState.UNABLE_TO_CONNECT_TO_STREAM,
        SupervisorState.RUNNING,
    ):
        await bench.run()
        assert await state_of(bench) is expected
    assert len(await bench.active()) == 1


@pytest.mark.acceptance("S6")
async def test_groups_are_managed_while_a_stream_is_lost(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.ep.create_stream("s/u")
    await bench.submit(streams=["s/t", "s/u"], task_count=2)
    await bench.run()
    worker = await bench.worker()
    await worker.claim()
    await bench.write(5)
    for task in worker.tasks:
        await task.step()
    stream = await bench.ep.stream("s/u")
    await stream.seal()
    await stream.delete()
    bench.clock.advance(HOUR_MS)
    await bench.run()
    assert {each.gid for each in await bench.pending()} == {0}
    await bench.run()
    await bench.run()
    assert await state_of(bench) is SupervisorState.LOST_CONTACT_WITH_STREAM
    assert not (await (await bench.ep.supervisor("clicks")).status()).healthy


@pytest.mark.acceptance("S7", differs="a stream that was made again is refused by name until a reset")
async def test_committed_offsets_come_first_and_later_partitions_begin_at_their_heads(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    await bench.write(10)
    await bench.submit(use_earliest_offset=False)
    await bench.run()
    tails = await bench.tails()
    assert (await bench.active())[0].starts == tails  # the tail: no offset was stored
    await stream.split("0.0", 2)
    await bench.write(10)
    await bench.run()
    later = {key: offset for key, offset in (await bench.active())[0].starts.items() if key not in tails}
    assert list(later.values()) == [0, 0]
    await stream.seal()
    await stream.delete()
    await bench.ep.create_stream("s/t")
    await bench.run()
    assert "s/t was deleted and made again; reset the supervisor" in await last_error(bench)
    await (await bench.ep.supervisor("clicks")).reset()
    await bench.run()
    assert len((await bench.active())[0].starts) == 1


@pytest.mark.acceptance(
    "S8", differs="the window is the group's; tasks count what they throw away in their reports"
)
async def test_groups_have_windows_of_message_times(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.submit(late_message_rejection_ms=600_000, early_message_rejection_ms=60_000)
    await bench.run()
    group = (await bench.active())[0]
    assert group.min_ms == group.created_ms - 600_000
    assert group.max_ms == group.created_ms + HOUR_MS + 60_000
    worker = await bench.worker()
    (task,) = await worker.claim()
    await task.finish("failed")
    bench.clock.advance(10_000)
    await bench.run()
    (replaced,) = await worker.claim()
    assert replaced.order.group == group
    await bench.submit(late_message_rejection_start_ms=5)
    await bench.run()
    await (await bench.ep.supervisor("clicks")).handoff()
    await bench.run()
    assert (await bench.active())[0].min_ms == 5


@pytest.mark.acceptance("S24", differs="without automatic reset only the truncated partition is not read")
async def test_a_truncation_of_unread_events_is_named_and_skipped_only_if_asked(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    await bench.write(10)
    await bench.submit(suspended=False)
    await bench.run()
    worker = await bench.worker()
    (task,) = await worker.claim()
    await stream.truncate(await stream.tail())
    await task.finish("truncated")
    for _ in range(3):
        await bench.run()
    assert await state_of(bench) is SupervisorState.UNHEALTHY_SUPERVISOR
    assert await bench.groups() == []
    assert "s/t segment 0.0: bytes 0 to" in await last_error(bench)
    assert "were truncated unread; reset the supervisor" in await last_error(bench)
    await bench.submit(tuning={"reset_offset_automatically": True})
    for _ in range(3):
        await bench.run()
    assert await state_of(bench) is SupervisorState.RUNNING
    assert (await bench.active())[0].starts == await bench.tails()


async def test_streams_that_match_a_pattern_are_read_when_they_appear(bench: Bench) -> None:
    await bench.ep.create_stream("s/clicks")
    await bench.ep.create_stream("s/other")
    await bench.submit(streams=[], pattern="s/c.*", task_count=2)
    await bench.run()
    assert len(await bench.active()) == 1
    await bench.ep.create_stream("s/calls")
    await bench.run()
    status = await (await bench.ep.supervisor("clicks")).status()
    assert status.streams == ("s/calls", "s/clicks")
    assert {each.stream for each in status.partitions} == {"s/calls", "s/clicks"}
    assert len(await bench.active()) == 2


async def test_a_topic_that_grows_is_read_without_its_reserve(bench: Bench) -> None:
    topic = await bench.ep.create_topic("s/t", partitions=2)
    await bench.submit(task_count=2)
    await bench.run()
    assert sum(len(each.starts) for each in (await bench.active()).values()) == 2
    await topic.add_partitions(4)
    await bench.run()
    assert sum(len(each.starts) for each in (await bench.active()).values()) == 6
    assert await bench.pending() == []


@pytest.mark.acceptance("S31")
async def test_an_idle_supervisor_creates_no_tasks_until_something_is_written(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.submit(idle_after_ms=60_000)
    await bench.run()
    assert await state_of(bench) is SupervisorState.IDLE  # nothing to read in its first run
    assert await bench.groups() == []
    await bench.write(5)
    await bench.run()
    assert await state_of(bench) is SupervisorState.RUNNING
    worker = await bench.worker()
    (task,) = await worker.claim()
    await task.step()
    await task.plan({})
    for _ in range(4):
        bench.clock.advance(30_000)
        await bench.run()
    assert await state_of(bench) is SupervisorState.IDLE
    bench.clock.advance(HOUR_MS)
    await bench.run()
    await task.complete()
    await bench.run()
    assert await bench.groups() == []
    await bench.write(1)
    await bench.run()
    assert len(await bench.live()) == 1
    await bench.submit(idle_after_ms=1, suspended=True)
    bench.clock.advance(HOUR_MS)
    await bench.run()
    assert await state_of(bench) is SupervisorState.SUSPENDED


async def test_changing_the_number_of_groups_moves_the_fewest_partitions(bench: Bench) -> None:
    await bench.ep.create_stream("s/t", scaling=ScalingPolicy.fixed(4))
    await bench.submit(task_count=2)
    await bench.run()
    worker = await bench.worker()
    await worker.claim()
    await bench.write(20)
    for task in worker.tasks:
        await task.step()
    before = await bench.active()
    await bench.submit(task_count=1)
    await bench.run()
    assert [each.gid for each in await bench.pending()] == [1]  # only the group that loses partitions ends
    assert (await bench.active())[0].base == before[0].base
    assert len((await bench.active())[0].starts) == 4
    await worker.complete_pending()
    for task in worker.tasks:
        await task.step()
    bench.clock.advance(HOUR_MS)
    await bench.run()
    await worker.complete_pending()
    await bench.run()
    assert {key: each.offset for key, each in (await bench.offsets()).items()} == await bench.tails()
    await bench.check_ranges()


async def test_retention_by_consumption_keeps_what_a_supervisor_has_not_published(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))

    async def head() -> StreamCut:
        return await bench.db.read(lambda tx: retained_head(tx, get_stream(tx, "s/t").value))

    await bench.write(10)
    await bench.ep.create_reader_group("s/ahead", ["s/t"], start="tail")
    ahead = await head()
    assert ahead == await stream.tail()
    await bench.submit(task_count=1)
    await bench.run()
    assert await head() == await stream.head()
    worker = await bench.worker()
    [task] = await worker.claim()
    await task.step()
    await task.close()
    assert await task.publish() is PublishOutcome.PUBLISHED
    assert await head() == ahead
    await stream.split("0.0", 2)
    await bench.write(10)  # in segments that it has not met
    await bench.ep.create_reader_group("s/far", ["s/t"], start="tail")
    assert await head() == ahead
    await bench.db.write(partial(terminate, supervisor="clicks"))
    await bench.run()
    assert await head() == ahead  # its tasks publish
    await worker.complete_pending()
    for _ in range(3):
        await bench.run()
    assert await head() == ahead  # the group stands there
    await (await bench.ep.reader_group("s/ahead")).delete()
    assert await head() == await stream.tail()
