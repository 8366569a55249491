"""A system in memory with three streams and a group of readers; every invariant is checked when a test is over."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.streams import Stream
from eventproc.topics import Group
from tests.support.memory import ep as ep  # a fixture


@pytest.fixture
async def source(ep: Eventproc) -> Stream:
    """A stream with the events 0 to 9, whose keys are their last digits."""
    source = await ep.create_stream("s/in")
    async with source.writer() as writer:
        await writer.write_many((b"%d" % number, str(number)) for number in range(10))
    return source


@pytest.fixture
async def group(ep: Eventproc, source: Stream) -> Group:
    return await ep.create_group("g", ["s/in"])


@pytest.fixture
async def targets(ep: Eventproc) -> list[Stream]:
    return [
        await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(2))
        for name in ("s/a", "s/b", "s/c")
    ]


@pytest.fixture(params=["direct", "by the host"])
def joint_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let small joint transactions take each of the two ways: committed directly, or decided and committed later."""
    if request.param == "by the host":
        monkeypatch.setattr("eventproc.streams.staging.commit_directly", lambda *_, **__: None)
    return str(request.param)
