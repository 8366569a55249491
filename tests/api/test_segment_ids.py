"""Segment ids that callers get print as people read them, and are usable as the plain ints."""

from __future__ import annotations

import json
import pickle

import pytest

from eventproc import Eventproc, Stream
from tests.support.memory import ep as ep  # a fixture


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t")


async def test_the_ids_of_a_split_print_as_number_and_epoch(stream: Stream) -> None:
    left, right = await stream.split("0.0")
    assert [str(left), repr(left), f"{right}", f"{right:>5}"] == ["1.1", "1.1", "2.1", "  2.1"]
    assert [str(each.id) for each in await stream.segments()] == ["1.1", "2.1"]
    assert left == 1 << 32 | 1
    assert json.loads(json.dumps([left])) == [left]
    assert str(pickle.loads(pickle.dumps(left))) == "1.1"
    assert str(await stream.merge(left, right)) == "3.2"


async def test_the_positions_of_readers_print_their_segments(ep: Eventproc, stream: Stream) -> None:
    await stream.split(0)
    async with stream.writer() as writer:
        await writer.write(b"", key="k")
    async with stream.reader() as reader:
        async for event in reader.until(await stream.tail()):
            assert f"{event.segment}" in ("1.1", "2.1")
            assert reader.offsets[event.segment] >= event.offset
    async with stream.reader("tail") as reader:
        assert sorted(map(str, reader.offsets)) == ["1.1", "2.1"]
    group = await ep.create_group("g", ["s/t"], start="tail")
    async with group.reader("r") as reader_of_group:
        assert sorted(str(each.segment) for each in reader_of_group.owned) == ["1.1", "2.1"]
        assert sorted(map(str, reader_of_group.position["s/t"])) == ["1.1", "2.1"]
        assert {str(each.segment) for each in (await group.describe()).segments} == {"1.1", "2.1"}


@pytest.mark.usefixtures("commit_path")
async def test_the_segments_of_epochs_and_transactions_print_as_number_and_epoch(stream: Stream) -> None:
    await stream.split("0.0")
    epochs = await stream.epochs()
    assert [[str(each.id) for each in epoch.segments] for epoch in epochs] == [["0.0"], ["1.1", "2.1"]]
    async with stream.transaction() as txn:
        await txn.write(b"x", key="k")
    (appended,) = txn.appended
    assert str(appended.segment) in ("1.1", "2.1")
    (described,) = await stream.transactions(finished=True)
    assert described.appended == txn.appended
    assert str(described.appended[0].segment) == str(appended.segment)
