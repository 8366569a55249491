"""Running an app: its groups, its processors, and their end.

Each processor is a task that joins its group and runs an engine. One that fails is logged, and the others go on: its
segments go to other processes. Leaving drains: no call begins any more, those that run get the grace period to
return, progress is made durable, the segments are given back. After the grace period, or when the block is left by a
cancellation a second time, what still runs is cancelled, and handled again by whoever comes next.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio

from eventproc.groups import (
    Membership,
    adopt_recreated_streams,
    describe_group,
    ensure_group,
    get_group,
    join,
    set_paused,
    verify_streams,
    watch_group,
    watch_progress,
)
from eventproc.processors.app import App, Processor
from eventproc.processors.context import AppTx
from eventproc.processors.dead_letters.store import verify_letter_stream
from eventproc.processors.engine.engine import Engine
from eventproc.processors.engine.work import find_blocker
from eventproc.processors.errors import ProcessorFailed
from eventproc.processors.observe.status import (
    Blocker,
    Counters,
    MemberStatus,
    ProcessorState,
    ProcessorStatus,
)
from eventproc.processors.observe.telemetry import NOTHING
from eventproc.processors.options import OnFailure, Options
from eventproc.processors.retry import retry_transient
from eventproc.store.clock import new_id
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.errors import EventprocError, NotFound
from eventproc.store.model.group_errors import GroupStreamReplaced
from eventproc.store.tasks import BackgroundTasks

LOG = logging.getLogger("eventproc.processors")

GRACE_MS: Final = 30_000
"""How long leaving waits for calls that run. Longer than most handlers take, shorter than service managers wait."""

TELL_MS: Final = 2_000
"""Pause between two looks at whether other processes should be told of a change: of a blocker, of failures."""

NAMES_MS: Final = 2_000
"""Pause between two looks at whether a stream's name became another stream's, which nothing else tells of. Each is a
read; longer is how long a processor that will read nothing of it counts as running."""

IDLE_LOOK_MS: Final = 20
"""Shortest pause between two looks at a group's lag, for who waits until it is none while much is made durable. Each
costs about a millisecond; more is waited for in vain."""

IDLE_NET_MS: Final = 1_000
"""Longest pause between them: what is left becomes less by the truncation of a stream too, which its groups are not
told of."""

BLOCKED_MS: Final = 1_000
"""How long a call must have been under way before it is told of as a blocker: shorter is how calls are."""


class ProcessorRun:
    """One processor of a running app, in this process."""

    def __init__(self, db: Database, processor: Processor, reader: str) -> None:
        self.options = processor.options
        self.failure: BaseException | None = None
        self.ended = anyio.Event()
        self._db = db
        self._processor = processor
        self._reader = reader
        self._engine: Engine | None = None
        self._stopping = False
        self._scope = anyio.CancelScope(shield=True)

    async def run(self) -> None:
        """Join the group and process, until stopped, cancelled or failed: `failure` then says why.

        A cancellation from outside is not for this: it makes the block end, and the block's end drains.
        """
        with self._scope:
            await self._run()

    def cancel(self) -> None:
        """End it now; calls that run are cancelled."""
        self._scope.cancel()

    async def _run(self) -> None:
        name = self.options.name
        try:
            async with join(self._db, self.options.group, self._reader) as membership:
                await self._process(membership)
        except Exception as why:
            self.failure = _first(why)
            if isinstance(self.failure, ProcessorFailed):
                LOG.error("%s", self.failure)
            else:
                known = isinstance(self.failure, EventprocError)
                LOG.error(
                    "processor %s stopped: %s", name, self.failure, exc_info=None if known else self.failure
                )
        finally:
            self.ended.set()

    async def _process(self, membership: Membership) -> None:
        self._engine = engine = Engine(self._db, self.options, self._processor.make, membership)
        if self._stopping:
            return
        async with BackgroundTasks() as tasks:
            tasks.start_soon(self._tell_others, engine)
            tasks.start_soon(self._watch_names)
            await engine.run()

    async def stop(self) -> None:
        """Return when it has ended, gracefully."""
        self._stopping = True
        if self._engine is not None:
            await self._engine.stop()
        await self.ended.wait()

    async def _watch_names(self) -> None:
        """Raise ProcessorFailed once a stream was deleted and made again: the group does not read what is in it."""
        look = partial(self._db.read, partial(_verify_names, processor=self.options))
        while True:
            await anyio.sleep(NAMES_MS / 1000)
            await retry_transient(look, f"the look at the streams of {self.options.name}", LOG)

    async def _tell_others(self, engine: Engine) -> None:
        """Publish what other processes may show of this one, whenever it changed."""
        told = ""
        while True:
            await anyio.sleep(TELL_MS / 1000)
            if engine.measure is not NOTHING:
                await self._measure_lag(engine)
            text = self._published(engine).to_json()
            if text != told:
                await retry_transient(
                    partial(self._publish, engine, text), f"{self.options.name}: its status", LOG
                )
                told = text

    async def _measure_lag(self, engine: Engine) -> None:
        group = await self._db.read(lambda tx: describe_group(tx, self.options.group))
        lags = dict.fromkeys((each.name for each in group.streams), 0)
        for segment in group.segments:
            lags[segment.stream] = lags.get(segment.stream, 0) + segment.events
        for stream, events in lags.items():
            engine.measure.lag(stream, events)

    async def _publish(self, engine: Engine, text: str) -> None:
        await self._db.write(lambda tx: engine.membership.publish(tx, text))

    def _published(self, engine: Engine) -> MemberStatus:
        tally = engine.tally
        return MemberStatus(
            processor=self.options.name,
            state=self._state(engine),
            failed_calls=tally.failed_calls,
            dead_letters=tally.dead_letters,
            skipped=tally.skipped,
            truncated=engine.truncated,
            restarts=tally.restarts,
            last_error=tally.last_error,
            blocker=self._blocker(engine),
        )

    def _blocker(self, engine: Engine) -> Blocker | None:
        wall_ms = self._db.clock.wall_ms()
        found = find_blocker(engine.work, wall_ms)
        return found if found is not None and wall_ms - found.since_ms >= BLOCKED_MS else None

    def _state(self, engine: Engine | None) -> ProcessorState:
        if self.failure is not None:
            return ProcessorState.FAILED
        if self.ended.is_set():
            return ProcessorState.STOPPED
        if engine is None:
            return ProcessorState.STARTING
        return ProcessorState.PAUSED if engine.membership.paused else ProcessorState.RUNNING

    @property
    def in_flight(self) -> int:
        """Calls of the handler that run now."""
        return 0 if self._engine is None else len(self._engine.work.running)

    async def status(self) -> ProcessorStatus:
        """Return what it does, and how far its group is. Raises NotFound when its group was deleted."""
        group = await self._db.read(lambda tx: describe_group(tx, self.options.group))
        engine = self._engine
        tally = engine.tally if engine is not None else Counters()
        return ProcessorStatus(
            name=self.options.name,
            group=self.options.group,
            order=self.options.order.value,
            state=self._state(engine),
            lag_events=group.events,
            lag_bytes=group.bytes,
            lag_ms=group.age_ms,
            segments=0 if engine is None else len(engine.cells),
            in_flight=self.in_flight,
            waiting=0 if engine is None else engine.work.unfinished,
            finished=tally.finished,
            emitted=tally.emitted,
            failed_calls=tally.failed_calls,
            dead_letters=tally.dead_letters,
            skipped=tally.skipped,
            truncated=0 if engine is None else engine.truncated,
            restarts=tally.restarts,
            last_commit_ms=tally.last_commit_ms,
            last_error=tally.last_error,
            blocker=None if engine is None else self._blocker(engine),
            error=None if self.failure is None else str(self.failure),
        )


class Running:
    """An app that runs; given by `ep.run(app)`, whose block's end drains it."""

    def __init__(self, db: Database, parts: Mapping[str, ProcessorRun]) -> None:
        self._db = db
        self._parts = parts
        self._draining = anyio.CancelScope(shield=True)

    async def status(self) -> list[ProcessorStatus]:
        """Return the status of each processor, in the order of their declaration."""
        return [await part.status() for part in self._parts.values()]

    async def pause(self, name: str) -> None:
        """Pause a processor durably, in all processes: calls that run end, no other begins. Raises NotFound."""
        await self._set_paused(name, paused=True)

    async def resume(self, name: str) -> None:
        """Take back `pause`. Raises NotFound."""
        await self._set_paused(name, paused=False)

    async def _set_paused(self, name: str, *, paused: bool) -> None:
        group = self._part(name).options.group
        await self._db.write(lambda tx: set_paused(tx, group, paused))

    async def wait(self) -> None:
        """Return when all processors were stopped. Raises ProcessorFailed as soon as one failed."""
        async with self._until_failure():
            for part in self._parts.values():
                await part.ended.wait()

    @asynccontextmanager
    async def _until_failure(self) -> AsyncIterator[None]:
        """End the block as soon as a processor failed. Raises ProcessorFailed at its end if one did."""
        async with BackgroundTasks() as tasks:

            async def watch(part: ProcessorRun) -> None:
                await part.ended.wait()
                if part.failure is not None:
                    tasks.cancel()

            for part in self._parts.values():
                tasks.start_soon(watch, part)
            yield
        self.raise_failure()

    async def wait_idle(self, *, timeout_ms: int | None = None) -> None:
        """Return when nothing is left to process in the groups of the app, durably: lag 0 at one moment of each.

        Raises TimeoutError, InvalidArgument, and ProcessorFailed when a processor failed, also of a stream that was
        made again. Cost while waiting: a look when progress was made durable, and one a second.
        """
        if timeout_ms is not None:
            timeout_ms = check_int("timeout_ms", timeout_ms, least=0, unit="ms")
        with anyio.fail_after(None if timeout_ms is None else timeout_ms / 1000):
            async with self._until_failure():
                for part in self._parts.values():
                    await self._wait_idle(part.options)

    async def _wait_idle(self, processor: Options) -> None:
        group = processor.group

        def is_idle(tx: Tx) -> bool:
            _verify_names(tx, processor)
            return not describe_group(tx, group).events

        with self._db.subscribe([watch_group(group), watch_progress(group)]) as changes:
            while not await self._db.read(is_idle):
                await anyio.sleep(IDLE_LOOK_MS / 1000)
                await changes.wait(IDLE_NET_MS)

    @property
    def in_flight(self) -> int:
        """Calls of handlers that run now."""
        return sum(part.in_flight for part in self._parts.values())

    async def stop(self, *, grace_ms: int = GRACE_MS) -> None:
        """Drain every processor; what still runs after the grace period is left to the end of the block.

        Raises InvalidArgument.
        """
        grace_ms = check_int("grace_ms", grace_ms, least=0, unit="ms")
        with anyio.move_on_after(grace_ms / 1000):
            async with anyio.create_task_group() as tasks:
                for part in self._parts.values():
                    tasks.start_soon(part.stop)

    async def _drain(self, grace_ms: int) -> None:
        """Stop, whoever cancels this task; `cut` alone ends it before the grace period does."""
        LOG.info("draining, for %g s at most", grace_ms / 1000)
        with self._draining:
            await self.stop(grace_ms=grace_ms)

    def cut(self) -> None:
        """End the draining of the block's end, now or once it begins: what runs then is cancelled."""
        self._draining.cancel()

    def raise_failure(self) -> None:
        """Raise ProcessorFailed if a processor failed: the first, from what it failed of."""
        for name, part in self._parts.items():
            if isinstance(part.failure, ProcessorFailed):
                raise part.failure
            if part.failure is not None:
                raise ProcessorFailed(processor=name, reason=str(part.failure)) from part.failure

    def _part(self, name: str) -> ProcessorRun:
        if name not in self._parts:
            raise NotFound(kind="processor", name=name)
        return self._parts[name]


