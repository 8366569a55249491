"""The states of keys that a processor has at hand: those of the keys that its events have had lately.

A value belongs to the owned segment for which it was read: the key's next segment, or the same one after it was lost,
is another object, and the value is read again. See docs/design/key-state.md.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import attrs

from eventproc.base.clock import Clock
from eventproc.groups.owned_segment import OwnedSegment
from eventproc.processors.context import TablesChange
from eventproc.processors.emit import Emission
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.errors import ProcessorFailed, failure_text
from eventproc.processors.key_state import KeyState
from eventproc.processors.options import Options
from eventproc.processors.retry import retry_transient
from eventproc.store.database import Database
from eventproc.store.key_states import StoredState, look_up

LOG = logging.getLogger("eventproc.processors")

ENTRY_BYTES: Final = 200
"""What an entry of the cache counts beside its key and the bytes of its value, for Python's objects."""

NO_VALUE: Final = object()
"""In place of an object that has to be decoded, or made, before the next call."""


@attrs.define(eq=False)
class CachedState:
    """The state of a key at hand.

    owned: the segment for which it was read.
    data: its bytes; None: the key has no state.
    value: the object that they are, or NO_VALUE: a call has it, or may have changed it.
    expires_ms: when it expires, wall time; None: never.
    timer_ms: the event time at which its key is called; None: it has no timer.
    changed_by: number of the last event that changed it here; -1: none did.
    unsaved: the last change, until it is durable.
    counted: the bytes that it counts in the cache.
    """

    options: KeyState[Any]
    key: str
    owned: OwnedSegment
    data: bytes | None
    value: object
    expires_ms: int | None
    timer_ms: int | None = None
    changed_by: int = -1
    unsaved: KeptState | None = None
    counted: int = 0

    @property
    def size_bytes(self) -> int:
        """What it is to count in the cache."""
        return ENTRY_BYTES + len(self.key) + (0 if self.data is None else len(self.data))

    def lend(self, clock: Clock) -> object:
        """Return the object for a call, which may change it."""
        value, self.value = self.value, NO_VALUE
        if self.data is None or (self.expires_ms is not None and self.expires_ms <= clock.wall_ms()):
            self.timer_ms = None
            return self.options.make()
        return self.options.decode(self.options.version, self.data) if value is NO_VALUE else value

    def keep(
        self,
        number: int,
        lent: object,
        returned: object,
        clock: Clock,
        *,
        removes: bool,
        timer_ms: int | None,
    ) -> KeptState | None:
        """Keep what the call for event `number` made of the object that it got; return the change, or None.

        returned: takes its place; None: nothing does. The user's code may have it elsewhere, for other keys too, so
        that the next call gets another object. removes: the key has no state any more. timer_ms: its timer.
        Raises InvalidArgument: it is of another class.
        """
        options = self.options
        timer_ms = None if removes else timer_ms
        data = None if removes else options.encode(lent if returned is None else returned)
        is_untouched = returned is None and self.data is None and timer_ms is None
        if is_untouched and data is not None and options.is_new(data):
            data = None
        expires_ms = None if options.ttl_ms is None else clock.wall_ms() + options.ttl_ms
        self.value = lent if returned is None or returned is lent else NO_VALUE
        if (
            data == self.data
            and timer_ms == self.timer_ms
            and (data is None or expires_ms == self.expires_ms)
        ):
            return None
        self.data, self.expires_ms, self.timer_ms, self.changed_by = data, expires_ms, timer_ms, number
        return KeptState(self, number, data, timer_ms)

    def as_emission(self, event_time: int | None) -> Emission | None:
        """Return what tells others of its last change; None if nobody asked for it."""
        changes = self.options.changes
        return None if changes is None else Emission(changes, self.data or b"", self.key, event_time)

    def is_due(self, watermark_ms: int | None) -> bool:
        """Return whether its key is to be called."""
        return self.timer_ms is not None and watermark_ms is not None and self.timer_ms <= watermark_ms

    def call_off(self) -> KeptState:
        """Forget its timer; return the change."""
        self.timer_ms = None
        return KeptState(self, self.changed_by, self.data, None)


class KeptState(NamedTuple):
    """A change of a state that the call for event `number` left. data: None removes it. timer_ms: the timer of its key.

    What a timer leaves has the number of the last event before it that changed the state.

    One object for each: a processor makes a hundred thousand a second, and the garbage collector visits them.
    """

    cached: CachedState
    number: int
    data: bytes | None
    timer_ms: int | None = None


class Left(NamedTuple):
    """What a call that returned left to be made durable with its event. tables: what it gave to `change_tables`."""

    emitted: Sequence[Emission] = ()
    state: KeptState | None = None
    tables: Sequence[TablesChange] = ()


NOTHING_LEFT: Final = Left()


@attrs.define(eq=False)
class FiredTimer:
    """Where the call for a timer is accounted for: nowhere but in what it leaves.

    cached: the state that its last call got, which may have been evicted meanwhile; None before the first one.
    """

    owned: OwnedSegment
    cached: CachedState | None = None
    attempts_before: int = 0


