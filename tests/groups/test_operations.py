"""What is done to a group whose readers are at work: checkpoints, resets, readers taken offline, truncation."""

from __future__ import annotations

from contextlib import AsyncExitStack, aclosing
from functools import partial

import anyio
import pytest

from eventproc.groups import GroupReader, add_stream, adopt_recreated_streams, join
from eventproc.groups.operations import CHECKPOINTS_OUTSTANDING_MAX
from eventproc.groups.truncation import skip
from eventproc.runtime import Eventproc
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import NotFound
from eventproc.store.model.group_errors import CheckpointPending, GroupStreamReplaced, TooManyCheckpoints
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from tests.groups.support import (
    GROUP_NAME,
    are_shared,
    eventually,
    finish,
    key_of,
    make,
    read_until_tail,
    settle,
    state_now,
    write,
    written,
)


@pytest.mark.acceptance("E6", differs="the last durable progress, which each checkpoint makes")
async def test_a_reader_offline_without_a_position_goes_back_to_its_checkpoint(
    ep: Eventproc,
) -> None:
    stream = await written(ep, 10)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        for _ in range(4):
            await anext(events)
        await reader.commit()
        for _ in range(3):
            await anext(events)
        position = reader.position
        await group.reader_offline("a")
        async with group.reader("b") as b:
            assert await read_until_tail(b, stream) == list(range(4, 10))
        await group.reset(await stream.head())
        async with group.reader("b") as b, aclosing(aiter(b)) as others:
            await anext(others)
            await group.reader_offline("b", position)
            assert (await group.cuts())["s/t"].offsets == position["s/t"]


async def test_an_expired_reader_goes_on_as_a_new_member(ep: Eventproc) -> None:
    stream = await written(ep, 3)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        assert int((await anext(events)).payload) == 0
        await group.reader_offline("a")
        with anyio.fail_after(10):
            seen = [0]
            while seen[-1] < 2:
                seen.append(int((await anext(events)).payload))
            assert set(seen) == {0, 1, 2}
            await stream.seal()
            assert {int(event.payload) async for event in events} <= {0, 1, 2}
    assert (await group.describe()).segments == ()


async def test_readers_learn_of_a_reset_and_go_on_there(ep: Eventproc) -> None:
    stream = await written(ep, 5)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        assert await read_until_tail(reader, stream) == [0, 1, 2, 3, 4]
        await group.reset("head")
        assert await read_until_tail(reader, stream) == [0, 1, 2, 3, 4]
        await group.reset("tail")
        await write(stream, range(5, 7))
        assert await read_until_tail(reader, stream) == [5, 6]


@pytest.mark.acceptance(
    "E9", differs="readers continue at the new position by themselves; no reader has to be created again"
)
async def test_lagging_readers_follow_a_reset_to_the_last_checkpoint(ep: Eventproc) -> None:
    stream = await written(ep, 40, segments=2)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as a, group.reader("b") as b:
        both_share = partial(are_shared, [a, b], each=1)
        await eventually(ep, both_share)
        async with aclosing(aiter(a)) as of_a, aclosing(aiter(b)) as of_b:
            before = {(await anext(events)).number for _ in range(3) for events in (of_a, of_b)}
            assert before == {0, 1, 2}, "each reader lags: it stands within its segment, and holds an event"
            await group.reset("head")
            for events in (of_a, of_b):  # each lagging reader learns of the reset, and starts over
                with anyio.fail_after(10):
                    while (await anext(events)).number > 0:
                        await anyio.lowlevel.checkpoint()
    async with group.reader("a") as reader:
        first = await read_until_tail(reader, stream)
        saved = await group.checkpoint("first")
        await write(stream, range(40, 45))
        second = await read_until_tail(reader, stream)
        assert sorted(second) == list(range(40, 45))
        await group.reset(checkpoint="first")
        assert sorted(await read_until_tail(reader, stream)) == sorted(second), (
            "it goes back to the checkpoint"
        )
    assert set(first) <= set(range(40))
    assert [each.name for each in await group.checkpoints()] == ["first"]
    await group.reset(saved.cuts)
    assert await group.cuts() == saved.cuts


async def test_a_checkpoint_is_passed_by_readers_between_two_events(ep: Eventproc) -> None:
    await written(ep, 10)
    group = await ep.create_group("g", ["s/t"])
    assert (await group.checkpoint("none online")).cuts["s/t"].offsets == {0: 0}
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        for _ in range(3):
            await anext(events)
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                found = await group.checkpoint("c")
                assert found.cuts["s/t"].offsets == {0: 3 * 9}

            async def is_started() -> bool:
                return bool((await group.describe()).checkpoints_started)

            tasks.start_soon(ask)
            await eventually(ep, is_started)
            await anyio.wait_all_tasks_blocked()
            await anext(events)


@pytest.mark.acceptance(
    "E8", differs="nothing is silent: where the group stands is read at any time, without its readers"
)
async def test_where_a_group_stands_is_read_beside_a_checkpoint_under_way(ep: Eventproc) -> None:
    await written(ep, 10)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        for _ in range(4):
            await anext(events)
        await reader.commit()
        await anext(events)
        with pytest.raises(CheckpointPending):
            await group.checkpoint("c", timeout_ms=50)
        assert (await group.cuts())["s/t"].offsets == {0: 4 * 9}
        await anext(events)
        assert (await group.checkpoint("c")).cuts["s/t"].offsets == {0: 5 * 9}
        assert (await group.describe()).checkpoints_started == ()


