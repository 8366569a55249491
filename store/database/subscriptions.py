"""Who waits for which change.

A *topic* is any hashable value (a stream's tail, a request's outcome). Commits of this process name the topics
they change and wake their subscriptions directly. Commits of other processes only ring a bell; then one read
asks all *probes* at once, and a topic whose probe gives another value than before is woken.

A wake-up may come without a change; a change never goes without a wake-up, provided the caller subscribes
first, then looks at the state, then waits. Source: architecture.md section 1, "Bell".
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
"""The value of a probe that has not been asked, or could not answer: differs from every other."""


@attrs.frozen
class Watch:
    """A topic, and the query that tells whether another process has changed it."""

    topic: Hashable
    probe: Callable[[Tx], Hashable]
    """Runs in a read; cheap (one indexed look-up). Its value only matters by being another than last time."""


class Subscriptions:
    """All subscriptions of one database. Used on the event loop only."""

    def __init__(self) -> None:
        self._subscriptions: dict[Hashable, set[Subscription]] = {}
        self._last: dict[Watch, object] = {}

    @property
    def watches(self) -> tuple[Watch, ...]:
        """Every watch that somebody waits on."""
        return tuple(self._last)

    def wake(self, topics: Iterable[Hashable]) -> None:
        """Wake the subscriptions on `topics`."""
        if self._subscriptions:
            for topic in topics:
                for subscription in self._subscriptions.get(topic, ()):
                    subscription.notify(topic)

    def compare(self, values: dict[Watch, Hashable]) -> None:
        """Wake the topics whose probes gave other values than last time."""
        for watch, value in values.items():
            if watch not in self._last:  # nobody waits for it any more
                continue
            last, self._last[watch] = self._last[watch], value
            if last is UNKNOWN or value is UNKNOWN or last != value:
                self.wake((watch.topic,))

    def add(self, subscription: Subscription, watch: Watch) -> None:
        """Let `subscription` be woken by `watch`."""
        self._subscriptions.setdefault(watch.topic, set()).add(subscription)
        self._last.setdefault(watch, UNKNOWN)

    def discard(self, subscription: Subscription, watch: Watch) -> None:
        """Take back `add`."""
        waiting = self._subscriptions.get(watch.topic, set())
        waiting.discard(subscription)
        if not any(watch in other.watches for other in waiting):
            self._last.pop(watch, None)
        if not waiting:
            self._subscriptions.pop(watch.topic, None)


def ask(watches: Iterable[Watch], tx: Tx) -> dict[Watch, Hashable]:
    """Run every probe in one snapshot. A probe that fails counts as a change: its waiter will see the error."""
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
        self.watches: set[Watch] = set(watches)
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
        watches, self.watches = self.watches, set()
        for watch in watches:
            self._subscriptions.discard(self, watch)

    def add(self, watch: Watch) -> None:
        """Wait for `watch` too."""
        self.watches.add(watch)
        if self._active:
            self._subscriptions.add(self, watch)

    def discard(self, topic: Hashable) -> None:
        """Do not wait for `topic` any more; no error if it was not waited for."""
        self._changed.discard(topic)
        for watch in [watch for watch in self.watches if watch.topic == topic]:
            self.watches.discard(watch)
            if self._active:
                self._subscriptions.discard(self, watch)

    def notify(self, topic: Hashable) -> None:
        """Note a change of `topic`; called by the subscriptions."""
        self._changed.add(topic)
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout_ms: int | None = None) -> frozenset[Hashable]:
        """Return the topics changed since the previous wait; empty if `timeout_ms` passed without a change.

        One task at a time waits on a subscription. Reaches a scheduling point even if a change is there.
        """
        assert self._active, "wait() belongs inside the subscription's `with` block"
        assert self._event is None, "another task waits on this subscription"
        if self._changed:
            await anyio.lowlevel.checkpoint()
        else:
            self._event = anyio.Event()
            try:
                with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
                    await self._event.wait()
            finally:
                self._event = None
        changed, self._changed = frozenset(self._changed), set()
        return changed
