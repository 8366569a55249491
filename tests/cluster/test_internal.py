"""The internal processors: hosted by whoever is the host, with handlers that publish by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio
import pytest

import eventproc
from eventproc.cluster import internal
from eventproc.cluster.hosted import HostedMember
from eventproc.cluster.internal import INTERNAL, Internal, serve_internal
from eventproc.processors.engine import Engine
from eventproc.processors.handler import make_handler
from eventproc.processors.options import Options, Order
from eventproc.store.catalog import COMMIT_STREAM, REQUEST_STREAM, SYSTEM_EPOCH, SystemStream
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.ownership import Owner, claim
from eventproc.store.progress import EventRef, finish_event, get_progress
from eventproc.store.requests import post
from eventproc.store.segments import Event


@pytest.fixture
async def db() -> AsyncIterator[Database]:
    async with eventproc.open_memory(host=False) as ep:
        yield ep.db


async def become_host(db: Database) -> Owner:
    return await db.write(lambda tx: claim(tx, "controller", "test"))


async def ring(db: Database, keys: Sequence[str]) -> None:
    def ring_all(tx: Tx) -> None:
        for number, key in enumerate(keys):
            post(tx, COMMIT_STREAM, key, str(number).encode())

    await db.write(ring_all)


async def progress_of(db: Database, stream: SystemStream) -> list[Progress]:
    def look(tx: Tx) -> list[Progress]:
        return [get_progress(tx, stream.name, stream.stream_id, segment) for segment in SYSTEM_EPOCH.ids]

    return await db.read(look)


def member_of(db: Database, owner: Owner) -> HostedMember:
    return HostedMember(db, COMMIT_STREAM, owner)


async def test_a_processor_takes_its_place_with_one_line_and_goes_on_where_the_last_host_stood(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    line = Internal(COMMIT_STREAM, Order.SEGMENT, 2, settle)
    monkeypatch.setattr(internal, "INTERNAL", (INTERNAL[0], line))
    await ring(db, [f"s/{number % 7}" for number in range(300)])
    for each in reached.values():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_internal, db, await become_host(db))
            await each.wait()
            tasks.cancel_scope.cancel()
    progress = await progress_of(db, COMMIT_STREAM)
    assert [each.finished for each in progress] == [(), ()]
    assert list(finished.values()) == [list(range(each.number)) for each in progress]
    assert sum(each.number for each in progress) == 300


async def test_what_its_handler_did_not_finish_a_publishing_processor_does_not_finish_either(
    db: Database,
) -> None:
    handled = 0
    all_handled = anyio.Event()

    async def forget(db: Database, owner: Owner, event: Event) -> None:
        nonlocal handled
        handled += 1
        if handled == 2500:
            all_handled.set()

    await ring(db, [f"s/{number}" for number in range(2500)])
    async with anyio.create_task_group() as tasks:
        line = Internal(COMMIT_STREAM, Order.NONE, 10, forget)
        tasks.start_soon(internal.engine_of(db, await become_host(db), line).run)
        await all_handled.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert await progress_of(db, COMMIT_STREAM) == [Progress(), Progress()]


async def test_what_a_publishing_handler_raises_ends_its_processor_as_it_is(db: Database) -> None:
    async def fail(db: Database, owner: Owner, event: Event) -> None:
        raise LookupError(event.payload.decode())

    await ring(db, ["s/a"])
    with pytest.raises(ExceptionGroup) as failed:
        await internal.engine_of(
            db, await become_host(db), Internal(COMMIT_STREAM, Order.SEGMENT, 1, fail)
        ).run()
    assert failed.group_contains(LookupError, match="^0$")


async def test_progress_that_a_hosted_processor_moves_is_fenced_by_the_host(db: Database) -> None:
    owner = await become_host(db)
    member = member_of(db, owner)
    await member.refresh()
    keys = [(COMMIT_STREAM.stream_id, segment) for segment in SYSTEM_EPOCH.ids]
    moved = dict(zip(keys, [Progress(3, 50), Progress(0, 0, ((2, 4, 80),))], strict=True))
    await db.write(lambda tx: member.move(tx, moved))
    assert await progress_of(db, COMMIT_STREAM) == list(moved.values())
    successor = member_of(db, await become_host(db))
    with pytest.raises(OwnerFenced):
        await db.write(lambda tx: member.move(tx, dict.fromkeys(keys, Progress(9, 150))))
    assert await progress_of(db, COMMIT_STREAM) == list(moved.values())
    await successor.refresh()
    assert [each.progress for each in successor.owned.values()] == list(moved.values())
    with pytest.raises(OwnerFenced):
        await member_of(db, owner).refresh()


async def test_a_processor_that_does_not_publish_can_be_hosted_too(db: Database) -> None:
    handled: list[bytes] = []
    all_handled = anyio.Event()

    async def note(event: Event) -> None:
        handled.append(event.payload)
        if len(handled) == 20:
            all_handled.set()

    await ring(db, ["s/a", "s/b"] * 10)
    options = Options(
        name="note", streams=("s/any",), group="s/note", order=Order.KEY, concurrency=3, on_truncated="error"
    )
    member = member_of(db, await become_host(db))
    engine = Engine(db, options, partial(make_handler, note, bytes), member)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.run)
        await all_handled.wait()
        await engine.stop()
    assert sum(each.number for each in await progress_of(db, COMMIT_STREAM)) == 20
    assert await progress_of(db, REQUEST_STREAM) == [Progress(), Progress()]
