"""Checkpoints while other things happen to their group: deaths, other streams, truncation; and their names."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc import Group
from eventproc.groups import add_stream, join
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.group_errors import CheckpointPending
from eventproc.store.model.ids import segment_id
from eventproc.testing import VirtualClock
from tests.groups.support import eventually, finish, read_until_tail, settle, written
from tests.support.child_process import ChildProcess

HANGING = """
import sys
import anyio, eventproc

async def main():
    async with eventproc.open(sys.argv[1]) as ep:
        async with (await ep.group("s/g")).reader("a") as reader:
            async for event in reader:
                print("in hand", flush=True)
                sys.stdin.readline()  # does nothing until it is killed

anyio.run(main)
"""


@pytest.mark.subprocess
def test_a_dead_reader_is_not_waited_for_when_nobody_else_reads(tmp_path: Path) -> None:
    anyio.run(_die_during_a_checkpoint, tmp_path / "store")


async def _die_during_a_checkpoint(directory: Path) -> None:
    async with eventproc.open(directory) as ep:
        await ep.create_scope("s")
        await written(ep, 3)
        group = await ep.create_group("g", ["s/t"])
        with ChildProcess.running(HANGING, directory) as child:
            await anyio.to_thread.run_sync(child.hear)
            with pytest.raises(CheckpointPending) as caught:
                await group.checkpoint("one", timeout_ms=0)
            assert caught.value.readers == ("a",)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, child.kill)
                assert (await group.checkpoint("one")).name == "one"
        assert (await group.checkpoint("two", timeout_ms=0)).cuts == await group.cuts()


async def test_a_checkpoint_says_nothing_of_streams_that_came_later(ep: Eventproc) -> None:
    await written(ep, 3)
    group = await ep.create_group("g", ["s/t"])
    before = await group.checkpoint("before")
    await written(ep, 3, name="s/u")
    await ep.db.write(partial(add_stream, group="s/g", stream="s/u"))
    assert await group.checkpoints() == [before]
    await group.reset("tail")
    await group.reset(checkpoint="before")
    assert (await group.describe()).events == 6
    await written(ep, 1, name="s/v")
    with pytest.raises(InvalidArgument, match="the group did not read s/v then"):
        await group.reset(checkpoint="before", streams=["s/t", "s/v"])
    await group.reset(streams=["s/v"])
    assert await group.checkpoints() == []
    with pytest.raises(NotFound):
        await group.reset(checkpoint="before")


async def test_a_checkpoint_has_the_segments_that_wait_for_others(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    left, right = await stream.split(0)
    group = await ep.create_group("g", ["s/t"], start="tail")
    await stream.merge(left, right)
    async with join(ep.db, "s/g", "a") as member:
        await settle([member])
        await finish(ep.db, member, (stream.stream_id, left))
    (cut,) = (await group.checkpoint("one", timeout_ms=0)).cuts.values()
    assert (await group.cuts())["s/t"] == cut
    assert len(cut.offsets) == 2


async def test_a_truncation_moves_the_checkpoint_under_way_with_its_group(
    ep: Eventproc,
) -> None:
    stream = await written(ep, 50, segments=2)
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("a") as a, group.reader("b") as b, aclosing(aiter(b)) as events:
        await anext(events)
        with pytest.raises(CheckpointPending):
            await group.checkpoint("one", timeout_ms=0)
        await eventually(ep, partial(_waits_for, group, "b"))
        tail = await stream.tail()
        await stream.truncate(tail)
        assert await read_until_tail(a, stream) == []  # it meets what is gone, and goes on for both
        with anyio.move_on_after(0.1):
            await anext(events)
        assert (await group.checkpoint("one")).cuts == {"s/t": tail}
        await group.reset(checkpoint="one")
        assert tail.offsets.keys() == {segment_id(0, 0), segment_id(1, 0)}


async def _waits_for(group: Group, reader: str) -> bool:
    try:
        await group.checkpoint("one", timeout_ms=0)
    except CheckpointPending as why:
        return why.readers == (reader,)
    return False


async def test_automatic_checkpoints_go_on_when_the_clock_is_set_back() -> None:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        stream = await written(ep, 3)
        group = await ep.create_group("g", ["s/t"], checkpoint_ms=1_000)
        async with group.reader("a") as reader:
            await read_until_tail(reader, stream)
            (first,) = await group.checkpoints()
            clock.step_wall(-3_600_000)
            await group.reset("tail")
            await read_until_tail(reader, stream)
            (second,) = await group.checkpoints()
        assert (first.automatic, second.automatic, second.at_ms < first.at_ms) == (True, True, True)


@pytest.mark.parametrize("name", ["", " ", "a\n", "a\0b", "\ud800", "x" * 256, "auto-7", 5])
async def test_a_checkpoint_has_a_name_that_can_be_shown(ep: Eventproc, name: str) -> None:
    await written(ep, 1)
    group = await ep.create_group("g", ["s/t"])
    with pytest.raises(InvalidArgument, match="checkpoint"):
        await group.checkpoint(name)
