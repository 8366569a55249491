"""Membership of a reader in a group: which segments it owns, which are due to it, which it has to release.

The group's state decides, and a membership follows it. It is refreshed when its user is ready, so that nothing is lost
or gained in the middle of other work. If a segment was lost and came back under a new owner epoch, one refresh drops it
and the next acquires it. So a user that looks after each refresh stops its work on the older epoch.

A reader may subscribe to some of the streams of its group, by name or by pattern. A static reader keeps its segments
while it is away: it ended or died, and is expected back within a time of its own.

A reader that dies leaves a row that names its instance. The other members see that the instance is dead, release its
segments at their durable progress (`ReaderLeft`), and acquire them.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

import attrs

from eventproc.base.tasks import run_uninterrupted
from eventproc.groups.assignors import Assignor, fault_in
from eventproc.groups.changes import (
    completion,
    departure,
    ended_reserves,
    verify_readers,
    verify_streams,
)
from eventproc.groups.followed_streams import follow_catalog, stream_updates
from eventproc.groups.liveness import (
    BEATS_IN_PATIENCE,
    LOCAL_MEMBERSHIPS,
    POLL_MS,
    dead_among,
    deadline_left_ms,
    expire_silent,
    hung_among,
    is_dead,
)
from eventproc.groups.names import AUTOMATIC, check_reader, check_subscription
from eventproc.groups.state import GroupState, OnlineReader, SegmentOwnership
from eventproc.groups.stored_state import change, folded_state
from eventproc.groups.targets import assignment_input, retargeted
from eventproc.groups.updates import (
    CheckpointPassed,
    CheckpointStarted,
    ReaderJoined,
    ReaderLeft,
    ReaderRejoined,
    SegmentsAcquired,
    SegmentsReleased,
    SubscriptionChanged,
    Update,
)
from eventproc.store.catalog import WATCH_CATALOG, catalog_version
from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import (
    GROUP,
    GroupOptions,
    GroupRecord,
    SegmentKey,
    channel_of,
    get_group,
    progress_channel,
    progress_of,
    watch_group,
    write_heartbeat,
    write_status,
)
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.errors import EventprocError, Retryable
from eventproc.store.model.group_errors import AssignorDiffers, ReaderFenced, ReaderOnline
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.progress import SegmentClaim, move_progress, segment_fenced, verify_claim
from eventproc.store.records import find
from eventproc.store.replicated import FoldedState, LogId
from eventproc.store.segments import watch_growth


class Membership(Protocol):
    """A reader's part in a group, as seen by the code that processes its events. Used by one task at a time."""

    group: str
    reader: str

    @property
    @abstractmethod
    def owned(self) -> Mapping[SegmentKey, SegmentOwnership]:
        """The segments that this reader owns, as of the last refresh; progress as of their acquisition."""

    @property
    @abstractmethod
    def surplus(self) -> frozenset[SegmentKey]:
        """Those of `owned` that are due to other readers: drain them, make progress durable, and release them."""

    @property
    @abstractmethod
    def paused(self) -> bool:
        """Whether the group is paused."""

    @abstractmethod
    async def refresh(self) -> None:
        """Acquire the segments due to this reader, and drop those it lost. One read when there is nothing to do.

        A reader that was expired joins again and finds `owned` empty. Raises ReaderFenced if another process reads
        under its id, NotFound if the group was deleted.
        """

    @abstractmethod
    async def wait_change(self, timeout_ms: int | None = None) -> None:
        """Return when a refresh may have a new result: the group changed, or a member died."""

    @abstractmethod
    async def release(self, keys: Collection[SegmentKey]) -> None:
        """Release segments that are drained and durable. Segments that were lost are dropped."""

    @abstractmethod
    def move(
        self, tx: Tx, moved: Mapping[SegmentOwnership, Progress], held: Iterable[SegmentOwnership] = ()
    ) -> None:
        """Make progress durable with the rest of `tx`. One UPDATE for each segment.

        held: segments whose progress stays.
        Raises SegmentFenced unless this reader owns each segment in the very owner epoch.
        """

    @abstractmethod
    def complete(self, tx: Tx, assigned: SegmentOwnership) -> Sequence[SegmentId]:
        """Finish a sealed segment that `move` has moved to its end; return its successors. Raises SegmentFenced.

        Opens those of the successors that waited for nothing else. Raises NotFound if the history no longer knows
        them, because the stream was truncated behind them.
        """

    @abstractmethod
    def publish(self, tx: Tx, status: str) -> None:
        """Publish a status of this reader for people, as JSON."""


