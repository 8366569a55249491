"""The states of a processor's keys from outside: read, listed, measured, and, while it does not run, changed."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

import attrs

from eventproc.groups import get_group
from eventproc.groups.operations import verify_empty
from eventproc.processors.key_state import KeyState, as_key_state
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.key_states import (
    STATE,
    KeyChange,
    StateRecord,
    StoredState,
    declare_state,
    drop_keys,
    drop_step,
    find_state,
    list_states,
    look_up,
    measure_state,
    store_changes,
    store_states,
)
from eventproc.store.model.argument_checks import (
    check_instance,
    check_int,
    check_iterable,
    check_str,
    invalid_argument,
)
from eventproc.store.model.errors import NotFound
from eventproc.store.model.limits import EVENT_TIME_MAX
from eventproc.store.model.routing import check_key
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import find
from eventproc.store.watermarks import stored_watermark

T = TypeVar("T")
V = TypeVar("V")

STORED_A_STEP: Final = 1_000
"""Keys that one transaction from outside changes: some 10 ms. Higher: it holds up all writers for longer."""


@attrs.frozen(kw_only=True)
class KeyValue(Generic[V]):
    """The state of a key.

    Attributes:
        key: the routing key.
        value: what the processor keeps for it.
        version: that of its class when it was stored.
        expires_ms: when it expires, wall clock, in ms since 1970; None: never.
        timer_ms: the event time at which its key is called, in ms since 1970; None: it has no timer.
    """

    __repr__ = short_repr_of_fields

    key: str
    value: V
    version: int
    expires_ms: int | None = None
    timer_ms: int | None = None


@attrs.frozen(kw_only=True)
class KeyStatesInfo:
    """What a processor keeps by key.

    Attributes:
        group: full name of its group.
        stream: full name of the stream whose keys they are.
        payload: name of the class of the values.
        versions: those of which there may be values.
        keys: how many keys have a state.
        value_bytes: bytes of the values.
        watermark_ms: how far event time has come, in ms since 1970; None: the processor has no timers, or no event.
    """

    __repr__ = short_repr_of_fields

    group: str
    stream: str
    payload: str
    versions: tuple[int, ...]
    keys: int
    value_bytes: int
    watermark_ms: int | None = None


class KeyStates(Generic[V]):
    """The states of the keys of one processor. Made by `Eventproc.state`; nothing is read until a method is called."""

    def __init__(self, db: Database, group: str, state: type[V] | KeyState[V]) -> None:
        self._db = db
        self._group = check_str("group", group)
        found = as_key_state(state)
        if found is None:
            raise invalid_argument("state", None, "it must be a class, or an eventproc.KeyState")
        self._state: KeyState[V] = found
        self._takes_any = not isinstance(state, KeyState)

    def __repr__(self) -> str:
        return f"KeyStates({self._group!r}, {self._state.name})"

    async def get(self, key: str | bytes) -> V | None:
        """Return the state of a key, as of the events that are durably finished; None if it has none.

        Args:
            key: the routing key.

        Raises:
            NotFound: there is no such group; or its processor keeps no state, or has never run.
            InvalidArgument: the key is not valid, or the state is not of the type.
        """
        found = await self.find(key)
        return None if found is None else found.value

    async def find(self, key: str | bytes) -> KeyValue[V] | None:
        """Return the state of a key with its version, and when it expires; None if it has none.

        Args:
            key: the routing key.

        Raises:
            NotFound: there is no such group; or its processor keeps no state, or has never run.
            InvalidArgument: the key is not valid, or the state is not of the type.
        """
        text = check_key(key)

        def step(tx: Tx) -> builtins.list[StoredState]:
            return look_up(tx, find_state(tx, self._group).stream_id, self._group, [text])

        found = await self._read(step)
        return self._decoded(found[0]) if found else None

    async def list(
        self,
        *,
        first: str | bytes | None = None,
        last: str | bytes | None = None,
        after: str | bytes | None = None,
        limit: int = 100,
    ) -> builtins.list[KeyValue[V]]:
        """Return a page of the states of keys, sorted by key; an empty page is the end.

        Args:
            first: only those from this key on. None (default): from the first one.
            last: only those before this key. None (default): to the last one.
            after: the last key of the previous page. None (default): the first page.
            limit: how many at most. Default: 100. The page also ends at about 4 MiB of values.

        Raises:
            NotFound: there is no such group; or its processor keeps no state, or has never run.
            InvalidArgument: an argument is not valid, or a state is not of the type.

        Cost:
            Two queries by an index.
        """
        step = partial(
            list_states,
            group=self._group,
            first=None if first is None else check_key(first),
            last=None if last is None else check_key(last),
            after=None if after is None else check_key(after),
            limit=check_int("limit", limit, least=1),
        )
        return [self._decoded(each) for each in await self._read(step)]

    async def describe(self) -> KeyStatesInfo:
        """Return how many keys have a state, and how large it is.

        Raises:
            NotFound: there is no such group; or its processor keeps no state, or has never run.

        Cost:
            Reads all of it: about 0.1 s for a million keys of 100 B.
        """

        def step(tx: Tx) -> KeyStatesInfo:
            record = find_state(tx, self._group)
            keys, value_bytes = measure_state(tx, record)
            return KeyStatesInfo(
                group=self._group,
                stream=record.stream,
                payload=record.payload,
                versions=record.versions,
                keys=keys,
                value_bytes=value_bytes,
                watermark_ms=stored_watermark(tx, record.group, record.stream_id),
            )

        return await self._read(step)

    async def store(self, values: Mapping[str, V | None]) -> None:
        """Give keys a state while the processor does not run, such as what `list` returned elsewhere.

        1,000 keys are stored in a transaction. A call that fails has stored some; repeat it. The values have the
        version and the expiry of the `KeyState` of this object; if it was given a class, the newest version, no expiry.
        Their keys have no timers.

        Args:
            values: the state of each key; None: it has none any more.

        Raises:
            NotFound: there is no such group.
            GroupNotEmpty: its processor runs.
            InvalidArgument: a key is not valid, or a value is not of the type.
        """
        if not isinstance(cast("object", values), Mapping):
            raise invalid_argument("values", values, "it must be a dict of keys and values")
        changes = [
            KeyChange(check_key(key), None if value is None else self._state.encode(value))
            for key, value in values.items()
        ]
        for at in range(0, len(changes), STORED_A_STEP):
            step = partial(self._store_some, changes=changes[at : at + STORED_A_STEP])
            await self._db.write(step, step=Step.STATE_CHANGE)

    def _store_some(self, tx: Tx, changes: builtins.list[KeyChange]) -> None:
        verify_empty(tx, self._db, self._group, event="storing its state")
        state, before = self._state, self._before(tx)
        version = state.version if before is None else before.versions[-1]
        stream_id = self._declare(tx, {version})
        store_changes(tx, stream_id, self._group, changes, version=version, ttl_ms=state.ttl_ms)

    def _before(self, tx: Tx) -> StateRecord | None:
        """Return the record of the state, for what a class alone does not say; None if there is none, or a KeyState."""
        found = find(tx, STATE, self._group) if self._takes_any else None
        return None if found is None else found.value

    async def restore(self, states: Iterable[KeyValue[V]]) -> None:
        """Store what `list` returned, here or elsewhere, while the processor does not run. Each expires when it did.

        Opened with a `KeyState`, they are stored under its version; else each keeps its own. The states of other keys
        stay. 1,000 are stored in a transaction. A call that fails has stored some; repeat it.

        Args:
            states: the states of keys. The last one of a key counts.

        Raises:
            NotFound: there is no such group.
            GroupNotEmpty: its processor runs.
            InvalidArgument: a state is not valid, or its value is not of the type.
        """
        reason = "each must be an eventproc.describe.KeyValue"
        by_key: dict[str, StoredState] = {}
        for each in check_iterable("states", states, reason):
            stored = self._encoded(check_instance(KeyValue, "states", each, reason))
            by_key[stored.key] = stored
        rows = [*by_key.values()]
        for at in range(0, len(rows), STORED_A_STEP):
            step = partial(self._restore_some, states=rows[at : at + STORED_A_STEP])
            await self._db.write(step, step=Step.STATE_CHANGE)

    def _restore_some(self, tx: Tx, states: Sequence[StoredState]) -> None:
        verify_empty(tx, self._db, self._group, event="storing its state")
        store_states(tx, self._declare(tx, {each.version for each in states}), self._group, states)

    def _declare(self, tx: Tx, versions: set[int]) -> int:
        """Note that there are states of these versions; return the id of the stream whose keys they are."""
        stream, before = get_group(tx, self._group).streams[0], self._before(tx)
        record = StateRecord(
            group=self._group,
            stream=stream.name,
            stream_id=stream.stream_id,
            payload=self._state.name if before is None else before.payload,
            versions=tuple(sorted(versions)),
        )
        declare_state(tx, record)
        return stream.stream_id

    async def drop(self, keys: Iterable[str | bytes] | None = None) -> int:
        """Delete states while the processor does not run; return how many there were.

        A call that fails has deleted some; repeat it.

        Args:
            keys: only the states of these. None (default): all, and with them that the processor keeps any.

        Raises:
            NotFound: there is no such group, or its processor keeps no state.
            GroupNotEmpty: the processor runs.
            InvalidArgument: a key is not valid.
        """
        if keys is not None:
            found = check_iterable("keys", keys, "it must be a list of keys, or None for all")
            chosen, dropped = [*dict.fromkeys(map(check_key, found))], 0
            for at in range(0, len(chosen), STORED_A_STEP):
                step = partial(self._drop_some, keys=chosen[at : at + STORED_A_STEP])
                dropped += await self._db.write(step, step=Step.STATE_CHANGE)
            return dropped
        await self._read(partial(find_state, group=self._group))
        dropped = 0
        while some := await self._db.write(self._drop_some, step=Step.STATE_CHANGE):
            dropped += some
        return dropped

    def _drop_some(self, tx: Tx, keys: Sequence[str] | None = None) -> int:
        verify_empty(tx, self._db, self._group, event="dropping its state")
        return drop_step(tx, self._group) if keys is None else drop_keys(tx, self._group, keys)

    async def _read(self, step: Callable[[Tx], T]) -> T:
        """Return what a step reads. Raises NotFound for the group, if that is what is missing."""

        def read(tx: Tx) -> T:
            try:
                return step(tx)
            except NotFound:
                get_group(tx, self._group)
                raise

        return await self._db.read(read)

    def _decoded(self, stored: StoredState) -> KeyValue[V]:
        version = self._state.version if self._takes_any else stored.version
        value: Any = self._state.decode(version, stored.value)
        return KeyValue(
            key=stored.key,
            value=value,
            version=stored.version,
            expires_ms=stored.expires_ms,
            timer_ms=stored.timer_ms,
        )

    def _encoded(self, found: KeyValue[V]) -> StoredState:
        expires_ms, timer_ms = found.expires_ms, found.timer_ms
        return StoredState(
            key=check_key(found.key),
            value=self._state.encode(found.value),
            version=check_int("version", found.version, least=1) if self._takes_any else self._state.version,
            expires_ms=None if expires_ms is None else check_int("expires_ms", expires_ms, unit="ms"),
            timer_ms=None if timer_ms is None else check_int("timer_ms", timer_ms, least=-EVENT_TIME_MAX),
        )
