"""Creating streams: exactly once, completely, and with the same result for a repeated request."""

from __future__ import annotations

import pytest

from eventproc.store.model.errors import (
    AlreadyExists,
    StreamReplaced,
    StreamSealed,
)
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.states import StreamState
from eventproc.workflows.requests import CreateStream, DeleteStream, SealStream, UpdateStream
from tests.workflows.support import Life, die_everywhere

TWO = StreamConfig(scaling=ScalingPolicy.fixed(2))
THREE = StreamConfig(scaling=ScalingPolicy.fixed(3))


@pytest.mark.acceptance(
    "B1",
    differs="the same creation is one of an equal configuration, not of an equal time; CREATING is never stored",
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_repeated_creation_is_one_and_a_different_one_is_refused(when: str) -> None:
    async def create(life: Life) -> None:
        assert (await life.perform(CreateStream("s/t", TWO))).error is None

    async def verify(life: Life) -> None:
        first = await life.record("s/t")
        assert (first.value.state, first.value.stream_id) == (StreamState.ACTIVE, 4)
        await create(life)
        assert await life.record("s/t") == first
        with pytest.raises(AlreadyExists) as caught:
            await life.ep.requests.submit(CreateStream("s/t", THREE))
        assert caught.value.differing == ("scaling.segments_min",)
        assert "the existing stream has 2:" in str(caught.value)
        assert "`eventproc stream update s/t --segments 3`" in str(caught.value)

    commits = await die_everywhere(when, create, verify=verify)
    assert commits >= 4, "submit, claim, step and a sweep are commits of their own"


@pytest.mark.acceptance(
    "B2",
    differs="creation is one transaction: at every stage the stream either exists completely or not at all",
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_stream_can_be_deleted_at_every_stage_of_its_creation(when: str) -> None:
    stages: set[tuple[bool, bool]] = set()

    async def create(life: Life) -> None:
        await life.perform(CreateStream("s/t", TWO))

    async def delete_twice(life: Life) -> None:
        now = await delete(life)
        await life.run()  # the next host finishes a creation that is still pending
        stages.add((now, await delete(life)))
        assert await life.ep.streams() == []

    async def delete(life: Life) -> bool:
        """Delete the stream. Return False if it does not exist at this stage, and the deletion is refused."""
        if not await life.ep.streams():
            with pytest.raises(StreamReplaced):
                await life.ep.requests.submit(DeleteStream("s/t", 4))
            return False
        stream_id = (await life.record("s/t")).value.stream_id
        await life.done(SealStream("s/t", stream_id))
        await life.done(DeleteStream("s/t", stream_id))
        await life.check()
        return True

    await die_everywhere(when, create, rerun=False, verify=delete_twice)
    never, pending, created = (False, False), (False, True), (True, False)
    assert stages == ({never, pending, created} if when == "before" else {pending, created})


@pytest.mark.acceptance(
    "A14", differs="numbers of segments begin at 0 again: the id of the stream tells the incarnations apart"
)
@pytest.mark.parametrize("count", [1, 3])
async def test_a_stream_made_again_shares_nothing_with_its_predecessor(life: Life, count: int) -> None:
    ids = []
    for _ in range(count):
        await life.done(CreateStream("s/t", TWO))
        stream = await life.ep.stream("s/t")
        ids.append(stream.stream_id)
        async with stream.writer() as writer:
            await writer.write(b"x" * 3000, key="a")
        await life.done(SealStream("s/t", stream.stream_id))
        with pytest.raises(StreamSealed):
            await life.ep.requests.submit(UpdateStream("s/t", stream.stream_id, THREE))
        await life.done(DeleteStream("s/t", stream.stream_id))
    await life.done(CreateStream("s/t", TWO))
    assert (await (await life.ep.stream("s/t")).describe()).events == 0
    assert len({*ids, (await life.record("s/t")).value.stream_id}) == count + 1
    await life.check()
