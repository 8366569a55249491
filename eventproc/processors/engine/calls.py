"""One turn of a worker: calling the handler for events of a lane, one by one, on a thread, or as a batch.

A turn finishes each event whose call returned, stops at the first call that fails, and leaves the events it did
not come to in their lane. While a call runs, `Worker.items` are its events; a turn that is cancelled leaves them
there, so that who cancelled it knows what it hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Final

import anyio
import anyio.to_thread
import attrs

from eventproc.processors.emit import Emission
from eventproc.processors.engine.key_queues import KeyQueue
from eventproc.processors.engine.work import Work, Worker
from eventproc.processors.errors import HandlerCancelled
from eventproc.processors.handler import events_of

EVENTS_A_TURN: Final = 64
"""Events that a worker runs between two scheduling points, and of one lane before others get their turn."""


@attrs.frozen
class FailedCall:
    """A call that failed: for the first events of these lanes, `counts` of each."""

    error: Exception
    counts: Sequence[int] = (1,)


async def run_events(work: Work, slot: Worker, lanes: list[KeyQueue]) -> FailedCall | None:
    """Call an async handler for one event after the other, of one lane after the other; `lanes` has the present one.

    This is what an event costs: a turn of many lanes shares what surrounds it.
    """
    handler, now_ms, lane = work.handler, work.now_ms, lanes[0]
    call, plain = handler.call, handler.decode is None and not handler.takes_context
    for _ in range(EVENTS_A_TURN):
        if work.holding:
            break
        if not lane.items:
            work.lanes.give_back(lanes.pop())
            if not work.lanes:
                break
            lane = work.lanes.take()
            lanes.append(lane)
        item = lane.items[0]
        if item[1].cell.closing:
            work.drop_closed(lane)
            continue
        slot.items, slot.since_ms, slot.trouble = (item,), now_ms(), lane.trouble
        slot.attempt = attempt = lane.next_attempt if lane.attempt or lane.alone else 1
        try:
            if plain:
                await call(item[0])  # type: ignore[misc]
                emitted: Sequence[Emission] = ()
            else:
                context = work.context(item, attempt)
                await handler.on_loop(handler.decoded(item[0]), context)
                emitted = () if context is None else context.end()
        except Exception as error:
            return FailedCall(error)
        slot.items = ()
        work.finish(lane, emitted)
    return None


async def run_on_thread(work: Work, slot: Worker, lane: KeyQueue) -> FailedCall | None:
    """Call a sync handler for several events with one crossing; all are finished when it returns."""
    if lane.key is None:
        share = work.lanes.ready // len(work.slots)
        lane.items.extend(work.lanes.take_free(min(share, EVENTS_A_TURN - 1)))
    work.drop_closed(lane)
    taken = list(islice(lane.items, EVENTS_A_TURN))
    attempt, trouble, handler = lane.next_attempt, lane.trouble, work.handler
    done: list[Sequence[Emission]] = []

    def run() -> BaseException | None:
        for item in taken:
            if work.holding or item[1].cell.closing:
                return None
            slot.items, slot.since_ms = (item,), work.now_ms()
            slot.attempt = 1 if done else attempt
            slot.trouble = None if done else trouble
            context = work.context(item, slot.attempt)
            try:
                handler.on_thread(handler.decoded(item[0]), context)
            except BaseException as error:
                return error
            done.append(() if context is None else context.end())
        return None

    if not taken or work.holding:
        return None
    slot.items, slot.since_ms = tuple(taken[:1]), work.now_ms()
    work.limiter = work.limiter or anyio.CapacityLimiter(len(work.slots))
    error = await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=work.limiter)
    slot.items = ()
    for emitted in done:
        work.finish(lane, emitted)
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return FailedCall(HandlerCancelled(processor=work.options.name))
    if error is None:
        return None
    if not isinstance(error, Exception):
        raise error
    return FailedCall(error)


async def run_batch(work: Work, slot: Worker, lanes: list[KeyQueue]) -> FailedCall | None:
    """Call a batch handler once; lanes are added to `lanes` until they hold a batch. All or none are finished."""
    taken = await _collect(work, lanes)
    work.wake()  # it took lanes without passing the wake on
    # A cell may have closed, and been given to another reader, while the batch lingered.
    counts = [_available(work, lane, n) for lane, n in zip(lanes, taken, strict=True)]
    items = [item for lane, n in zip(lanes, counts, strict=True) for item in islice(lane.items, n)]
    if not items or work.holding:
        return None
    slot.items, slot.since_ms, slot.trouble = items, work.now_ms(), lanes[0].trouble
    slot.attempt = lanes[0].next_attempt
    handler, context = work.handler, work.context(items[0], lanes[0].next_attempt)
    try:
        events = [handler.decoded(event) for event in events_of(items)]
        if handler.is_sync:
            work.limiter = work.limiter or anyio.CapacityLimiter(len(work.slots))
            await anyio.to_thread.run_sync(
                handler.on_thread, events, context, abandon_on_cancel=True, limiter=work.limiter
            )
        else:
            await handler.on_loop(events, context)
    except Exception as error:
        return FailedCall(error, counts)
    slot.items = ()
    emitted = () if context is None else context.end()
    for lane, n in zip(lanes, counts, strict=True):
        for _ in range(n):
            work.finish(lane, emitted)
            emitted = ()  # once a batch; nothing is awaited here, so one commit takes all of it
    return None


async def _collect(work: Work, lanes: list[KeyQueue]) -> list[int]:
    """Add lanes until they hold a batch, lingering if asked to; return how many events of each belong to it."""
    batching = work.options.batching
    assert batching is not None, f"{work.options.name} takes one event at a time"
    counts = [_available(work, lanes[0], batching.size)]
    deadline = anyio.current_time() + batching.linger_ms / 1000
    if lanes[0].attempt or lanes[0].alone:
        return counts
    while sum(counts) < batching.size and not work.holding:
        if not work.lanes:
            if work.hurry or anyio.current_time() >= deadline:
                break
            await work.wait_ready(deadline)
            continue
        lane = work.lanes.take()
        if lane.attempt or lane.alone:  # it is called alone, in a turn of its own
            work.lanes.give_back(lane)
            break
        lanes.append(lane)
        counts.append(_available(work, lane, batching.size - sum(counts)))
    return counts


def _available(work: Work, lane: KeyQueue, events_max: int) -> int:
    """Return how many events of the lane may be handled now, at most so many."""
    work.drop_closed(lane)
    if lane.attempt or lane.alone:
        events_max = min(events_max, 1)
    first = islice(lane.items, events_max)
    return sum(1 for _ in takewhile(lambda item: not item[1].cell.closing, first))
