"""What a reader gave up stays given up, whatever it was reading of its group at that moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import anyio
import pytest

from eventproc.groups import Membership, join, set_paused
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from tests.groups.support import GROUP_NAME, finish, key_of, make, segments_of

T = TypeVar("T")


async def refresh_while(
    ep: Eventproc, member: Membership, act: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refresh, and let `act` happen after the group was read and before its reader learns what was read."""
    read, acts, task = ep.db.read, [act], anyio.get_current_task()

    async def slowly(fn: Callable[[Tx], T]) -> T:
        found = await read(fn)
        if acts and anyio.get_current_task() == task:  # not a read of the background
            await acts.pop()()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(ep.db, "read", slowly)
        await member.refresh()


async def test_a_segment_completed_during_a_refresh_does_not_come_back(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await make(ep, 1)
    async with join(ep.db, GROUP_NAME, "a") as member:
        await member.refresh()
        successors = await stream.split(0)
        await ep.db.write(partial(set_paused, name=GROUP_NAME, paused=True))  # there is something to read
        await refresh_while(ep, member, partial(finish, ep.db, member, key_of(stream, 0)), monkeypatch)
        assert segments_of(member) == set(successors)


async def test_a_segment_released_during_a_refresh_does_not_come_back(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(ep, 2)
    async with join(ep.db, GROUP_NAME, "a") as member:
        await member.refresh()
        async with join(ep.db, GROUP_NAME, "b"):
            await member.refresh()
            (key,) = member.surplus
            await ep.db.write(partial(set_paused, name=GROUP_NAME, paused=True))
            await refresh_while(ep, member, partial(member.release, [key]), monkeypatch)
            assert key not in member.owned
            assert len(member.owned) == 1
