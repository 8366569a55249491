"""Update, scale, truncate, seal: what they do, what they refuse, and that a refusal changes nothing."""

from __future__ import annotations

from functools import partial

import pytest

import eventproc
from eventproc import RetentionPolicy
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import (
    IllegalTransition,
    InvalidArgument,
    InvalidCut,
    NotFound,
    ScaleRefused,
    StreamNotSealed,
    StreamReplaced,
    StreamSealed,
)
from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamState
from eventproc.store.requests import RequestStatus
from eventproc.store.segments import segment_states
from eventproc.streams import Stream
from eventproc.workflows import scopes
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteScope,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from tests.support.memory import ep as ep  # a fixture
from tests.workflows.support import Life


def _config(count: int) -> StreamConfig:
    return StreamConfig(scaling=ScalingPolicy.fixed(count))


async def _stream(life: Life, count: int = 2) -> Stream:
    await life.done(CreateStream("s/t", _config(count)))
    return await life.ep.stream("s/t")


def _scale(stream: Stream, seal: list[int], ranges: list[tuple[float, float]]) -> ScaleStream:
    new = tuple(KeyRange(low, high) for low, high in ranges)
    return ScaleStream(stream.name, stream.stream_id, tuple(map(SegmentId, seal)), new)


async def _refused(life: Life, request: AnyRequest, error: type[Exception], match: str | None = None) -> None:
    """Assert that a request is refused at the door, and that nothing is different after that."""
    before, requests = await life.record("s/t"), await life.ep.requests.list()
    with pytest.raises(error, match=match):
        await life.ep.requests.submit(request)
    assert (await life.record("s/t"), await life.ep.requests.list()) == (before, requests)
    await life.check()


@pytest.mark.acceptance("B3")
async def test_sealed_stream_refuses_changes_and_keeps_no_unfinished_one(life: Life) -> None:
    stream = await _stream(life)
    early = await life.ep.requests.submit(UpdateStream("s/t", stream.stream_id, _config(3)))
    sealing = await life.ep.requests.submit(SealStream("s/t", stream.stream_id))
    await life.run()
    assert (await life.ep.requests.get(sealing.id)).status is RequestStatus.DONE
    updated = await life.ep.requests.get(early.id)
    assert (updated.status, updated.error) == (RequestStatus.DONE, None), "requests run in their order"
    sealed = (await life.record("s/t")).value
    assert (sealed.state, sealed.config, sealed.epoch) == (StreamState.SEALED, _config(3), 1)
    for request in (
        UpdateStream("s/t", stream.stream_id, _config(5)),
        TruncateStream("s/t", stream.stream_id, dict((await stream.tail()).offsets)),
        _scale(stream, [0], [(0.0, 0.5)]),
    ):
        await _refused(life, request, StreamSealed)
    assert (await life.record("s/t")).value == sealed


async def test_sealed_while_it_waited_a_request_is_refused_when_it_runs(life: Life) -> None:
    """All are pending; they run in the order of their submission, and the refused ones change nothing."""
    stream = await _stream(life)
    submitted = [
        await life.ep.requests.submit(request)
        for request in (
            SealStream("s/t", stream.stream_id),
            UpdateStream("s/t", stream.stream_id, _config(4)),
            _scale(stream, [0, 1], [(0.0, 0.5), (0.5, 1.0)]),
        )
    ]
    await life.run()
    sealed, update, scale = [await life.ep.requests.get(request.id) for request in submitted]
    assert sealed.error is None
    assert isinstance(update.error, StreamSealed), (
        "requests of one stream run in the order of their submission"
    )
    assert isinstance(scale.error, StreamSealed)
    assert (await life.record("s/t")).value.epoch == 0


async def test_update_changes_the_number_of_segments_once(
    life: Life,
) -> None:
    stream = await _stream(life)
    await life.done(UpdateStream("s/t", stream.stream_id, _config(4)))
    assert [segment.id for segment in await stream.segments()] == [
        segment_id(2 + each, 1) for each in range(4)
    ]
    before = await life.record("s/t")
    ended = await life.ep.requests.submit(UpdateStream("s/t", stream.stream_id, _config(4)))
    assert ended.status is RequestStatus.DONE
    assert await life.record("s/t") == before
    await life.done(UpdateStream("s/t", stream.stream_id, _config(1)))
    assert [(segment.low, segment.high) for segment in await stream.segments()] == [(0.0, 1.0)]


