"""Which members of a group are alive: the lock of their instance decides, and in this process their `join` block."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import anyio

from eventproc.groups.changes import departure
from eventproc.groups.kafka_groups import change_members
from eventproc.groups.state import GroupState, OnlineReader
from eventproc.groups.stored_state import change, folded_state
from eventproc.groups.targets import fallen_back
from eventproc.groups.updates import ReaderLeft
from eventproc.store.database import Database, SharedSlot, Subscription, Tx
from eventproc.store.groups import (
    KAFKA,
    GroupOptions,
    GroupRecord,
    channel_of,
    get_group,
    member_instances,
    silent_members,
)
from eventproc.store.model.errors import EventprocError, Retryable

LOG = logging.getLogger("eventproc.groups")

POLL_MS: Final = 200
"""Pause between two looks at the other members: how long the segments of a dead one wait. Each look costs 7 us for each
member. Higher: events of a dead reader wait longer. Lower: no use, as deaths are rare."""

BEATS_IN_PATIENCE: Final = 3
"""Heartbeats within the patience of a group, so two may be late. Each costs a write."""

ASSIGN_MS: Final = 5_000
"""How long a group waits for its own assignor, which needs milliseconds. Higher: segments have no reader for longer if
no member has its code. Lower: a busy process answers too late."""

LATE_MS: Final = 1_000
"""Pause before another attempt to leave a group, as while the disk is full. Each costs a write. Higher: the segments of
a member that has ended wait longer."""

NO_READER: Final = ""
"""An id that no reader has."""


class LocalMemberships:
    """The memberships of this opening of the database: which readers are inside their `join` block now."""

    def __init__(self) -> None:
        self._present: dict[tuple[str, str, int], Subscription] = {}
        self._joining: set[tuple[str, str]] = set()
        self._late: deque[Callable[[], Awaitable[object]]] = deque()
        self._is_late = anyio.Event()

    async def run(self) -> None:
        """Let members leave that could not when they ended, until cancelled."""
        while True:
            await self._is_late.wait()
            self._is_late = anyio.Event()
            while self._late:
                await anyio.sleep(LATE_MS / 1000)
                try:
                    await self._late[0]()
                except Retryable:
                    continue
                except EventprocError as why:
                    LOG.info("a member has not left its group: %s", why)
                self._late.popleft()

    def leave_later(self, leave: Callable[[], Awaitable[object]]) -> None:
        """Let a member leave that cannot now: until then other processes count it as alive, as this one is."""
        self._late.append(leave)
        self._is_late.set()

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
                changes.notify(channel_of(group))

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
    return not db.peers.is_alive(member.instance)


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
    """Return the readers, except `exclude`, that were silent for longer than the group's patience. One query."""
    if group.options.patience_ms is None:
        return frozenset()
    return silent_members(tx, group.name, group.options.patience_ms, exclude=exclude)


def dead_instances_of_groups(tx: Tx, db: Database) -> dict[str, frozenset[str]]:
    """Return the groups with members of dead instances, and these instances, sorted by group.

    Cost: one query, and 7 us for each instance.
    """
    members = member_instances(tx)
    dead = {
        each
        for each in {instance for _, instance in members}
        if each != db.instance_id and not db.peers.is_alive(each)
    }
    groups = sorted({group for group, instance in members if instance in dead})
    return {
        group: frozenset(each for name, each in members if name == group and each in dead) for group in groups
    }


def has_silent(tx: Tx, db: Database, group: str) -> bool:
    """Return whether a reader is dead or exceeds the patience. Raises NotFound."""
    record = get_group(tx, group)
    state = folded_state(tx, record).state
    left_ms = deadline_left_ms(state, record.options, tx.monotonic_ms)
    return left_ms == 0 or bool(hung_among(tx, record) or dead_among(db, group, state.present))


def deadline_left_ms(
    state: GroupState, options: GroupOptions, now_ms: int, *, exclude: str = NO_READER
) -> int | None:
    """Return the time until a reader other than `exclude` is too late, or the own assignor is; None: nothing is due.

    0 if a deadline has passed. now_ms: monotonic.
    """
    return min((left_ms for _, left_ms in _deadlines(state, options, now_ms, exclude)), default=None)


def _deadlines(
    state: GroupState, options: GroupOptions, now_ms: int, exclude: str
) -> list[tuple[str | None, int]]:
    """Return the time left to each reader, except `exclude`, that is away or late, and to the own assignor (None)."""
    since: list[tuple[str | None, int | None, int | None]] = [
        (reader, each.away_since_ms, each.static_ms) for reader, each in state.members.items()
    ]
    if options.patience_ms is not None:
        since += ((each.owner, each.late_since_ms, options.patience_ms) for each in state.assignments)
    if state.assigning is not None:
        since.append((None, state.assigning.since_ms, ASSIGN_MS))
    # A monotonic clock that went back means that the machine was restarted: then the deadline has passed.
    return [
        (reader, max(at_ms + limit_ms - now_ms, 0) if now_ms >= at_ms else 0)
        for reader, at_ms, limit_ms in since
        if at_ms is not None and limit_ms is not None and reader != exclude
    ]


def expire_silent(tx: Tx, db: Database, group: str, *, exclude: str = NO_READER) -> GroupState:
    """Remove readers that are dead, silent, slow or too long away, except `exclude`; return the state.

    A static reader that is dead, silent or slow is away first. Raises NotFound.
    """
    if get_group(tx, group).kind == KAFKA:
        change_members(tx, group)
        return folded_state(tx, get_group(tx, group)).state
    state, record = change(tx, group), get_group(tx, group)
    options = record.options
    dead = dead_among(db, group, state.present, exclude=exclude)
    for reader in sorted(hung_among(tx, record, exclude=exclude).union(dead)):
        why = "died" if reader in dead else f"was silent for more than {options.patience_ms} ms"
        state = _expire(tx, group, state, reader, why)
    passed = [who for who, left_ms in _deadlines(state, options, tx.monotonic_ms, exclude) if not left_ms]
    for reader in sorted({each for each in passed if each is not None}):
        is_away = state.members[reader].away_since_ms is not None
        why = f"did not release its segments within {options.patience_ms} ms"
        state = _expire(tx, group, state, reader, "did not come back" if is_away else why)
    if (None, 0) in _deadlines(state, options, tx.monotonic_ms, exclude):
        LOG.warning(
            "%s: no reader ran the assignor %r within %d ms; sharing equally",
            group,
            state.assignor,
            ASSIGN_MS,
        )
        state = change(tx, group, fallen_back(state, tx.monotonic_ms))
    return state


def _expire(tx: Tx, group: str, state: GroupState, reader: str, why: str) -> GroupState:
    update = departure(tx, group, state, reader)
    LOG.warning(
        *("%s: reader %r %s; %s", group, reader, why),
        "expired" if isinstance(update, ReaderLeft) else "its segments wait until it comes back",
    )
    return change(tx, group, update)