LOG = logging.getLogger("eventproc.groups")


STATIC_MS_MIN: Final = 1_000
"""Shortest time that a static reader may be away. A process needs longer than that to start again."""


@attrs.frozen(kw_only=True)
class MemberOptions:
    """Options of a reader's membership.

    subscription: the streams that it reads, by names or patterns ("shop/orders-*"). The group begins to read those that
        it does not read yet. None (default): every stream of the group.
    static_ms: makes it a static reader: after it ended or died, its segments wait up to so many ms until it joins again
        under its id. None (default): they go to other readers immediately.
    assignor: the code of the group's own assignor, if this reader has it.
    Raises InvalidArgument.
    """

    subscription: tuple[str, ...] | None = attrs.field(
        default=None, converter=attrs.converters.optional(check_subscription)
    )
    static_ms: int | None = None
    assignor: Assignor | None = None

    def __attrs_post_init__(self) -> None:
        if self.static_ms is not None:
            check_int("time away of a static reader", self.static_ms, least=STATIC_MS_MIN, unit="ms")


DEFAULT_MEMBER: Final = MemberOptions()


@attrs.frozen
class _GroupView:
    """What one read of the group returned.

    folded: None if its generation is the one that the member knows.
    catalog: version of the catalog; None if the group does not follow it.
    follows: whether streams came or went that the group follows, or partitions of its topics.
    """

    group: GroupRecord
    folded: FoldedState[GroupState] | None
    hung: frozenset[str]
    catalog: int | None
    follows: bool


