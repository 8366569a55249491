"""What a reader or a consumer does with the database: follow the group, take events, make progress durable.

Its user's task awaits all of it. A second task saves every second what is finished, and follows the group while the
user has no event in hand.

A consumer has a position in each segment, the next event to deliver. What it committed is *finished*: the position
when the next delivery begins, or, with manual commits, what its user says. So a segment that was read to its end opens
its successors when that is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Final, TypeAlias

import anyio

from eventproc.groups.changes import verify_streams
from eventproc.groups.followed_streams import follow_catalog
from eventproc.groups.liveness import BEATS_IN_PATIENCE, POLL_MS
from eventproc.groups.membership import GroupMember
from eventproc.groups.operations import reader_offline
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import InFlight, OwnedSegments
from eventproc.groups.state import SegmentOwnership
from eventproc.groups.truncation import skip
from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import GroupStream, SegmentKey, channel_of, get_group
from eventproc.store.model.argument_checks import check_iterable, invalid_argument
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.errors import (
    Closed,
    EventprocError,
    IllegalTransition,
    NotFound,
    StreamReplaced,
    Truncated,
)
from eventproc.store.model.group_errors import SegmentFenced
from eventproc.store.model.ids import SegmentId, number_of, parse_segment
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.progress import segment_fenced
from eventproc.store.segments import segment_state
from eventproc.streams.fetch import Limit, StreamFetchers, limits_of


class StopOffsets:
    """Where one iteration stops in each segment. Streams of the group without a cut are not read."""

    def __init__(
        self, db: Database, streams: Iterable[GroupStream], until: StreamCut | Iterable[StreamCut]
    ) -> None:
        """Raises InvalidArgument for what is not a cut of a stream that the group reads, StreamReplaced."""
        self._db = db
        self._cuts: dict[int, StreamCut] = {}
        self._limits: dict[SegmentKey, int | None] = {}
        by_name = {stream.name: stream for stream in streams}
        reason = "it must be a stream cut, or several"
        for cut in (
            [until] if isinstance(until, StreamCut) else check_iterable("end of reading", until, reason)
        ):
            stream = by_name.get(as_cut(cut, "end of reading").stream)
            if stream is None:
                raise invalid_argument("end of reading", cut, f"the group reads {', '.join(by_name)}")
            if stream.stream_id != cut.stream_id:
                raise StreamReplaced(stream=cut.stream, stream_id=cut.stream_id, current_id=stream.stream_id)
            self._cuts[cut.stream_id] = cut

    def of(self, key: SegmentKey) -> int | None:
        """Return the offset at which to stop; None: read to the end. Call `ask` for the segment first."""
        return self._limits[key]

    async def ask(self, offsets: Mapping[SegmentKey, int]) -> None:
        """Find where to stop in segments that are at `offsets`. Raises InvalidCut. One read if any is new."""
        new = {key: offset for key, offset in offsets.items() if key not in self._limits}
        if new or not self._limits:
            self._limits |= await self._db.read(partial(self._ask, new=new))

    def _ask(self, tx: Tx, new: Mapping[SegmentKey, int]) -> dict[SegmentKey, int | None]:
        found: dict[SegmentKey, int | None] = dict.fromkeys(new, 0)
        for stream_id, cut in self._cuts.items():
            held: dict[SegmentId, int] = {
                key[1]: offset for key, offset in new.items() if key[0] == stream_id
            }
            limits = limits_of(tx, cut.stream, cut, held)
            found |= {(stream_id, segment): limits.get(segment) for segment in held}
        return found


LOG = logging.getLogger("eventproc.groups")

SAVE_MS: Final = 1_000
"""How long finished events wait to become durable. Each save costs one UPDATE for each segment that moved. Lower:
less is repeated after a death."""

SAVE_EVENTS: Final = 1_000
"""Finished events of one segment after which they are saved before SAVE_MS has passed."""


GiveUp: TypeAlias = Callable[[], Awaitable[None]]
"""Gives up all segments at their durable positions."""


class OwnershipListener:
    """Hears which segments a session owns, while the session has its `turn`. This one ignores it.

    patience_ms: the group's, in ms.
    """

    async def follow(self, owned: Iterable[OwnedSegment], patience_ms: int | None) -> None:
        """Hear of all segments that are owned now: some may have been gained, and others lost."""

    async def before_release(
        self, owned: Iterable[OwnedSegment], patience_ms: int | None, give_up: GiveUp
    ) -> None:
        """Finish work on segments that are about to be released. give_up: called if that took too long."""

    def verify(self) -> None:
        """Raise what code of the user raised while it heard of the segments."""

    @property
    def is_calling(self) -> bool:
        """Whether the caller runs in code of the user that hears of the segments."""
        return False


class MemberSession:
    """The work of one reader or consumer between joining and leaving.

    waiting: runs that were taken and not begun.
    in_flight: runs that a reader is delivering.
    stale: the group changed, and this member has not followed yet.
    turn: held while following the group or taking events.
    auto_commit: whether `finish` commits positions.
    moved: segments of which a consumer delivered, or will deliver, by position, without a commit.
    delivered_ms: when a consumer last delivered events, monotonic.
    fenced: the first segment that was found to be taken from the member while saving.
    handler: what handles the events, for the log.
    """

    def __init__(
        self,
        db: Database,
        member: GroupMember,
        changes: Subscription,
        stack: ExitStack,
        *,
        listener: OwnershipListener,
        auto_commit: bool = True,
    ) -> None:
        """changes: active while this is used. stack: closes what is opened for single streams."""
        self.listener = listener
        self.fenced: SegmentFenced | None = None
        self.handler = "its user"
        self.auto_commit = auto_commit
        self.moved: dict[SegmentKey, OwnedSegment] = {}
        self.delivered_ms: int | None = None
        self.segments = OwnedSegments()
        self.waiting: deque[InFlight] = deque()
        self.in_flight: list[InFlight] = []
        self.stale = True
        self._db = db
        self._member = member
        self._changes = changes
        self._fetchers = StreamFetchers(db, changes)
        stack.callback(self._fetchers.follow, {})
        self._has_skipped = False  # all that was taken last had expired: there may be more
        self.turn = anyio.Lock()
        self._saving = anyio.Lock()
        self._finished = anyio.Event()
        self._caught_up = anyio.Event()  # replaced each time that the group was followed
        self._options_changed = anyio.Event()  # replaced each time
        self._ended = False
        self._hold: SessionHold | None = None
        self._lost: SegmentOwnership | None = None  # with the event in hand, or during a hold

    def hold(self, txn: str) -> SessionHold:
        """Let only the transaction `txn` move the progress from now on. Raises IllegalTransition."""
        self.verify_free(f"another transaction, {txn},")
        for each in self.in_flight:
            each.finish()
        self.segments.hold()
        self._hold = SessionHold(self, txn)
        return self._hold

    def verify_free(self, event: str) -> None:
        """Raise IllegalTransition if a transaction holds the progress."""
        if self._hold is not None:
            name = f"reader {self._member.reader} of {self._member.group}"
            state = f"in transaction {self._hold.txn}, whose commit moves its progress"
            raise IllegalTransition(name=name, event=event, state=state)

    @property
    def is_held_at_an_end(self) -> bool:
        """Whether a transaction keeps this reader from going on behind a segment that it has read to the end."""
        return self._hold is not None and self.segments.ends_held

    def end(self) -> None:
        """Let no task follow the group any more: a reader that another task has closed must not join it again."""
        self._ended = True
        self.wake()

    async def follow(self) -> None:
        """Do what the group decided: release segments that are due to others, acquire those due to this reader.

        Called when the user asks for the next event: it writes a heartbeat. Raises also what the listener raises.
        """
        await self._catch_up(beat=True)
        self.moved = {key: each for key, each in self.moved.items() if not self._is_lost(each)}
        self.listener.verify()

    async def _catch_up(self, *, beat: bool) -> None:
        if self._ended:
            raise Closed(what=f"reader {self._member.reader} of {self._member.group}")
        while self.must_follow() if beat else self.stale:
            self.stale = False
            try:
                await self._follow(beat=beat)
            except BaseException:
                self.stale = True  # interrupted: the change has still to be followed
                raise
            if self._member.is_behind:
                self.stale = True
            elif not beat and self._member.needs_beat:
                self.stale = True  # for the reader's own task
                break
        self._caught_up.set()
        self._caught_up = anyio.Event()

    async def _follow(self, *, beat: bool) -> None:
        options, epoch, delivered_ms = self._member.options, self._member.epoch, self.delivered_ms
        in_hand = [each for each in self.moved.values() if each in self.segments]
        await self.save(complete=False)  # a checkpoint records durable progress
        await self._member.refresh(beat=beat)
        if self._member.options != options:
            self._options_changed.set()
            self._options_changed = anyio.Event()
        self._adopt()
        surplus = self._member.surplus
        if surplus and self._hold is None:
            await self._before_release(surplus)
            await self.complete()
            async with self._saving:
                await self._member.release(surplus)
            self._adopt()
        if self._member.epoch != epoch and in_hand and delivered_ms is not None:
            self._log_expiry(in_hand, self._db.clock.monotonic_ms() - delivered_ms)
        await self.listener.follow(self.segments, self._member.options.patience_ms)

    def _log_expiry(self, in_hand: Iterable[OwnedSegment], held_ms: int) -> None:
        held = ", ".join("{}[{}] before event {}".format(*_place(each), each.next_number) for each in in_hand)
        LOG.warning(
            "%s: consumer %r was expired: %s handled the events of %s for %d ms; the patience is %s ms",
            *(self._member.group, self._member.reader, self.handler, held, held_ms),
            self._member.options.patience_ms,
        )

    async def before_leaving(self) -> None:
        """Let the user finish work on all segments. Raises what the listener raises."""
        await self._before_release([each.key for each in self.segments])
        self.listener.verify()

    async def _before_release(self, keys: Iterable[SegmentKey]) -> None:
        due = [each for each in map(self.segments.find, keys) if each]
        await self.listener.before_release(due, self._member.options.patience_ms, self._give_up)

    async def _give_up(self) -> None:
        """Give up all segments at their durable positions, without a commit. The member joins again."""
        await self._db.write(partial(reader_offline, group=self._member.group, reader=self._member.reader))
        for owned in self.segments:  # what was delivered belongs to the next owner
            owned.finished = owned.durable
        self.moved.clear()
        self.stale = True

    def must_follow(self) -> bool:
        """Return whether to follow the group before the next event: it changed, or the patience ran out."""
        # A process that was suspended must not use what it took before: other readers may own it now.
        if not self.stale and self._member.may_be_expired:
            self.stale = True  # never set to False here: another thread calls this too
        return self.stale

    def _adopt(self) -> None:
        self._note_lost(self.segments.follow(self._member.owned))
        self.waiting = deque(each for each in self.waiting if each.owned in self.segments)
        self.in_flight = [each for each in self.in_flight if each.owned in self.segments]
        self._fetchers.follow({each.stream_id: each.name for each in self._member.state.streams})

    @property
    def events_unsaved(self) -> int:
        """How many events are finished and not durable, without those beyond a completed prefix."""
        return sum(abs(each.finished.number - each.durable.number) for each in self.segments)

    def finish(self) -> None:
        """Finish every event that was delivered. Delivery of the same runs may continue.

        With manual commits, events that a consumer has are finished only if a transaction commits them.
        """
        for each in self.in_flight:
            each.done = each.count
            each.finish()
            self.mark()
        if self.auto_commit or self._hold is not None:
            self.commit_positions()
        if self._hold is None:
            self._lost = None  # no event is in hand any more

    def mark(self) -> None:
        """Note that something is finished and not durable."""
        if not self._finished.is_set():
            self._finished.set()

    @property
    def is_marked(self) -> bool:
        """Whether a save is due already, without a further `mark`."""
        return self._finished.is_set()

    def rewind(self) -> None:
        """Drop what was taken and not delivered, to take it again."""
        self.waiting.clear()
        self.in_flight.clear()
        self.segments.rewind()

    async def take(self, limits: StopOffsets | None) -> None:
        """Take the next events into `waiting`, if there are any; note which segments ended."""
        self._has_skipped = False
        for stream in self._member.state.streams:
            wanted = self._wanted(stream.stream_id, limits)
            if wanted:
                await self._take(stream, wanted)
        self.skip_expired()

    def skip_expired(self) -> None:
        """Drop expired events from the head of `waiting`, up to one to deliver; they count as finished."""
        while self.waiting and self.waiting[0].expires_ms <= (now_ms := self._db.clock.wall_ms()):
            head = self.waiting.popleft()
            number = head.run.first_number + head.count
            count, end, parts = head.without_expired(now_ms)
            self.waiting.extendleft(reversed(parts))
            self._pass_over(head.owned, number, count, end)
            self._has_skipped = True

    def _pass_over(self, owned: OwnedSegment, number: int, count: int, end: int) -> None:
        """Move the position behind expired events, and count them as finished, once those before them are."""
        before = next((each for each in reversed(self.in_flight) if each.owned is owned), None)
        if before is not None and before.done < len(before.run):
            behind = before.run.first_number + len(before.run)
            before.skipped, before.skipped_end = number + count - behind, end
        else:
            owned.next_number, owned.next_offset = number + count, end
            if owned.key not in self.moved:
                self.commit_position(owned, owned.next_number, owned.next_offset)
        self.mark()

    def take_waiting(self) -> list[InFlight]:
        """Move what waits into `in_flight`, without expired events, and count it as delivered."""
        self.in_flight = []
        while self.waiting:
            each = self.waiting.popleft()
            each.count = len(each.run)
            self.in_flight.append(each)
            self.skip_expired()
        return self.in_flight

    async def _take(self, stream: GroupStream, wanted: Mapping[SegmentId, Limit]) -> None:
        try:
            found = await self._fetchers.of(stream.stream_id).fetch_next(wanted)
        except Truncated as why:
            await self._skip(stream, why)
            return
        except StreamReplaced:
            if await self._drop_deleted():
                return
            await self._db.read(lambda tx: verify_streams(tx, get_group(tx, self._member.group)))
            raise
        self.waiting += self.segments.take(stream.stream_id, found.runs, found.ttl_ms)
        self.segments.end(stream.stream_id, found.ended)

    def _wanted(self, stream_id: int, limits: StopOffsets | None) -> dict[SegmentId, Limit]:
        wanted: dict[SegmentId, Limit] = {}
        if self._member.paused:
            return wanted
        ends = self._member.state.end_offsets
        for owned in self.segments:
            if owned.key[0] != stream_id or owned.end is not None or owned.paused:
                continue
            end = ends.get(owned.key)
            if end is not None and owned.offset >= end:
                owned.end = owned.offset
                continue
            bounds = [
                bound
                for bound in (end, None if limits is None else limits.of(owned.key))
                if bound is not None
            ]
            limit = min(bounds, default=None)
            if limit is None or owned.offset < limit:
                wanted[owned.key[1]] = owned.offset, limit
        return wanted

    async def _skip(self, stream: GroupStream, why: EventprocError) -> None:
        """Continue behind unread events that were truncated, by the group's policy; raise `why` for "error"."""
        policy = self._member.options.on_truncated
        await self.save(complete=False)
        if policy == "error":
            raise why
        lost = await self._db.write(
            partial(skip, name=self._member.group, stream=stream, policy=policy), step=Step.GROUP_SKIP
        )
        where = "tails of what was truncated" if policy == "latest" else "head"
        LOG.warning("%s: %s; continuing at the %s, %d events were lost", self._member.group, why, where, lost)
        self.stale = True
        await self._skip_sought(stream)

    async def _skip_sought(self, stream: GroupStream) -> None:
        """Move positions that a seek put before the head, where the durable one lies behind it and need not move."""
        owned = [each for each in self.segments if each.key[0] == stream.stream_id]
        states = await self._db.read(lambda tx: [segment_state(tx, *each.key) for each in owned])
        for each, state in zip(owned, states, strict=True):
            # A save during the read may have lost it.
            if each in self.segments and state and each.offset < state.head <= each.durable.offset:
                if self._member.options.on_truncated == "latest":
                    self.move(each, state.tail_number, state.tail)
                else:
                    self.move(each, state.head_number, state.head)

    async def complete(self) -> None:
        """Save, and open the successors of segments that are completely processed."""
        try:
            await self.save()
        except NotFound as why:  # truncated since: the history no longer knows the successors
            for stream in self._member.state.streams:
                if any(owned.key[0] == stream.stream_id for owned in self.segments.done()):
                    await self._skip(stream, why)

    async def save(self, *, complete: bool = True) -> None:
        """Make durable what is finished. complete: also open successors of segments that are completely processed."""
        async with self._saving:
            for each in self.in_flight:
                each.finish()
            while True:
                moved, done = self.segments.unsaved(), self.segments.done() if complete else []
                if not moved and not done:
                    return
                try:
                    fn = partial(self._write, moved=moved, done=done)
                    streams = None if done else frozenset(owned.assigned.stream for owned in moved)
                    await self._db.write(fn, step=Step.GROUP_PROGRESS, streams=streams)
                except StreamReplaced as why:
                    if not await self._drop_deleted():
                        raise
                    keys = [owned.key for owned in self.segments if owned.key[0] == why.stream_id]
                    self._note_lost(self._lose(keys))
                    continue
                except SegmentFenced as why:
                    # Expired or reset. This member still owns the other segments.
                    LOG.warning("%s: segment %s was taken from %r", why.group, why.segment, why.reader)
                    self.fenced = self.fenced or why
                    self._note_lost(self._lose([(why.stream_id, parse_segment(why.segment))]))
                    continue

    def _write(self, tx: Tx, moved: Mapping[OwnedSegment, Progress], done: Iterable[OwnedSegment]) -> None:
        self._member.move(tx, {owned.assigned: progress for owned, progress in moved.items()})
        for owned in done:
            self._member.complete(tx, owned.assigned)
        # In the commit itself: a cancellation by asyncio would not come back here.
        tx.after(partial(self._note_saved, moved, done))

    def _note_saved(self, moved: Mapping[OwnedSegment, Progress], done: Iterable[OwnedSegment]) -> None:
        for owned, progress in moved.items():
            owned.durable, owned.is_saved, owned.must_save = progress, True, False
        if done:
            self._lose([owned.key for owned in done])

    async def _drop_deleted(self) -> bool:
        """Let the group read its other streams, if its options say so; return whether they do."""
        if self._member.options.on_deleted == "error":
            return False
        await self._db.write(partial(follow_catalog, name=self._member.group), step=Step.GROUP_REFRESH)
        self.stale = True
        return True

    def give_back(self) -> None:
        """Take again what was taken since `hold`."""
        self.waiting.clear()
        self.in_flight.clear()
        self.segments.give_back()
        self.moved.clear()

    def _lose(self, keys: Iterable[SegmentKey]) -> list[OwnedSegment]:
        """Forget segments that this reader no longer owns; return them."""
        lost = self.segments.drop(keys)
        self.waiting = deque(each for each in self.waiting if each.owned in self.segments)
        self.stale = True
        return lost

    def _note_lost(self, segments: Iterable[OwnedSegment]) -> None:
        """Remember a lost segment with events in a joint transaction, or in hand for one: it cannot commit any more."""
        for each in self.in_flight:
            each.finish()
        in_hand = {each.owned.key for each in self.in_flight if each.count > each.done}
        for owned in segments:
            if owned.finished != owned.savable or owned.key in in_hand:
                self._lost = owned.assigned
        if (lost := self.lost) is not None:
            self._lost = lost.assigned

    @property
    def is_behind(self) -> bool:
        """Whether to go on immediately: the group changed, or the events that were read last had expired."""
        return self.stale or self._has_skipped

    async def wait(self, timeout_ms: int | None = None) -> None:
        """Return when there may be more events, when the group changed, or after `timeout_ms`."""
        if not self.stale:
            await self._changes.wait(timeout_ms)

    @property
    def is_idle(self) -> bool:
        """Whether the user has no event in hand."""
        return all(each.done == each.count for each in self.in_flight) and not any(
            each in self.segments for each in self.moved.values()
        )

    async def watch_group(self) -> None:
        """Note changes of the group, and follow them while the user has no event in hand; until cancelled."""
        while True:
            await self._member.wait_change(beat=False)
            self.wake()
            while self.stale and not self.is_idle:
                with anyio.move_on_after(POLL_MS / 1000):
                    await self._caught_up.wait()
            async with self.turn:
                if self.stale and self.is_idle:
                    await self._follow_alone()
            if self.stale:  # a deadline of a group that cannot be followed has passed: it must not spin
                await anyio.sleep(POLL_MS / 1000)

    async def _follow_alone(self) -> None:
        try:
            await self._catch_up(beat=False)
        except EventprocError as why:  # the reader's own task will raise it too
            LOG.info("%s: %s", self._member.group, why)

    async def keep_time(self) -> None:
        """Wake the reader as often as its heartbeats, or automatic checkpoints, need it; until cancelled."""
        while True:
            options, changed = self._member.options, self._options_changed
            pauses = [options.checkpoint_ms, options.patience_ms and options.patience_ms // BEATS_IN_PATIENCE]
            pause_ms = min((each for each in pauses if each), default=None)
            with anyio.move_on_after(None if pause_ms is None else pause_ms / 1000) as pause:
                await changed.wait()
            if pause.cancelled_caught:
                self.wake()

    async def save_often(self) -> None:
        """Save one second after something was finished; until cancelled."""
        while True:
            await self._finished.wait()
            await anyio.sleep(SAVE_MS / 1000)
            self._finished = anyio.Event()
            try:
                await self.save(complete=False)
            except EventprocError as why:  # the reader's own task will raise it too
                LOG.warning("%s: failed to save progress: %s", self._member.group, why)
                self.mark()

    def wake(self) -> None:
        """Let the reader follow the group before it goes on, also if it waits."""
        self.stale = True
        self._changes.notify(channel_of(self._member.group))

    # Positions, of consumers.

    @property
    def assigned(self) -> list[OwnedSegment]:
        """The partitions that are owned now, sorted by their topics and numbers."""
        return sorted((each for each in self.segments if not is_reserve(each.key[1])), key=_place)

    def commit_positions(self) -> None:
        """Count as finished what lies before the positions."""
        for each in list(self.moved.values()):
            if each in self.segments:
                self.commit_position(each, each.next_number, each.next_offset)
        self.moved = {}

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
        self.moved = {}
        return moved

    def commit_position(self, owned: OwnedSegment, number: int, offset: int) -> None:
        """Count as finished what lies before event `number`, which begins at `offset`."""
        owned.finish_to(number, offset)
        if (number, offset) == (owned.next_number, owned.next_offset):
            self.moved.pop(owned.key, None)
        self.mark()

    def move(self, owned: OwnedSegment, number: int, offset: int) -> None:
        """Deliver another event of the partition next."""
        owned.next_number, owned.next_offset = number, offset
        self.moved[owned.key] = owned
        self.reread(owned)

    def reread(self, owned: OwnedSegment) -> None:
        """Drop what was read ahead of the position."""
        self.waiting = deque(each for each in self.waiting if each.owned is not owned)
        owned.take_from(owned.next_number, owned.next_offset)

    @property
    def lost(self) -> OwnedSegment | None:
        """A partition that was taken from the consumer with unfinished events, until its user follows the group."""
        return next(filter(self._is_lost, self.moved.values()), None)

    def _is_lost(self, owned: OwnedSegment) -> bool:
        now = self.segments.find(owned.key)
        return now is None or now.assigned is not owned.assigned


def _place(owned: OwnedSegment) -> tuple[str, int]:
    """Return the topic and the number of a partition."""
    return owned.assigned.stream, number_of(owned.key[1])


class SessionHold:
    """The progress of a session, held by a joint transaction. Implements `ProgressHold`.

    group: of the reader. txn: id of the transaction.
    """

    def __init__(self, session: MemberSession, txn: str) -> None:
        self.group = session._member.group
        self.txn = txn
        self._session = session
        self.moved = False

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[Callable[[Tx], None]]:
        """See `ProgressHold.deciding`."""
        session = self._session
        async with (
            session._saving
        ):  # a save of older progress, even one under way, must not come after the decision
            if session._ended:
                raise Closed(what=f"reader {session._member.reader} of {session._member.group}")
            session.finish()
            if session._lost is not None:
                raise segment_fenced(session._member.claim(session._lost))
            yield partial(self._move, session.segments.unsaved_of_hold())

    def _move(self, moved: Mapping[OwnedSegment, Progress], tx: Tx) -> None:
        self._session._member.move(tx, {owned.assigned: progress for owned, progress in moved.items()})
        tx.after(partial(self._note_moved, moved))

    def _note_moved(self, moved: Mapping[OwnedSegment, Progress]) -> None:
        """Remember what is durable; as an effect of the transaction, so that a cancelled caller does not lose it."""
        self.moved = True
        for owned, progress in moved.items():
            owned.durable = owned.held = progress

    async def end(self) -> None:
        """See `ProgressHold.end`."""
        async with self._session.turn:  # not while another task takes events
            self._end()

    def try_end(self) -> bool:
        """See `ProgressHold.try_end`."""
        if self._session.turn.locked():
            return False
        self._end()
        return True

    def _end(self) -> None:
        session = self._session
        session._hold = session._lost = None
        if self.moved:
            session.segments.end_hold()
        else:
            session.give_back()
        waits = not self.moved or session._member.surplus or session.segments.done()
        if waits and not session._ended:
            session.wake()  # to give away segments, complete those that ended, or deliver again
