"""The callbacks of a consumer: which partitions it gains, has to give away, or lost.

Source: docs/design/consumers.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Final, TypeAlias

import anyio
import attrs

from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.session import GiveUp, OwnershipListener
from eventproc.store.groups import SegmentKey
from eventproc.store.model.ids import number_of
from eventproc.store.model.partitions import is_reserve
from eventproc.topics.partition import TopicPartition

LOG = logging.getLogger("eventproc.topics")

PartitionsCallback: TypeAlias = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]
"""Called with the partitions that a consumer gained or lost."""

_CALLING: Final[ContextVar[CallbackListener | None]] = ContextVar("eventproc consumer callback", default=None)
"""What calls back the task or thread: a consumer that polled in its own callback would wait for itself."""


@attrs.frozen
class RebalanceCallbacks:
    """The callbacks of a consumer."""

    on_assigned: PartitionsCallback | None = None
    on_revoked: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None


def partition_of(owned: OwnedSegment) -> TopicPartition:
    """Return the partition that an owned segment is."""
    return TopicPartition(owned.assigned.stream, number_of(owned.key[1]))


class CallbackListener(OwnershipListener):
    """Calls back as the partitions of one session change."""

    def __init__(self, callbacks: RebalanceCallbacks, what: str) -> None:
        """what: the consumer, for the log."""
        self._callbacks = callbacks
        self._what = what
        self._announced: dict[SegmentKey, OwnedSegment] = {}
        self._failure: Exception | None = None
        self._calling = False

    @property
    def is_calling(self) -> bool:
        """Whether the caller runs in a callback."""
        return self._calling and _CALLING.get() is self

    def verify(self) -> None:
        """Raise what a callback raised."""
        if (failure := self._failure) is not None:
            self._failure = None
            raise failure

    async def follow(self, owned: Iterable[OwnedSegment], patience_ms: int | None) -> None:
        """Call `on_lost` and `on_assigned` for what was lost and gained."""
        now = {each.key: each for each in owned if not is_reserve(each.key[1])}
        gone = [
            each
            for key, each in self._announced.items()
            if key not in now or now[key].assigned is not each.assigned
        ]
        for each in gone:
            del self._announced[each.key]
        if lost := [each for each in gone if not each.complete]:
            await self._call(self._callbacks.on_lost, lost, patience_ms)
        new = [each for key, each in now.items() if key not in self._announced]
        self._announced = now
        if new:
            await self._call(self._callbacks.on_assigned, new, patience_ms)

    async def before_release(
        self, owned: Iterable[OwnedSegment], patience_ms: int | None, give_up: GiveUp
    ) -> None:
        """Call `on_revoked`. It is called again if giving up fails, because then the partitions are still owned."""
        due = [each for each in owned if each.key in self._announced]
        if due and not await self._call(self._callbacks.on_revoked, due, patience_ms):
            await give_up()
        for each in due:
            self._announced.pop(each.key, None)

    async def _call(
        self, callback: PartitionsCallback | None, owned: Iterable[OwnedSegment], patience_ms: int | None
    ) -> bool:
        """Call back, and keep what the callback raises. Return False if it exceeded the group's patience."""
        if callback is None:
            return True
        partitions = tuple(sorted(map(partition_of, owned)))
        self._calling = True
        caller = _CALLING.set(self)
        scope = anyio.move_on_after(None if patience_ms is None else patience_ms / 1000)
        try:
            with scope:
                await callback(partitions)
        except Exception as why:  # the user's: the poll that follows the group raises it
            self._failure = self._failure or why
        finally:
            self._calling = False
            _CALLING.reset(caller)
        if scope.cancelled_caught:
            LOG.warning(
                "%s: a callback did not return within %s ms for %s; it was cancelled",
                *(self._what, patience_ms, ", ".join(map(str, partitions))),
            )
        return not scope.cancelled_caught
