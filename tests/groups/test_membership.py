"""Members of a group: they share, hand over, take over from the dead, and are fenced."""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial

import anyio
import pytest

import eventproc
from eventproc.groups import (
    add_stream,
    delete_group,
    describe_group,
    ensure_group,
    join,
    set_paused,
    watch_group,
)
from eventproc.groups.liveness import LOCAL_MEMBERSHIPS
from eventproc.groups.membership import GroupMember
from eventproc.groups.operations import reader_offline
from eventproc.runtime import Eventproc
from eventproc.store.groups import progress_of
from eventproc.store.model.errors import AlreadyExists, InvalidArgument, NotFound
from eventproc.store.model.group_errors import ReaderFenced, SegmentFenced
from eventproc.store.model.progress import Progress
from tests.groups.support import (
    GROUP_NAME,
    finish,
    key_of,
    make,
    segments_of,
    settle,
    shares,
    state_now,
)

PATIENCE_S = 60
"""Turns a hanging test into a failure."""


@pytest.mark.acceptance("E2", differs="all due segments move immediately, without time windows")
async def test_readers_that_come_get_their_share_and_then_nothing_moves(ep: Eventproc) -> None:
    await make(ep, 6)
    async with AsyncExitStack() as stack:
        members = []
        for reader, settled in ("a", [6]), ("b", [3, 3]), ("c", [2, 2, 2]):
            members.append(await stack.enter_async_context(join(ep.db, GROUP_NAME, reader)))
            await settle(members)
            assert shares(members) == settled
        before = await state_now(ep.db)
        for _ in range(3):
            await settle(members)
        assert await state_now(ep.db) == before


async def test_a_reader_that_joins_waits_until_what_is_due_to_it_is_released(ep: Eventproc) -> None:
    await make(ep, 2)
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        async with join(ep.db, GROUP_NAME, "b") as b:
            await b.refresh()
            assert shares([a, b]) == [2, 0]
            await a.refresh()
            assert len(a.surplus) == 1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(b.wait_change)
                await a.release(a.surplus)
            await b.refresh()
            assert shares([a, b]) == [1, 1]
            assert not a.owned.keys() & b.owned.keys()
        await a.wait_change()
        await a.refresh()
        assert shares([a]) == [2]


@pytest.mark.acceptance("E4")
async def test_of_two_that_want_one_segment_exactly_one_gets_it(ep: Eventproc) -> None:
    await make(ep, 1)
    async with join(ep.db, GROUP_NAME, "a") as a, join(ep.db, GROUP_NAME, "b") as b:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(a.refresh)
            tasks.start_soon(b.refresh)
        assert sorted(shares([a, b])) == [0, 1]


@pytest.mark.acceptance("E1")
@pytest.mark.acceptance("K42")
async def test_after_a_merge_the_successor_opens_when_all_predecessors_are_finished(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    left, right = await stream.split(0)
    await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=["s/t"], start="tail"))
    async with join(ep.db, GROUP_NAME, "a") as a, join(ep.db, GROUP_NAME, "b") as b:
        await settle([a, b])
        merged = await stream.merge(left, right)
        first, second = (a, b) if left in segments_of(a) else (b, a)
        await finish(ep.db, first, (stream.stream_id, left))
        await settle([a, b])
        assert merged not in segments_of(a) | segments_of(b)
        assert (await state_now(ep.db)).waiting == {(stream.stream_id, merged): {right}}
        await finish(ep.db, second, (stream.stream_id, right))
        await settle([a, b])
        assert merged in segments_of(a) | segments_of(b)


