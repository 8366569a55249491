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

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from eventproc.groups import Membership
from eventproc.groups.owned_segment import InFlightRun, OwnedSegment
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.processors.context import Log
from eventproc.processors.dead_letters.operations import FailedEvent
from eventproc.processors.emit import Emission
from eventproc.processors.engine.calls import Calls
from eventproc.processors.engine.commit import COMMIT_EVENTS, Committer, UserDatabaseFenced
from eventproc.processors.engine.fetch import SegmentFetcher
from eventproc.processors.engine.key_queues import Item, KeyQueues, describe_event
from eventproc.processors.engine.workers import PUT_EVENTS, WorkerPool
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.handler import Handler
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import event_fields, event_log, telemetry
from eventproc.processors.options import Directive, Failure, OnFailure, Options, ProcessorLimits
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database
from eventproc.store.groups import SegmentKey
from eventproc.store.model.counts import counted
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event

if TYPE_CHECKING:
    from eventproc.processors.engine.user_database import UserDatabase

LOG = logging.getLogger("eventproc.processors")

WIND_UP_MS: Final = 5_000
"""Longest end of a processor after its calls ended or were cancelled: a commit and the handler's `stop`. Higher: a
process takes longer to end while the disk is full. What is not durable by then is handled again."""

RELEASE_MS: Final = 30_000
"""How long the release of a segment waits for its calls: as long as the end of an app does. Then they are cancelled,
because the other keys of the segment are not handled meanwhile. A call on a thread is always waited for."""


