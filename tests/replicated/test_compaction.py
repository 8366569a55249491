"""Logs are compacted by snapshots: new members read little, late ones continue, the others begin at a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
import attrs
import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.replicated import LogId, ReplicatedType, StateSynchronizer
from eventproc.store.replicated.change import COMPACT_BYTES
from eventproc.store.replicated.log import SEGMENT, get_log
from eventproc.store.segments import EventBlock, SegmentEvents, append, free_step
from eventproc.testing import check
from tests.database.support import World
from tests.replicated.support import (
    LEDGER,
    Add,
    Ledger,
    Member,
    Write,
    appending,
    bounds,
    bounds_by,
    compacting,
    fold as fold_ledger,
    make_ledger,
    member,
    stranger,
    writing,
)

QUARTER = "x" * (COMPACT_BYTES // 4)
"""The padding of an update; four updates trigger a compaction."""


def counting(db: Database, log: LogId) -> tuple[Member, list[Write | Add]]:
    """Return a member of its own, and the list of updates that it folds."""
    folded: list[Write | Add] = []

    def note(ledger: Ledger, update: Write | Add) -> Ledger:
        folded.append(update)
        return fold_ledger(ledger, update)

    return StateSynchronizer(db, log, attrs.evolve(LEDGER, fold=note)), folded


@pytest.mark.acceptance(
    "E10", differs="a compaction is one transaction, and there is nothing to lose between its steps"
)
async def test_a_new_member_begins_at_the_newest_snapshot(db: Database) -> None:
    log = await make_ledger(db)
    one = member(db, log)
    for line in "abc":
        await one.update(writing(line))
    assert (await one.compact()).lines == ("a", "b", "c")
    await one.update(writing("d"))
    fresh, folded = counting(db, log)
    assert await fresh.fetch() == Ledger(("a", "b", "c", "d"))
    assert folded == [Write("d")]
    await check(db)


async def test_a_log_is_compacted_when_enough_was_written_since_the_last_snapshot(db: Database) -> None:
    log = await make_ledger(db)
    one = member(db, log)
    for line in "abc":
        await one.update(writing(line, pad=QUARTER))
    assert await _snapshot(db, log) == 0
    await one.update(writing("d", pad=QUARTER))
    first = await _snapshot(db, log)
    assert first > COMPACT_BYTES
    for line in "efgh":
        await db.write(appending(log, Write(line, QUARTER)))
    assert await _snapshot(db, log) > first + COMPACT_BYTES
    assert await bounds(db, log) == (first, (await _fetched(one)).revision)
    assert one.state == Ledger(tuple("abcdefgh"))
    await check(db)


async def test_a_large_state_is_not_written_again_before_as_much_was_appended(db: Database) -> None:
    log = await make_ledger(db, Ledger(pad="x" * 2 * COMPACT_BYTES))
    one = member(db, log)
    for line in "abcdefg":
        await one.update(writing(line, pad=QUARTER))
    assert await _snapshot(db, log) == 0
    await one.update(writing("h", pad=QUARTER))
    assert await _snapshot(db, log) > 0


async def test_a_compaction_without_updates_since_the_last_changes_nothing(db: Database) -> None:
    log = await make_ledger(db)
    one, two = member(db, log), stranger(db, log)
    await one.compact()
    assert await _snapshot(db, log) == 0
    await one.update(writing("a"))
    await one.compact()
    before = await bounds(db, log)
    await two.compact()
    await db.write(compacting(log))
    assert await bounds(db, log) == before


@pytest.mark.acceptance("E10")
async def test_a_late_member_continues_and_one_left_behind_begins_at_a_snapshot(
    db: Database,
) -> None:
    log = await make_ledger(db)
    writer = member(db, log)
    (late, late_folded), (left, left_folded) = counting(db, log), counting(db, log)
    await left.fetch()
    await writer.update(writing("a"))
    await writer.compact()
    await late.fetch()
    await writer.update(writing("b"))
    await writer.compact()
    await writer.update(writing("c"))
    head, _ = await bounds(db, log)
    assert left.revision < head <= late.revision
    while not await db.write(partial(free_step, stream_id=log, deleted=False)):
        pass
    assert late.state == Ledger(("a",))
    assert left.state == Ledger(), "what it has read it may go on reading"
    late_folded.clear()
    assert await late.fetch() == await left.fetch() == Ledger(("a", "b", "c"))
    assert late_folded == [Write("b"), Write("c")]
    assert left_folded == [Write("c")]
    await check(db)


@pytest.mark.acceptance("E10")
async def test_a_log_truncated_again_while_it_is_fetched_is_read_to_its_end(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await make_ledger(db)
    late, read = stranger(db, log, fold_bytes=1), db.read  # a step is one entry
    await late.fetch()
    seen: list[tuple[int, int]] = []

    async def truncate(*lines: str) -> None:
        for line in lines:
            await db.write(appending(log, Write(line)))
            await db.write(compacting(log))
        await db.write(appending(log, Write("+")))

    async def read_before_truncations(fn: Callable[[Tx], object]) -> object:
        head, _ = await bounds_by(read, log)
        seen.append((late.revision, head))
        found = await read(fn)
        if len(seen) < 2:
            await truncate("c", "d")
        return found

    await truncate("a", "b")
    monkeypatch.setattr(db, "read", read_before_truncations)
    state = await late.fetch()
    assert [revision < head for revision, head in seen] == [True, True], "truncated before each step"
    assert state == Ledger(("a", "b", "+", "c", "d"))
    monkeypatch.undo()
    assert await late.fetch() == Ledger(("a", "b", "+", "c", "d", "+"))
    await check(db)


@pytest.mark.acceptance("E10")
async def test_tasks_that_fetch_simultaneously_after_a_truncation_never_go_back(db: Database) -> None:
    log = await make_ledger(db)
    late = stranger(db, log, fold_bytes=1)
    await late.fetch()
    revisions: list[int] = []

    async def fetch() -> None:
        for _ in range(6):
            await late.fetch()
            revisions.append(late.revision)

    async def write() -> None:
        for number in range(8):
            await db.write(appending(log, Write(str(number))))
            await db.write(compacting(log))

    await write()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(fetch)
        tasks.start_soon(write)
    assert revisions == sorted(revisions)
    assert await late.fetch() == Ledger((*map(str, range(8)), *map(str, range(8))))


async def test_what_a_group_compacted_before_it_was_rolled_back_is_not_missing_later(world: World) -> None:
    log = await make_ledger(world.db)
    await world.db.write(appending(log, Write("a")))

    def compact_then_raise(tx: Tx) -> None:
        compacting(log)(tx)
        appending(log, Write("never"))(tx)
        raise ValueError

    await world.write_together(compact_then_raise, appending(log, Write("b")), compact_then_raise)
    await world.db.write(compacting(log))
    await world.db.write(appending(log, Write("c")))
    await world.db.write(compacting(log))
    assert await stranger(world.db, log).fetch() == Ledger(("a", "b", "c"))
    await check(world.db)


async def test_entries_of_an_older_format_are_upcast_and_of_a_newer_refused(db: Database) -> None:
    log = await make_ledger(db)
    await member(db, log).update(lambda _: [Add(2)])

    @attrs.frozen
    class Plus:
        by: int

    def upcast(entry: dict[str, object]) -> dict[str, object]:
        match entry:
            case {"updates": list(updates)}:
                renamed = [{"plus": {"by": update["add"].get("amount", 1)}} for update in updates]
                return {"updates": renamed}
            case _:
                return entry

    newer = ReplicatedType[Ledger, Plus](
        name="ledger",
        state=Ledger,
        updates={"plus": Plus},
        fold=lambda ledger, plus: attrs.evolve(ledger, total=ledger.total + plus.by),
        format=2,
        upcasts={1: upcast},
    )
    assert await StateSynchronizer(db, log, newer).update(lambda _: [Plus(3)]) == Ledger(total=5)
    with pytest.raises(CorruptRecord, match="format 2 is newer"):
        await stranger(db, log).fetch()


@pytest.mark.parametrize(
    "payload", [b"", b"1:", b"1:[]", b'1:{"updates":[{"what":{}}]}', b'1:{"init":{"lines":3}}']
)
async def test_bytes_that_are_no_entry_are_told_with_their_place(db: Database, payload: bytes) -> None:
    log = await make_ledger(db)
    _, end = await bounds(db, log)
    part = SegmentEvents(SEGMENT, EventBlock([payload]).encode())
    await db.write(lambda tx: append(tx, "log", log, (part,)))
    with pytest.raises(CorruptRecord, match=f"ledger log {log} at {end}"):
        await stranger(db, log).fetch()


async def _snapshot(db: Database, log: LogId) -> int:
    return (await db.read(partial(get_log, log=log))).value.snapshot


async def _fetched(one: Member) -> Member:
    await one.fetch()
    return one