@pytest.mark.acceptance("E1")
async def test_after_a_split_all_parts_open_at_once_and_are_shared(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    async with join(ep.db, GROUP_NAME, "a") as a, join(ep.db, GROUP_NAME, "b") as b:
        await settle([a, b])
        parts = await stream.split(0, 2)
        owner = a if a.owned else b
        await finish(ep.db, owner, key_of(stream, 0))
        await settle([a, b])
        assert shares([a, b]) == [1, 1]
        assert segments_of(a) | segments_of(b) == set(parts)


async def test_a_segment_that_is_not_read_to_its_end_cannot_be_completed(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    async with stream.writer() as writer:
        await writer.write(b"x")
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        with pytest.raises(AssertionError, match="goes on to"):
            await ep.db.write(lambda tx: a.complete(tx, a.owned[key_of(stream, 0)]))


async def test_an_expired_reader_can_neither_move_nor_complete_and_joins_again(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    key = key_of(stream, 0)
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        before = a.owned[key]
        await ep.db.write(lambda tx: a.move(tx, {before: Progress(1, 10)}))
        await ep.db.write(partial(reader_offline, group=GROUP_NAME, reader="a"))
        with pytest.raises(SegmentFenced) as fenced:
            await ep.db.write(lambda tx: a.move(tx, {before: Progress(2, 20)}))
        assert (fenced.value.reader, fenced.value.segment) == ("a", "0.0")
        assert fenced.value.owner_epoch == before.owner_epoch
        with pytest.raises(SegmentFenced):
            await ep.db.write(lambda tx: a.complete(tx, before))
        await a.refresh()
        assert not a.owned
        await a.refresh()
        assert a.owned[key].owner_epoch > before.owner_epoch
        assert a.owned[key].progress == Progress(1, 10)
        with pytest.raises(SegmentFenced):  # what it did in the older epoch does not count
            await ep.db.write(lambda tx: a.move(tx, {before: Progress(2, 20)}))


async def test_a_claim_of_an_earlier_owner_epoch_moves_nothing(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    key = key_of(stream, 0)
    async with join(ep.db, GROUP_NAME, "a") as old:
        await old.refresh()
        await ep.db.write(partial(reader_offline, group=GROUP_NAME, reader="a"))
        async with join(ep.db, GROUP_NAME, "a") as new:  # the same id, so only the epoch tells the two apart
            await new.refresh()
            assert new.owned[key].owner_epoch > old.owned[key].owner_epoch
            with pytest.raises(SegmentFenced):
                await ep.db.write(lambda tx: old.move(tx, {old.owned[key]: Progress(1, 10)}))
            assert dict(await ep.db.read(partial(progress_of, group=GROUP_NAME, keys=[key]))) == {
                key: Progress()
            }


@pytest.mark.acceptance("K37")
async def test_what_was_lost_and_came_back_is_dropped_once(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    key = key_of(stream, 0)
    async with join(ep.db, GROUP_NAME, "b") as b:
        await b.refresh()
        before = b.owned[key]
        await b.release([key])
        await b.refresh()
        assert b.owned[key].owner_epoch > before.owner_epoch


async def test_the_reader_that_another_one_expired_is_told_when_its_id_is_taken(ep: Eventproc) -> None:
    await make(ep, 1)
    async with join(ep.db, GROUP_NAME, "a") as first:
        await ep.db.write(partial(reader_offline, group=GROUP_NAME, reader="a"))
        async with join(ep.db, GROUP_NAME, "a"):
            with pytest.raises(ReaderFenced):
                await first.refresh()


async def test_a_stream_that_is_added_is_read_from_its_head(ep: Eventproc) -> None:
    await make(ep, 1)
    more = await ep.create_stream("s/more")
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        await ep.db.write(partial(add_stream, group=GROUP_NAME, stream="s/more"))
        await a.wait_change()
        await a.refresh()
        assert a.owned[key_of(more, 0)].stream == "s/more"
        await ep.db.write(partial(add_stream, group=GROUP_NAME, stream="s/more"))
        await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=["s/t"]))


async def test_pausing_is_seen_by_members(ep: Eventproc) -> None:
    await make(ep, 1)
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        for paused in True, False:
            await ep.db.write(partial(set_paused, name=GROUP_NAME, paused=paused))
            await a.wait_change()
            await a.refresh()
            assert a.paused is paused
            assert len(a.owned) == 1


async def test_a_group_that_differs_is_refused_and_an_equal_one_is_fine(ep: Eventproc) -> None:
    await make(ep, 1)
    await ep.create_stream("s/other")
    await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=["s/t"], start="tail"))
    with pytest.raises(AlreadyExists) as differs:
        await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=["s/other"], kind="readers"))
    assert differs.value.differing == ("streams", "kind")
    with pytest.raises(NotFound):
        await ep.db.write(partial(ensure_group, name="s/h", streams=["s/none"]))
    with pytest.raises(InvalidArgument):
        await ep.db.write(partial(ensure_group, name="s/h", streams=[]))


