"""Members of a group from a seed: they join, leave, die, hang and come back while streams grow, split, go and return.

The group changes its assignor and is reset meanwhile. What must hold after every step: the invariants of the state; of
all members that believe to own a segment at most one can move its progress; progress and generations never move back,
except by a reset. In the end every segment is its target's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from random import Random

import anyio

import eventproc
from eventproc.groups import GroupOptions, ensure_group, watch_group
from eventproc.groups.assignors import AssignmentInput, Targets
from eventproc.groups.liveness import ASSIGN_MS, LOCAL_MEMBERSHIPS
from eventproc.groups.membership import GroupMember, MemberOptions
from eventproc.groups.operations import reset_group
from eventproc.groups.stored_state import change
from eventproc.groups.updates import AssignorChanged
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.groups import SegmentKey, progress_by_segment
from eventproc.store.model.errors import Fenced, InProgress, InvalidArgument, ScaleRefused, StreamReplaced
from eventproc.store.model.group_errors import AssignorDiffers, ReaderOnline, SegmentFenced
from eventproc.store.model.partitions import is_reserve
from eventproc.store.segments import segment_state
from eventproc.testing import VirtualClock, check
from tests.groups.support import GROUP_NAME, end_of, state_now

STATIC_MS = 20_000
PATIENCE_MS = 30_000
ROUNDS_MAX = 40
"""Rounds in which a group must come to rest."""

NAMES = ("s/x", "s/y", "s/orders-1")
ASSIGNORS = ("equal", "range", "round_robin", "lag", "by_turns")


class ByTurns:
    """An own assignor that sometimes answers nonsense, and sometimes fails."""

    name = "by_turns"

    def __init__(self, random: Random) -> None:
        self._random = random

    def assign(self, wanted: AssignmentInput) -> Targets:
        match self._random.randrange(6):
            case 0:
                return {}
            case 1:
                raise RuntimeError("an assignor may fail")
            case _:
                return {
                    each.key: wanted.subscribers[each.stream][number % len(wanted.subscribers[each.stream])]
                    for number, each in enumerate(wanted.segments)
                }


class MembershipSimulation:
    """One group and its members. log: the names of the steps, and how many times each had its full effect."""

    def __init__(self, seed: int, *, steps: int = 60) -> None:
        self.random = Random(seed)
        self.steps = steps
        self.log: list[str] = []
        self.members: list[GroupMember] = []
        self.progress: dict[SegmentKey, int] = {}
        self.generation = 0

    async def run(self) -> None:
        self.clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(clock=self.clock) as ep:
            with ExitStack() as self.subscriptions:
                self.ep: Eventproc = ep
                await self._prepare()
                for _ in range(self.steps):
                    await self._step()
                    await self._check()
                await self._settle()
                for member in self.members:
                    await member.leave(for_good=True)
            await check(ep.db)

    async def _prepare(self) -> None:
        await self.ep.create_scope("s")
        await self.ep.create_topic("s/x", partitions=self.random.randint(1, 4))
        for name in NAMES[1:]:
            await self.ep.create_stream(name)
        options = GroupOptions(
            on_deleted="drop", patience_ms=PATIENCE_MS, assignor=self.random.choice(ASSIGNORS)
        )
        await self.ep.db.write(
            partial(ensure_group, name=GROUP_NAME, streams=["s/x", "s/y"], options=options)
        )

    async def _step(self) -> None:
        steps: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (10, self._join),
            (4, self._leave),
            (3, self._die),
            (24, self._refresh),
            (8, self._refresh_together),
            (12, self._process),
            (4, self._scale),
            (3, self._resubscribe),
            (2, self._change_assignor),
            (2, self._reset),
            (2, self._delete_or_create),
            (6, self._wait),
        ]
        (step,) = self.random.choices([each for _, each in steps], [weight for weight, _ in steps])
        self.log.append(step.__name__)
        await step()

    def _any(self) -> GroupMember | None:
        return self.random.choice(self.members) if self.members else None

    def _subscription(self) -> tuple[str, ...] | None:
        return self.random.choice([None, None, ("s/x",), ("s/y",), ("s/orders-*",), ("s/x", "s/orders-*")])

    async def _join(self) -> None:
        chosen = MemberOptions(
            subscription=self._subscription(),
            static_ms=self.random.choice([None, STATIC_MS]),
            assignor=self.random.choice([None, ByTurns(self.random)]),
        )
        changes = self.subscriptions.enter_context(self.ep.db.subscribe([watch_group(GROUP_NAME)]))
        reader = f"r{self.random.randrange(6)}"
        member = GroupMember(self.ep.db, GROUP_NAME, reader, changes, chosen=chosen)
        try:
            await member.join()
        except (ReaderOnline, AssignorDiffers):
            return
        self.members.append(member)

    async def _leave(self) -> None:
        if (member := self._any()) is not None:
            await member.leave(for_good=self.random.random() < 0.5)
            self.members.remove(member)

    async def _die(self) -> None:
        """End without a word. Half of the dead go on believing to be alive, as a suspended process does."""
        if (member := self._any()) is not None:
            self.ep.db.shared[LOCAL_MEMBERSHIPS].discard(GROUP_NAME, member.reader, member.epoch)
            if self.random.random() < 0.5:
                self.members.remove(member)

    async def _refresh(self) -> None:
        if (member := self._any()) is not None:
            await self._follow(member, releases=self.random.random() < 0.8)

    async def _refresh_together(self) -> None:
        async with anyio.create_task_group() as tasks:
            for member in list(self.members):
                tasks.start_soon(self._follow, member, self.random.random() < 0.8)

    async def _follow(self, member: GroupMember, releases: bool) -> None:
        try:
            await member.refresh()
            if releases:
                await member.release(member.surplus)
        except (Fenced, AssignorDiffers):  # another one has its id, or the assignor was changed: it gives up
            if member in self.members:
                self.members.remove(member)
                self.ep.db.shared[LOCAL_MEMBERSHIPS].discard(GROUP_NAME, member.reader, member.epoch)

    async def _process(self) -> None:
        """Write a few events, and process a segment as far as it goes."""
        name = self.random.choice(NAMES[1:])
        member = self._any()
        if await self._exists(name):
            stream = await self.ep.stream(name)
            async with stream.writer() as writer:
                await writer.write_many(
                    (b"%d" % each, str(each)) for each in range(self.random.randint(1, 5))
                )
        if member is not None and member.owned:
            await self._finish(member, self.random.choice(sorted(member.owned)))

    async def _finish(self, member: GroupMember, key: SegmentKey) -> None:
        def publish(tx: Tx) -> None:
            state = segment_state(tx, *key)
            if state is None:
                return  # its stream was deleted
            member.move(tx, {member.owned[key]: end_of(tx, key)})
            if state.sealed:
                member.complete(tx, member.owned[key])

        try:
            await self.ep.db.write(publish)
        except (SegmentFenced, StreamReplaced):
            return

    async def _scale(self) -> None:
        name = self.random.choice(NAMES)
        if not await self._exists(name):
            return
        try:
            if name == "s/x":
                await (await self.ep.topic("s/x")).add_partitions(self.random.randint(1, 3))
                return
            stream = await self.ep.stream(name)
            ids = [segment.id for segment in await stream.segments()]
            if len(ids) > 1 and self.random.random() < 0.5:
                await stream.merge(*ids[:2])
            else:
                await stream.split(self.random.choice(ids), 2)
        except (ScaleRefused, InvalidArgument, InProgress):
            return

    async def _resubscribe(self) -> None:
        if (member := self._any()) is not None:
            await member.subscribe(self._subscription())

    async def _change_assignor(self) -> None:
        chosen = self.random.choice(ASSIGNORS)
        await self.ep.db.write(lambda tx: change(tx, GROUP_NAME, AssignorChanged(chosen)))

    async def _reset(self) -> None:
        state = await state_now(self.ep.db)
        if state.streams and all([await self._exists(each.name) for each in state.streams]):
            await self.ep.db.write(partial(reset_group, group=GROUP_NAME))
            self.progress.clear()

    async def _delete_or_create(self) -> None:
        name = self.random.choice(NAMES[1:])
        if await self._exists(name):
            stream = await self.ep.stream(name)
            await stream.seal()
            await stream.delete()
        else:
            await self.ep.create_stream(name)

    async def _exists(self, name: str) -> bool:
        return any(each.name == name for each in await self.ep.streams("s"))

    async def _wait(self) -> None:
        self.clock.advance(self.random.choice([ASSIGN_MS, STATIC_MS // 2, STATIC_MS, PATIENCE_MS]))

    async def _check(self) -> None:
        state = await state_now(self.ep.db)
        assert state.generation >= self.generation, f"{state.generation} < {self.generation}"
        self.generation = state.generation
        rows = await self.ep.db.read(partial(progress_by_segment, group=GROUP_NAME))
        for key, progress in rows.items():
            assert progress.offset >= self.progress.get(key, 0), f"{key} moved back to {progress}"
        self.progress = {key: progress.offset for key, progress in rows.items()}
        for key in {key for member in self.members for key in member.owned}:
            able = [
                member for member in self.members if key in member.owned and await self._can_move(member, key)
            ]
            assert len(able) <= 1, f"{key} has the owners {[each.reader for each in able]}"

    async def _can_move(self, member: GroupMember, key: SegmentKey) -> bool:
        rows = await self.ep.db.read(partial(progress_by_segment, group=GROUP_NAME))
        if key not in rows:
            return False
        try:
            await self.ep.db.write(lambda tx: member.move(tx, {member.owned[key]: rows[key]}))
        except SegmentFenced:
            return False
        return True

    async def _settle(self) -> None:
        """Let the living follow until nothing changes: every segment with a subscriber is its target's."""
        before: object = None
        calm = 0  # rounds without a change: a lost segment is dropped in one, and acquired again in the next
        for _ in range(ROUNDS_MAX):
            now = await state_now(self.ep.db)
            if now.assigning is not None or now.present != now.members:
                self.clock.advance(STATIC_MS)
            calm = calm + 1 if now == before else 0
            if calm == 2:
                break
            before = now
            for member in list(self.members):
                await self._follow(member, releases=True)
            if not self.members:
                return
        state = await state_now(self.ep.db)
        alive = {member.reader for member in self.members}
        assert state.present.keys() == alive, f"{state.present.keys()} are online, {alive} alive"
        for each in state.assignments:
            assert each.owner == each.target, f"{each} has not come to its target"
            needs_owner = bool(state.subscribers[each.stream_id]) and not is_reserve(each.segment)
            assert (each.owner is not None) == needs_owner, f"{each} belongs to {each.owner}"
        for each in state.reserves:
            found = await self.ep.db.read(
                partial(segment_state, stream_id=each.stream_id, segment=each.segment)
            )
            assert found is not None and not found.sealed, f"nobody has completed the reserve {each}"
