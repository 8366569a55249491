"""One processor in one process: it reads the segments that it owns, calls the handler, and commits progress.

Authority: a segment's row names its owner and owner epoch. One transaction, fenced by both, makes everything durable:
progress, emitted events, dead letters, the user's SQL, the end of a segment. A process that lost a segment can change
nothing of it and emit nothing for it.

Tasks: one follows the ownership and releases segments; one reads on and hands out events; the workers call the handler;
one commits. Under exactly once the reading task works in rounds instead: read a bounded number of events, handle all of
them, commit everything in one transaction, continue.

After a crash: events that were handled since the last commit are handled again by the next owner of their segment, and
nothing that they emitted was visible. Between two transactions there is no state to repair.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from eventproc.base.counts import counted
from eventproc.groups import Membership
from eventproc.groups.owned_segment import InFlightRun, OwnedSegment
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.processors.engine.commit import SegmentCommitter, UserDatabaseFenced
from eventproc.processors.engine.committer import COMMIT_EVENTS
from eventproc.processors.engine.fetch import SegmentFetcher
from eventproc.processors.engine.handling import LOG, HandlerEngine
from eventproc.processors.engine.key_queues import Item, describe_event
from eventproc.processors.engine.states import NOTHING_LEFT, FiredTimer, Left
from eventproc.processors.engine.timers import Timers
from eventproc.processors.engine.workers import PUT_EVENTS
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.handler import Handler
from eventproc.processors.options import OnFailure, Options, ProcessorLimits
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database, Tx
from eventproc.store.groups import SegmentKey
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event

if TYPE_CHECKING:
    from eventproc.processors.engine.user_database import UserDatabase

RELEASE_MS: Final = 30_000
"""How long the release of a segment waits for its calls: as long as the end of an app does. Then they are cancelled,
because the other keys of the segment are not handled meanwhile. A call on a thread is always waited for."""


class Engine(HandlerEngine[SegmentCommitter]):
    """Runs one processor with one membership in its group; call `run` once.

    segments: the segments that this process owns.
    """

    def __init__(
        self,
        db: Database,
        options: Options,
        make: Callable[[], Handler],
        membership: Membership,
        limits: ProcessorLimits | None = None,
    ) -> None:
        super().__init__(db, options, make, limits)
        self.membership = membership
        self.segments = OwnedSegments()
        self._fetcher = SegmentFetcher(db, self.segments, options.on_truncated, self.pool)
        self._timers: Timers | None = None
        if options.on_timer is not None:
            assert self.states is not None, "only a processor with a state has timers"
            self._timers = Timers(db, options, self.segments, self.states, self._wake_reader)
        self._user_database: UserDatabase | None = None
        if options.database is not None:
            from eventproc.processors.engine.user_database import UserDatabase  # it imports SQLAlchemy

            assert options.on_commit is not None, "only a projection has a database"
            self._user_database = UserDatabase(db, options.database, options.on_commit, options.group)
        self._committer = SegmentCommitter(
            db,
            options,
            membership,
            self.segments,
            self.counters,
            self.measure,
            project=None if self._user_database is None else self._user_database.commit,
            follow=self._follow,
            ended=self._commit_ended,
            write_status=self.write_status,
            is_called=self.pool.calls_for,
            states=self.states,
        )
        self._releasing: set[OwnedSegment] = set()
        self._membership_lock = anyio.Lock()  # a membership is used by one task at a time
        self._ask_at = COMMIT_EVENTS
        self._in_round = anyio.Lock()
        self._reading_ended = anyio.Event()

    @property
    def paused(self) -> bool:
        """Whether the processor is paused in all processes."""
        return self.membership.paused

    @property
    def owned_segments(self) -> int:
        """How many segments this process owns."""
        return len(self.segments)

    @property
    def truncated(self) -> int:
        """Events that were truncated before they were handled."""
        return self._committer.truncated

    def _parts(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        committing = () if self.options.exactly_once else (self._committer.run,)
        timers = () if self._timers is None else (self._timers.run,)
        return self._follow_changes, self._read, *committing, *timers

    async def run(self) -> None:
        """See `HandlerEngine.run`."""
        try:
            await super().run()
        finally:
            self._reading_ended.set()  # also if the handler could not be started

    async def _run_parts(self) -> None:
        with self._fetcher.changes, self._fetcher.stack:
            await super()._run_parts()

    def write_status(self, tx: Tx, text: str) -> None:
        """See `HandlerEngine.write_status`."""
        self.membership.publish(tx, text)

    def begin_stop(self) -> None:
        """Begin no call any more, except those of an exactly-once round that has begun."""
        if not self.options.exactly_once:
            super().begin_stop()
        else:
            self._stopping = True
            self._wake_reader()

    async def stop(self) -> None:
        """See `HandlerEngine.stop`. An exactly-once round is completed."""
        if self.options.exactly_once:
            self.begin_stop()
            await self._reading_ended.wait()
            await self._end_parts()
        else:
            await super().stop()

    # Results of calls (`CallListener`).

    def finished(self, item: Item, handled: Event[Any], left: Left) -> None:
        """See `CallListener.finished`."""
        if isinstance(item[1], FiredTimer):
            self._timer_finished(item[1], handled, left)
            return
        event, in_flight = item[0], cast("InFlightRun", item[1])
        in_flight.finish(event.number)
        counters = self.counters
        counters.finished += 1
        if left is not NOTHING_LEFT:
            if left.state is not None and self.states is not None:
                self.states.kept(left.state)
            self._committer.leave(in_flight.owned, event, left)
            self._hold_if_behind()
        if counters.finished >= self._ask_at:
            self._ask_at = counters.finished + COMMIT_EVENTS
            self._committer.ask()
            self._hold_if_behind()
        if self.options.on_commit is not None:
            self._committer.outbox.handled.append((in_flight.owned, handled))
        if not in_flight.remaining:
            self._run_finished(in_flight)

    def _timer_finished(self, fired: FiredTimer, timer: Event[Any], left: Left) -> None:
        assert self._timers is not None, "a timer was called"
        self._timers.finished(fired.owned, timer.key)
        if left is not NOTHING_LEFT:
            if left.state is not None and self.states is not None:
                self.states.kept(left.state)
            self._committer.leave(fired.owned, timer, left)
            self._hold_if_behind()
        if left is not NOTHING_LEFT or fired.owned.complete:
            self._committer.ask()

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.spent`. A timer is no event that could become a dead letter."""
        if not isinstance(item[1], FiredTimer):
            super().spent(item, error, attempt)
            return
        options, what = self.options, describe_event(item[0])
        self.counters.note_failure(error)
        failures = f"failed {counted(attempt, 'time')}: {failure_text(error)}"
        if options.on_failure is not OnFailure.SKIP:
            raise ProcessorFailed(processor=options.name, reason=f"{what} {failures}") from error
        LOG.error("%s: %s is skipped: it %s", options.label, what, failures, exc_info=error)
        cached = item[1].cached
        assert cached is not None, "a timer that failed was called"
        self._timer_finished(item[1], item[0], Left(state=cached.call_off()))

    def _run_finished(self, in_flight: InFlightRun) -> None:
        """All events of a run are finished: there may be room again, or a segment may be complete."""
        self._wake_short()
        if in_flight.owned.complete:
            self._committer.ask()
        self._commit_if_idle()

    def _finish(self, item: Item) -> None:
        event, in_flight = item[0], cast("InFlightRun", item[1])
        in_flight.finish(event.number)
        self.counters.finished += 1
        self._committer.ask()
        self._hold_if_behind()
        if not in_flight.remaining:
            self._run_finished(in_flight)

    def _wake_reader(self) -> None:
        self._fetcher.wake()

    def _wake_short(self) -> None:
        """Let the fetcher check for room again, if it found none. Ranges grow together within a run too."""
        if self._fetcher.is_short:
            self._fetcher.wake()

    # Ownership.

    async def _follow(self) -> None:
        """Read the ownership, begin newly owned segments, and drop lost ones."""
        async with self._membership_lock:
            await self._refresh()
            if self._timers is not None and self.segments.new_in(self.membership.owned):
                await self._timers.read_watermark()
            positions = await self._take_over()
            for owned in self.segments.follow(self.membership.owned, positions):
                self._lose(owned)
        self._fetcher.wake()

    async def _refresh(self) -> None:
        what = f"reading the ownership of {self.options.label}"
        await retry_transient(self.membership.refresh, what, self._db.clock, LOG)

    async def _take_over(self) -> Mapping[SegmentKey, Progress]:
        """Return where new segments begin, if a database of the user says it; else where they were acquired."""
        failures = 0
        while self._user_database is not None and (new := self.segments.new_in(self.membership.owned)):
            try:
                return await self._user_database.take_over(new)
            except UserDatabaseFenced as why:
                await self._refresh()
                if any(each.key == why.key and self.membership.owned.get(each.key) is each for each in new):
                    raise ProcessorFailed(processor=self.options.name, reason=str(why)) from None
            except EventprocError:
                raise
            except Exception as why:
                failures += 1
                await self._committer.pause_sql("on_commit", failures, why, failure_text(why))
        return {}

    async def _follow_changes(self) -> None:
        while True:
            await self._follow()
            if self.membership.paused and not self.options.exactly_once:
                self.pool.block("paused")
            else:
                self.pool.unblock("paused")
            for key in self.membership.surplus:
                owned = self.segments.find(key)
                if owned is not None and owned not in self._releasing:
                    self._releasing.add(owned)
                    self._tasks.start_soon(self._give_back, owned)
            await self.membership.wait_change()

    def _lose(self, owned: OwnedSegment) -> None:
        LOG.info("%s: %r belongs to another reader now", self.options.label, owned)
        owned.closing = True
        self._calls.cancel(owned)
        self.pool.give_up_retries()
        if self.states is not None:
            self.states.lose(owned)

    async def _pass_truncated(self, owned: OwnedSegment) -> None:
        """Let the group continue behind what was truncated, once everything read before the truncation is handled.

        Gives the segment up when nothing of it was finished for RELEASE_MS.
        """
        before = -1
        while not (owned.is_quiet or owned.closing) and owned.unfinished != before:
            before = owned.unfinished
            with anyio.move_on_after(RELEASE_MS / 1000):
                await self.pool.until(lambda: owned.is_quiet or owned.closing)
        await self._give_back(owned)

    async def _give_back(self, owned: OwnedSegment) -> None:
        """Wait for the calls of a segment, commit its progress, and release it, or skip what was truncated of it."""
        async with self._in_round:  # held during a round only
            owned.closing = True
            self.pool.give_up_retries()
            if self.options.exactly_once:
                await self._release(owned)
        if not self.options.exactly_once:
            with anyio.move_on_after(RELEASE_MS / 1000) as patience:
                await self.pool.clear(owned)
            if patience.cancelled_caught:
                LOG.warning("%s releases %r and cancels its running calls", self.options.label, owned)
                self._calls.cancel(owned)
                await self.pool.clear(owned)
            await self._release(owned)
        self._releasing.discard(owned)

    async def _release(self, owned: OwnedSegment) -> None:
        await self._committer.commit()
        if owned.truncated and owned in self.segments:
            await self._committer.skip(owned)
            return
        async with self._membership_lock:
            if owned in self.segments:
                release = partial(self.membership.release, [owned.key])
                await retry_transient(release, f"releasing {owned!r}", self._db.clock, LOG)
                # Not before: an owned segment without an entry gets a new one, which begins where this one did.
                self.segments.drop([owned.key])
                if self.states is not None:
                    self.states.lose(owned)

    # Reading.

    async def _read(self) -> None:
        try:
            while not self._stopping:
                if self.membership.paused or not (await self._hand_out() or await self._fill()):
                    await self._fetcher.changes.wait()
        finally:
            self._reading_ended.set()

    async def _fill(self) -> bool:
        """Read on; return whether there was anything."""
        found = await self._fetcher.fill()
        for owned in self.segments:
            if owned.truncated and owned not in self._releasing:
                self._releasing.add(owned)
                self._tasks.start_soon(self._pass_truncated, owned)
        if self.options.exactly_once and (found or self._is_ahead):
            await self._committer.commit()  # the end of a segment; mostly nothing
        elif found and self.segments.done():
            self._committer.ask()
        return found

    @property
    def _is_ahead(self) -> bool:
        """Whether the user's database knows of finished events that the store does not know of."""
        return self._user_database is not None and any(
            owned.offset != owned.durable.offset for owned in self.segments
        )

    async def _hand_out(self) -> bool:
        """Hand out some of what was read, under exactly once as a round; return whether there was anything."""
        if not self.options.exactly_once:
            if (items := self._take(PUT_EVENTS)) is None:
                return False
            await self._put(items)
            return True
        async with self._in_round:
            room, is_begun = self.options.round_events, False
            while room and (items := self._take(min(room, PUT_EVENTS))) is not None:
                room, is_begun = room - len(items), True
                await self._put(items)
            if not is_begun:
                return False
            await self.pool.drain()
            await self._committer.commit()
        return True

    def _take(self, items_max: int) -> list[Item] | None:
        """Take timers that are due, and else events, see `SegmentFetcher.take`."""
        if self._timers is not None and (due := self._timers.take(items_max)):
            return due
        return self._fetcher.take(items_max)

    async def _put(self, items: Sequence[Item]) -> None:
        if self.states is not None:
            await self.states.load(items)
        await self.pool.put(items)
