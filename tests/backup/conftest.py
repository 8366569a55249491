"""Directories to back up, with streams in the database and, where asked for, in files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eventproc
from eventproc.runtime import Eventproc
from tests.backup.support import fill
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def ep(data: Path) -> AsyncIterator[Eventproc]:
    """An open directory with the stream s/x: 40 events, half of them in files."""
    async with eventproc.open(data, durability="os") as ep:
        await fill(ep)
        yield ep
