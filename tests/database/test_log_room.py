"""The room behind the end of the log: zeros that synced commits overwrite, and that nobody takes for a commit."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from eventproc.store.database import Durability
from eventproc.store.database.checkpoint import AHEAD_BYTES, LOG_BYTES, LOG_BYTES_MIN, STEP_BYTES, LogRoom
from eventproc.store.database.connections import PAGE_BYTES
from eventproc.store.database.file_database import FileDatabase
from tests.database.support import MIGRATIONS, Failing, World, insert, open_database, open_world

LARGE = "x" * LOG_BYTES_MIN


def log_of(world: World) -> Path:
    assert world.db.path is not None
    return world.db.path / "eventproc.db-wal"


def frames_of(world: World) -> int:
    assert isinstance(world.db, FileDatabase)
    frames = world.db._writer._log.frames
    assert frames is not None
    return frames


def end_of(world: World) -> int:
    return 32 + frames_of(world) * (PAGE_BYTES + 24)


@asynccontextmanager
async def grown(directory: Path, durability: Durability = Durability.FSYNC) -> AsyncIterator[World]:
    """Open a directory, and write more than a log without room has."""
    async with open_database(directory, migrations=MIGRATIONS, durability=durability) as db:
        await db.write(insert(LARGE))
        await db.write(insert("after"))
        yield World(db, Failing())


@pytest.mark.linux
async def test_a_log_of_synced_commits_gets_zeros_behind_its_end(directory: Path) -> None:
    async with grown(directory) as world:
        behind = log_of(world).read_bytes()[end_of(world) :]
        assert len(behind) >= AHEAD_BYTES
        assert not any(behind)


@pytest.mark.linux
async def test_commits_into_the_room_leave_the_length_of_the_file(directory: Path) -> None:
    async with grown(directory) as world:
        before = log_of(world).stat().st_size
        await world.db.write(insert("one more"))
        assert log_of(world).stat().st_size == before


@pytest.mark.linux
async def test_a_copy_with_zeros_behind_the_last_commit_has_all_commits(
    directory: Path, tmp_path: Path
) -> None:
    async with grown(directory) as world:
        killed = tmp_path / "killed"
        shutil.copytree(
            log_of(world).parent, killed, ignore=shutil.ignore_patterns("*-shm", "*.lock", "instances")
        )
        assert (killed / "eventproc.db-wal").stat().st_size > end_of(world)
    async with open_world("file", killed) as again:
        assert await again.names() == ["after", LARGE]


@pytest.mark.linux
async def test_a_log_without_synced_commits_gets_no_zeros(directory: Path) -> None:
    async with grown(directory, Durability.OS) as world:
        assert log_of(world).stat().st_size == end_of(world)


def frames(size_bytes: int) -> int:
    return size_bytes // (PAGE_BYTES + 24)


@pytest.fixture
def room(tmp_path: Path) -> LogRoom:
    path = tmp_path / "log"
    path.write_bytes(bytes(LOG_BYTES_MIN))
    return LogRoom(str(path), LOG_BYTES)


def size_of(room: LogRoom) -> int:
    return Path(room.path).stat().st_size


def test_a_small_log_gets_no_room(room: LogRoom) -> None:
    room.keep(frames(LOG_BYTES_MIN) - 1)
    room.keep(None)
    assert size_of(room) == LOG_BYTES_MIN


def test_a_log_that_a_checkpoint_is_due_for_gets_no_room(room: LogRoom) -> None:
    room.keep(frames(LOG_BYTES) + 1)
    assert size_of(room) == LOG_BYTES_MIN


def test_room_is_added_step_by_step_as_the_log_grows(room: LogRoom) -> None:
    sizes: list[int] = []
    for number in range(frames(LOG_BYTES_MIN) + 1, frames(3 * STEP_BYTES)):
        room.keep(number)
        sizes.append(size_of(room))
        assert sizes[-1] - number * (PAGE_BYTES + 24) >= AHEAD_BYTES
    assert len(set(sizes)) <= 4


def test_what_another_process_added_meanwhile_is_not_overwritten(room: LogRoom) -> None:
    room.keep(frames(LOG_BYTES_MIN) + 1)
    with open(room.path, "ab") as log:
        log.write(b"commit of another process")
    before = size_of(room)
    room.keep(frames(before))
    content = Path(room.path).read_bytes()
    assert content[:before].endswith(b"commit of another process")
    assert not any(content[before:])
    assert len(content) > before


def test_a_log_that_another_program_removed_is_not_made_again(room: LogRoom) -> None:
    Path(room.path).unlink()
    room.keep(frames(LOG_BYTES_MIN) + 1)
    assert not Path(room.path).exists()
