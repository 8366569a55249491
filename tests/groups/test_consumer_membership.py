"""Members with subscriptions of their own, static members, dropped streams, own assignors, and deadlines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeAlias

import anyio
import pytest

import eventproc
from eventproc import ScalingPolicy, Stream
from eventproc.groups import GROUP, GroupOptions, SegmentKey, ensure_group, watch_group
from eventproc.groups.assignors import AssignmentInput, Targets
from eventproc.groups.liveness import ASSIGN_MS, LOCAL_MEMBERSHIPS
from eventproc.groups.membership import GroupMember, MemberOptions, join_member
from eventproc.groups.operations import reader_offline
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import change
from eventproc.groups.updates import AssignorChanged, ReaderJoined, SegmentsAcquired
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.group_errors import AssignorDiffers, SegmentFenced
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.model.routing import point
from eventproc.store.progress import SegmentClaim, move_progress
from eventproc.store.records import get
from eventproc.testing import VirtualClock, check
from tests.groups.support import GROUP_NAME, settle as settle_once, shares, state_now

STATIC_MS = 60_000
PATIENCE_MS = 30_000
MARGIN_MS = 10_000
"""More than the test itself takes: a virtual clock moves with the real one, too."""
Virtual: TypeAlias = tuple[Eventproc, VirtualClock]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def virtual() -> AsyncIterator[Virtual]:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        yield ep, clock
        await check(ep.db)


async def make_streams(ep: Eventproc, options: GroupOptions, **segments: int) -> dict[str, Stream]:
    found = {
        name: await ep.create_stream(f"s/{name}", scaling=ScalingPolicy.fixed(count))
        for name, count in segments.items()
    }
    names = [f"s/{name}" for name in segments]
    await ep.db.write(partial(ensure_group, name=GROUP_NAME, streams=names, options=options))
    return found


def join_as(ep: Eventproc, reader: str, **options: object) -> AbstractAsyncContextManager[GroupMember]:
    chosen = MemberOptions(**options)  # type: ignore[arg-type]
    return join_member(ep.db, GROUP_NAME, reader, as_reader=False, chosen=chosen)


async def settle(members: list[GroupMember]) -> None:
    """Let each member follow what the group decided, answers of own assignors included, until nothing changes."""
    before: object = None
    while (now := [member.state.generation for member in members]) != before:
        before = now
        await settle_once(members)


def streams_of(member: GroupMember) -> set[str]:
    return {each.stream for each in member.owned.values()}


async def die(ep: Eventproc, member: GroupMember) -> None:
    """Let a member end without a word."""
    ep.db.shared[LOCAL_MEMBERSHIPS].discard(GROUP_NAME, member.reader, member.epoch)


async def test_nobody_gets_a_stream_that_it_did_not_ask_for(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, GroupOptions(), x=4, y=4)
    async with join_as(ep, "a", subscription=["s/x"]) as a, join_as(ep, "b", subscription=["s/y"]) as b:
        await settle([a, b])
        assert (streams_of(a), streams_of(b)) == ({"s/x"}, {"s/y"})
        async with join_as(ep, "c") as c:
            await settle([a, b, c])
            assert sorted(shares([a, b, c])) == [2, 3, 3]
            assert (streams_of(a), streams_of(b), streams_of(c)) == ({"s/x"}, {"s/y"}, {"s/x", "s/y"})


@pytest.mark.acceptance("K23")
async def test_a_changed_subscription_moves_only_what_it_concerns(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, GroupOptions(), x=4, y=4, z=2)
    async with (
        join_as(ep, "a", subscription=["s/x", "s/z"]) as a,
        join_as(ep, "b", subscription=["s/y"]) as b,
    ):
        await settle([a, b])
        before = {key: each for key, each in (*a.owned.items(), *b.owned.items()) if each.stream != "s/z"}
        await a.subscribe(["s/x"])
        await b.subscribe(["s/y", "s/z"])
        await settle([a, b])
        assert (streams_of(a), streams_of(b)) == ({"s/x"}, {"s/y", "s/z"})
        after = {**a.owned, **b.owned}
        assert all(after[key] == each for key, each in before.items()), "untouched segments keep their epochs"


async def test_what_nobody_subscribes_to_waits_for_a_reader_that_does(virtual: Virtual) -> None:
    ep, _ = virtual
    streams = await make_streams(ep, GroupOptions(), x=1, y=1)
    async with join_as(ep, "a") as a:
        await settle([a])
        key = next(key for key, each in a.owned.items() if each.stream == "s/y")
        progress = Progress(3, 30, ((5, 6, 60),))
        await ep.db.write(lambda tx: a.move(tx, {a.owned[key]: progress}))
        await a.subscribe(["s/x"])
        await settle([a])
        assert streams_of(a) == {"s/x"}
        assert (await state_now(ep.db)).open[key].target is None
        async with join_as(ep, "b", subscription=["s/y"]) as b:
            await settle([a, b])
            assert b.owned[key].progress == progress
    assert streams["y"].stream_id == key[0]


async def test_a_reader_brings_the_streams_that_it_subscribes_to(virtual: Virtual) -> None:
    ep, _ = virtual
    older = await ep.create_stream("s/older")
    async with older.writer() as writer:
        await writer.write(b"1")
    await make_streams(ep, GroupOptions(), x=1)
    async with join_as(ep, "a", subscription=["s/older", "s/later"]) as a:
        await settle([a])
        assert streams_of(a) == {"s/older"}
        later = await ep.create_stream("s/later")
        await a.wait_change()
        await settle([a])
        assert streams_of(a) == {"s/older", "s/later"}
        for each in (older, later):
            assert a.owned[each.stream_id, SegmentId(0)].progress == Progress()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.acceptance("K15", differs="its owner epochs grow, so that a zombie under the same id is fenced")
async def test_a_static_member_that_comes_back_in_time_keeps_its_segments(
    virtual: Virtual, clean: bool
) -> None:
    ep, clock = virtual
    await make_streams(ep, GroupOptions(), x=4)
    with ep.db.subscribe([watch_group(GROUP_NAME)]) as changes:
        zombie = GroupMember(ep.db, GROUP_NAME, "b", changes, chosen=MemberOptions(static_ms=STATIC_MS))
        await zombie.join()
    async with join_as(ep, "a") as a:
        await settle([a, zombie])
        before, of_a = dict(zombie.owned), dict(a.owned)
        if clean:
            await zombie.leave()
        else:
            await die(ep, zombie)
        await a.wait_change()
        await settle([a])
        clock.advance(STATIC_MS - MARGIN_MS)
        await settle([a])
        assert a.owned == of_a, "nobody takes what is the static member's"
        async with join_as(ep, "b", static_ms=STATIC_MS) as b:
            await settle([a, b])
            assert b.owned.keys() == before.keys()
            assert all(b.owned[key].owner_epoch > before[key].owner_epoch for key in before)
            assert a.owned == of_a, "the others notice nothing"
            for key, each in before.items():
                with pytest.raises(SegmentFenced):
                    await ep.db.write(partial(move_as, reader="b", key=key, owner_epoch=each.owner_epoch))


def move_as(tx: Tx, reader: str, key: SegmentKey, owner_epoch: int) -> None:
    move_progress(tx, SegmentClaim(GROUP_NAME, reader, *key, owner_epoch), Progress(1, 9))


@pytest.mark.acceptance("K10", differs="without a callback: the owner itself does not release")
async def test_an_owner_that_does_not_release_in_time_is_fenced(virtual: Virtual) -> None:
    ep, clock = virtual
    await make_streams(ep, GroupOptions(patience_ms=PATIENCE_MS), x=2)
    async with join_as(ep, "a") as a:
        await settle([a])
        async with join_as(ep, "b") as b:
            await b.refresh()
            await a.refresh()
            (late,) = a.surplus
            clock.advance(PATIENCE_MS - MARGIN_MS)
            await b.refresh()
            assert b.owned == {}
            clock.advance(MARGIN_MS)
            await a.refresh()  # it does not expire itself
            assert len(a.owned) == 2
            await b.wait_change()
            await settle([b])
            assert len(b.owned) == 2
            with pytest.raises(SegmentFenced):
                await ep.db.write(lambda tx: a.move(tx, {a.owned[late]: Progress(1, 9)}))
            await settle([a, b])
            assert shares([a, b]) == [1, 1]


async def test_a_static_owner_that_does_not_release_in_time_is_away(virtual: Virtual) -> None:
    ep, clock = virtual
    await make_streams(ep, GroupOptions(patience_ms=PATIENCE_MS), x=4)
    async with join_as(ep, "a", static_ms=STATIC_MS) as a:
        await settle([a])
        async with join_as(ep, "b") as b:
            await b.refresh()
            clock.advance(PATIENCE_MS)
            await b.wait_change()
            await settle([b])
            assert (await state_now(ep.db)).members["a"].away_since_ms is not None
            assert len(b.owned) == 2, "the others wait for their reader"
            await settle([a, b])
            assert shares([a, b]) == [2, 2]


class FirstTakesAll:
    """An own assignor. answer: what it returns instead of its decision."""

    name = "first_takes_all"

    def __init__(self, answer: object = None) -> None:
        self.asked: list[AssignmentInput] = []
        self.answer = answer

    def assign(self, wanted: AssignmentInput) -> Targets:
        self.asked.append(wanted)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer  # type: ignore[return-value]
        return {each.key: wanted.subscribers[each.stream][0] for each in wanted.segments}


OWN = GroupOptions(assignor=FirstTakesAll.name)


async def test_a_member_with_the_code_of_an_own_assignor_decides(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, OWN, x=4)
    code = FirstTakesAll()
    async with join_as(ep, "b") as b, join_as(ep, "c", assignor=code) as c:
        await settle([b, c])
        assert shares([b, c]) == [4, 0]
        async with join_as(ep, "a") as a:
            await a.refresh()
            assert (await state_now(ep.db)).assigning is not None
            assert shares([a, b, c]) == [0, 4, 0], (
                "the reader keeps its segments until the new targets are decided"
            )
            await settle([a, b, c])
            assert shares([a, b, c]) == [4, 0, 0]
    assert len(code.asked) <= 4


@pytest.mark.parametrize("answer", [{}, {(1, 0): "b"}, "nothing", RuntimeError("broken")])
async def test_without_a_usable_answer_the_group_shares_equally(
    virtual: Virtual, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    ep, clock = virtual
    await make_streams(ep, OWN, x=4)
    async with join_as(ep, "a", assignor=FirstTakesAll(answer)) as a, join_as(ep, "b") as b:
        await settle([a, b])
        assert shares([a, b]) == [0, 0]
        clock.advance(ASSIGN_MS)
        await b.wait_change()
        await settle([a, b])
        assert shares([a, b]) == [2, 2]
    assert "no reader ran the assignor 'first_takes_all' within 5000 ms" in caplog.text


async def test_an_answer_whose_write_was_cancelled_is_given_again(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, OWN, x=2)

    class Interrupted(FirstTakesAll):
        def assign(self, wanted: AssignmentInput) -> Targets:
            if not self.asked:
                scope.cancel()
            return super().assign(wanted)

    code = Interrupted()
    async with join_as(ep, "b", assignor=code) as b, join_as(ep, "c") as c:
        with anyio.CancelScope() as scope:
            await b.refresh()
        assert (await state_now(ep.db)).assigning is not None, "the write was cancelled"
        await settle([b, c])
        assert shares([b, c]) == [2, 0]


async def test_of_two_answers_to_one_request_one_is_used(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, OWN, x=2)
    one, two = FirstTakesAll(), FirstTakesAll()
    async with join_as(ep, "b", assignor=one) as b, join_as(ep, "c", assignor=two) as c:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(b.refresh)
            tasks.start_soon(c.refresh)
        before = (await state_now(ep.db)).generation
        await settle([b, c])
        assert shares([b, c]) == [2, 0]
        assert len(one.asked) == len(two.asked) == 1
        assert (await state_now(ep.db)).generation - before <= 1, "at most the acquisition is left"


@pytest.mark.acceptance("K27")
async def test_a_member_with_another_assignor_than_the_groups_is_refused(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, GroupOptions(assignor="range"), x=2)
    with pytest.raises(AssignorDiffers, match="'range'"):
        async with join_as(ep, "a", assignor=FirstTakesAll()):
            pass
    assert (await state_now(ep.db)).members == {}


async def test_the_assignor_of_a_group_can_be_changed_while_it_is_read(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, GroupOptions(), x=3, y=3)
    async with join_as(ep, "a") as a, join_as(ep, "b") as b:
        await settle([a, b])
        assert shares([a, b]) == [3, 3]
        await ep.db.write(lambda tx: change(tx, GROUP_NAME, AssignorChanged("range")))
        await settle([a, b])
        assert shares([a, b]) == [4, 2]
        record = await ep.db.read(lambda tx: get(tx, GROUP, GROUP_NAME).value)
        assert record.options.assignor == "range"


async def test_the_assignor_lag_spreads_the_unread_events_when_a_reader_joins(virtual: Virtual) -> None:
    ep, _ = virtual
    await make_streams(ep, GroupOptions(assignor="lag"), x=4)
    stream = await ep.stream("s/x")
    async with join_as(ep, "a") as a:
        await settle([a])
        assert shares([a]) == [4]
        first = min(segment for _, segment in a.owned)
        low = (await stream.segment(first)).high
        async with stream.writer() as writer:
            keys = (str(number) for number in range(10_000))
            busy = next(key for key in keys if point(key) < low)
            await writer.write_many((b"x", busy) for _ in range(50))
            for key in "abcdefgh":
                await writer.write(b"y", key=key)
        async with join_as(ep, "b") as b:
            await settle([a, b])
            alone = a if any(segment == first for _, segment in a.owned) else b
            assert [segment for _, segment in alone.owned] == [first]
            assert sorted(shares([a, b])) == [1, 3]


async def test_a_refresh_owns_nothing_of_a_reader_that_took_over_its_id_meanwhile(
    virtual: Virtual, monkeypatch: pytest.MonkeyPatch
) -> None:
    ep, _ = virtual
    await make_streams(ep, GroupOptions(), x=2)
    async with join_as(ep, "a") as a:
        step = a._step

        def step_late(tx: Tx, *, beat: bool) -> GroupState:
            """Do what the refresh writes after another process was faster."""
            reader_offline(tx, GROUP_NAME, "a")
            state = change(tx, GROUP_NAME, ReaderJoined("a", ep.db.instance_id, tx.now_ms, None, None))
            change(tx, GROUP_NAME, SegmentsAcquired("a", state.due_to("a")))
            return step(tx, beat=beat)

        monkeypatch.setattr(a, "_step", step_late)
        await a.refresh()
        assert a.owned == {}
