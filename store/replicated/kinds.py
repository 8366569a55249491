"""The type of a replicated object: its state, its updates, the function that folds them, and how both are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Generic, TypeVar

import attrs

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import CorruptRecord, InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.records import RecordKind, Upcast, from_plain

S = TypeVar("S")
U = TypeVar("U")


@attrs.frozen
class _StoredEntry:
    """An entry as JSON: either a snapshot (`init`), or updates, each as {name: update}."""

    init: Any = None
    updates: list[dict[str, Any]] | None = None


@attrs.frozen
class SnapshotEntry(Generic[S]):
    """An entry that holds a complete state. Members that start here need no earlier entry."""

    state: S


@attrs.frozen
class UpdatesEntry(Generic[U]):
    """An entry that holds updates. They apply all or none, in their order."""

    updates: tuple[U, ...]


@attrs.frozen(kw_only=True, eq=False)
class ReplicatedType(Generic[S, U]):
    """The type of a shared object. Define one per kind of object, at module level: cached states belong to it.

    Args:
        name: of the type; it is stored, and appears in errors.
        state: class of the states. They must be immutable, and structurable by cattrs, such as a frozen dataclass or
            attrs class.
        updates: {name: class} of the updates. The name is stored, so a class can be renamed.
        fold: returns the state after an update. It must be pure. An update for which it raises is refused.
        format: number written with each entry. 1 (default) for the first.
        upcasts: {n: function} that turns a plain JSON entry of format n into format n + 1. An entry is
            `{"init": state}` or `{"updates": [{name: update}, …]}`.
    """

    # A `fold` that raises for an update that is in the log already makes the log unreadable.

    name: str
    state: type[S]
    updates: Mapping[str, type[U]]
    fold: Callable[[S, U], S]
    format: int = 1
    upcasts: Mapping[int, Upcast] = attrs.field(factory=dict)
    _names: Mapping[type[U], str] = attrs.field(
        init=False, default=attrs.Factory(lambda self: _names_of(self), takes_self=True)
    )
    _stored: RecordKind[_StoredEntry] = attrs.field(
        init=False, default=attrs.Factory(lambda self: _stored_of(self), takes_self=True)
    )

    def fold_all(self, state: S, updates: Sequence[U]) -> S:
        """Return the state after the updates."""
        return reduce(self.fold, updates, state)

    def encode_snapshot(self, state: S) -> bytes:
        """Return the entry of a snapshot. Raises InvalidArgument if it is larger than 8 MiB less 8 bytes."""
        return self._encode(_StoredEntry(init=state))

    def encode_updates(self, updates: Sequence[U]) -> bytes:
        """Return the entry of these updates. Raises InvalidArgument if it is larger than 8 MiB less 8 bytes."""
        for each in updates:
            if type(each) not in self._names:
                classes = ", ".join(kind.__name__ for kind in self._names)
                raise invalid_argument(f"update of {self.name}", each, f"it must be one of {classes}")
        return self._encode(_StoredEntry(updates=[{self._names[type(update)]: update} for update in updates]))

    def read_state(self, entry: bytes) -> S:
        """Return the state of a new snapshot as every member reads it. Raises InvalidArgument if none can."""
        found = self._read_new("state", entry)
        assert isinstance(found, SnapshotEntry), "an entry of updates"
        return found.state

    def read_updates(self, entry: bytes) -> tuple[U, ...]:
        """Return the updates of a new entry as every member reads them. Raises InvalidArgument if none can."""
        found = self._read_new("updates", entry)
        assert isinstance(found, UpdatesEntry), "an entry of a snapshot"
        return found.updates

    def decode(self, place: str, payload: bytes) -> SnapshotEntry[S] | UpdatesEntry[U]:
        """Return the entry that was stored as `payload` at `place`. Raises CorruptRecord."""
        stored = self._stored.decode(place, payload)
        try:
            if stored.updates is None:
                return SnapshotEntry(from_plain(stored.init, self.state))
            named = [item for update in stored.updates for item in update.items()]
            return UpdatesEntry(tuple(from_plain(plain, self.updates[name]) for name, plain in named))
        except (ValueError, KeyError) as error:
            raise CorruptRecord(key=f"{self.name} {place}", reason=str(error)) from error

    def _read_new(self, what: str, entry: bytes) -> SnapshotEntry[S] | UpdatesEntry[U]:
        try:
            return self.decode("of now", entry)
        except CorruptRecord as why:
            raise invalid_argument(f"{what} of {self.name}", entry.decode(), why.reason) from why

    def _encode(self, entry: _StoredEntry) -> bytes:
        what = "updates" if entry.updates is not None else "state"
        try:
            payload = self._stored.encode(entry)
        except (TypeError, ValueError, RecursionError) as why:
            value = entry.init if entry.updates is None else entry.updates
            raise invalid_argument(f"{what} of {self.name}", value, f"it has no form in JSON: {why}") from why
        if len(payload) > EVENT_BYTES_MAX:
            reason = f"an entry has at most {EVENT_BYTES_MAX} bytes"
            raise InvalidArgument(what=f"{what} of {self.name}", value=f"{len(payload)} bytes", reason=reason)
        return payload


def _names_of(kind: ReplicatedType[S, U]) -> Mapping[type[U], str]:
    names = {update: name for name, update in kind.updates.items()}
    assert len(names) == len(kind.updates), f"{kind.name}: a class of updates has two names"
    return names


def _stored_of(kind: ReplicatedType[S, U]) -> RecordKind[_StoredEntry]:
    return RecordKind(name=kind.name, value=_StoredEntry, format=kind.format, upcasts=kind.upcasts)
