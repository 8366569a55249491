"""Requests that are refused immediately, and inputs that are accepted in several forms."""

from __future__ import annotations

from functools import partial

import pytest

import eventproc
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import IllegalTransition, InvalidCut
from eventproc.store.model.ids import SegmentId
from eventproc.workflows import scopes
from eventproc.workflows.requests import DeleteScope

ONE = SegmentId(0)


async def test_a_segment_named_twice_is_sealed_once() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
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
            await ep.create_reader_group("g", ["s/t"])
        assert [scope.state.value for scope in await ep.scopes()] == ["deleting"]


async def test_a_truncation_at_a_cut_of_another_stream_is_refused() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/a")
        foreign = StreamCut("s/b", stream.stream_id, {ONE: 0})
        with pytest.raises(InvalidCut, match="it is a cut of s/b"):
            await stream.truncate(foreign)
