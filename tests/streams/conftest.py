"""A system in memory with a stream of two segments; every invariant is checked when the test is over."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.streams import Stream
from tests.support.memory import ep as ep  # a fixture


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
