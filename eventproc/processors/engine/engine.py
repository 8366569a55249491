"""One processor in one process: it reads the segments it owns, runs the handler, and makes progress durable.

Authority: a segment's row names its owner and owner epoch; everything made durable here is fenced by them, in one
transaction: progress, what handlers emitted, dead letters, the user's SQL, the end of a segment. Whoever lost a
segment changes nothing of it and emits nothing for it.

Tasks: one follows what is owned and gives back what is asked for; one reads on and hands out; the workers call the
handler; one makes progress durable. Under exactly once the reading task goes in rounds instead: read a
bounded number of events, handle them all, commit everything in one transaction, go on.

What dies where: what was handled since the last commit is handled again, wherever its segment goes, and nothing
that it emitted is seen. There is nothing between two transactions to mend.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

import anyio

from eventproc.groups import Membership, SegmentKey
from eventproc.processors.context import Log
from eventproc.processors.dead_letters.letters import FailedEvent
from eventproc.processors.emit import Emission
from eventproc.processors.engine.commit import COMMIT_EVENTS, Committer
from eventproc.processors.engine.fetch import SegmentFetcher
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.owned_segment import InFlightRun, OwnedSegment
from eventproc.processors.engine.work import PUT_EVENTS, Work, name_of
from eventproc.processors.engine.workers import Workers
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.handler import Handler
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import event_log, telemetry
from eventproc.processors.options import Directive, Failure, OnFailure, Options
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database

LOG = logging.getLogger("eventproc.processors")

WIND_UP_MS: Final = 5_000
"""Longest time that the end of a processor takes, after its calls ended or were cancelled: a commit and the handler's
`stop`. Longer holds up a process that shall end while the disk is full; what is not durable then is handled again."""

GIVE_BACK_MS: Final = 30_000
"""How long a segment that another process shall have waits for its calls: as long as the end of an app does. Then
they are cancelled, for while it waits nobody handles its other keys. A call on a thread is waited for to the end."""


class Engine:
    """Runs one processor with one membership in its group; `run` once."""

    def __init__(
        self, db: Database, options: Options, make: Callable[[], Handler], membership: Membership
    ) -> None:
        """make: makes the handler, and makes it anew after a failure that asks for that."""
        self.options = options
        self.membership = membership
        self.cells: dict[SegmentKey, OwnedSegment] = {}
        self.tally = Counters()
        self.measure = telemetry(options.name, options.group)
        self.work = Work(options, self, db.clock, self.measure)
        self._workers = Workers(self.work)
        self._db = db
        self._make = make
        self._feed = SegmentFetcher(db, self.cells, options.on_truncated, self.work)
        self._committer = Committer(
            db,
            options,
            membership,
            self.cells,
            self.tally,
            self.measure,
            refresh=self._refresh,
            lose=self._lose,
            moved=self._moved,
        )
        self._leaving: set[OwnedSegment] = set()  # that are being given back
        self._asking = anyio.Lock()  # a membership is used by one task at a time
        self._ask_at = COMMIT_EVENTS
        self._in_round = anyio.Lock()
        self._restart = anyio.Event()
        self._stopping = False
        self._started = False
        self._reading_ended = anyio.Event()
        self._ended = anyio.Event()
        self._tasks = anyio.create_task_group()
        self._scope = anyio.CancelScope()  # cancels the tasks, also when they have not begun

    @property
    def truncated(self) -> int:
        """Events that were truncated before they were handled."""
        return self._feed.truncated + self._committer.truncated

    async def run(self) -> None:
        """Process until stopped or cancelled. Raises ProcessorFailed, perhaps in a group."""
        try:
            self.work.handler = await self._start_handler()
            try:
                with self._scope, self._feed:
                    async with self._tasks:
                        self._tasks.start_soon(self._workers.run)
                        self._tasks.start_soon(self._follow)
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

    async def stop(self) -> None:
        """End gracefully: begin nothing, let what runs finish, make progress durable, return when all has ended.

        An exactly-once round is finished whole. Who does not want to wait longer cancels `run`.
        """
        self._stopping = True
        self._feed.wake()
        if self.options.exactly_once:
            await self._reading_ended.wait()
        else:
            self.work.hold("stopping")
            await self.work.wait_quiet()
        self._scope.cancel()
        await self._ended.wait()

    async def _start_handler(self) -> Handler:
        try:
            handler = self._make()
            await handler.start()
        except Exception as why:
            reason = f"its handler could not be started: {failure_text(why)}"
            raise ProcessorFailed(processor=self.options.name, reason=reason) from why
        self._started = True
        return handler

    async def _restart_on_demand(self) -> None:
        """Replace the handler when a failure asked for that, between two calls."""
        while True:
            await self._restart.wait()
            await self.work.wait_quiet()
            self._restart = anyio.Event()  # one restart does for all calls that failed before it
            await self._stop_handler()
            self.work.handler = await self._start_handler()
            self.tally.restarts += 1
            self.work.release("restarting")

    async def _stop_handler(self) -> None:
        if not self._started:
            return
        self._started = False
        try:
            await self.work.handler.stop()
        except Exception:
            LOG.exception("%s: the handler's stop failed", self.options.name)

    async def _wind_up(self) -> None:
        """Make durable what is finished, as far as that is possible, and stop the handler."""
        self.work.hold("ended")  # a call on a thread goes on after its cancellation: let no other follow it
        self.work.notify()  # nobody need wait any more for calls to end
        try:
            if not self.options.exactly_once:
                await self._committer.commit()
        except Exception as why:
            LOG.warning("%s: what it finished last will be handled again: %s", self.options.name, why)
        await self._stop_handler()

    # What the workers tell (`CallListener`).

    def finished(self, item: Item, emitted: Sequence[Emission]) -> None:
        """See `CallListener.finished`."""
        event, chunk = item
        chunk.finish(event.number)
        tally = self.tally
        tally.finished += 1
        if emitted:
            self._committer.emit(chunk.cell, event.number, emitted)
            self._hold_if_behind()
        elif tally.finished >= self._ask_at:
            self._ask_at = tally.finished + COMMIT_EVENTS
            self._committer.ask()
            self._hold_if_behind()
        if self.options.on_commit is not None:
            self._committer.outbox.handled.append((chunk.cell, event))
        if not chunk.remaining:
            self._settled(chunk)

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.failed`."""
        self.tally.note_failure(error)
        self.measure.failed(item[1].cell.assigned.stream, error, again=True)
        self.log_for(item, attempt).warning("attempt %d failed: %r", attempt, error)

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.spent`."""
        event, chunk = item
        options, log = self.options, self.log_for(item, attempt)
        self.tally.note_failure(error)
        self.measure.failed(chunk.cell.assigned.stream, error, again=False)
        if options.publishes:
            raise error
        directive = self._directive(Failure(options.name, event, error, attempt))
        if directive is Directive.STOP or options.on_failure is OnFailure.STOP:
            raise ProcessorFailed(
                processor=options.name,
                reason=f"{name_of(item)} failed {attempt} times: {failure_text(error)}",
            )
        if options.on_failure is OnFailure.DEAD_LETTER:
            log.error("a dead letter after %d attempts: %r", attempt, error)
            letter = FailedEvent.of(
                chunk.cell.assigned.stream,
                event,
                error,
                attempts=attempt,
                processor=options.name,
                failed_ms=self._db.clock.wall_ms(),
            )
            self._committer.add_dead_letter(chunk.cell, letter)
            self.tally.dead_letters += 1
        else:
            log.error("skipped after %d attempts: %r", attempt, error)
            self.tally.skipped += 1
            self.measure.skipped(chunk.cell.assigned.stream, 1)
        chunk.finish(event.number)
        self.tally.finished += 1
        self._committer.ask()
        self._hold_if_behind()
        if not chunk.remaining:
            self._settled(chunk)
        if directive is Directive.RESTART:
            self.work.hold("restarting")  # at once: the next call is for the new handler
            self._restart.set()

    def wanting(self) -> None:
        """See `CallListener.wanting`."""
        self._wake_short()

    def log_for(self, item: Item, attempt: int) -> Log:
        """See `CallListener.log_for`."""
        event, chunk = item
        return event_log(self.options.name, chunk.cell.assigned.stream, event, attempt)

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
            raise ProcessorFailed(
                processor=name, reason=f"its supervisor returned {directive!r}, no Directive"
            )
        return directive

    def _settled(self, chunk: InFlightRun) -> None:
        """A chunk is finished whole: there may be room again, or a segment may be complete."""
        self._wake_short()
        if chunk.cell.complete:
            self._committer.ask()

    def _hold_if_behind(self) -> None:
        """Begin no further call while a commit does not come to its end, and what waits for it grows."""
        if self._committer.is_behind:
            self.work.hold("behind")

    def _moved(self) -> None:
        """A commit ended, one way or the other."""
        self.work.release("behind")
        self.measure.in_flight(self.work.unfinished)
        self._wake_short()

    def _wake_short(self) -> None:
        """Let the feed look again whether there is room, if it found none; ranges grow together within a chunk too."""
        if self._feed.is_short:
            self._feed.wake()

    # What is owned.

    async def _refresh(self) -> None:
        async with self._asking:
            await retry_transient(self.membership.refresh, f"{self.options.name}: following its group", LOG)

    async def _follow(self) -> None:
        while True:
            await self._refresh()
            self._adopt()
            if self.membership.paused and not self.options.exactly_once:
                self.work.hold("paused")
            else:
                self.work.release("paused")
            for key in self.membership.surplus:
                cell = self.cells.get(key)
                if cell is not None and cell not in self._leaving:
                    self._leaving.add(cell)
                    self._tasks.start_soon(self._give_back, cell)
            await self.membership.wait_change()

    def _adopt(self) -> None:
        """Begin with what is newly owned, forget what was lost."""
        owned = self.membership.owned
        for key, cell in list(self.cells.items()):
            if key not in owned or owned[key].owner_epoch != cell.assigned.owner_epoch:
                self._lose(cell)
        for key, assigned in owned.items():
            if key not in self.cells:
                self.cells[key] = OwnedSegment(assigned)
        self._feed.wake()

    def _lose(self, cell: OwnedSegment) -> None:
        LOG.info("%s: %r belongs to another reader now", self.options.name, cell)
        cell.closing = True
        self.cells.pop(cell.key, None)
        self._workers.cancel(cell)
        self.work.give_up_retries()

    async def _give_back(self, cell: OwnedSegment) -> None:
        """Drain a cell, make its progress durable, release it."""
        async with self._in_round:  # held during a round only
            cell.closing = True
            self.work.give_up_retries()
            if self.options.exactly_once:
                await self._release(cell)
        if not self.options.exactly_once:
            with anyio.move_on_after(GIVE_BACK_MS / 1000) as patience:
                await self.work.clear(cell)
            if patience.cancelled_caught:
                LOG.warning("%s: %r is given on; calls that still run are cancelled", self.options.name, cell)
                self._workers.cancel(cell)
                await self.work.clear(cell)
            await self._release(cell)
        self._leaving.discard(cell)

    async def _release(self, cell: OwnedSegment) -> None:
        await self._committer.commit()
        if self.cells.get(cell.key) is cell:
            async with self._asking:
                await retry_transient(
                    partial(self.membership.release, [cell.key]), f"releasing {cell!r}", LOG
                )
        # Not before: what is owned and has no cell gets a new one, which begins where this one did.
        if self.cells.get(cell.key) is cell:
            del self.cells[cell.key]

    # Reading.

    async def _read(self) -> None:
        try:
            while not self._stopping:
                if self.membership.paused or not (await self._hand_out() or await self._fill()):
                    await self._feed.changes.wait()
        finally:
            self._reading_ended.set()

    async def _fill(self) -> bool:
        """Read on; return whether there was anything."""
        found = await self._feed.fill()
        if found and self.options.exactly_once:
            await self._committer.commit()  # the end of a segment, what was truncated; mostly nothing
        elif found and any(cell.complete for cell in self.cells.values()):
            self._committer.ask()
        return found

    async def _hand_out(self) -> bool:
        """Hand out some of what was read, under exactly once as a round; return whether there was anything."""
        if not self.options.exactly_once:
            if (items := self._feed.take(PUT_EVENTS)) is None:
                return False
            await self.work.put(items)
            return True
        async with self._in_round:
            room, is_begun = self.options.round_events, False
            while room and (items := self._feed.take(min(room, PUT_EVENTS))) is not None:
                room, is_begun = room - len(items), True
                await self.work.put(items)
            if not is_begun:
                return False
            await self.work.drain()
            await self._committer.commit()
        return True
