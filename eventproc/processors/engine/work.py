"""The work of one processor in one process: what waits, what runs, and who waits for that to change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import anyio
import attrs

from eventproc.processors.context import Context, Log
from eventproc.processors.emit import Emission
from eventproc.processors.engine.key_queues import Item, KeyQueue, KeyQueues, RetryState
from eventproc.processors.engine.owned_segment import OwnedSegment
from eventproc.processors.handler import Handler
from eventproc.processors.observe.status import Blocker
from eventproc.processors.observe.telemetry import NOTHING, Telemetry
from eventproc.processors.options import Options
from eventproc.store.clock import Clock
from eventproc.store.model.ids import format_segment

WAITING_MAX: Final = 100_000
"""Events handed out and not finished beyond which a segment gets more only while it has fewer than PUT_EVENTS of them:
they wait behind calls that are stuck. Each costs 240 bytes beside what was read, so more is memory. Less holds up the
other keys of a segment sooner: with this many, only events of less than 80 bytes fill no 8 MiB (`cell`)."""

WAITING_ENOUGH: Final = 2_000
"""Events handed out and not finished that are enough while no worker is idle. An event is made when it is handed
out. With more of them they live long enough for the garbage collector to follow them through its generations, and
leave the caches: a third more CPU for a handler that does nothing. Fewer than the handlers in flight idles some."""

PUT_EVENTS: Final = 500
"""Events handed out at once, at most. More overshoots WAITING_ENOUGH; fewer costs more per event."""

assert PUT_EVENTS <= WAITING_ENOUGH <= WAITING_MAX, "what is enough is a part of what may be"


class CallListener(Protocol):
    """What is told of what the handler did. Called on the event loop; must not wait."""

    def finished(self, item: Item, emitted: Sequence[Emission]) -> None:
        """Note that a call returned."""
        ...

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        """Note that a call failed and will be repeated."""
        ...

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        """Note that the last attempt failed: the event is finished now, unless this raises to stop the processor."""
        ...

    def wanting(self) -> None:
        """Note that workers have nothing to do: what was not read for want of room may be read for them."""
        ...

    def log_for(self, item: Item, attempt: int) -> Log:
        """Return the logger of one call; may be called on any thread."""
        ...


@attrs.define(eq=False)
class Worker:
    """A worker. items: those of the present call, none between calls; since_ms: when it began, monotonic;
    trouble: of its first event, which failed before.

    overdue: the items of a call that overran its timeout; `scope`, that of the turn, was cancelled for it.
    """

    items: Sequence[Item] = ()
    since_ms: int = 0
    trouble: RetryState | None = None
    attempt: int = 1
    scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope)
    overdue: Sequence[Item] | None = None


class Work:
    """Used on the event loop only. `unfinished`: events that were put and are neither finished nor dropped."""

    handler: Handler
    """Set before the first worker begins, and replaced only while nothing runs."""

    def __init__(
        self, options: Options, sink: CallListener, clock: Clock, measure: Telemetry = NOTHING
    ) -> None:
        self.options = options
        self.measure = measure
        self.sink = sink
        self.now_ms = clock.monotonic_ms
        self.lanes = KeyQueues(options.order)
        self.slots = [Worker() for _ in range(options.concurrency)]
        self.limiter: anyio.CapacityLimiter | None = None  # needs a running loop: made when first used
        self.unfinished = 0
        self.holding = False
        self._holds: set[str] = set()
        self.hurry = False
        self._idle: list[anyio.Event] = []
        self._vacant = list(self.slots)  # whose workers have not begun: they begin when one is needed
        self._needed = anyio.Event()
        self._waking = False
        self._room: anyio.Event | None = None  # what `put` waits for
        self._changed: list[anyio.Event] = []

    @property
    def running(self) -> list[Worker]:
        """The workers that have a call running."""
        return [slot for slot in self.slots if slot.items]

    async def put(self, items: Sequence[Item]) -> None:
        """Add items, in order; return when more shall be handed out. Items of a closing cell are dropped later.

        Reaches a scheduling point once every WAITING_ENOUGH events at least.
        """
        self.unfinished += len(items)
        self.lanes.put(items)
        self.wake()
        while not self._has_room:
            self._room = anyio.Event()
            await self._room.wait()
        self._room = None
        # With fewer, one of the next calls waits; until then nobody need run.
        if self.unfinished >= WAITING_ENOUGH:
            await anyio.lowlevel.checkpoint()

    @property
    def _has_room(self) -> bool:
        """Whether more shall be handed out: what is enough, and more to find something for who has nothing to do."""
        return self.unfinished < WAITING_ENOUGH or self.is_wanting

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits that no segment shall add much to it."""
        return self.unfinished >= WAITING_MAX

    @property
    def is_wanting(self) -> bool:
        """Whether workers have nothing to do: all that was handed out is under way, or behind what is."""
        return bool(self._idle or self._vacant) and not self.lanes and not self.holding

    async def drain(self) -> None:
        """Return when everything put so far is finished; batches do not linger meanwhile."""
        self.hurry = True
        try:
            self._wake_all()
            await self.until(lambda: not self.unfinished)
        finally:
            self.hurry = False

    async def clear(self, cell: OwnedSegment) -> None:
        """Return when no call runs for an event of `cell`, which is closing: none begins any more."""
        assert cell.closing, f"{cell!r} is still being handed out"
        await self.until(
            lambda: not any(chunk.cell is cell for slot in self.running for _, chunk in slot.items)
        )

    def hold(self, why: str) -> None:
        """Begin no further call until `release(why)`. See `wait_quiet`."""
        self._holds.add(why)
        self.holding = True
        self._wake_all()

    def release(self, why: str) -> None:
        """Take back `hold(why)`; other reasons to hold stay."""
        self._holds.discard(why)
        self.holding = bool(self._holds)
        self.wake()
        if self.is_wanting:
            self.sink.wanting()

    def give_up_retries(self) -> None:
        """Let those of closing cells wait no longer: nobody handles them here any more."""
        self.lanes.unpark_closing()
        self.wake()

    async def wait_quiet(self) -> None:
        """Return when no call runs."""
        await self.until(lambda: not self.running)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when `holds()`; it is asked again whenever calls ended or events were dropped."""
        while not holds():
            changed = anyio.Event()
            self._changed.append(changed)
            await changed.wait()

    def notify(self) -> None:
        """Let those in `until` and `put` look again."""
        if self._room is not None and self._has_room:
            self._room.set()
        if self._changed:
            changed, self._changed = self._changed, []
            for event in changed:
                event.set()

    async def vacancy(self) -> Worker | None:
        """Return the slot of a worker that has to begin, when there is something for it; None when all have begun.

        That worker begins with `begin`.
        """
        if not self._vacant:
            return None
        await self._needed.wait()
        self._needed = anyio.Event()
        return self._vacant.pop()

    def begin(self) -> None:
        """Note that a worker that was needed is there, and looks for something to do like one that was woken."""
        self._waking = False

    async def wait_ready(self, deadline: float = float("inf")) -> None:
        """Return when something is ready and may begin, or at `deadline`, or when there is a hurry."""
        while self.holding or not self.lanes:
            wake = anyio.Event()
            self._idle.append(wake)
            if self._room is not None:
                self.notify()
            if self.is_wanting:
                self.sink.wanting()
            if deadline == float("inf"):
                await wake.wait()
            else:
                with anyio.CancelScope(deadline=deadline):
                    await wake.wait()
            if wake.is_set():
                self._waking = False
            else:
                self._idle.remove(wake)
            if deadline != float("inf") and (self.hurry or self.holding or anyio.current_time() >= deadline):
                return

    def wake(self) -> None:
        """Wake one idle worker, or let one more begin, if something is ready; it wakes the next, if one is needed:

        handlers that never wait are run by few workers, those that do by all of them. If nothing is, let `put` look:
        the call that took the last of it may never return.
        """
        if self._waking or not (self._idle or self._vacant):
            return
        if self.lanes:
            self._waking = True
            (self._idle.pop() if self._idle else self._needed).set()
        elif self._room is not None:
            self.notify()

    def _wake_all(self) -> None:
        while self._idle:
            self._idle.pop().set()

    def context(self, item: Item, attempt: int) -> Context | None:
        """Return the context of a call, if the handler takes one."""
        if not self.handler.takes_context:
            return None
        return Context(attempt, partial(self.sink.log_for, item, attempt))

    def finish(self, lane: KeyQueue, emitted: Sequence[Emission] = ()) -> None:
        """Note that the first event of the lane is finished."""
        item = lane.pop()
        self.unfinished -= 1
        self.sink.finished(item, emitted)
        if self._changed:
            self.notify()

    def drop_closed(self, lane: KeyQueue) -> None:
        """Forget the first events of the lane as long as their cells are closing."""
        while lane.items and lane.items[0][1].cell.closing:
            lane.pop()
            self.unfinished -= 1
            self.notify()


def name_of(item: Item) -> str:
    """Return how people are told of an event."""
    event, chunk = item
    where = f"{chunk.cell.assigned.stream} segment {format_segment(event.segment)} event {event.number}"
    return where if event.key is None else f"{where} (key {event.key!r})"


def find_blocker(work: Work, wall_ms: int) -> Blocker | None:
    """Return what has been under way for longest in this process, None when nothing is."""
    now_ms = work.now_ms()
    calls: list[tuple[int, int, Item, RetryState | None]] = [
        (
            slot.since_ms if slot.trouble is None else slot.trouble.since_ms,
            slot.attempt,
            items[0],
            slot.trouble,
        )
        for slot in work.running
        if (items := slot.items)
    ]
    calls += (
        (lane.trouble.since_ms, lane.next_attempt, lane.items[0], lane.trouble)
        for lane in work.lanes.failing
        if lane.items and lane.trouble is not None
    )
    if not calls:
        return None
    since_ms, attempt, (event, chunk), trouble = min(calls, key=lambda call: call[0])
    return Blocker(
        stream=chunk.cell.assigned.stream,
        segment=format_segment(event.segment),
        number=event.number,
        offset=event.offset,
        key=event.key,
        attempt=attempt,
        since_ms=wall_ms - (now_ms - since_ms),
        error=None if trouble is None else trouble.error,
    )
