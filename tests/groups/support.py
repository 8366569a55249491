"""Support for the tests of groups: streams and groups, members that process segments, and waiting for conditions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import anyio

from eventproc import ScalingPolicy, Stream
from eventproc.groups import (
    GroupReader,
    GroupStart,
    Membership,
    SegmentKey,
    ensure_group,
    watch_group,
)
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import folded_state
from eventproc.runtime import Eventproc
from eventproc.store.database import Database, Tx
from eventproc.store.groups import GROUP
from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.progress import Progress
from eventproc.store.records import get
from eventproc.store.segments import segment_state
from eventproc.topics import Group

GROUP_NAME = "s/g"


async def make(ep: Eventproc, segments: int, *, start: GroupStart = "head") -> Stream:
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(segments))
    await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=["s/t"], start=start))
    return stream


async def state_now(db: Database) -> GroupState:
    def read(tx: Tx) -> GroupState:
        state = folded_state(tx, get(tx, GROUP, GROUP_NAME).value).state
        state.check()
        return state

    return await db.read(read)


async def settle(members: Iterable[Membership]) -> None:
    """Let each member follow what the group decided until nothing changes."""
    members = list(members)
    before: object = None
    while (now := [(member.owned, member.surplus) for member in members]) != before:
        before = now
        for member in members:
            await member.refresh()
            await member.release(member.surplus)


def shares(members: Iterable[Membership]) -> list[int]:
    return [len(member.owned) for member in members]


def end_of(tx: Tx, key: SegmentKey) -> Progress:
    state = segment_state(tx, *key)
    assert state is not None
    return Progress(state.tail_number, state.tail)


async def finish(db: Database, member: Membership, key: SegmentKey) -> None:
    """Process a sealed segment to its end."""

    def publish(tx: Tx) -> None:
        member.move(tx, {member.owned[key]: end_of(tx, key)})
        member.complete(tx, member.owned[key])

    await db.write(publish)


def key_of(stream: Stream, number: int, epoch: int = 0) -> SegmentKey:
    return stream.stream_id, segment_id(number, epoch)


def segments_of(member: Membership) -> set[SegmentId]:
    return {segment for _, segment in member.owned}


async def written(ep: Eventproc, count: int, *, segments: int = 1, name: str = "s/t") -> Stream:
    stream = await ep.create_stream(name, scaling=ScalingPolicy.fixed(segments))
    await write(stream, range(count))
    return stream


async def write(stream: Stream, numbers: range) -> None:
    async with stream.writer() as writer:
        await writer.write_many((b"%d" % number, str(number % 7)) for number in numbers)


async def eventually(ep: Eventproc, condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(20), ep.db.subscribe([watch_group("s/g")]) as changes:
        while not await condition():
            await changes.wait(50)


async def is_number(group: Group, number: int) -> bool:
    return (await group.describe()).segments[0].number == number


async def read_until_tail(reader: GroupReader, stream: Stream) -> list[int]:
    return [int(event.payload) async for event in reader.until(await stream.tail())]


async def are_shared(readers: list[GroupReader], each: int | None = None) -> bool:
    """Return whether every reader owns `each` segments; None: its share of six."""
    return [len(reader.owned) for reader in readers] == [each or 6 // len(readers)] * len(readers)
