"""Running an app: what `ep.run(app)` does with its groups and processors, and how they end.

Each processor is a task that joins its group and runs an engine. If one fails, the failure is logged and the others
continue; its segments go to other processes. The end of the block drains: no call begins any more, running calls get
the grace period to return, progress is committed, and the segments are released. After the grace period, or when the
block is cancelled a second time, running calls are cancelled; the next owner handles their events again. A call that
ignores its cancellation is abandoned: nothing can end it, and its segments stay with this process until the directory
is closed, so that no other one handles its keys meanwhile.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import anyio

from eventproc.base.clock import new_id
from eventproc.base.tasks import BackgroundTasks, HandleTasks, first_leaf, run_uninterrupted
from eventproc.groups import (
    GROUP,
    adopt_recreated_streams,
    describe_any,
    drop_stream,
    ensure_group,
    ensure_worker_group,
    get_group,
    join,
    set_paused,
    verify_streams,
    watch_group,
    watch_progress,
    watch_share,
)
from eventproc.groups.time_limit import within
from eventproc.processors.app import App
from eventproc.processors.context import call_in_tx
from eventproc.processors.dead_letters.store import ensure_stream, verify_letter_stream
from eventproc.processors.declarations import Processor
from eventproc.processors.engine.engine import Engine
from eventproc.processors.engine.handling import WIND_UP_MS, HandlerEngine
from eventproc.processors.engine.timers import has_due_timers
from eventproc.processors.engine.workers import find_blocker
from eventproc.processors.errors import HandlerAbandoned, ProcessorFailed, failure_text
from eventproc.processors.key_state import KeyState
from eventproc.processors.observe.status import (
    Blocker,
    Counters,
    MemberStatus,
    ProcessorState,
    ProcessorStatus,
)
from eventproc.processors.observe.telemetry import NOTHING
from eventproc.processors.options import OnFailure, Options, ProcessorLimits
from eventproc.processors.retry import retry_transient
from eventproc.store.catalog import find_stream, get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.key_states import StateRecord, declare_state, forget_version
from eventproc.store.model.argument_checks import check_int, invalid_argument
from eventproc.store.model.errors import Closed, EventprocError, InvalidArgument, NotFound, Retryable
from eventproc.store.model.group_errors import GroupStreamReplaced
from eventproc.store.model.limits import GRACE_MS
from eventproc.store.openable import Openable, Opening
from eventproc.store.records import find
from eventproc.store.segments import Event

P = TypeVar("P")

LOG = logging.getLogger("eventproc.processors")

CANCELLED_MS: Final = 10_000
"""How long user code may still run after it was cancelled: more than most needs to clean up. Higher: an app whose
handler ignores its cancellation is closed later."""

AWAY_S: Final = 1
"""Pause before a processor joins again after a failure that ends, in s. Each attempt waits for a server itself."""

PUBLISH_MS: Final = 2_000
"""Pause between two checks whether other processes should learn of a change: of a blocker, or of failures."""

IDLE_LOOK_MS: Final = 20
"""Longest pause that `wait_idle` adds between two looks at a group's lag while other processes make much durable. Each
look costs about a millisecond. Higher: `wait_idle` returns later."""

IDLE_NET_MS: Final = 1_000
"""Longest pause between two looks in the first seconds: truncating a stream reduces the lag too, and does not notify
the groups."""

IDLE_NET_SHARE: Final = 10
"""After a long wait the pause is this part of it. Higher: more looks. Lower: a truncation is noticed later."""

BLOCKED_MS: Final = 1_000
"""How long a call must have been running before it is reported as a blocker: most calls are shorter."""


class ProcessorRun:
    """One processor of a running app, in this process.

    failure: the error that stopped it, None unless it failed.
    ended: set when it has ended.
    """

    def __init__(self, db: Database, processor: Processor, reader: str, limits: ProcessorLimits) -> None:
        self.options = processor.options
        self.failure: BaseException | None = None
        self.ended = anyio.Event()
        self._db = db
        self._processor = processor
        self._reader = reader
        self._limits = limits
        self._engine: HandlerEngine[Any] | None = None
        self._stopping = False
        self._idle_waiters = 0

    async def run(self) -> None:
        """Join the group and process until stopped, cancelled or failed; `failure` then is the error."""
        try:
            while not await self._join_and_process():
                pass  # it has waited
        except BaseException as why:
            leaf = first_leaf(why)
            is_abandoned = self.ended.is_set()
            if not isinstance(leaf, anyio.get_cancelled_exc_class()) and not is_abandoned:
                self.failure = leaf
            if not isinstance(leaf, Exception):
                raise
            if is_abandoned:  # its code ended at last; the directory may be closed
                LOG.debug("%s ended after it was abandoned: %s", self.options.label, leaf)
                return
            cause: BaseException | None = self.failure
            reason = str(self.failure)
            if isinstance(self.failure, ProcessorFailed):
                reason, cause = self.failure.reason, self.failure.__cause__
            elif isinstance(self.failure, EventprocError) and not (
                self.failure.__cause__ or getattr(self.failure, "__notes__", None)
            ):
                cause = None  # its text says everything
            extra = {"processor": self.options.name}
            LOG.error("%s stopped: %s", self.options.label, reason, exc_info=cause, extra=extra)
        finally:
            self.ended.set()

    async def _join_and_process(self) -> bool:
        """Join the group and process; return False if it has to join again: a write or the server failed for now."""
        try:
            await self._join()
        except Exception as why:
            leaf = first_leaf(why)
            if not isinstance(leaf, Retryable) or self.ended.is_set():
                raise
            LOG.warning("%s goes on when that ends: %s", self.options.label, leaf)
            await anyio.sleep(AWAY_S)
            return self._stopping
        return True

    async def _join(self) -> None:
        async with join(self._db, self.options.group, self._reader) as membership:
            if not self._stopping:
                engine = Engine(self._db, self.options, self._processor.make, membership, self._limits)
                await self._run_engine(engine, self._watch_names)

    async def _run_engine(
        self, engine: HandlerEngine[Any], *beside: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._engine = engine
        engine.commit_when_idle(self._idle_waiters > 0)
        async with BackgroundTasks() as tasks:
            tasks.start_soon(self._publish_changes, engine)
            for each in beside:
                tasks.start_soon(each)
            await engine.run()

    def begin_stop(self) -> None:
        """Begin no call any more; see `Engine.begin_stop`."""
        self._stopping = True
        if self._engine is not None:
            self._engine.begin_stop()

    async def stop(self) -> None:
        """End gracefully; return when it has ended."""
        self.begin_stop()
        if self._engine is not None and not self.ended.is_set():
            await self._engine.stop()
        await self.ended.wait()

    @property
    def user_code(self) -> str | None:
        """Which code of the user's runs on the event loop now; None if none does, or if the processor has ended."""
        return None if self._engine is None or self.ended.is_set() else self._engine.user_code

    def abandon(self) -> None:
        """Count the processor as ended and failed, although its user code goes on."""
        assert self.user_code is not None, "only user code is abandoned"
        self.failure = HandlerAbandoned(processor=self.options.name, reason=self.user_code)
        LOG.error("%s", self.failure, extra={"processor": self.options.name})
        self.ended.set()

    async def save(self) -> None:
        """Commit what is finished, if possible."""
        if self._engine is not None:
            with anyio.move_on_after(WIND_UP_MS / 1000):
                await self._engine.save()

    @contextmanager
    def committing_when_idle(self) -> Iterator[None]:
        """Let progress become durable as soon as everything handed out is finished, while the block runs."""
        self._count_idle_waiter(1)
        try:
            yield
        finally:
            self._count_idle_waiter(-1)

    def _count_idle_waiter(self, change: int) -> None:
        self._idle_waiters += change
        if self._engine is not None:
            self._engine.commit_when_idle(self._idle_waiters > 0)

    @property
    def is_busy(self) -> bool:
        """Whether this process has events that are handed out and not durably finished."""
        return self._engine is not None and self._engine.is_busy

    async def _watch_names(self) -> None:
        """Raise ProcessorFailed once a stream was deleted and created again: the group does not read the new one."""
        look = partial(self._db.read, partial(_verify_names, processor=self.options))
        what = f"checking the streams of {self.options.label}"
        while True:
            await anyio.sleep(self._limits.names_check_ms / 1000)
            await retry_transient(look, what, self._db.clock, LOG)

    async def _publish_changes(self, engine: HandlerEngine[Any]) -> None:
        """Measure the lag, and publish the status that other processes may show, whenever it changed.

        If durations alone have changed, the next commit takes it along: they change as long as there are events.
        """
        published: MemberStatus | None = None
        what = f"publishing the status of {self.options.label}"
        while True:
            await anyio.sleep(PUBLISH_MS / 1000)
            if engine.measure is not NOTHING:
                await self._measure_lag(engine)
            status = self._member_status(engine)
            if status == published and not engine.status_waits:
                continue
            text = status.to_json()
            can_wait = published is not None and status.differs_in_durations_alone(published)
            if not (can_wait and engine.publish_with_commit(text)):
                await retry_transient(partial(engine.publish, text), what, self._db.clock, LOG)
            published = status

    async def _measure_lag(self, engine: HandlerEngine[Any]) -> None:
        group = await self._db.read(lambda tx: describe_any(tx, self.options.group))
        lags = dict.fromkeys((each.name for each in group.streams), 0)
        for segment in group.segments:
            lags[segment.stream] = lags.get(segment.stream, 0) + segment.events
        for stream, events in lags.items():
            engine.measure.lag(stream, events)

    def _member_status(self, engine: HandlerEngine[Any]) -> MemberStatus:
        counters = engine.counters
        return MemberStatus(
            processor=self.options.name,
            state=self._state(engine),
            failed_calls=counters.failed_calls,
            dead_letters=counters.dead_letters,
            skipped=counters.skipped,
            truncated=engine.truncated,
            restarts=counters.restarts,
            last_error=counters.last_error,
            blocker=self._blocker(engine),
            retrying=len(engine.pool.queues.failing),
            calls=counters.calls.durations(),
            commit_age_ms=counters.commit_age_ms,
        )

    def _blocker(self, engine: HandlerEngine[Any]) -> Blocker | None:
        wall_ms = self._db.clock.wall_ms()
        found = find_blocker(engine.pool, wall_ms)
        return found if found is not None and wall_ms - found.since_ms >= BLOCKED_MS else None

    def _state(self, engine: HandlerEngine[Any] | None) -> ProcessorState:
        if self.failure is not None:
            return ProcessorState.FAILED
        if self.ended.is_set():
            return ProcessorState.STOPPED
        if engine is None:
            return ProcessorState.STARTING
        return ProcessorState.PAUSED if engine.paused else ProcessorState.RUNNING

    @property
    def in_flight(self) -> int:
        """Calls of the handler that run now."""
        return 0 if self._engine is None else len(self._engine.pool.running)

    async def status(self) -> ProcessorStatus:
        """Return its state and the lag of its group. Raises NotFound when the group was deleted."""
        group = await self._db.read(lambda tx: describe_any(tx, self.options.group))
        engine = self._engine
        counters = engine.counters if engine is not None else Counters()
        return ProcessorStatus(
            name=self.options.name,
            group=self.options.group,
            order=self.options.order.value,
            state=self._state(engine),
            lag_events=group.events,
            lag_bytes=group.bytes,
            lag_ms=group.age_ms,
            segments=0 if engine is None else engine.owned_segments,
            in_flight=self.in_flight,
            waiting=0 if engine is None else engine.pool.queues.unfinished,
            retrying=0 if engine is None else len(engine.pool.queues.failing),
            finished=counters.finished,
            emitted=counters.emitted,
            failed_calls=counters.failed_calls,
            dead_letters=counters.dead_letters,
            skipped=counters.skipped,
            truncated=0 if engine is None else engine.truncated,
            restarts=counters.restarts,
            last_commit_ms=counters.last_commit_ms,
            commit_age_ms=counters.commit_age_ms,
            calls=counters.calls.durations(),
            last_error=counters.last_error,
            blocker=None if engine is None else self._blocker(engine),
            error=None if self.failure is None else str(self.failure),
        )


