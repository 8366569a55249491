"""The worker of a share group in one process: it holds events, calls the handler, and makes their results durable.

One transaction accepts what is finished, and appends what was emitted for it, its dead letters and the user's SQL; it
leaves out events that this process no longer holds. A failing event is released until its next attempt is due, so that
it holds up nothing. Its attempts are its deliveries: they are counted over all processes.

After a crash: other workers get the events that were held, with one attempt counted, and nothing that was emitted for
them was visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio
import attrs

from eventproc.base.counts import counted
from eventproc.base.tasks import run_uninterrupted
from eventproc.groups.liveness import LOCAL_MEMBERSHIPS
from eventproc.jobs.consumer import HeldDelivery, WorkerConsumer
from eventproc.jobs.jobs import encoded_result
from eventproc.jobs.rates import admit, calls_and_wait
from eventproc.processors.context import NoteProgress
from eventproc.processors.dead_letters.operations import append_letters
from eventproc.processors.emit import append_emissions
from eventproc.processors.engine.committer import Committer, Outbox
from eventproc.processors.engine.handling import LOG, HandlerEngine
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.states import NOTHING_LEFT, Left
from eventproc.processors.errors import failure_text
from eventproc.processors.handler import Handler
from eventproc.processors.observe.status import Counters
from eventproc.processors.observe.telemetry import NOTHING, Telemetry
from eventproc.processors.options import Options, ProcessorLimits
from eventproc.processors.retry import retry_transient
from eventproc.processors.run import ProcessorRun
from eventproc.shares import Delivery
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import delete_member, get_group, insert_member, watch_group, write_status
from eventproc.store.jobs import (
    begin_jobs,
    cancelled_jobs,
    discard_jobs,
    end_jobs,
    fail_jobs,
    forget_free,
    free_jobs,
    note_progress,
    watch_cancelled,
)
from eventproc.store.model.deliveries import Settlement
from eventproc.store.model.errors import EventprocError, Retryable
from eventproc.store.segments import Event

AHEAD_EVENTS_MAX: Final = 1_000
"""Events that a worker holds for handlers that are quick. Higher: fewer transactions; more events wait here while other
processes have none."""

QUICK_MS: Final = 100
"""Events that were handled faster than this are followed by twice as many, to AHEAD_EVENTS_MAX. Lower: more
transactions for quick handlers."""

SLOW_MS: Final = 1_000
"""Events that took longer are followed by half as many. Higher: they wait here for longer."""

RELEASE_STEP_MS: Final = 10
"""The pause before the next attempt is rounded up to these, and a long one by a sixteenth at most, so that one change
releases many events. Lower: more changes, each of which reads all that this process holds."""

RENEWALS: Final = 3
"""How often a lock is renewed in its time. Higher: more writes; lower: a busy machine loses locks sooner."""

ENDED_MS: Final = 1_000
"""Pause between two looks at streams that are sealed and handled to their ends: a redrive adds a stream."""

FORGET_MS: Final = 60_000
"""Pause between two removals of rows of rates that say nothing any more."""


@attrs.frozen
class JobCommit:
    """What one transaction makes durable.

    accepted: finished events. released: {pause in ms: failed events}. progress: {event of a job: from 0 to 1}.
    """

    accepted: Sequence[HeldDelivery]
    released: Mapping[int, Sequence[HeldDelivery]]
    progress: Mapping[HeldDelivery, float]
    outbox: Outbox[HeldDelivery]
    finished: int

    def __bool__(self) -> bool:
        return bool(self.accepted or self.released or self.progress)

    @property
    def streams(self) -> None:
        """It may change anything."""
        return


class JobCommitter(Committer[HeldDelivery, JobCommit]):
    """Commits finished events of a share group.

    accepted, released, progress: what waits for the next commit, as in `JobCommit`. `progress` is one object: running
        calls have it, also on threads.
    """

    def __init__(
        self,
        db: Database,
        options: Options,
        consumer: WorkerConsumer,
        counters: Counters,
        measure: Telemetry,
        *,
        ended: Callable[[], None],
        write_status: Callable[[Tx, str], None],
    ) -> None:
        super().__init__(db, options, counters, measure, ended=ended, write_status=write_status)
        self.accepted: list[HeldDelivery] = []
        self.released: dict[int, list[HeldDelivery]] = {}
        self.progress: dict[HeldDelivery, float] = {}
        self._consumer = consumer

    def accept(self, held: HeldDelivery) -> None:
        """Accept an event with the next commit, soon."""
        self.accepted.append(held)
        self._came_bytes += len(held.result or b"")
        self.ask()

    def _take(self) -> JobCommit:
        progress = {held: self.progress.pop(held) for held in list(self.progress)}
        commit = JobCommit(self.accepted, self.released, progress, self.outbox, self._counters.finished)
        self.accepted, self.released, self.outbox = [], {}, Outbox()
        return commit

    def _put_back(self, commit: JobCommit) -> None:
        super()._put_back(commit)
        self.accepted = [*commit.accepted, *self.accepted]
        for pause_ms, held in commit.released.items():
            self.released.setdefault(pause_ms, []).extend(held)
        for each, part in commit.progress.items():
            self.progress.setdefault(each, part)

    def publish(self, tx: Tx, commit: JobCommit) -> None:
        """See `Committer.publish`. What this process no longer holds is left out. Raises as `append_emissions`, too."""
        everything = [*commit.accepted, *(each for held in commit.released.values() for each in held)]
        held = self._consumer.still_held(tx, [*everything, *commit.progress])
        options = self._options
        jobs = [each.job for each in held if each.job is not None]
        cancelled = cancelled_jobs(tx, options.group, jobs) if jobs else set()
        outbox = commit.outbox.of({each for each in held if each.job is None or each.job not in cancelled})
        append_emissions(tx, outbox.emissions)
        append_letters(tx, options.group, options.dead_letters, [letter for _, letter in outbox.letters])
        self._run_user_sql(tx, outbox)
        # Before its release, which may make an event a dead letter: then its job has failed.
        self._note_jobs(tx, commit, held, cancelled)
        self._consumer.settle_in(tx, Settlement.ACCEPT, [each for each in commit.accepted if each in held])
        for pause_ms, released in commit.released.items():
            still = [each for each in released if each in held]
            for each in self._at_their_last(tx, still):
                self._consumer.settle_in(tx, Settlement.RELEASE, [each], error=each.error or "")
                still.remove(each)
            self._consumer.settle_in(tx, Settlement.RELEASE, still, delay_ms=pause_ms)
        if lost := sum(each not in held for each in everything):
            tx.after(partial(self._warn, lost))

    def _at_their_last(self, tx: Tx, failed: Sequence[HeldDelivery]) -> list[HeldDelivery]:
        """Return those whose last delivery this is since an update of the group: a release makes them dead letters."""
        if not failed:
            return []
        most = get_group(tx, self._options.group, share=True).share.deliveries_max
        return [each for each in failed if each.deliveries >= most]

    def _note_jobs(self, tx: Tx, commit: JobCommit, held: set[HeldDelivery], cancelled: set[str]) -> None:
        group = self._options.group
        if cancelled:
            accepted = {each.job for each in commit.accepted if each.job is not None and each in held}
            discard_jobs(tx, group, accepted & cancelled)
        going_on = ((each.job, part) for each, part in commit.progress.items() if each in held)
        note_progress(tx, group, {job: part for job, part in going_on if job is not None})
        done: dict[str, bytes | None] = {}
        given_up: dict[str, tuple[str, int]] = {}
        for each in commit.accepted:
            if each.job is not None and each in held:
                if each.has_result:
                    done[each.job] = each.result
                else:  # also of a dead letter, which has the error without its class
                    given_up[each.job] = each.error or "", each.deliveries
        end_jobs(tx, group, done)
        fail_jobs(tx, group, given_up)
        waiting = (each for released in commit.released.values() for each in released if each in held)
        free_jobs(tx, group, {each.job: each.error for each in waiting if each.job is not None})

    def _warn(self, lost: int) -> None:
        LOG.warning(
            "%s: %s handled after the lock was lost; what was done here is discarded",
            *(self._options.label, f"{counted(lost, 'event')} {'was' if lost == 1 else 'were'}"),
        )

    def _note_durable(self, commit: JobCommit) -> None:
        if self._measure is not NOTHING:
            streams = Counter(each.event.stream for each in commit.accepted)
            for stream, count in streams.items():
                self._measure.finished(stream, count)
        for each, _ in commit.outbox.letters:
            self._measure.dead_lettered(each.event.stream, 1)


class WorkerEngine(HandlerEngine[JobCommitter]):
    """Runs the worker of a share group; call `run` once."""

    def __init__(
        self,
        db: Database,
        options: Options,
        make: Callable[[], Handler],
        reader: str,
        limits: ProcessorLimits | None = None,
    ) -> None:
        """reader: its name as a member."""
        super().__init__(db, options, make, limits)
        assert options.worker is not None, "only workers have this engine"
        self._reader = reader
        self._rate = options.worker.limit
        self._share = options.worker.share
        self._lock_changed = anyio.Event()
        self._consumer = WorkerConsumer(db, options.group, options.name, self._admit)
        self._committer = JobCommitter(
            db,
            options,
            self._consumer,
            self.counters,
            self.measure,
            ended=self._commit_ended,
            write_status=self.write_status,
        )
        self._paused = False
        self._cancellations = 0  # how often somebody has cancelled jobs
        self._room = anyio.Event()

    @property
    def paused(self) -> bool:
        """Whether the worker is paused in all processes."""
        return self._paused

    @property
    def owned_segments(self) -> int:
        """None: segments are shared."""
        return 0

    def write_status(self, tx: Tx, text: str) -> None:
        """See `HandlerEngine.write_status`."""
        write_status(tx, self.options.group, self._reader, 0, text)

    async def run(self) -> None:
        """See `HandlerEngine.run`. Raises NotFound if the share group was deleted, too."""
        async with self._consumer:
            await super().run()

    def _parts(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        return self._follow, self._follow_cancelled, self._get, self._committer.run, self._renew

    def _wake_short(self) -> None:
        self._room.set()

    _wake_reader = _wake_short

    # Results of calls (`CallListener`).

    def finished(self, item: Item, handled: Event[Any], left: Left) -> None:
        """See `CallListener.finished`."""
        held = _held(item)
        if held.closing:  # it was cancelled, or is somebody else's
            return
        held.has_result = True
        if left is not NOTHING_LEFT:
            self._committer.leave(held, item[0], left)
        if self.options.on_commit is not None:
            self._committer.outbox.handled.append((held, handled))
        self._finish(item)

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.failed`. Of its last delivery, the group's limit may be lower than the worker's by now."""
        held = _held(item)
        if held.deliveries < self._share.deliveries_max:
            super().failed(item, error, attempt)
            held.error = failure_text(error)
        else:
            self.spent(item, error, attempt)
            held.closing = True

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """See `CallListener.spent`."""
        if not _held(item).closing:  # else it was cancelled, or is somebody else's
            super().spent(item, error, attempt)

    def _give_up(self, item: Item, error: Exception, attempt: int) -> None:
        super()._give_up(item, error, attempt)
        _held(item).error = failure_text(error)

    def progress_for(self, item: Item) -> NoteProgress | None:
        """See `CallListener.progress_for`."""
        held = _held(item)
        return None if held.job is None else partial(self._committer.progress.__setitem__, held)

    def returned(self, item: Item, result: object) -> None:
        """See `CallListener.returned`: it is the result of the job. Raises InvalidArgument."""
        held = _held(item)
        if held.job is not None:
            held.result = encoded_result(result)

    def _finish(self, item: Item) -> None:
        self._committer.accept(_held(item))
        self.counters.finished += 1
        self._hold_if_behind()

    def set_aside(self, item: Item, pause_ms: int) -> bool:
        """See `CallListener.set_aside`: any worker makes the next attempt, once it is due."""
        held = _held(item)
        if not held.closing:  # else it was cancelled, or is somebody else's
            step_ms = max(RELEASE_STEP_MS, 1 << max(pause_ms.bit_length() - 5, 0))
            pause_ms = -(-pause_ms // step_ms) * step_ms
            self._committer.released.setdefault(pause_ms, []).append(held)
            self._committer.ask()
        return True

    # Getting events.

    async def _follow(self) -> None:
        """Begin no call while the worker is paused, and follow the options of its group."""
        look = partial(get_group, name=self.options.group, share=True)
        what = f"looking at the group of {self.options.label}"
        with self._db.subscribe([watch_group(self.options.group)]) as changes:
            while True:
                found = await retry_transient(partial(self._db.read, look), what, self._db.clock, LOG)
                self._paused, before, self._share = found.paused, self._share, found.share
                if self._share.lock_ms != before.lock_ms:
                    self._lock_changed.set()
                if self._paused:
                    self.pool.block("paused")
                else:
                    self.pool.unblock("paused")
                await changes.wait()

    async def _get(self) -> None:
        """Hold as many events as handlers soon have time for."""
        queues, clock = self.pool.queues, self._db.clock
        what = f"acquiring events for {self.options.label}"
        most = least = self.options.concurrency
        while not self._stopping:
            handed_ms = clock.monotonic_ms()
            while queues.unfinished >= least and queues.unfinished > most // 2 and not self._stopping:
                self._room = anyio.Event()
                await self._room.wait()
            took_ms = clock.monotonic_ms() - handed_ms
            if took_ms > SLOW_MS:
                most = max(least, most // 2)
            asked = await self._admitted(max(most - queues.unfinished, 1))
            poll, before = partial(self._consumer.poll_held, asked), self._cancellations
            if not (found := await retry_transient(poll, what, clock, LOG)):
                await anyio.sleep(ENDED_MS / 1_000)
                continue
            if took_ms < QUICK_MS and len(found) == asked:
                most = max(min(2 * most, AHEAD_EVENTS_MAX), least)
            queues.put([(each.event, each) for each in found])
            self.pool.wake()
            if self._cancellations != before:  # perhaps of jobs whose events were on their way
                await self._end_cancelled()

    async def _admitted(self, wanted: int) -> int:
        """Return how many events to ask for, once a call may begin: what exceeds a rate would only be set aside."""
        if self._rate is None or self._rate.key is not None:
            return wanted
        look = partial(calls_and_wait, group=self.options.group, rate=self._rate, calls=wanted)
        what = f"looking at the rate of {self.options.label}"
        while True:
            calls, wait_ms = await retry_transient(partial(self._db.read, look), what, self._db.clock, LOG)
            if calls:
                return calls
            await anyio.sleep(max(wait_ms, RELEASE_STEP_MS) / 1_000)

    async def _follow_cancelled(self) -> None:
        """Cancel the calls of jobs that somebody cancels."""
        with self._db.subscribe([watch_cancelled(self.options.group)]) as changes:
            while True:
                await changes.wait()
                self._cancellations += 1
                await self._end_cancelled()

    async def _end_cancelled(self) -> None:
        """Accept the events in hand whose jobs are cancelled, and cancel their calls."""
        jobs = [each.job for each in self._in_hand() if each.job is not None]
        if not jobs:
            return
        look = partial(cancelled_jobs, group=self.options.group, jobs=jobs)
        what = f"looking for cancelled jobs of {self.options.label}"
        cancelled = await retry_transient(partial(self._db.read, look), what, self._db.clock, LOG)
        for each in self._in_hand():  # not those whose calls have ended since
            if each.job in cancelled and not each.closing:
                each.closing = True
                self._calls.cancel(each)
                self._committer.accept(each)

    def _in_hand(self) -> list[HeldDelivery]:
        """Return the events whose calls run, or have not begun."""
        running = [item for worker in self.pool.running for item in worker.items]
        return [*map(_held, running), *map(_held, self.pool.queues.waiting())]

    def _admit(self, tx: Tx, deliveries: Sequence[Delivery[Any]]) -> dict[Delivery[Any], int | None]:
        """See `Admit`: cancelled jobs are finished, and what exceeds the rate waits."""
        group = self.options.group
        jobs = {each: job for each in deliveries if (job := each.job) is not None}
        cancelled = cancelled_jobs(tx, group, jobs.values()) if jobs else set()
        others: dict[Delivery[Any], int | None] = {
            each: None for each, job in jobs.items() if job in cancelled
        }
        discard_jobs(tx, group, cancelled)
        if self._rate is not None:
            left = [each for each in deliveries if each not in others]
            others.update(admit(tx, group, self._rate, left, self._calls.handler.decoded))
        if begun := {job: each.deliveries for each, job in jobs.items() if each not in others}:
            begin_jobs(tx, group, begun)
        return others

    async def _renew(self) -> None:
        """Keep the locks of the events whose calls run, and return those that have waited here for too long."""
        clock = self._db.clock
        forgotten_ms = clock.monotonic_ms()
        while True:
            self._lock_changed = anyio.Event()
            pause_ms = self._share.lock_ms // RENEWALS
            with anyio.move_on_after(pause_ms / 1_000):
                await self._lock_changed.wait()
            now_ms = clock.monotonic_ms()
            waited = [
                each
                for each in map(_held, self.pool.queues.waiting())
                if now_ms - each.since_ms > pause_ms and not each.closing
            ]
            for each in waited:
                each.closing = True
            running = [_held(item) for worker in self.pool.running for item in worker.items]
            forgets = self._rate is not None and now_ms - forgotten_ms > FORGET_MS
            if forgets:
                forgotten_ms = now_ms
            step = partial(self._renew_in, running=running, waited=waited, forgets=forgets)
            what = f"renewing the locks of {self.options.label}"
            write = partial(self._db.write, step, step=Step.SHARE_SETTLE)
            for each in await retry_transient(write, what, clock, LOG):
                each.closing = True
                self._calls.cancel(each)
            self._wake_short()

    def _renew_in(
        self, tx: Tx, running: Sequence[HeldDelivery], waited: Sequence[HeldDelivery], forgets: bool
    ) -> list[HeldDelivery]:
        """Return the running ones that somebody else may hold now."""
        still = self._consumer.still_held(tx, [*running, *waited])
        for how, held in ((Settlement.RENEW, running), (Settlement.RETURN, waited)):
            self._consumer.settle_in(tx, how, [each for each in held if each in still])
        if forgets:
            forget_free(tx, self.options.group)
        return [each for each in running if each not in still]

    async def _wind_up(self) -> None:
        await self.save()
        try:  # before the handler's `stop`, which may take all the time that is left
            await self._consumer.return_held()
        except EventprocError as why:
            LOG.warning("%s: what it holds is free when its locks end: %s", self.options.label, why)
        await self._stop_handler()


def _held(item: Item) -> HeldDelivery:
    assert isinstance(item[1], HeldDelivery), "a worker has the events of a share group"
    return item[1]


class WorkerRun(ProcessorRun):
    """One worker of a running app, in this process. Its row among the members is for people: it owns nothing."""

    async def _join(self) -> None:
        await self._db.write(self._come, step=Step.GROUP_JOIN)
        try:
            if not self._stopping:
                engine = WorkerEngine(
                    self._db, self.options, self._processor.make, self._reader, self._limits
                )
                await self._run_engine(engine)
        finally:
            await run_uninterrupted(self._leave)

    def _come(self, tx: Tx) -> None:
        group, instance = get_group(tx, self.options.group, share=True).name, self._db.instance_id
        delete_member(tx, group, self._reader)  # the server was away, and this process is still there
        insert_member(tx, group, self._reader, instance=instance, epoch=0, joined_ms=tx.now_ms)

    async def _leave(self) -> None:
        leave = partial(delete_member, group=self.options.group, reader=self._reader)

        async def leave_later() -> None:
            if self.ended.is_set():  # else it has come again
                await self._db.write(leave, step=Step.GROUP_LEAVE)

        try:
            await self._db.write(leave, step=Step.GROUP_LEAVE)
        except EventprocError as why:
            LOG.warning("%s failed to leave its group: %s", self.options.label, why)
            if isinstance(why, Retryable):  # else the host removes the row once this process has ended
                self._db.shared[LOCAL_MEMBERSHIPS].leave_later(leave_later)
