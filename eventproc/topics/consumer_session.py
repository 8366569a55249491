"""What a consumer adds to a reader's session: a position for each partition, and callbacks for what it gains and loses.

The position of a partition is the next event to deliver. It moves with `poll` and `seek`. What is *finished*, as
`groups.cursors` calls it, is what the consumer committed: the position when the next poll begins, or, with manual
commits, what `commit` says. So a segment that was read to its end opens its successors when that is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import attrs

from eventproc.groups.cursors import InFlight, SegmentCursor
from eventproc.groups.membership import GroupMember
from eventproc.groups.operations import reader_offline
from eventproc.groups.session import ReaderSession
from eventproc.groups.state import SegmentOwnership
from eventproc.store.database import Database, Subscription
from eventproc.store.groups import GroupStream, SegmentKey
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import number_of, parse_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event, segment_state
from eventproc.topics.partition import TopicPartition

LOG = logging.getLogger("eventproc.topics")

PartitionsCallback: TypeAlias = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]
"""Called with the partitions that a consumer gained or lost."""

CALLBACK_MS: Final = 30_000
"""Longest time that a callback may take, in ms. Meanwhile the partitions wait for their new owners. Higher: a callback
that hangs delays the group longer. Lower: a commit on a busy machine may not fit."""


_CALLING: Final[ContextVar[ConsumerSession | None]] = ContextVar("eventproc consumer callback", default=None)
"""The session whose callback the task or thread runs: one that polled would wait for itself."""


@attrs.frozen
class RebalanceCallbacks:
    """The callbacks of a consumer.

    deadline_ms: see CALLBACK_MS.
    """

    on_assigned: PartitionsCallback | None = None
    on_revoked: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None
    deadline_ms: int = CALLBACK_MS


@attrs.define(eq=False)
class PartitionPosition:
    """The next event to deliver of one owned segment: its number, and its offset in bytes."""

    cursor: SegmentCursor
    number: int
    offset: int

    @property
    def where(self) -> TopicPartition:
        """The partition."""
        return partition_of(self.cursor)


def moved_to(before: Progress, number: int, offset: int) -> Progress:
    """Return the progress at another position. Finished ranges beyond it are kept only if it lies further on."""
    if number < before.number:
        return Progress(number, offset)
    return before.finish(before.number, number - before.number, offset)


def partition_of(cursor: SegmentCursor) -> TopicPartition:
    """Return the partition that a cursor reads."""
    return TopicPartition(cursor.assigned.stream, number_of(cursor.key[1]))


class ConsumerSession(ReaderSession):
    """The work of one consumer between joining and leaving.

    fenced: the first partition that was found to be taken from the consumer while saving.
    handler: what handles the events, for the log.
    """

    def __init__(
        self,
        db: Database,
        member: GroupMember,
        changes: Subscription,
        stack: ExitStack,
        *,
        auto_commit: bool,
        callbacks: RebalanceCallbacks,
    ) -> None:
        super().__init__(db, member, changes, stack)
        self.fenced: SegmentFenced | None = None
        self._auto_commit = auto_commit
        self._callbacks = callbacks
        self._positions: dict[SegmentKey, PartitionPosition] = {}
        self._moved: dict[SegmentKey, PartitionPosition] = {}
        self._begun: dict[SegmentKey, tuple[PartitionPosition, int, int]] = {}  # before the last delivery
        self._handling = False
        self._announced: dict[SegmentKey, SegmentOwnership] = {}
        self.handler = "its user"
        self._delivered_ms: int | None = None
        self._next: tuple[InFlight, Iterator[Event[Any]]] | None = None
        self._failure: Exception | None = None
        self._calling = False

    def position_of(self, cursor: SegmentCursor) -> PartitionPosition:
        """Return the position in an owned segment."""
        known = self._positions.get(cursor.key)
        if known is None or known.cursor is not cursor:
            start = cursor.finished
            known = PartitionPosition(cursor, start.number, start.offset)
            self._positions[cursor.key] = known
        return known

    @property
    def positions(self) -> list[PartitionPosition]:
        """The positions of the partitions that are assigned now, sorted."""
        owned = (self.position_of(cursor) for cursor in self.cursors if not is_reserve(cursor.key[1]))
        return sorted(owned, key=_where)

    @property
    def is_calling(self) -> bool:
        """Whether the caller runs in a callback."""
        return self._calling and _CALLING.get() is self

    @property
    def is_idle(self) -> bool:
        """Whether every event that was delivered is finished."""
        return all(each.cursor not in self.cursors for each in self._moved.values())

    @property
    def events_unsaved(self) -> int:
        """How many events are finished and not durable."""
        return sum(abs(each.finished.number - each.saved.number) for each in self.cursors)

    def find(self, where: TopicPartition) -> PartitionPosition | None:
        """Return the position of a partition; None if it is not assigned."""
        return next((each for each in self.positions if each.where == where), None)

    def finish(self) -> None:
        """Commit what was delivered, if commits are automatic or a transaction commits it; to become durable soon."""
        if (self._auto_commit and not self._handling) or self._hold is not None:
            self.commit_positions()
        if self._hold is None:
            self._lost = None

    def commit_positions(self) -> None:
        """Count as finished what lies before the positions."""
        for each in list(self._moved.values()):
            if each.cursor in self.cursors:
                self.commit_position(each, each.number, each.offset)
        self._moved = {}

    def commit_assigned(self) -> list[PartitionPosition]:
        """Count as finished what lies before the positions, also where a chosen offset was committed since.

        Returns those that this moved.
        """
        moved: list[PartitionPosition] = []
        for each in self.positions:
            if (each.number, each.offset) != (each.cursor.finished.number, each.cursor.finished.offset):
                moved.append(each)
                self.commit_position(each, each.number, each.offset)
            self.mark_committed(each)
        self._moved = {}
        return moved

    def mark_committed(self, position: PartitionPosition) -> None:
        """Save a committed offset even if it is that of the beginning: from then on the partition has one."""
        position.cursor.must_save = not position.cursor.was_saved

    @contextmanager
    def handling(self) -> Iterator[set[TopicPartition]]:
        """Let nothing that was delivered last count as finished before the block has put its partition into the set.

        At the end of the block, also by a cancellation, the other partitions go back to where they were before.
        """
        handled: set[TopicPartition] = set()
        self._handling = True
        try:
            yield handled
        finally:
            self._handling = False
            for position, number, offset in self._begun.values():
                if position.cursor in self.cursors and position.where not in handled:
                    self.move(position, number, offset)

    @property
    def lost(self) -> PartitionPosition | None:
        """A partition that was taken from the consumer with unfinished events, until its user follows the group."""
        return next(filter(self._is_lost, self._moved.values()), None)

    def _is_lost(self, position: PartitionPosition) -> bool:
        now = self.cursors.find(position.cursor.key)
        return now is None or now.assigned is not position.cursor.assigned

    @property
    def may_deliver(self) -> bool:
        """Whether events that were read ahead may be delivered now: nothing is to follow, and no task follows it."""
        return bool(self.waiting) and not self.turn.locked() and not self.must_follow()

    def commit_position(self, position: PartitionPosition, number: int, offset: int) -> None:
        """Count as finished what lies before event `number`, which begins at `offset`."""
        cursor = position.cursor
        cursor.finished = moved_to(cursor.finished, number, offset)
        if (number, offset) == (position.number, position.offset):
            self._moved.pop(cursor.key, None)
        self.mark()

    def move(self, position: PartitionPosition, number: int, offset: int) -> None:
        """Deliver another event of the partition next."""
        position.number, position.offset = number, offset
        self._moved[position.cursor.key] = position
        self.reread(position)

    def give_back(self) -> None:
        """Deliver again what was delivered since `hold`."""
        super().give_back()
        self._moved.clear()

    def reread(self, position: PartitionPosition) -> None:
        """Drop what was read ahead of the position."""
        cursor = position.cursor
        self.waiting = type(self.waiting)(each for each in self.waiting if each.cursor is not cursor)
        cursor.taken, cursor.ended = position.offset, False

    def deliver(self, events_max: int, decode: Callable[[bytes], Any] | None) -> list[Event[Any]]:
        """Return the next events of those that were read ahead, and move the positions behind them.

        If a payload cannot be decoded, the events before it are returned; the next call raises the error.
        """
        found: list[Event[Any]] = []
        self._begun = {}
        while len(found) < events_max:
            self.skip_expired()
            if not self.waiting:
                break
            in_flight = self.waiting[0]
            position = self.position_of(in_flight.cursor)
            if self._next is None or self._next[0] is not in_flight:
                self._next = in_flight, in_flight.run.events(position.where.topic, decode)
            begun = len(found)
            try:
                for event in self._next[1]:
                    found.append(event)
                    if len(found) == events_max:
                        break
            except Exception:
                self._next = None
                if len(found) == begun:
                    self.reread(position)
                    if not found:
                        raise
                    return found
                self._advance(in_flight, position, len(found) - begun)
                self.reread(position)
                return found
            self._advance(in_flight, position, len(found) - begun)
            if in_flight.count == len(in_flight.run):
                self.waiting.popleft()
                self._next = None
        self._delivered_ms = self._db.clock.monotonic_ms()
        return found

    def _advance(self, in_flight: InFlight, position: PartitionPosition, count: int) -> None:
        run, before = in_flight.run, in_flight.count
        if before == 0:
            position.offset = run.start
        start = position, run.first_number + before, position.offset
        self._begun.setdefault(position.cursor.key, start)
        in_flight.count += count
        position.number = run.first_number + in_flight.count
        payloads = run.payloads[before : in_flight.count]
        position.offset += FRAME_BYTES * count + sum(map(len, payloads))
        if in_flight.skipped and in_flight.count == len(run):
            position.number += in_flight.skipped
            position.offset = in_flight.skipped_end
        if count:
            self._moved[position.cursor.key] = position

    def _pass_over(self, cursor: SegmentCursor, number: int, count: int, end: int) -> None:
        """Move the position behind expired events; commit them if nothing before them waits for a commit."""
        position = self.position_of(cursor)
        position.number, position.offset = number + count, end
        if cursor.key in self._moved:
            self._moved[cursor.key] = position
        else:
            self.commit_position(position, position.number, position.offset)

    async def follow(self) -> None:
        """Follow the group, as a reader does; raise what a callback raised."""
        await super().follow()
        self._moved = {key: each for key, each in self._moved.items() if not self._is_lost(each)}
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure

    async def _skip(self, stream: GroupStream, why: EventprocError) -> None:
        await super()._skip(stream, why)
        await self._skip_sought(stream)

    async def _skip_sought(self, stream: GroupStream) -> None:
        """Move positions that a seek put before the head; the durable offset lies behind it and need not move."""
        behind = [each for each in self.positions if each.cursor.key[0] == stream.stream_id]
        states = await self._db.read(lambda tx: [segment_state(tx, *each.cursor.key) for each in behind])
        latest = self._member.options.on_truncated == "latest"
        for each, state in zip(behind, states, strict=True):
            if state is None or each.offset >= state.head or each.cursor not in self.cursors:
                continue
            if latest:
                self.move(each, state.tail_number, state.tail)
            else:
                self.move(each, state.head_number, state.head)

    async def _follow(self, *, beat: bool) -> None:
        epoch, begun = self._member.epoch, self._delivered_ms
        held = ", ".join(
            f"{each.where} before offset {each.number}"
            for each in self._moved.values()
            if each.cursor in self.cursors
        )
        await super()._follow(beat=beat)
        if self._member.epoch != epoch and held and begun is not None:
            self._log_expiry(held, self._db.clock.monotonic_ms() - begun)
        now = {each.cursor.key: each.cursor.assigned for each in self.positions}
        gone = [each for key, each in self._announced.items() if now.get(key) is not each]
        for each in gone:
            del self._announced[each.key]
        if lost := [each for each in gone if not self._positions[each.key].cursor.is_done]:
            await self._call(self._callbacks.on_lost, lost)
        new = [each for key, each in now.items() if key not in self._announced]
        self._announced = now
        if new:
            await self._call(self._callbacks.on_assigned, new)

    def _log_expiry(self, held: str, held_ms: int) -> None:
        LOG.warning(
            "%s: consumer %r was expired: %s handled the events of %s for %d ms; the lease is %s ms",
            *(self._member.group, self._member.reader, self.handler, held, held_ms),
            self._member.options.lease_ms,
        )

    async def _before_release(self, keys: Collection[SegmentKey]) -> None:
        await self._revoke(keys)

    async def revoke_all(self) -> None:
        """Let the user finish work on all partitions, before the consumer leaves."""
        await self._revoke(list(self._announced))
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure

    async def _revoke(self, keys: Iterable[SegmentKey]) -> None:
        known = [key for key in keys if self.cursors.find(key) is not None]
        due = [self._announced[key] for key in known if key in self._announced]
        if due and not await self._call(self._callbacks.on_revoked, due):
            await self._fence()
        for each in due:
            self._announced.pop(each.key, None)

    async def _call(self, callback: PartitionsCallback | None, owned: Iterable[SegmentOwnership]) -> bool:
        """Call back, and keep what the callback raises. Return False if it exceeded its deadline."""
        if callback is None:
            return True
        partitions = tuple(sorted(TopicPartition(each.stream, number_of(each.segment)) for each in owned))
        self._calling = True
        caller = _CALLING.set(self)
        scope = anyio.CancelScope(deadline=anyio.current_time() + self._callbacks.deadline_ms / 1000)
        try:
            with scope:
                await callback(partitions)
        except Exception as why:  # the user's: the poll that follows the group raises it
            self._failure = self._failure or why
        finally:
            self._calling = False
            _CALLING.reset(caller)
        if scope.cancelled_caught:
            LOG.warning(
                "%s: a callback of consumer %r did not return within %d ms for %s; it was cancelled",
                *(self._member.group, self._member.reader, self._callbacks.deadline_ms),
                ", ".join(map(str, partitions)),
            )
        return not scope.cancelled_caught

    def _note_lost(self, before: Iterable[SegmentCursor]) -> None:
        super()._note_lost(before)
        for each in filter(self._is_lost, self._moved.values()):
            self._lost = each.cursor.assigned

    async def _fence(self) -> None:
        """Give up all partitions at their durable positions, without a commit. The consumer joins again."""
        group, reader = self._member.group, self._member.reader
        await self._db.write(partial(reader_offline, group=group, reader=reader))
        for cursor in self.cursors:  # what was delivered belongs to the next owner
            cursor.finished = cursor.saved
        self._moved.clear()
        self.stale = True

    def _lose_fenced(self, why: SegmentFenced) -> None:
        key = why.stream_id, parse_segment(why.segment)
        super()._lose_fenced(why)
        self.fenced = self.fenced or why
        LOG.warning("%s: partition %d was taken from consumer %r", why.group, number_of(key[1]), why.reader)


def _where(position: PartitionPosition) -> TopicPartition:
    return position.where
