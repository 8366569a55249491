"""The workers of one processor: long-lived tasks that call the handler for what is ready.

Up to N workers, each of which begins when one more is needed, takes a lane, runs a turn of its events, and brings
it back. A call that fails parks its lane until the retry is due; a watch cancels calls that overrun their timeout.
What a handler that never waits costs is one call and some bookkeeping, about a microsecond.

A handler on a thread cannot be interrupted: when it overruns, the processor stops and says so, because going on
could run one key twice at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio

from eventproc.processors.engine.calls import FailedCall, run_batch, run_events, run_on_thread
from eventproc.processors.engine.key_queues import KeyQueue, RetryState
from eventproc.processors.engine.owned_segment import OwnedSegment
from eventproc.processors.engine.work import Work, Worker
from eventproc.processors.errors import HandlerCancelled, HandlerStuck, HandlerTimeout, failure_text
from eventproc.processors.handler import UndecodableError
from eventproc.processors.observe.telemetry import NOTHING
from eventproc.store.model.ids import format_segment


class Workers:
    """Runs the handler of `work` for what is put there."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stirred = anyio.Event()

    async def run(self) -> None:
        """Work until cancelled. Raises, in a group, what `CallListener.spent` raises to stop it, and HandlerStuck."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while (slot := await self._work.vacancy()) is not None:
                tasks.start_soon(self._serve, slot)

    def cancel(self, cell: OwnedSegment) -> None:
        """Cancel the calls that run for events of `cell`, which was lost to another reader.

        Not those on threads, which would go on: their keys are held until they end.
        """
        if self._work.handler.is_sync:
            return
        for slot in self._work.running:
            if any(chunk.cell is cell for _, chunk in slot.items):
                slot.scope.cancel()

    async def _serve(self, slot: Worker) -> None:
        work = self._work
        work.begin()
        while True:
            await work.wait_ready()
            lanes = [work.lanes.take()]
            work.wake()
            failed: FailedCall | None = None
            measured = None if work.measure is NOTHING else (_stream_of(lanes[0]), work.now_ms())
            try:
                with anyio.CancelScope() as slot.scope:
                    failed = await self._turn(slot, lanes)
                if slot.overdue is not None and slot.overdue is slot.items:  # the very call, not the next
                    assert work.options.timeout_ms is not None, "nothing else makes a call overdue"
                    late = HandlerTimeout(processor=work.options.name, timeout_ms=work.options.timeout_ms)
                    failed = failed or FailedCall(late, _counts(slot, lanes))
            except anyio.get_cancelled_exc_class():
                if anyio.current_effective_deadline() == -math.inf:
                    raise
                # Nobody cancelled this task: let out, it would end all workers without a word.
                failed = FailedCall(HandlerCancelled(processor=work.options.name), _counts(slot, lanes))
            finally:
                slot.items, slot.overdue = (), None
            if measured is not None:
                stream, began_ms = measured
                work.measure.handled(stream, (work.now_ms() - began_ms) / 1000)
            self._bring_back(lanes, failed, slot)
            work.notify()
            if work.lanes:  # else waiting for more is the scheduling point
                await anyio.lowlevel.checkpoint()

    async def _turn(self, slot: Worker, lanes: list[KeyQueue]) -> FailedCall | None:
        if self._work.options.batching is not None:
            return await run_batch(self._work, slot, lanes)
        if self._work.handler.is_sync:
            return await run_on_thread(self._work, slot, lanes[0])
        return await run_events(self._work, slot, lanes)

    def _bring_back(self, lanes: Sequence[KeyQueue], failed: FailedCall | None, slot: Worker) -> None:
        counts = failed.counts if failed is not None else ()
        for index, lane in enumerate(lanes):
            if failed is None or index >= len(counts) or not counts[index]:
                self._work.lanes.give_back(lane)
            elif sum(counts) > 1:
                lane.alone = counts[index]
                self._retry(lane, failed.error, slot)
            else:
                self._fail(lane, failed.error, slot)

    def _fail(self, lane: KeyQueue, error: Exception, slot: Worker) -> None:
        """Note a failed call for the first event of the lane."""
        work, item = self._work, lane.items[0]
        lane.attempt += 1
        attempts = lane.next_attempt - 1
        permanent = isinstance(error, UndecodableError) or work.options.publishes
        if permanent or work.options.retry.is_spent(attempts, error):
            work.sink.spent(item, error, attempts)
            lane.pop()
            work.unfinished -= 1
            work.lanes.give_back(lane)
        else:
            self._retry(lane, error, slot)

    def _retry(self, lane: KeyQueue, error: Exception, slot: Worker) -> None:
        work = self._work
        since_ms = slot.since_ms if lane.trouble is None else lane.trouble.since_ms
        lane.trouble = RetryState(since_ms, failure_text(error))
        work.sink.failed(lane.items[0], error, lane.next_attempt - 1)
        if lane.key is None and len(lane.items) > 1 and not lane.alone:
            first, *others = lane.items  # they follow no other: only the first waits
            lane.items.clear()
            lane.items.append(first)
            work.lanes.put(others)
        work.lanes.park(lane, work.now_ms() + work.options.retry.pause_ms(max(lane.attempt, 1)))
        self._stirred.set()

    async def _watch(self) -> None:
        """Make ready what is to be tried again, and end what overruns its timeout."""
        work = self._work
        while True:
            self._stirred = anyio.Event()
            now_ms = work.now_ms()
            due_ms = work.lanes.unpark(now_ms)
            work.wake()
            if (timeout_ms := work.options.timeout_ms) is not None:
                # What begins after this moment is due after the next look.
                next_ms = now_ms + timeout_ms
                for slot in work.running:
                    if slot.since_ms + timeout_ms > now_ms:
                        next_ms = min(next_ms, slot.since_ms + timeout_ms)
                    elif slot.overdue is None:
                        self._overrun(slot, timeout_ms)
                due_ms = next_ms if due_ms is None else min(due_ms, next_ms)
            with anyio.move_on_after(None if due_ms is None else max(due_ms - now_ms, 1) / 1000):
                await self._stirred.wait()

    def _overrun(self, slot: Worker, timeout_ms: int) -> None:
        event, chunk = slot.items[0]
        if self._work.handler.is_sync:
            where = (
                f"{chunk.cell.assigned.stream} segment {format_segment(event.segment)} event {event.number}"
            )
            raise HandlerStuck(processor=self._work.options.name, event=where, timeout_ms=timeout_ms)
        slot.overdue = slot.items
        slot.scope.cancel()


def _stream_of(lane: KeyQueue) -> str:
    _, chunk = lane.items[0]
    return chunk.cell.assigned.stream


def _counts(slot: Worker, lanes: Sequence[KeyQueue]) -> list[int]:
    """Return how many events of each lane the cancelled call had; none when it had returned by then."""
    had = set(map(id, slot.items))
    return [sum(id(item) in had for item in lane.items) for lane in lanes]
