"""A real process that owns everything is killed or suspended, or its event loop hangs: another one takes over."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.base.clock import new_id
from eventproc.cluster import buckets, owner_watch, run_tasks
from eventproc.cluster.buckets import bucket_owners
from eventproc.cluster.divisions import POLL_MS
from eventproc.cluster.host import CONTROLLER
from eventproc.cluster.owner_watch import BEAT_MS
from eventproc.cluster.segment_containers import CONTAINER_COUNT, CONTAINERS, serving_containers
from eventproc.cluster.task_runner import TaskContext
from eventproc.store.database import Tx
from eventproc.store.model.buckets import BUCKET_COUNT
from eventproc.store.ownership import find_owner
from eventproc.store.task_queue import TaskInfo, TaskStatus, submit_task
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.child_process import PATIENCE_S, ChildProcess

pytestmark = pytest.mark.subprocess

OWNER_OF_ALL = """
    import sys
    from functools import partial
    import anyio
    import eventproc
    from eventproc.cluster import buckets, run_tasks
    from eventproc.cluster.buckets import OWNED_BUCKETS
    from eventproc.cluster.host import CONTROLLER
    from eventproc.cluster.segment_containers import CONTAINER_COUNT, serving_containers
    from eventproc.store.model.errors import OwnerFenced
    from eventproc.store.ownership import find_owner

    buckets.JOIN_MS = 0
    steps = []

    async def hang(ctx):
        await ctx.write(lambda tx: None)
        steps.append(lambda: ctx.write(lambda tx: None))
        print("running", flush=True)
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    async def is_refused(step):
        try:
            await step()
        except OwnerFenced:
            return True
        return False

    async def main():
        async with (
            eventproc.open(sys.argv[1]) as ep,
            serving_containers(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 1)) as containers,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(run_tasks, ep.db, {"count": hang})
            how = await anyio.to_thread.run_sync(sys.stdin.readline)
            host = await ep.db.read(partial(find_owner, name=CONTROLLER))
            owned = [containers.own(each) for each in range(CONTAINER_COUNT)]
            owners = [host, *owned, *ep.db.shared[OWNED_BUCKETS].owned.values()]
            steps.extend(partial(ep.db.write, each.check) for each in owners)
            print(len(steps), flush=True)
            if how == "hang\\n":
                sys.stdin.readline()  # on the event loop
            else:
                await anyio.to_thread.run_sync(sys.stdin.readline)
            print(sum([await is_refused(each) for each in steps]), flush=True)
            await anyio.sleep_forever()

    anyio.run(main)
"""

EVERYTHING = 1 + 1 + CONTAINER_COUNT + BUCKET_COUNT
"""The task, the host, the containers and the buckets."""


def owners_of_all(tx: Tx) -> set[str]:
    """Return the instances that own anything."""
    host = find_owner(tx, CONTROLLER)
    found = [host, *CONTAINERS.read(tx).owners]
    return {each.instance for each in found if each is not None} | {
        each for each in bucket_owners(tx) if each
    }


@pytest.mark.parametrize("how", ["stop", "hang", "kill"])
async def test_a_killed_suspended_or_hung_process_loses_what_it_owns_and_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def finish(ctx: TaskContext) -> Mapping[str, str | int]:
        return {"by": "the survivor"}

    monkeypatch.setattr(buckets, "JOIN_MS", 0)
    monkeypatch.setattr(owner_watch, "SILENT_MS", 3 * BEAT_MS)
    address = ("127.0.0.1", 2)
    async with eventproc.open(tmp_path / "data", host=False) as looking:
        with ChildProcess.running(OWNER_OF_ALL, tmp_path / "data") as child:
            task = partial(submit_task, task_id=new_id(looking.db.clock), kind="count", resource="x")
            made: TaskInfo = await looking.db.write(partial(task, arguments={}))
            assert await anyio.to_thread.run_sync(child.hear) == "running"
            child.say(how)
            assert await anyio.to_thread.run_sync(child.hear) == str(EVERYTHING)
            if how == "stop":
                child.stop_outside(tmp_path / "data" / "write.lock")
            elif how == "kill":
                child.kill()
            async with (
                eventproc.open(tmp_path / "data") as ep,
                serving_containers(ep.db, address, address),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(run_tasks, ep.db, {"count": finish})
                with anyio.fail_after(PATIENCE_S), ep.db.subscribe() as changes:
                    while await ep.db.read(owners_of_all) != {ep.db.instance_id}:
                        await changes.wait(POLL_MS)
                ended = await ep.tasks.wait(made.id, timeout_ms=PATIENCE_S * 1000)
                assert (ended.status, ended.result) == (TaskStatus.DONE, {"by": "the survivor"})
                if how == "stop":
                    child.resume()
                if how != "kill":
                    child.say("continue")
                    assert await anyio.to_thread.run_sync(child.hear) == str(EVERYTHING), "each is refused"
                tasks.cancel_scope.cancel()
