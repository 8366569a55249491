"""`if_version`: the version that `describe` shows makes a change conditional, in both APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

import pytest

from eventproc import RetentionPolicy, Stream
from eventproc.errors import StaleVersion
from eventproc.runtime import Eventproc

CHANGES: Final[Mapping[str, Callable[[Stream, int], Awaitable[object]]]] = MappingProxyType(
    {
        "update": lambda stream, version: stream.update(
            retention=RetentionPolicy(size_bytes=10_000_000), if_version=version
        ),
        "scale": lambda stream, version: stream.scale(
            seal=["0.0"], ranges=["0-0.1", "0.1-0.5"], if_version=version
        ),
        "split": lambda stream, version: stream.split("0.0", if_version=version),
        "merge": lambda stream, version: stream.merge("2.1", "3.1", if_version=version),
        "seal": lambda stream, version: stream.seal(if_version=version),
    }
)


@pytest.mark.parametrize("change", CHANGES)
async def test_change_needs_the_version_that_describe_shows(stream: Stream, change: str) -> None:
    await stream.split("1.0")
    before = await stream.describe()
    with pytest.raises(StaleVersion) as caught:
        await CHANGES[change](stream, before.version + 1)
    assert (caught.value.expected, caught.value.present) == (before.version + 1, before.version)
    assert await stream.describe() == before
    await CHANGES[change](stream, before.version)
    assert (await stream.describe()).version > before.version
    with pytest.raises(StaleVersion):  # also where the segments that it names are gone
        await CHANGES[change](stream, before.version)


async def test_truncation_and_deletion_need_the_version_too(stream: Stream) -> None:
    async with stream.writer() as writer:
        await writer.write(b"a", key="k")
    version = (await stream.describe()).version
    with pytest.raises(StaleVersion):
        await stream.truncate(await stream.tail(), if_version=version + 1)
    await stream.truncate(await stream.tail(), if_version=version)
    await stream.seal()
    with pytest.raises(StaleVersion, match=r"stream describe s/t"):
        await stream.delete(if_version=version)
    await stream.delete(if_version=(await stream.describe()).version)


async def test_events_make_no_version(stream: Stream) -> None:
    version = (await stream.describe()).version
    async with stream.writer() as writer:
        await writer.write(b"a", key="k")
    async with stream.transaction() as txn:
        await txn.write(b"b", key="k")
    assert (await stream.describe()).version == version


async def test_topic_changes_on_its_version_only(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    version = (await topic.describe()).version
    await topic.add_partitions(1, if_version=version)
    with pytest.raises(StaleVersion):
        await topic.add_partitions(1, if_version=version)
    with pytest.raises(StaleVersion):
        await topic.alter(partitions=4, if_version=version)
    with pytest.raises(StaleVersion):
        await topic.truncate(before_ms=0, if_version=version)
    with pytest.raises(StaleVersion):
        await topic.delete(if_version=version)
    await topic.delete(if_version=(await topic.describe()).version)
