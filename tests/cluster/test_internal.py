"""The internal processors: owned by the host, with handlers that publish by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import anyio
import pytest

import eventproc
from eventproc.cluster import internal_processors
from eventproc.cluster.internal_processors import (
    INTERNAL_PROCESSORS,
    HostMembership,
    InternalProcessor,
    run_internal_processors,
)
from eventproc.processors.options import ProcessingOrder
from eventproc.store.catalog import COMMIT_STREAM, SYSTEM_EPOCH, SystemStream, post_event
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.ownership import Owner, claim
from eventproc.store.progress import EventRef, finish_event, get_progress
from eventproc.store.segments import Event


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with eventproc.open_memory(host=False) as ep:
        yield ep.db


async def become_host(db: Database) -> Owner:
    return await db.write(lambda tx: claim(tx, "controller", "test"))


async def post_notices(db: Database, keys: Sequence[str]) -> None:
    def post_all(tx: Tx) -> None:
        for number, key in enumerate(keys):
            post_event(tx, COMMIT_STREAM, key, str(number).encode())

    await db.write(post_all)


async def progress_of(db: Database, stream: SystemStream) -> list[Progress]:
    def look(tx: Tx) -> list[Progress]:
        return [get_progress(tx, stream.name, stream.stream_id, segment) for segment in SYSTEM_EPOCH.ids]

    return await db.read(look)


def member_of(db: Database, owner: Owner) -> HostMembership:
    return HostMembership(db, COMMIT_STREAM, owner)


async def test_internal_processor_resumes_at_the_progress_of_the_last_host(db: Database) -> None:
    finished: dict[SegmentId, list[int]] = {segment: [] for segment in SYSTEM_EPOCH.ids}
    reached = {100: anyio.Event(), 300: anyio.Event()}

    def note(event: Event) -> None:
        finished[event.segment].append(event.number)
        if (count := sum(map(len, finished.values()))) in reached:
            reached[count].set()

    async def settle(db: Database, owner: Owner, event: Event) -> None:
        where = EventRef.of(event, group=COMMIT_STREAM.name, stream_id=COMMIT_STREAM.stream_id)

        def finish(tx: Tx) -> None:
            owner.check(tx)
            finish_event(tx, where)
            tx.after(lambda: note(event))

        await db.write(finish)

    line = InternalProcessor(COMMIT_STREAM, ProcessingOrder.SEGMENT, 2, settle)
    await post_notices(db, [f"s/{number % 7}" for number in range(300)])
    for each in reached.values():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                run_internal_processors, db, await become_host(db), (INTERNAL_PROCESSORS[0], line)
            )
            await each.wait()
            tasks.cancel_scope.cancel()
    progress = await progress_of(db, COMMIT_STREAM)
    assert [each.finished for each in progress] == [(), ()]
    assert list(finished.values()) == [list(range(each.number)) for each in progress]
    assert sum(each.number for each in progress) == 300


async def test_publishing_processor_leaves_events_its_handler_did_not_finish(
    db: Database,
) -> None:
    handled = 0
    all_handled = anyio.Event()

    async def forget(db: Database, owner: Owner, event: Event) -> None:
        nonlocal handled
        handled += 1
        if handled == 2500:
            all_handled.set()

    await post_notices(db, [f"s/{number}" for number in range(2500)])
    async with anyio.create_task_group() as tasks:
        line = InternalProcessor(COMMIT_STREAM, ProcessingOrder.NONE, 10, forget)
        tasks.start_soon(internal_processors.make_engine(db, await become_host(db), line).run)
        await all_handled.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert await progress_of(db, COMMIT_STREAM) == [Progress(), Progress()]


async def test_error_of_a_publishing_handler_ends_its_processor_unchanged(db: Database) -> None:
    async def fail(db: Database, owner: Owner, event: Event) -> None:
        raise LookupError(event.payload.decode())

    await post_notices(db, ["s/a"])
    with pytest.raises(ExceptionGroup) as failed:
        await internal_processors.make_engine(
            db, await become_host(db), InternalProcessor(COMMIT_STREAM, ProcessingOrder.SEGMENT, 1, fail)
        ).run()
    assert failed.group_contains(LookupError, match="^0$")


async def test_progress_of_an_internal_processor_is_fenced_by_the_hosts_epoch(db: Database) -> None:
    owner = await become_host(db)
    member = member_of(db, owner)
    await member.refresh()
    owned = list(member.owned.values())
    moved = dict(zip(owned, [Progress(3, 50), Progress(0, 0, ((2, 4, 80),))], strict=True))
    await db.write(lambda tx: member.move(tx, moved))
    assert await progress_of(db, COMMIT_STREAM) == list(moved.values())
    successor = member_of(db, await become_host(db))
    with pytest.raises(OwnerFenced):
        await db.write(lambda tx: member.move(tx, dict.fromkeys(owned, Progress(9, 150))))
    assert await progress_of(db, COMMIT_STREAM) == list(moved.values())
    await successor.refresh()
    assert [each.progress for each in successor.owned.values()] == list(moved.values())
    with pytest.raises(OwnerFenced):
        await member_of(db, owner).refresh()