class GroupMember(Membership):
    """Implements `Membership`; made by `join`."""

    def __init__(
        self,
        db: Database,
        group: str,
        reader: str,
        changes: Subscription,
        *,
        as_reader: bool = False,
        chosen: MemberOptions = DEFAULT_MEMBER,
    ) -> None:
        self.group = group
        self.reader = reader
        self.epoch = 0  # of the membership; 0 before the first
        self._db = db
        self._changes = changes
        self._as_reader = as_reader
        self._chosen = chosen
        self._subscription = chosen.subscription
        self._catalog: int | None = None  # its version when this reader followed it last
        self._watches_catalog = False
        self._topics: frozenset[int] = frozenset()  # the streams whose growth is watched
        self._answered = -1  # generation of the last request that the own assignor answered
        self._generation = -1
        self._folded: FoldedState[GroupState] | None = None
        self._log: LogId | None = None  # of `_folded`; a group that is created again has another one
        self._state: GroupState | None = None
        self._members: Mapping[str, OnlineReader] = {}
        self._options = GroupOptions()
        self._beaten_ms = 0
        self._is_expired = False  # as seen by a refresh that may not join again
        self._owned: Mapping[SegmentKey, SegmentOwnership] = MappingProxyType({})
        self._surplus: frozenset[SegmentKey] = frozenset()
        self._paused = False
        self._gave_up = -1  # generation in which this reader last completed or released a segment

    @property
    def owned(self) -> Mapping[SegmentKey, SegmentOwnership]:
        """See `Membership.owned`."""
        return self._owned

    @property
    def surplus(self) -> frozenset[SegmentKey]:
        """See `Membership.surplus`."""
        return self._surplus

    @property
    def paused(self) -> bool:
        """See `Membership.paused`."""
        return self._paused

    @property
    def state(self) -> GroupState:
        """The group, as of the last refresh or of joining."""
        assert self._state is not None, "this member has not joined"
        return self._state

    @property
    def options(self) -> GroupOptions:
        """The group's options, as of the last refresh."""
        return self._options

    @property
    def is_behind(self) -> bool:
        """Whether another refresh is needed: segments that came back, or are due, were not acquired."""
        return self._generation < 0 and not self._is_expired

    @property
    def needs_beat(self) -> bool:
        """Whether only a refresh that writes a heartbeat brings this reader up to date."""
        return self._is_expired or self._beat_due()

    @property
    def may_be_expired(self) -> bool:
        """Whether the patience ran out since the last heartbeat: the process was suspended, or its user busy."""
        patience_ms = self._options.patience_ms
        return patience_ms is not None and self._db.clock.monotonic_ms() - self._beaten_ms > patience_ms

    async def refresh(self, *, beat: bool = True) -> None:
        """See `Membership.refresh`.

        beat: write the heartbeats that are due, and join again after an expiry. A task beside the reader's must not:
        it would keep a reader alive that hangs.
        """
        while not await self._refresh(beat=beat):
            pass

    async def _refresh(self, *, beat: bool) -> bool:
        """Follow the group; return False if the read is older than what this reader released meanwhile."""
        view = await self._db.read(self._look)
        self._options = view.group.options
        if view.folded is not None:
            self._folded, self._log = view.folded, view.group.log
            self._state = view.folded.state
            self._members = view.folded.state.present
        if self._watch(view):
            return False
        own = self._members.get(self.reader)
        if own is None or own.epoch != self.epoch:
            await self._lapse(join=beat)
            return True
        state = None if view.folded is None else view.folded.state
        dead = view.hung or dead_among(self._db, self.group, self._members, exclude=self.reader)
        due = self._checkpoint_due(self.state) or (state is not None and self._is_due(state))
        late = self._deadline_left_ms() == 0
        if dead or due or late or view.follows or (beat and self._beat_due()):
            state = await self._db.write(partial(self._step, beat=beat), step=Step.GROUP_REFRESH)
            if (own := state.present.get(self.reader)) is None or own.epoch != self.epoch:
                # It was expired since the read, and another process may own segments under its id.
                await self._lapse(join=beat)
                return True
        self._catalog = view.catalog
        if state is not None:
            if state.generation < self._gave_up:
                return False
            self._follow(state)
        return not await self._run_assignor()

    def _watch(self, view: _GroupView) -> bool:
        """Wait for changes of the streams that the group reads; return whether they are new: one may be missed."""
        watches_more = False
        if view.catalog is not None and not self._watches_catalog:
            self._changes.add(WATCH_CATALOG)
            self._watches_catalog = watches_more = True
        topics = frozenset(each.stream_id for each in self.state.reserves)
        for stream_id in topics - self._topics:
            self._changes.add(watch_growth(stream_id))
            watches_more = True
        for stream_id in self._topics - topics:
            self._changes.discard(watch_growth(stream_id).channel)
        self._topics = topics
        return watches_more

    def _deadline_left_ms(self) -> int | None:
        now_ms = self._db.clock.monotonic_ms()
        return deadline_left_ms(self.state, self._options, now_ms, exclude=self.reader)

    async def subscribe(self, subscription: Collection[str] | None) -> None:
        """Read other streams from now on: names or patterns; None: every stream of the group. Then refresh.

        Raises InvalidArgument, NotFound (the group was deleted).
        """
        wanted = None if subscription is None else check_subscription(tuple(subscription))
        await self._db.write(partial(self._subscribe, wanted=wanted), step=Step.GROUP_CHANGE)
        self._subscription = wanted
        self._catalog = None
        self._changes.notify(channel_of(self.group))

    def _subscribe(self, tx: Tx, wanted: tuple[str, ...] | None) -> None:
        state = change(tx, self.group)
        if (own := state.present.get(self.reader)) is None or own.epoch != self.epoch:
            return  # it was expired, and joins again with the new subscription
        if own.subscription != wanted:
            change(tx, self.group, SubscriptionChanged(self.reader, wanted, tx.monotonic_ms))
            follow_catalog(tx, self.group)

    async def _run_assignor(self) -> bool:
        """Answer the group's request for targets, if this reader has the code; return whether they changed."""
        pending, code, state = self.state.assigning, self._chosen.assignor, self.state
        if (
            pending is None
            or code is None
            or code.name != state.assignor
            or pending.generation == self._answered
        ):
            return False
        wanted = assignment_input(state)
        try:
            found = code.assign(wanted)
        except Exception:
            LOG.exception("%s: the assignor %r failed", self.group, code.name)
            self._answered = pending.generation
            return False
        if (fault := fault_in(found, wanted)) is not None:
            LOG.error("%s: the result of the assignor %r is not used: %s", self.group, code.name, fault)
            self._answered = pending.generation
            return False

        def answer(tx: Tx) -> bool:
            now = change(tx, self.group)
            if now.assigning != pending:
                return False  # the group changed meanwhile, or another reader answered
            targets = retargeted(now, found, tx.monotonic_ms)
            assert targets is not None, "the group waits for its assignor"
            change(tx, self.group, targets)
            return True

        has_changed = await self._db.write(answer, step=Step.GROUP_REFRESH)
        self._answered = pending.generation  # not before: a write that was cancelled, or failed, is repeated
        return has_changed

    async def wait_change(self, timeout_ms: int | None = None, *, beat: bool = True) -> None:
        """See `Membership.wait_change`. beat: write heartbeats; a task beside the reader's must not."""
        clock = self._db.clock
        until_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        while True:
            left_ms = None if until_ms is None else until_ms - clock.monotonic_ms()
            pauses = [left_ms]
            if not self._db.peers.alone:  # `LocalMemberships.discard` reports each death within this opening
                pauses.append(POLL_MS)
            if beat and self._options.patience_ms is not None:
                pauses.append(self._options.patience_ms // BEATS_IN_PATIENCE)
            pauses.append(self._deadline_left_ms())
            pause_ms = min((each for each in pauses if each is not None), default=None)
            changed = await self._changes.wait(pause_ms)
            expired = left_ms is not None and left_ms <= (pause_ms or 0)
            # A refresh writes a heartbeat, and looks for readers that write none.
            due = beat and self._beat_due()
            if (
                changed
                or expired
                or due
                or self._deadline_left_ms() == 0
                or dead_among(self._db, self.group, self._members, exclude=self.reader)
            ):
                return

    async def release(self, keys: Collection[SegmentKey]) -> None:
        """See `Membership.release`."""
        wanted = {key: self._owned[key] for key in keys if key in self._owned}
        if wanted:
            await self._db.write(lambda tx: self._release(tx, wanted), step=Step.GROUP_RELEASE)

    def move(
        self, tx: Tx, moved: Mapping[SegmentOwnership, Progress], held: Iterable[SegmentOwnership] = ()
    ) -> None:
        """See `Membership.move`."""
        for assigned in held:
            verify_claim(tx, self.claim(assigned))
        for assigned, progress in moved.items():
            move_progress(tx, self.claim(assigned), progress)
        tx.wake(progress_channel(self.group))

    def complete(self, tx: Tx, assigned: SegmentOwnership) -> Sequence[SegmentId]:
        """See `Membership.complete`."""
        key, state = assigned.key, change(tx, self.group)
        now = state.open.get(key)
        if now is None or (now.owner, now.owner_epoch) != (self.reader, assigned.owner_epoch):
            raise segment_fenced(self.claim(assigned))
        completed = completion(tx, self.group, state, key, self.reader)
        state = change(tx, self.group, *self._passing(tx, state), completed)
        tx.after(lambda: self._give_up([key], state))
        return [segment for segment, _ in completed.successors]

    def publish(self, tx: Tx, status: str) -> None:
        """See `Membership.publish`."""
        write_status(tx, self.group, self.reader, self.epoch, status)

    async def join(self) -> None:
        """Come online. Raises ReaderOnline, NotFound, NotAReaderGroup, GroupStreamReplaced."""
        present = self._db.shared[LOCAL_MEMBERSHIPS]
        present.discard(self.group, self.reader, self.epoch)
        with present.joining(self.group, self.reader) as alone:
            if not alone:
                raise ReaderOnline(group=self.group, reader=self.reader, pid=None)
            await self._db.write(self._join, step=Step.GROUP_JOIN)

    async def leave(self, *, for_good: bool = False) -> None:
        """Go offline, and release all owned segments at their durable progress. Does nothing if not a member.

        for_good: also a static reader gives up its segments; else it is away.
        """
        if not self.epoch:
            return
        try:
            await self._db.write(partial(self._leave, for_good=for_good), step=Step.GROUP_LEAVE)
        finally:
            self._drop(list(self._owned))
            self._db.shared[LOCAL_MEMBERSHIPS].discard(self.group, self.reader, self.epoch)

    async def _lapse(self, *, join: bool) -> None:
        """Drop the segments of this reader, which was expired. join: be a member again."""
        self._drop(list(self._owned))
        self._generation = -1
        if not self._is_expired:
            when = "" if join else " when it asks for its next event"
            LOG.warning("%s: reader %r was expired; it joins again%s", self.group, self.reader, when)
        self._is_expired = True
        if not join:
            return
        try:
            await self.join()
        except ReaderOnline as online:
            raise ReaderFenced(group=self.group, reader=self.reader) from online

    def _look(self, tx: Tx) -> _GroupView:
        group = get_group(tx, self.group)
        hung = hung_among(tx, group, exclude=self.reader)
        catalog = catalog_version(tx) if self._follows_catalog(group) else None
        folded = None if group.generation == self._generation else self._fold(tx, group)
        state = self.state if folded is None else folded.state
        follows = bool(ended_reserves(tx, state))
        if catalog is not None and catalog != self._catalog:
            follows = follows or bool(stream_updates(tx, group, state))
        return _GroupView(group, folded, hung, catalog, follows)

    def _fold(self, tx: Tx, group: GroupRecord) -> FoldedState[GroupState]:
        return folded_state(tx, group, self._folded if group.log == self._log else None)

    def _follows_catalog(self, group: GroupRecord) -> bool:
        return group.options.on_deleted == "drop" or self._subscription is not None

    def _fresh(self, state: GroupState) -> tuple[SegmentKey, ...]:
        """Return the segments due to this reader, except those that it still counts as its own."""
        return tuple(key for key in state.due_to(self.reader) if key not in self._owned)

    def _is_due(self, state: GroupState) -> bool:
        return bool(self._fresh(state) or state.asked_of(self.reader))

    def _step(self, tx: Tx, *, beat: bool) -> GroupState:
        """Expire dead readers, answer checkpoints, and acquire the segments due to this reader."""
        state = change(tx, self.group)
        if (own := state.present.get(self.reader)) is None or own.epoch != self.epoch:
            return state
        if beat and self._options.patience_ms is not None:
            self._beat(tx)
        state = expire_silent(tx, self._db, self.group, exclude=self.reader)
        if self._follows_catalog(get_group(tx, self.group)):
            state = follow_catalog(tx, self.group)
        if self._checkpoint_due(state):
            name = f"{AUTOMATIC}{state.generation + 1}"
            state = change(tx, self.group, CheckpointStarted(name, tx.now_ms, automatic=True))
        if asked := self._passing(tx, state):
            state = change(tx, self.group, *asked)
        for key in ended_reserves(tx, state):
            state = change(tx, self.group, completion(tx, self.group, state, key, self.reader))
        if keys := self._fresh(state):
            state = change(tx, self.group, SegmentsAcquired(self.reader, keys))
        return state

    def _passing(self, tx: Tx, state: GroupState) -> list[Update]:
        """Return this reader's answer to each checkpoint that waits for it."""
        if not (names := state.asked_of(self.reader)):
            return []
        positions = progress_of(tx, self.group, state.owned_by(self.reader))
        return [CheckpointPassed(name, self.reader, positions) for name in names]

    def _checkpoint_due(self, state: GroupState) -> bool:
        pause_ms = self._options.checkpoint_ms
        if pause_ms is None or state.started:
            return False
        last_ms = max((each.at_ms for each in state.checkpoints if each.automatic), default=0)
        # A clock that was set back counts too, or there would be no checkpoint until it catches up.
        return not 0 <= self._db.clock.wall_ms() - last_ms < pause_ms

    def _beat_due(self) -> bool:
        now_ms = self._db.clock.monotonic_ms()
        patience_ms = self._options.patience_ms
        return patience_ms is not None and now_ms - self._beaten_ms >= patience_ms // BEATS_IN_PATIENCE

    def _beat(self, tx: Tx) -> None:
        """Write a heartbeat."""
        write_heartbeat(tx, self.group, self.reader, self.epoch)
        self._beaten_ms = tx.monotonic_ms

    def _join(self, tx: Tx) -> None:
        group = get_group(tx, self.group)
        if self._as_reader:
            verify_readers(group)
        if group.options.on_deleted == "error":
            verify_streams(tx, group)
        code = self._chosen.assignor
        if code is not None and code.name != group.options.assignor:
            raise AssignorDiffers(group=self.group, assignor=group.options.assignor, brought=code.name)
        state = self._fold(tx, group).state
        change(tx, self.group, *self._joining(tx, state))
        state = follow_catalog(tx, self.group)
        # In the commit itself: a cancellation by asyncio loses what a write returns.
        tx.after(lambda: self._joined(state))

    def _joining(self, tx: Tx, state: GroupState) -> list[Update]:
        """Return the updates by which this reader comes online, or back. Raises ReaderOnline."""
        static_ms = self._chosen.static_ms
        joined = ReaderJoined(self.reader, self._db.instance_id, tx.now_ms, self._subscription, static_ms)
        if (known := state.members.get(self.reader)) is None:
            return [joined]
        is_away, updates = known.away_since_ms is not None, list[Update]()
        if not is_away and not is_dead(self._db, self.group, self.reader, known):
            pid = self._db.peers.pid_of(known.instance)
            raise ReaderOnline(group=self.group, reader=self.reader, pid=pid)
        if not is_away or known.is_overdue(tx.monotonic_ms):
            gone = departure(tx, self.group, state, self.reader)
            if isinstance(gone, ReaderLeft):
                return [gone, joined]
            updates.append(gone)
        updates.append(ReaderRejoined(self.reader, self._db.instance_id, tx.now_ms, static_ms))
        if known.subscription != self._subscription:
            updates.append(SubscriptionChanged(self.reader, self._subscription, tx.monotonic_ms))
        return updates

    def _joined(self, state: GroupState) -> None:
        self.epoch = state.members[self.reader].epoch
        self._is_expired = False
        self._state = state
        self._members = state.present
        self._db.shared[LOCAL_MEMBERSHIPS].add(self.group, self.reader, self.epoch, self._changes)

    def _leave(self, tx: Tx, *, for_good: bool) -> None:
        if find(tx, GROUP, self.group) is None:
            return
        state = change(tx, self.group)
        own = state.members.get(self.reader)
        if own is None or own.epoch != self.epoch:
            return
        if for_good or own.away_since_ms is None:
            change(tx, self.group, departure(tx, self.group, state, self.reader, for_good=for_good))

    def _release(self, tx: Tx, wanted: Mapping[SegmentKey, SegmentOwnership]) -> None:
        state = change(tx, self.group)
        still = [
            key
            for key, assigned in wanted.items()
            if key in state.open
            and (state.open[key].owner, state.open[key].owner_epoch) == (self.reader, assigned.owner_epoch)
        ]
        if still:
            released = SegmentsReleased(self.reader, progress_of(tx, self.group, still))
            state = change(tx, self.group, *self._passing(tx, state), released)
        tx.after(lambda: self._give_up(wanted, state))

    def _follow(self, state: GroupState) -> None:
        """Set `owned` from the state. A segment that was lost and came back is dropped first."""
        names = {stream.stream_id: stream.name for stream in state.streams}
        owned: dict[SegmentKey, SegmentOwnership] = {}
        came_back = False
        for key, assignment in state.owned_by(self.reader).items():
            before = self._owned.get(key)
            if before is None:
                owned[key] = SegmentOwnership(
                    names[key[0]], *key, assignment.owner_epoch, assignment.progress
                )
            elif before.owner_epoch == assignment.owner_epoch:
                owned[key] = before
            else:
                came_back = True
        self._owned = MappingProxyType(owned)
        self._surplus = frozenset(key for key in owned if state.is_surplus(state.open[key]))
        self._state = state
        self._members = state.present
        self._paused = state.paused
        self._generation = -1 if came_back or self._is_due(state) else state.generation
        if self._generation < 0:
            self._changes.notify(channel_of(self.group))

    def _give_up(self, keys: Iterable[SegmentKey], state: GroupState) -> None:
        """Drop segments that this reader no longer owns in `state`; an older state cannot bring them back."""
        self._gave_up = max(self._gave_up, state.generation)
        self._drop(keys)

    def _drop(self, keys: Iterable[SegmentKey]) -> None:
        gone = set(keys)
        self._owned = MappingProxyType({key: each for key, each in self._owned.items() if key not in gone})
        self._surplus -= gone

    def claim(self, assigned: SegmentOwnership) -> SegmentClaim:
        """Return the claim to own a segment in the owner epoch in which it was acquired."""
        return SegmentClaim(self.group, self.reader, *assigned.key, assigned.owner_epoch)


@asynccontextmanager
async def join(db: Database, group: str, reader: str) -> AsyncIterator[Membership]:
    """Be a reader of the group while the block runs. It owns nothing before the first `refresh`.

    reader: unique among the readers online; the id of a dead reader may be used again.
    Leaving releases all segments at their durable progress. Raises ReaderOnline, NotFound, GroupStreamReplaced,
    InvalidArgument.
    """
    async with join_member(db, group, reader, as_reader=False) as member:
        yield member


@asynccontextmanager
async def join_member(
    db: Database, group: str, reader: str, *, as_reader: bool, chosen: MemberOptions = DEFAULT_MEMBER
) -> AsyncIterator[GroupMember]:
    """Do as `join` does, and return the member itself. as_reader: raise NotAReaderGroup for a processor's group.

    Raises AssignorDiffers, too.
    """
    check_reader(reader)
    with db.subscribe([watch_group(group)]) as changes:
        member = GroupMember(db, group, reader, changes, as_reader=as_reader, chosen=chosen)
        try:
            await member.join()
            yield member
        finally:
            await run_uninterrupted(partial(_leave, member))


async def _leave(member: GroupMember) -> None:
    try:
        await member.leave()
    except EventprocError as why:
        LOG.warning("%s: reader %r failed to leave the group: %s", member.group, member.reader, why)
        if isinstance(why, Retryable):  # else the database is gone for all members
            member._db.shared[LOCAL_MEMBERSHIPS].leave_later(member.leave)
