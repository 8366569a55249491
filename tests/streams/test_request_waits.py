"""Asking for a workflow: how long a caller waits for what."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventproc
from eventproc.base.clock import SystemClock
from eventproc.runtime import Eventproc
from eventproc.store.database import Database
from eventproc.store.database.locks import WriteLock
from eventproc.store.model.errors import LockHeld, StreamSealed
from eventproc.store.requests import Request
from eventproc.streams import request_calls
from eventproc.streams.request_calls import run_request
from eventproc.testing import VirtualClock, run_seeded
from eventproc.workflows.requests import Operation, SealStream
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture


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


async def test_the_log_and_the_error_name_the_request(
    ep: Eventproc, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "eventproc.requests")
    stream = await ep.create_stream("s/t")
    await stream.seal()
    (sealed, _) = await ep.requests.list()
    assert f"request {sealed.id}, seal of s/t: done" in caplog.messages
    with pytest.raises(StreamSealed) as caught:
        await stream.update(tags=["a"])
    (note,) = caught.value.__notes__
    assert note.endswith("update of s/t")
    assert any(each.startswith(f"{note}: StreamSealed") for each in caplog.messages)


def test_both_steps_of_the_deletion_of_a_topic_share_one_deadline() -> None:
    async def run() -> None:
        clock = VirtualClock()
        async with eventproc.open_memory(clock=clock) as ep:
            await ep.create_scope("s")
            topic = await ep.create_topic("s/t", partitions=1)
            waits = list[int]()

            async def wait_for(
                db: Database, asked: Operation, *, request_id: str | None, timeout_ms: int
            ) -> Request:
                waits.append(timeout_ms)
                clock.advance(300)
                return await run_request(db, asked, request_id=request_id)

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr("eventproc.topics.operations.run_request", wait_for)
                await topic.delete(timeout_ms=1_000)
            assert waits == [1_000, 700]

    run_seeded(run, seed=0)
