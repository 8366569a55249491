"""Storages: where the bytes of a stream's events lie, other than in the database.

A stream of a system in memory may keep its events in an array, a linked list, or an object of the user's own class; its
index, offsets and transactions stay in the database. A directory refuses such a storage, because its events would be
gone with the process. Source: docs/design/segments-extents-blobs.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, cast

import attrs

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.argument_checks import check_str, invalid_argument
from eventproc.store.model.policies import DATABASE_STORAGE

STORAGE_BLOB_FORMAT: Final = 3
"""Format number of a blob whose data lies in its stream's storage; the row's `data` is the packed position there."""

_POSITION: Final = struct.Struct(">q")
"""How `data` holds a position."""


class EventStorage(Protocol):
    """Keeps the bytes of one stream's events. Any class with these three methods, made without arguments, is one.

    Each call stores the events of one commit. Calls never overlap. `eventproc.testing.verify_storage` checks a class.
    """

    def append(self, data: bytes, /) -> int:
        """Keep `data`, and return its position: a number from 0 to 2**63 - 1 that no other kept data has."""
        ...

    def read(self, position: int, /) -> bytes:
        """Return what `append` kept at the position. It is not called after `free`."""
        ...

    def free(self, position: int, /) -> None:
        """Forget what `append` kept at the position. It is called at most once, in any order of positions."""
        ...


class ArrayStorage:
    """Keeps events in an array; what was freed at its beginning is cut off, so that a truncated stream shrinks."""

    def __init__(self) -> None:
        self._first = 0  # position of the first element
        self._freed = 0  # this many elements at the beginning are freed; the next ones may be
        self._array: list[bytes | None] = []

    def __repr__(self) -> str:
        return f"ArrayStorage(first={self._first}, length={len(self._array)})"

    def append(self, data: bytes, /) -> int:
        """See `EventStorage.append`."""
        self._array.append(data)
        return self._first + len(self._array) - 1

    def read(self, position: int, /) -> bytes:
        """See `EventStorage.read`."""
        data = self._array[position - self._first]
        assert data is not None, f"position {position} was freed"
        return data

    def free(self, position: int, /) -> None:
        """See `EventStorage.free`. O(1) amortized: an array shrinks when half of it is freed."""
        self._array[position - self._first] = None
        while self._freed < len(self._array) and self._array[self._freed] is None:
            self._freed += 1
        if 2 * self._freed >= len(self._array):
            del self._array[: self._freed]
            self._first += self._freed
            self._freed = 0


@attrs.define(eq=False)
class _Node:
    data: bytes
    before: _Node | None = None
    after: _Node | None = None


class LinkedListStorage:
    """Keeps events in a doubly linked list, with a map from positions to nodes."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._tail: _Node | None = None
        self._next = 0

    def __repr__(self) -> str:
        return f"LinkedListStorage(length={len(self._nodes)})"

    def append(self, data: bytes, /) -> int:
        """See `EventStorage.append`."""
        node = _Node(data, before=self._tail)
        if self._tail is not None:
            self._tail.after = node
        self._tail = self._nodes[self._next] = node
        self._next += 1
        return self._next - 1

    def read(self, position: int, /) -> bytes:
        """See `EventStorage.read`."""
        return self._nodes[position].data

    def free(self, position: int, /) -> None:
        """See `EventStorage.free`."""
        node = self._nodes.pop(position)
        if node.before is not None:
            node.before.after = node.after
        if node.after is None:
            self._tail = node.before
        else:
            node.after.before = node.before


_MAKERS: Final[dict[str, Callable[[], EventStorage]]] = {
    "array": ArrayStorage,
    "linked_list": LinkedListStorage,
}


def register_storage(name: str, make: Callable[[], EventStorage]) -> None:
    """Let topics of systems in memory keep their events in a storage of your own, as `storage=name`.

    Call it at import time. The last registration of a name wins.

    Args:
        name: not "database", which is the default.
        make: returns the storage of one topic, such as a class without arguments.

    Raises:
        InvalidArgument: the name is empty or "database", or `make` cannot be called.
    """
    if check_str("storage name", name) in ("", DATABASE_STORAGE):
        raise invalid_argument("storage name", name, "it must not be empty, and not 'database'")
    if not callable(cast("object", make)):
        raise invalid_argument("storage", make, "it must be a class, or a function that returns a storage")
    _MAKERS[name] = make


