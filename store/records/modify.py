"""The read-change-replace loop, written once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt

from eventproc.store.database import Database
from eventproc.store.model.errors import VersionConflict
from eventproc.store.records.record_kind import RecordKind
from eventproc.store.records.records import Versioned, get, replace

T = TypeVar("T")

MODIFY_ATTEMPTS_MAX: Final = 16
"""Attempts of one modify. A loser waits for exactly one winner each time, so that more than a handful
means a caller whose decision takes longer than everybody else's writes; higher only hides that."""


async def modify(db: Database, kind: RecordKind[T], key: str, change: Callable[[T], T]) -> Versioned[T]:
    """Read the record, decide outside any transaction, replace what was read; again on a conflict.

    change: pure, may run several times. Raises NotFound, whatever `change` raises, and VersionConflict
    after MODIFY_ATTEMPTS_MAX losses. Use it for what is decided outside a transaction; inside one,
    `get` and `replace` cannot conflict.
    """
    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(VersionConflict),
        stop=stop_after_attempt(MODIFY_ATTEMPTS_MAX),
        reraise=True,
    ):
        with attempt:
            before = await db.read(lambda tx: get(tx, kind, key))
            after = change(before.value)
            return await db.write(partial(replace, kind=kind, before=before, value=after))
    raise AssertionError("tenacity either returns or raises")
