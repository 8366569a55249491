"""The workers of one processor: which of them sleep, which have a call running, and the waits for that to change.

Workers are long-lived tasks. Each begins when one more is needed, sleeps while no event is ready, and is woken by the
one before it. `calls.py` says what a worker does with a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio
import attrs

from eventproc.processors.engine.key_queues import EventClaim, Item, KeyQueues, RetryState
from eventproc.processors.observe.status import Blocker
from eventproc.processors.options import WAITING_EVENTS_MAX, ProcessorLimits
from eventproc.store.model.ids import format_segment

WAITING_ENOUGH: Final = 2_000
"""Events handed out and not finished that are enough while no worker is idle. An event object is created when it is
handed out. Higher: events live long enough for the garbage collector to move them through its generations, and leave
the caches, which costs a handler that does nothing a third more CPU. Lower than the calls in flight: workers idle."""

PUT_EVENTS: Final = 500
"""Most events handed out in one step. Higher: WAITING_ENOUGH is overshot by more. Lower: each event costs more."""

assert PUT_EVENTS <= WAITING_ENOUGH <= WAITING_EVENTS_MAX, "what is enough is a part of what may wait"


@attrs.define(eq=False)
class Worker:
    """A worker and its present call.

    items: the events of the call; empty between calls.
    since_ms: when the call began (monotonic).
    retry: earlier failed calls of its first event.
    attempt: number of the call for its first event, from 1.
    scope: the cancel scope of the turn.
    overdue: the items of a call that overran its timeout, for which `scope` was cancelled.
    thread: identifier of the thread of its last call on one.
    """

    items: Sequence[Item] = ()
    since_ms: int = 0
    retry: RetryState | None = None
    attempt: int = 1
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    overdue: Sequence[Item] | None = None
    thread: int | None = None


class BlockReasons:
    """The reasons why no call may begin. Calls may begin while `active` is False."""

    __slots__ = ("_reasons", "active")

    def __init__(self) -> None:
        self.active = False
        self._reasons: set[str] = set()

    def add(self, reason: str) -> None:
        """Let no call begin until `remove(reason)`."""
        self._reasons.add(reason)
        self.active = True

    def remove(self, reason: str) -> None:
        """Remove one reason; the others stay."""
        self._reasons.discard(reason)
        self.active = bool(self._reasons)


class WorkerPool:
    """Gives the events of `queues` to workers; used on the event loop only.

    blocked_by: the reasons why no call may begin; see `block` and `unblock`.
    draining: whether `drain` waits, so that batches do not linger.
    waiting: set by `notify`, for the tasks in `until`.
    """

    def __init__(
        self,
        queues: KeyQueues,
        concurrency: int,
        now_ms: Callable[[], int],
        *,
        on_idle: Callable[[], None],
        limits: ProcessorLimits | None = None,
    ) -> None:
        """Create the pool; its workers begin when they are needed.

        now_ms: monotonic clock.
        on_idle: called when workers have nothing to do, so that more may be read for them.
        """
        self.queues = queues
        self.now_ms = now_ms
        self.workers = [Worker() for _ in range(concurrency)]
        self.blocked_by = BlockReasons()
        self.draining = False
        self._on_idle = on_idle
        self._limits = limits or ProcessorLimits()
        self._sleeping: list[anyio.Event] = []
        self._vacant = list(self.workers)  # they have not begun
        self._needed = anyio.Event()
        self._waking = False
        self._room: anyio.Event | None = None  # `put` waits for it
        self.waiting: list[anyio.Event] = []

    @property
    def running(self) -> list[Worker]:
        """The workers whose call is running."""
        return [worker for worker in self.workers if worker.items]

    # Events come in.

    async def put(self, items: Sequence[Item]) -> None:
        """Add events, in order; return when more should be handed out. Those of a closing segment are dropped later.

        Reaches a scheduling point at least once every WAITING_ENOUGH events.
        """
        self.queues.put(items)
        self.wake()
        while not self._has_room:
            self._room = anyio.Event()
            await self._room.wait()
        self._room = None
        # With fewer events one of the next calls waits; until then no other task need run.
        if self.queues.unfinished >= WAITING_ENOUGH:
            await anyio.lowlevel.checkpoint()

    @property
    def _has_room(self) -> bool:
        """Whether more should be handed out: there is too little, or workers have nothing to do."""
        return self.queues.unfinished < WAITING_ENOUGH or self.is_idle

    @property
    def is_crowded(self) -> bool:
        """Whether so many events wait that no segment should add many to them."""
        return self.queues.unfinished >= self._limits.waiting_events_max

    @property
    def is_idle(self) -> bool:
        """Whether workers have nothing to do: all events handed out are running, or wait behind those that are."""
        return bool(self._sleeping or self._vacant) and not self.queues and not self.blocked_by.active

    # Waiting for calls to end.

    async def drain(self) -> None:
        """Return when all events put so far are finished; meanwhile batches do not linger."""
        self.draining = True
        try:
            self._wake_all()
            await self.until(lambda: not self.queues.unfinished)
        finally:
            self.draining = False

    async def clear(self, owned: EventClaim) -> None:
        """Return when no call runs for an event of `owned`, which is closing, so that none begins either."""
        assert owned.closing, f"{owned!r} is still being handed out"
        await self.until(lambda: not self.calls_for(owned))

    def calls_for(self, owned: EventClaim) -> bool:
        """Return whether a call runs for an event of `owned`, or for a timer."""
        return any(in_hand.owned is owned for each in self.running for _, in_hand in each.items)

    async def wait_quiet(self) -> None:
        """Return when no call runs."""
        await self.until(lambda: not self.running)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition()` holds; it is checked whenever calls ended or events were dropped."""
        while not condition():
            changed = anyio.Event()
            self.waiting.append(changed)
            await changed.wait()

    def notify(self) -> None:
        """Let those that wait in `until` and `put` check again."""
        if self._room is not None and self._has_room:
            self._room.set()
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            for event in waiting:
                event.set()

    # Blocking calls.

    def block(self, reason: str) -> None:
        """Begin no further call until `unblock(reason)`. See `wait_quiet`."""
        self.blocked_by.add(reason)
        self._wake_all()

    def unblock(self, reason: str) -> None:
        """Revoke `block(reason)`; other reasons stay."""
        self.blocked_by.remove(reason)
        self.wake()
        if self.is_idle:
            self._on_idle()

    def give_up_retries(self) -> None:
        """End the retry pauses of closing segments: this process no longer handles their events."""
        self.queues.unpark_closing()
        self.wake()

    # Sleeping and waking.

    async def vacancy(self) -> Worker | None:
        """Return the next worker that has to begin, once it is needed; None when all have begun.

        The worker begins with `begin`.
        """
        if not self._vacant:
            return None
        await self._needed.wait()
        self._needed = anyio.Event()
        return self._vacant.pop()

    def begin(self) -> None:
        """Note that a needed worker has begun; like a woken one it looks for an event."""
        self._waking = False

    async def wait_ready(self, deadline: float = float("inf")) -> None:
        """Return when an event may be handled, or at `deadline`, or when `drain` waits."""
        while self.blocked_by.active or not self.queues:
            wake = anyio.Event()
            self._sleeping.append(wake)
            if self._room is not None:
                self.notify()
            if self.is_idle:
                self._on_idle()
            if deadline == float("inf"):
                await wake.wait()
            else:
                with anyio.CancelScope(deadline=deadline):
                    await wake.wait()
            if wake.is_set():
                self._waking = False
            else:
                self._sleeping.remove(wake)
            if deadline != float("inf") and (
                self.draining or self.blocked_by.active or anyio.current_time() >= deadline
            ):
                return

    def wake(self) -> None:
        """Wake one sleeping worker, or let one more begin, if an event is ready; it wakes the next one if needed.

        So handlers that never wait are run by few workers, and those that do by all of them. If no event is ready,
        `put` checks again: the call that took the last event may never return.
        """
        if self._waking or not (self._sleeping or self._vacant):
            return
        if self.queues:
            self._waking = True
            (self._sleeping.pop() if self._sleeping else self._needed).set()
        elif self._room is not None:
            self.notify()

    def _wake_all(self) -> None:
        while self._sleeping:
            self._sleeping.pop().set()


def find_blocker(pool: WorkerPool, wall_ms: int) -> Blocker | None:
    """Return the call that has been running or failing for longest in this process, None if there is none.

    wall_ms: the wall clock now.
    """
    now_ms = pool.now_ms()
    calls: list[tuple[int, int, Item, RetryState | None]] = [
        (
            worker.since_ms if worker.retry is None else worker.retry.since_ms,
            worker.attempt,
            items[0],
            worker.retry,
        )
        for worker in pool.running
        if (items := worker.items)
    ]
    calls += (
        (queue.retry.since_ms, queue.next_attempt, queue.items[0], queue.retry)
        for queue in pool.queues.failing
        if queue.items and queue.retry is not None
    )
    if not calls:
        return None
    since_ms, attempt, (event, in_hand), retry = min(calls, key=lambda call: call[0])
    return Blocker(
        stream=event.stream,
        segment=format_segment(event.segment),
        number=event.number,
        offset=event.offset,
        key=event.key,
        attempt=attempt + in_hand.attempts_before,
        since_ms=wall_ms - (now_ms - since_ms),
        error=None if retry is None else retry.error,
    )
