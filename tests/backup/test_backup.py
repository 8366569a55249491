"""Backups: one moment of a directory in use, complete or absent; restored as a directory of its own."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.base.clock import new_id
from eventproc.cluster.host import CONTROLLER
from eventproc.cluster.integrity_checks import verify_backup
from eventproc.cluster.sweeper import sweep_chunks, walk_chunks
from eventproc.errors import (
    AlreadyExists,
    Closed,
    CorruptRecord,
    DiskFull,
    InvalidArgument,
    LockHeld,
    NotSupported,
    StoreUnusable,
)
from eventproc.runtime import Eventproc
from eventproc.store import faults
from eventproc.store.backup import make
from eventproc.store.backup.contents import read_manifest
from eventproc.store.backup.make import make_backup, plan_backup
from eventproc.store.backup.restore import restore_backup
from eventproc.store.chunks.index import due_files
from eventproc.store.database import Tx
from eventproc.store.file_store import open_file_store, sync_file
from eventproc.store.ingestion.holds import held_unpublished
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.ingestion.pointers import forget_dropped
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.inspection.database_file import directory_identity
from eventproc.store.model.ids import format_segment
from eventproc.store.ownership import find_owner
from eventproc.store.segments.holds import end_directory_hold, hold_directory
from eventproc.store.task_queue import TaskStatus
from tests.backup.support import (
    COUNT,
    files_of,
    fill,
    flip_byte,
    listed,
    mode_of,
    numbers,
    numbers_in,
    payload,
    restored,
    set_mode,
)
from tests.ingestion.support import HOUR_MS, publish_rows
from tests.support.child_process import ChildProcess
from tests.support.postgres import Server
from tests.support.s3_server import s3 as s3, s3_process as s3_process, url as url

WRITER = """
    import sys, anyio, eventproc

    async def main():
        async with eventproc.open(sys.argv[1], host=False) as ep:
            stream = await ep.stream("s/x")
            async with stream.writer() as writer:
                number = 1_000_000
                while True:
                    await writer.write(b"%d" % number)
                    print(number, flush=True)
                    number += 1

    anyio.run(main)
"""

MORTAL = """
    import sys, anyio, eventproc
    from pathlib import Path
    from eventproc.store.backup.restore import restore_backup
    from eventproc.testing import KillAt

    async def back_up(directory, target, point):
        async with eventproc.open(directory, faults=KillAt(point)) as ep:
            await ep.backup(target)

    command, source, target, point = sys.argv[1:]
    if command == "backup":
        anyio.run(back_up, source, target, point)
    else:
        restore_backup(Path(source), Path(target), faults=KillAt(point))
    print("survived")
