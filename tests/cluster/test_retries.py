"""A request whose step cannot run now: the host goes on trying, and says which request it is."""

from __future__ import annotations

import logging

import pytest

import eventproc
from eventproc.cluster import request_handler
from eventproc.store.database import Tx
from eventproc.store.model.errors import DiskFull
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef
from eventproc.workflows.request_runner import step
from eventproc.workflows.requests import SealStream
from tests.support.virtual_time import anyio_backend as anyio_backend


async def test_retried_step_logs_its_request_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full: list[DiskFull] = []

    def step_on_a_full_disk(tx: Tx, request_id: str, event: EventRef, owner: Owner) -> bool:
        if len(full) < 3:
            full.append(DiskFull(path="data"))
            raise full[-1]
        return step(tx, request_id, event, owner)

    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        monkeypatch.setattr(request_handler, "step", step_on_a_full_disk)
        with caplog.at_level(logging.WARNING, "eventproc.host"):
            asked = await ep.requests.submit(SealStream("s/t", stream.stream_id))
            assert (await ep.requests.wait(asked.id)).error is None
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 2  # the first retry is immediate
    for line in logged:
        assert line.startswith(f"request {asked.id} cannot continue and will be retried in ")
        assert line.endswith(f" s: {full[0]}")
