"""Streams that are not there, are made again, are truncated or grow; where a supervisor begins; idle supervisors."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from eventproc import RetentionPolicy, StreamCut
from eventproc.describe import SupervisorState
from eventproc.ingestion.changes import terminate
from eventproc.ingestion.ranges import SUPERVISOR_HOLD_MS
from eventproc.store.catalog import get_stream
from eventproc.store.ingestion.rows import read_streams
from eventproc.store.ingestion.unpublished import unpublished_events
from eventproc.store.model.ingestion import TIME_END_MS, PublishOutcome
from eventproc.store.model.partitions import is_reserve
from eventproc.store.segments.holds import held_from
from eventproc.workflows.policies.retention import retained_head
from tests.ingestion.support import HOUR_MS, ID, Bench, spec_of


async def state_of(bench: Bench) -> SupervisorState:
    return (await bench.memory()).health.state


async def retained(bench: Bench) -> StreamCut:
    """Return the head that the retention of s/t asks for."""
    return await bench.db.read(lambda tx: retained_head(tx, get_stream(tx, "s/t").value))


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
    assert "stream s/t not found; create it" in await bench.last_error()
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
    await bench.submit_and_run(streams=["s/t", "s/u"], task_count=2)
    worker = await bench.worker()
    await worker.claim()
    await bench.write(5)
    await worker.step()
    stream = await bench.ep.stream("s/u")
    await stream.seal()
    await stream.delete()
    await bench.run_after(HOUR_MS)
    assert {each.gid for each in await bench.pending()} == {0}
    await bench.run()
    await bench.run()
    assert await state_of(bench) is SupervisorState.LOST_CONTACT_WITH_STREAM
    assert not (await (await bench.ep.supervisor("clicks")).status()).healthy


@pytest.mark.acceptance("S7", differs="a stream that was made again is refused by name until a reset")
async def test_committed_offsets_come_first_and_later_partitions_begin_at_their_heads(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    await bench.write(10)
    await bench.submit_and_run(use_earliest_offset=False)
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
    assert "s/t was deleted and made again; reset the supervisor" in await bench.last_error()
    await (await bench.ep.supervisor("clicks")).reset()
    await bench.run()
    assert len((await bench.active())[0].starts) == 1


@pytest.mark.acceptance(
    "S8", differs="the window is the group's; tasks count what they throw away in their reports"
)
async def test_groups_have_windows_of_message_times(bench: Bench) -> None:
    await bench.start_supervisor(late_message_rejection_ms=600_000, early_message_rejection_ms=60_000)
    group = (await bench.active())[0]
    assert group.min_ms == group.created_ms - 600_000
    assert group.max_ms == group.created_ms + HOUR_MS + 60_000
    worker, (task,) = await bench.claim()
    await task.finish("failed")
    await bench.run_after(10_000)
    (replaced,) = await worker.claim()
    assert replaced.order.group == group
    await bench.submit_and_run(late_message_rejection_start_ms=5)
    await bench.handoff()
    assert (await bench.active())[0].min_ms == 5
    await bench.submit_and_run(task_duration_ms=2**63 - 1, early_message_rejection_ms=1)
    await bench.handoff()
    assert (await bench.active())[0].max_ms == TIME_END_MS


@pytest.mark.acceptance("S24", differs="without automatic reset only the truncated partition is not read")
async def test_a_truncation_of_unread_events_is_named_and_skipped_only_if_asked(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    await bench.write(10)
    await bench.submit_and_run(suspended=False)
    _, (task,) = await bench.claim()
    await stream.truncate(await stream.tail())
    bench.clock.advance(SUPERVISOR_HOLD_MS + 1)  # no supervisor ran for so long
    await task.finish("truncated")
    for _ in range(3):
        await bench.run()
    assert await state_of(bench) is SupervisorState.UNHEALTHY_SUPERVISOR
    assert await bench.groups() == []
    assert "s/t segment 0.0: bytes 0 to" in await bench.last_error()
    assert "were truncated unread; reset the supervisor" in await bench.last_error()
    await bench.submit(tuning={"reset_offset_automatically": True})
    for _ in range(3):
        await bench.run()
    assert await state_of(bench) is SupervisorState.RUNNING
    assert (await bench.active())[0].starts == await bench.tails()


async def test_offsets_of_segments_that_are_published_and_truncated_are_forgotten(bench: Bench) -> None:
    _, worker = await bench.published_once(1, use_earliest_offset=False)
    stream = await bench.ep.stream("s/t")
    for segment in ("0.0", "1.1", "3.2"):
        await bench.write(10)
        await stream.split(segment, 2)
        await bench.run()
        for _ in range(2):  # what is sealed, and the rest of it
            await worker.claim()
            await worker.step()
            await bench.handoff()
            await worker.complete_pending()
            await bench.run()
    assert len(await bench.offsets()) == 7
    await stream.truncate(await stream.tail())  # keeps the segment of the last epoch before it
    await bench.run_after(HOUR_MS)
    await bench.run_at_due()
    assert await bench.committed() == await bench.tails()
    assert len(await bench.offsets()) == 5
    before = await bench.committed()
    await bench.write(10)
    later, _ = await bench.claim()
    await later.step()
    await bench.handoff()
    await later.complete_pending()
    assert await bench.committed() == await bench.tails() != before


async def test_streams_that_match_a_pattern_are_read_when_they_appear(bench: Bench) -> None:
    await bench.ep.create_stream("s/clicks")
    await bench.ep.create_stream("s/other")
    await bench.submit_and_run(streams=[], pattern="s/c.*", task_count=2)
    assert len(await bench.active()) == 1
    await bench.ep.create_stream("s/calls")
    await bench.run()
    status = await (await bench.ep.supervisor("clicks")).status()
    assert status.streams == ("s/calls", "s/clicks")
    assert {each.stream for each in status.partitions} == {"s/calls", "s/clicks"}
    assert len(await bench.active()) == 2


async def test_deleted_streams_of_a_pattern_are_forgotten_but_the_last_one(bench: Bench) -> None:
    await bench.submit_and_run(streams=[], pattern="s/.*", use_earliest_offset=False)
    worker = await bench.worker()
    for number in range(3):
        stream = await bench.ep.create_stream(f"s/{number}")
        await bench.run_after(HOUR_MS)
        assert {key[0] for key in await bench.offsets()} == {stream.stream_id}
        assert list(await bench.db.read(partial(read_streams, supervisor=ID))) == [f"s/{number}"]
        await bench.write(5, stream.name)
        await stream.seal()
        await bench.run_after(HOUR_MS)
        await worker.claim()
        await worker.step()
        await bench.handoff()
        await worker.complete_pending()
        await bench.run()
        await stream.delete()
        await bench.run_after(HOUR_MS)
    await bench.ep.create_stream("s/later")
    await bench.write(5, "s/later")
    await bench.run_after(HOUR_MS)
    assert set((await bench.active())[0].starts.values()) == {0}


async def test_a_topic_that_grows_is_read_without_its_reserve(bench: Bench) -> None:
    topic = await bench.ep.create_topic("s/t", partitions=2)
    await bench.submit_and_run(task_count=2)
    assert sum(len(each.starts) for each in (await bench.active()).values()) == 2
    await topic.add_partitions(4)
    await bench.run()
    assert sum(len(each.starts) for each in (await bench.active()).values()) == 6
    assert await bench.pending() == []


@pytest.mark.acceptance("S31")
async def test_an_idle_supervisor_creates_no_tasks_until_something_is_written(bench: Bench) -> None:
    await bench.start_supervisor(idle_after_ms=60_000)
    assert await state_of(bench) is SupervisorState.IDLE  # nothing to read in its first run
    assert await bench.groups() == []
    await bench.write(5)
    await bench.run()
    assert await state_of(bench) is SupervisorState.RUNNING
    _, (task,) = await bench.claim()
    await task.step()
    await task.plan({})
    for _ in range(4):
        await bench.run_after(30_000)
    assert await state_of(bench) is SupervisorState.IDLE
    await bench.run_after(HOUR_MS)
    await task.complete()
    await bench.run()
    assert await bench.groups() == []
    await bench.write(1)
    await bench.run()
    assert len(await bench.live()) == 1
    await bench.submit(idle_after_ms=1, suspended=True)
    await bench.run_after(HOUR_MS)
    assert await state_of(bench) is SupervisorState.SUSPENDED


async def test_changing_the_number_of_groups_moves_the_fewest_partitions(bench: Bench) -> None:
    worker = await bench.start_tasks(4, task_count=2)
    await bench.write(20)
    await worker.step()
    before = await bench.active()
    await bench.submit_and_run(task_count=1)
    assert [each.gid for each in await bench.pending()] == [1]  # only the group that loses partitions ends
    assert (await bench.active())[0].base == before[0].base
    assert len((await bench.active())[0].starts) == 4
    await worker.complete_pending()
    await worker.step()
    await bench.run_after(HOUR_MS)
    await worker.complete_pending()
    await bench.run()
    assert await bench.committed() == await bench.tails()
    await bench.check_ranges()


async def test_retention_by_consumption_keeps_what_a_supervisor_has_not_published(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    head = partial(retained, bench)
    await bench.write(10)
    await bench.ep.create_group("s/ahead", ["s/t"], start="tail")
    ahead = await head()
    assert ahead == await stream.tail()
    await bench.submit_and_run(task_count=1)
    assert await head() == await stream.head()
    worker, (task,) = await bench.claim()
    await task.step()
    await task.close()
    assert await task.publish() is PublishOutcome.PUBLISHED
    assert await head() == ahead
    await stream.split("0.0", 2)
    await bench.write(10)  # in segments that it has not met
    await bench.ep.create_group("s/far", ["s/t"], start="tail")
    assert await head() == ahead
    await bench.db.write(partial(terminate, supervisor="clicks"))
    await bench.run()
    assert await head() == ahead  # its tasks publish
    await worker.complete_pending()
    for _ in range(3):
        await bench.run()
    assert await head() == ahead  # the group stands there
    await (await bench.ep.group("s/ahead")).delete()
    assert await head() == await stream.tail()


@pytest.mark.parametrize("io", [{}, {"streams": [], "pattern": "s/t+"}])
async def test_retention_by_consumption_keeps_what_a_supervisor_will_read_in_its_first_run(
    bench: Bench, io: dict[str, Any]
) -> None:
    stream = await bench.ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await bench.write(10)
    await bench.ep.create_group("s/ahead", ["s/t"], start="tail")
    assert await retained(bench) == await stream.tail()
    await bench.submit(**io)
    assert await retained(bench) == await stream.head()


async def test_retention_by_consumption_does_not_wait_for_a_supervisor_that_reads_the_stream_no_more(
    bench: Bench,
) -> None:
    stream = await bench.ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    await bench.ep.create_stream("s/other")
    await bench.write(10)
    await bench.submit_and_run()
    _, (task,) = await bench.claim()
    await task.step()
    await bench.submit_and_run(streams=["s/other"])
    await bench.run_after(HOUR_MS)
    assert await retained(bench) == await stream.head()  # its task publishes
    await task.complete()
    await bench.run()
    await bench.write(10)
    await bench.ep.create_group("s/ahead", ["s/t"], start="tail")
    assert await retained(bench) == await stream.tail()


async def test_what_is_written_after_an_idle_first_run_is_read(bench: Bench) -> None:
    await bench.ep.create_stream("s/t")
    await bench.write(3)
    before = await bench.tails()
    await bench.submit_and_run(use_earliest_offset=False, idle_after_ms=60_000)
    assert await state_of(bench) is SupervisorState.IDLE
    await bench.write(5)
    await bench.run()
    assert (await bench.active())[0].starts == before
    assert (await bench.situation()).view.lags == dict.fromkeys(before, 5)


async def test_a_range_that_a_dead_worker_has_read_is_read_again_after_a_truncation(bench: Bench) -> None:
    stream = await bench.ep.create_stream("s/t")
    await bench.submit_and_run(tuning={"reset_offset_automatically": True})
    await bench.write(5)
    dead = await bench.worker("dead")
    (task,) = await dead.claim()
    await task.step()
    tails = await bench.tails()
    await stream.truncate(await stream.tail())
    bench.clock.advance(24 * HOUR_MS)  # the directory is closed for a day
    bench.dead.add("dead")
    await bench.run()
    assert (await bench.last_error()).endswith("its worker died")
    _, (again,) = await bench.claim()
    assert set(again.order.starts.values()) == {0}
    ((stream_id, segment),) = tails
    assert (await bench.db.read(lambda tx: held_from(tx, stream_id)))[segment] == 0
    await again.step()
    await bench.run_after(HOUR_MS)
    await again.complete()
    await bench.run()
    assert await bench.committed() == tails
    assert (await bench.db.read(lambda tx: held_from(tx, stream_id)))[segment] == tails[stream_id, segment]
    await (await bench.ep.supervisor("clicks")).suspend()
    await bench.run()
    assert await bench.db.read(lambda tx: held_from(tx, stream_id)) == {}  # nothing is read


async def test_a_closed_range_of_a_deleted_stream_is_given_up_after_a_failure(bench: Bench) -> None:
    await bench.ep.create_stream("s/a")
    deleted = await bench.ep.create_stream("s/z")
    await bench.submit_and_run(streams=[], pattern="s/.*", replicas=2)
    await bench.write(5, "s/a")
    await bench.write(5, "s/z")
    worker, (first, second) = await bench.claim()
    for task in (first, second):
        await task.step()
    await first.close()
    await deleted.seal()
    await deleted.delete()
    await bench.run()
    await second.plan({})  # a task that has read the range is not disturbed
    await first.finish("NotFound: stream s/z")
    await bench.run()
    tails = await bench.tails("s/a")
    assert (await bench.active())[0].starts == dict.fromkeys(tails, 0)
    fresh, _ = await worker.claim()
    await fresh.step(tails)
    await bench.run_after(HOUR_MS)
    assert await fresh.publish() is PublishOutcome.PUBLISHED
    offsets = await bench.offsets()
    assert {key: offsets[key].offset for key in tails} == tails


async def test_a_plan_names_the_streams_that_appeared_after_its_task_began(bench: Bench) -> None:
    await bench.ep.create_stream("s/a")
    await bench.submit_and_run(streams=[], pattern="s/.*")
    _, (task,) = await bench.claim()
    later = await bench.ep.create_stream("s/b")
    await bench.write(5, "s/b")
    await bench.run()
    assert later.stream_id not in task.order.streams
    plan = await task.plan()
    assert plan.streams[later.stream_id] == "s/b"
    assert {stream_id for stream_id, _ in plan.starts} == plan.streams.keys()


async def test_unpublished_events_are_those_of_all_partitions_with_their_message_times(bench: Bench) -> None:
    topic = await bench.ep.create_topic("s/t", partitions=2)
    await bench.submit_and_run(late_message_rejection_ms=600_000)
    _, (task,) = await bench.claim()
    await bench.write(10)
    await task.step()
    await bench.run_after(HOUR_MS)
    await bench.write(10)
    await topic.add_partitions(1)
    await bench.write(30)
    found = await bench.db.read(lambda tx: unpublished_events(tx, "clicks", window=(5, None)))
    (pending,), (active,) = await bench.pending(), (await bench.active()).values()
    assert [each.min_ms for each in found] == [pending.min_ms, active.min_ms, 5]
    assert [each.starts for each in found[:2]] == [pending.starts, active.starts]
    assert found[0].ends == pending.ends == active.starts
    covered = {**found[1].ends, **found[2].ends}
    assert covered == {key: tail for key, tail in (await bench.tails()).items() if not is_reserve(key[1])}
    assert await task.publish() is PublishOutcome.PUBLISHED
    rest = await bench.db.read(lambda tx: unpublished_events(tx, "clicks"))
    assert [each.starts for each in rest] == [each.starts for each in found[1:]]


async def submit(bench: Bench, **changes: Any) -> dict[str, int]:
    """Submit a spec as callers do, and run; return where each stream was published to."""
    await bench.ep.submit_supervisor(spec_of(start_delay_ms=0, **changes))
    await bench.run()
    status = await (await bench.ep.supervisor("clicks")).status()
    return {each.stream: each.offset for each in status.partitions}


async def tail_of(bench: Bench, stream: str) -> int:
    (tail,) = (await bench.tails(stream)).values()
    return tail


@pytest.mark.parametrize("early", [False, True])
async def test_a_stream_that_a_spec_adds_begins_as_the_spec_says(bench: Bench, early: bool) -> None:
    for name in ("s/t", "s/u"):
        await bench.ep.create_stream(name)
        await bench.write(3, name)
    first = await submit(bench, use_earliest_offset=early)
    await bench.write(2, "s/t")
    both = await submit(bench, streams=["s/t", "s/u"], use_earliest_offset=early)
    assert both == {**first, "s/u": 0 if early else await tail_of(bench, "s/u")}
    await (await bench.ep.stream("s/u")).split("0.0", 2)
    await bench.run()
    last = (await (await bench.ep.supervisor("clicks")).status()).partitions
    assert [each.offset for each in last if each.segment >> 32] == [0, 0], "a successor begins at its head"


async def test_a_pattern_adds_what_exists_at_the_tail_and_reads_later_streams_from_the_head(
    bench: Bench,
) -> None:
    late = {"streams": [], "pattern": "s/.*", "use_earliest_offset": False}
    for name in ("s/t", "s/u"):
        await bench.ep.create_stream(name)
        await bench.write(3, name)
    first = await submit(bench, use_earliest_offset=False)
    await bench.ep.submit_supervisor(spec_of(start_delay_ms=0, suspended=True, **late))
    await bench.run()
    await bench.ep.create_stream("s/v")
    await bench.write(3, "s/v")
    supervisor = await bench.ep.supervisor("clicks")
    await supervisor.resume()
    await bench.run()
    found = {each.stream: each.offset for each in (await supervisor.status()).partitions}
    assert found == {**first, "s/u": await tail_of(bench, "s/u"), "s/v": 0}
    await supervisor.terminate()
    await bench.run()
    for name in ("s/w", "a/t"):
        if name == "a/t":
            await bench.ep.create_scope("a")
        await bench.ep.create_stream(name)
        await bench.write(3, name)
    again = await submit(bench, streams=[], pattern=".*", use_earliest_offset=False)
    assert again == {**found, "s/w": 0, "a/t": await tail_of(bench, "a/t")}
