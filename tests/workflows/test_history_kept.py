"""What a truncation keeps of a stream's history, and which readers can continue after it."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

import eventproc
from eventproc.cluster.host import CONTROLLER
from eventproc.store.catalog import StoredHistory
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import NotFound, Truncated
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.metadata_errors import HistoryCompacted
from eventproc.store.ownership import find_owner
from eventproc.streams.stream import Stream
from eventproc.testing import check
from eventproc.workflows.sweeps import free_due
from tests.support.memory import ep as ep  # a fixture


async def write(stream: Stream, *payloads: bytes) -> None:
    async with stream.writer() as writer:
        await writer.write_many((payload, payload.decode()) for payload in payloads)


async def truncate(ep: eventproc.Eventproc, stream: Stream, cut: StreamCut | None = None) -> None:
    """Truncate, at the tail unless at `cut`, and let the reaper finish."""
    await stream.truncate(cut or await stream.tail())
    owner = await ep.db.read(lambda tx: find_owner(tx, CONTROLLER))
    assert owner is not None
    while await ep.db.write(owner.fencing(free_due)):
        pass


async def split_last(stream: Stream) -> None:
    await stream.split((await stream.segments())[-1].id)


async def read(stream: Stream, cut: StreamCut) -> list[bytes]:
    async with stream.reader(cut) as reader:
        return [event.payload async for event in reader.until(await stream.tail())]


async def test_reader_at_the_end_of_a_truncated_segment_continues(ep: eventproc.Eventproc) -> None:
    stream = await ep.create_stream("s/a")
    await write(stream, b"1")
    async with stream.reader() as reader:
        batches = reader.batches()
        assert [event.payload for event in await anext(batches)] == [b"1"]
        saved = reader.cut()
        await split_last(stream)
        await truncate(ep, stream)
        await write(stream, b"2")
        with anyio.fail_after(10):
            assert [event.payload for event in await anext(batches)] == [b"2"]
        await batches.aclose()
    assert await read(stream, saved) == [b"2"]
    assert [epoch.number for epoch in await stream.epochs()] == [0, 1]
    await check(ep.db)


async def test_what_a_truncation_compacted_is_named_with_the_oldest_epoch_kept(
    ep: eventproc.Eventproc,
) -> None:
    stream = await ep.create_stream("s/a")
    for number in range(4):
        await write(stream, b"%d" % number)
        await split_last(stream)
    first_segment = (await stream.epoch(0)).segments[0].id
    await truncate(ep, stream)
    first = (await stream.epochs())[0].number
    assert first > 0
    for ask in (
        partial(stream.epoch, 0),
        partial(stream.segment, first_segment),
        partial(stream.successors, first_segment),
        partial(stream.predecessors, first_segment),
    ):
        with pytest.raises(HistoryCompacted) as caught:
            await ask()
        assert (caught.value.stream, caught.value.first_epoch) == ("s/a", first)
    with pytest.raises(NotFound) as never:
        await stream.epoch(99)
    assert not isinstance(never.value, HistoryCompacted)
    assert (await stream.epoch(first)).number == first
    await check(ep.db)


async def test_saved_cut_before_the_head_gets_the_next_readable_cut(
    ep: eventproc.Eventproc,
) -> None:
    stream = await ep.create_stream("s/a")
    saved = [await stream.tail()]
    for payload in (b"1", b"2", b"3"):
        await write(stream, payload)
        saved.append(await stream.tail())
        await split_last(stream)
    await truncate(ep, stream, saved[-1])
    await write(stream, b"4")
    for cut in saved[:-1]:
        with pytest.raises(Truncated) as gone:
            await read(stream, cut)
        assert await read(stream, StreamCut.parse(gone.value.head_cut, stream.name)) == [b"4"]
        assert gone.value.head_cut in str(gone.value)
    assert await read(stream, saved[-1]) == [b"4"]
    await check(ep.db)


async def test_truncated_reader_gets_an_error_before_and_after_the_reaper(
    ep: eventproc.Eventproc,
) -> None:
    for number, reaped in enumerate((False, True)):
        stream = await ep.create_stream(f"s/{number}")
        await write(stream, b"1")
        async with stream.reader() as reader:
            batches = reader.batches()
            await anext(batches)
            for _ in range(3):
                await split_last(stream)
            await stream.truncate(await stream.tail())
            if reaped:
                await truncate(ep, stream)
            with pytest.raises(Truncated, match="continue at the head"):
                await anext(batches)


async def test_a_truncation_along_an_epoch_looks_at_few_others(
    ep: eventproc.Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[int] = set()
    epoch = StoredHistory.epoch

    def asking(self: StoredHistory, number: int) -> Epoch:
        asked.add(number)
        return epoch(self, number)

    stream = await ep.create_stream("s/a", scaling=eventproc.ScalingPolicy.fixed(2))
    first = SegmentId(0)
    for round_ in range(30):
        await write(stream, b"%d" % round_)
        active = [segment.id for segment in await stream.segments() if segment.id != first]
        if len(active) > 1:
            await stream.merge(*active)
        else:
            await stream.split(active[0])
    monkeypatch.setattr(StoredHistory, "epoch", asking)
    await stream.truncate(await stream.tail())
    assert asked <= {0, 29, 30}
    assert (await stream.describe()).events == 0
