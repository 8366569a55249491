"""Who of a group's members lives: the instance's lock tells it, and within this process who is still inside `join`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from eventproc.groups.changes import left
from eventproc.groups.state import GroupState, OnlineReader
from eventproc.groups.stored_state import change, folded_state
from eventproc.store.database import Database, SharedSlot, Subscription, Tx
from eventproc.store.database.instances import is_alive
from eventproc.store.groups import GROUP, GroupRecord, silent_members, topic_of
from eventproc.store.records import get

LOG = logging.getLogger("eventproc.groups")

POLL_MS: Final = 200
"""Pause between two looks at the other members: how long a dead one's segments wait. Each look costs 7 us a member;
lower is no use, as a death is rare, higher makes others wait for the events of the dead."""

BEATS_A_LEASE: Final = 3
"""Signs of life within a lease: two may be late. More cost a write each."""

NOBODY: Final = ""
"""The id of no reader."""


class LocalMemberships:
    """The memberships of this opening of the database: who is inside its `join` at this moment."""

    def __init__(self) -> None:
        self._present: dict[tuple[str, str, int], Subscription] = {}
        self._joining: set[tuple[str, str]] = set()

    @contextmanager
    def joining(self, group: str, reader: str) -> Iterator[bool]:
        """Within the block the reader counts as alive in whatever epoch; yields False if it is joining already."""
        if (group, reader) in self._joining:
            yield False
            return
        self._joining.add((group, reader))
        try:
            yield True
        finally:
            self._joining.discard((group, reader))

    def add(self, group: str, reader: str, epoch: int, changes: Subscription) -> None:
        """Count the membership as alive from now on."""
        self._present[group, reader, epoch] = changes

    def discard(self, group: str, reader: str, epoch: int) -> None:
        """The membership ended, whether it could say so in the database or not: wake the others, who look."""
        if self._present.pop((group, reader, epoch), None) is None:
            return
        for (other, _, _), changes in self._present.items():
            if other == group:
                changes.notify(topic_of(group))

    def has(self, group: str, reader: str, epoch: int) -> bool:
        """Return whether that membership is alive. Also called on the writer's thread: look-ups, no change."""
        return (group, reader, epoch) in self._present

    def is_joining(self, group: str, reader: str) -> bool:
        """Return whether the reader's joining is under way; called as `has`."""
        return (group, reader) in self._joining


LOCAL_MEMBERSHIPS: Final = SharedSlot(LocalMemberships)


def is_dead(db: Database, group: str, reader: str, member: OnlineReader) -> bool:
    """Return whether the member will never say anything again. About 7 us for one of another process."""
    if member.instance == db.instance_id:
        return not db.shared[LOCAL_MEMBERSHIPS].has(group, reader, member.epoch)
    # Without a directory there is no other process: nobody can know.
    return db.path is not None and not is_alive(db.path, member.instance)


def dead_among(
    db: Database, group: str, members: Mapping[str, OnlineReader], *, but: str = NOBODY
) -> tuple[str, ...]:
    """Return the readers that are dead, `but` excepted."""
    present = db.shared[LOCAL_MEMBERSHIPS]
    return tuple(
        reader
        for reader, member in members.items()
        if reader != but and not present.is_joining(group, reader) and is_dead(db, group, reader, member)
    )


def hung_among(tx: Tx, group: GroupRecord, *, but: str = NOBODY) -> frozenset[str]:
    """Return the readers whose last sign of life is older than the group's lease, `but` excepted; one query."""
    if group.options.lease_ms is None:
        return frozenset()
    return silent_members(tx, group.name, group.options.lease_ms, exclude=but)


def has_silent(tx: Tx, db: Database, group: str) -> bool:
    """Return whether some reader died or hangs. Raises NotFound."""
    record = get(tx, GROUP, group).value
    return bool(hung_among(tx, record) or dead_among(db, group, folded_state(tx, record).state.members))


def expire_silent(tx: Tx, db: Database, group: str, *, but: str = NOBODY) -> GroupState:
    """Take who died or hangs out of the group, `but` excepted; return the group's state. Raises NotFound."""
    state = change(tx, group)
    hung = hung_among(tx, get(tx, GROUP, group).value, but=but)
    dead = dead_among(db, group, state.members, but=but)
    for reader in hung.union(dead):
        LOG.warning("%s: reader %r %s", group, reader, "died" if reader in dead else "hangs")
        state = change(tx, group, left(tx, group, state, reader))
    return state
