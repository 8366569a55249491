"""The consumer of a worker: it settles events in transactions of its caller, and need not keep what it acquires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeAlias, TypeVar, cast

import attrs

from eventproc.groups import SegmentKey
from eventproc.shares import Delivery, ShareConsumer
from eventproc.shares.acquisition import Acquisition
from eventproc.shares.delivery import SettledSpans, settle
from eventproc.shares.events import spans_of, still_held
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.jobs import return_jobs
from eventproc.store.model.deliveries import Settlement

Admit: TypeAlias = Callable[[Tx, Sequence[Delivery[Any]]], Mapping[Delivery[Any], int | None]]
"""Gets what was acquired, within its transaction; returns what to set aside again, and for how many ms. None: what is
finished without anybody's doing."""

D = TypeVar("D", bound=Delivery[Any])


@attrs.define(eq=False, repr=False)
class HeldDelivery(Delivery[Any]):
    """An event that this process holds.

    closing: it holds it no more, so no call begins for it. error: of its last failed call. has_result, result: whether
    its call returned, and what. since_ms: when it was handed out, monotonic.
    """

    closing: bool = False
    error: str | None = None
    result: bytes | None = None
    has_result: bool = False
    since_ms: int = 0

    @property
    def owned(self) -> Self:
        """Itself: each event is held alone."""
        return self

    @property
    def key(self) -> SegmentKey:
        """Its segment."""
        return self.stream_id, self.event.segment

    @property
    def attempts_before(self) -> int:
        """Deliveries before this one."""
        return self.deliveries - 1


class WorkerConsumer(ShareConsumer[bytes]):
    """A consumer of a share group on behalf of a worker, which closes it: a closing directory drains its apps."""

    _is_handle = False
    _kind = HeldDelivery

    def __init__(self, db: Database, group: str, consumer: str, admit: Admit) -> None:
        super().__init__(db, group, consumer)
        self._admit = admit

    async def poll_held(self, events_max: int) -> list[HeldDelivery]:
        """Return the next events. See `poll`."""
        found = cast("list[HeldDelivery]", await self.poll(events_max))
        since_ms = self._db.clock.monotonic_ms()
        for each in found:
            each.since_ms = since_ms
        return found

    def still_held(self, tx: Tx, events: Iterable[D]) -> set[D]:
        """Return those of the events that this consumer still holds."""
        return still_held(tx, self._group, self._holder.session, events)

    def settle_in(
        self,
        tx: Tx,
        how: Settlement,
        events: Iterable[Delivery[Any]],
        *,
        error: str = "",
        delay_ms: int = 0,
    ) -> None:
        """Settle events; they leave this consumer with the commit of `tx`. Returned jobs wait. Raises LockLost.

        error, delay_ms: see `SettledSpans`.
        """
        if chosen := dict.fromkeys(events):
            if how is Settlement.RETURN:
                jobs = {job: each.deliveries - 1 for each in chosen if (job := each.job) is not None}
                return_jobs(tx, self._group, jobs)
            settled = self._settled(how, chosen, error=error, delay_ms=delay_ms)
            self._settle_all(tx, settled, chosen)

    async def return_held(self) -> None:
        """Return everything that this consumer holds; these deliveries do not count."""

        held = list(self._held)  # an acquisition may end while this transaction runs

        def step(tx: Tx) -> None:
            self.settle_in(tx, Settlement.RETURN, self.still_held(tx, held))

        if held:
            await self._db.write(step, step=Step.SHARE_SETTLE)

    def _handed_out(self, tx: Tx, found: Acquisition) -> list[Delivery[Any]]:
        """Return the deliveries of an acquisition without those that are not handed out, which do not count."""
        new = super()._handed_out(tx, found)
        others = self._admit(tx, new) if new else {}
        by_delay: dict[int | None, list[Delivery[Any]]] = {}
        for each, delay_ms in others.items():
            by_delay.setdefault(delay_ms, []).append(each)
        for delay_ms, left in by_delay.items():
            how = Settlement.ACCEPT if delay_ms is None else Settlement.RETURN
            settled = SettledSpans(how, found.generation, spans_of(left), delay_ms=delay_ms or 0)
            settle(tx, self._db, self._group, self._holder, settled, strict=True)
        return [each for each in new if each not in others]
