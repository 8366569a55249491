"""Pages of rows with payloads, which end at a number of rows or of bytes, whichever comes first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any, Final

from eventproc.store.database import SqlValue, Tx
from eventproc.store.segments import READ_BYTES_MAX

PAGE_BYTES_MAX: Final = READ_BYTES_MAX
"""Bytes of payloads with which a page is full. The last payload may exceed them: a page has at least one entry. Higher:
lists of large payloads take more memory, and their answers over REST are longer."""


def page_of_rows(
    tx: Tx, columns: str, size: str, found: str, parameters: Sequence[SqlValue], limit: int
) -> list[Sequence[Any]]:
    """Return the columns of at most `limit` rows, and of none behind the one with which a page is full.

    size: the expression for the bytes of a row's payload. found: the rest of the query, with its order.
    Cost: the query twice, so that a server sends no payload that is not returned.
    """
    sizes = tx.execute(f"SELECT {size} {found} LIMIT ?", (*parameters, limit)).fetchall()
    totals = accumulate((each for (each,) in sizes), initial=0)
    count = sum(1 for _ in takewhile(lambda total: total < PAGE_BYTES_MAX, totals))
    return tx.execute(f"SELECT {columns} {found} LIMIT ?", (*parameters, min(count, limit))).fetchall()
