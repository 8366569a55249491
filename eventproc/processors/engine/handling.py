"""The calls of one processor in one process, whatever it reads: its handler, its workers, and the results of calls.

A subclass says where events come from and what makes their results durable: `Engine` for the segments that this
process owns, `WorkerEngine` (`eventproc/jobs`) for the events of a share group that it holds.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import anyio

from eventproc.base.clock import machine_clock
from eventproc.base.counts import counted
from eventproc.processors.context import Log, NoteProgress
from eventproc.processors.dead_letters.operations import FailedEvent
from eventproc.processors.engine.calls import Calls
from eventproc.processors.engine.committer import Committer
from eventproc.processors.engine.key_queues import Item, KeyQueues, describe_event
from eventproc.processors.engine.states import KeyStateCache, Left
from eventproc.processors.engine.workers import WorkerPool
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.handler import Handler
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import event_fields, event_log, telemetry
from eventproc.processors.options import Directive, Failure, OnFailure, Options, ProcessorLimits
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.segments import Event

LOG = logging.getLogger("eventproc.processors")

C = TypeVar("C", bound=Committer[Any, Any])

WIND_UP_MS: Final = 5_000
"""Longest end of a processor after its calls ended or were cancelled: a commit and the handler's `stop`. Higher: a
process takes longer to end while the disk is full. What is not durable by then is handled again."""


class HandlerEngine(ABC, Generic[C]):
    """Runs the handler of one processor; call `run` once.

    pool: the workers, and the events that were handed out to them.
    states: the states of keys at hand; None: its handler takes none.
    """

    _committer: C

    def __init__(
        self, db: Database, options: Options, make: Callable[[], Handler], limits: ProcessorLimits | None
    ) -> None:
        """Create the engine. make: creates the handler, and a new one after a failure that asks for a restart."""
        self.options = options
        self.counters = Counters()
        self.measure = telemetry(options.name, options.group)
        self.pool = WorkerPool(
            KeyQueues(options.order),
            options.concurrency,
            machine_clock(db.clock).monotonic_ms,
            on_idle=self._wake_short,
            limits=limits,
        )
        self.states = None if options.state is None else KeyStateCache(db, options)
        meter = self.counters.calls
        self._calls = Calls(options, self.pool, self, db.clock, self.measure, self.states, meter)
        self._db = db
        self._make = make
        self._commits_when_idle = False
        self._restart = anyio.Event()
        self._restarting = anyio.Lock()  # held while the handler is replaced
        self._stopping = False
        self._started = False
        self._user_code: str | None = None
        self._tasks = anyio.create_task_group()
        self._scope = anyio.CancelScope()  # cancels the tasks, also before they begin

    @property
    @abstractmethod
    def paused(self) -> bool:
        """Whether the processor is paused in all processes."""

    @property
    @abstractmethod
    def owned_segments(self) -> int:
        """How many segments this process owns."""

    @abstractmethod
    def write_status(self, tx: Tx, text: str) -> None:
        """Let other processes see the status of this one."""

    async def publish(self, text: str) -> None:
        """Let other processes see the status of this one, in a transaction of its own."""
        self._committer.status = None
        await self._db.write(partial(self.write_status, text=text), step=Step.PROCESSOR_STATUS)

    def publish_with_commit(self, text: str) -> bool:
        """Publish the status with the next commit; return False, and do nothing, if none can be expected."""
        if not self.is_busy or self.status_waits:
            return False
        self._committer.status = text
        return True

    @property
    def status_waits(self) -> bool:
        """Whether no commit has published the last status given to `publish_with_commit`."""
        return self._committer.status is not None

    @property
    def truncated(self) -> int:
        """Events that were truncated before they were handled."""
        return 0

    @property
    def is_busy(self) -> bool:
        """Whether events are handed out and not durably finished."""
        return bool(self.pool.queues.unfinished) or self.counters.finished != self.counters.committed

    def commit_when_idle(self, wanted: bool) -> None:
        """Commit whenever everything that was handed out is finished, instead of after a second."""
        self._commits_when_idle = wanted
        self._commit_if_idle()

    def _commit_if_idle(self) -> None:
        if self._commits_when_idle and not self.pool.queues.unfinished and self.is_busy:
            self._committer.ask()

    @abstractmethod
    def _parts(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the tasks that get events and make their results durable."""

    @abstractmethod
    def _wake_short(self) -> None:
        """Let more events be got, if there was no room for them."""

    @abstractmethod
    def _wake_reader(self) -> None:
        """Let the task that gets events see that it shall stop."""

    @abstractmethod
    def _finish(self, item: Item) -> None:
        """Note that an event is finished without its handler: it became a dead letter, or is skipped."""

    def returned(self, item: Item, result: object) -> None:
        """See `CallListener.returned`."""

    @abstractmethod
    def finished(self, item: Item, handled: Event[Any], left: Left) -> None:
        """See `CallListener.finished`."""

    def left_by_batch(self, items: Sequence[Item], left: Left) -> None:
        """See `CallListener.left_by_batch`."""
        events = [(in_hand.owned, event.number) for event, in_hand in items]
        self._committer.leave_of_batch(events, items[0][0], left)
        self._hold_if_behind()

    def set_aside(self, item: Item, pause_ms: int) -> bool:
        """See `CallListener.set_aside`."""
        return False

    def progress_for(self, item: Item) -> NoteProgress | None:
        """See `CallListener.progress_for`."""
        return None

    async def run(self) -> None:
        """Process until stopped or cancelled. Raises ProcessorFailed, possibly in an exception group."""
        self._calls.handler = await self._start_handler()
        try:
            with self._scope:
                await self._run_parts()
        finally:
            with anyio.move_on_after(WIND_UP_MS / 1000, shield=True):
                await self._wind_up()

    async def _run_parts(self) -> None:
        async with self._tasks:
            for part in (self._calls.run, *self._parts(), self._restart_on_demand):
                self._tasks.start_soon(part)

    def begin_stop(self) -> None:
        """Begin no call any more."""
        self._stopping = True
        self._wake_reader()
        self.pool.block("stopping")

    async def stop(self) -> None:
        """End gracefully: begin no call, let running calls finish, and let `run` commit and end.

        To stop waiting, cancel `run`.
        """
        self.begin_stop()
        await self.pool.wait_quiet()
        await self._end_parts()

    async def _end_parts(self) -> None:
        """Cancel the tasks, but not a handler's `stop` within a restart."""
        async with self._restarting:
            self._scope.cancel()

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
            async with self._restarting:
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
            LOG.exception("%s: the handler's stop failed", self.options.label)

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
                "%s: its last commit failed, so the events will be handled again: %s",
                self.options.label,
                why,
            )

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.failed`."""
        self.counters.note_failure(error)
        self.measure.failed(item[0].stream, error, again=True)
        trace = error if LOG.isEnabledFor(logging.DEBUG) else None
        LOG.warning(
            "%s: %s failed for %s: %s",
            *(self.options.label, self.options.retry.attempt_text(attempt)),
            *(describe_event(item[0]), failure_text(error)),
            exc_info=trace,
            extra=self._fields(item, attempt),
        )

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.spent`."""
        event, options = item[0], self.options
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
        self._finish(item)
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
            "%s: %s %s after %s: %s",
            *(
                self.options.label,
                describe_event(event),
                became,
                counted(attempt, "attempt"),
                failure_text(error),
            ),
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

    def _hold_if_behind(self) -> None:
        """Begin no further call while a commit does not end and what waits for it grows."""
        if self._committer.is_behind:
            self.pool.block("behind")

    def _commit_ended(self) -> None:
        """A commit ended or failed."""
        self.pool.unblock("behind")
        self.measure.in_flight(self.pool.queues.unfinished)
        self._wake_short()
