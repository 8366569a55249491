"""A directory that is open without `await`, and in it the stream shop/orders, of two segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import eventproc
from eventproc.blocking import BlockingEventproc, BlockingStream


@pytest.fixture
def ep(tmp_path: Path) -> Iterator[BlockingEventproc]:
    with eventproc.open_blocking(tmp_path / "data", durability="os") as found:
        yield found


@pytest.fixture
def stream(ep: BlockingEventproc) -> BlockingStream:
    ep.create_scope("shop")
    return ep.create_stream("shop/orders", scaling=eventproc.ScalingPolicy.fixed(2))