"""


def kill_during(command: str, source: Path, target: Path, point: str) -> None:
    with ChildProcess.running(MORTAL, command, source, target, point) as mortal:
        assert mortal.hear() == ""
        assert mortal.finish() == -signal.SIGKILL


async def test_a_backup_restores_events_of_the_database_and_of_files(ep: Eventproc, tmp_path: Path) -> None:
    made = await ep.backup(tmp_path / "backup")
    assert made.files > 0
    assert made.bytes == sum(
        each.stat().st_size for each in files_of(tmp_path / "backup") if each.name != "backup.json"
    )
    copy = restored(tmp_path / "backup", tmp_path / "new")
    assert await numbers_in(copy) == list(range(COUNT))
    assert await numbers(ep) == list(range(COUNT))


@pytest.mark.subprocess
async def test_a_backup_under_two_writers_holds_everything_acknowledged_before(
    ep: Eventproc, data: Path, tmp_path: Path
) -> None:
    stream = await ep.stream("s/x")
    acked: list[int] = []

    async def write() -> None:
        async with stream.writer() as writer:
            while True:
                number = COUNT + len(acked)
                await writer.write(payload(number) + b"y" * 50_000)
                acked.append(number)

    with ChildProcess.running(WRITER, data) as other:
        last = int(other.hear())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            for turn in range(3):
                before = len(acked)
                last = max(last, int(other.hear()))
                await ep.backup(tmp_path / f"backup{turn}")
                found = await numbers_in(restored(tmp_path / f"backup{turn}", tmp_path / f"new{turn}"))
                mine = [number for number in found if number < 1_000_000]
                assert mine == list(range(len(mine)))
                assert len(mine) >= COUNT + before
                theirs = [number for number in found if number >= 1_000_000]
                assert theirs == list(range(1_000_000, 1_000_000 + len(theirs)))
                assert theirs[-1] >= last
            tasks.cancel_scope.cancel()


async def test_files_stay_until_the_backup_has_copied_them(
    ep: Eventproc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await ep.stream("s/x")
    swept = anyio.Event()

    async def delete_and_sweep() -> None:
        await stream.seal()
        await stream.delete()
        owner = await ep.db.read(partial(find_owner, name=CONTROLLER))
        assert owner is not None
        await sweep_chunks(ep.db, owner)
        swept.set()

    begun = False

    def delete_between_database_and_files(_done: int, _total: int) -> None:
        nonlocal begun
        if not begun:
            begun = True
            anyio.from_thread.run(delete_and_sweep)

    await make_backup(ep.db, tmp_path / "backup", delete_between_database_and_files)
    assert swept.is_set()
    assert await ep.streams("s") == []
    assert await numbers_in(restored(tmp_path / "backup", tmp_path / "new")) == list(range(COUNT))
    assert await ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()) == (0,)


async def test_a_file_that_lost_its_row_stays_while_a_backup_may_name_it(ep: Eventproc, data: Path) -> None:
    await ep.db.write(lambda tx: hold_directory(tx, "a backup", until_ms=2**62))
    file = data / "chunks" / "999" / "0.0" / f"0-{new_id(ep.db.clock)}-0.arrow"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"")
    owner = await ep.db.read(partial(find_owner, name=CONTROLLER))
    assert owner is not None
    await walk_chunks(ep.db, owner)
    assert await ep.db.read(partial(due_files, unused_ms=0)) == []
    await ep.db.write(lambda tx: end_directory_hold(tx, "a backup"))
    await walk_chunks(ep.db, owner)
    assert await ep.db.read(partial(due_files, unused_ms=0)) == [str(file.relative_to(data / "chunks"))]


async def test_a_restored_directory_has_no_holds_of_the_one_that_was_backed_up(
    ep: Eventproc, tmp_path: Path
) -> None:
    await ep.db.write(lambda tx: hold_directory(tx, "another backup", until_ms=2**62))
    await ep.backup(tmp_path / "backup")
    async with eventproc.open(restored(tmp_path / "backup", tmp_path / "new")) as again:
        assert await again.db.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()) == (0,)


async def test_what_a_supervisor_has_not_published_stays_readable_in_a_restored_directory(
    ep: Eventproc, tmp_path: Path
) -> None:
    stream = await ep.stream("s/x")
    ends = await stream.tail()
    ranges = [
        {"stream": "s/x", "segment": format_segment(segment), "start": 0, "end": end}
        for segment, end in ends.offsets.items()
    ]
    await ep.submit_supervisor({"id": "late", "io": {"ranges": ranges}, "schema": {"datasource": "clicks"}})
    await stream.truncate(ends)
    await ep.backup(tmp_path / "backup")
    async with eventproc.open(restored(tmp_path / "backup", tmp_path / "new"), host=False) as again:
        held = await again.db.read(partial(held_unpublished, supervisor="late"))
    assert held == {(stream.stream_id, segment): 0 for segment in ends.offsets}


async def test_a_restored_directory_has_an_identity_of_its_own(ep: Eventproc, tmp_path: Path) -> None:
    await ep.backup(tmp_path / "backup")
    identities = {await ep.db.read(directory_identity)}
    for name in ("one", "two"):
        async with eventproc.open(restored(tmp_path / "backup", tmp_path / name)) as copy:
            identities.add(await copy.db.read(directory_identity))
    assert len(identities) == 3
    assert "" not in identities


async def test_a_backup_and_what_is_restored_are_closed_to_those_to_whom_the_directory_is_closed(
    ep: Eventproc, data: Path, tmp_path: Path
) -> None:
    before = mode_of(data)
    set_mode(data, 0o700)
    await ep.backup(tmp_path / "closed")
    restored(tmp_path / "closed", tmp_path / "again")
    assert [mode_of(tmp_path / each) for each in ("closed", "again")] == [0o700] * 2
    set_mode(data, before)
    await ep.backup(tmp_path / "open")
    assert mode_of(tmp_path / "open") == before


async def test_a_restored_directory_continues_independently(ep: Eventproc, tmp_path: Path) -> None:
    await ep.backup(tmp_path / "backup")
    async with eventproc.open(restored(tmp_path / "backup", tmp_path / "new")) as copy:
        stream = await copy.stream("s/x")
        await stream.split(0)
        async with stream.writer() as writer:
            await writer.write(payload(COUNT))
        assert sorted(await numbers(copy)) == list(range(COUNT + 1))
    assert await numbers(ep) == list(range(COUNT))


@pytest.mark.subprocess
@pytest.mark.parametrize("point", [faults.BACKUP_COPIED, faults.BACKUP_WRITTEN])
async def test_a_death_during_a_backup_leaves_nothing_that_opens(
    data: Path, tmp_path: Path, point: str
) -> None:
    async with eventproc.open(data, durability="os") as ep:
        await fill(ep)
    target = tmp_path / "backups" / "monday"
    target.parent.mkdir()
    kill_during("backup", data, target, point)
    (left,) = target.parent.iterdir()
    assert left.name.endswith(".part")
    with pytest.raises(StoreUnusable):
        await numbers_in(left)
    async with eventproc.open(data) as ep:
        await ep.backup(target)
    assert listed(target.parent) == ["monday"]
    assert await numbers_in(restored(target, tmp_path / "new")) == list(range(COUNT))


@pytest.mark.subprocess
async def test_a_death_after_the_rename_leaves_a_complete_backup(data: Path, tmp_path: Path) -> None:
    async with eventproc.open(data, durability="os") as ep:
        await fill(ep)
    kill_during("backup", data, tmp_path / "backup", faults.BACKUP_NAMED)
    assert await numbers_in(restored(tmp_path / "backup", tmp_path / "new")) == list(range(COUNT))


@pytest.mark.subprocess
@pytest.mark.parametrize("point", [faults.RESTORE_COPIED, faults.RESTORE_MOVED])
async def test_a_death_during_a_restore_leaves_nothing_that_opens(
    ep: Eventproc, tmp_path: Path, point: str
) -> None:
    await ep.backup(tmp_path / "backup")
    target = tmp_path / "new"
    kill_during("restore", tmp_path / "backup", target, point)
    with pytest.raises(StoreUnusable, match="run the same `eventproc restore` again"):
        await numbers_in(target)
    with pytest.raises(StoreUnusable):
        await numbers_in(target / "restore.part")
    assert await numbers_in(restored(tmp_path / "backup", target)) == list(range(COUNT))
    assert "restore.part" not in listed(target)


async def test_a_backup_leaves_another_one_alone_whose_name_begins_like_its_own(
    ep: Eventproc, tmp_path: Path
) -> None:
    def make_the_other_one(_done: int, _total: int) -> None:
        if not (tmp_path / "shop").exists():
            anyio.from_thread.run(ep.backup, tmp_path / "shop")

    await ep.backup(tmp_path / "shop.monday", advance=make_the_other_one)
    for name in ("shop", "shop.monday"):
        assert await numbers_in(restored(tmp_path / name, tmp_path / f"new {name}")) == list(range(COUNT))


async def test_a_cancelled_backup_leaves_nothing(ep: Eventproc, tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:

        def cancel(_done: int, _total: int) -> None:
            anyio.from_thread.run_sync(scope.cancel)

        await make_backup(ep.db, tmp_path / "backups", cancel)
    assert scope.cancelled_caught
    assert listed(tmp_path) == ["data"]
    assert await ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()) == (0,)


async def test_closing_the_directory_ends_a_running_backup(data: Path, tmp_path: Path) -> None:
    ep = await eventproc.open(data, durability="os")
    await fill(ep)
    began, closing = anyio.Event(), threading.Event()

    def wait_for_the_end(_done: int, _total: int) -> None:
        anyio.from_thread.run_sync(began.set)
        assert closing.wait(60)

    async def back_up() -> None:
        with pytest.raises(Closed):
            await make_backup(ep.db, tmp_path / "backup", wait_for_the_end)

    async def close() -> None:
        await ep.close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(back_up)
        await began.wait()
        tasks.start_soon(close)
        await anyio.wait_all_tasks_blocked()
        closing.set()
    assert listed(tmp_path) == ["data"]
    async with eventproc.open(data) as again:
        assert await again.db.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()) == (0,)


async def test_a_backup_whose_hold_cannot_be_released_is_made_and_ends(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> None:
        raise DiskFull(path=str(data))

    ep = await eventproc.open(data)
    monkeypatch.setattr(make, "end_directory_hold", no_space)
    with anyio.fail_after(5, shield=True):
        made = await ep.backup(tmp_path / "backup")
        await ep.close()
    assert made.path == tmp_path / "backup"
    assert listed(tmp_path) == ["backup", "data"]


async def test_an_existing_destination_is_refused_and_unchanged(ep: Eventproc, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    before = listed(tmp_path)
    for name in ("file", "empty", "dangling"):
        with pytest.raises(AlreadyExists, match="exists already; name a new folder"):
            await ep.backup(tmp_path / name)
        with pytest.raises(AlreadyExists):
            await plan_backup(ep.db, tmp_path / name)
    assert listed(tmp_path) == before


async def test_a_destination_that_cannot_be_used_is_refused(
    ep: Eventproc, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnusable, match="does not exist; create it first"):
        await ep.backup(tmp_path / "missing" / "backup")
    with pytest.raises(StoreUnusable, match="lies in the directory itself"):
        await ep.backup(data / "backup")
    for wrong in ("", 7, None):
        with pytest.raises(InvalidArgument):
            await ep.backup(wrong)  # type: ignore[arg-type]
    async with eventproc.open_memory() as memory:
        with pytest.raises(NotSupported):
            await memory.backup(tmp_path / "backup")


async def test_a_backup_as_a_task_names_its_folder_and_does_not_replace_one(
    ep: Eventproc, tmp_path: Path
) -> None:
    dest = tmp_path / "monday"
    task = await ep.tasks.submit(eventproc.BackupTask(str(dest)))
    done = await ep.tasks.wait(task.id)
    assert (done.status, done.result["path"], done.done) == (TaskStatus.DONE, str(dest), done.total)
    restore_backup(dest, tmp_path / "restored")
    async with await eventproc.open(tmp_path / "restored") as restored:
        assert (await restored.tasks.get(task.id)).status is TaskStatus.CANCELLED
    again = await ep.tasks.submit(eventproc.BackupTask(str(dest)))
    failed = await ep.tasks.wait(again.id)
    assert failed.status is TaskStatus.FAILED
    assert failed.error is not None
    assert "AlreadyExists" in failed.error


async def test_a_lost_file_with_events_fails_the_backup(ep: Eventproc, data: Path, tmp_path: Path) -> None:
    lost = next((data / "chunks").rglob("*.arrow"))
    lost.rename(tmp_path / "aside")
    with pytest.raises(CorruptRecord, match=r"file .* file not found, but events lie in it"):
        await ep.backup(tmp_path / "backup")
    assert listed(tmp_path) == ["aside", "data"]
    shutil.copy(tmp_path / "aside", lost)
    flip_byte(lost, 100)
    with pytest.raises(CorruptRecord, match="its content differs from what was written"):
        await ep.backup(tmp_path / "backup")


async def test_a_full_disk_fails_the_backup_and_leaves_nothing(
    ep: Eventproc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> tuple[int, int]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(make, "copy_file", no_space)
        with pytest.raises(DiskFull, match="backup: the disk is full"):
            await ep.backup(tmp_path / "backup")
    assert listed(tmp_path) == ["data"]
    await ep.backup(tmp_path / "backup")


async def test_a_damaged_file_of_a_backup_is_not_restored(ep: Eventproc, tmp_path: Path) -> None:
    await ep.backup(tmp_path / "backup")
    for file in files_of(tmp_path / "backup"):
        if file.name == "backup.json":
            continue
        content = file.read_bytes()
        for damaged in (content[:-1], b"", content[:500] + bytes([content[500] ^ 1]) + content[501:]):
            file.write_bytes(damaged)
            with pytest.raises(CorruptRecord):
                restored(tmp_path / "backup", tmp_path / "new")
            assert not (tmp_path / "new").exists()
        file.unlink()
        with pytest.raises(StoreUnusable, match="is missing in it; use another backup"):
            restored(tmp_path / "backup", tmp_path / "new")
        file.write_bytes(content)
    assert await numbers_in(restored(tmp_path / "backup", tmp_path / "new")) == list(range(COUNT))


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"format": 99}', "\x00"])
async def test_a_folder_without_a_valid_manifest_is_no_backup(
    ep: Eventproc, tmp_path: Path, content: str | None
) -> None:
    await ep.backup(tmp_path / "backup")
    manifest = tmp_path / "backup" / "backup.json"
    manifest.unlink()
    if content is not None:
        manifest.write_text(content)
    with pytest.raises(StoreUnusable):
        restored(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def test_a_hold_that_cannot_be_renewed_yet_does_not_end_the_backup(
    ep: Eventproc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def wait(_done: int, _total: int) -> None:
        assert tried.wait(10), "it is renewed while the backup runs"

    def refuse(tx: Tx, name: str, *, until_ms: int) -> None:
        tried.set()
        raise LockHeld(path=name, pid=None, for_ms=30_000)

    monkeypatch.setattr(make, "RENEW_MS", 1)
    monkeypatch.setattr(make, "renew_directory", refuse)
    await ep.backup(tmp_path / "backup", advance=wait)
    assert await numbers_in(restored(tmp_path / "backup", tmp_path / "new")) == list(range(COUNT))


async def test_a_backup_of_a_newer_version_says_what_to_do(ep: Eventproc, tmp_path: Path) -> None:
    await ep.backup(tmp_path / "backup")
    manifest = tmp_path / "backup" / "backup.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99, "more": 1}))
    with pytest.raises(StoreUnusable, match="update eventproc"):
        restored(tmp_path / "backup", tmp_path / "new")


async def test_a_restore_into_a_used_folder_is_refused(ep: Eventproc, data: Path, tmp_path: Path) -> None:
    await ep.backup(tmp_path / "backup")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "thesis.tex").touch()
    for target in (data, tmp_path / "used", tmp_path / "used" / "thesis.tex", tmp_path / "backup"):
        with pytest.raises(AlreadyExists, match="name a new or empty directory"):
            restored(tmp_path / "backup", target)
    assert listed(tmp_path / "used") == ["thesis.tex"]


async def test_a_restore_syncs_the_new_folder_and_its_entry(
    ep: Eventproc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ep.backup(tmp_path / "backup")
    synced = list[Path]()

    def note(path: Path) -> None:
        synced.append(path)
        sync_file(path)

    monkeypatch.setattr("eventproc.store.backup.restore.sync_file", note)
    restored(tmp_path / "backup", tmp_path / "to")
    assert synced[-2:] == [tmp_path / "to", tmp_path]


@pytest.mark.usefixtures("commit_path")
async def test_open_transactions_end_in_the_restored_directory(ep: Eventproc, tmp_path: Path) -> None:
    stream = await ep.stream("s/x")
    async with stream.transaction() as txn:
        await txn.write(payload(COUNT))
        await txn.flush()
        await ep.backup(tmp_path / "backup")
        async with eventproc.open(restored(tmp_path / "backup", tmp_path / "new")) as copy:
            assert await numbers(copy) == list(range(COUNT))
            async with (await copy.stream("s/x")).writer() as writer:
                await writer.write(payload(COUNT))
            assert await numbers(copy) == list(range(COUNT + 1))
    assert await numbers(ep) == list(range(COUNT + 1))


async def test_a_backup_is_one_file_without_a_log(ep: Eventproc, tmp_path: Path) -> None:
    await ep.backup(tmp_path / "backup")
    assert listed(tmp_path / "backup") == ["backup.json", "chunks", "eventproc.db"]
    database = tmp_path / "backup" / "eventproc.db"
    database.chmod(0o444)
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert listed(tmp_path / "backup") == ["backup.json", "chunks", "eventproc.db"]


async def test_published_files_of_tables_are_in_the_backup_and_in_what_is_restored(
    ep: Eventproc, data: Path, tmp_path: Path
) -> None:
    unused, used = await publish_rows(ep.db, 1), await publish_rows(ep.db, HOUR_MS, HOUR_MS + 1)
    await on_tables(ep.db, lambda tables: tables.drop("clicks", lambda file: file.start_ms < HOUR_MS))
    plan = await ep.preview_backup(tmp_path / "backup")
    result = await ep.backup(tmp_path / "backup")
    found = read_manifest(tmp_path / "backup")
    paths = {each.path for each in found.tables}
    assert (plan.files, plan.file_bytes) == (result.files, result.bytes - found.database_bytes)
    assert used in paths
    assert unused not in paths
    assert result.files == found.files + len(paths)
    copied = files_of(tmp_path / "backup" / "tables")
    assert {str(each.relative_to(tmp_path / "backup" / "tables")) for each in copied} == paths
    home = restored(tmp_path / "backup", tmp_path / "restored")
    async with eventproc.open(home) as again:
        rows = (await again.describe_table("clicks")).rows
        assert rows == 2
        await publish_rows(again.db, HOUR_MS + 2)
        assert (await again.describe_table("clicks")).rows == 3
    assert (await ep.describe_table("clicks")).rows == 2
    assert await numbers_in(home) == list(range(COUNT))
    assert verify_backup(tmp_path / "backup").problems == []
    flip_byte(tmp_path / "backup" / "tables" / used, 0)
    assert [each for each in verify_backup(tmp_path / "backup").problems if used in each]
    with pytest.raises(CorruptRecord, match=Path(used).name):
        restored(tmp_path / "backup", tmp_path / "again")


@pytest.mark.subprocess
async def test_a_copy_has_the_files_that_tables_use_in_a_directory_and_in_object_storage(
    data: Path, tmp_path: Path, server: Server, url: str
) -> None:
    async with eventproc.open(data) as ep:
        path = await publish_rows(ep.db, 1, 2)
    with pytest.raises(NotSupported, match="tables in files"):
        await eventproc.copy(data, server.store(server.new_schema()))
    store = server.store(server.new_schema())
    async with eventproc.open(store, chunks=url):
        pass
    count = (await eventproc.copy(data, store)).files
    assert open_file_store(f"{url}/tables").size(path) is not None
    shutil.rmtree(data)
    assert (await eventproc.copy(store, tmp_path / "copy")).files == count
    for place in (store, tmp_path / "copy"):
        async with eventproc.open(place) as ep:
            (file,) = await on_tables(ep.db, lambda tables: tables.used("clicks"))
            assert (file.path, file.rows) == (path, 2)
            await publish_rows(ep.db, 3)
            assert (await ep.describe_table("clicks")).rows == 3


async def test_a_sweep_waits_for_a_backup_and_keeps_what_a_table_names(ep: Eventproc) -> None:
    kept, dropped = await publish_rows(ep.db, 1), await publish_rows(ep.db, HOUR_MS)
    await on_tables(ep.db, lambda tables: tables.drop("clicks", lambda file: file.start_ms >= HOUR_MS))

    def sweep(tables: StoreTables) -> list[str]:
        before = {*tables.files.paths()}
        tables.sweep(lambda _: False)  # all instances have died
        return sorted(before - {*tables.files.paths()})

    assert await on_tables(ep.db, sweep) == [], "queries may read what was dropped within a day"
    await ep.drop_table("clicks")
    assert await on_tables(ep.db, sweep) == []
    await ep.db.write(partial(forget_dropped, before_ms=2**62))
    await ep.db.write(lambda tx: hold_directory(tx, "backup", until_ms=tx.now_ms + 60_000))
    assert await on_tables(ep.db, sweep) == []
    await ep.db.write(lambda tx: end_directory_hold(tx, "backup"))
    assert await on_tables(ep.db, sweep) == sorted([kept, dropped])
