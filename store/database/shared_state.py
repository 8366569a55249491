"""Objects in memory that belong to one opening of a database, such as caches.

A room declares each of its objects once, as a module constant beside the class:

    EPOCH_CACHE: Final = SharedSlot(EpochCache)

and reaches it with `tx.shared[EPOCH_CACHE]` or `db.shared[EPOCH_CACHE]`. The slot carries the type, so that a lookup
needs no cast and no import of a higher room. docs/design/database-and-group-commit.md lists every slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

S = TypeVar("S")


@attrs.frozen(eq=False)
class SharedSlot(Generic[S]):
    """Declares one object per opening of a database. `make` builds it on first use.

    common: openings of one store in memory use the same object: it holds what a directory keeps in its files.
    in_reads: reads use the object too, on their own threads: it must be safe for threads, and hold for every snapshot.
    """

    make: Callable[[], S]
    common: bool = False
    in_reads: bool = False


class SharedState(dict[SharedSlot[Any], Any]):
    """The objects of one opening of a database: caches and trackers, by slot.

    Their content must be derivable from the database. They change only in `Tx.after`, or inside a transaction if
    the change is correct even when that transaction is rolled back. A lookup is a plain dict lookup.
    """

    def __init__(self, common: SharedState | None = None) -> None:
        """common: the objects that openings of one store use together; None in a directory."""
        super().__init__()
        self._common = common

    def __missing__(self, slot: SharedSlot[S]) -> S:
        if slot.common and self._common is not None:
            return self._common[slot]
        return self.setdefault(slot, slot.make())  # type: ignore[no-any-return]  # one object, also if two threads ask

    if TYPE_CHECKING:

        def __getitem__(self, slot: SharedSlot[S], /) -> S: ...


class ReadState(SharedState):
    """The objects of one read: its own, except those that are declared `in_reads`."""

    def __init__(self, opening: SharedState, common: SharedState | None = None) -> None:
        """opening: the objects of the opening. common: as for `SharedState`."""
        super().__init__(common)
        self._opening = opening

    def __missing__(self, slot: SharedSlot[S]) -> S:
        if slot.in_reads:
            return self._opening[slot]
        return super().__missing__(slot)
