"""The host dies, sleeps, or holds everyone up: the others go on, and nothing is done twice."""

from __future__ import annotations

import pytest

import eventproc
from eventproc.store import faults
from eventproc.store.clock import SystemClock
from eventproc.store.database.locks import WriteLock
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.requests import RequestStatus
from eventproc.testing import check
from eventproc.testing.checkers import settle_requests
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteScope,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from tests.support.child_process import ChildProcess
from tests.system.protocol import STREAM
from tests.system.support import (
    WorkerProcesses,
    hear,
    state_of,
    wait_dead,
    wait_until,
    waits_for_flock,
)

TAKEOVER_MS_MAX = 10_000
STREAMS = 10
CREATED = 9
DOOMED = 30
"""Streams of a scope that goes: more steps than a host makes in its life here, so that it always leaves some."""


async def requests_for_fifty(ep: eventproc.Eventproc) -> list[AnyRequest]:
    """Return 50 requests of every kind; those of one stream must be run in the order of the list."""
    await ep.create_scope("made")
    await ep.create_scope("kept")
    await ep.create_scope("doomed")
    asked: list[AnyRequest] = [DeleteScope("doomed")]
    config = StreamConfig(scaling=eventproc.ScalingPolicy.fixed(3))
    for number in range(DOOMED):
        await ep.create_stream(f"doomed/{number}")
    asked.extend(CreateStream(f"made/{number}", config) for number in range(CREATED))
    for number in range(STREAMS):
        stream = await ep.create_stream(f"kept/{number}")
        async with stream.writer() as writer:
            await writer.write(b"before")
        tail = await stream.tail()
        (segment,) = await stream.segments()
        halves = KeyRange(0, 1).split(2)
        asked.append(ScaleStream(stream.name, stream.stream_id, (segment.id,), halves))
        asked.append(UpdateStream(stream.name, stream.stream_id, config))
        asked.append(TruncateStream(stream.name, stream.stream_id, dict(tail.offsets)))
        asked.append(SealStream(stream.name, stream.stream_id))
    assert len(asked) == 50
    return asked


@pytest.mark.parametrize(
    ("point", "count"),
    [
        (faults.WRITE_BEGUN, 3),
        (faults.WRITE_COMMITTED, 5),
        (faults.WRITE_COMMIT, 6),
        (faults.WRITE_COMMITTED, 7),
        (faults.WRITE_BEGUN, 9),
    ],
)
def test_another_process_finishes_fifty_requests_of_a_killed_host_each_once(
    processes: WorkerProcesses, point: str, count: int
) -> None:
    processes.found()
    asked = processes.call(requests_for_fifty)

    async def submit(ep: eventproc.Eventproc) -> list[str]:
        return [(await ep.requests.submit(request)).id for request in asked]

    async def pending(ep: eventproc.Eventproc) -> int:
        found = [await ep.requests.get(identifier) for identifier in ids]
        return sum(request.status is RequestStatus.PENDING for request in found)

    async def finished(ep: eventproc.Eventproc) -> list[int | None]:
        await settle_requests(ep)
        await check(ep.db)
        found = [await ep.requests.get(identifier) for identifier in ids]
        assert all(request.status is RequestStatus.DONE for request in found), found
        for number in range(STREAMS):
            # One epoch for the scale, one for the update that followed it: each opened once.
            assert (await (await ep.stream(f"kept/{number}")).describe()).epoch == 2
            assert (await (await ep.stream(f"kept/{number}")).describe()).events == 0
        assert {scope.name for scope in await ep.scopes()} >= {"made", "kept"}
        assert "doomed" not in {scope.name for scope in await ep.scopes()}
        assert len(await ep.streams("made")) == CREATED
        return [request.finished_ms for request in found]

    ids = processes.call(submit, host=False)
    assert processes.call(pending, host=False) == len(asked)
    with processes.start("serve", "kill", point, count, ready="") as host:
        wait_dead(host)
    assert processes.call(pending, host=False) > 0, "it was to die in the middle"
    with processes.start("serve") as heir:
        times = processes.call(finished, host=False)
        assert heir.finish() == 0
    assert processes.call(finished) == times, "something was done again"


def stop_with_a_step_in_hand(processes: WorkerProcesses, host: ChildProcess, guest: ChildProcess) -> str:
    """Stop the host when it waits for write.lock with a step of a request; return the request's id."""
    path = processes.directory / "write.lock"
    for attempt in range(50):
        scope = f"doomed-{attempt}"
        assert guest.ask(f"streams {scope} 30") == "made"
        request_id = guest.ask(f"delete {scope}")
        lock = WriteLock(path, SystemClock())
        lock.acquire()
        try:
            guest.say(f"wait {request_id} 0")
            if hear(guest, "").startswith("StillPending"):
                wait_until(lambda: waits_for_flock(host.pid, path), "in need of write.lock")
                host.stop()
                return request_id
        finally:
            lock.release()
            lock.close()
    raise AssertionError("the host is too fast for this test")


def test_the_others_go_on_when_the_host_sleeps_and_it_wakes_up_fenced(processes: WorkerProcesses) -> None:
    processes.found()
    with processes.start("serve") as sleeper:
        assert sleeper.ask(f"split {STREAM} 60000") == "epoch 1"
        assert sleeper.ask("hosting") == "yes"
        with processes.start("serve") as other:
            assert other.ask("hosting") == "no"
            request_id = stop_with_a_step_in_hand(processes, sleeper, other)
            assert other.ask(f"write {STREAM} meanwhile") == "written"
            assert other.ask(f"split {STREAM} {TAKEOVER_MS_MAX}").startswith("log ")
            assert hear(other, "epoch") == "epoch 2"
            assert other.ask("hosting") == "yes"
            other.say(f"wait {request_id} {TAKEOVER_MS_MAX}")
            outcome = hear(other, "done")
            sleeper.resume()
            hear(sleeper, "log eventproc.host no longer the host")
            sleeper.say(f"wait {request_id} 0")
            assert hear(sleeper, "done") == outcome, "the sleeper changed something"
            sleeper.say(f"split {STREAM} 60000")
            assert hear(sleeper, "epoch") == "epoch 3"
            other.say(f"split {STREAM} 60000")
            assert hear(other, "epoch") == "epoch 4"
            other.say(f"count {STREAM}")
            assert hear(other, "1") == "1"
            assert sleeper.finish() == 0
            assert other.finish() == 0
    processes.call(lambda ep: check(ep.db))


def test_who_sleeps_inside_write_lock_is_named_by_the_others(processes: WorkerProcesses) -> None:
    processes.found()
    with (
        processes.start("serve") as other,
        processes.start("guest", "stop", faults.WRITE_BEGUN, 2) as sleeper,
    ):
        assert sleeper.ask(f"write {STREAM} first") == "written"
        sleeper.say(f"write {STREAM} second")
        wait_until(lambda: state_of(sleeper) == "T", "stopped")
        assert other.ask("holder 200") == f"held {sleeper.pid}"
        other.say(f"write {STREAM} third")
        assert f"process {sleeper.pid}" in hear(other, "log eventproc.store.database.writer")
        sleeper.resume()
        assert hear(other, "written") == "written"
        assert hear(sleeper, "written") == "written"
        assert other.ask(f"count {STREAM}") == "3"
        assert sleeper.finish() == 0
        assert other.finish() == 0
    processes.call(lambda ep: check(ep.db))
