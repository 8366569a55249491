"""Consumers of one group: the partitions that each one owns, the calls of its callbacks, and fencing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import anyio
import pytest

from eventproc import errors
from eventproc.groups.membership import GroupMember
from eventproc.groups.operations import reader_offline
from eventproc.runtime import Eventproc
from eventproc.store.groups import SegmentKey
from eventproc.topics import Consumer, TopicPartition
from tests.consumers.support import TOPIC, Heard, committed, make_topic, numbers_of, poll_all, settle
from tests.support.virtual_time import clock_of

PATIENCE_MS = 1_000


@pytest.mark.acceptance("K1")
async def test_one_consumer_gets_all_partitions_and_the_group_is_stable(ep: Eventproc) -> None:
    await make_topic(ep, 6)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    assert (await group.describe()).phase == "empty"
    async with group.consumer("a") as consumer:
        found = await group.describe()
        assert (found.phase, found.generation >= 1) == ("stable", True)
        assert found.assignment == {"a": tuple((TOPIC, number) for number in range(6))}
        assert consumer.assignment == found.assignment["a"]
    assert (await group.describe()).phase == "empty"


@pytest.mark.acceptance("K2")
async def test_a_second_consumer_gets_half_and_callbacks_hear_only_differences(ep: Eventproc) -> None:
    await make_topic(ep, 6)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    first, second = Heard(), Heard()
    async with first.consumer(group, "a") as a, second.consumer(group, "b") as b:
        await settle(ep, [a, b], [3, 3])
        assert set(a.assignment).isdisjoint(b.assignment)
        assert (await group.describe()).phase == "stable"
        (whole, kept), (gone, given) = first.calls[0], first.calls[1]
        assert (whole, kept) == ("assigned", tuple(range(6)))
        assert (gone, len(given)) == ("revoked", 3)
        assert second.calls[-1][0] == "assigned"
        assert sorted(part for _, parts in second.calls for part in parts) == sorted(given)
        assert {each.partition for each in a.assignment} == set(range(6)) - set(given)
    assert first.calls[-1][0] == "revoked"


@pytest.mark.acceptance("K3", differs="3 consumers of 2 partitions; the owners leave, and K12 has the kill")
@pytest.mark.acceptance("K4")
async def test_the_seventh_consumer_is_idle_and_takes_over_when_another_leaves(ep: Eventproc) -> None:
    await make_topic(ep, 2)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as idle:
        async with group.consumer("a") as a, group.consumer("b") as b:
            consumers = [a, b, idle]
            with anyio.fail_after(20):
                while sorted(len(each.assignment) for each in consumers) != [0, 1, 1]:
                    for each in consumers:
                        await each.poll(1, timeout_ms=1)
            assert (await group.describe()).phase == "stable"
        await settle(ep, [idle], [2])


@pytest.mark.acceptance("K11")
async def test_on_revoked_may_commit_and_the_new_owner_repeats_nothing(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=40)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    seen: list[int] = []

    async def commit(partitions: tuple[TopicPartition, ...]) -> None:
        await a.commit()

    a: Consumer = group.consumer("a", auto_commit=False, on_revoked=commit)
    async with a:
        seen += numbers_of(await poll_all(a))
        b = await group.consumer("b")
        await settle(ep, [a, b], [1, 1])
        assert numbers_of(await poll_all(b)) == []
        await b.close()
    assert sorted(seen) == list(range(40))
    assert sorted((await committed(group)).values(), key=str) == sorted(
        [each.end for each in await group.partitions()], key=str
    )


async def poll(ep: Eventproc, consumer: Consumer) -> None:
    await consumer.poll(timeout_ms=0)


async def transact(ep: Eventproc, consumer: Consumer) -> None:
    async with ep.transaction(consumer=consumer):
        pass


@pytest.mark.parametrize(
    ("callback", "act"),
    [
        ("on_assigned", poll),
        ("on_assigned", transact),
        ("on_revoked", lambda _, consumer: consumer.close()),
        ("on_revoked", lambda _, consumer: consumer.leave()),
    ],
)
async def test_a_callback_that_polls_or_begins_a_transaction_or_ends_its_consumer_is_refused_at_once(
    ep: Eventproc, callback: str, act: Callable[[Eventproc, Consumer], Awaitable[None]]
) -> None:
    await make_topic(ep, 1)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")

    async def call(partitions: tuple[TopicPartition, ...]) -> None:
        await act(ep, consumer)

    consumer: Consumer = group.consumer("a", **{callback: call})  # type: ignore[call-overload]
    with pytest.raises(errors.IllegalTransition, match="callback"), anyio.fail_after(20):
        async with consumer:
            await consumer.poll(timeout_ms=0)
    assert (await group.describe()).phase == "empty"


async def test_a_commit_that_a_release_overtakes_is_refused(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    release = GroupMember.release
    releasing, overtaken = anyio.Event(), anyio.Event()

    async def wait_for_the_commit(member: GroupMember, keys: Collection[SegmentKey]) -> None:
        releasing.set()
        await overtaken.wait()
        await release(member, keys)

    async with group.consumer("a", auto_commit=False) as a, anyio.create_task_group() as tasks:
        await poll_all(a)
        await a.commit()
        monkeypatch.setattr(GroupMember, "release", wait_for_the_commit)
        before = await committed(group)

        async def commit_one_event() -> None:
            await releasing.wait()
            tasks.start_soon(let_it_release)
            await a.commit(dict.fromkeys(a.assignment, 1))

        async def let_it_release() -> None:
            await anyio.wait_all_tasks_blocked()
            overtaken.set()

        async with group.consumer("b") as b:
            with pytest.raises(errors.SegmentFenced), anyio.fail_after(20):
                await commit_one_event()
            await settle(ep, [a, b], [1, 1])
            after = await committed(group)
            [given] = b.assignment
            assert after[TOPIC, given.partition] == before[TOPIC, given.partition]


@pytest.mark.parametrize("form", ["memory"])
@pytest.mark.acceptance("K10")
async def test_a_revocation_callback_that_hangs_fences_its_consumer(
    ep: Eventproc, caplog: pytest.LogCaptureFixture
) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop", patience_ms=PATIENCE_MS)
    heard = Heard()

    async def hang(partitions: tuple[TopicPartition, ...]) -> None:
        if not heard.calls:
            heard.calls.append(("hangs", ()))
            await anyio.sleep_forever()

    with caplog.at_level(logging.WARNING, "eventproc"):
        async with group.consumer("a", auto_commit=False, on_revoked=hang, on_lost=heard.lost) as a:
            await poll_all(a)
            async with group.consumer("b", auto_commit=False) as b:
                await settle(ep, [a, b], [1, 1])
                assert (await group.describe()).phase == "stable"
                assert set((await committed(group)).values()) == {None}
                assert heard.calls[1][0] == "lost"
    assert "did not return within 1000 ms" in caplog.text


@pytest.mark.acceptance("K6")
async def test_an_expired_consumer_cannot_commit_and_hears_what_it_lost(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    heard = Heard()
    async with heard.consumer(group, "a", auto_commit=False) as a:
        await poll_all(a)
        await ep.db.write(partial(reader_offline, group="s/g", reader="a"))
        with pytest.raises(errors.SegmentFenced):
            await a.commit()
        assert set((await committed(group)).values()) == {None}
        heard.calls.clear()
        await a.poll(timeout_ms=0)
        await settle(ep, [a], [2])
        assert heard.calls == [("lost", (0, 1)), ("assigned", (0, 1))]


@pytest.mark.acceptance("K7")
async def test_a_consumer_commits_what_it_still_owns_after_others_changed(ep: Eventproc) -> None:
    await make_topic(ep, 4, events=40)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("a", auto_commit=False) as a, group.consumer("b") as b:
        await settle(ep, [a, b], [2, 2])
        await a.seek_to_beginning()
        await poll_all(a)
        before = (await group.describe()).generation
        await b.close()  # the group's generation grows
        assert (await group.describe()).generation > before
        await a.commit()
        numbers = await committed(group)
        assert all(numbers[where] == number for where, number in a.position.items())


@pytest.mark.parametrize("form", ["memory"])
@pytest.mark.acceptance(
    "K5", differs="silence is that of the polling task, and off unless the group has a patience"
)
@pytest.mark.acceptance("K9", differs="the patience is the longest time between two polls")
async def test_a_slow_handler_loses_its_partitions_and_the_log_names_it(
    ep: Eventproc, caplog: pytest.LogCaptureFixture
) -> None:
    clock = clock_of(ep)
    await make_topic(ep, 1, events=4)
    group = await ep.create_group("g", [TOPIC], patience_ms=PATIENCE_MS, on_deleted="drop")
    heard = Heard()
    async with heard.consumer(group, "a", auto_commit=False) as a, group.consumer("b") as b:
        await settle(ep, [a, b], [1, 0])
        await a.seek_to_beginning()
        await a.poll(2)
        clock.advance(PATIENCE_MS // 2)
        await b.poll(timeout_ms=0)
        assert b.assignment == ()
        clock.advance(PATIENCE_MS // 2 + 1)
        await settle(ep, [b], [1])
        with caplog.at_level(logging.WARNING, "eventproc"):
            await a.poll(timeout_ms=0)
        assert ("lost", (0,)) in heard.calls
        assert "its user handled the events of s/t[0] before event 2" in caplog.text


@pytest.mark.parametrize("form", ["memory"])
async def test_the_log_names_a_slow_handler_also_before_an_event_that_cannot_be_decoded(
    ep: Eventproc, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await make_topic(ep, 1)
    async with topic.writer() as writer:
        await writer.write_many([(b"1", "k"), (b"no number", "k")])
    group = await ep.create_group("g", [TOPIC], patience_ms=PATIENCE_MS)
    async with group.consumer("a", payload=int, auto_commit=False) as a:
        assert [each.payload for each in await a.poll()] == [1]
        clock_of(ep).advance(PATIENCE_MS + 1)
        async with group.consumer("b") as b:
            await settle(ep, [b], [1])
            with caplog.at_level(logging.WARNING, "eventproc"):
                await a.poll(timeout_ms=0)
    assert "its user handled the events of s/t[0] before event 1" in caplog.text


@pytest.mark.parametrize("form", ["memory"])
@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
@pytest.mark.acceptance("K41")
async def test_a_wall_clock_that_is_moved_expires_nobody(ep: Eventproc, step_ms: int) -> None:
    clock = clock_of(ep)
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], patience_ms=60_000, on_deleted="drop")
    first, second = Heard(), Heard()
    async with first.consumer(group, "a") as a, second.consumer(group, "b") as b:
        await settle(ep, [a, b], [1, 1])
        before = len(first.calls), len(second.calls)
        clock.step_wall(step_ms)
        await poll_all(a)
        await poll_all(b)
        assert [len(a.assignment), len(b.assignment)] == [1, 1]
        assert (len(first.calls), len(second.calls)) == before
