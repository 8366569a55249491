"""The endpoints run on asyncio, as directories do, and serve a system in memory."""

from __future__ import annotations

import pytest

from eventproc.runtime import Eventproc
from eventproc.streams import Stream
from tests.support.memory import ep as ep  # a fixture


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t")