@pytest.mark.acceptance(
    "E12", differs="counted in events, too, and what only the group's progress leaves open"
)
async def test_lag_counts_what_is_not_finished_also_in_segments_not_reached(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    async with stream.writer() as writer:
        for number in range(10):
            await writer.write(b"%d" % number, key=str(number))
        await stream.split(0)
        for number in range(5):
            await writer.write(b"%d" % number, key=str(number))
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        await ep.db.write(lambda tx: a.move(tx, {a.owned[key_of(stream, 0)]: Progress(2, 18, ((4, 7, 63),))}))
        await ep.db.write(lambda tx: a.publish(tx, '{"in_flight": 3}'))
        found = await ep.db.read(partial(describe_group, name=GROUP_NAME))
        assert found.events == 10 - 2 - 3 + 5
        assert found.bytes == 8 * 9 + 5 * 9
        assert found.age_ms is not None
        assert [each.reached for each in found.segments] == [True, False, False]
        assert [(each.reader, each.owned, each.status) for each in found.members] == [
            ("a", 1, '{"in_flight": 3}')
        ]


async def test_a_deleted_group_is_gone_for_its_members_and_repeats_no_epoch(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    key = key_of(stream, 0)
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        before = a.owned[key].owner_epoch
        await ep.db.write(partial(delete_group, name=GROUP_NAME))
        with pytest.raises(SegmentFenced):
            await ep.db.write(lambda tx: a.move(tx, {a.owned[key]: Progress(1, 9)}))
        with pytest.raises(NotFound):
            await a.refresh()
    await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=["s/t"]))
    async with join(ep.db, GROUP_NAME, "a") as a:
        await a.refresh()
        assert a.owned[key].owner_epoch > before


async def test_a_member_that_ended_without_a_word_is_taken_over_from(ep: Eventproc, form: str) -> None:
    stream = await make(ep, 2)
    async with join(ep.db, GROUP_NAME, "a") as a:
        async with AsyncExitStack() as others:
            db = ep.db
            if form == "file":  # another process, as far as the directory can tell
                assert ep.path is not None
                db = (await others.enter_async_context(eventproc.open(ep.path))).db
            with db.subscribe([watch_group(GROUP_NAME)]) as changes:
                dead = GroupMember(db, GROUP_NAME, "dead", changes)
                await dead.join()
                await settle([a, dead])
                (key,) = dead.owned
                await db.write(lambda tx: dead.move(tx, {dead.owned[key]: Progress(1, 9)}))
                db.shared[LOCAL_MEMBERSHIPS].discard(GROUP_NAME, "dead", dead.epoch)
        await a.wait_change()
        await a.refresh()
        await a.refresh()
        assert len(a.owned) == 2
        assert a.owned[key].progress == Progress(1, 9)
        assert stream.stream_id == key[0]
        with pytest.raises(SegmentFenced):
            await ep.db.write(lambda tx: dead.move(tx, {dead.owned[key]: Progress(2, 18)}))


async def test_a_death_during_a_refused_join_under_the_same_id_is_noticed(ep: Eventproc) -> None:
    await make(ep, 2)
    present = ep.db.shared[LOCAL_MEMBERSHIPS]
    async with join(ep.db, GROUP_NAME, "a") as a:
        with ep.db.subscribe([watch_group(GROUP_NAME)]) as changes:
            dead = GroupMember(ep.db, GROUP_NAME, "dead", changes)
            await dead.join()
            await settle([a, dead])
            with present.joining(GROUP_NAME, "dead"):  # as a task does that was refused already
                present.discard(GROUP_NAME, "dead", dead.epoch)
                await a.wait_change()
                await a.refresh()
                await a.wait_change(0)
        with anyio.fail_after(PATIENCE_S):
            while len(a.owned) < 2:
                await a.wait_change()
                await a.refresh()
