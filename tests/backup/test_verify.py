"""`verify` finds damaged and lost files with events, and readers of them get an error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

import eventproc
from eventproc.cluster import integrity_checks
from eventproc.cluster.integrity_checks import IntegrityReport, verify_backup, verify_directory
from eventproc.errors import Closed, CorruptRecord
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.task_queue import TaskStatus
from eventproc.store.thread_work import ThreadWork
from eventproc.streams import Stream
from eventproc.testing.crash import PATIENCE_S
from tests.backup.support import COUNT, flip_byte, numbers


async def verified(ep: Eventproc) -> IntegrityReport:
    report = IntegrityReport("directory")
    await verify_directory(ep.db, report)
    return report


def first_file(folder: Path) -> Path:
    return sorted((folder / "chunks").rglob("*.arrow"))[0]


def remove(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def flip(file: Path) -> None:
    """Flip a byte of a payload."""
    flip_byte(file, file.read_bytes().index(b"x" * 100))


DAMAGES = [remove, cut, flip]


async def test_a_healthy_directory_has_no_problems(ep: Eventproc) -> None:
    report = await verified(ep)
    assert (report.problems, report.orphans) == ([], [])
    assert report.files > 0


@pytest.mark.parametrize("damage", DAMAGES)
async def test_verify_finds_a_damaged_file_with_events(
    ep: Eventproc, data: Path, damage: Callable[[Path], None]
) -> None:
    file = first_file(data)
    damage(file)
    report = await verified(ep)
    assert any(str(file) in problem and "restore a backup" in problem for problem in report.problems)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_reading_a_damaged_file_with_events_raises(
    ep: Eventproc, data: Path, damage: Callable[[Path], None]
) -> None:
    damage(first_file(data))
    async with eventproc.open(data) as other:
        with pytest.raises(CorruptRecord, match="chunk file"):
            await read_all(await other.stream("s/x"))


@pytest.mark.parametrize("ends", ["cancelled", "closed"])
async def test_a_check_of_the_pages_ends_when_it_is_cancelled_or_the_directory_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    running = threading.Event()

    def read_for_ever(tx: Tx) -> list[str]:
        running.set()
        tx.execute(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT max(x) FROM n"
        ).fetchone()
        return []

    monkeypatch.setattr(integrity_checks, "check_all_pages", read_for_ever)
    ep = await eventproc.open(tmp_path, durability="os")
    failures: list[BaseException] = []

    async def check() -> None:
        try:
            await verified(ep)
        except BaseException as why:
            failures.append(why)
            if not isinstance(why, Closed):
                raise

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(check)
        await anyio.to_thread.run_sync(running.wait)
        if ends == "cancelled":
            tasks.cancel_scope.cancel()
        else:
            await ep.close()
    (failure,) = failures
    assert isinstance(failure, Closed if ends == "closed" else anyio.get_cancelled_exc_class())
    await ep.close()


async def test_work_that_is_cancelled_before_its_thread_begins_ends_and_is_not_done(ep: Eventproc) -> None:
    work, done = ThreadWork("a test", ep.db.handles), threading.Event()
    with anyio.fail_after(PATIENCE_S), anyio.CancelScope() as scope:
        scope.cancel()
        await work.run(done.set)
    assert scope.cancelled_caught
    assert not done.is_set()
    await work.end()


async def read_all(stream: Stream) -> None:
    async with stream.reader() as reader:
        async for _ in reader.until(await stream.tail()):
            pass


@pytest.mark.parametrize("damage", DAMAGES)
async def test_verify_finds_a_damaged_file_of_a_backup(
    ep: Eventproc, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    await ep.backup(tmp_path / "backup")
    assert verify_backup(tmp_path / "backup").problems == []
    damage(first_file(tmp_path / "backup"))
    assert verify_backup(tmp_path / "backup").problems


async def test_a_check_in_the_background_counts_every_part(ep: Eventproc) -> None:
    ended = await ep.tasks.wait((await ep.tasks.submit(eventproc.VerifyTask())).id)
    assert (ended.status, ended.done) == (TaskStatus.DONE, ended.total)
    assert ended.done > int(ended.result["files"]) > 0


async def test_a_check_in_the_background_fails_and_names_the_damaged_file(ep: Eventproc, data: Path) -> None:
    file = first_file(data)
    remove(file)
    ended = await ep.tasks.wait((await ep.tasks.submit(eventproc.VerifyTask())).id)
    assert ended.status is TaskStatus.FAILED
    assert str(file) in str(ended.error)


async def test_files_without_a_row_are_reported_and_are_no_problem(ep: Eventproc, data: Path) -> None:
    file = first_file(data)
    await ep.close()  # a host would delete the file
    file.with_name("0-1.arrow").write_bytes(b"")
    async with eventproc.open(data, host=False) as ep:
        report = await verified(ep)
        assert report.problems == []
        assert report.orphans == [str(file.with_name("0-1.arrow").relative_to(data / "chunks"))]
        assert await numbers(ep) == list(range(COUNT))
