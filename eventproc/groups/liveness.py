"""Which members of a group are alive: the lock of their instance decides, and in this process their `join` block."""

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
"""Pause between two looks at the other members: how long the segments of a dead one wait. Each look costs 7 us for each
member. Higher: events of a dead reader wait longer. Lower: no use, as deaths are rare."""

BEATS_A_LEASE: Final = 3
"""Signs of life within a lease, so two may be late. Each costs a write."""

NO_READER: Final = ""
"""An id that no reader has."""


class LocalMemberships:
    """The memberships of this opening of the database: which readers are inside their `join` block now."""

    def __init__(self) -> None:
        self._present: dict[tuple[str, str, int], Subscription] = {}
        self._joining: set[tuple[str, str]] = set()

    @contextmanager
    def joining(self, group: str, reader: str) -> Iterator[bool]:
        """Count the reader as alive, in any epoch, within the block. Yields False if it is joining already."""
        if (group, reader) in self._joining:
            yield False
            return
        self._joining.add((group, reader))
        try:
            yield True
        finally:
            self._joining.discard((group, reader))
            # Until now nobody took the reader for dead, also if joining failed because of a membership that has ended.
            self._wake_members(group)

    def add(self, group: str, reader: str, epoch: int, changes: Subscription) -> None:
        """Count the membership as alive from now on."""
        self._present[group, reader, epoch] = changes

    def discard(self, group: str, reader: str, epoch: int) -> None:
        """End the membership, and wake the other members, which look for dead ones."""
        if self._present.pop((group, reader, epoch), None) is not None:
            self._wake_members(group)

    def _wake_members(self, group: str) -> None:
        for (other, _, _), changes in self._present.items():
            if other == group:
                changes.notify(topic_of(group))

    def has(self, group: str, reader: str, epoch: int) -> bool:
        """Return whether that membership is alive. Also called on the writer's thread: look-ups, no change."""
        return (group, reader, epoch) in self._present

    def is_joining(self, group: str, reader: str) -> bool:
        """Return whether the reader is joining now. Called as `has`."""
        return (group, reader) in self._joining


LOCAL_MEMBERSHIPS: Final = SharedSlot(LocalMemberships)


def is_dead(db: Database, group: str, reader: str, member: OnlineReader) -> bool:
    """Return whether the member is dead. About 7 us for a member of another process."""
    if member.instance == db.instance_id:
        return not db.shared[LOCAL_MEMBERSHIPS].has(group, reader, member.epoch)
    # Without a directory there is no lock to look at, and no other process.
    return db.path is not None and not is_alive(db.path, member.instance)


def dead_among(
    db: Database, group: str, members: Mapping[str, OnlineReader], *, exclude: str = NO_READER
) -> tuple[str, ...]:
    """Return the dead readers, except `exclude`."""
    present = db.shared[LOCAL_MEMBERSHIPS]
    return tuple(
        reader
        for reader, member in members.items()
        if reader != exclude and not present.is_joining(group, reader) and is_dead(db, group, reader, member)
    )


def hung_among(tx: Tx, group: GroupRecord, *, exclude: str = NO_READER) -> frozenset[str]:
    """Return the readers, except `exclude`, whose last sign of life is older than the group's lease. One query."""
    if group.options.lease_ms is None:
        return frozenset()
    return silent_members(tx, group.name, group.options.lease_ms, exclude=exclude)


def has_silent(tx: Tx, db: Database, group: str) -> bool:
    """Return whether a reader is dead or exceeds the lease. Raises NotFound."""
    record = get(tx, GROUP, group).value
    return bool(hung_among(tx, record) or dead_among(db, group, folded_state(tx, record).state.members))


def expire_silent(tx: Tx, db: Database, group: str, *, exclude: str = NO_READER) -> GroupState:
    """Remove dead and unresponsive readers from the group, except `exclude`; return its state. Raises NotFound."""
    state = change(tx, group)
    hung = hung_among(tx, get(tx, GROUP, group).value, exclude=exclude)
    dead = dead_among(db, group, state.members, exclude=exclude)
    for reader in hung.union(dead):
        LOG.warning(
            "%s: reader %r %s; expired", group, reader, "died" if reader in dead else "exceeded its lease"
        )
        state = change(tx, group, left(tx, group, state, reader))
    return state