class KeyStateCache:
    """The states of one processor's keys that are at hand. Used on the event loop; `CachedState` by one call at a time,
    also on a thread.

    watermark_ms: how far event time has come durably, as far as this process knows; None: it has not begun.
    """

    def __init__(self, db: Database, options: Options) -> None:
        assert options.state is not None, f"{options.name} keeps no state"
        self.options: KeyState[Any] = options.state
        self._db = db
        self._group = options.group
        self._name = options.name
        self._label = options.label
        self.watermark_ms: int | None = None
        self._cached: OrderedDict[str, CachedState] = OrderedDict()
        self._size_bytes = 0
        self._lock = anyio.Lock()  # so that nothing that is being read can be changed and evicted meanwhile

    @property
    def size_bytes(self) -> int:
        """Bytes of the cache."""
        return self._size_bytes

    def has(self, item: Item) -> bool:
        """Return whether the state of the event's key is at hand. An event without a key needs none."""
        event, in_hand = item
        key = event.key
        return key is None or ((found := self._cached.get(key)) is not None and found.owned is in_hand.owned)

    async def load(self, items: Iterable[Item]) -> None:
        """Read the states of the events' keys that are not at hand, in one read.

        Those of a segment that is closing, or begins to meanwhile, are not: no call for its events begins any more.
        Raises ProcessorFailed: one cannot be decoded.
        """
        if all(map(self.has, items)):
            return
        what = f"reading states of {self._label}"
        async with self._lock:
            self._evict()  # before: what is read now is at hand when this returns
            missing: dict[str, OwnedSegment] = {}
            by_stream: dict[int, list[str]] = {}
            for item in items:
                key, owned = item[0].key, item[1].owned
                if key is None or key in missing or owned.closing or self.has(item):
                    continue
                assert isinstance(owned, OwnedSegment), f"{owned!r} is no segment"
                missing[key] = owned
                by_stream.setdefault(owned.key[0], []).append(key)
            for stream_id, keys in by_stream.items():
                look = partial(look_up, stream_id=stream_id, group=self._group, keys=keys)
                read = partial(self._db.read, look)
                found = await retry_transient(read, what, self._db.clock, LOG)
                stored = {each.key: each for each in found}
                for key in keys:
                    owned, cached = missing[key], self._cached.get(key)
                    if not owned.closing and (cached is None or cached.owned is not owned):
                        self._add(key, owned, stored.get(key))

    def _add(self, key: str, owned: OwnedSegment, stored: StoredState | None) -> None:
        made = CachedState(self.options, key, owned, None, NO_VALUE, None)
        if stored is not None:
            made.value, made.data = self._decoded(stored)
            made.expires_ms, made.timer_ms = stored.expires_ms, stored.timer_ms
        self._put(made)

    def _put(self, made: CachedState) -> None:
        self._forget(made.key)
        self._cached[made.key] = made
        self._count(made)

    def _count(self, cached: CachedState) -> None:
        before, cached.counted = cached.counted, cached.size_bytes
        self._size_bytes += cached.counted - before

    def _forget(self, key: str) -> None:
        if (cached := self._cached.pop(key, None)) is not None:
            self._size_bytes -= cached.counted
            cached.counted = 0

    def _decoded(self, stored: StoredState) -> tuple[object, bytes]:
        """Return a value and its bytes. One that was upgraded has to be decoded again: the user's code may have it.

        Raises ProcessorFailed.
        """
        options = self.options
        try:
            value: object = options.decode(stored.version, stored.value)
            if stored.version == options.version:
                return value, stored.value
            return NO_VALUE, options.encode(value)
        except Exception as why:  # of the user's class or function
            reason = f"the state of key {stored.key!r} cannot be read: {failure_text(why)}"
            raise ProcessorFailed(processor=self._name, reason=reason) from why

    def _evict(self) -> None:
        """Let those go that were not used for longest, but what is not durable."""
        for _ in range(len(self._cached)):
            if self._size_bytes <= self.options.cache_bytes:
                return
            key = next(iter(self._cached))
            if self._cached[key].unsaved is None:
                self._forget(key)
            else:
                self._cached.move_to_end(key)

    def find(self, item: Item) -> CachedState | None:
        """Return the state for a call, which is at hand; None for an event without a key."""
        key = item[0].key
        if key is None:
            return None
        self._cached.move_to_end(key)
        return self._cached[key]

    def may_be_due(self, key: str, owned: OwnedSegment) -> bool:
        """Return whether a timer that was stored may still be due: what is at hand may be newer."""
        cached = self._cached.get(key)
        return cached is None or cached.owned is not owned or cached.is_due(self.watermark_ms)

    def kept(self, kept: KeptState) -> None:
        """Note the change of a call that is finished. Its state may have been evicted meanwhile: it returns."""
        cached = kept.cached
        cached.unsaved = kept  # here: a thread must not do so while `saved` or `_evict` looks at it
        if (found := self._cached.get(cached.key)) is cached:
            if cached.counted != cached.size_bytes:
                self._count(cached)
        elif not cached.owned.closing and (found is None or found.owned is cached.owned):
            self._put(cached)  # no call has what was read since then: its events wait behind this one

    def saved(self, states: Iterable[KeptState]) -> None:
        """Note that changes are durable."""
        for kept in states:
            if kept.cached.unsaved is kept:
                kept.cached.unsaved = None

    def lose(self, owned: OwnedSegment) -> None:
        """Forget the states of a segment that belongs to somebody else now."""
        for key in [key for key, cached in self._cached.items() if cached.owned is owned]:
            self._forget(key)