@asynccontextmanager
async def run_app(db: Database, app: App, *, grace_ms: int = GRACE_MS) -> AsyncIterator[Running]:
    """Run the app's processors while the block does; its end drains them. See `Eventproc.run`."""
    await db.write(lambda tx: _set_up(tx, app))
    unique = new_id(db.clock)[-12:]
    parts = {
        each.options.name: ProcessorRun(db, each, f"{each.options.name}-{os.getpid()}-{unique}")
        for each in app.processors
    }
    running = Running(db, parts)
    LOG.info("running %s", "; ".join(each.options.summary for each in app.processors))
    async with BackgroundTasks() as tasks:
        for part in parts.values():
            tasks.start_soon(part.run)
        try:
            yield running
        finally:
            try:
                await running._drain(grace_ms)
            finally:  # a second interrupt may come anywhere in it, and nothing else ends a part
                for part in parts.values():
                    part.cancel()
    running.raise_failure()


def _set_up(tx: Tx, app: App) -> None:
    for each in app.processors:
        options = each.options
        try:
            ensure_group(tx, options.group, options.streams, options.start)
        except GroupStreamReplaced:
            # An app names its streams: the one that has the name now is meant.
            for name in adopt_recreated_streams(tx, options.group):
                tx.after(
                    partial(
                        LOG.warning, "%s: %s was made again; reading it from its head", options.group, name
                    )
                )
            ensure_group(tx, options.group, options.streams, options.start)
        if options.on_failure is OnFailure.DEAD_LETTER:
            verify_letter_stream(tx, options.group, options.dead_letters, options.streams)
    for setup in app.setups:
        with tx.user_sql():
            setup(AppTx(tx))


def _verify_names(tx: Tx, processor: Options) -> None:
    """Raise ProcessorFailed when a stream was made again; one that is only gone has nothing to read."""
    try:
        verify_streams(tx, get_group(tx, processor.group), may_be_gone=True)
    except GroupStreamReplaced as why:
        reason = f"{why.stream} was deleted and made again; run the app again to read it from its head"
        raise ProcessorFailed(processor=processor.name, reason=reason) from why


def _first(group: BaseException) -> BaseException:
    """Return the first error of a group of groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group
