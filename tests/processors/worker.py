"""The workers of a processor without the rest of it: a listener that records, and segments created by hand."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio

from eventproc.groups import SegmentOwnership
from eventproc.groups.owned_segment import InFlightRun, OwnedSegment
from eventproc.processors.context import Log
from eventproc.processors.emit import Emission
from eventproc.processors.engine.calls import Calls
from eventproc.processors.engine.key_queues import Item, KeyQueues
from eventproc.processors.engine.states import Left
from eventproc.processors.engine.workers import WorkerPool
from eventproc.processors.handler import make_handler
from eventproc.processors.options import Batching, Options, ProcessingOrder
from eventproc.processors.retry import RetryPolicy
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event, EventRun
from eventproc.streams.codec import codec_for, decode_of
from eventproc.testing import VirtualClock

LOG = logging.getLogger("tests.processors")

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)


class WorkerHarness:
    """Workers and their calls, with a `CallListener` that records.

    stop_on: errors that `spent` raises instead of recording them.
    """

    def __init__(
        self,
        handler: object,
        *,
        order: ProcessingOrder = ProcessingOrder.KEY,
        concurrency: int = 3,
        batch: int | None = None,
        linger_ms: int = 0,
        retry: RetryPolicy = AT_ONCE,
        timeout_ms: int | None = None,
        payload: type[object] = bytes,
    ) -> None:
        self.options = Options(
            name="p",
            streams=("s/t",),
            group="s/g",
            order=order,
            concurrency=concurrency,
            batching=None if batch is None else Batching(size=batch, linger_ms=linger_ms),
            retry=retry,
            timeout_ms=timeout_ms,
        )
        self.owned = segment_at()
        self.done: list[int] = []
        self.emitted: list[Emission] = []
        self.failures: list[tuple[int, int, str]] = []
        self.gone: list[tuple[int, int, str]] = []
        self.stop_on: tuple[type[Exception], ...] = ()
        clock = VirtualClock()
        self.pool = WorkerPool(KeyQueues(order), concurrency, clock.monotonic_ms, on_idle=lambda: None)
        self.calls = Calls(self.options, self.pool, self, clock)
        self.calls.handler = make_handler(handler, decode_of(codec_for(payload)))

    def finished(self, item: Item, handled: Event[Any], left: Left) -> None:
        event, in_flight = item[0], cast("InFlightRun", item[1])
        assert handled.number == event.number
        in_flight.finish(event.number)
        self.done.append(event.number)
        self.emitted += left.emitted

    def left_by_batch(self, items: Sequence[Item], left: Left) -> None:
        self.emitted += left.emitted

    def returned(self, item: Item, result: object) -> None:
        """Nobody asks for it."""

    def failed(self, item: Item, error: Exception, attempt: int) -> None:
        self.failures.append((item[0].number, attempt, type(error).__name__))

    def progress_for(self, item: Item) -> None:
        return

    def set_aside(self, item: Item, pause_ms: int) -> bool:
        return False

    def spent(self, item: Item, error: Exception, attempt: int) -> None:
        if isinstance(error, self.stop_on):
            raise error
        event, in_flight = item[0], cast("InFlightRun", item[1])
        in_flight.finish(event.number)
        self.gone.append((event.number, attempt, type(error).__name__))

    def log_for(self, item: Item, attempt: int) -> Log:
        return logging.LoggerAdapter(LOG, {"number": item[0].number, "attempt": attempt})

    async def put(self, keys: Iterable[str | None], owned: OwnedSegment | None = None) -> None:
        await self.pool.put(items_of(owned or self.owned, keys))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.calls.run)
            yield
            tasks.cancel_scope.cancel()

    async def process(self, keys: Iterable[str | None]) -> None:
        """EventRun until all these events are finished."""
        async with self.running():
            await self.put(keys)
            await self.pool.drain()


async def until(holds: Callable[[], bool]) -> None:
    """Return when `holds()`; other tasks run meanwhile."""
    while not holds():  # noqa: ASYNC110 - what runs is the code under test, which signals nothing for this
        await anyio.sleep(0.001)


async def settled(rounds: int = 30) -> None:
    """Let all tasks go on as far as they can without time."""
    for _ in range(rounds):
        await anyio.lowlevel.checkpoint()


def segment_at(progress: Progress | None = None, *, segment: int = 0) -> OwnedSegment:
    return OwnedSegment(SegmentOwnership("s/t", 7, SegmentId(segment), 1, progress or Progress()))


def run_of(
    owned: OwnedSegment, payloads: Sequence[bytes], keys: Sequence[str | None] | None = None
) -> EventRun:
    """Return the run that follows what the owned handed out."""
    size_bytes = sum(FRAME_BYTES + len(payload) for payload in payloads)
    keys = None if keys is None else list(keys)
    return EventRun(
        owned.key[1], owned.offset, owned.offset + size_bytes, owned.number, 1000, list(payloads), keys=keys
    )


def items_of(owned: OwnedSegment, keys: Iterable[str | None]) -> list[Item]:
    """Hand out an event for each key; its payload is its number in the segment."""
    keys = list(keys)
    run = run_of(owned, [b"%d" % (owned.number + index) for index in range(len(keys))], keys)
    in_flight = owned.add(run)
    return [(event, in_flight) for event in run.events("s/t") if not in_flight.is_finished(event.number)]
