"""Subscriptions: callers that wait for changes, by topic.

A *topic* is any hashable value (a stream's tail, a request's outcome). A commit of this process names the topics that
it changes and wakes their subscriptions directly. A commit of another process only sends a notification. One read then
runs all *probes*, and each topic whose probe returns another value than before is woken.

A wake-up may come without a change. Every change causes a wake-up if the caller first subscribes, then reads the state,
then waits. Source: architecture.md section 1, "Notification".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from types import TracebackType
from typing import Final

import anyio
import attrs

from eventproc.store.database.tx import Tx

LOG = logging.getLogger(__name__)

UNKNOWN: Final = object()
"""The value of a probe that did not run yet, or failed. It differs from every other value."""


@attrs.frozen
class Watch:
    """A topic, and the query that detects a change of it by another process."""

    topic: Hashable
    probe: Callable[[Tx], Hashable]
    """Runs in a read; must be cheap (one indexed lookup). A value that differs from the last one means a change."""


class Subscriptions:
    """All subscriptions of one database. Used on the event loop only."""

    def __init__(self) -> None:
        # An order of its own, so that the same run wakes tasks in the same order.
        self._subscriptions: dict[Hashable, dict[Subscription, None]] = {}
        self._last: dict[Watch, object] = {}
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error that every wait raises; None while the database is usable."""

    def stop(self, refusal: Callable[[], BaseException]) -> None:
        """Wake every waiting task; its wait, and every later one, raises what `refusal` returns."""
        self.refusal = refusal
        for topic, subscriptions in self._subscriptions.items():
            for subscription in subscriptions:
                subscription.notify(topic)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """Every watch of an active subscription."""
        return tuple(self._last)

    def wake(self, topics: Iterable[Hashable]) -> None:
        """Wake the subscriptions on `topics`."""
        if self._subscriptions:
            for topic in topics:
                for subscription in self._subscriptions.get(topic, ()):
                    subscription.notify(topic)

    def compare(self, values: dict[Watch, Hashable]) -> None:
        """Wake the topics whose probes returned other values than last time."""
        for watch, value in values.items():
            if watch not in self._last:  # its last subscription has ended
                continue
            last, self._last[watch] = self._last[watch], value
            if last is UNKNOWN or value is UNKNOWN or last != value:
                self.wake((watch.topic,))

    def add(self, subscription: Subscription, watch: Watch) -> None:
        """Wake `subscription` on changes of `watch`."""
        self._subscriptions.setdefault(watch.topic, {})[subscription] = None
        self._last.setdefault(watch, UNKNOWN)

    def discard(self, subscription: Subscription, watch: Watch) -> None:
        """Undo `add`."""
        waiting = self._subscriptions.get(watch.topic, {})
        waiting.pop(subscription, None)
        if not any(watch in other.watches for other in waiting):
            self._last.pop(watch, None)
        if not waiting:
            self._subscriptions.pop(watch.topic, None)


def run_probes(watches: Iterable[Watch], tx: Tx) -> dict[Watch, Hashable]:
    """Run every probe in one snapshot. A failing probe counts as a change, so that its waiter meets the error."""
    values: dict[Watch, Hashable] = {}
    for watch in watches:
        try:
            values[watch] = watch.probe(tx)
        except Exception:
            LOG.warning("the probe of %r failed", watch.topic, exc_info=True)
            values[watch] = UNKNOWN
    return values


class Subscription:
    """Waits for changes of its topics, from this process and others. Active inside its `with` block."""

    def __init__(self, subscriptions: Subscriptions, watches: Iterable[Watch]) -> None:
        self.watches: dict[Watch, None] = dict.fromkeys(watches)
        self._subscriptions = subscriptions
        self._changed: set[Hashable] = set()
        self._event: anyio.Event | None = None
        self._active = False

    def __enter__(self) -> Subscription:
        assert not self._active, "the subscription is active already"
        self._active = True
        for watch in self.watches:
            self._subscriptions.add(self, watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active = False
        watches, self.watches = self.watches, {}
        for watch in watches:
            self._subscriptions.discard(self, watch)
        if self._event is not None:  # another task waits: a handle is being closed under it
            self._event.set()

    def add(self, watch: Watch) -> None:
        """Also wait for `watch`."""
        self.watches[watch] = None
        if self._active:
            self._subscriptions.add(self, watch)

    def discard(self, topic: Hashable) -> None:
        """Stop waiting for `topic`, if the subscription waits for it."""
        self._changed.discard(topic)
        for watch in [watch for watch in self.watches if watch.topic == topic]:
            del self.watches[watch]
            if self._active:
                self._subscriptions.discard(self, watch)

    def notify(self, topic: Hashable) -> None:
        """Record a change of `topic` and wake the waiting task. Called by `Subscriptions`."""
        self._changed.add(topic)
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout_ms: int | None = None) -> frozenset[Hashable]:
        """Return the topics that changed since the previous wait; an empty set after `timeout_ms` without a change.

        Only one task at a time may wait on a subscription. A call always reaches a scheduling point. It returns too
        when the subscription ends. Raises Closed and DatabaseStopped.
        """
        assert self._active, "wait() belongs inside the subscription's `with` block"
        assert self._event is None, "another task waits on this subscription"
        if self._changed or self._subscriptions.refusal is not None:
            await anyio.lowlevel.checkpoint()
        else:
            self._event = anyio.Event()
            try:
                with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
                    await self._event.wait()
            finally:
                self._event = None
        if (refusal := self._subscriptions.refusal) is not None:
            raise refusal()
        changed, self._changed = frozenset(self._changed), set()
        return changed
