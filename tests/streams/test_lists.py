"""Lists of streams: pages, prefixes, and tags with their index."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.policies import TAG_CHARACTERS_MAX, TAGS_MAX
from eventproc.testing import check


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory() as ep:
        for scope in ("a", "b"):
            await ep.create_scope(scope)
            for number in range(3):
                tags = ["all", "even"] if number % 2 == 0 else ["all"]
                await ep.create_stream(f"{scope}/{'xy'[number // 2]}{number}", tags=tags)
        yield ep
        await check(ep.db)


async def _names(
    ep: Eventproc,
    scope: str | None = None,
    *,
    tag: str | None = None,
    prefix: str = "",
    after: str | None = None,
    limit: int | None = None,
) -> list[str]:
    found = await ep.streams(scope, tag=tag, prefix=prefix, after=after, limit=limit)
    return [each.name for each in found]


async def test_pages_list_every_stream_once_in_order(ep: Eventproc) -> None:
    expected = ["a/x0", "a/x1", "a/y2", "b/x0", "b/x1", "b/y2"]
    assert await _names(ep) == expected
    for limit in range(1, 8):
        listed: list[str] = []
        while page := await _names(ep, after=listed[-1] if listed else None, limit=limit):
            assert len(page) <= limit
            listed += page
        assert listed == expected
    assert await _names(ep, "a", limit=2) == ["a/x0", "a/x1"]
    assert await _names(ep, "a", prefix="x") == ["a/x0", "a/x1"]
    assert await _names(ep, prefix="y") == ["a/y2", "b/y2"]


async def test_pages_keep_scopes_whose_names_begin_alike(ep: Eventproc) -> None:
    for name in ("a-b", "a.b"):  # "-" and "." sort before "/"
        await ep.create_scope(name)
        await ep.create_stream(f"{name}/x", tags=["all"])
    for tag in (None, "all"):
        expected = await _names(ep, tag=tag)
        assert expected[:5] == ["a/x0", "a/x1", "a/y2", "a-b/x", "a.b/x"]
        listed: list[str] = []
        while page := await _names(ep, tag=tag, after=listed[-1] if listed else None, limit=1):
            listed += page
        assert listed == expected


@pytest.mark.acceptance("B14", differs="the tags; there are no mark streams and no references in buckets")
async def test_tags_follow_creation_update_and_deletion(ep: Eventproc) -> None:
    assert await _names(ep, tag="even") == ["a/x0", "a/y2", "b/x0", "b/y2"]
    assert await _names(ep, "a", tag="even", prefix="y") == ["a/y2"]
    assert await _names(ep, "a", tag="all", after="a/x0", limit=1) == ["a/x1"]
    assert await _names(ep, tag="none") == []
    stream = await ep.stream("a/x0")
    await stream.update(tags=["odd", "all", "odd"])
    assert (await stream.describe()).config.tags == ("all", "odd")
    assert await _names(ep, "a", tag="even") == ["a/y2"]
    assert await _names(ep, "a", tag="odd") == ["a/x0"]
    await check(ep.db)
    await stream.seal()
    await stream.delete()
    assert await _names(ep, "a", tag="all") == ["a/x1", "a/y2"]
    await ep.delete_scope("b", recursive=True)
    assert await _names(ep, tag="even") == ["a/y2"]
    with pytest.raises(NotFound):
        await _names(ep, "b", tag="even")


async def test_tags_out_of_bounds_are_refused(ep: Eventproc) -> None:
    for bad in (
        "text",
        [""],
        ["x" * (TAG_CHARACTERS_MAX + 1)],
        [str(each) for each in range(TAGS_MAX + 1)],
        [1],
    ):
        with pytest.raises(InvalidArgument):
            await ep.create_stream("a/bad", tags=bad)  # type: ignore[arg-type]
    choices: tuple[dict[str, object], ...] = ({"limit": 0}, {"tag": 1}, {"after": b"x"})
    for choice in choices:
        with pytest.raises(InvalidArgument):
            await ep.streams("a", **choice)  # type: ignore[arg-type]
