"""Checkers of what the system promises: the invariants of a database, and the order of events per key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eventproc.groups import GROUP, GroupRecord, folded_state
from eventproc.store.database import Database, Tx
from eventproc.store.inspection import group_names_of_rows, group_rows, store_violations
from eventproc.store.model.errors import EventprocError
from eventproc.store.records import find, get, keys


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


def violations(tx: Tx) -> list[str]:
    """Return one line for each invariant that does not hold; empty if all of them hold.

    Args:
        tx: a read transaction, as `ep.db.read(violations)` gives it.
    """
    return [*store_violations(tx), *_group_violations(tx)]


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
            if not name.startswith("_") and find(tx, GROUP, name) is None:
                yield f"{table}: rows of the deleted group {name}"


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
    if rows.members != {reader: (member.instance, member.epoch) for reader, member in state.members.items()}:
        yield f"its rows say that {rows.members} are online, its log {state.members}"
