"""Workflows run on the memory form, on asyncio and trio: what they do is one code over either form."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.workflows.support import Life, open_life


@pytest.fixture
async def life() -> AsyncIterator[Life]:
    async with open_life() as life:
        yield life
