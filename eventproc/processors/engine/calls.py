"""The calls of one processor's handler: what a worker does with a queue, retries, and timeouts.

A worker takes a queue and calls the handler for its events, one by one, on a thread, or as a batch; that is a turn. A
turn finishes each event whose call returned and stops at the first call that fails. A failed call parks its queue until
the retry is due. A watch cancels calls that overrun their timeout. While a call runs, `Worker.items` are its events; a
turn that is cancelled leaves them there, so that the canceller knows which call it hit.

An event of a handler that never waits costs one call and some bookkeeping, about a microsecond.

A handler on a thread cannot be interrupted. If it overruns its timeout the processor stops with HandlerStuck: going on
could run two calls for one key at the same time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice, repeat, takewhile
from threading import get_ident
from typing import Any, Final, Protocol, cast

import anyio
import anyio.to_thread
import attrs

from eventproc.base.clock import Clock
from eventproc.base.conventions import TRACEPARENT
from eventproc.processors.context import Context, Log, NoteProgress
from eventproc.processors.engine.key_queues import (
    EventClaim,
    Item,
    KeyQueue,
    RetryState,
    describe_event,
)
from eventproc.processors.engine.states import NOTHING_LEFT, CachedState, FiredTimer, KeyStateCache, Left
from eventproc.processors.engine.workers import Worker, WorkerPool
from eventproc.processors.errors import (
    EventLate,
    HandlerCancelled,
    HandlerStuck,
    HandlerTimeout,
    KeyNeeded,
    PayloadUndecodable,
    failure_text,
)
from eventproc.processors.handler import Handler
from eventproc.processors.observe.call_durations import CallMeter
from eventproc.processors.observe.telemetry import NOTHING, Telemetry
from eventproc.processors.options import Options
from eventproc.processors.timers import TimerEvent
from eventproc.processors.tracebacks import user_stack
from eventproc.store.segments import Event

LOG = logging.getLogger("eventproc.processors")

EVENTS_A_TURN: Final = 64
"""Events that a worker handles between two scheduling points, and of one queue before other queues get their turn."""


class CallListener(Protocol):
    """Learns the results of calls. Called on the event loop; must not wait."""

    def returned(self, item: Item, result: object) -> None:
        """Note what a call for one event returned, if that is not None. An error that it raises is one of the call.

        May be called on any thread.
        """
        ...

    def finished(self, item: Item, handled: Event[Any], left: Left) -> None:
        """Note that a call returned. handled: the event as the handler got it, its payload decoded."""
        ...

    def left_by_batch(self, items: Sequence[Item], left: Left) -> None:
        """Note what a call for a batch left, whose events are noted as finished now."""
        ...

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        """Note that a call failed and will be retried."""
        ...

    def set_aside(self, item: Item, pause_ms: int) -> bool:
        """Return whether the listener takes a failed event back: it is handled again later, here or elsewhere."""
        ...

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """Note that the last attempt failed: the event is finished now, unless this raises to stop the processor."""
        ...

    def progress_for(self, item: Item) -> NoteProgress | None:
        """Return what takes the progress of a call; None if nobody asks for it."""
        ...

    def log_for(self, item: Item, attempt: int) -> Log:
        """Return the logger of one call; may be called on any thread."""
        ...


@attrs.frozen
class FailedCall:
    """A call that failed.

    counts: how many events of each queue of the turn it had.
    """

    error: Exception
    counts: Sequence[int] = (1,)


class Calls:
    """Runs the workers of `pool`, which call the handler.

    handler: set before the first worker begins, and replaced only while no call runs.
    """

    handler: Handler

    def __init__(
        self,
        options: Options,
        pool: WorkerPool,
        listener: CallListener,
        clock: Clock,
        measure: Telemetry = NOTHING,
        states: KeyStateCache | None = None,
        meter: CallMeter | None = None,
    ) -> None:
        """states: the states of the keys of events; None: the handler takes none. meter: measures the calls."""
        self._states = states
        self._meter = meter or CallMeter()
        self._options = options
        self._pool = pool
        self._queues = pool.queues
        self._blocked_by = pool.blocked_by
        self._listener = listener
        self._clock = clock
        self._measure = measure
        self._limiter: anyio.CapacityLimiter | None = None  # needs a running loop: created at its first use
        self._parked = anyio.Event()

    async def run(self) -> None:
        """Work until cancelled.

        Raises, in a group, HandlerStuck and whatever `CallListener.spent` raises to stop the processor.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while (worker := await self._pool.vacancy()) is not None:
                tasks.start_soon(self._serve, worker)

    def cancel(self, owned: EventClaim) -> None:
        """Cancel the calls that run for events of `owned`, which was lost to somebody else.

        Calls on threads are not cancelled, for they would go on: their keys are held until they end.
        """
        if self.handler.is_sync:
            return
        for worker in self._pool.running:
            if any(in_flight.owned is owned for _, in_flight in worker.items):
                worker.scope.cancel()

    async def _serve(self, worker: Worker) -> None:
        pool, queues = self._pool, self._queues
        pool.begin()
        while True:
            await pool.wait_ready()
            taken = [queues.take()]
            pool.wake()
            failed: FailedCall | None = None
            interrupted: BaseException | None = None  # where the handler was when it was cancelled
            measured = None if self._measure is NOTHING else (_stream_of(taken[0]), pool.now_ms())
            try:
                with anyio.CancelScope() as worker.scope:
                    try:
                        failed = await self._turn(worker, taken)
                    except BaseException as why:
                        interrupted = why
                        if isinstance(why, anyio.get_cancelled_exc_class()):
                            self._note_thread(worker)
                        raise
                if worker.overdue is not None and worker.overdue is worker.items:  # this call, not the next
                    assert self._options.timeout_ms is not None, "only a timeout makes a call overdue"
                    late = HandlerTimeout(processor=self._options.name, timeout_ms=self._options.timeout_ms)
                    late.__cause__ = interrupted
                    failed = failed or FailedCall(late, _counts(worker, taken))
            except anyio.get_cancelled_exc_class() as why:
                if anyio.current_effective_deadline() == -math.inf:
                    raise
                # This task was not cancelled: if the error went on, it would end all workers silently.
                failed = self._cancelled(why, _counts(worker, taken))
            finally:
                worker.items, worker.overdue, interrupted = (), None, None
            if measured is not None:
                stream, began_ms = measured
                self._measure.handled(stream, (pool.now_ms() - began_ms) / 1000)
            self._give_back(taken, failed, worker)
            pool.notify()
            if queues:  # otherwise waiting for more events is the scheduling point
                await anyio.lowlevel.checkpoint()

    def _note_thread(self, worker: Worker) -> None:
        """Say so if a call that is cancelled goes on. One that is overdue stops the processor, which says so."""
        if self.handler.is_sync and worker.items and worker.overdue is None:
            LOG.warning(
                "%s: the call for %s was cancelled and goes on, because nothing can interrupt its thread; "
                "its event will be handled again",
                self._options.label,
                describe_event(worker.items[0][0]),
            )

    # One turn.

    async def _turn(self, worker: Worker, taken: list[KeyQueue]) -> FailedCall | None:
        if self._options.batching is not None:
            return await self._run_batch(worker, taken)
        if self.handler.is_sync:
            return await self._run_on_thread(worker, taken[0])
        return await self._run_events(worker, taken)

    async def _run_events(self, worker: Worker, taken: list[KeyQueue]) -> FailedCall | None:
        """Call an async handler for one event after the other, of one queue after the other.

        taken: has the present queue at the end. Several queues share a turn, because its overhead is what an event
        costs.
        """
        handler, blocked_by, now_ms, queue = self.handler, self._blocked_by, self._pool.now_ms, taken[0]
        call, states, traces = handler.call, self._states, self._measure.traces
        is_plain = handler.decode is None and not handler.takes_context and states is None
        count, since_ms = 0, 0  # calls that no meter has, and when the last one began
        last: Event[Any] | None = None  # that was finished
        try:
            for _ in range(EVENTS_A_TURN):
                if blocked_by.active:
                    break
                if not queue.items and not self._queues.refill(queue):
                    self._queues.give_back(taken.pop())
                    if not self._queues:
                        break
                    queue = self._queues.take()
                    taken.append(queue)
                item = queue.items[0]
                if item[1].owned.closing:
                    self._drop_closing(queue)
                    continue
                if states is not None and not states.has(item):
                    if count:
                        self._note(count, since_ms, last)
                        count = 0
                    await states.load((item,))
                    continue
                began_ms = now_ms()
                if began_ms != since_ms:
                    if count:
                        self._note(count, since_ms, last)
                        count = 0
                    since_ms = began_ms
                count += 1
                worker.items, worker.since_ms, worker.retry = (item,), began_ms, queue.retry
                worker.attempt = attempt = queue.next_attempt if queue.attempt or queue.alone else 1
                event: Event[Any] = item[0]
                try:
                    if is_plain and (traces is None or TRACEPARENT not in event.headers):
                        result: object = await call(event)  # type: ignore[misc]
                        left = NOTHING_LEFT
                        if result is not None:
                            self._listener.returned(item, result)
                    else:
                        event, left = await self._call(item, attempt)
                except Exception as error:
                    return FailedCall(error)
                worker.items, last = (), item[0]
                self._finish(queue, event, left)
        finally:
            if count:
                self._note(count, since_ms, last)
        return None

    def _note(self, count: int, began_ms: int, last: Event[Any] | None) -> None:
        """Count calls that began at the same time; the last one has ended. last: the last event that was finished."""
        now_ms = self._pool.now_ms()
        self._meter.note(count, now_ms - began_ms, now_ms)
        if last is not None:
            self._meter.finished(last)

    async def _call(self, item: Item, attempt: int) -> tuple[Event[Any], Left]:
        """Call an async handler; return the event as it got it, and what it left."""
        cached = None if self._states is None else self._states.find(item)
        given = self._given(item, attempt, cached)
        if given is None:
            return item[0], NOTHING_LEFT
        call, measure = self.handler.function_for(item[0]), self._measure
        if measure.traces is None:
            result: object = await call(*given)  # type: ignore[misc]
        else:
            with measure.processing(given[:1], self._attempts(item, attempt)):
                result = await call(*given)  # type: ignore[misc]
        return given[0], self._left(item, given, cached, result)

    def _given(self, item: Item, attempt: int, cached: CachedState | None) -> tuple[Any, ...] | None:
        """Return what the handler gets: the event, the state, the context; None for a timer that is not due any more.

        May run on a thread. Raises PayloadUndecodable, KeyNeeded.
        """
        event = item[0]
        if cached is None:
            if self._states is not None:
                raise KeyNeeded(processor=self._options.name)
            event = self.handler.decoded(event)
            context = self._context(item, attempt)
            return (event,) if context is None else (event, context)
        assert self._states is not None, "a state is cached"
        if isinstance(event, TimerEvent):
            watermark_ms = self._states.watermark_ms
            if watermark_ms is None or not cached.is_due(watermark_ms):
                return None
            timer_ms, state = cached.timer_ms, cached.lend(self._clock)
            if cached.timer_ms is None:  # it has expired with the state
                return None
            cast("FiredTimer", item[1]).cached = cached
            event = event._replace(number=cached.changed_by, event_time=timer_ms, timestamp=watermark_ms)
            return (event, state, self._new_context(item, attempt))
        event, state = self.handler.decoded(event), cached.lend(self._clock)
        context = self._context(item, attempt)
        if context is None:
            return (event, state)
        context._timer_ms = cached.timer_ms
        return (event, state, context)

    def _left(self, item: Item, given: tuple[Any, ...], cached: CachedState | None, result: object) -> Left:
        """Return what a call that returned left. An error that this raises is one of the call. May run on a thread."""
        last = given[-1]
        context = last if isinstance(last, Context) else None
        kept, change = None, None
        if cached is not None:
            before = cached.data
            kept = cached.keep(
                given[0].number,
                given[1],
                result,
                self._clock,
                removes=context is not None and context._forgets,
                timer_ms=cached.timer_ms if context is None else context._timer_ms,
            )
            if kept is not None and kept.data != before:
                change = cached.as_emission(given[0].event_time)
        elif result is not None:
            self._listener.returned(item, result)
        emitted, tables = ((), ()) if context is None else (context._end(), context._tables)
        if change is not None:
            emitted = (*emitted, change)
        return Left(emitted, kept, tables) if emitted or kept is not None or tables else NOTHING_LEFT

    async def _run_on_thread(self, worker: Worker, queue: KeyQueue) -> FailedCall | None:
        """Call a sync handler for several events in one visit to a thread; all are finished when it returns."""
        pool, blocked_by = self._pool, self._blocked_by
        # A worker of a share group gets one event: the locks of those behind a slow call would end.
        if queue.key is None and self._options.worker is None:
            share = self._queues.ready // len(pool.workers)
            queue.items.extend(self._queues.take_free(min(share, EVENTS_A_TURN - 1)))
        self._drop_closing(queue)
        items = list(islice(queue.items, EVENTS_A_TURN))
        states: Iterable[CachedState | None] = repeat(None)
        if self._states is not None:
            await self._states.load(items)
            # A segment may have begun to close meanwhile: its events, and those behind them, are not handled.
            items = list(takewhile(self._states.has, items))
            states = [self._states.find(item) for item in items]
        attempt, retry, handler, measure = queue.next_attempt, queue.retry, self.handler, self._measure
        done: list[tuple[Event[Any], Left]] = []
        moments_ms: list[int] = []

        def run() -> BaseException | None:
            worker.thread = get_ident()
            try:
                for item, cached in zip(items, states, strict=False):
                    if blocked_by.active or item[1].owned.closing:
                        break
                    worker.items, worker.since_ms = (item,), pool.now_ms()
                    moments_ms.append(worker.since_ms)
                    worker.attempt = 1 if done else attempt
                    worker.retry = None if done else retry
                    given = self._given(item, worker.attempt, cached)
                    if given is None:
                        done.append((item[0], NOTHING_LEFT))
                        continue
                    with measure.processing(given[:1], self._attempts(item, worker.attempt)):
                        result = handler.on_thread(*given)
                    done.append((given[0], self._left(item, given, cached, result)))
            except BaseException as error:
                return error
            finally:
                moments_ms.append(pool.now_ms())  # when the last call ended
            return None

        if not items or blocked_by.active:
            return None
        worker.items, worker.since_ms = tuple(items[:1]), pool.now_ms()
        error = await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._thread_limiter())
        worker.items = ()
        self._meter.note_moments(moments_ms)
        if done:
            self._meter.finished(items[len(done) - 1][0])
        for event, left in done:
            self._finish(queue, event, left)
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return self._cancelled(error)
        if error is None:
            return None
        if not isinstance(error, Exception):
            raise error
        return FailedCall(error)

    async def _run_batch(self, worker: Worker, taken: list[KeyQueue]) -> FailedCall | None:
        """Call a batch handler once. Takes more queues until they hold a batch. All events are finished, or none."""
        pool = self._pool
        counts = await self._collect(taken)
        pool.wake()  # queues were taken without waking the next worker
        items = [item for queue, n in zip(taken, counts, strict=True) for item in islice(queue.items, n)]
        if not items or self._blocked_by.active:
            return None
        worker.items, worker.since_ms, worker.retry = items, pool.now_ms(), taken[0].retry
        worker.attempt = taken[0].next_attempt
        handler, context = self.handler, self._context(items[0], taken[0].next_attempt)
        given = () if context is None else (context,)
        try:
            events = [handler.decoded(event) for event, _ in items]
            span = self._measure.processing(events, self._attempts(items[0], worker.attempt), is_batch=True)
            if handler.is_sync:
                limiter = self._thread_limiter()

                def run() -> None:
                    worker.thread = get_ident()
                    with span:
                        handler.on_thread(events, *given)

                await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter)
            else:
                with span:
                    await handler.call(events, *given)  # type: ignore[misc]
        except Exception as error:
            return FailedCall(error, counts)
        finally:
            self._note(1, worker.since_ms, None)
        worker.items = ()
        self._meter.finished(items[-1][0])
        handled = iter(events)
        for queue, n in zip(taken, counts, strict=True):
            for event in islice(handled, n):
                self._finish(queue, event, NOTHING_LEFT)
        if context is not None:
            left = Left(context._end(), None, context._tables)
            if left.emitted or left.tables:  # nothing was awaited since the call, so no commit came between
                self._listener.left_by_batch(items, left)
        return None

    async def _collect(self, taken: list[KeyQueue]) -> list[int]:
        """Take queues until they hold a batch, lingering if configured; return how many events of each belong to it."""
        pool, queues, batching = self._pool, self._queues, self._options.batching
        assert batching is not None, f"{self._options.name} takes one event at a time"
        counts = [self._available(taken[0], batching.size)]
        deadline = anyio.current_time() + batching.linger_ms / 1000
        if taken[0].attempt or taken[0].alone:
            return counts
        left, has_waited = batching.size - counts[0], False
        while left and not self._blocked_by.active:
            if not queues:
                if pool.draining or anyio.current_time() >= deadline:
                    break
                await pool.wait_ready(deadline)
                has_waited = True
                continue
            queue = queues.take()
            if queue.attempt or queue.alone:  # its first event is called alone, in a turn of its own
                queues.give_back(queue)
                break
            taken.append(queue)
            counts.append(self._available(queue, left))
            left -= counts[-1]
        if has_waited:  # meanwhile a segment may have closed, and been given to another reader
            counts = [self._available(queue, n) for queue, n in zip(taken, counts, strict=True)]
        return self._of_one_segment(taken, counts) if self._options.exactly_once else counts

    def _of_one_segment(self, taken: list[KeyQueue], counts: list[int]) -> list[int]:
        """Leave out events of another segment than the first: what a batch leaves is kept or lost with its segment."""
        pairs = list(zip(taken, counts, strict=True))
        only = next((queue.items[0][1].owned for queue, n in pairs if n), None)
        return [
            sum(1 for _ in takewhile(lambda item: item[1].owned is only, islice(queue.items, n)))
            for queue, n in pairs
        ]

    def _available(self, queue: KeyQueue, events_max: int) -> int:
        """Return how many events of the queue may be handled now, at most `events_max`."""
        self._drop_closing(queue)
        if queue.attempt or queue.alone:
            events_max = min(events_max, 1)
        count = 0
        for _, in_flight in islice(queue.items, events_max):
            if in_flight.owned.closing:
                break
            count += 1
        return count

    def _context(self, item: Item, attempt: int) -> Context | None:
        """Return the context of a call, if the handler takes one."""
        return self._new_context(item, attempt) if self.handler.takes_context else None

    def _new_context(self, item: Item, attempt: int) -> Context:
        attempt = self._attempts(item, attempt)
        log = partial(self._listener.log_for, item, attempt)
        has_timers = self._options.on_timer is not None
        return Context(
            attempt,
            log,
            self._listener.progress_for(item),
            self._measure.traces,
            keeps_state=self._states is not None,
            event_time=self._states if has_timers else None,
        )

    @staticmethod
    def _attempts(item: Item, attempt: int) -> int:
        """Return the number of a call for an event, counted with those of other processes."""
        return attempt + item[1].attempts_before

    def _cancelled(self, why: BaseException, counts: Sequence[int] = (1,)) -> FailedCall:
        """Return the failure of a call that ended as cancelled without being cancelled by eventproc."""
        error = HandlerCancelled(processor=self._options.name)
        error.__cause__ = why
        return FailedCall(error, counts)

    def _thread_limiter(self) -> anyio.CapacityLimiter:
        self._limiter = self._limiter or anyio.CapacityLimiter(len(self._pool.workers))
        return self._limiter

    # What becomes of the events of a turn.

    def _finish(self, queue: KeyQueue, handled: Event[Any], left: Left) -> None:
        """Note that the first event of the queue is finished. handled: that event, as the handler got it."""
        item = queue.pop()
        self._queues.unfinished -= 1
        self._listener.finished(item, handled, left)
        if self._pool.waiting:
            self._pool.notify()

    def _drop_closing(self, queue: KeyQueue) -> None:
        """Drop the first events of the queue as long as their segments are closing."""
        while queue.items and queue.items[0][1].owned.closing:
            queue.pop()
            self._queues.unfinished -= 1
            self._pool.notify()

    def _give_back(self, taken: Sequence[KeyQueue], failed: FailedCall | None, worker: Worker) -> None:
        """Return the queues of a turn; those of a failed call are parked, or lose their first event."""
        counts = failed.counts if failed is not None else ()
        for index, queue in enumerate(taken):
            if failed is None or index >= len(counts) or not counts[index]:
                self._queues.give_back(queue)
            elif sum(counts) > 1:
                queue.alone = counts[index]
                self._retry(queue, failed.error, worker, is_divided=True)
            else:
                self._fail(queue, failed.error, worker)

    def _fail(self, queue: KeyQueue, error: Exception, worker: Worker) -> None:
        """Note a failed call for the first event of the queue."""
        options, item = self._options, queue.items[0]
        queue.attempt += 1
        attempts = queue.next_attempt - 1 + item[1].attempts_before
        is_permanent = isinstance(error, (PayloadUndecodable, KeyNeeded, EventLate)) or options.publishes
        if is_permanent or options.retry.is_spent(attempts, error):
            self._listener.spent(item, error, attempts)
            self._drop_first(queue)
        else:
            self._retry(queue, error, worker)

    def _retry(self, queue: KeyQueue, error: Exception, worker: Worker, *, is_divided: bool = False) -> None:
        """Park the queue until its first event is called again. is_divided: a batch failed; its events come alone."""
        retry, item = self._options.retry, queue.items[0]
        before = item[1].attempts_before
        since_ms = worker.since_ms if queue.retry is None else queue.retry.since_ms
        queue.retry = RetryState(since_ms, failure_text(error))
        self._listener.failed(item, error, queue.next_attempt - 1 + before)
        pause_ms = retry.pause_ms(max(queue.attempt + before, 1), self._clock)
        if self._listener.set_aside(item, pause_ms):
            self._drop_first(queue)
            return
        if retry.frees_key and is_divided:  # nobody knows yet which event fails: the pause would hold its key
            pause_ms = 0
        elif retry.frees_key and queue.key is not None:
            queue = self._queues.set_aside(queue)
        self._queues.park(queue, self._pool.now_ms() + pause_ms)
        self._parked.set()

    def _drop_first(self, queue: KeyQueue) -> None:
        """Return a queue without its first event, which is finished, or somebody else's now."""
        queue.pop()
        self._queues.unfinished -= 1
        self._queues.give_back(queue)

    async def _watch(self) -> None:
        """Make queues ready whose retry is due, and end calls that overrun their timeout."""
        pool = self._pool
        while True:
            self._parked = anyio.Event()
            now_ms = pool.now_ms()
            due_ms = self._queues.unpark(now_ms)
            pool.wake()
            if (timeout_ms := self._options.timeout_ms) is not None:
                # A call that begins after this moment is due after the next look.
                next_ms = now_ms + timeout_ms
                for worker in pool.running:
                    if worker.since_ms + timeout_ms > now_ms:
                        next_ms = min(next_ms, worker.since_ms + timeout_ms)
                    elif worker.overdue is None:
                        self._overrun(worker, timeout_ms)
                due_ms = next_ms if due_ms is None else min(due_ms, next_ms)
            with anyio.move_on_after(None if due_ms is None else max(due_ms - now_ms, 1) / 1000):
                await self._parked.wait()

    def _overrun(self, worker: Worker, timeout_ms: int) -> None:
        if self.handler.is_sync:
            event = describe_event(worker.items[0][0])
            stuck = HandlerStuck(processor=self._options.name, event=event, timeout_ms=timeout_ms)
            if where := user_stack(worker.thread):
                stuck.add_note(where)
            raise stuck
        worker.overdue = worker.items
        worker.scope.cancel()


def _stream_of(queue: KeyQueue) -> str:
    event, _ = queue.items[0]
    return event.stream


def _counts(worker: Worker, taken: Sequence[KeyQueue]) -> list[int]:
    """Return how many events of each queue the cancelled call had; zeros if it had returned by then."""
    had = set(map(id, worker.items))
    return [sum(id(item) in had for item in queue.items) for queue in taken]
