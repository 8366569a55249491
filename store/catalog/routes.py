"""Routes: the segment of each routing key in a stream's current epoch, remembered per opening.

A route that became stale does no harm: the append to its sealed segment, or to a topic whose reserve is sealed, is
refused, and the caller reads the epoch.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.partitions import Router
from eventproc.store.model.routing import point

KEYS_KNOWN_MAX: Final = 100_000
"""Routing keys that are remembered by a writer, and by the transactions of all streams together, about 200 bytes each.
Higher: more memory, which pays only if keys recur; lower: more hashes, at three look-ups each."""

ROUTES_MAX: Final = 1_024
"""Streams whose current epoch is remembered. Higher: more memory, about 0.3 kB per segment; lower: a read for each
transaction of a process that alternates between more streams."""

NO_POINT: Final = float("nan")
"""The point of an event without a key."""


class KeyRoutes:
    """The segments of routing keys in one epoch. points: of the keys that are remembered, in the key space."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.points: dict[str | None, float] = {None: NO_POINT}
        self._segments: dict[str, SegmentId] = {}

    def segment(self, key: str) -> SegmentId:
        """Return the segment that takes the key's events. Raises InvalidArgument for an invalid key."""
        if (found := self._segments.get(key)) is None:
            where = point(key)
            found = self.router.segment(where)
            if len(self._segments) >= KEYS_KNOWN_MAX:
                self.forget_keys()
            self._segments[key], self.points[key] = found, where
        return found

    @property
    def keys_count(self) -> int:
        """How many keys are remembered."""
        return len(self._segments)

    def forget_keys(self) -> None:
        """Forget all keys."""
        self._segments.clear()
        self.points = {None: NO_POINT}


class RouteCache:
    """The routes of streams by id, the least recently used dropped first. Used on the event loop only."""

    def __init__(self) -> None:
        self._routes: OrderedDict[int, KeyRoutes] = OrderedDict()
        self._since_count = 0

    def find(self, stream_id: int) -> KeyRoutes | None:
        """Return the routes of the epoch that was current when they were read, or None."""
        if (found := self._routes.get(stream_id)) is not None:
            self._routes.move_to_end(stream_id)
            self._bound_keys()
        return found

    def add(self, stream_id: int, router: Router) -> KeyRoutes:
        """Remember an epoch that was just read, unless a later one is known; return the routes of the later one."""
        found = self._routes.get(stream_id)
        if found is None or found.router.epoch.number < router.epoch.number:
            found = self._routes[stream_id] = KeyRoutes(router)
            if len(self._routes) > ROUTES_MAX:
                self._routes.popitem(last=False)
        return found

    def forget(self, stream_id: int) -> None:
        """Forget a stream whose epoch ended. To be called as an effect of the transaction that ended it."""
        self._routes.pop(stream_id, None)

    def _bound_keys(self) -> None:
        """Count the keys of all routes now and then, and forget them if there are too many."""
        self._since_count += 1
        if self._since_count >= ROUTES_MAX:
            self._since_count = 0
            if sum(each.keys_count for each in self._routes.values()) > KEYS_KNOWN_MAX:
                for each in self._routes.values():
                    each.forget_keys()


ROUTES: Final = SharedSlot(RouteCache)


def forget_routes(tx: Tx, stream_id: int) -> None:
    """Forget the stream's routes once this transaction, which seals segments of it, is durable."""
    routes = tx.shared[ROUTES]
    tx.after(lambda: routes.forget(stream_id))