def storage_names() -> tuple[str, ...]:
    """Return the names that `storage=` accepts in this process."""
    return DATABASE_STORAGE, *_MAKERS


class StreamStorages:
    """The storages of the streams of one system in memory."""

    def __init__(self) -> None:
        self._storages: dict[int, EventStorage] = {}
        self._unsure: dict[tuple[int, bytes], int] = {}
        """{(stream id, packed position): blob id} of `_tx`, which may not have committed."""
        self._tx: Tx | None = None

    def assign(self, stream_id: int, name: str) -> None:
        """Note where the events of a new stream lie. Streams of transactions that were rolled back had that id too."""
        self.drop(stream_id)
        if name != DATABASE_STORAGE:
            self._storages[stream_id] = _MAKERS[name]()

    def drop(self, stream_id: int) -> None:
        """Forget the storage of a stream that was deleted, with all that it keeps."""
        self._storages.pop(stream_id, None)
        self._unsure = {where: blob_id for where, blob_id in self._unsure.items() if where[0] != stream_id}

    def has(self, stream_id: int) -> bool:
        """Return whether the stream keeps its events in a storage of its own."""
        return stream_id in self._storages

    def append(self, stream_id: int, data: bytes) -> bytes:
        """Keep `data`, and return its packed position. Call `note` with the blob that names it."""
        return _POSITION.pack(self._storages[stream_id].append(data))

    def note(self, tx: Tx, blob_id: int, stream_id: int, position: bytes) -> None:
        """Note the blob of a position, and free the positions of earlier transactions that were rolled back."""
        if self._tx is not tx:
            for where, unsure_id in list(self._unsure.items()):
                if not tx.execute(_NAMED, (unsure_id, *where, STORAGE_BLOB_FORMAT)).fetchone()[0]:
                    self.free(*where)
            self._unsure.clear()
            self._tx = tx
        self._unsure[stream_id, position] = blob_id

    def free_after(self, tx: Tx, stream_id: int, position: bytes) -> None:
        """Free the position once `tx`, which deletes its blob, is durable."""
        if self._tx is not tx:  # the transaction that kept it did commit: `tx` found its blob
            self._unsure.pop((stream_id, position), None)
        tx.after(partial(self.free, stream_id, position))

    def read(self, stream_id: int, position: bytes) -> bytes:
        """Return what is kept at the position."""
        return self._storages[stream_id].read(*_POSITION.unpack(position))

    def free(self, stream_id: int, position: bytes) -> None:
        """Forget what is kept at the position, unless the stream was deleted with its storage."""
        self._unsure.pop((stream_id, position), None)
        if (storage := self._storages.get(stream_id)) is not None:
            storage.free(*_POSITION.unpack(position))


_NAMED: Final = (
    "SELECT EXISTS (SELECT 1 FROM blob WHERE id = ? AND stream_id = ? AND data = ? AND format = ?)"
)

STREAM_STORAGES: Final = SharedSlot(StreamStorages, common=True)


def verify_storage_name(tx: Tx, name: str) -> None:
    """Raise InvalidArgument if a new stream of this database cannot keep its events in the storage of that name."""
    if name == DATABASE_STORAGE:
        return
    if not tx.is_in_memory():
        reason = (
            "a directory keeps all events in its database, as a server does, because other storages end with the"
            " process"
        )
        raise invalid_argument("storage", name, f"{reason}; leave it out, or use a system of open_memory()")
    if name not in _MAKERS:
        known = ", ".join(storage_names())
        raise invalid_argument(
            "storage", name, f"it must be one of {known}, or registered by register_storage"
        )


def drop_storage(tx: Tx, stream_id: int) -> None:
    """Forget a deleted stream's storage once this transaction is durable."""
    tx.after(partial(tx.shared[STREAM_STORAGES].drop, stream_id))
