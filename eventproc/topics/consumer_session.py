"""What a consumer adds to a reader's session: a position for each partition, and callbacks for what it gains and loses.

The position of a partition is the next event to deliver. It moves with `poll` and `seek`. What is *finished*, as
a reader calls it, is what the consumer committed: the position when the next poll begins, or, with manual
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

from eventproc.groups.membership import GroupMember
from eventproc.groups.operations import reader_offline
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import InFlight
from eventproc.groups.session import ReaderSession
from eventproc.store.database import Database, Subscription
from eventproc.store.groups import GroupStream, SegmentKey
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import number_of, parse_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.partitions import is_reserve
from eventproc.store.segments import Event, segment_state
from eventproc.topics.partition import TopicPartition

LOG = logging.getLogger("eventproc.topics")

PartitionsCallback: TypeAlias = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]
"""Called with the partitions that a consumer gained or lost."""

_CALLING: Final[ContextVar[ConsumerSession | None]] = ContextVar("eventproc consumer callback", default=None)
"""The session whose callback the task or thread runs: one that polled would wait for itself."""


@attrs.frozen
class RebalanceCallbacks:
    """The callbacks of a consumer."""

    on_assigned: PartitionsCallback | None = None
    on_revoked: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None


def partition_of(owned: OwnedSegment) -> TopicPartition:
    """Return the partition that an owned segment is."""
    return TopicPartition(owned.assigned.stream, number_of(owned.key[1]))


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
        self._moved: dict[SegmentKey, OwnedSegment] = {}  # delivered, and not committed
        self._begun: dict[OwnedSegment, tuple[int, int]] = {}  # positions before the last delivery
        self._handling = False
        self._announced: dict[SegmentKey, OwnedSegment] = {}
        self.handler = "its user"
        self._delivered_ms: int | None = None
        self._next: tuple[InFlight, Iterator[Event[Any]]] | None = None
        self._failure: Exception | None = None
        self._calling = False

    @property
    def assigned(self) -> list[OwnedSegment]:
        """The partitions that are assigned now, sorted."""
        return sorted((each for each in self.segments if not is_reserve(each.key[1])), key=partition_of)

    @property
    def is_calling(self) -> bool:
        """Whether the caller runs in a callback."""
        return self._calling and _CALLING.get() is self

    @property
    def is_idle(self) -> bool:
        """Whether every event that was delivered is finished."""
        return all(each not in self.segments for each in self._moved.values())

    @property
    def events_unsaved(self) -> int:
        """How many events are finished and not durable."""
        return sum(abs(each.finished.number - each.durable.number) for each in self.segments)

    def find(self, where: TopicPartition) -> OwnedSegment | None:
        """Return a partition; None if it is not assigned."""
        return next((each for each in self.assigned if partition_of(each) == where), None)

    def finish(self) -> None:
        """Commit what was delivered, if commits are automatic or a transaction commits it; to become durable soon."""
        if (self._auto_commit and not self._handling) or self._hold is not None:
            self.commit_positions()
        if self._hold is None:
            self._lost = None

    def commit_positions(self) -> None:
        """Count as finished what lies before the positions."""
        for each in list(self._moved.values()):
            if each in self.segments:
                self.commit_position(each, each.next_number, each.next_offset)
        self._moved = {}

    def commit_assigned(self) -> list[OwnedSegment]:
        """Count as finished what lies before the positions, also where a chosen offset was committed since.

        Returns those that this moved.
        """
        moved: list[OwnedSegment] = []
        for each in self.assigned:
            if (each.next_number, each.next_offset) != (each.finished.number, each.finished.offset):
                moved.append(each)
                self.commit_position(each, each.next_number, each.next_offset)
            each.must_save = not each.is_saved
        self._moved = {}
        return moved

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
            for owned, (number, offset) in self._begun.items():
                if owned in self.segments and partition_of(owned) not in handled:
                    self.move(owned, number, offset)

    @property
    def lost(self) -> OwnedSegment | None:
        """A partition that was taken from the consumer with unfinished events, until its user follows the group."""
        return next(filter(self._is_lost, self._moved.values()), None)

    def _is_lost(self, owned: OwnedSegment) -> bool:
        now = self.segments.find(owned.key)
        return now is None or now.assigned is not owned.assigned

    @property
    def may_deliver(self) -> bool:
        """Whether events that were read ahead may be delivered now: nothing is to follow, and no task follows it."""
        return bool(self.waiting) and not self.turn.locked() and not self.must_follow()

    def commit_position(self, owned: OwnedSegment, number: int, offset: int) -> None:
        """Count as finished what lies before event `number`, which begins at `offset`."""
        owned.finish_to(number, offset)
        if (number, offset) == (owned.next_number, owned.next_offset):
            self._moved.pop(owned.key, None)
        self.mark()

    def move(self, owned: OwnedSegment, number: int, offset: int) -> None:
        """Deliver another event of the partition next."""
        owned.next_number, owned.next_offset = number, offset
        self._moved[owned.key] = owned
        self.reread(owned)

    def give_back(self) -> None:
        """Deliver again what was delivered since `hold`."""
        super().give_back()
        self._moved.clear()

    def reread(self, owned: OwnedSegment) -> None:
        """Drop what was read ahead of the position."""
        self.waiting = type(self.waiting)(each for each in self.waiting if each.owned is not owned)
        owned.take_from(owned.next_number, owned.next_offset)

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
            owned = in_flight.owned
            if self._next is None or self._next[0] is not in_flight:
                self._next = in_flight, in_flight.run.events(owned.assigned.stream, decode)
            begun = len(found)
            try:
                for event in self._next[1]:
                    found.append(event)
                    if len(found) == events_max:
                        break
            except Exception:
                self._next = None
                if len(found) == begun:
                    self.reread(owned)
                    if not found:
                        raise
                    return found
                self._advance(in_flight, len(found) - begun)
                self.reread(owned)
                return found
            self._advance(in_flight, len(found) - begun)
            if in_flight.count == len(in_flight.run):
                self.waiting.popleft()
                self._next = None
        self._delivered_ms = self._db.clock.monotonic_ms()
        return found

    def _advance(self, in_flight: InFlight, count: int) -> None:
        owned, run, before = in_flight.owned, in_flight.run, in_flight.count
        if before == 0:
            owned.next_offset = run.start
        self._begun.setdefault(owned, (run.first_number + before, owned.next_offset))
        in_flight.count += count
        owned.next_number = run.first_number + in_flight.count
        payloads = run.payloads[before : in_flight.count]
        owned.next_offset += FRAME_BYTES * count + sum(map(len, payloads))
        if in_flight.skipped and in_flight.count == len(run):
            owned.next_number += in_flight.skipped
            owned.next_offset = in_flight.skipped_end
        if count:
            self._moved[owned.key] = owned

    def _pass_over(self, owned: OwnedSegment, number: int, count: int, end: int) -> None:
        """Move the position behind expired events; commit them if nothing before them waits for a commit."""
        owned.next_number, owned.next_offset = number + count, end
        if owned.key not in self._moved:
            self.commit_position(owned, owned.next_number, owned.next_offset)

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
        behind = [each for each in self.assigned if each.key[0] == stream.stream_id]
        states = await self._db.read(lambda tx: [segment_state(tx, *each.key) for each in behind])
        latest = self._member.options.on_truncated == "latest"
        for each, state in zip(behind, states, strict=True):
            if state is None or each.next_offset >= state.head or each not in self.segments:
                continue
            if latest:
                self.move(each, state.tail_number, state.tail)
            else:
                self.move(each, state.head_number, state.head)

    async def _follow(self, *, beat: bool) -> None:
        epoch, begun = self._member.epoch, self._delivered_ms
        held = ", ".join(
            f"{partition_of(each)} before offset {each.next_number}"
            for each in self._moved.values()
            if each in self.segments
        )
        await super()._follow(beat=beat)
        if self._member.epoch != epoch and held and begun is not None:
            self._log_expiry(held, self._db.clock.monotonic_ms() - begun)
        now = {each.key: each for each in self.assigned}
        gone = [each for each in self._announced.values() if self._is_lost(each)]
        for each in gone:
            del self._announced[each.key]
        if lost := [each for each in gone if not each.complete]:
            await self._call(self._callbacks.on_lost, lost)
        new = [each for key, each in now.items() if key not in self._announced]
        self._announced = now
        if new:
            await self._call(self._callbacks.on_assigned, new)

    def _log_expiry(self, held: str, held_ms: int) -> None:
        LOG.warning(
            "%s: consumer %r was expired: %s handled the events of %s for %d ms; the patience is %s ms",
            *(self._member.group, self._member.reader, self.handler, held, held_ms),
            self._member.options.patience_ms,
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
        known = [key for key in keys if self.segments.find(key) is not None]
        due = [self._announced[key] for key in known if key in self._announced]
        if due and not await self._call(self._callbacks.on_revoked, due):
            await self._fence()
        for each in due:
            self._announced.pop(each.key, None)

    async def _call(self, callback: PartitionsCallback | None, owned: Iterable[OwnedSegment]) -> bool:
        """Call back, and keep what the callback raises. Return False if it exceeded the group's patience."""
        if callback is None:
            return True
        partitions = tuple(sorted(map(partition_of, owned)))
        self._calling = True
        caller = _CALLING.set(self)
        patience_ms = self._member.options.patience_ms
        scope = anyio.move_on_after(None if patience_ms is None else patience_ms / 1000)
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
                "%s: a callback of consumer %r did not return within %s ms for %s; it was cancelled",
                *(self._member.group, self._member.reader, patience_ms),
                ", ".join(map(str, partitions)),
            )
        return not scope.cancelled_caught

    def _note_lost(self, before: Iterable[OwnedSegment]) -> None:
        super()._note_lost(before)
        for each in filter(self._is_lost, self._moved.values()):
            self._lost = each.assigned

    async def _fence(self) -> None:
        """Give up all partitions at their durable positions, without a commit. The consumer joins again."""
        group, reader = self._member.group, self._member.reader
        await self._db.write(partial(reader_offline, group=group, reader=reader))
        for owned in self.segments:  # what was delivered belongs to the next owner
            owned.finished = owned.durable
        self._moved.clear()
        self.stale = True

    def _lose_fenced(self, why: SegmentFenced) -> None:
        key = why.stream_id, parse_segment(why.segment)
        super()._lose_fenced(why)
        self.fenced = self.fenced or why
        LOG.warning("%s: partition %d was taken from consumer %r", why.group, number_of(key[1]), why.reader)
