"""Which part of a list of names a caller asks for."""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.model.argument_checks import check_int, check_str


@attrs.frozen
class ListPage:
    """A part of a list of full names, "scope/name", in the order of scopes and names.

    prefix: only names in their scopes that begin with it. after: only what comes after this full name; None: from the
    first on. limit: how many at most; None: all.
    """

    prefix: str = ""
    after: str | None = None
    limit: int | None = None

    @staticmethod
    def of(prefix: str, after: str | None, limit: int | None) -> ListPage:
        """Return the page that a caller names. Raises InvalidArgument."""
        return ListPage(
            check_str("prefix", prefix),
            None if after is None else check_str("after", after),
            None if limit is None else check_int("limit", limit, least=1),
        )


COMPLETE: Final = ListPage()
"""All names."""
