"""A system in memory with a stream of two segments; every invariant is checked when the test is over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.transactions import TxnStart, create_txn
from eventproc.streams import Stream
from eventproc.testing import check


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))


@pytest.fixture(params=["direct", "by the host"])
def commit_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small transactions take each of the two ways: committed directly, or decided and committed by the host."""
    if request.param == "by the host":
        monkeypatch.setattr("eventproc.streams.staging.commit_directly", lambda *_, **__: None)
        monkeypatch.setattr("eventproc.streams.staging.abort_directly", _begin_first)


def _begin_first(tx: Tx, start: TxnStart, *, reason: str) -> None:
    create_txn(tx, start.stream, start.stream_id, start.id, instance=start.instance, lease_ms=start.lease_ms)
