"""The committed numbers of a consumer group: lag, resets and dry runs, commits by an administrator, deletion."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from eventproc import errors
from eventproc.runtime import Eventproc
from eventproc.store.groups import progress_times
from eventproc.topics import Group
from tests.consumers.support import TOPIC, committed, make_topic, poll_all, produce, settle
from tests.support.virtual_time import clock_of


async def consumed(ep: Eventproc, events: int = 10) -> Group:
    """Return a group without consumers that has read one partition to the end."""
    await make_topic(ep, 1, events=events)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        await poll_all(consumer)
    return group


@pytest.mark.acceptance("K32")
async def test_lag_is_null_before_the_first_commit_exact_after_it_and_never_negative(ep: Eventproc) -> None:
    topic = await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    (before,) = await group.partitions()
    assert (before.committed, before.lag, before.events, before.end) == (None, None, 10, 10)
    async with group.consumer("c", auto_commit=False) as consumer:
        await consumer.poll(4)
        await consumer.commit()
        (now,) = await group.partitions()
        assert (now.consumer, now.committed, now.lag) == ("c", 4, 6)
        assert now.lag_ms is not None
        async with await topic.begin() as txn:
            await txn.write(b"10")
            assert (await group.partitions())[0].lag == 6  # an open transaction does not count
        assert (await group.partitions())[0].lag == 7
    await topic.truncate(await topic.tail())
    (after,) = await group.partitions()
    assert (after.lag, after.first, after.end) == (0, 11, 11)


@pytest.mark.parametrize(
    ("target", "number"),
    [
        ({"start": "head"}, 0),
        ({"start": "tail"}, 10),
        ({"number": 7}, 7),
        ({"shift": -3}, 7),
        ({"duration_ms": 3_600_000}, 0),
        ({"start": 2**45}, 10),
        ({"number": 99}, 10),
        ({"shift": -99}, 0),
    ],
)
async def test_a_reset_moves_to_each_kind_of_target(
    ep: Eventproc, target: dict[str, object], number: int
) -> None:
    group = await consumed(ep)
    (row,) = await group.reset_partitions(**target, dry_run=True)  # type: ignore[arg-type]
    assert (row.partition, row.committed, row.number) == (0, 10, number)
    assert row.clamped == (99 in map(abs, (each for each in target.values() if isinstance(each, int))))
    assert await committed(group) == {(TOPIC, 0): 10}
    assert await group.reset_partitions(**target) == (row,)  # type: ignore[arg-type]
    assert await committed(group) == {(TOPIC, 0): number}
    async with group.consumer("c") as consumer:
        assert [event.number for event in await poll_all(consumer)] == list(range(number, 10))


async def test_a_reset_of_one_partition_leaves_the_others(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        await poll_all(consumer)
    before = await committed(group)
    await group.reset_partitions("head", partitions=[(TOPIC, 1)])
    assert await committed(group) == {**before, (TOPIC, 1): 0}
    with pytest.raises(errors.InvalidArgument, match="partition 2"):
        await group.reset_partitions("head", partitions=[(TOPIC, 2)])


async def test_a_reset_needs_exactly_one_target(ep: Eventproc) -> None:
    group = await consumed(ep)
    wrong: list[dict[str, Any]] = [
        {},
        {"start": "tail", "number": 1},
        {"start": 1, "duration_ms": 1},
        {"start": "middle"},
    ]
    for target in wrong:
        with pytest.raises(errors.InvalidArgument):
            await group.reset_partitions(**target)


@pytest.mark.acceptance("K28")
async def test_a_reset_is_refused_while_consumers_are_online_but_its_dry_run_is_not(ep: Eventproc) -> None:
    group = await consumed(ep)
    async with group.consumer("c"):
        with pytest.raises(errors.GroupNotEmpty, match="c is"):
            await group.reset_partitions("head")
        (row,) = await group.reset_partitions("head", dry_run=True)
        assert row.number == 0
        assert await committed(group) == {(TOPIC, 0): 10}
    await group.reset_partitions("head")
    assert await committed(group) == {(TOPIC, 0): 0}


@pytest.mark.acceptance("K29")
async def test_an_administrator_commits_only_while_the_group_is_empty(ep: Eventproc) -> None:
    group = await consumed(ep)
    async with group.consumer("c"):
        with pytest.raises(errors.GroupNotEmpty):
            await group.commit({(TOPIC, 0): 3})
    await group.commit({(TOPIC, 0): 3})
    assert await committed(group) == {(TOPIC, 0): 3}
    with pytest.raises(errors.InvalidArgument, match=f"partition 0 of {TOPIC} has no number above"):
        await group.commit({(TOPIC, 0): 99})
    assert await committed(group) == {(TOPIC, 0): 3}


@pytest.mark.acceptance("K30")
async def test_only_an_empty_group_can_be_deleted_and_its_numbers_go_with_it(ep: Eventproc) -> None:
    group = await consumed(ep)
    async with group.consumer("c"):
        with pytest.raises(errors.GroupNotEmpty):
            await group.delete(if_empty=True)
    await group.delete(if_empty=True)
    with pytest.raises(errors.NotFound):
        await group.partitions()
    again = await ep.create_group("g", [TOPIC], on_deleted="drop")
    assert await committed(again) == {(TOPIC, 0): None}


@pytest.mark.acceptance("K20")
async def test_a_new_topic_of_the_same_name_does_not_begin_at_the_old_number(ep: Eventproc) -> None:
    group = await consumed(ep)
    topic = await ep.stream(TOPIC)
    await topic.seal()
    await topic.delete()
    topic = await make_topic(ep, 1, events=5)
    await (await ep.group("s/g")).reset("head")
    async with group.consumer("c") as consumer:
        assert [event.number for event in await poll_all(consumer)] == list(range(5))


@pytest.mark.parametrize("form", ["memory"])
async def test_a_reset_by_time_finds_the_first_event_of_then(ep: Eventproc) -> None:
    clock = clock_of(ep)
    topic = await make_topic(ep, 1, events=5)
    clock.advance(60_000)
    await produce(topic, range(5, 9))
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    await group.reset_partitions(duration_ms=30_000)
    assert await committed(group) == {(TOPIC, 0): 5}
    await group.reset_partitions(duration_ms=90_000, partitions=[(TOPIC, 0)])
    assert (await group.partitions())[0].events == 9


@pytest.mark.parametrize("form", ["memory"])
@pytest.mark.acceptance("K31", differs="numbers never expire: they are kept until the group is deleted")
async def test_numbers_of_a_group_without_consumers_are_kept(ep: Eventproc) -> None:
    clock = clock_of(ep)
    group = await consumed(ep)
    clock.advance(365 * 24 * 3_600_000)
    assert await committed(group) == {(TOPIC, 0): 10}


async def test_a_commit_of_the_first_number_is_a_commit(ep: Eventproc) -> None:
    await make_topic(ep, 3, events=9)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", auto_commit=False) as consumer:
        await settle(ep, [consumer], [3])
        await consumer.seek_to_beginning()
        await consumer.commit({(TOPIC, 0): 0})
        assert await committed(group) == {(TOPIC, 0): 0, (TOPIC, 1): None, (TOPIC, 2): None}
        await consumer.commit()
        rows = await group.partitions()
        assert [(each.committed, each.lag) for each in rows] == [(0, each.end) for each in rows]
        first = await ep.db.read(partial(progress_times, group="s/g"))
        await consumer.commit()
        assert await ep.db.read(partial(progress_times, group="s/g")) == first, "nothing moved"


async def test_a_reset_to_the_present_number_commits_it(ep: Eventproc) -> None:
    await make_topic(ep, 2, events=4)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    await group.reset_partitions("head", partitions=[(TOPIC, 0)], dry_run=True)
    assert await committed(group) == {(TOPIC, 0): None, (TOPIC, 1): None}
    await group.reset_partitions("head", partitions=[(TOPIC, 0)])
    assert await committed(group) == {(TOPIC, 0): 0, (TOPIC, 1): None}
    await group.commit({(TOPIC, 1): 0})
    assert await committed(group) == {(TOPIC, 0): 0, (TOPIC, 1): 0}


@pytest.mark.parametrize("recreated", [False, True])
@pytest.mark.parametrize("to", [{"start": "head"}, {"start": "tail"}, {"number": 2}])
async def test_a_dry_run_tells_what_the_reset_does_after_a_topic_was_deleted(
    ep: Eventproc, to: dict[str, Any], recreated: bool
) -> None:
    await make_topic(ep, 1, events=5)
    other = await make_topic(ep, 1, events=3, name="s/u")
    group = await ep.create_group("g", [TOPIC, "s/u"], on_deleted="drop")
    async with group.consumer("c") as consumer:
        await poll_all(consumer)
    await other.seal()
    await other.delete()
    if recreated:
        await make_topic(ep, 2, events=4, name="s/u")
    previewed = await group.reset_partitions(**to, dry_run=True)
    assert [each.stream for each in previewed] == [TOPIC, *(["s/u", "s/u"] if recreated else [])]
    assert await group.reset_partitions(**to) == previewed


async def test_a_reset_of_a_group_whose_only_topic_was_deleted_changes_nothing(ep: Eventproc) -> None:
    topic = await make_topic(ep, 1, events=5)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    await topic.seal()
    await topic.delete()
    for dry_run in (True, False):
        assert await group.reset_partitions("head", dry_run=dry_run) == ()
