"""`ep.users`: what the endpoints ask of callers, administered by a program."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

import eventproc
from eventproc import Grant, Permission
from eventproc.errors import AlreadyExists, InvalidArgument, NotFound, NotSupported
from eventproc.runtime import Eventproc
from eventproc.store.access.passwords import is_password
from eventproc.store.access.users import get_user
from eventproc.testing import VirtualClock


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory(clock=VirtualClock(start_ms=1_000)) as ep:
        yield ep


async def test_a_user_is_added_listed_and_deleted(ep: Eventproc) -> None:
    assert await ep.users.list() == []
    robot = await ep.users.add("robot")
    assert (robot.name, robot.has_password, robot.grants, robot.tokens) == ("robot", False, (), ())
    assert robot.created_ms >= 1_000
    await ep.users.add("ann")
    assert [each.name for each in await ep.users.list()] == ["ann", "robot"]
    with pytest.raises(AlreadyExists):
        await ep.users.add("ann")
    with pytest.raises(InvalidArgument):
        await ep.users.add("a:b")
    await ep.users.delete("ann")
    assert await ep.users.list() == [robot]
    for missing in (ep.users.get("ann"), ep.users.delete("ann"), ep.users.set_password("ann", None)):
        with pytest.raises(NotFound):
            await missing


async def test_a_password_is_kept_as_a_hash_and_never_shown(ep: Eventproc) -> None:
    assert (await ep.users.add("ann", password="correct horse")).has_password
    stored = await ep.db.read(lambda tx: get_user(tx, "ann"))
    assert stored.password is not None
    assert is_password(stored.password, "correct horse")
    assert stored.scram == ()
    await ep.users.set_password("ann", None)
    assert not (await ep.users.get("ann")).has_password
    wrong: list[object] = ["short", "x" * 2_000, b"secret bytes", 5, "ep1_looks_like_a_token", "\ud800" * 9]
    for each in wrong:
        with pytest.raises(InvalidArgument, match="hidden") as caught:
            await ep.users.set_password("ann", each)  # type: ignore[arg-type]  # refused
        assert "secret" not in str(caught.value)
    assert not (await ep.users.get("ann")).has_password


async def test_verifiers_are_kept_if_they_are_asked_for_with_this_password(ep: Eventproc) -> None:
    assert not (await ep.users.add("bob", password="correct horse")).has_scram
    assert (await ep.users.add("ann", password="correct horse", scram=True)).has_scram
    stored = await ep.db.read(lambda tx: get_user(tx, "ann"))
    assert [each.mechanism for each in stored.scram] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    await ep.users.set_password("ann", "another password")
    assert not (await ep.users.get("ann")).has_scram
    await ep.users.set_password("ann", "another password", scram=True)
    assert (await ep.db.read(lambda tx: get_user(tx, "ann"))).scram != stored.scram
    with pytest.raises(InvalidArgument, match="no password"):
        await ep.users.set_password("ann", None, scram=True)
    with pytest.raises(InvalidArgument, match="True or False"):
        await ep.users.set_password("ann", "another password", scram="yes")  # type: ignore[arg-type]  # refused
    assert (await ep.users.get("ann")).has_scram


async def test_a_password_without_its_package_is_refused_with_the_extra_to_install(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "eventproc.store.access.passwords", None)
    with pytest.raises(NotSupported, match=r"pip install 'eventproc\[server\]'"):
        await ep.users.add("ann", password="correct horse")
    assert await ep.users.list() == []


async def test_a_grant_replaces_the_one_on_its_pattern_until_it_is_revoked(ep: Eventproc) -> None:
    await ep.users.add("ann")
    await ep.users.grant("ann", Permission.READ, "shop/*")
    changed = await ep.users.grant("ann", Permission.READ_UPDATE, "shop/*")
    assert changed.grants == (Grant("shop/*", Permission.READ_UPDATE),)
    assert (await ep.users.revoke("ann", "shop/*")).grants == ()
    with pytest.raises(NotFound):
        await ep.users.revoke("ann", "shop/*")
    with pytest.raises(InvalidArgument, match="'READ' or 'READ_UPDATE'"):
        await ep.users.grant("ann", "ALL", "shop/*")  # type: ignore[arg-type]  # refused
    for pattern in ("_system/x", "s/t/u"):
        with pytest.raises(InvalidArgument, match="pattern"):
            await ep.users.grant("ann", Permission.READ, pattern)
    assert (await ep.users.get("ann")).grants == ()


async def test_the_text_of_a_token_is_returned_once_and_is_not_in_its_repr(ep: Eventproc) -> None:
    await ep.users.add("ann")
    made = await ep.users.add_token("ann", "laptop", life_ms=500)
    assert (made.user, made.name) == ("ann", "laptop")
    assert made.text not in repr(made)
    (kept,) = (await ep.users.get("ann")).tokens
    assert (kept.name, kept.expires_ms) == ("laptop", made.expires_ms)
    assert kept.expires_ms == kept.created_ms + 500
    with pytest.raises(InvalidArgument, match="delete it first"):
        await ep.users.add_token("ann", "laptop")
    with pytest.raises(InvalidArgument):
        await ep.users.add_token("ann", "")
    for life_ms in (0, 2**62, "1"):
        with pytest.raises(InvalidArgument, match="life"):
            await ep.users.add_token("ann", "other", life_ms=life_ms)  # type: ignore[arg-type]  # refused
    await ep.users.delete_token("ann", "laptop")
    with pytest.raises(NotFound):
        await ep.users.delete_token("ann", "laptop")
