"""What a consumer delivers and commits when something interrupts it: cancellations, errors, losses, truncation."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from eventproc import errors
from eventproc.groups.operations import reader_offline
from eventproc.groups.session import MemberSession
from eventproc.runtime import Eventproc
from eventproc.store.segments import Event
from eventproc.topics import Consumer, TopicPartition
from tests.consumers.support import (
    TOPIC,
    Heard,
    committed,
    eventually,
    make_topic,
    numbers_of,
    poll_all,
)

pytestmark = pytest.mark.parametrize("form", ["memory"])


async def test_events_of_a_cancelled_run_come_again(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")

    async def hang(events: list[Event]) -> None:
        run.cancel()
        await anyio.sleep_forever()

    async with group.consumer("a") as a:
        with anyio.CancelScope() as run:
            await a.run(hang)
    async with group.consumer("a") as a:
        assert numbers_of(await poll_all(a)) == list(range(10))


async def test_a_failed_handler_is_raised_though_its_events_were_truncated(ep: Eventproc) -> None:
    topic = await ep.create_topic(TOPIC, partitions=1)
    async with topic.producer() as producer:
        for number in range(10):
            await producer.write(b"%d" % number, key="k")
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")

    async def fail(events: list[Event]) -> None:
        await topic.truncate(partition=0, before_number=5)
        raise ValueError("handler")

    async with group.consumer("a") as a:
        with pytest.raises(ValueError, match="handler"):
            await a.run(fail)


async def test_a_failure_of_a_callback_between_polls_is_raised_once(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    failures: list[Exception] = [errors.NotFound(kind="own", name="revoked"), ValueError("revoked")]

    async def fail(partitions: tuple[TopicPartition, ...]) -> None:
        if failures:
            raise failures.pop()

    async def owns_one() -> bool:
        return len((await group.describe()).assignment.get("a", ())) == 1

    async def owns_both() -> bool:
        return len((await group.describe()).assignment.get("a", ())) == 2

    async with group.consumer("a", on_revoked=fail) as a:
        for kind in (ValueError, errors.NotFound):
            await eventually(ep, owns_both)
            async with group.consumer("b"):
                await eventually(ep, owns_one)
                with pytest.raises(kind, match="revoked"):
                    await a.poll(timeout_ms=0)
            await a.poll(timeout_ms=0)
            await a.commit()


async def test_the_next_joint_transaction_after_a_failed_one_commits(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=10)
    await ep.create_topic("s/bills", partitions=2)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")

    async def attempt(*, fail: bool) -> None:
        async with ep.transaction(consumer=a) as txn:
            for event in await a.poll(timeout_ms=0):
                await txn.write("s/bills", event.payload, key=event.key)
            if fail:
                raise ValueError("stop")

    async with group.consumer("a", auto_commit=False) as a:
        with pytest.raises(ValueError, match="stop"):
            await attempt(fail=True)
        async with group.consumer("b"):
            pass  # `a` follows the group between the two
        await anyio.sleep(1)
        await attempt(fail=False)
    assert sum(number or 0 for number in (await committed(group)).values()) == 10


async def test_a_seek_behind_a_truncation_continues_at_the_head(ep: Eventproc) -> None:
    topic = await ep.create_topic(TOPIC, partitions=1)
    async with topic.producer() as producer:
        for number in range(10):
            await producer.write(b"%d" % number, key="k")
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("a", auto_commit=False) as a:
        await poll_all(a)
        await a.commit()
        await a.seek((TOPIC, 0), 2)
        await topic.truncate(partition=0, before_number=5)
        with anyio.fail_after(20):
            assert numbers_of(await a.poll(timeout_ms=0)) == [5, 6, 7, 8, 9]


async def test_a_commit_says_that_delivered_events_were_lost_to_others(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    heard = Heard()
    async with heard.consumer(group, "a") as a:
        await a.poll(1)
        await a.poll(1)  # commits the first event, which is saved soon
        await ep.db.write(partial(reader_offline, group="s/g", reader="a"))
        await anyio.sleep(2)
        with pytest.raises(errors.SegmentFenced):
            await a.commit()


async def test_a_commit_without_numbers_follows_one_that_went_back(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("a", auto_commit=False) as a:
        await poll_all(a)
        await a.commit()
        await a.commit({(TOPIC, 0): 3})
        assert await committed(group) == {(TOPIC, 0): 3}
        await a.commit()
        assert await committed(group) == {(TOPIC, 0): 10}


async def test_a_consumer_that_committed_gives_partitions_away_between_polls(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("a", auto_commit=False) as a:
        await poll_all(a)
        async with group.consumer("b") as b:
            await anyio.sleep(1)  # `a` heard of it, with events in hand
            await a.commit()
            with anyio.fail_after(20):
                while len(b.assignment) != 1:
                    await b.poll(timeout_ms=100)


async def test_a_consumer_with_events_in_hand_does_not_spin_when_a_deadline_of_the_group_passed(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("a") as a:
        await a.poll(1)
        async with group.consumer("b", static_ms=1_000):
            pass
        await a.poll(1)  # it hears that `b` is away
        wakes: list[None] = []
        wake = MemberSession.wake

        def count(session: MemberSession) -> None:
            wakes.append(None)
            wake(session)

        monkeypatch.setattr(MemberSession, "wake", count)
        await anyio.sleep(2)
        assert len(wakes) < 10


async def test_leaving_for_good_gives_up_everything_though_a_callback_fails(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")

    async def fail(partitions: tuple[TopicPartition, ...]) -> None:
        raise ValueError("revoked")

    a: Consumer = await group.consumer("a", static_ms=60_000, on_revoked=fail)
    with pytest.raises(ValueError, match="revoked"):
        await a.leave()
    assert (await group.describe()).members == ()
    await a.close()


async def test_an_administrator_cannot_name_the_reserve(ep: Eventproc) -> None:
    await ep.create_topic(TOPIC, partitions=2)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    with pytest.raises(errors.InvalidArgument, match="does not read"):
        await group.commit({(TOPIC, 2**31 - 1): 0})


async def test_an_administrator_resets_a_group_after_a_topic_was_deleted(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=5)
    other = await make_topic(ep, 1, events=5, name="s/other")
    group = await ep.create_group("g", [TOPIC, "s/other"], on_deleted="drop")
    await other.seal()
    await other.delete()
    await group.commit({(TOPIC, 0): 3})
    assert await committed(group) == {(TOPIC, 0): 3}


async def test_iterating_delivers_nothing_of_a_partition_that_is_being_revoked(ep: Eventproc) -> None:
    topic = await ep.create_topic(TOPIC, partitions=2)
    async with topic.producer() as producer:
        for number in range(10):
            await producer.write(b"%d" % number, partition=1)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    begun, may_end = anyio.Event(), anyio.Event()

    async def revoked(partitions: tuple[TopicPartition, ...]) -> None:
        if partitions == ((TOPIC, 1),):
            begun.set()
            await may_end.wait()

    async def take_next() -> None:
        delivered.append(await anext(events))

    delivered: list[Event] = []
    async with group.consumer("a", auto_commit=False, on_revoked=revoked) as a:
        events = aiter(a)
        await anext(events)
        await a.commit()
        async with group.consumer("b") as b, anyio.create_task_group() as tasks:
            await begun.wait()
            tasks.start_soon(take_next)
            await anyio.wait_all_tasks_blocked()
            may_end.set()
            assert numbers_of(await b.poll()) == list(range(1, 10))
            tasks.cancel_scope.cancel()
    assert delivered == []
