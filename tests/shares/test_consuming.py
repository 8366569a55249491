"""Consumers of a share group: acquire, accept, release, reject, renew; what a lost lock means."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import anyio
import pytest

import eventproc
import eventproc.errors
from eventproc import ScalingPolicy
from eventproc.errors import AlreadyExists, InvalidArgument, LockLost, NotFound, Rejected
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery
from eventproc.shares.acquisition import acquire
from eventproc.shares.consumer import HELD_EVENTS_MAX
from eventproc.shares.delivery import Holder
from eventproc.store.database import Tx
from eventproc.store.groups import read_held
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import EventBlock, SegmentEvents, append
from eventproc.testing import Fault, FaultPlan, VirtualClock
from tests.shares.support import drain, numbers_of, poll_now, write_numbers, written_to
from tests.support.virtual_time import virtual_time


async def test_a_released_event_is_delivered_again_with_its_count(ep: Eventproc) -> None:
    await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as first, group.consumer("b") as second:
        events = await first.poll()
        await first.release(events[1])
        again = await second.poll()
        assert numbers_of(again) == [1]
        assert again[0].deliveries == 2
        await first.accept([events[0], events[2]])
        await second.accept(again)
    assert (await group.describe()).segments[0].number == 3


async def test_an_expired_lock_is_redelivered_and_its_holder_can_change_nothing(ep: Eventproc) -> None:
    await written_to(ep, 2)
    group = await ep.create_share_group("work", ["s/t"], lock_ms=100)
    async with group.consumer("slow") as slow, group.consumer("b") as second:
        late = await slow.poll()
        again = await second.poll()  # waits for the end of the locks
        assert numbers_of(again) == [0, 1]
        assert {event.deliveries for event in again} == {2}
        for settle in slow.accept, slow.release, slow.renew:
            with pytest.raises(LockLost) as lost:
                await settle(late)
            assert lost.value.events == ("s/t 0.0:0", "s/t 0.0:1")
        await second.accept(again)
    assert (await group.describe()).events == 0


async def test_a_renewed_lock_outlives_its_first_end(ep: Eventproc) -> None:
    await written_to(ep, 1)
    group = await ep.create_share_group("work", ["s/t"], lock_ms=2_000)
    async with group.consumer("slow") as slow, group.consumer("b") as second:
        (event,) = await slow.poll()
        assert await second.poll(timeout_ms=1_200) == []
        await slow.renew(event)
        assert await second.poll(timeout_ms=1_200) == []
        await slow.accept(event)


async def test_the_last_delivery_becomes_a_dead_letter_and_redrive_returns_it(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    async with stream.writer() as writer:
        await writer.write(b"poison", key="k", headers={"trace": "t1"}, event_time=7)
    group = await ep.create_share_group("work", ["s/t"], deliveries_max=2)
    async with group.consumer("a") as consumer:
        for count in 1, 2:
            (event,) = await consumer.poll()
            assert event.deliveries == count
            await consumer.release(event)
        assert await poll_now(consumer) == []
        letters = ep.dead_letters("s/work")
        (letter,) = await letters.list()
        assert (letter.payload, letter.key, letter.event_time) == (b"poison", "k", 7)
        assert dict(letter.headers) == {"trace": "t1"}
        assert (letter.origin_stream, letter.origin_segment, letter.origin_number) == ("s/t", "0.0", 0)
        assert (letter.attempts, letter.error_type) == (2, "Released")
        assert await letters.redrive("all") == 1
        (event,) = await consumer.poll()
        assert (event.event.payload, event.deliveries, event.event.stream) == (b"poison", 1, "s/work-redrive")
        await consumer.accept(event)
    assert await letters.list() == []


async def test_a_lock_that_expires_at_the_last_delivery_becomes_a_dead_letter(ep: Eventproc) -> None:
    await written_to(ep, 2)
    group = await ep.create_share_group("work", ["s/t"], lock_ms=100, deliveries_max=1)
    async with group.consumer("slow") as slow, group.consumer("b") as second:
        events = await slow.poll(1)
        await second.accept(await second.poll())
        assert await second.poll(timeout_ms=300) == []
        (letter,) = await ep.dead_letters("s/work").list()
        assert (letter.payload, letter.attempts, letter.error_type) == (b"0", 1, "LockExpired")
        with pytest.raises(LockLost):
            await slow.accept(events)


@pytest.mark.parametrize(
    "error, shown", [("bad address", "bad address"), ("half \ud800 of it", "half \\ud800 of it")]
)
async def test_a_rejected_event_becomes_a_dead_letter_immediately(
    ep: Eventproc, error: str, shown: str
) -> None:
    await written_to(ep, 2)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        first, second = await consumer.poll()
        await consumer.reject(first, error)
        await consumer.accept(second)
    (letter,) = await ep.dead_letters("s/work").list()
    assert (letter.payload, letter.error, letter.attempts) == (b"0", shown, 1)


async def test_settling_a_batch_with_a_lost_event_changes_nothing(ep: Eventproc) -> None:
    await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        events = await consumer.poll()
        await consumer.accept(events[0])
        with pytest.raises(LockLost) as lost:
            await consumer.accept(events)
        assert lost.value.events == ("s/t 0.0:0",)
        assert (await group.describe()).in_flight == 2
        await consumer.accept(events[1:])


async def test_a_poll_with_auto_accept_accepts_what_was_not_settled(ep: Eventproc) -> None:
    await written_to(ep, 6)
    group = await ep.create_share_group("work", ["s/t"], deliveries_max=1)
    async with group.consumer("a", auto_accept=True) as consumer:
        events = await consumer.poll(3)
        await consumer.reject(events[1])
        assert numbers_of(await consumer.poll(3)) == [3, 4, 5]
        assert (await group.describe()).in_flight == 3
    assert (await group.describe()).events == 0
    assert len(await ep.dead_letters("s/work").list()) == 1


async def test_iterating_accepts_each_event_and_ends_with_the_stream(ep: Eventproc) -> None:
    stream = await written_to(ep, 250)
    group = await ep.create_share_group("work", ["s/t"])
    await stream.seal()
    async with group.consumer("a", payload=str) as consumer:
        seen = [int(event.event.payload) async for event in consumer]
    assert seen == list(range(250))
    found = await group.describe()
    assert (found.events, found.state, found.segments) == (0, "empty", ())


async def test_leaving_by_an_exception_releases_the_event_in_hand_and_returns_the_unseen(
    ep: Eventproc,
) -> None:
    await written_to(ep, 5)
    group = await ep.create_share_group("work", ["s/t"])

    async def fail_at_the_third() -> None:
        async with group.consumer("a") as consumer:
            async for event in consumer:
                if event.event.number == 2:
                    raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail_at_the_third()
    async with group.consumer("b") as consumer:
        again = await consumer.poll()
        assert [(event.event.number, event.deliveries) for event in again] == [(2, 2), (3, 1), (4, 1)]
        await consumer.accept(again)


async def test_an_iteration_begins_with_few_events(ep: Eventproc) -> None:
    await written_to(ep, 20)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        locked: list[int] = []
        for _ in range(8):
            await anext(consumer)
            locked.append((await group.describe()).in_flight)
    assert [locked[0], locked[1], locked[3], locked[7]] == [1, 2, 4, 8]


async def test_events_behind_a_slow_handler_are_returned_before_their_locks_end(ep: Eventproc) -> None:
    await written_to(ep, 5)
    group = await ep.create_share_group("work", ["s/t"], lock_ms=2_000, deliveries_max=1)
    async with group.consumer("slow") as slow, group.consumer("idle") as idle:
        assert [(await anext(slow)).event.number for _ in range(2)] == [
            0,
            1,
        ]  # it acquired the third event, too
        rest = await idle.poll(timeout_ms=0)
        rest += await idle.poll(timeout_ms=10_000)
        await idle.accept(rest)
        assert [(event.event.number, event.deliveries) for event in rest] == [(3, 1), (4, 1), (2, 1)]
    assert await ep.dead_letters("s/work").list() == []


@pytest.mark.parametrize("commit_ms", [1_500, 5_000])
@pytest.mark.parametrize("anyio_backend", [virtual_time()])
async def test_a_commit_longer_than_half_a_lock_does_not_keep_events_from_a_poll(commit_ms: int) -> None:
    faults = FaultPlan([Fault("share.acquire.committed", "delay", ms=commit_ms, times=1_000)])
    async with eventproc.open_memory(clock=VirtualClock(), faults=faults) as ep:
        await ep.create_scope("s")
        await written_to(ep, 4)
        group = await ep.create_share_group("work", ["s/t"], lock_ms=2_000, deliveries_max=1)
        async with group.consumer("a") as consumer:
            with anyio.fail_after(60):
                events = await consumer.poll()
                assert numbers_of(events) == [0, 1, 2, 3]
                await consumer.accept(events)
        assert (await group.describe()).events == 0
        assert await ep.dead_letters("s/work").list() == []


async def test_a_waiting_poll_wakes_at_a_write_and_at_a_release(ep: Eventproc) -> None:
    stream = await written_to(ep, 0)
    group = await ep.create_share_group("work", ["s/t"])
    found: list[Delivery] = []
    async with group.consumer("a") as first, group.consumer("b") as second:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def take() -> None:
                    found.extend(await first.poll())

                tasks.start_soon(take)
                await anyio.lowlevel.checkpoint()
                await write_numbers(stream, range(1))
            assert numbers_of(found) == [0]
            async with anyio.create_task_group() as tasks:

                async def take_again() -> None:
                    found.extend(await second.poll())

                tasks.start_soon(take_again)
                await anyio.wait_all_tasks_blocked()
                await first.release(found[0])
        assert numbers_of(found) == [0, 0]


@pytest.mark.parametrize("anyio_backend", [virtual_time()])
async def test_a_consumer_that_never_settles_forgets_only_events_whose_lock_ended() -> None:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        await written_to(ep, 2_000)
        group = await ep.create_share_group("work", ["s/t"], lock_ms=1_000, deliveries_max=100)
        async with group.consumer("a") as consumer:
            last: list[Delivery] = []
            for _ in range(12):
                clock.advance(1_000)
                assert len(await poll_now(consumer, 1_000)) == 1_000
                clock.advance(400)
                last = await poll_now(consumer, 1_000)
            assert consumer.held_events <= HELD_EVENTS_MAX + 1_000
            assert len(last) == 1_000
            await consumer.accept(last)
        assert (await group.describe()).events == 2_000 - 1_000


@pytest.mark.parametrize("way", ["release", "accept"])
async def test_released_events_are_delivered_after_the_wall_clock_was_set_back(way: str) -> None:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        await written_to(ep, 3)
        group = await ep.create_share_group("work", ["s/t"])
        async with group.consumer("a") as consumer:
            first, second, third = await consumer.poll()
            await consumer.release(second, delay_ms=20_000)
            await consumer.release([third, *([first] if way == "release" else [])])
            clock.step_wall(-24 * 3_600_000)
            if way == "accept":  # before a poll can follow the clock
                await consumer.accept(first)
            assert numbers_of(await poll_now(consumer)) == ([0, 2] if way == "release" else [2])
            clock.advance(20_000)
            assert numbers_of(await poll_now(consumer)) == [1]


async def test_a_cancelled_poll_keeps_its_events_for_the_next_one(ep: Eventproc) -> None:
    await written_to(ep, 4)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await consumer.poll()
        assert numbers_of(await poll_now(consumer)) == [0, 1, 2, 3]


async def test_asking_for_the_next_event_accepts_the_last_one_also_if_it_is_cancelled(ep: Eventproc) -> None:
    await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"])
    with suppress(ZeroDivisionError):
        async with group.consumer("a") as consumer:
            assert (await anext(consumer)).event.payload == b"0"
            with anyio.CancelScope() as scope:
                scope.cancel()
                await anext(consumer)
            raise ZeroDivisionError
    assert await drain(group) == [1, 2]


async def test_closing_a_consumer_wakes_a_poll_of_another_task(ep: Eventproc) -> None:
    await written_to(ep, 0)
    group = await ep.create_share_group("work", ["s/t"])
    consumer = await group.consumer("a")
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(eventproc.errors.Closed):
                    await consumer.poll()

            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            await consumer.close()


async def test_a_payload_that_cannot_be_decoded_becomes_a_dead_letter(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    async with stream.writer() as writer:
        await writer.write(b"\xff")
        await writer.write(b"fine")
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a", payload=str) as consumer:
        events = await consumer.poll()
        assert [event.event.payload for event in events] == ["fine"]
        await consumer.accept(events)
    (letter,) = await ep.dead_letters("s/work").list()
    assert letter.payload == b"\xff"
    assert "decoded" in (letter.error or "")


async def test_a_group_is_created_once_and_differences_are_refused(ep: Eventproc) -> None:
    await written_to(ep, 1)
    await ep.create_share_group("work", ["s/t"])
    await ep.create_share_group("s/work", ["s/t"])
    with pytest.raises(AlreadyExists):
        await ep.create_share_group("work", ["s/t"], lock_ms=1_000)
    with pytest.raises(AlreadyExists):
        await ep.create_group("work", ["s/t"])
    await ep.create_group("readers", ["s/t"])
    with pytest.raises(AlreadyExists):
        await ep.create_share_group("readers", ["s/t"])
    with pytest.raises(InvalidArgument):
        await ep.create_share_group("other", ["s/t"], deliveries_max=0)
    with pytest.raises(NotFound):
        await ep.share_group("s/none")
    assert [each.name for each in await ep.share_groups("s")] == ["s/work"]


async def test_a_group_at_the_tail_consumes_only_later_events(ep: Eventproc) -> None:
    stream = await written_to(ep, 5)
    group = await ep.create_share_group("work", ["s/t"], start="tail")
    await write_numbers(stream, [5, 6])
    assert await drain(group) == [5, 6]


async def test_a_deleted_group_takes_the_locks_and_its_name_is_free(ep: Eventproc) -> None:
    await written_to(ep, 1)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        events = await consumer.poll()
        await group.delete()
        with pytest.raises(NotFound):
            await consumer.accept(events)
        group = await ep.create_share_group("work", ["s/t"])
        with pytest.raises(LockLost):
            await consumer.accept(events)
        assert numbers_of(await poll_now(consumer)) == [0]


async def test_a_handle_does_not_delete_a_group_of_another_kind_that_has_its_name(ep: Eventproc) -> None:
    await written_to(ep, 1)
    queue = await ep.create_share_group("g", ["s/t"])
    await queue.delete()
    readers = await ep.create_group("g", ["s/t"])
    with pytest.raises(NotFound, match="no share group 's/g'"):
        await queue.delete()
    await readers.delete()
    queue = await ep.create_share_group("g", ["s/t"])
    for if_empty in (False, True):
        with pytest.raises(NotFound, match="no group 's/g'"):
            await readers.delete(if_empty=if_empty)
    with pytest.raises(NotFound, match="no group 's/g'"):
        await readers.reset_partitions("head")
    assert (await queue.describe()).events == 1


async def test_a_scope_is_deleted_with_its_share_groups(ep: Eventproc) -> None:
    await ep.create_scope("gone")
    await ep.create_stream("gone/t")
    await ep.create_share_group("work", ["gone/t"])
    with pytest.raises(eventproc.errors.ScopeNotEmpty):
        await ep.delete_scope("gone")
    await ep.delete_scope("gone", recursive=True)
    assert await ep.share_groups() == []


async def test_a_cancellation_after_the_commit_of_a_poll_loses_no_event() -> None:
    faults = FaultPlan([Fault("share.acquire.committed", "delay", ms=1_000)])
    async with eventproc.open_memory(faults=faults) as ep:
        await ep.create_scope("s")
        await written_to(ep, 4)
        group = await ep.create_share_group("work", ["s/t"])
        async with group.consumer("a") as consumer:
            with anyio.move_on_after(0.1) as scope:
                await consumer.poll()
            faults.heal()
            found = [] if not scope.cancelled_caught else await poll_now(consumer)
            assert scope.cancelled_caught
            assert [(event.event.number, event.deliveries) for event in found] == [
                (0, 1),
                (1, 1),
                (2, 1),
                (3, 1),
            ]
            await consumer.accept(found)


async def test_a_transaction_that_was_rolled_back_leaves_no_events_for_the_next_poll(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(1))
    group = await ep.create_share_group("work", ["s/t"])
    phantoms = SegmentEvents(SegmentId(0), EventBlock([b"phantom"] * 4).encode())

    def fail(tx: Tx) -> None:
        append(tx, stream.name, stream.stream_id, [phantoms])
        tx.flush_pending()
        acquire(tx, ep.db, "s/work", Holder("session", "a"), 1)
        raise Rejected

    with pytest.raises(Rejected):
        await ep.db.write(fail)
    await write_numbers(stream, range(4))
    assert await drain(group) == [0, 1, 2, 3]


async def test_a_finished_event_is_not_waited_for_because_an_earlier_one_is_held(ep: Eventproc) -> None:
    await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer() as consumer:
        first, second, third = await consumer.poll()
        await consumer.release(first, delay_ms=3_600_000)
        await consumer.accept(second)
        await group.wait_for(second.event, timeout_ms=60_000)
        for unfinished in (first, third):
            with pytest.raises(TimeoutError):
                await group.wait_for(unfinished.event, timeout_ms=10)


async def test_what_consumers_hold_is_found_without_reading_what_is_set_aside(ep: Eventproc) -> None:
    await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"])

    def plans(tx: Tx) -> list[str]:
        found: list[str] = []

        class Explaining:
            def execute(self, sql: str, values: Sequence[int | str]) -> object:
                found.extend(row[-1] for row in tx.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall())
                return tx.execute(sql, values)

        for session in (None, "a"):
            read_held(cast("Tx", Explaining()), group.name, session)
        return found

    found = await ep.db.read(plans)
    assert len(found) == 2
    assert all("delivery_held" in each for each in found), found
