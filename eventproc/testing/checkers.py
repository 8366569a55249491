"""Checkers of what the system promises: the invariants of a database, and the order of events per key; of a storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from random import Random
from typing import Final

from eventproc.groups.inspection import violations
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.store.database import Database
from eventproc.store.inspection.database_file import check_all_pages
from eventproc.store.model.errors import StillPending
from eventproc.store.segments.event_storage import EventStorage

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


STEPS: Final = 2_000
"""Calls of one check: enough that an array is cut off, and a list emptied, several times. Each takes a microsecond."""


def verify_storage(make: Callable[[], EventStorage], *, seed: int = 0) -> None:
    """Assert that a storage keeps what it must: each position returns its own bytes until it is freed.

    Appends, reads and frees in random order, in two storages beside each other, and compares with a dictionary.

    Args:
        make: returns a new, empty storage; what `register_storage` takes.
        seed: chooses the calls. Default: 0.

    Raises:
        AssertionError: what was kept is lost, changed or confused, or a position is not valid.
    """
    random = Random(seed)
    pairs: list[tuple[EventStorage, dict[int, bytes]]] = [(make(), {}), (make(), {})]
    for step in range(STEPS):
        storage, kept = random.choice(pairs)
        # Filled first, emptied at the end, and between these mixed.
        if not kept or random.random() < 1 - step / STEPS:
            data = random.randbytes(random.choice((0, 1, 100)))
            position = storage.append(data)
            assert type(position) is int, f"append returned {position!r}, not an int"
            assert 0 <= position < 2**63, f"append returned {position}, not a number from 0 to 2**63 - 1"
            assert position not in kept, f"append returned {position}, where other data is kept"
            kept[position] = data
        else:
            freed = min(kept) if random.random() < 0.7 else random.choice(list(kept))
            storage.free(freed)
            del kept[freed]
        for asked in random.sample(list(kept), min(2, len(kept))):
            assert storage.read(asked) == kept[asked], f"read({asked}) differs from what was appended"
    for storage, kept in pairs:
        for position, data in kept.items():
            assert storage.read(position) == data, f"read({position}) differs from what was appended"
