"""Free pages of the database file: how many there are, how many stay, and returning the others to the file system.

The pages of freed bytes stay in the file for the next events until a step returns them. A step moves the last pages of
the file into free ones, so that the file has fewer; it becomes shorter with the next checkpoint. A file can do that if
it was made for it, as every directory is. A database in memory cannot: its free pages wait for the next events.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.database import Tx

VACUUM_PAGES: Final = 64
"""Free pages that one step returns to the file system. Each costs moving a page, and writing one to the WAL."""

VACUUM_MS: Final = 5
"""How long a step moves pages, in ms. To find the right free page SQLite searches the list of all: with 2.7 GiB of them
64 pages take 1 ms, and up to 22 ms. Higher: writers wait longer; lower: more commits."""

FREE_BYTES_MIN: Final = 16 * 2**20
"""Free pages up to this size stay for the next events. Lower: a small file shrinks and grows with each truncation."""

FREE_BYTES_MAX: Final = 64 * 2**20
"""Free pages above this size never stay. Higher: less work where retention frees as much as is written; more disk."""

FREE_SHARE: Final = 5
"""Between both bounds, one free page stays for so many used ones: a file has at most 20 % more than what it holds."""

_INCREMENTAL: Final = 2


@attrs.frozen
class FreeSpace:
    """The pages of a database. free: those that hold nothing. can_shrink: whether they can leave the file."""

    pages: int
    free: int
    page_bytes: int
    can_shrink: bool

    @property
    def bytes(self) -> int:
        """Size of the database."""
        return self.pages * self.page_bytes

    @property
    def free_bytes(self) -> int:
        """Size of the free pages."""
        return self.free * self.page_bytes


def free_space(tx: Tx) -> FreeSpace:
    """Return how much of the database is free. Reads one page."""
    pages, free, page_bytes, mode = (
        int(tx.execute(f"PRAGMA {each}").fetchone()[0])
        for each in ("page_count", "freelist_count", "page_size", "auto_vacuum")
    )
    return FreeSpace(pages, free, page_bytes, mode == _INCREMENTAL)


def surplus_pages(pages: int, free: int, page_bytes: int) -> int:
    """Return how many of the free pages of a file should return to the file system.

    pages: of the file, free ones included. page_bytes: size of each.
    """
    least, most = FREE_BYTES_MIN // page_bytes, FREE_BYTES_MAX // page_bytes
    return max(free - min(max((pages - free) // FREE_SHARE, least), most), 0)


def count_surplus(tx: Tx, *, all_pages: bool = False) -> int:
    """Return how many free pages should return to the file system (`surplus_pages`); all of them if `all_pages`.

    None of a database that cannot shrink.
    """
    found = free_space(tx)
    if not found.can_shrink:
        return 0
    return found.free if all_pages else surplus_pages(found.pages, found.free, found.page_bytes)


def vacuum_step(tx: Tx, *, all_pages: bool = False) -> int:
    """Return some free pages to the file system; return how many are left to return. About 20 us per page.

    all_pages: see `count_surplus`.
    """
    surplus = count_surplus(tx, all_pages=all_pages)
    return surplus - tx.vacuum(min(surplus, VACUUM_PAGES), ms=VACUUM_MS)