@pytest.mark.acceptance("E7")
async def test_the_number_of_checkpoints_under_way_is_limited(ep: Eventproc) -> None:
    await written(ep, 2)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        await anext(events)
        for number in range(CHECKPOINTS_OUTSTANDING_MAX):
            for _ in range(2):  # by the same name it is the same
                with pytest.raises(CheckpointPending):
                    await group.checkpoint(f"c{number}", timeout_ms=20)
        with pytest.raises(TooManyCheckpoints):
            await group.checkpoint("one more")
        await group.reset()
        with pytest.raises(NotFound):
            await group.reset(checkpoint="c0")


@pytest.mark.acceptance(
    "E3", differs="no timers: a segment that is due changes hands immediately, independent of the shares"
)
async def test_what_is_due_changes_hands_without_waiting_for_a_time(form: str, ep: Eventproc) -> None:
    await written(ep, 60, segments=6)
    group = await ep.create_group("g", ["s/t"])
    began = anyio.current_time()
    async with AsyncExitStack() as stack:
        readers: list[GroupReader] = []
        for name in "a", "b", "c":
            readers.append(await stack.enter_async_context(group.reader(name)))
            if form == "file":
                await eventually(ep, partial(are_shared, readers))
            else:  # in memory, whatever does not wait for a time is done when everybody waits
                await anyio.wait_all_tasks_blocked()
                assert await are_shared(readers)
    if form == "memory on trio":
        assert anyio.current_time() == began, "time passed, in which nothing happened"


@pytest.mark.parametrize("is_scaled", [False, True])
async def test_going_on_at_the_latest_skips_only_segments_that_were_truncated(
    ep: Eventproc, is_scaled: bool
) -> None:
    stream = await written(ep, 20, segments=2)
    async with stream.reader() as reader:
        where = {int(event.payload): event async for event in reader.until(await stream.tail())}
    in_first = [number for number, event in where.items() if event.segment == SegmentId(0)]
    in_second = [number for number in where if number not in in_first]
    group = await ep.create_group("g", ["s/t"], on_truncated="latest")
    if is_scaled:
        await stream.split(0)
        await write(stream, range(20, 40))
    offsets = {SegmentId(0): where[in_first[1]].offset, SegmentId(1): 0}
    await stream.truncate(StreamCut("s/t", stream.stream_id, offsets))
    async with group.reader("a") as member:
        seen = await read_until_tail(member, stream)
    later = list(range(20, 40)) if is_scaled else []
    assert sorted(seen) == in_second + later
    assert (await group.describe()).lost_events == len(in_first)


async def test_a_stream_that_was_deleted_is_said_and_read_again_after_a_reset(ep: Eventproc) -> None:
    stream = await written(ep, 3)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as reader:
        assert len(await read_until_tail(reader, stream)) == 3
        await stream.seal()
        await stream.delete()
        again = await written(ep, 2)
        with pytest.raises(GroupStreamReplaced):
            await anext(aiter(reader))
        with pytest.raises(GroupStreamReplaced) as replaced:
            await ep.create_group("g", ["s/t"])
        assert replaced.value.current_id == again.stream_id
        await group.reset()
        assert await read_until_tail(reader, again) == [0, 1]


async def test_a_group_follows_a_name_and_stays_where_it_is_in_its_other_streams(ep: Eventproc) -> None:
    stream = await make(ep, 3)
    await write(stream, range(10))
    await stream.scale(seal=["0.0", "1.0"], ranges=[(0.0, 0.5), (0.5, 2 / 3)])
    more = await ep.create_stream("s/more")
    await ep.db.write(partial(add_stream, group=GROUP_NAME, stream="s/more"))
    done, half = key_of(stream, 0), key_of(stream, 2)
    beyond = Progress(1, 9, ((2, 3, 27),))
    async with join(ep.db, GROUP_NAME, "a") as member:
        await member.refresh()
        await finish(ep.db, member, done)
        await ep.db.write(lambda tx: member.move(tx, {member.owned[half]: beyond}))
    before = await state_now(ep.db)
    await more.seal()
    await more.delete()
    again = await ep.create_stream("s/more")
    assert await ep.db.write(partial(adopt_recreated_streams, group=GROUP_NAME)) == ("s/more",)
    state = await state_now(ep.db)
    assert state.waits == before.waits != ()
    assert {key: assignment.progress for key, assignment in state.open.items()} == {
        key_of(stream, 1): Progress(),
        half: beyond,
        key_of(again, 0): Progress(),
    }


async def test_finished_events_are_not_counted_as_lost_by_a_truncation(ep: Eventproc) -> None:
    stream = await written(ep, 6)
    await ep.create_group("g", ["s/t"])
    (segment,) = (await stream.tail()).offsets
    key = (stream.stream_id, segment)
    async with join(ep.db, "s/g", "a") as member:
        await settle([member])
        await ep.db.write(lambda tx: member.move(tx, {member.owned[key]: Progress(2, 18)}))
        await stream.truncate(StreamCut("s/t", stream.stream_id, {segment: 36}))
        (where,) = (await state_now(ep.db)).streams
        assert await ep.db.write(partial(skip, name="s/g", stream=where, policy="earliest")) == 2
        await member.refresh()
    assert (await (await ep.group("s/g")).describe()).lost_events == 2
