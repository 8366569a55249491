"""Calls that name their request: repeated, they change nothing and return what the first one returned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
import pytest

from eventproc import RetentionPolicy, ScalingPolicy, Stream, StreamCut
from eventproc.base.clock import id_time_ms, new_id, part_id
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import InvalidArgument, NotFound, StreamReplaced
from eventproc.store.model.metadata_errors import HistoryCompacted, StaleVersion
from eventproc.streams.operations import MergeNeighbours, SplitSegment
from eventproc.testing import VirtualClock
from eventproc.topics import Topic


@attrs.frozen
class StreamAndTopic:
    """What the calls are made on. The stream has two segments, the topic two partitions and some events."""

    ep: Eventproc
    stream: Stream
    topic: Topic
    tail: StreamCut


@pytest.fixture
async def made(ep: Eventproc) -> StreamAndTopic:
    stream = await ep.create_stream("s/t", tags=["old"])
    await stream.split("0.0")
    async with stream.writer() as writer:
        await writer.write_many([(b"event", None)] * 20)
    topic = await ep.create_topic("s/topic", partitions=2)
    async with topic.producer() as producer:
        for number in range(10):
            await producer.write(b"event", partition=number % 2)
    await ep.create_scope("gone")
    return StreamAndTopic(ep, stream, topic, await stream.tail())


Repeated = Callable[[StreamAndTopic, str], Awaitable[object]]

CALLS: Final[Mapping[str, Repeated]] = {
    "create": lambda on, x: on.ep.create_stream("s/new", request_id=x),
    "create topic": lambda on, x: on.ep.create_topic("s/new", partitions=3, request_id=x),
    "update": lambda on, x: on.stream.update(scaling=ScalingPolicy.fixed(3), tags=["new"], request_id=x),
    "scale": lambda on, x: on.stream.scale(seal=["1.1"], ranges=["0-0.1", "0.1-0.5"], request_id=x),
    "split": lambda on, x: on.stream.split("1.1", 3, request_id=x),
    "merge": lambda on, x: on.stream.merge("2.1", "1.1", request_id=x),
    "truncate": lambda on, x: on.stream.truncate(on.tail, request_id=x),
    "seal": lambda on, x: on.stream.seal(request_id=x),
    "add partitions": lambda on, x: on.topic.add_partitions(2, request_id=x),
    "alter": lambda on, x: on.topic.alter(partitions=4, ttl_ms=5000, request_id=x),
    "truncate topic": lambda on, x: on.topic.truncate(partition=1, before_number=3, request_id=x),
    "delete topic": lambda on, x: on.topic.delete(request_id=x),
    "delete scope": lambda on, x: on.ep.delete_scope("gone", recursive=True, request_id=x),
}


async def _state(on: StreamAndTopic) -> object:
    described = [await (await on.ep.stream(each.name)).describe() for each in await on.ep.streams()]
    return described, await on.ep.requests.list(), await on.ep.scopes()


@pytest.mark.parametrize("name", CALLS)
async def test_a_repeated_call_changes_nothing_and_returns_the_same(made: StreamAndTopic, name: str) -> None:
    request_id = made.ep.requests.new_id()
    first = await CALLS[name](made, request_id)
    before = await _state(made)
    again = await CALLS[name](made, request_id)
    assert repr(again) == repr(first)
    assert await _state(made) == before
    assert (await made.ep.requests.get(request_id)).error is None


async def test_a_call_is_repeated_after_others_have_changed_what_it_started_from(
    made: StreamAndTopic,
) -> None:
    version = (await made.stream.describe()).version
    request_id, update_id = made.ep.requests.new_id(), made.ep.requests.new_id()
    parts = await made.stream.split("1.1", if_version=version, request_id=request_id)
    await made.stream.update(tags=["a"], request_id=update_id)
    await made.stream.merge(*parts)
    await made.stream.update(retention=RetentionPolicy(age_ms=10**9))
    await made.stream.seal()
    assert await made.stream.split("1.1", if_version=version, request_id=request_id) == parts
    await made.stream.update(tags=["a"], request_id=update_id)
    with pytest.raises(StaleVersion):
        await made.stream.split("2.1", if_version=version, request_id=made.ep.requests.new_id())


async def test_a_repeated_scale_says_that_its_epoch_is_gone(made: StreamAndTopic) -> None:
    split, merge, add = (made.ep.requests.new_id() for _ in range(3))
    parts = await made.stream.split("1.1", request_id=split)
    await made.stream.merge(*parts, request_id=merge)
    await made.topic.add_partitions(1, request_id=add)
    for _ in range(3):
        await made.stream.split((await made.stream.segments())[0].id)
        await made.topic.add_partitions(1)
    await made.stream.truncate(await made.stream.tail())
    await made.topic.truncate(await made.topic.tail())
    with pytest.raises(HistoryCompacted, match=f"epoch of request {split} is older"):
        await made.stream.split("1.1", request_id=split)
    for repeated in (
        made.stream.merge(*parts, request_id=merge),
        made.topic.add_partitions(1, request_id=add),
    ):
        with pytest.raises(HistoryCompacted):
            await repeated
    await made.stream.seal()
    await made.stream.delete()
    await made.ep.create_stream("s/t")
    with pytest.raises(StreamReplaced):
        await made.stream.split("1.1", request_id=split)


async def test_a_deletion_is_repeated_although_the_stream_is_gone(made: StreamAndTopic) -> None:
    await made.stream.seal()
    request_id = made.ep.requests.new_id()
    await made.stream.delete(request_id=request_id)
    await made.ep.create_stream("s/t")
    await made.stream.delete(request_id=request_id)
    assert (await (await made.ep.stream("s/t")).describe()).state.value == "active"


async def test_a_call_whose_caller_died_after_it_was_recorded_is_joined(made: StreamAndTopic) -> None:
    request_id = made.ep.requests.new_id()
    asked = SplitSegment("s/t", made.stream.stream_id, "1.1")
    await made.ep.requests.submit(asked, request_id=request_id)
    assert len(await made.stream.split("1.1", request_id=request_id)) == 2
    assert (await made.stream.describe()).epoch == 2


@pytest.mark.parametrize(
    "other",
    [
        lambda on, x: on.stream.split("2.1", request_id=x),
        lambda on, x: on.stream.split("1.1", 3, request_id=x),
        lambda on, x: on.stream.split("1.1", if_version=1, request_id=x),
        lambda on, x: on.stream.merge("1.1", "2.1", request_id=x),
        lambda on, x: on.stream.update(tags=["a"], request_id=x),
        lambda on, x: on.stream.seal(request_id=x),
        lambda on, x: on.topic.add_partitions(1, request_id=x),
        lambda on, x: on.ep.create_stream("s/new", request_id=x),
        lambda on, x: on.ep.requests.submit(MergeNeighbours("s/t", 0, ("1.1", "2.1")), request_id=x),
    ],
)
async def test_an_id_names_one_call_only(made: StreamAndTopic, other: Repeated) -> None:
    request_id = made.ep.requests.new_id()
    await made.stream.split("1.1", request_id=request_id)
    before = await _state(made)
    with pytest.raises(InvalidArgument, match="belongs to a different request"):
        await other(made, request_id)
    assert await _state(made) == before


async def test_an_id_of_a_truncation_names_its_limit_too(made: StreamAndTopic) -> None:
    request_id = made.ep.requests.new_id()
    await made.topic.truncate(partition=1, before_number=3, request_id=request_id)
    with pytest.raises(InvalidArgument, match="belongs to a different request"):
        await made.topic.truncate(partition=0, before_number=3, request_id=request_id)
    assert [each.first for each in await made.topic.partitions()] == [0, 3]


async def test_a_text_that_is_no_id_is_refused_before_anything_changes(made: StreamAndTopic) -> None:
    before = await _state(made)
    for call in CALLS.values():
        for wrong in ("x", "", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"):
            with pytest.raises(InvalidArgument, match="version 7"):
                await call(made, wrong)
    assert await _state(made) == before


async def test_another_spelling_of_an_id_does_not_name_a_second_request(made: StreamAndTopic) -> None:
    request_id = made.ep.requests.new_id()
    await made.stream.split("1.1", request_id=request_id)
    before = await _state(made)
    for spelling in (
        request_id.upper(),
        request_id.replace("-", ""),
        f"{request_id[:14]}7 anything else here.",
    ):
        with pytest.raises(InvalidArgument, match="version 7 in lower case"):
            await made.stream.seal(request_id=spelling)
    assert await _state(made) == before


async def test_only_a_recursive_delete_of_a_scope_takes_an_id(ep: Eventproc) -> None:
    with pytest.raises(InvalidArgument, match="recursive=True"):
        await ep.delete_scope("s", request_id=ep.requests.new_id())
    with pytest.raises(NotFound):
        await ep.delete_scope("other", recursive=True, request_id=ep.requests.new_id())


def test_the_id_of_a_part_is_always_the_same_and_of_the_same_time() -> None:
    clock = VirtualClock()
    whole = new_id(clock)
    assert part_id(whole, "seal") == part_id(whole, "seal")
    assert len({whole, part_id(whole, "seal"), part_id(whole, "delete"), part_id(new_id(clock), "seal")}) == 4
    assert id_time_ms(part_id(whole, "seal")) == id_time_ms(whole)