class Running(Openable):
    """An app that runs. Made by `ep.run`, whose block drains it at the end; `close` does the same from any task."""

    def __init__(self, db: Database, processors: Mapping[str, ProcessorRun], grace_ms: int) -> None:
        """grace_ms: how long running calls may take to return when it is closed."""
        super().__init__("the running app", db.handles, is_open=True)
        self._db = db
        self._processors = processors
        self._grace_ms = grace_ms
        self._closing = anyio.Event()
        self._draining = anyio.CancelScope(shield=True)
        self._tasks = HandleTasks()
        self._scopes = {each: self._tasks.start_soon(each.run) for each in processors.values()}

    def __repr__(self) -> str:
        return f"Running({', '.join(self._processors)}; {self._state})"

    async def _start(self) -> None:
        """Never called: it is made open."""

    async def _finish(self, why: BaseException | None) -> None:
        """Stop, also if this task is cancelled; only `cancel_now` ends it before the grace period does."""
        self._closing.set()
        try:
            for each in self._processors.values():  # all of them now, before any is waited for
                each.begin_stop()
            LOG.info("draining, for at most %g s", self._grace_ms / 1000)
            with self._draining:
                await self.stop(grace_ms=self._grace_ms)
        finally:  # a second interrupt may come at any point of it
            await run_uninterrupted(self._end_tasks)
        if why is None:
            self.raise_failure()

    async def _end_tasks(self) -> None:
        """Cancel the processors, and return when they have ended or were abandoned."""
        while True:
            before = {each: each.user_code for each in self._scopes}
            if await self._tasks.wait_ended(CANCELLED_MS):
                break
            stuck = [each for each, code in before.items() if code is not None and each.user_code == code]
            for each in stuck:
                each.abandon()
                self._tasks.abandon(self._scopes[each])
            for each in stuck:
                await each.save()
        await self._tasks.stop()

    async def status(self) -> list[ProcessorStatus]:
        """Return the status of each processor, in the order of their declaration.

        Raises:
            NotFound: A processor's group was deleted.
        """
        return [await each.status() for each in self._processors.values()]

    async def pause(self, name: str) -> None:
        """Pause a processor in all processes, durably: running calls end and no other begins.

        Args:
            name: The processor's name.

        Raises:
            NotFound: The app has no processor of that name.
        """
        await self._set_paused(name, paused=True)

    async def resume(self, name: str) -> None:
        """Let a paused processor continue, in all processes.

        Args:
            name: The processor's name.

        Raises:
            NotFound: The app has no processor of that name.
        """
        await self._set_paused(name, paused=False)

    async def _set_paused(self, name: str, *, paused: bool) -> None:
        if name not in self._processors:
            raise NotFound(kind="processor", name=name)
        group = self._processors[name].options.group
        await self._db.write(lambda tx: set_paused(tx, group, paused), step=Step.PROCESSOR_PAUSE)

    async def wait(self) -> None:
        """Return when all processors were stopped.

        Raises:
            ProcessorFailed: A processor failed; raised as soon as it does.
        """
        async with self._until_failure():
            for each in self._processors.values():
                await each.ended.wait()

    @asynccontextmanager
    async def _until_failure(self) -> AsyncIterator[None]:
        """End the block as soon as a processor failed or the app is closed. Raises ProcessorFailed at its end."""
        async with BackgroundTasks() as tasks:

            async def watch(processor: ProcessorRun) -> None:
                await processor.ended.wait()
                if processor.failure is None:
                    await self._closing.wait()
                tasks.cancel()

            for each in self._processors.values():
                tasks.start_soon(watch, each)
            yield
        self.raise_failure()

    async def wait_idle(self, *, timeout_ms: int | None = None) -> None:
        """Return when nothing was left to process in the groups of the app: all had lag 0 at one moment, durably.

        Timers that event time has reached are left to process, too.

        Args:
            timeout_ms: How long to wait, in ms. None (default): without limit.

        Raises:
            TimeoutError: The time is over.
            ProcessorFailed: A processor failed, or a stream of it was deleted and created again.
            Closed: The app was closed meanwhile.
            InvalidArgument: `timeout_ms` is no number of ms.

        Cost:
            While waiting, one read when progress was made durable, and one a second. This process commits its progress
            whenever it has handled all events that it read, instead of after a second; other processes do not.
        """
        with within(timeout_ms, "the app has work left"):
            async with self._until_failure():
                await self._wait_idle()
                return
            raise Closed(what=self._what)

    async def wait_for(self, event: Event[P], *, timeout_ms: int | None = None) -> None:
        """Return when each processor of the app that reads the stream of an event has finished the event, durably.

        So a program reads what it has just written, also while others write on. An event that became a dead letter, or
        was truncated, counts as finished.

        Args:
            event: as a writer returned it.
            timeout_ms: How long to wait, in ms. None (default): without limit.

        Raises:
            TimeoutError: The time is over.
            ProcessorFailed: A processor failed.
            Closed: The app was closed meanwhile.
            NotFound: The stream was deleted.
            InvalidArgument: No processor of the app reads the stream, or it is no event.
        """
        from eventproc.groups.finished import as_written, wait_finished  # few programs need it

        written = as_written(event)
        reading = [each for each in self._processors.values() if written.stream in each.options.streams]
        if not reading:
            raise invalid_argument("event", written.stream, "no processor of the app reads this stream")
        async with self._until_failure():
            with ExitStack() as stack:
                for each in reading:
                    stack.enter_context(each.committing_when_idle())
                await wait_finished(self._db, [each.options.group for each in reading], written, timeout_ms)
            return
        raise Closed(what=self._what)

    async def _wait_idle(self) -> None:
        processors, pause_ms, clock = self._processors.values(), 0, self._db.clock
        began_ms = clock.monotonic_ms()
        with ExitStack() as stack:
            for each in processors:
                stack.enter_context(each.committing_when_idle())
            watches = [
                watch(each.options.group)
                for each in processors
                for watch in (watch_group, watch_share, watch_progress)
            ]
            changes = stack.enter_context(self._db.subscribe(watches))
            while not await self._db.read(lambda tx: all(_is_idle(tx, each.options) for each in processors)):
                await anyio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms + 1, IDLE_LOOK_MS)
                net_ms = max(IDLE_NET_MS, (clock.monotonic_ms() - began_ms) // IDLE_NET_SHARE)
                with anyio.move_on_after(net_ms / 1000):
                    await changes.wait()
                    while any(each.is_busy for each in processors):  # then there is lag: a change will follow
                        await changes.wait()

    @property
    def in_flight(self) -> int:
        """Calls of handlers that run now."""
        return sum(each.in_flight for each in self._processors.values())

    async def stop(self, *, grace_ms: int = GRACE_MS) -> None:
        """Drain every processor: begin no call, let running calls finish, commit, release the segments.

        Calls that still run after the grace period go on until the end of the block, or `cancel_now`.

        Args:
            grace_ms: How long to wait for running calls, in ms. Default: 30 s.

        Raises:
            InvalidArgument: `grace_ms` is no number of ms.
        """
        grace_ms = check_int("grace_ms", grace_ms, least=0, unit="ms")
        with anyio.move_on_after(grace_ms / 1000):
            async with anyio.create_task_group() as tasks:
                for each in self._processors.values():
                    tasks.start_soon(each.stop)

    def cancel_now(self) -> None:
        """Do not wait for running calls at the end of the block: cancel them, now or as soon as it drains.

        Their events are handled again by another process, or by the next run.
        """
        self._draining.cancel()

    def raise_failure(self) -> None:
        """Raise the failure of the first failed processor, if there is one.

        Raises:
            ProcessorFailed: A processor failed; its cause is the error that stopped it.
        """
        for name, each in self._processors.items():
            if isinstance(each.failure, ProcessorFailed) or not isinstance(each.failure, Exception | None):
                raise each.failure
            if each.failure is not None:
                raise ProcessorFailed(processor=name, reason=str(each.failure)) from each.failure


def run_app(
    db: Database,
    app: App,
    *,
    grace_ms: int = GRACE_MS,
    limits: ProcessorLimits | None = None,
    run_of: Callable[[Options], type[ProcessorRun]] = lambda _: ProcessorRun,
) -> Opening[Running]:
    """Run the app's processors until the `Running` is closed. See `Eventproc.run`.

    run_of: the class that runs a processor; workers have one of their own.
    """

    async def start() -> Running:
        if not (app.processors or app.setups or app.schedules):
            reason = (
                'it is empty, so nothing would run: declare something with @app.processor("scope/stream")'
            )
            raise InvalidArgument(what="app", value=type(app).__name__, reason=reason)
        try:
            await db.write(lambda tx: _set_up(tx, app), step=Step.PROCESSOR_SET_UP)
        except Exception as why:
            if not isinstance(why, EventprocError):  # the user's code in `setup` raised it
                LOG.error("the app could not be set up: %s", failure_text(why), exc_info=why)
            raise
        unique = new_id(db.clock)[-12:]
        processors = {
            each.options.name: run_of(each.options)(
                db, each, f"{each.options.name}-{os.getpid()}-{unique}", limits or ProcessorLimits()
            )
            for each in app.processors
        }
        summaries = [each.options.summary for each in app.processors]
        LOG.info("running %s", "; ".join(summaries) if summaries else "no processors: the app was set up")
        return Running(db, processors, grace_ms)

    return Opening(repr(app), start)


def _set_up(tx: Tx, app: App) -> None:
    for schedule in app.schedules:
        from eventproc.store.schedules import create_schedule  # few programs need it

        ensure_stream(tx, schedule.stream)
        create_schedule(tx, schedule, replaces=True)
    for each in app.processors:
        options = each.options
        if options.worker is not None:
            share, letters = options.worker.share, options.dead_letters
            ensure_worker_group(tx, options.group, options.streams, options.start, share, letters)
            verify_letter_stream(tx, options.group, letters, options.streams)
            continue
        _leave_redrive_stream(tx, options)
        try:
            ensure_group(tx, options.group, options.streams, options.start)
        except GroupStreamReplaced:
            # An app names its streams: it means the stream that has the name now.
            says = "processor group %s: stream %s was deleted and created again; reading it from its head"
            for name in adopt_recreated_streams(tx, options.group):
                tx.after(partial(LOG.warning, says, options.group, name))
            ensure_group(tx, options.group, options.streams, options.start)
        if options.state is not None:
            _declare_state(tx, options, options.state)
        if options.on_failure is OnFailure.DEAD_LETTER:
            verify_letter_stream(tx, options.group, options.dead_letters, options.streams)
    for setup in app.setups:
        try:
            call_in_tx(tx, setup)
        except Exception as why:
            why.add_note(
                f"raised by the setup function {getattr(setup, '__qualname__', repr(setup))} of the app"
            )
            raise


def _leave_redrive_stream(tx: Tx, processor: Options) -> None:
    """Let the group read its redrive stream no more if that was deleted, or if a state needs one stream alone.

    Raises ProcessorFailed if something is left of what was redriven before the processor had a state.
    """
    found = find(tx, GROUP, processor.group)
    for each in () if found is None else found.value.streams:
        is_there = find_stream(tx, each.name) is not None
        if not each.added or (is_there and processor.state is None):
            continue
        if is_there and any(
            segment.events
            for segment in describe_any(tx, processor.group).segments
            if segment.stream == each.name
        ):
            reason = (
                f"its group has not finished {each.name}, to which dead letters were redriven, and a state needs one"
                " stream: run it without a state first, or give it another group"
            )
            raise ProcessorFailed(processor=processor.name, reason=reason)
        drop_stream(tx, processor.group, each.stream_id)


def _declare_state(tx: Tx, processor: Options, state: KeyState[Any]) -> None:
    """Note the version of the processor's state. Raises ProcessorFailed if a key has one that it cannot read.

    Raises InvalidArgument for a topic: the events of a key need not follow one another there.
    """
    (stream,) = get_group(tx, processor.group).streams
    if get_stream(tx, stream.name).value.config.is_topic:
        reason = f"a key may have several partitions of topic {stream.name}: emit into a stream, by key"
        raise invalid_argument("state", state.name, reason)
    record = StateRecord(
        group=processor.group,
        stream=stream.name,
        stream_id=stream.stream_id,
        payload=state.name,
        versions=(state.version,),
    )
    for version in declare_state(tx, record):
        if state.reads(version) or (found := forget_version(tx, processor.group, version)) is None:
            continue
        remedy = "give an `upgrade`" if version < state.version else "run the program that has stored it"
        reason = (
            f"the state of key {found.key!r} has version {version}, and this program reads version"
            f" {state.version}: {remedy}, or drop the state (`eventproc state drop {processor.group}`)"
        )
        raise ProcessorFailed(processor=processor.name, reason=reason)


def _is_idle(tx: Tx, processor: Options) -> bool:
    _verify_names(tx, processor)
    return not describe_any(tx, processor.group).events and not has_due_timers(tx, processor)


def _verify_names(tx: Tx, processor: Options) -> None:
    """Raise ProcessorFailed if a stream was deleted and created again. One that was only deleted has no events."""
    if processor.worker is not None:  # its share group goes on with the next stream of the name
        return
    try:
        verify_streams(tx, get_group(tx, processor.group), may_be_gone=True)
    except GroupStreamReplaced as why:
        reason = f"{why.stream} was deleted and created again; run the app again to read it from its head"
        raise ProcessorFailed(processor=processor.name, reason=reason) from why
