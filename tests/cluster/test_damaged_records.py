"""A record that cannot be decoded stops the work on its own object only, and the log names it."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from eventproc import RetentionPolicy
from eventproc.base.clock import new_id
from eventproc.cluster import run_tasks
from eventproc.cluster.failover import LOOK_MS
from eventproc.cluster.sweeper import SWEEP_MS
from eventproc.cluster.task_runner import TaskContext
from eventproc.store.database import Tx
from eventproc.store.model.policies import StreamConfig
from eventproc.store.requests import OUTCOME_MEMORY_MS
from eventproc.store.task_queue import TaskStatus, cancel_task, submit_task
from eventproc.testing import SimulatedWorld
from eventproc.workflows.policies.look import RETENTION_MS
from eventproc.workflows.requests import CreateStream
from tests.cluster.support import hold_for_ever, read_for_ever
from tests.support.simulated_world import in_simulated_world

NAMES = ("s/damaged", "s/healthy")


async def damage(world: SimulatedWorld, statement: str, *values: str) -> None:
    def change(tx: Tx) -> None:
        assert tx.execute(statement, values).rowcount == 1, "one row is damaged"

    await world.ep.db.write(change)


async def damage_record(world: SimulatedWorld, kind: str, key: str) -> None:
    await damage(world, "UPDATE record SET body = x'00' WHERE kind = ? AND key = ?", kind, key)


async def verify_host_works(world: SimulatedWorld, caplog: pytest.LogCaptureFixture, *names: str) -> None:
    """Let the host run a request. Verify that a line names the damaged object, and that the host did not fail."""
    with anyio.fail_after(60):
        await world.ep.create_scope(f"later-{new_id(world.ep.db.clock)}")
        await world.ep.create_stream("s/later")
    verify_log(caplog, *names)


def verify_log(caplog: pytest.LogCaptureFixture, *names: str) -> None:
    """Verify that a line names the damaged object, and that the host did not fail."""
    messages = [record.getMessage() for record in caplog.records]
    assert any(all(name in each for name in names) for each in messages), messages
    assert not any("the host failed" in each for each in messages), messages


@in_simulated_world
async def test_policies_of_other_streams_are_kept(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ep.create_scope("s")
    first = await world.start()
    streams = [await world.ep.create_stream(name, retention=RetentionPolicy(age_ms=1)) for name in NAMES]
    for name in NAMES:
        await world.write(name, b"old")
    first.kill()
    await damage_record(world, "stream", NAMES[0])
    await world.start()
    await anyio.sleep(2 * RETENTION_MS / 1000)
    assert (await streams[1].describe()).events == 0
    await verify_host_works(world, caplog, NAMES[0], "policies")


@in_simulated_world
async def test_bytes_of_other_streams_are_freed(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ep.create_scope("s")
    await world.start()
    damaged, healthy = [await world.ep.create_stream(name) for name in NAMES]
    await world.write(healthy.name, b"x" * 200_000)
    await damage_record(world, "stream", damaged.name)
    due = "INSERT INTO reap (stream_id, deleted, name, not_before_ms) VALUES (?, 0, ?, 0)"
    await damage(world, due, str(damaged.stream_id), damaged.name)
    await healthy.truncate(await healthy.tail())
    await anyio.sleep(10)
    assert await world.ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM blob").fetchone()) == (0,)
    await verify_host_works(world, caplog, f"the bytes of stream {damaged.name} cannot be freed")


@in_simulated_world
async def test_expired_transactions_of_other_streams_are_aborted(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ep.create_scope("s")
    await world.start()
    ids = []
    for name in NAMES:
        stream = await world.ep.create_stream(name)
        txn = await stream.begin(lease_ms=1_000)
        await txn.write(b"staged")
        await txn.flush()
        ids.append(txn.id)
    await damage(world, "UPDATE txn SET appended = '{' WHERE id = ?", ids[0])
    await anyio.sleep(10)
    healthy = await world.ep.stream(NAMES[1])
    assert [each.id for each in await healthy.transactions()] == []
    await verify_host_works(world, caplog, NAMES[0])


@pytest.mark.parametrize("kind", ["group", "share group"])
@in_simulated_world
async def test_what_dead_members_of_other_groups_held_is_free(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    is_share = kind == "share group"

    async def held() -> int:
        if is_share:
            return (await (await world.ep.share_group(NAMES[1])).describe()).in_flight
        return len((await (await world.ep.group(NAMES[1])).describe()).members)

    await world.ep.create_scope("s")
    await world.start()
    await world.ep.create_stream("s/t")
    await world.write("s/t", b"a")
    user = await world.start(host=False)
    for name in NAMES:
        await (world.ep.create_share_group if is_share else world.ep.create_group)(name, ["s/t"])
        user.start_soon(hold_for_ever if is_share else read_for_ever, user, name)
    await anyio.sleep(3)
    assert await held() == 1
    await damage_record(world, "group", NAMES[0])
    user.kill()
    await anyio.sleep(3 * LOOK_MS / 1000)
    assert await held() == 0
    await verify_host_works(world, caplog, NAMES[0], "dead instances")


@in_simulated_world
async def test_streams_of_other_groups_lose_what_was_consumed(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ep.create_scope("s")
    first = await world.start()
    streams = [
        await world.ep.create_stream(name, retention=RetentionPolicy(consumed=True))
        for name in ("s/read", "s/shared", "s/other")
    ]
    for each in streams:
        await world.write(each.name, b"old")
        await world.ep.create_group(f"{each.name}-healthy", [each.name], start="tail")
    await world.ep.create_group("s/reads", ["s/read"])
    await world.ep.create_share_group("s/shares", ["s/shared"])
    first.kill()
    for name in ("s/reads", "s/shares"):
        await damage_record(world, "group", name)
    await world.start()
    await anyio.sleep(2 * RETENTION_MS / 1000)
    assert [(await each.describe()).events for each in streams] == [1, 1, 0]
    for stream, group in (("s/read", "s/reads"), ("s/shared", "s/shares")):
        await verify_host_works(world, caplog, stream, "policies")
        assert f"group {group}" in caplog.text


@in_simulated_world
async def test_other_groups_are_listed(world: SimulatedWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.ep.create_scope("s")
    await world.start()
    await world.ep.create_stream("s/t")
    await world.ep.create_group("s/damaged", ["s/t"])
    await world.ep.create_group("s/reads", ["s/t"])
    await world.ep.create_share_group("s/shares", ["s/t"])
    await damage_record(world, "group", "s/damaged")
    assert [each.name for each in await world.ep.groups("s")] == ["s/reads"]
    assert [each.name for each in await world.ep.share_groups("s", limit=1)] == ["s/shares"]
    verify_log(caplog, "group s/damaged", "doctor")


@in_simulated_world
async def test_other_tasks_of_the_bucket_run(world: SimulatedWorld, caplog: pytest.LogCaptureFixture) -> None:
    async def finish(ctx: TaskContext) -> Mapping[str, str | int]:
        return {}

    ids = [new_id(world.ep.db.clock) for _ in range(2)]

    def submit(tx: Tx) -> None:
        for each, resource in zip(ids, ("x", "x"), strict=True):
            submit_task(tx, task_id=each, kind="count", resource=resource, arguments={"n": each})

    await world.ep.db.write(submit)
    await damage(world, "UPDATE record SET body = x'00' WHERE kind = 'task' AND key GLOB ?", f"*{ids[0]}")
    instance = await world.start()
    instance.start_soon(lambda: run_tasks(instance.ep.db, {"count": finish}))
    await anyio.sleep(10)
    assert (await world.ep.tasks.get(ids[1])).status is TaskStatus.DONE
    verify_log(caplog, "task")


@in_simulated_world
async def test_old_outcomes_are_forgotten_beside_a_damaged_task(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ep.create_scope("s")
    await world.start()
    task_id = new_id(world.ep.db.clock)

    def end_a_task(tx: Tx) -> None:
        submit_task(tx, task_id=task_id, kind="count", resource="x", arguments={})
        cancel_task(tx, task_id)

    await world.ep.db.write(end_a_task)
    await world.ep.create_stream("s/t")
    await damage_record(world, "task", f"ended/{task_id}")
    assert await world.ep.requests.list()
    world.clock.step_wall(2 * OUTCOME_MEMORY_MS)
    await anyio.sleep(2 * SWEEP_MS / 1000)
    assert await world.ep.requests.list() == []
    await verify_host_works(world, caplog, "task")


@pytest.mark.parametrize("kind", ["kafka producer", "kafka pending", "dropped key state"])
@in_simulated_world
async def test_old_rows_are_forgotten_beside_a_damaged_record(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    await world.ep.create_scope("s")
    await world.start()
    await world.ep.create_stream("s/t")
    await damage(world, "INSERT INTO record (kind, key, version, body) VALUES (?, 's/x', 1, x'00')", kind)
    assert await world.ep.requests.list()
    world.clock.step_wall(2 * OUTCOME_MEMORY_MS)
    await anyio.sleep(2 * SWEEP_MS / 1000)
    assert await world.ep.requests.list() == []
    await verify_host_works(world, caplog, kind)


@in_simulated_world
async def test_other_requests_run(world: SimulatedWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.ep.create_scope("s")
    posted = [await world.ep.requests.submit(CreateStream(name, StreamConfig())) for name in NAMES]
    await damage(world, "UPDATE request SET body = x'00' WHERE id = ?", posted[0].id)
    await world.start()
    await world.ep.requests.wait(posted[1].id, timeout_ms=10_000)
    await verify_host_works(world, caplog, "request")


@in_simulated_world
async def test_commits_of_other_streams_go_on(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.ep.create_scope("s")
    host = await world.start()
    txns = []
    for name in NAMES:
        stream = await world.ep.create_stream(name)
        txn = await stream.begin()
        await txn.write(b"staged")
        await txn.flush()
        txns.append(txn)
    host.kill()
    for txn in txns:
        await txn.commit(wait=False)
    await damage(world, "UPDATE txn SET appended = '{' WHERE id = ?", txns[0].id)
    await world.start()
    await anyio.sleep(10)
    assert (await (await world.ep.stream(NAMES[1])).describe()).events == 1
    await verify_host_works(world, caplog, NAMES[0])


@pytest.mark.parametrize("kind", ["time marks", "stream"])
@in_simulated_world
async def test_marks_of_time_of_other_streams_are_written(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    await world.ep.create_scope("s")
    host = await world.start()
    for name in NAMES:
        stream = await world.ep.create_stream(name)
        async with stream.writer() as writer:
            for time in (1, 2):
                await writer.write(b"a")
                await writer.note_time(time)  # the mark of the second one is due a second later
    host.kill()
    await damage_record(world, kind, NAMES[0])
    await world.start()
    await anyio.sleep(5)
    group = await world.ep.create_group("s/g", [NAMES[1]])
    healthy = await world.ep.stream(NAMES[1])
    async with group.reader("r") as reader:
        async for _ in reader.until(await healthy.tail()):
            pass
        await reader.commit()
        assert (await reader.time_window()).lower == 2
    await verify_host_works(world, caplog, NAMES[0], "marks of time")
