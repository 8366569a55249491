"""A real process dies while it runs a task: another one takes its buckets and the task, and brings it to its end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.cluster import run_tasks
from eventproc.cluster.buckets import OWNED_BUCKETS
from eventproc.cluster.task_runner import TaskContext
from eventproc.describe import InstanceRemoved
from eventproc.store.clock import new_id
from eventproc.store.model.buckets import BUCKET_COUNT
from eventproc.store.task_queue import TaskInfo, TaskStatus, submit_task
from tests.support.child_process import PATIENCE_S, ChildProcess

pytestmark = pytest.mark.subprocess

CHILD = """
    import sys
    import anyio
    import eventproc
    from eventproc.cluster import buckets, run_tasks

    buckets.JOIN_MS = 0

    async def hang(ctx):
        ctx.progress(1, 2)
        await ctx.write(lambda tx: None)
        print("running", flush=True)
        await anyio.sleep_forever()

    async def main():
        async with eventproc.open(sys.argv[1]) as ep:
            print(ep.db.instance_id, flush=True)
            await run_tasks(ep.db, {"count": hang})

    anyio.run(main)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_killed_process_gives_its_task_to_another(tmp_path: Path) -> None:
    async def finish(ctx: TaskContext) -> Mapping[str, str | int]:
        assert (ctx.task.attempt, ctx.done) == (2, 1), "it continues at the durable progress"
        ctx.progress(2, 2)
        return {"by": "the survivor"}

    async with eventproc.open(tmp_path / "data", host=False) as looking:
        with ChildProcess.running(CHILD, tmp_path / "data") as child:
            first = child.hear()
            made: TaskInfo = await looking.db.write(
                partial(
                    submit_task, task_id=new_id(looking.db.clock), kind="count", resource="x", arguments={}
                )
            )
            assert await anyio.to_thread.run_sync(child.hear) == "running"
            assert (await looking.tasks.get(made.id)).instance == first
            changes = looking.cluster.changes()
            assert {(await anext(changes)).id for _ in range(2)} == {first, looking.db.instance_id}
            async with eventproc.open(tmp_path / "data") as ep, anyio.create_task_group() as tasks:
                tasks.start_soon(run_tasks, ep.db, {"count": finish})
                child.kill()
                ended = await ep.tasks.wait(made.id, timeout_ms=PATIENCE_S * 1000)
                assert (ended.status, ended.result) == (TaskStatus.DONE, {"by": "the survivor"})
                assert len(ep.db.shared[OWNED_BUCKETS].owned) == BUCKET_COUNT
                assert InstanceRemoved(first, None).id in [(await anext(changes)).id for _ in range(2)]
                tasks.cancel_scope.cancel()


async def test_a_backup_as_a_task_names_its_folder_and_does_not_replace_one(tmp_path: Path) -> None:
    dest = tmp_path / "monday"
    async with eventproc.open(tmp_path / "data") as ep:
        task = await ep.tasks.submit(eventproc.BackupTask(str(dest)))
        done = await ep.tasks.wait(task.id)
        assert (done.status, done.result["path"], done.done) == (TaskStatus.DONE, str(dest), done.total)
        again = await ep.tasks.submit(eventproc.BackupTask(str(dest)))
        failed = await ep.tasks.wait(again.id)
        assert failed.status is TaskStatus.FAILED
        assert failed.error is not None
        assert "AlreadyExists" in failed.error
