"""Which part of a list of names a caller asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypedDict, TypeVar

import attrs

from eventproc.store.model.argument_checks import INT_MAX, check_int, check_str

T = TypeVar("T")

NO_LIMIT: Final = INT_MAX
"""The `LIMIT` of a statement that returns all rows."""

ENTRIES_A_STEP: Final = 200
"""Entries that a page of chosen ones reads at a time. Higher: it reads more than it needs; lower: more queries."""


class NameFilter(Protocol):
    """Which names a reader of lists may know."""

    def allows(self, name: str) -> bool:
        """Return whether the reader may know a scope, or what has this full name."""
        ...

    def prefixes_in(self, scope: str) -> Sequence[str]:
        """Return what the names in a scope that the reader may know begin with; no prefix begins with another one.

        They are sorted. A list looks at no other names.
        """
        ...


class PageOptions(TypedDict, total=False):
    """Options of every call that lists what has a name.

    prefix: only those whose names in their scopes, or ids, begin with it. Default: all.
    after: the last one of the previous page: its name with the scope, or its id. None (default): the first page.
    limit: how many to return at most. None (default): all.
    """

    prefix: str
    after: str | None
    limit: int | None


@attrs.frozen
class ListPage:
    """A part of a list of full names, "scope/name", in the order of scopes and names.

    prefix: only names in their scopes that begin with it. after: only what comes after this full name; None: from the
    first on. limit: how many at most; None: all. readable: only names that it allows; None: all.
    """

    prefix: str = ""
    after: str | None = None
    limit: int | None = None
    readable: NameFilter | None = None

    @property
    def most(self) -> int:
        """The limit as a number: NO_LIMIT for all."""
        return NO_LIMIT if self.limit is None else self.limit

    def allows(self, *names: str) -> bool:
        """Return whether the reader of the page may know all of these names."""
        return self.readable is None or all(map(self.readable.allows, names))

    def parts_of(self, scope: str) -> Iterator[ListPage]:
        """Return the pages of a scope, sorted, in which all names are that the reader of this page may know."""
        for each in ("",) if self.readable is None else self.readable.prefixes_in(scope):
            if each.startswith(self.prefix) or self.prefix.startswith(each):
                yield attrs.evolve(self, prefix=max(each, self.prefix, key=len))

    @staticmethod
    def of(
        readable: NameFilter | None = None,
        /,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> ListPage:
        """Return the page that a caller names. Raises InvalidArgument."""
        return ListPage(
            check_str("prefix", prefix),
            None if after is None else check_str("after", after),
            None if limit is None else check_int("limit", limit, least=1),
            readable,
        )

    def of_names(self, found: Mapping[str, T]) -> dict[str, T]:
        """Return those of the page, sorted, of values by names without scopes."""
        names = [
            each
            for each in sorted(found)
            if each.startswith(self.prefix) and (self.after is None or each > self.after)
            if self.allows(each)
        ]
        return {each: found[each] for each in names[: self.limit]}


COMPLETE: Final = ListPage()
"""All names."""


def seen_entries(
    read: Callable[[ListPage], list[T]],
    sees: Callable[[T], bool],
    name_of: Callable[[T], str],
    page: ListPage,
) -> list[T]:
    """Return the entries of a page that its reader sees, as `chosen_entries`; all if it may know everything."""
    return read(page) if page.readable is None else chosen_entries(read, sees, name_of, page)


def chosen_entries(
    read: Callable[[ListPage], Sequence[T]],
    chooses: Callable[[T], bool],
    name_of: Callable[[T], str],
    page: ListPage,
) -> list[T]:
    """Return a page of the entries that `chooses` accepts, of a list whose pages `read` returns.

    name_of: what `after` is for an entry.
    Cost: reads the entries from the first to the last one returned, ENTRIES_A_STEP at a time.
    """
    found: list[T] = []
    step = attrs.evolve(page, limit=ENTRIES_A_STEP)
    while True:
        entries = read(step)
        found += [each for each in entries if chooses(each)]
        is_full = page.limit is not None and len(found) >= page.limit
        if is_full or len(entries) < ENTRIES_A_STEP:
            return found[: page.limit]
        step = attrs.evolve(step, after=name_of(entries[-1]))
