"""Options of a group change while readers are online: all members see them, and nobody is expired by the change."""

from __future__ import annotations

import anyio
import pytest

from eventproc import GroupOptions
from eventproc.errors import AlreadyExists, InvalidArgument, NotAReaderGroup, NotFound
from eventproc.groups import PROCESSOR, ensure_group
from eventproc.groups.membership import join_member
from eventproc.runtime import Eventproc
from eventproc.store.groups import GROUP
from eventproc.store.records import get
from eventproc.streams import Stream
from tests.groups.support import GROUP_NAME, state_now, written
from tests.support.memory import clock as clock, timed_ep as timed_ep  # fixtures
from tests.support.virtual_time import anyio_backend as anyio_backend, clock_of

PATIENCE_MS = 1_000


@pytest.fixture(autouse=True)
async def stream(ep: Eventproc) -> Stream:
    return await written(ep, 10)


async def test_options_change_one_by_one_in_the_record_and_in_the_log(ep: Eventproc) -> None:
    group = await ep.create_group("g", ["s/t"], patience_ms=5_000, checkpoint_ms=2_000)
    assert await group.update(patience_ms=None) == GroupOptions(checkpoint_ms=2_000)
    assert await group.update(
        patience_ms=3_000, on_truncated="latest", assignor="range", retains=None
    ) == GroupOptions(
        checkpoint_ms=2_000, patience_ms=3_000, on_truncated="latest", assignor="range", retains=None
    )
    options = await group.update(checkpoint_ms=None, retains="manual")
    assert options == (await group.info()).options == (await state_now(ep.db)).options
    assert (await ep.db.read(lambda tx: get(tx, GROUP, GROUP_NAME).value)).options == options


async def test_a_program_that_starts_again_after_an_update_keeps_the_updated_options(ep: Eventproc) -> None:
    await ep.create_group("g", ["s/t"], patience_ms=5_000)
    for patience_ms in (7_000, 9_000):
        group = await ep.group("s/g")
        updated = await group.update(patience_ms=patience_ms)
        for created_ms in (5_000, patience_ms):
            again = await ep.create_group("g", ["s/t"], patience_ms=created_ms)
            assert (await again.info()).options == updated
    with pytest.raises(AlreadyExists, match="options"):
        await ep.create_group("g", ["s/t"], patience_ms=7_000)


async def test_update_without_a_change_leaves_the_generation(ep: Eventproc) -> None:
    group = await ep.create_group("g", ["s/t"], patience_ms=5_000)
    before = await group.info()
    assert await group.update() == await group.update(patience_ms=5_000) == before.options
    assert await group.info() == before


async def test_every_member_has_the_new_options_after_its_next_refresh(ep: Eventproc) -> None:
    group = await ep.create_group("g", ["s/t"])
    async with (
        join_member(ep.db, GROUP_NAME, "a", as_reader=True) as a,
        join_member(ep.db, GROUP_NAME, "b", as_reader=True) as b,
    ):
        options = await group.update(patience_ms=PATIENCE_MS, on_truncated="error")
        for member in (a, b):
            await member.wait_change(0)
            await member.refresh()
            assert member.options == options


async def test_new_patience_counts_from_the_change_and_expires_no_healthy_reader(ep: Eventproc) -> None:
    clock = clock_of(ep)
    group = await ep.create_group("g", ["s/t"])
    async with (
        join_member(ep.db, GROUP_NAME, "a", as_reader=True) as a,
        join_member(ep.db, GROUP_NAME, "b", as_reader=True) as b,
    ):
        epochs = a.epoch, b.epoch
        clock.advance(100 * PATIENCE_MS)  # without a heartbeat: none was needed
        await group.update(patience_ms=PATIENCE_MS)
        for _ in range(5):
            clock.advance(PATIENCE_MS // 2)
            await a.refresh()
            await b.refresh()
        assert (a.epoch, b.epoch) == epochs
        await group.update(patience_ms=None)
        clock.advance(100 * PATIENCE_MS)
        await a.refresh()
        await b.refresh()
        assert (a.epoch, b.epoch) == epochs


async def test_waiting_reader_begins_and_ends_automatic_checkpoints(ep: Eventproc, stream: Stream) -> None:
    group = await ep.create_group("g", ["s/t"])

    async def read() -> None:
        async with group.reader("a") as reader:
            async for _ in reader:
                pass

    async def checkpoints() -> int:
        return len([each for each in await group.checkpoints() if each.automatic])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(3_600)
        assert await checkpoints() == 0
        await group.update(checkpoint_ms=60_000)
        await anyio.sleep(200)
        (kept,) = await group.checkpoints()
        assert kept.cuts == {"s/t": await stream.tail()}
        await group.update(checkpoint_ms=None)
        await anyio.sleep(3_600)
        assert [each.name for each in await group.checkpoints()] == [kept.name]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "wrong",
    [
        {"patience_ms": 1},
        {"patience_ms": "30"},
        {"checkpoint_ms": 0},
        {"on_truncated": "ignore"},
        {"assignor": "two words"},
        {"retains": "everything"},
        {"on_deleted": "drop"},
    ],
)
async def test_invalid_option_changes_nothing(ep: Eventproc, wrong: dict[str, object]) -> None:
    group = await ep.create_group("g", ["s/t"])
    before = await group.info()
    with pytest.raises(InvalidArgument):
        await group.update(**wrong)  # type: ignore[arg-type]
    assert await group.info() == before


async def test_group_of_a_processor_and_a_deleted_one_are_refused(ep: Eventproc) -> None:
    await ep.db.write(lambda tx: ensure_group(tx, "s/p", ["s/t"], kind=PROCESSOR))
    with pytest.raises(NotAReaderGroup):
        await (await ep.group("s/p")).update(patience_ms=PATIENCE_MS)
    group = await ep.create_group("g", ["s/t"])
    await group.delete()
    with pytest.raises(NotFound):
        await group.update(patience_ms=PATIENCE_MS)
