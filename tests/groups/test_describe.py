"""What a group tells of itself to people."""

from __future__ import annotations

import pytest

from eventproc.cluster import sweeper
from eventproc.groups import describe_group, ensure_group
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.ownership import Owner


def reap_nothing(tx: Tx, owner: Owner) -> bool:
    """Stand for a sweep that has not come yet."""
    return False


async def test_what_the_reaper_has_not_come_to_is_not_told_of(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "reap", reap_nothing)
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
