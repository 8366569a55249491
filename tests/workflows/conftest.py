"""Workflows run on the memory form, on asyncio and trio: what they do is one code over either form."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from eventproc.cluster import internal
from tests.workflows.lives import Life, open_life


@pytest.fixture
async def life() -> AsyncIterator[Life]:
    async with open_life() as life:
        yield life


@pytest.fixture
def few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each of the host's processors begin with a few workers: of many short lives, starting them is the half."""
    few = tuple(attrs.evolve(each, concurrency=min(each.concurrency, 4)) for each in internal.INTERNAL)
    monkeypatch.setattr(internal, "INTERNAL", few)
