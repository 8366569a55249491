"""The logs of tasks: what they say, who can read them, and how they are bounded."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.errors import NotFound
from eventproc.ingestion import actions
from eventproc.spark.ingestion.task_log import READ_MS, WAITING_MAX, TaskLog
from tests.ingestion.support import Bench, spec_of


async def messages(bench: Bench, task: str) -> list[str]:
    return [each.message for each in await bench.ep.ingestion_log(task)]


async def test_a_log_begins_with_the_creation_and_ends_with_the_reason(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    began = [
        "created, as replica 0; it waits for a worker",
        "begun by worker w1, for group 0",
        "reads sequence 0: s/t 0.0 at 0",
    ]
    assert await messages(bench, task.id) == began
    bench.dead.add("w1")
    await bench.run()
    assert await messages(bench, task.id) == [*began, "failed: its worker died"]


async def test_a_failure_is_logged_with_its_reason_and_a_closed_sequence_with_its_ends(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    await bench.write(3)
    await task.step()
    (end,) = (await bench.tails()).values()
    await task.close()
    assert (await messages(bench, task.id))[-1] == f"closed sequence 0: s/t 0.0 at {end}"
    await task.finish("no file /a\udcff, of which a server stores no text: \0")
    said = "no file /a\\udcff, of which a server stores no text: \\x00"
    assert (await messages(bench, task.id))[-1] == f"failed: {said}"


async def test_a_task_that_is_stopped_logs_why(bench: Bench) -> None:
    await bench.start_supervisor(replicas=3)
    worker = await bench.worker()
    fast, slow, third = sorted(await worker.claim(), key=lambda each: each.order.task.replica)
    await bench.ep.submit_supervisor(spec_of(replicas=2))
    await bench.run()
    assert (await messages(bench, third.id))[-1] == "stopped: the spec asks for fewer replicas"
    await bench.write(3)
    await fast.step()
    await bench.handoff()
    await fast.complete()
    await bench.run()
    assert (await messages(bench, fast.id))[-1] == "succeeded"
    assert (await messages(bench, slow.id))[-1] == "stopped: everything of its group is published"
    _, replaced = await worker.claim()
    await (await bench.ep.supervisor("clicks")).reset()
    await bench.run()
    assert (await messages(bench, replaced.id))[-1] == "stopped: the supervisor was reset"


async def test_a_log_that_is_followed_goes_on_until_the_task_has_ended(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    found: list[str] = []
    async for line in bench.ep.follow_ingestion_log(task.id):
        found.append(line.message)
        if line.message.startswith("reads"):
            await task.finish("no space")
    assert found[-1] == "failed: no space"
    last = (await bench.ep.ingestion_log(task.id))[-2].id
    assert [each.message async for each in bench.ep.follow_ingestion_log(task.id, after=last)] == [found[-1]]


async def test_a_log_has_pages_and_the_newest_lines_only(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    log = TaskLog(task.id, bench.clock)
    for number in range(600):
        log.add(f"{number}" + "x" * 3_000)
        await bench.db.write(partial(log.write, step=lambda _: None))
    lines = await bench.ep.ingestion_log(task.id)
    assert (len(lines), len(lines[0].message), lines[-1].message[:4]) == (500, 2_000, "599x")
    first = await bench.ep.ingestion_log(task.id, limit=2)
    assert first == lines[:2]
    assert await bench.ep.ingestion_log(task.id, after=first[-1].id, limit=1) == [lines[2]]


async def test_slices_are_added_up_and_lines_of_a_failed_transaction_wait(bench: Bench) -> None:
    worker = await bench.start_tasks()
    (task,) = worker.tasks
    log = TaskLog(task.id, bench.clock)

    async def write() -> list[str]:
        await bench.db.write(partial(log.write, step=lambda _: None))
        return (await messages(bench, task.id))[3:]

    log.add_slice({"processed": 1_000, "processed_bytes": 2_000, "thrown_away": 1, "unparseable": 0})
    assert await write() == [], "it waits for other slices"
    bench.clock.advance(READ_MS)
    log.add_slice({"processed": 500, "processed_bytes": 100, "thrown_away": 0, "unparseable": 7})

    def fail(_: object) -> None:
        raise NotFound(kind="sequence", name="gone")

    with pytest.raises(NotFound):
        await bench.db.write(partial(log.write, step=fail))
    read = "read 1,500 events, 2,100 bytes, in 2 slices; 7 unparseable, 1 thrown away"
    assert await write() == [read]
    assert log.is_empty
    assert await write() == [read]
    for number in range(WAITING_MAX + 1):
        log.add(str(number))
    assert (await write())[1:] == [str(number) for number in range(1, WAITING_MAX + 1)]


@pytest.mark.parametrize("back_ms", [0, 24 * 3_600_000])
async def test_a_log_goes_with_its_task(bench: Bench, monkeypatch: pytest.MonkeyPatch, back_ms: int) -> None:
    """Also if the wall clock is set back between the ends of two tasks."""
    monkeypatch.setattr(actions, "TASKS_KEPT", 2)
    worker = await bench.start_tasks()
    first = task = worker.tasks[0]
    with pytest.raises(NotFound, match="no ingestion task 'clicks-9'"):
        await bench.ep.ingestion_log("clicks-9")
    for _ in range(3):
        await task.finish("no space")
        assert (await messages(bench, task.id))[-1] == "failed: no space"
        await bench.run()
        bench.clock.advance(60_000)  # the pause before a second failure is repeated
        (task,) = await worker.claim()
        if len(worker.tasks) == 3:
            bench.clock.step_wall(-back_ms)
            await bench.run()
    with pytest.raises(NotFound):
        await bench.ep.ingestion_log(first.id)
    for each in worker.tasks[1:3]:
        assert (await messages(bench, each.id))[-1] == "failed: no space"
