"""Checkers of what the system promises: the invariants of a database, and the order of events per key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Final

from eventproc.groups.inspection import violations
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.store.database import Database
from eventproc.store.inspection.database_file import check_all_pages
from eventproc.store.model.errors import StillPending

SETTLE_MS: Final = 60_000
"""How long a request may take until its outcome. It only turns a request that hangs into a failure."""

REQUESTS_MAX: Final = 10_000
"""Requests that are waited for, the newest ones. Higher: memory. Lower: an old request that hangs is not noticed."""


async def check(db: Database) -> None:
    """Assert that all invariants of the database hold. Call it at the end of a test.

    Args:
        db: the database of an open directory, `ep.db`.

    Raises:
        AssertionError: with one line for each invariant that does not hold.

    Cost:
        Reads everything in the database once, in one snapshot.
    """
    found = await db.read(violations)
    assert not found, "\n".join(found)


async def settle_requests(ep: Eventproc, *, timeout_ms: int = SETTLE_MS) -> None:
    """Return when every request has its outcome. Raises AssertionError for one that has none after `timeout_ms`."""
    for request in await ep.requests.list(limit=REQUESTS_MAX):
        try:
            await ep.requests.wait(request.id, timeout_ms=timeout_ms)
        except StillPending as why:
            raise AssertionError(f"{request} has no outcome after {timeout_ms} ms") from why


async def check_directory(path: str | PathLike[str], *, timeout_ms: int = SETTLE_MS) -> None:
    """Assert that a directory is whole: every request gets its outcome, every page is intact, all invariants hold.

    Other processes may use the directory meanwhile.

    Args:
        path: the directory.
        timeout_ms: how long to wait for the outcome of each request, in ms. Default: a minute.

    Raises:
        AssertionError: with one line for each thing that does not hold.
        StoreMissing, StoreUnusable: as `eventproc.open`.

    Cost:
        Reads everything in the database twice.
    """
    async with open_directory(path, create=False) as ep:
        await settle_requests(ep, timeout_ms=timeout_ms)
        found = [*await ep.db.read(check_all_pages), *await ep.db.read(violations)]
    assert not found, "\n".join(found)


def order_violations(seen: Iterable[tuple[str | None, int]], expected: Mapping[str | None, int]) -> list[str]:
    """Return one line for each key whose events were not seen exactly once, in order.

    seen: (key, count) of each event in the order of reading, where the writer counted each key's events
    from 0. expected: how many events of each key there are. Empty: nothing lost, doubled or reordered.
    """
    found: dict[str | None, list[int]] = {}
    for key, count in seen:
        found.setdefault(key, []).append(count)
    problems = []
    for key in {**found, **expected}:
        numbers, wanted = found.get(key, []), list(range(expected.get(key, 0)))
        if numbers == wanted:
            continue
        lost, extra = sorted(set(wanted) - set(numbers)), len(numbers) - len(set(numbers))
        what = "out of order" if sorted(numbers) == wanted else f"lost {lost[:5]}, {extra} doubled"
        problems.append(f"key {key!r}: {what}; read {len(numbers)} of {len(wanted)}")
    return problems