async def test_update_to_the_present_count_changes_only_the_configuration(life: Life) -> None:
    stream = await _stream(life, 2)
    await life.done(_scale(stream, [0], [(0.0, 0.25), (0.25, 0.5)]))
    await life.done(UpdateStream("s/t", stream.stream_id, _config(3)))
    record = (await life.record("s/t")).value
    assert (record.epoch, record.config) == (1, _config(3))


@pytest.mark.acceptance("B8", differs="any epoch counts, and so do scales of a person")
async def test_a_scale_overtaken_by_another_is_refused_when_it_runs(life: Life) -> None:
    stream = await _stream(life, 2)
    await life.ep.requests.submit(UpdateStream("s/t", stream.stream_id, _config(3)))
    late = await life.ep.requests.submit(_scale(stream, [0], [(0.0, 0.25), (0.25, 0.5)]))
    await life.run()
    assert isinstance((await life.ep.requests.get(late.id)).error, ScaleRefused)
    assert (await life.record("s/t")).value.epoch == 1
    await life.check()


@pytest.mark.acceptance(
    "A3", differs="a scale is one transaction: there is no state in which only some of its segments are known"
)
async def test_segments_of_a_scale_are_found_when_it_has_happened_and_not_before(life: Life) -> None:
    stream = await _stream(life, 2)
    parent, new = segment_id(0, 0), [segment_id(2, 1), segment_id(3, 1)]
    await life.ep.requests.submit(_scale(stream, [0], [(0.0, 0.25), (0.25, 0.5)]))
    assert [each.id for each in await stream.segments()] == [parent, segment_id(1, 0)]
    assert await stream.successors(parent) == {}
    for each in new:
        with pytest.raises(NotFound):
            await stream.segment(each)
    await life.run()
    assert [each.id for each in await stream.segments()] == [*new, segment_id(1, 0)]
    assert await stream.successors(parent) == dict.fromkeys(new, (parent,))
    assert (await stream.segment(parent)).sealed_epoch == 1


async def _write(stream: Stream, *keys: str) -> None:
    async with stream.writer() as writer:
        for key in keys:
            await writer.post(b"0123456789", key=key)


