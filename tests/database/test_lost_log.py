"""The last process that leaves makes the file complete; a lost log or database is refused, never read as less."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from eventproc.store import faults
from eventproc.store.database import Durability
from eventproc.store.database.guard import LogEnd, mark_of_file, read_record
from eventproc.store.model.errors import CorruptRecord, StoreUnusable
from eventproc.testing import Deaths, run_until_death
from tests.database.support import MIGRATIONS, READER, insert, names, open_database, open_world
from tests.support.child_process import ChildProcess, run

WRITER = """
    import sys, anyio
    from pathlib import Path
    from eventproc.store import faults
    from eventproc.testing import KillAt
    from tests.database.support import MIGRATIONS, insert, open_database

    async def main():
        point = KillAt(sys.argv[2]) if sys.argv[2] else faults.NO_FAULTS
        async with open_database(Path(sys.argv[1]), migrations=MIGRATIONS, faults=point) as db:
            for name in "abcdefgh":
                await db.write(insert(name))
            print("written", flush=True)
            sys.stdin.readline()

    anyio.run(main)
"""

CLOSING = [faults.LAST_CLOSE, faults.LAST_CLOSE_COPIED, faults.LAST_CLOSE_MARKED]


async def rows(directory: Path) -> list[str]:
    async with open_database(directory, migrations=MIGRATIONS, create=False) as db:
        return await db.read(names)


async def rows_of_copy(directory: Path, to: Path) -> list[str]:
    """Return the rows of a copy of the file alone."""
    copy_file(directory, to)
    return await rows(to)


def copy_file(directory: Path, to: Path) -> None:
    to.mkdir()
    shutil.copy(directory / "eventproc.db", to)


def listed(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def kill_writer(directory: Path, point: str = "") -> None:
    """Write eight rows in another process and kill it: at the point, or after the last acknowledgement."""
    with ChildProcess.running(WRITER, directory, point) as writer:
        assert writer.hear() == "written"
        if point:
            writer.say("close")
            assert writer.hear() == ""
        writer.kill()


@pytest.mark.linux
async def test_the_file_alone_is_complete_after_the_last_process_left(
    directory: Path, tmp_path: Path
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        async with open_world("file", directory) as other:
            await other.db.write(insert("b"))
        await world.db.write(insert("c"))
    assert (directory / "eventproc.db-wal").stat().st_size == 0
    assert await rows_of_copy(directory, tmp_path / "copy") == ["a", "b", "c"]


async def test_a_new_directory_is_complete_before_anything_is_written(
    directory: Path, tmp_path: Path
) -> None:
    async with open_world("file", directory):
        assert await rows_of_copy(directory, tmp_path / "copy") == []


async def test_a_copy_without_the_log_is_refused_while_a_process_writes(
    directory: Path, tmp_path: Path
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        with pytest.raises(StoreUnusable, match=r"eventproc\.db in it is a copy without its log"):
            await rows_of_copy(directory, tmp_path / "copy")
        assert listed(tmp_path / "copy") == ["eventproc.db"]


@pytest.mark.subprocess
async def test_the_next_process_to_leave_completes_the_file_of_one_that_was_killed(
    directory: Path, tmp_path: Path
) -> None:
    kill_writer(directory)
    with pytest.raises(StoreUnusable, match="copy without its log"):
        await rows_of_copy(directory, tmp_path / "early")
    assert await rows(directory) == list("abcdefgh")
    assert await rows_of_copy(directory, tmp_path / "late") == list("abcdefgh")


@pytest.mark.subprocess
@pytest.mark.parametrize("point", CLOSING)
async def test_a_death_in_the_last_close_loses_nothing(directory: Path, tmp_path: Path, point: str) -> None:
    kill_writer(directory, point)
    mark = mark_of_file(directory / "eventproc.db")
    assert mark is not None
    if not mark.used:
        assert await rows_of_copy(directory, tmp_path / "early") == list("abcdefgh")
    assert await rows(directory) == list("abcdefgh")
    assert await rows_of_copy(directory, tmp_path / "late") == list("abcdefgh")


@pytest.mark.linux
async def test_a_simulated_death_leaves_the_log_as_a_real_one_does(directory: Path) -> None:
    deaths = Deaths()

    async def main() -> None:
        async with open_database(directory, migrations=MIGRATIONS, faults=deaths) as db:
            await db.write(insert("a"))
            deaths.die_before_commit()
            await db.write(insert("b"))

    assert await run_until_death(main)
    assert (directory / "eventproc.db-wal").stat().st_size > 0
    assert await rows(directory) == ["a"]


@pytest.mark.subprocess
async def test_the_last_close_leaves_the_log_to_a_program_that_still_reads_it(
    directory: Path, tmp_path: Path
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        with ChildProcess.running(READER, directory / "eventproc.db") as reader:
            assert reader.hear() == "reading"
            await world.db.write(insert("b"))
            async with open_world("file", directory) as other:
                await other.db.write(insert("c"))
            reader.say("stop")
            assert reader.hear() == ""
    assert await rows_of_copy(directory, tmp_path / "copy") == ["a", "b", "c"]


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


def half_of_commits(path: Path) -> int:
    """Return a position in the middle of what was committed, without the room behind it."""
    return len(path.read_bytes().rstrip(b"\0")) // 2


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(half_of_commits(path))


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(half_of_commits(path))
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0xFF]))


@pytest.mark.linux
@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove, r"the log with the last commits, is missing; put it back, or restore a backup"),
        (empty, r"the log with the last commits, is empty; put it back, or restore a backup"),
        (cut, r"is damaged or was cut off: \d+ of its \d+ pages can be read"),
        (flip, r"is damaged or was cut off: \d+ of its \d+ pages can be read"),
    ],
    ids=["removed", "emptied", "cut", "flipped"],
)
async def test_a_lost_or_damaged_log_is_refused_until_it_is_back(
    directory: Path, damage: Callable[[Path], None], said: str
) -> None:
    kill_writer(directory)
    log = directory / "eventproc.db-wal"
    content = log.read_bytes()
    damage(log)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match=said):
            await rows(directory)
    log.write_bytes(content)
    assert await rows(directory) == list("abcdefgh")


@pytest.mark.subprocess
async def test_a_log_that_another_program_copied_into_the_file_is_not_missed(directory: Path) -> None:
    kill_writer(directory)
    run(
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT 1 FROM item').close()",
        directory / "eventproc.db",
    )
    assert not (directory / "eventproc.db-wal").exists()
    assert await rows(directory) == list("abcdefgh")


@pytest.mark.parametrize("damage", [remove, empty])
@pytest.mark.parametrize("create", [False, True])
async def test_a_lost_database_is_refused_and_not_created_again(
    directory: Path, damage: Callable[[Path], None], create: bool
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
    damage(directory / "eventproc.db")
    before = listed(directory)
    with pytest.raises(StoreUnusable, match=r"although log\.record shows that it was in use"):
        async with open_database(directory, migrations=MIGRATIONS, create=create):
            pass
    assert listed(directory) == before


@pytest.mark.subprocess
async def test_an_older_copy_is_not_combined_with_the_log_of_a_newer_file(
    directory: Path, tmp_path: Path
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("old"))
    shutil.copy(directory / "eventproc.db", tmp_path / "old.db")
    async with open_world("file", directory) as world:
        await world.db.write(insert("new"))
    kill_writer(directory)
    shutil.copy(tmp_path / "old.db", directory / "eventproc.db")
    with pytest.raises(StoreUnusable, match="is not the file that was used here last"):
        await rows(directory)
    for name in ("log.record", "eventproc.db-wal", "eventproc.db-shm"):
        (directory / name).unlink()
    assert await rows(directory) == ["old"]


@pytest.mark.subprocess
async def test_a_copy_of_all_files_of_a_killed_process_is_complete(directory: Path, tmp_path: Path) -> None:
    kill_writer(directory)
    shutil.copytree(directory, tmp_path / "copy", ignore=shutil.ignore_patterns("*.fifo"))
    assert await rows(tmp_path / "copy") == list("abcdefgh")


async def test_a_file_that_was_cut_is_refused(directory: Path) -> None:
    async with open_world("file", directory) as world:
        for name in "abc":
            await world.db.write(insert(name * 20_000))
    cut(directory / "eventproc.db")
    with pytest.raises((CorruptRecord, StoreUnusable)):
        await rows(directory)


@pytest.mark.linux
async def test_the_record_follows_the_log_through_checkpoints(directory: Path) -> None:
    async with open_world("file", directory) as world:
        frames = []
        for name in "abcd":
            await world.db.write(insert(name))
            record = read_record(directory)
            assert record is not None
            frames.append(record.end.frames)
        assert frames == sorted(set(frames))
    record = read_record(directory)
    assert record is not None
    assert record.end.frames == 0
    with closing(sqlite3.connect(directory / "eventproc.db")) as connection:
        (value,) = connection.execute("SELECT value FROM meta WHERE key = 'log'").fetchone()
    assert value == f"empty {record.id}"


def copy_as_killed(directory: Path, to: Path) -> Path:
    """Copy the files of an open directory as its process would leave them at its death."""
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns("instances"))
    return to


def begin_log_again(directory: Path) -> None:
    """Let another program write, copy the log into the file, and write again, which begins the log again."""
    with closing(sqlite3.connect(directory / "eventproc.db", isolation_level=None)) as connection:
        for number in range(3):
            connection.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES ('foreign', ?)", (str(number),)
            )
            assert connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
        connection.execute("DELETE FROM meta WHERE key = 'foreign'")


def write_record_of_earlier_boot(directory: Path, content: str) -> None:
    mark, before, _boot, *end = content.split()
    (directory / "log.record").write_text(" ".join([mark, before, "earlier-boot", *end]))


async def test_a_record_that_is_older_than_the_log_after_a_power_loss_opens(
    directory: Path, tmp_path: Path
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        synced = (directory / "log.record").read_text()
        for name in "bc":
            begin_log_again(directory)
            await world.db.write(insert(name))
        copy = copy_as_killed(directory, tmp_path / "copy")
    write_record_of_earlier_boot(copy, synced)
    assert await rows(copy) == ["a", "b", "c"]


@pytest.mark.parametrize("same_boot", [True, False])
async def test_a_last_close_before_its_record_was_written_leaves_a_file_that_opens(
    directory: Path, same_boot: bool
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        record = (directory / "log.record").read_text()
    if same_boot:
        (directory / "log.record").write_text(record)
    else:
        write_record_of_earlier_boot(directory, record)
    assert await rows(directory) == ["a"]


@pytest.mark.linux
@pytest.mark.subprocess
async def test_commits_of_the_event_loop_do_not_make_the_record_of_another_process_older(
    directory: Path, tmp_path: Path
) -> None:
    async with open_database(directory, migrations=MIGRATIONS, durability=Durability.OS) as db:
        await db.write(insert("first"))  # the thread marks the log
        await db.write(insert("second"))
        await db.write(insert("third"), brief=True)
        kill_writer(directory)  # before the next turn of this event loop, which records where the log ends
        await anyio.wait_all_tasks_blocked()
        copy = copy_as_killed(directory, tmp_path / "copy")
    log = copy / "eventproc.db-wal"
    with log.open("r+b") as file:
        file.truncate(len(log.read_bytes().rstrip(b"\0")) - 1)
    with pytest.raises(StoreUnusable, match=r"is damaged or was cut off: \d+ of its \d+ pages can be read"):
        await rows(copy)


async def test_the_record_of_a_new_mark_is_synced_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(os.pread(descriptor, 256, 0).decode().split()[0])

    async with open_world("file", directory) as world:
        monkeypatch.setattr(os, "fsync", fsync)
        await world.db.write(insert("a"))
        await world.db.write(insert("b"))
    record = read_record(directory)
    assert record is not None
    assert synced == [record.id]


async def test_a_log_that_another_program_began_again_opens(directory: Path, tmp_path: Path) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        begin_log_again(directory)
        copy = copy_as_killed(directory, tmp_path / "copy")
    assert await rows(copy) == ["a"]


@pytest.mark.linux
@pytest.mark.parametrize("lost", [False, True])
async def test_a_log_cut_by_another_program_is_known_in_the_same_step_of_file_times(
    directory: Path, tmp_path: Path, lost: bool
) -> None:
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        if not lost:
            with closing(sqlite3.connect(directory / "eventproc.db")) as connection:
                assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
        copy = copy_as_killed(directory, tmp_path / "copy")
    empty(copy / "eventproc.db-wal")
    changed_ns = (copy / "eventproc.db").stat().st_mtime_ns
    if not lost:
        changed_ns += 1  # in case that the checkpoint before the first commit has the same time
    for name in ("eventproc.db", "log.record"):
        os.utime(copy / name, ns=(changed_ns, changed_ns))
    if lost:
        with pytest.raises(StoreUnusable, match="with the last commits, is empty"):
            await rows(copy)
    else:
        assert await rows(copy) == ["a"]


@pytest.mark.linux
async def test_a_log_lost_after_a_checkpoint_is_missed_in_the_same_step_of_file_times(
    directory: Path, tmp_path: Path
) -> None:
    file = directory / "eventproc.db"
    async with open_world("file", directory) as world:
        await world.db.write(insert("a"))
        before = file.stat()
        for name in ("b" * 5_000_000, "c"):  # more than the bytes after which a checkpoint runs
            await world.db.write(insert(name))
        assert file.stat().st_size > before.st_size
        copy = copy_as_killed(directory, tmp_path / "copy")
    empty(copy / "eventproc.db-wal")
    changed_ns = (copy / "eventproc.db").stat().st_mtime_ns
    assert changed_ns != before.st_mtime_ns
    os.utime(copy / "log.record", ns=(changed_ns, changed_ns))
    with pytest.raises(StoreUnusable, match="with the last commits, is empty"):
        await rows(copy)


def test_a_log_that_began_again_has_everything_recorded_and_another_log_does_not() -> None:
    needed = LogEnd(5, (2**32 - 1, 7))
    assert LogEnd(5, needed.salts).covers(needed)
    assert not LogEnd(4, needed.salts).covers(needed)
    assert LogEnd(0, (0, 8)).covers(needed)
    assert LogEnd(3, (9, 8)).covers(needed)
    assert not LogEnd(9, (2**32 - 1, 8)).covers(needed)
    assert not LogEnd(9, (2**32 - 2, 8)).covers(needed)
    assert not LogEnd(0, (0, 0)).covers(needed)
