"""Checkers of what the system promises: the invariants of a database, and the order of events per key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Final

from eventproc.groups import GROUP, GroupRecord, folded_state
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.store.database import Database, Tx
from eventproc.store.groups import SHARE, read_deliveries
from eventproc.store.inspection import group_names_of_rows, group_rows, store_violations
from eventproc.store.inspection.database_file import check_all_pages
from eventproc.store.model.errors import EventprocError, StillPending
from eventproc.store.records import find, get, keys

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


def violations(tx: Tx) -> list[str]:
    """Return one line for each invariant that does not hold; empty if all of them hold.

    Args:
        tx: a read transaction, as `ep.db.read(violations)` gives it.
    """
    return [*store_violations(tx), *_group_violations(tx), *_share_violations(tx)]


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


def _group_violations(tx: Tx) -> Iterator[str]:
    """Yield what is wrong with groups. A group keeps its rows of deleted streams until it removes them itself."""
    for name in keys(tx, GROUP):
        try:
            yield from (f"group {name}: {problem}" for problem in _of_group(tx, get(tx, GROUP, name).value))
        except (AssertionError, EventprocError) as error:
            yield f"group {name}: {error!r}"
    for table, names in group_names_of_rows(tx).items():
        for name in names:
            is_known = find(tx, GROUP, name) is not None or find(tx, SHARE, name) is not None
            if not name.startswith("_") and not is_known:
                yield f"{table}: rows of the deleted group {name}"


def _share_violations(tx: Tx) -> Iterator[str]:
    """Yield what is wrong with share groups."""
    for name in keys(tx, SHARE):
        try:
            record = get(tx, SHARE, name).value
            for key, found in read_deliveries(tx, name).items():
                found.check()
                if any(each.count > record.options.deliveries_max for each in found.ranges):
                    yield f"share group {name}: segment {key} has a range with too many deliveries: {found}"
        except (AssertionError, EventprocError) as error:
            yield f"share group {name}: {error!r}"


def _of_group(tx: Tx, group: GroupRecord) -> Iterator[str]:
    state = folded_state(tx, group).state
    state.check()
    if (group.generation, group.streams, group.paused) != (state.generation, state.streams, state.paused):
        yield f"its record says {group}, its log {state}"
    rows = group_rows(tx, group.name)
    for key, (offset, is_owned) in rows.offsets.items():
        assignment = state.open.get(key)
        if assignment is None:
            continue
        if offset > assignment.progress.offset and not is_owned:
            yield f"segment {key} has no owner, and moved from {assignment.progress} to {offset}"
        if offset < assignment.progress.offset:
            yield f"segment {key} moved back from {assignment.progress} to {offset}"
    logged: dict[object, object] = {
        each.key: (each.owner, each.owner_epoch, each.target) for each in state.assignments
    }
    if dict[object, object](rows.owners) != logged | dict(state.waits):
        yield f"its rows say {rows.owners}, its log {logged | dict(state.waits)}"
    if rows.members != {reader: (member.instance, member.epoch) for reader, member in state.present.items()}:
        yield f"its rows say that {rows.members} are online, its log {state.present}"
