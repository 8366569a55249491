"""SQL of users on a server: the rights that it runs with, and what it cannot change."""

from __future__ import annotations

import pytest

import eventproc
from eventproc import errors

pytestmark = pytest.mark.subprocess


@pytest.mark.parametrize("value", ["a\0b", object()])
async def test_parameter_that_cannot_be_sent_is_an_argument_error(url: str, value: str) -> None:
    async with eventproc.open(url, host=False) as ep:
        with pytest.raises(errors.InvalidArgument, match="SELECT"):
            await ep.query("SELECT ?::text", (value,))
