"""Lists of streams, topics, groups and scopes: pages, prefixes, and tags with their index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import pytest

import eventproc
from eventproc.groups import GroupInfo
from eventproc.runtime import Eventproc
from eventproc.store.catalog import STREAM, insert_stream, queries, streams_with_policies
from eventproc.store.catalog.queries import tagged_streams
from eventproc.store.database import Tx
from eventproc.store.model import list_pages
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.policies import (
    KEEP_ALL,
    TAG_CHARACTERS_MAX,
    TAGS_MAX,
    OffloadPolicy,
    RetentionPolicy,
    ScalingPolicy,
    StreamConfig,
)
from eventproc.store.records import keys
from eventproc.streams import ScopeInfo
from eventproc.testing import check
from eventproc.topics import TopicInfo
from eventproc.workflows.policies import has_policy
from tests.support.sqlite import sqlite_of


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


Listed = Callable[..., Awaitable[Sequence[ScopeInfo | TopicInfo | GroupInfo]]]


async def _all_pages(listed: Listed, limit: int) -> list[str]:
    names: list[str] = []
    while page := await listed(after=names[-1] if names else None, limit=limit):
        assert len(page) <= limit
        names += [each.name for each in page]
    return names


async def test_pages_list_every_topic_group_and_scope_once_in_order(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "SCOPES_A_STEP", 2)
    monkeypatch.setattr(list_pages, "ENTRIES_A_STEP", 2)
    await ep.create_scope("a-b")
    await ep.create_stream("a-b/x")
    names = ["a/t", "a/x9", "a/z", "a-b/t", "b/x9", "b/z"]
    for name in reversed(names):
        await ep.create_topic(name)
        await ep.create_group(f"{name}-readers", ["a/x0"])
        await ep.create_share_group(f"{name}-share", ["a/x0"])
    lists: list[tuple[Listed, str]] = [
        (ep.topics, ""),
        (ep.groups, "-readers"),
        (ep.share_groups, "-share"),
    ]
    for listed, end in lists:
        expected = [name + end for name in names]
        assert [each.name for each in await listed()] == expected
        for limit in range(1, 8):
            assert await _all_pages(listed, limit) == expected
        assert [each.name for each in await listed("a", limit=2)] == expected[:2]
        assert [each.name for each in await listed(prefix="x")] == [f"a/x9{end}", f"b/x9{end}"]
        assert [each.name for each in await listed("b", prefix="z", after="b/x")] == [f"b/z{end}"]
        with pytest.raises(NotFound):
            await listed("other", limit=1)
        for wrong in ({"limit": 0}, {"limit": "1"}, {"after": 1}, {"prefix": None}):
            with pytest.raises(InvalidArgument):
                await listed(**wrong)
    for limit in (*range(1, 5), 2**63 - 1):
        assert await _all_pages(ep.scopes, limit) == ["a", "a-b", "b"]
    assert [each.name for each in await ep.scopes(prefix="a", limit=5)] == ["a", "a-b"]


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
        ["a\0b"],
        [str(each) for each in range(TAGS_MAX + 1)],
        [1],
    ):
        with pytest.raises(InvalidArgument):
            await ep.create_stream("a/bad", tags=bad)  # type: ignore[arg-type]
    choices: tuple[dict[str, object], ...] = ({"limit": 0}, {"tag": 1}, {"after": b"x"})
    for choice in choices:
        with pytest.raises(InvalidArgument):
            await ep.streams("a", **choice)  # type: ignore[arg-type]


async def test_a_page_costs_as_much_at_the_end_as_at_the_beginning(ep: Eventproc) -> None:
    def steps(tx: Tx, after: str, tag: str | None) -> int:
        """Return how many instructions SQLite needs for the names of a page."""
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        sqlite_of(tx.connection).set_progress_handler(count, 1)
        try:
            if tag is None:
                assert len(keys(tx, STREAM, prefix="c/", after=after, limit=5)) == 5
            else:
                assert len(tagged_streams(tx, "c", tag, prefix="c/", after=after, limit=5)) == 5
        finally:
            sqlite_of(tx.connection).set_progress_handler(None, 0)
        return counted

    await ep.create_scope("c")
    config = StreamConfig(ScalingPolicy.fixed(1), tags=("all",))
    await ep.db.write(lambda tx: [insert_stream(tx, f"c/{number:03}", config) for number in range(300)])
    for tag in (None, "all"):
        first = await ep.db.read(partial(steps, after="", tag=tag))
        last = await ep.db.read(partial(steps, after="c/290", tag=tag))
        assert last <= first + 10, tag


async def test_pages_list_every_transaction_once(ep: Eventproc) -> None:
    stream = await ep.stream("a/x0")
    begun = sorted([(await stream.begin()).id for _ in range(7)])  # in one ms, ids have no order
    for finished in (False, True):
        listed: list[str] = []
        while page := await stream.transactions(
            finished=finished, after=listed[-1] if listed else None, limit=3
        ):
            assert len(page) <= 3
            listed += [each.id for each in page]
        assert listed == (begun[::-1] if finished else begun)
        for each in begun:
            await stream.transaction_of(each).commit()


async def test_a_walk_finds_exactly_the_streams_with_policies(ep: Eventproc) -> None:
    await ep.create_scope("c")
    scalings = [
        ScalingPolicy.fixed(1),
        ScalingPolicy.fixed(3),
        ScalingPolicy.partitions(2),
        ScalingPolicy.by_event_rate(10),
        ScalingPolicy.by_byte_rate(1_000, segments_max=4),
    ]
    retentions = [KEEP_ALL, RetentionPolicy(), RetentionPolicy(age_ms=60_000), RetentionPolicy(consumed=True)]
    configs = [StreamConfig(each, retention=kept) for each in scalings for kept in retentions]
    configs += [StreamConfig(offload=each) for each in (OffloadPolicy(), OffloadPolicy(size_bytes=1))]

    def insert(tx: Tx) -> list[str]:
        made = [insert_stream(tx, f"c/x{number:02}", config) for number, config in enumerate(configs)]
        return [each.name for each in made if has_policy(each)]

    expected = await ep.db.write(insert)
    assert len(expected) == 15
    for limit in (1, 2, 7, 100):
        found: list[str] = []
        last: str | None = ""
        while last is not None:
            names, last = await ep.db.read(partial(streams_with_policies, after=last, limit=limit))
            found += names
        assert found == expected
