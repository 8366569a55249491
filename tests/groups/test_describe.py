"""What a group tells of itself to people."""

from __future__ import annotations

import anyio
import pytest

from eventproc.cluster import sweeper
from eventproc.groups import describe_group, ensure_group, join, watch_progress
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.progress import Progress
from tests.groups.support import GROUP_NAME, key_of, make, write


def free_nothing(tx: Tx) -> bool:
    """Stand for a sweep that has not come yet."""
    return False


async def test_what_the_reaper_has_not_come_to_is_not_told_of(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "free_due", free_nothing)
    stream = await ep.create_stream("s/t")
    async with stream.writer() as writer:
        await writer.write(b"before")
    first, second = await stream.split(0)
    active = [first, *await stream.split(second)]  # so that the oldest epoch is not kept either
    await ep.db.write(lambda tx: ensure_group(tx, "s/g", ["s/t"], "tail"))
    await stream.truncate(await stream.tail())
    found = await ep.db.read(lambda tx: describe_group(tx, "s/g"))
    assert [each.segment for each in found.segments] == active
    assert found.events == 0


async def test_progress_is_heard_of_in_its_process_and_seen_by_the_others(ep: Eventproc) -> None:
    stream = await make(ep, 1)
    await write(stream, range(3))
    watch = watch_progress(GROUP_NAME)
    async with join(ep.db, GROUP_NAME, "a") as member:
        await member.refresh()
        before = await ep.db.read(watch.probe)
        with ep.db.subscribe([watch]) as changes, anyio.fail_after(10):
            await ep.db.write(lambda tx: member.move(tx, {member.owned[key_of(stream, 0)]: Progress(1, 9)}))
            assert await changes.wait() == {watch.channel}
        assert await ep.db.read(watch.probe) != before
