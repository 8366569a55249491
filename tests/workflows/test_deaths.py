"""Every workflow killed before and after each of its commits, and run again: the end is as if nothing had died."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import pytest

from eventproc.store.model.ids import SegmentId, segment_id
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamState
from eventproc.store.requests import RequestStatus
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
from tests.workflows.support import Act, Life, die_everywhere, open_life, summary

STREAMS: Final = ("s/a", "s/b", "s/c")
FOUR: Final = StreamConfig(scaling=ScalingPolicy.fixed(4))

REQUESTS: Final[Mapping[str, AnyRequest]] = MappingProxyType(
    {
        "create": CreateStream("s/new", FOUR),
        "update": UpdateStream("s/a", 4, FOUR),
        "scale": ScaleStream(
            "s/a", 4, (SegmentId(0), SegmentId(1)), (KeyRange(0.0, 0.3), KeyRange(0.3, 1.0))
        ),
        "truncate": TruncateStream(
            "s/b", 5, {SegmentId(1): 3017, segment_id(2, 1): 9024, segment_id(3, 1): 0}
        ),
        "seal": SealStream("s/a", 4),
        "delete": DeleteStream("s/c", 6),
        "delete_scope": DeleteScope("s"),
    }
)


async def _prepare(life: Life) -> None:
    """Make three streams with events in several epochs; the second can be truncated, the third deleted."""
    for name in STREAMS:
        await life.done(CreateStream(name, StreamConfig(scaling=ScalingPolicy.fixed(2))))
        stream = await life.ep.stream(name)
        async with stream.writer() as writer:
            for key in ("a", "N14228"):  # one in each segment
                await writer.post(b"x" * 3000, key=key)
            await writer.flush()
            await writer.write(b"y", key="a")
    await life.done(ScaleStream("s/b", 5, (SegmentId(0),), (KeyRange(0.0, 0.25), KeyRange(0.25, 0.5))))
    async with (await life.ep.stream("s/b")).writer() as writer:
        for _ in range(3):
            await writer.write(b"x" * 3000, key="N14228")
    await life.done(SealStream("s/c", 6))
    await life.check()


def _asking(request: AnyRequest) -> Act:
    """Return a client that asks once, by one id, however often it has to ask."""
    ids: dict[int, str] = {}

    async def main(life: Life) -> None:
        request_id = ids.setdefault(id(life.db), life.new_id())
        ended = await life.perform(request, request_id=request_id)
        assert ended.status is RequestStatus.DONE, ended.error
        assert await life.ep.requests.get(ended.id) == ended

    return main


@pytest.mark.acceptance(
    "B6", differs="a scale is one transaction: no state of it is stored that has to be reset"
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_no_death_leaves_a_stream_in_the_middle_of_a_scale(when: str) -> None:
    async def verify(life: Life) -> None:
        found = (await life.record("s/a")).value
        assert (found.state, found.epoch) in {(StreamState.ACTIVE, 0), (StreamState.ACTIVE, 1)}
        await life.run()
        await life.check()

    await die_everywhere(when, _asking(REQUESTS["scale"]), prepare=_prepare, verify=verify, rerun=False)


@pytest.mark.acceptance("B15", differs="a request and its event are one transaction, so there is no index")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", REQUESTS)
async def test_a_workflow_ends_the_same_after_a_death_at_any_commit(kind: str, when: str) -> None:
    async with open_life() as life:
        await _prepare(life)
        await _asking(REQUESTS[kind])(life)
        expected = await life.db.read(summary)

    async def verify(life: Life) -> None:
        assert await life.db.read(summary) == expected

    commits = await die_everywhere(when, _asking(REQUESTS[kind]), prepare=_prepare, verify=verify)
    assert commits >= (8 if kind == "delete_scope" else 3)


@pytest.mark.acceptance(
    "B4", differs="the scale is part of the update's one transaction: there is no part of it"
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_update_that_died_anywhere_makes_exactly_one_epoch_more(when: str) -> None:
    async def update(life: Life) -> None:
        """Ask again after a death with a new id, like a client that does not know of the first request."""
        await life.perform(REQUESTS["update"])

    async def verify(life: Life) -> None:
        record = (await life.record("s/a")).value
        assert (record.epoch, record.config) == (1, FOUR)
        assert len(await (await life.ep.stream("s/a")).segments()) == 4

    await die_everywhere(when, update, prepare=_prepare, verify=verify)
