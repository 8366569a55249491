"""A consumer of a share group: it acquires events, and accepts, releases, rejects or renews each of them.

What a transaction hands out is adopted by an effect of its commit, so a cancellation loses no event: the next poll
returns it. Accepted events are stored with the next acquisition, or within a second. See docs/design/share-groups.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, Self

import anyio
import attrs
from typing_extensions import TypeVar

from eventproc.base.clock import new_id
from eventproc.base.tasks import HandleTasks, run_uninterrupted
from eventproc.groups.liveness import POLL_MS
from eventproc.shares.acquisition import Acquisition, acquire
from eventproc.shares.delivery import LOCAL_SESSIONS, Holder, Outlook, SettledSpans, look_ahead, settle
from eventproc.shares.events import Delivery, deliveries_of, spans_of
from eventproc.store.catalog import WATCH_CATALOG
from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import SHARE_POLL_EVENTS, channel_of, get_group, watch_share
from eventproc.store.model.argument_checks import (
    check_instance,
    check_int,
    check_iterable,
    check_str,
    invalid_argument,
)
from eventproc.store.model.delays import DUE_MS_MAX
from eventproc.store.model.deliveries import Settlement
from eventproc.store.model.errors import Closed, EventprocError, IllegalTransition, NotFound
from eventproc.store.model.group_errors import LockLost
from eventproc.store.openable import Openable
from eventproc.streams.fetch import EVENTS_READ, watch_stream
from eventproc.streams.joint_transaction import ProgressHold

LOG = logging.getLogger("eventproc.shares")

P = TypeVar("P", default=bytes)

ITERATED_EVENTS: Final = 100
"""Events that an iteration acquires together, after a beginning with one, two, four, and so on: an event that kills its
process again and again would otherwise count deliveries of all that were acquired with it. Higher: fewer transactions;
more events are locked that no handler has begun, while other consumers wait."""

SAVE_MS: Final = 1_000
"""How long accepted events of an iteration wait to become durable. Lower: less is repeated after a death."""

HELD_EVENTS_MAX: Final = 20_000
"""Held events beyond which those are forgotten whose lock expired, so that a program that never settles them does not
fill the memory."""


@attrs.define
class _Saving:
    """Accepted events that are being stored."""

    events: set[Delivery[Any]]
    settled: SettledSpans
    is_stored: bool = False


class ShareConsumer(Openable, Generic[P]):
    """Consumes events of a share group; made by `ShareGroup.consumer`.

    Open it with `async with`, or with `await` and `close`. Several tasks may settle events of one consumer; one task
    polls or iterates. Closing it releases what it holds and has not settled, for other consumers.
    """

    _is_handle = True
    _kind: type[Delivery[Any]] = Delivery

    def __init__(
        self,
        db: Database,
        group: str,
        consumer: str | None = None,
        *,
        decode: Callable[[bytes], P] | None = None,
        auto_accept: bool = False,
    ) -> None:
        """decode: makes payloads from bytes. None: payloads stay bytes."""
        session = new_id(db.clock)
        self.consumer = session if consumer is None else check_str("consumer", consumer)
        super().__init__(f"consumer {self.consumer} of {group}", db.handles if self._is_handle else None)
        self._db = db
        self._group = group
        self._holder = Holder(session, self.consumer)
        self._decode = decode
        self._auto_accept = auto_accept
        self._lock_ms = 0
        self._generation = 0
        self._held: set[Delivery[Any]] = set()
        self._queue: deque[Delivery[Any]] = deque()
        self._handed: list[Delivery[P]] = []
        self._accepted: set[Delivery[Any]] = set()
        self._hold: ShareHold | None = None
        self._overdue: set[Delivery[Any]] = set()
        self._filled = anyio.Event()
        self._marked = anyio.Event()
        self._turn = anyio.Lock()
        self._turns = 0
        self._iterated = 1
        self._is_busy = True
        self._streams: frozenset[int] = frozenset()
        self._watches_catalog = False
        self._changes: Subscription | None = None
        self._stack = ExitStack()
        self._tasks = HandleTasks(lambda _: self._wake())

    def __repr__(self) -> str:
        return f"ShareConsumer({self._group!r}, {self.consumer!r}, {self._state})"

    async def _start(self) -> None:
        record = await self._db.read(partial(get_group, name=self._group, share=True))
        self._lock_ms, self._generation = record.share.lock_ms, record.generation
        self._changes = self._stack.enter_context(self._db.subscribe([watch_share(self._group)]))
        self._db.shared[LOCAL_SESSIONS].present.add(self._holder.session)
        self._tasks.start_soon(self._save_often)
        self._tasks.start_soon(self._return_overdue)

    async def _finish(self, why: BaseException | None) -> None:
        async def leave() -> None:
            try:
                await self._tasks.stop()
                async with self._turn:  # after a poll of another task
                    if why is None:
                        self._finish_handed()
                    await self._let_go()
            except NotFound:
                pass  # the group was deleted, and its locks with it
            except EventprocError as failed:
                if why is None:
                    raise
                LOG.warning("%s: failed to release events on leaving: %s", self._group, failed)
            finally:
                # What could not be released is available again, because this session has ended.
                self._db.shared[LOCAL_SESSIONS].present.discard(self._holder.session)
                self._changes = None
                self._stack.close()

        self._wake()
        await run_uninterrupted(leave)

    async def _let_go(self) -> None:
        """Store what is accepted, and release the rest; what no caller saw was not delivered."""
        unseen = self._held.intersection(self._queue)
        parts = [
            (Settlement.ACCEPT, self._accepted),
            (Settlement.RETURN, self._overdue | unseen),
            (Settlement.RELEASE, self._held - unseen),
        ]
        settled = [self._settled(how, events) for how, events in parts if events]

        def step(tx: Tx) -> None:
            for each in settled:
                settle(tx, self._db, self._group, self._holder, each, strict=False)

        if settled:
            await self._db.write(step, step=Step.SHARE_SETTLE)

    async def poll(
        self, events_max: int = SHARE_POLL_EVENTS, *, timeout_ms: int | None = None
    ) -> list[Delivery[P]]:
        """Acquire events, and return them; wait until there are some.

        Each event is this consumer's until it settles it, or until its lock ends: after the group's `lock_ms`, or when
        this process dies. With `auto_accept`, a poll accepts what the previous one returned and the caller did not
        settle. An event whose payload cannot be decoded becomes a dead letter and is not returned.

        Args:
            events_max: the most events to return. Default: 500. One poll returns about 1 MiB at most.
            timeout_ms: how long to wait, in ms; 0 does not wait. None (default): until there are events.

        Returns:
            The events, in no particular order between segments. Empty after `timeout_ms`, or if all streams of the
            group are sealed and all their events are finished.

        Raises:
            NotFound: the group was deleted.
            ShareStreamsDeleted: all streams of the group were deleted.
            StreamSealed: the dead-letter stream of the group is sealed.
            Closed: the consumer was closed.
            InvalidArgument: an argument is not valid.

        Cost:
            One transaction.
        """
        events_max = check_int("events_max", events_max, least=1)
        if timeout_ms is not None:
            timeout_ms = check_int("timeout", timeout_ms, least=0, unit="ms")
        self._finish_handed()
        async with self._turn:
            events = await self._poll(events_max, events_max, timeout_ms)
            if self._auto_accept:
                self._handed = list(events)
            return events

    def __aiter__(self) -> Self:
        """Yield events one by one; asking for the next accepts the previous one, unless the caller settled it.

        Accepted events become durable within a second. Leaving the consumer's block by an exception releases the event
        in hand. Ends when all streams of the group are sealed, and all their events are finished. A loop may be left at
        any event.

        Raises:
            NotFound, ShareStreamsDeleted, StreamSealed, Closed: as `poll`.
        """
        return self

    async def __anext__(self) -> Delivery[P]:
        """Return the next event, after accepting the previous one. See `__aiter__`."""
        self._finish_handed()
        if self._queue and not self._turn.locked() and not self.closed:  # without a lock for each event
            self._drop_overdue()
            events, undecoded = self._hand_out(1)
            if undecoded is not None:
                await self._reject_undecoded(*undecoded)
            if events:
                self._handed = events
                return events[0]
        async with self._turn:
            events = await self._poll(1, self._iterated, None)
            self._iterated = min(2 * self._iterated, ITERATED_EVENTS)
            self._handed = events
        if not events:
            raise StopAsyncIteration
        return events[0]

    async def _take_back(self, events: Iterable[Delivery[Any]]) -> None:
        """Let the next poll, or the end, return events to the group: a thread was interrupted before it had them."""
        unseen = self._held.intersection(events)
        self._handed = []
        self._held -= unseen
        self._overdue |= unseen

    def hold_progress(self, txn: str) -> ProgressHold:
        """Let only a joint transaction accept events, until the transaction ends. `ep.transaction` calls it.

        Its commit accepts what `accept`, iterating and `auto_accept` accept meanwhile. If it does not commit, the
        consumer still holds these events: it may settle them, and they are delivered again when their locks end.

        Args:
            txn: the transaction's id.

        Raises:
            Closed: the consumer is not open.
            IllegalTransition: another transaction holds the progress.
        """
        self._verify_open()
        if self._hold is not None:
            state = f"in transaction {self._hold.txn}, whose commit accepts its events"
            raise IllegalTransition(name=self._what, event=f"another transaction, {txn},", state=state)
        self._hold = ShareHold(self, txn)
        return self._hold

    async def accept(self, events: Delivery[Any] | Iterable[Delivery[Any]]) -> None:
        """Accept events: they are finished, and nobody receives them again.

        In the block of a joint transaction with this consumer they are finished when the transaction commits.

        Args:
            events: one event, or several; all or none are accepted.

        Raises:
            LockLost: the consumer no longer holds some of them; nothing changed.
            NotFound: the group was deleted.
            InvalidArgument: not an event of a share group.

        Cost:
            One transaction, however many events.
        """
        await self._settle(Settlement.ACCEPT, events)

    async def release(self, events: Delivery[Any] | Iterable[Delivery[Any]], *, delay_ms: int = 0) -> None:
        """Release events: they are delivered again, at once or later, or become dead letters if this was the last time.

        Args:
            events: one event, or several; all or none are released.
            delay_ms: deliver them not before so many ms; other events go on meanwhile. Default: 0, at once.

        Raises:
            LockLost, NotFound, InvalidArgument: as `accept`.
            StreamSealed: the dead-letter stream of the group is sealed.
        """
        check_int("delay_ms", delay_ms, least=0, most=DUE_MS_MAX, unit="ms")
        await self._settle(Settlement.RELEASE, events, delay_ms=delay_ms)

    async def reject(self, events: Delivery[Any] | Iterable[Delivery[Any]], reason: str = "") -> None:
        """Reject events: they become dead letters, and nobody receives them again unless they are redriven.

        Args:
            events: one event, or several; all or none are rejected.
            reason: why, for the dead letter.

        Raises:
            LockLost, NotFound, InvalidArgument: as `accept`.
            StreamSealed: the dead-letter stream of the group is sealed.
        """
        # Of any text: what a dead letter cannot hold of it is escaped there.
        why = check_instance(str, "reason", reason, "it must be str") or "a consumer rejected the event"
        await self._settle(Settlement.REJECT, events, error=why)

    async def renew(self, events: Delivery[Any] | Iterable[Delivery[Any]]) -> None:
        """Let the locks of events begin again: the consumer holds them for another `lock_ms`.

        Args:
            events: one event, or several; all or none are renewed.

        Raises:
            LockLost, NotFound, InvalidArgument: as `accept`.
        """
        await self._settle(Settlement.RENEW, events)

    @property
    def held_events(self) -> int:
        """How many events this consumer received and has not settled."""
        return len(self._held) - len(self._queue)

    async def _settle(
        self,
        how: Settlement,
        events: Delivery[Any] | Iterable[Delivery[Any]],
        *,
        error: str = "",
        delay_ms: int = 0,
    ) -> None:
        chosen = dict.fromkeys(_checked(events))
        await anyio.lowlevel.checkpoint()
        self._verify_open()
        self._verify_held(chosen)
        if how is Settlement.ACCEPT and (hold := self._hold) is not None:
            async with hold.lock:  # not while the transaction is decided
                if self._hold is hold:
                    hold.accepted.update(chosen)
                    return
            self._verify_held(chosen)
        if not chosen:
            return
        settled = self._settled(how, chosen, error=error, delay_ms=delay_ms)

        await self._db.write(
            partial(self._settle_all, settled=settled, events=chosen), step=Step.SHARE_SETTLE
        )

    def _settle_all(self, tx: Tx, settled: SettledSpans, events: Iterable[Delivery[Any]]) -> None:
        """Settle all of the events within `tx`, with which they leave this consumer. Raises LockLost."""
        settle(tx, self._db, self._group, self._holder, settled, strict=True)
        until_ms = tx.monotonic_ms
        if settled.how is Settlement.RENEW:  # with the present length, which may have changed
            until_ms += get_group(tx, self._group, share=True).share.lock_ms
        tx.after(partial(self._note_settled, settled.how, events, until_ms))

    def _note_settled(self, how: Settlement, settled: Iterable[Delivery[Any]], until_ms: int) -> None:
        if how is not Settlement.RENEW:
            self._held.difference_update(settled)
            if self._hold is not None:
                self._hold.accepted.difference_update(settled)
        else:
            for each in settled:
                each.until_ms = until_ms

    def _settled(
        self, how: Settlement, events: Iterable[Delivery[Any]], *, error: str = "", delay_ms: int = 0
    ) -> SettledSpans:
        return SettledSpans(how, self._generation, spans_of(events), error, delay_ms)

    def _finish_handed(self) -> None:
        """Accept what was handed out last and not settled."""
        accepted = self._held.intersection(self._handed)
        self._handed = []
        self._accept_later(accepted)

    def _accept_later(self, accepted: set[Delivery[Any]]) -> None:
        """Accept events with a later write: the decision of the transaction that holds the progress, or the next."""
        if self._hold is not None:
            self._hold.accepted |= accepted
            return
        self._held -= accepted
        self._accepted |= accepted
        if self._accepted and not self._marked.is_set():
            self._marked.set()

    async def _poll(self, events_max: int, acquired_max: int, timeout_ms: int | None) -> list[Delivery[P]]:
        deadline = None if timeout_ms is None else anyio.current_time() + timeout_ms / 1000
        # What was acquired for this caller is handed out, even if the commit took more than half of the lock: the next
        # commit might take as long, and the events would be returned and acquired forever.
        is_acquired = False
        while True:
            await anyio.lowlevel.checkpoint()
            self._verify_open()
            if not is_acquired:
                self._drop_overdue()
            events, undecoded = self._hand_out(events_max)
            if events:
                return events
            if undecoded is not None:
                await self._reject_undecoded(*undecoded)
                continue
            if self._is_busy or self._overdue:  # the last look found events: there are probably more
                is_acquired = self._is_busy = await self._acquire(acquired_max)
                continue
            outlook = await self._db.read(partial(look_ahead, db=self._db, name=self._group))
            if outlook.is_ready:
                is_acquired = await self._acquire(acquired_max)
            elif self._accepted:
                await self._save()
            elif outlook.is_ended or not await self._wait(outlook, deadline):
                return []

    def _hand_out(self, events_max: int) -> tuple[list[Delivery[P]], tuple[Delivery[Any], Exception] | None]:
        """Take events from the queue, up to one whose payload cannot be decoded; return that one if it is the first."""
        events: list[Delivery[P]] = []
        while self._queue and len(events) < events_max:
            found = self._queue[0]
            if found in self._held:  # neither settled, nor of before a reset
                try:
                    if self._decode is not None:
                        found.event = found.event._replace(payload=self._decode(found.event.payload))
                except Exception as why:
                    return events, None if events else (found, why)
                events.append(found)
            self._queue.popleft()
        return events, None

    def _drop_overdue(self) -> None:
        """Drop events that have waited here for half of their lock; a later write returns them to the group."""
        latest_ms = self._db.clock.monotonic_ms() + self._lock_ms // 2
        while self._queue:
            first = self._queue[0]
            if first in self._held:
                if first.until_ms > latest_ms:  # those behind it were locked later
                    break
                self._held.remove(first)
                self._overdue.add(first)
            self._queue.popleft()

    async def _return_overdue(self) -> None:
        """Return events that no caller has asked for; until cancelled.

        Otherwise a slow handler would let the locks of the events behind it end, which counts as deliveries of events
        that nobody saw, and makes dead letters of them.
        """
        while True:
            await self._filled.wait()
            while self._queue:
                first = self._queue[0]
                due_ms = first.until_ms - self._lock_ms // 2 if first in self._held else 0
                await anyio.sleep(max(due_ms - self._db.clock.monotonic_ms(), 0) / 1000)
                async with (
                    self._turn
                ):  # an acquisition returns them too; the second return would find other locks
                    self._drop_overdue()
                    try:
                        await self._return()
                    except EventprocError as why:  # the consumer's own task will raise it too
                        LOG.warning("%s: failed to return events: %s", self._group, why)
            self._filled = anyio.Event()

    async def _return(self) -> None:
        if overdue := set(self._overdue):
            await self._db.write(partial(self._return_in, overdue=overdue), step=Step.SHARE_SETTLE)

    def _return_in(self, tx: Tx, overdue: set[Delivery[Any]]) -> None:
        """Return events within `tx`: nobody saw them, so this delivery does not count."""
        settled = self._settled(Settlement.RETURN, overdue)
        settle(tx, self._db, self._group, self._holder, settled, strict=False)
        tx.after(partial(self._overdue.difference_update, overdue))

    async def _reject_undecoded(self, undecoded: Delivery[Any], why: Exception) -> None:
        """Reject the first event of the queue; it stays there if that is interrupted."""
        place = undecoded.place
        LOG.warning("%s: the payload of %s cannot be decoded (%s); rejected", self._group, place, why)
        try:
            await self.reject(undecoded, f"the payload cannot be decoded: {why}")
        except LockLost as lost:
            LOG.warning("%s", lost)
        if self._queue and self._queue[0] is undecoded:
            self._queue.popleft()
            self._held.discard(undecoded)

    async def _acquire(self, events_max: int) -> bool:
        """Acquire events into the queue, and store what is accepted; return whether there were any."""
        saving, overdue = self._begin_saving(), set(self._overdue)
        self._turns += 1

        def step(tx: Tx) -> Acquisition:
            if overdue:
                self._return_in(tx, overdue)
            found = acquire(
                *(tx, self._db, self._group, self._holder, events_max),
                settled=None if saving is None else saving.settled,
                first=self._turns,
            )
            tx.after(partial(self._adopt, found, saving, self._handed_out(tx, found)))
            return found

        try:
            found = await self._db.write(step, step=Step.SHARE_ACQUIRE)
        finally:
            self._end_saving(saving)
        return bool(found.runs)

    def _handed_out(self, tx: Tx, found: Acquisition) -> list[Delivery[Any]]:
        """Return the deliveries of an acquisition, within its transaction."""
        return deliveries_of(found, self._kind, self._group)

    def _adopt(self, found: Acquisition, saving: _Saving | None, new: Sequence[Delivery[Any]]) -> None:
        if saving is not None:
            self._note_stored(saving, found.lost)
        self._lock_ms = found.lock_ms
        for each in found.runs:
            self._db.shared[EVENTS_READ][each.stream] += len(each.run)
        if found.generation != self._generation:  # the group was reset: every lock of before is lost
            self._generation = found.generation
            for of_before in (self._held, self._queue, self._accepted, self._overdue):
                of_before.clear()
        if len(self._held) > HELD_EVENTS_MAX:
            now_ms = self._db.clock.monotonic_ms()
            self._held = {each for each in self._held if each.until_ms > now_ms}
        self._held.update(new)
        self._queue.extend(new)
        if self._queue:
            self._filled.set()

    async def _save(self) -> None:
        """Store what is accepted."""
        saving = self._begin_saving()
        if saving is None:
            return

        def step(tx: Tx) -> None:
            lost = settle(tx, self._db, self._group, self._holder, saving.settled, strict=False)
            tx.after(partial(self._note_stored, saving, lost))

        try:
            await self._db.write(step, step=Step.SHARE_SETTLE)
        finally:
            self._end_saving(saving)

    def _begin_saving(self) -> _Saving | None:
        if not self._accepted:
            return None
        taken, self._accepted = self._accepted, set()
        return _Saving(taken, self._settled(Settlement.ACCEPT, taken))

    def _end_saving(self, saving: _Saving | None) -> None:
        if saving is not None and not saving.is_stored and saving.settled.generation == self._generation:
            self._accepted = saving.events | self._accepted

    def _note_stored(self, saving: _Saving, lost: tuple[str, ...]) -> None:
        saving.is_stored = True
        if lost:
            LOG.warning("%s: %d events were accepted after their lock was lost", self._group, len(lost))

    async def _save_often(self) -> None:
        """Store accepted events within a second; until cancelled."""
        while True:
            await self._marked.wait()
            await anyio.sleep(SAVE_MS / 1000)
            self._marked = anyio.Event()
            try:
                await self._save()
            except EventprocError as why:  # the consumer's own task will raise it too
                LOG.warning("%s: failed to store accepted events: %s", self._group, why)

    async def _wait(self, outlook: Outlook, deadline: float | None) -> bool:
        """Return True when there may be events, False at the deadline."""
        assert self._changes is not None, "an open consumer has a subscription"
        for stream_id in self._streams - outlook.stream_ids:
            self._changes.discard(watch_stream(stream_id).channel)
        new, self._streams = outlook.stream_ids - self._streams, outlook.stream_ids
        for stream_id in new:
            self._changes.add(watch_stream(stream_id))
        if new:
            return True  # something may have happened before this
        if outlook.awaits_streams and not self._watches_catalog:
            self._watches_catalog = True
            self._changes.add(WATCH_CATALOG)
            return True
        clock, watched = self._db.clock, outlook.instances
        while True:
            left_ms = None if deadline is None else max(round((deadline - anyio.current_time()) * 1000), 0)
            ends_ms = None if outlook.ends_ms is None else max(outlook.ends_ms - clock.monotonic_ms(), 0)
            pauses = [left_ms, ends_ms, POLL_MS if watched else None]
            if await self._changes.wait(min((each for each in pauses if each is not None), default=None)):
                return True
            if outlook.ends_ms is not None and outlook.ends_ms <= clock.monotonic_ms():
                return True
            if not all(map(self._db.peers.is_alive, watched)):
                return True
            if self.closed or self._tasks.failure is not None:
                return True
            if deadline is not None and anyio.current_time() >= deadline:
                return False

    def _verify_held(self, events: Iterable[Delivery[Any]]) -> None:
        if lost := tuple([each.place for each in events if each not in self._held]):
            raise LockLost(group=self._group, consumer=self.consumer, events=lost)

    def _wake(self) -> None:
        """Let a poll that waits see that this consumer was closed, or that its task failed."""
        if self._changes is not None:
            self._changes.notify(channel_of(self._group))

    def _verify_open(self) -> None:
        if self._tasks.failure is not None:
            raise self._tasks.failure
        self._verify_opened("consuming")
        if self.closed:
            raise Closed(what=self._what)


class ShareHold:
    """The events that a joint transaction accepts for a consumer. Implements `ProgressHold`.

    group: of the consumer. txn: id of the transaction. accepted: what its commit accepts; the consumer holds it until
    then. lock: held while the transaction is decided.
    """

    def __init__(self, consumer: ShareConsumer[Any], txn: str) -> None:
        self.group = consumer._group
        self.txn = txn
        self.accepted: set[Delivery[Any]] = set()
        self.lock = anyio.Lock(fast_acquire=True)
        self._consumer = consumer

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator[Callable[[Tx], None]]:
        """See `ProgressHold.deciding`. Raises LockLost if the consumer no longer holds an accepted event."""
        consumer = self._consumer
        async with self.lock:
            consumer._verify_open()
            consumer._finish_handed()
            consumer._verify_held(self.accepted)
            accepted = frozenset(self.accepted)
            yield partial(self._accept, accepted, consumer._settled(Settlement.ACCEPT, accepted))

    def _accept(self, accepted: frozenset[Delivery[Any]], settled: SettledSpans, tx: Tx) -> None:
        consumer = self._consumer
        settle(tx, consumer._db, self.group, consumer._holder, settled, strict=True)
        tx.after(partial(self._note_accepted, accepted))

    def _note_accepted(self, accepted: frozenset[Delivery[Any]]) -> None:
        """Free the consumer; as an effect of the transaction, so that a cancelled caller does not lose it."""
        consumer = self._consumer
        consumer._hold = None
        consumer._held -= accepted
        consumer._accept_later(self.accepted - accepted)  # what another task went past meanwhile

    async def end(self) -> None:
        """See `ProgressHold.end`."""
        self.try_end()

    def try_end(self) -> bool:
        """See `ProgressHold.try_end`."""
        consumer = self._consumer
        if consumer._hold is self:  # not committed
            consumer._hold = None
            consumer._handed = []  # in hand, and not accepted by asking for the next
        return True


def _checked(events: object) -> list[Delivery[Any]]:
    if isinstance(events, Delivery):
        return [events]
    reason = "it must be a delivery of this consumer, or several"
    found: list[Delivery[Any]] = []
    for each in check_iterable("events", events, reason):
        if not isinstance(each, Delivery):
            raise invalid_argument("events", each, reason)
        found.append(each)
    return found
