"""Names that instances divide among themselves, so that each name has one owner: buckets, and segment containers.

A name is a row of `owner`; every transaction of an owner compares it (`Owner.check`). A record lists the members.
Joining, leaving, and removing a dead or silent member is one transaction that also divides the names, by the function
that divides the segments of a group. A member that was removed while it was suspended joins again.
docs/design/background-work.md gives the reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import anyio
import attrs

from eventproc.cluster.background_steps import repeat_step
from eventproc.cluster.owner_watch import OWNER_WATCH, working
from eventproc.groups.assignors import share_equally
from eventproc.processors.retry import RETRY_MS_MAX
from eventproc.store.database import Database, Subscription, Tx, Watch
from eventproc.store.faults import Step
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import Owner, claim, find_owner
from eventproc.store.records import RecordKind, create, find, replace

LOG = logging.getLogger("eventproc.divisions")

POLL_MS: Final = 200
"""Pause between two looks at the locks of the other members: how long the names of a dead one wait. Each look costs
7 us for each member."""

ALL: Final = "all"
"""Key of the one record of a division. Whenever owners change, its version grows."""

MemberT = TypeVar("MemberT")


@attrs.frozen
class DivisionMap(Generic[MemberT]):
    """What the directory says: the members, and the owner of each name, dead or alive; None if it never had one.

    version: that of the record; 0 if there never was a member.
    """

    version: int
    members: tuple[MemberT, ...]
    owners: tuple[Owner | None, ...]


@attrs.frozen
class Division(Generic[MemberT]):
    """A fixed list of names, and the members that divide it.

    Attributes:
        record: lists the members, in the order in which they joined. Its value has one field, a tuple.
        members_of: returns that field.
        instance_of: returns the opening of the directory of a member.
        names: of the table `owner`.
        channel: wakes subscriptions to the watch.
        step: the fault point of the transaction that divides.
    """

    record: RecordKind[Any]
    members_of: Callable[[Any], tuple[MemberT, ...]]
    instance_of: Callable[[MemberT], str]
    names: tuple[str, ...]
    channel: str
    step: Step

    def read(self, tx: Tx) -> DivisionMap[MemberT]:
        """Return the members and the owners. One look-up for each name."""
        found = find(tx, self.record, ALL)
        members = () if found is None else self.members_of(found.value)
        owners = tuple(find_owner(tx, each) for each in self.names)
        return DivisionMap(0 if found is None else found.version, members, owners)

    def watch(self) -> Watch:
        """Return the watch for changes of the members and of what they own."""

        def probe(tx: Tx) -> int:
            found = find(tx, self.record, ALL)
            return 0 if found is None else found.version

        return Watch(self.channel, probe)

    def divide(
        self,
        tx: Tx,
        is_working: Callable[[str], bool],
        *,
        joining: MemberT | None = None,
        leaving: str | None = None,
    ) -> None:
        """Remove members that do not work and `leaving`, add `joining`, and divide the names.

        Fairly, with the fewest moves. A name that moves gets a new owner epoch, which fences its last owner.

        Does nothing if the members are the same. The last one that leaves keeps its rows, which the next one claims.
        """
        found = find(tx, self.record, ALL)
        before = () if found is None else self.members_of(found.value)
        # An opening that failed to leave may join as another member.
        replaced = leaving if joining is None else self.instance_of(joining)
        after = tuple(
            each
            for each in before
            if each == joining or (self.instance_of(each) != replaced and is_working(self.instance_of(each)))
        )
        if joining is not None and joining not in after:
            after = (*after, joining)
        if after == before:
            return
        if found is None:
            create(tx, self.record, ALL, self.record.value(after))
        else:
            replace(tx, self.record, found, self.record.value(after))
        owners = [None if (owner := find_owner(tx, each)) is None else owner.instance for each in self.names]
        targets = {(0, SegmentId(number)): owner for number, owner in enumerate(owners)}
        for (_, number), instance in share_equally(
            targets, list(map(self.instance_of, after)), targets
        ).items():
            if instance != owners[number]:
                claim(tx, self.names[number], instance)
        tx.wake(self.channel)


class OwnedNames(Generic[MemberT]):
    """A division as one instance knows it. Only `Owner.check` in a transaction is certain.

    Attributes:
        division: the names.
        known: what the directory said last.
        owned: {index of a name: this instance's ownership of it}.
    """

    def __init__(self, division: Division[MemberT]) -> None:
        self.division = division
        self.known: DivisionMap[MemberT] = DivisionMap(0, (), (None,) * len(division.names))
        self.owned: Mapping[int, Owner] = MappingProxyType({})
        self._listeners: dict[Subscription, None] = {}

    @contextmanager
    def notifying(self, changes: Subscription) -> Iterator[None]:
        """Wake the subscription at each change of the owners within the block."""
        self._listeners[changes] = None
        try:
            yield
        finally:
            del self._listeners[changes]

    def replace(self, found: DivisionMap[MemberT], instance: str) -> None:
        """Note what the directory said. Does nothing with what is known, or older: reads may end in another order.

        Args:
            found: what it said.
            instance: this opening of the directory.
        """
        if found.version <= self.known.version:
            return
        self.known = found
        owned = {n: each for n, each in enumerate(found.owners) if each and each.instance == instance}
        self.owned = MappingProxyType(owned)
        for each in self._listeners:
            each.notify(f"owned {self.division.channel}")

    async def learn(self, db: Database) -> None:
        """Read what the directory says now, and note it."""
        self.replace(await db.read(self.division.read), db.instance_id)

    async def join(self, db: Database, member: MemberT) -> None:
        """Add this instance, remove members that do not work, and divide the names, unless that was done already."""
        db.shared[OWNER_WATCH].beat(db)
        divide = partial(self.division.divide, is_working=working(db), joining=member)
        await db.write(divide, step=self.division.step)  # it may have joined also if this is cancelled
        await self.learn(db)

    async def keep(self, db: Database, member: MemberT, *, joins_at_ms: int = 0) -> None:
        """Take part, follow the owners, and replace members that do not work, until cancelled.

        It never ends the user's program, and ends itself when the directory is closed.

        Args:
            db: the directory.
            member: this instance.
            joins_at_ms: when it joins, in monotonic time of the directory's clock, unless another call joined before.
        """
        with db.subscribe([self.division.watch()]) as changes:
            follow = partial(self._follow, db, member, joins_at_ms, changes)
            pause = partial(anyio.sleep, RETRY_MS_MAX / 1000)
            await repeat_step(follow, pause, LOG, f"the {self.division.channel} cannot be divided now")

    async def _follow(self, db: Database, member: MemberT, joins_at_ms: int, changes: Subscription) -> None:
        """Learn the owners, and join or replace a member when that is due. Returns after a change of owners."""
        await self.learn(db)
        watch, is_working = db.shared[OWNER_WATCH], working(db)
        members = set(map(self.division.instance_of, self.known.members))
        joined = db.instance_id in members  # else it is new, or was suspended and others took its names over
        others = members - {db.instance_id}
        pause_ms = (POLL_MS if others else None) if joined else max(joins_at_ms - db.clock.monotonic_ms(), 0)
        while pause_ms != 0:
            if joined and others:
                watch.keep(db)
            if await changes.wait(pause_ms):
                return
            gone = sorted(each for each in others if not is_working(each))
            if joined and gone:
                LOG.info("%s dead or silent; dividing its %s", ", ".join(gone), self.division.channel)
            if not joined or gone:
                break
        await self.join(db, member)
