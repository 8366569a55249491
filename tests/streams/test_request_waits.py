"""Asking for a workflow: how long a caller waits for what."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventproc
from eventproc.store.clock import SystemClock
from eventproc.store.database.locks import WriteLock
from eventproc.store.model.errors import LockHeld
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.streams import request_calls
from eventproc.workflows.requests import CreateStream, ScaleStream, SealStream


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_request_that_cannot_be_recorded_in_time_is_refused_and_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        before = await ep.requests.list()
        other = WriteLock(tmp_path / "write.lock", SystemClock())
        other.acquire()
        with monkeypatch.context() as patched:
            patched.setattr(request_calls, "SUBMIT_MS_MIN", 1)
            with pytest.raises(LockHeld):
                await ep.requests.submit(SealStream("s/t", stream.stream_id), timeout_ms=20)
            with pytest.raises(LockHeld):
                await stream.seal(timeout_ms=20)
        other.close()
        assert await ep.requests.list() == before
        # A request is recorded although its caller does not wait for the outcome.
        asked = await ep.requests.submit(SealStream("s/t", stream.stream_id), timeout_ms=0)
        assert (await ep.requests.wait(asked.id)).error is None


async def test_caller_of_the_hosts_process_gets_the_result_of_its_request_without_a_read(
    tmp_path: Path,
) -> None:
    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        created = await request_calls.run_request(ep.db, CreateStream("s/t", StreamConfig()))
        stream = await ep.stream("s/t")
        assert created.result == stream.stream_id
        ranges = KeyRange(0.0, 1.0).split(2)
        scaled = await request_calls.run_request(
            ep.db, ScaleStream("s/t", stream.stream_id, (SegmentId(0),), ranges)
        )
        assert scaled.result == (await stream.epochs())[-1]