class Engine:
    """Runs one processor with one membership in its group; call `run` once.

    segments: the segments that this process owns.
    pool: the workers, and the events that were handed out to them.
    """

    def __init__(
        self,
        db: Database,
        options: Options,
        make: Callable[[], Handler],
        membership: Membership,
        limits: ProcessorLimits | None = None,
    ) -> None:
        """Create the engine. make: creates the handler, and a new one after a failure that asks for a restart."""
        self.options = options
        self.membership = membership
        self.segments = OwnedSegments()
        self.counters = Counters()
        self.measure = telemetry(options.name, options.group)
        self.pool = WorkerPool(
            KeyQueues(options.order),
            options.concurrency,
            db.clock.monotonic_ms,
            on_idle=self._wake_short,
            limits=limits,
        )
        self._calls = Calls(options, self.pool, self, db.clock, self.measure)
        self._db = db
        self._make = make
        self._fetcher = SegmentFetcher(db, self.segments, options.on_truncated, self.pool)
        self._user_database: UserDatabase | None = None
        if options.database is not None:
            from eventproc.processors.engine.user_database import UserDatabase  # it imports SQLAlchemy

            assert options.on_commit is not None, "only a projection has a database"
            self._user_database = UserDatabase(db, options.database, options.on_commit, options.group)
        self._committer = Committer(
            db,
            options,
            membership,
            self.segments,
            self.counters,
            self.measure,
            project=None if self._user_database is None else self._user_database.commit,
            follow=self._follow,
            ended=self._commit_ended,
        )
        self._releasing: set[OwnedSegment] = set()
        self._membership_lock = anyio.Lock()  # a membership is used by one task at a time
        self._ask_at = COMMIT_EVENTS
        self._commits_when_idle = False
        self._in_round = anyio.Lock()
        self._restart = anyio.Event()
        self._stopping = False
        self._started = False
        self._user_code: str | None = None
        self._reading_ended = anyio.Event()
        self._ended = anyio.Event()
        self._tasks = anyio.create_task_group()
        self._scope = anyio.CancelScope()  # cancels the tasks, also before they begin

    @property
    def truncated(self) -> int:
        """Events that were truncated before they were handled."""
        return self._committer.truncated

    @property
    def is_busy(self) -> bool:
        """Whether events are handed out and not durably finished."""
        return bool(self.pool.queues.unfinished) or self.counters.finished != self.counters.committed

    def commit_when_idle(self, wanted: bool) -> None:
        """Commit whenever everything that was handed out is finished, instead of after COMMIT_MS."""
        self._commits_when_idle = wanted
        self._commit_if_idle()

    def _commit_if_idle(self) -> None:
        if self._commits_when_idle and not self.pool.queues.unfinished and self.is_busy:
            self._committer.ask()

    async def run(self) -> None:
        """Process until stopped or cancelled. Raises ProcessorFailed, possibly in an exception group."""
        try:
            self._calls.handler = await self._start_handler()
            try:
                with self._scope, self._fetcher.changes, self._fetcher.stack:
                    async with self._tasks:
                        self._tasks.start_soon(self._calls.run)
                        self._tasks.start_soon(self._follow_changes)
                        self._tasks.start_soon(self._read)
                        self._tasks.start_soon(self._restart_on_demand)
                        if not self.options.exactly_once:
                            self._tasks.start_soon(self._committer.run)
            finally:
                with anyio.move_on_after(WIND_UP_MS / 1000, shield=True):
                    await self._wind_up()
        finally:
            self._reading_ended.set()
            self._ended.set()

    def begin_stop(self) -> None:
        """Begin no call any more, except those of an exactly-once round that has begun."""
        self._stopping = True
        self._fetcher.wake()
        if not self.options.exactly_once:
            self.pool.block("stopping")

    async def stop(self) -> None:
        """End gracefully: begin no call, let running calls finish, commit; return when all has ended.

        An exactly-once round is completed. To stop waiting, cancel `run`.
        """
        self.begin_stop()
        if self.options.exactly_once:
            await self._reading_ended.wait()
        else:
            await self.pool.wait_quiet()
        self._scope.cancel()
        await self._ended.wait()

    async def _start_handler(self) -> Handler:
        try:
            handler = self._make()
            with self._running_user_code("the `start` of its handler"):
                await handler.start()
        except Exception as why:
            reason = f"its handler could not be started: {failure_text(why)}"
            raise ProcessorFailed(processor=self.options.name, reason=reason) from why
        self._started = True
        return handler

    async def _restart_on_demand(self) -> None:
        """Replace the handler between two calls when a failure asked for that."""
        while True:
            await self._restart.wait()
            await self.pool.wait_quiet()
            self._restart = anyio.Event()  # one restart serves all calls that failed before it
            await self._stop_handler()
            self._calls.handler = await self._start_handler()
            self.counters.restarts += 1
            self.pool.unblock("restarting")

    async def _stop_handler(self) -> None:
        if not self._started:
            return
        self._started = False
        try:
            with self._running_user_code("the `stop` of its handler"):
                await self._calls.handler.stop()
        except Exception:
            LOG.exception("processor %s: the handler's stop failed", self.options.name)

    @contextmanager
    def _running_user_code(self, what: str) -> Iterator[None]:
        self._user_code = what
        try:
            yield
        finally:
            self._user_code = None

    @property
    def user_code(self) -> str | None:
        """Which code of the user's runs on the event loop now, and for which event; None if none does."""
        if calls := self.pool.running:
            oldest = min(calls, key=lambda each: each.since_ms)
            return f"the call of its handler for {describe_event(oldest.items[0][0])}"
        return self._user_code

    async def _wind_up(self) -> None:
        """Commit what is finished, if possible, and stop the handler."""
        await self.save()
        await self._stop_handler()

    async def save(self) -> None:
        """Begin no further call, and commit what is finished, if possible."""
        self.pool.block("ended")  # a cancelled call on a thread goes on: no other call may follow it
        self.pool.notify()  # no task needs to wait for calls to end any more
        try:
            if not self.options.exactly_once:
                await self._committer.commit()
        except Exception as why:
            LOG.warning(
                "processor %s: its last commit failed, so the events will be handled again: %s",
                self.options.name,
                why,
            )

    # Results of calls (`CallListener`).

    def finished(self, item: Item, handled: Event[Any], emitted: Sequence[Emission]) -> None:
        """See `CallListener.finished`."""
        event, in_flight = item
        in_flight.finish(event.number)
        counters = self.counters
        counters.finished += 1
        if emitted:
            self._committer.emit(in_flight.owned, event.number, emitted)
            self._hold_if_behind()
        elif counters.finished >= self._ask_at:
            self._ask_at = counters.finished + COMMIT_EVENTS
            self._committer.ask()
            self._hold_if_behind()
        if self.options.on_commit is not None:
            self._committer.outbox.handled.append((in_flight.owned, handled))
        if not in_flight.remaining:
            self._run_finished(in_flight)

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.failed`."""
        self.counters.note_failure(error)
        self.measure.failed(item[0].stream, error, again=True)
        trace = error if LOG.isEnabledFor(logging.DEBUG) else None
        LOG.warning(
            "processor %s: %s failed for %s: %s",
            *(self.options.name, self.options.retry.attempt_text(attempt)),
            *(describe_event(item[0]), failure_text(error)),
            exc_info=trace,
            extra=self._fields(item, attempt),
        )

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.spent`."""
        event, in_flight = item
        options = self.options
        self.counters.note_failure(error)
        self.measure.failed(event.stream, error, again=False)
        if options.publishes:
            raise error
        directive = self._directive(Failure(options.name, event, error, attempt))
        if directive is Directive.STOP or options.on_failure is OnFailure.STOP:
            raise ProcessorFailed(
                processor=options.name,
                reason=f"{describe_event(event)} failed {counted(attempt, 'time')}: {failure_text(error)}",
            ) from error
        self._give_up(item, error, attempt)
        in_flight.finish(event.number)
        self.counters.finished += 1
        self._committer.ask()
        self._hold_if_behind()
        if not in_flight.remaining:
            self._run_finished(in_flight)
        if directive is Directive.RESTART:
            self.pool.block("restarting")  # immediately: the next call is for the new handler
            self._restart.set()

    def _give_up(self, item: Item, error: Exception, attempt: int) -> None:
        """Make an event whose attempts are spent a dead letter, or skip it."""
        event, in_flight = item
        name = self.options.name
        letter = FailedEvent.of(
            event, error, attempts=attempt, processor=name, failed_ms=self._db.clock.wall_ms()
        )
        if self.options.on_failure is OnFailure.DEAD_LETTER:
            became = "became a dead letter"
            self._committer.add_dead_letter(in_flight.owned, letter)
            self.counters.dead_letters += 1
        else:
            became = "was skipped"
            self.counters.skipped += 1
            self.measure.skipped(event.stream, 1)
        LOG.error(
            "processor %s: %s %s after %s: %s",
            *(name, describe_event(event), became, counted(attempt, "attempt"), failure_text(error)),
            exc_info=error,
            extra={**self._fields(item, attempt), "traceback": letter.traceback},
        )

    def _fields(self, item: Item, attempt: int) -> dict[str, object]:
        return event_fields(self.options.name, item[0], attempt)

    def log_for(self, item: Item, attempt: int) -> Log:
        """See `CallListener.log_for`."""
        return event_log(self.options.name, item[0], attempt)

    def _directive(self, failure: Failure) -> Directive:
        if self.options.supervise is None:
            return Directive.RESUME
        name = self.options.name
        try:
            directive = cast("object", self.options.supervise(failure))
        except Exception as why:
            reason = f"its supervisor failed: {failure_text(why)}"
            raise ProcessorFailed(processor=name, reason=reason) from why
        if not isinstance(directive, Directive):
            reason = f"its supervisor returned {directive!r}, which is not a Directive"
            raise ProcessorFailed(processor=name, reason=reason)
        return directive

    def _run_finished(self, in_flight: InFlightRun) -> None:
        """All events of a run are finished: there may be room again, or a segment may be complete."""
        self._wake_short()
        if in_flight.owned.complete:
            self._committer.ask()
        self._commit_if_idle()

    def _hold_if_behind(self) -> None:
        """Begin no further call while a commit does not end and what waits for it grows."""
        if self._committer.is_behind:
            self.pool.block("behind")

    def _commit_ended(self) -> None:
        """A commit ended or failed."""
        self.pool.unblock("behind")
        self.measure.in_flight(self.pool.queues.unfinished)
        self._wake_short()

    def _wake_short(self) -> None:
        """Let the fetcher check for room again, if it found none. Ranges grow together within a run too."""
        if self._fetcher.is_short:
            self._fetcher.wake()

    # Ownership.

    async def _follow(self) -> None:
        """Read the ownership, begin newly owned segments, and drop lost ones."""
        async with self._membership_lock:
            await self._refresh()
            positions = await self._take_over()
            for owned in self.segments.follow(self.membership.owned, positions):
                self._lose(owned)
        self._fetcher.wake()

    async def _refresh(self) -> None:
        what = f"reading the ownership of processor {self.options.name}"
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
                await self._committer.pause_hook(failures, why, failure_text(why))
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
        LOG.info("processor %s: %r belongs to another reader now", self.options.name, owned)
        owned.closing = True
        self._calls.cancel(owned)
        self.pool.give_up_retries()

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
                LOG.warning(
                    "processor %s releases %r and cancels its running calls", self.options.name, owned
                )
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
            if (items := self._fetcher.take(PUT_EVENTS)) is None:
                return False
            await self.pool.put(items)
            return True
        async with self._in_round:
            room, is_begun = self.options.round_events, False
            while room and (items := self._fetcher.take(min(room, PUT_EVENTS))) is not None:
                room, is_begun = room - len(items), True
                await self.pool.put(items)
            if not is_begun:
                return False
            await self.pool.drain()
            await self._committer.commit()
        return True
