"""Each test of this folder runs on both forms of the database unless it says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.testing import VirtualClock, check
from tests.support.stores import anyio_backend, form

__all__ = ["anyio_backend", "form"]


@pytest.fixture
async def ep(form: str, tmp_path: Path) -> AsyncIterator[Eventproc]:
    """An open system with a scope "s"."""
    path = tmp_path / "store"
    async with eventproc.open(path) if form == "file" else eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)