@pytest.mark.acceptance(
    "A5", differs="offsets are event boundaries, so the cuts are those after 1, 2, … events"
)
async def test_truncation_moves_the_head_over_epochs_and_never_back(life: Life) -> None:
    """Epochs 0:{0,1} 1:{0,2,3} 2:{0,2,4,5} 3:{0,4..7} 4:{4..9}, as in the reference."""
    stream = await _stream(life, 2)
    id_of = [SegmentId(0), SegmentId(1), *(segment_id(number, (number // 2)) for number in range(2, 10))]
    for sealed, low, middle, high in (
        (1, 0.5, 0.75, 1.0),
        (3, 0.75, 0.9, 1.0),
        (2, 0.5, 0.6, 0.75),
        (0, 0, 0.2, 0.5),
    ):
        await _write(stream, *map(str, range(100)))
        await life.done(_scale(stream, [id_of[sealed]], [(low, middle), (middle, high)]))
    await _write(stream, *map(str, range(100)))
    assert [segment.id for segment in await stream.segments()] == [id_of[n] for n in (8, 9, 6, 7, 4, 5)]
    frame = 18

    async def truncate(*offsets: tuple[int, int]) -> tuple[set[int], set[int]]:
        """Truncate at a cut; return the numbers of the segments that can be read, and of those that are stored."""
        cut = {id_of[number]: offset for number, offset in offsets}
        await life.done(TruncateStream("s/t", stream.stream_id, cut))
        assert dict((await stream.head()).offsets) == cut
        await life.check()
        states = await life.db.read(lambda tx: dict(segment_states(tx, stream.stream_id)))
        readable = {
            segment for segment, state in states.items() if not state.sealed or state.head < state.tail
        }
        return {id_of.index(each) for each in readable}, {id_of.index(each) for each in states}

    behind = TruncateStream("s/t", stream.stream_id, {id_of[0]: 0, id_of[1]: frame})
    assert await truncate((0, frame), (1, frame)) == (set(range(10)), set(range(10)))
    await _refused(life, behind, InvalidCut, "it lies before the head")
    stored = set(range(10)) - {1}  # 1 ended in epoch 0; epoch 1, with 0, 2 and 3, is kept behind the head
    assert await truncate((0, frame), (2, frame), (4, frame), (5, 0)) == ({0, 2, *range(4, 10)}, stored)
    await _refused(life, behind, InvalidCut)
    assert await truncate((2, frame), (4, frame), (5, 0), (8, 0), (9, frame)) == ({2, *range(4, 10)}, stored)
    assert (await life.record("s/t")).value.first_epoch >= 1, "history behind the head is dropped"
    async with stream.reader() as reader:
        assert set(reader.offsets) == {id_of[n] for n in (2, 4, 5, 8, 9)}
    await life.done(TruncateStream("s/t", stream.stream_id, dict((await stream.tail()).offsets)))
    assert (await stream.describe()).events == 0
    assert len(await stream.epochs()) <= 2
    await life.check()


async def test_only_a_sealed_stream_is_deleted_and_sealing_twice_is_fine(life: Life) -> None:
    stream = await _stream(life)
    await _refused(life, DeleteStream("s/t", stream.stream_id), StreamNotSealed)
    await life.done(SealStream("s/t", stream.stream_id))
    before = await life.record("s/t")
    assert (await life.ep.requests.submit(SealStream("s/t", stream.stream_id))).status is RequestStatus.DONE
    assert await life.record("s/t") == before
    await life.done(DeleteStream("s/t", stream.stream_id))
    with pytest.raises(NotFound):
        await life.ep.stream("s/t")
    with pytest.raises(StreamReplaced, match="was deleted"):
        await stream.describe()
    await life.check()


async def test_updates_of_different_fields_keep_each_other(ep: Eventproc) -> None:
    policy, scaling = RetentionPolicy(age_ms=60_000), ScalingPolicy.fixed(3)
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    await stream.update(retention=policy)
    await stream.update(scaling=scaling)
    await stream.update(tags=["a"])
    config = (await stream.describe()).config
    assert (config.scaling, config.retention, config.tags) == (scaling, policy, ("a",))


def limit(stream: Stream, field: str, policy: RetentionPolicy) -> UpdateStream:
    config = StreamConfig(retention=policy)
    return UpdateStream(
        stream.name, stream.stream_id, config, keep_segments=True, fields=(f"retention.{field}",)
    )


async def test_updates_of_different_limits_of_retention_keep_each_other(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", retention=RetentionPolicy(consumed=True))
    for request in (
        limit(stream, "age_ms", RetentionPolicy(age_ms=60_000)),
        limit(stream, "size_bytes", RetentionPolicy(size_bytes=900)),
    ):
        await ep.requests.wait((await ep.requests.submit(request)).id)
    assert (await stream.describe()).config.retention == RetentionPolicy(60_000, 900, consumed=True)


async def test_a_limit_that_contradicts_another_update_is_refused(ep: Eventproc) -> None:
    policy = RetentionPolicy(60_000, consumed=True)
    stream = await ep.create_stream("s/t", retention=policy)
    with pytest.raises(InvalidArgument, match="smallest retention age"):
        await ep.requests.submit(
            limit(stream, "age_ms_min", RetentionPolicy(consumed=True, age_ms_min=70_000))
        )
    assert (await stream.describe()).config.retention == policy
    with pytest.raises(InvalidArgument, match="it must be one of"):
        limit(stream, "years", policy)


async def test_a_segment_named_twice_is_sealed_once(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/a")
    await stream.scale(seal=[0, 0], ranges=[(0, 0.5), (0.5, 1)])
    assert [len(epoch.segments) for epoch in await stream.epochs()] == [1, 2]


async def test_a_scope_that_is_being_deleted_is_neither_made_nor_removed_beside_that() -> None:
    async with eventproc.open_memory(host=False) as ep:
        await ep.create_scope("s")
        first_step = partial(scopes.apply, request=DeleteScope("s"), request_id="any")
        assert not await ep.db.write(first_step)
        with pytest.raises(IllegalTransition, match="scope s: create is not possible in state deleting"):
            await ep.create_scope("s")
        with pytest.raises(IllegalTransition, match="scope s: delete is not possible in state deleting"):
            await ep.delete_scope("s")
        with pytest.raises(
            IllegalTransition, match="scope s: create a group is not possible in state deleting"
        ):
            await ep.create_group("g", ["s/t"])
        assert [scope.state.value for scope in await ep.scopes()] == ["deleting"]
