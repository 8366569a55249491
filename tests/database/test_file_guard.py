"""The guard of the database file: acknowledged commits survive other openers and closers of the file."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from eventproc.base.clock import SystemClock
from eventproc.store.database import guard
from eventproc.store.database.guard import FILES, FileGuard, ReplacedFileDetector
from eventproc.store.model.errors import DatabaseStopped
from tests.database.support import LaterClock
from tests.support.child_process import ChildProcess, run

WRITER = """
    import os, sqlite3, sys
    from pathlib import Path
    from eventproc.base.clock import SystemClock
    from eventproc.store.database.guard import FileGuard, ReplacedFileDetector
    from eventproc.store.model.errors import DatabaseStopped
    path, guarded = Path(sys.argv[1]), sys.argv[2] == "guarded"
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = wal")
    database.execute("PRAGMA wal_autocheckpoint = 0")
    database.execute("CREATE TABLE IF NOT EXISTS row (number INTEGER)")
    guard = FileGuard.hold(path) if guarded else None
    alarm = ReplacedFileDetector(path, SystemClock())

    def write():
        for number in range(100):
            database.execute("INSERT INTO row VALUES (?)", (number,))

    def read_whole(suffix):
        with open(f"{path}{suffix}", "rb") as file:
            file.read()

    def second_library():
        import apsw
        other = apsw.Connection(str(path))
        other.execute("SELECT count(*) FROM row").fetchall()
        other.close()

    def check():
        try:
            alarm.check()
        except DatabaseStopped as why:
            return why.reason

    commands = {
        "write": write,
        "read database": lambda: read_whole(""),
        "read shm": lambda: read_whole("-shm"),
        "second library": second_library,
        "check": check,
    }
    print("ready", flush=True)
    for line in sys.stdin:
        print(commands[line.strip()](), flush=True)
"""

OUTSIDER = """
    import sqlite3, sys
    database = sqlite3.connect(sys.argv[1])
    print(database.execute("SELECT count(*) FROM row").fetchone()[0])
    database.close()
"""

DISTURBANCES = [["read database"], ["read shm", "read database"], ["second library"]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "eventproc.db"


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE IF NOT EXISTS row (number INTEGER)")
        yield connection


@contextmanager
def writer(path: Path, kind: str) -> Iterator[ChildProcess]:
    with ChildProcess.running(WRITER, path, kind) as child:
        assert child.hear() == "ready"
        yield child


def ofd_locks(path: Path) -> list[tuple[str, int, int]]:
    """Return (kind, first, last byte) of the open-file-description locks on `path`, as the kernel lists them."""
    inode = str(path.stat().st_ino)
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    mine = [words for words in lines if words[1] == "OFDLCK" and words[5].endswith(f":{inode}")]
    return sorted((words[3], int(words[6]), int(words[7])) for words in mine)


def posix_locks(path: Path) -> int:
    """Return how many locks of connections of this process the kernel lists on `path`."""
    mine = f" {os.getpid()} ", f":{path.stat().st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return sum(" POSIX " in line and all(each in line for each in mine) for line in lines)


def descriptors_of(path: Path) -> int:
    return sum(os.path.realpath(entry) == str(path.resolve()) for entry in Path("/proc/self/fd").iterdir())


@pytest.mark.linux
@pytest.mark.subprocess
@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=", ".join)
@pytest.mark.parametrize("kind", ["guarded", "bare"])
def test_commits_survive_other_openers_and_closers_of_the_database(
    path: Path, kind: str, disturbance: list[str]
) -> None:
    with writer(path, kind) as process:
        process.ask("write")
        for step in disturbance:
            process.ask(step)
        run(OUTSIDER, path)
        process.ask("write")
        alarm = process.ask("check")
        process.kill()
    found = int(run(OUTSIDER, path))
    if kind == "guarded":
        assert (found, alarm) == (200, "None")
    else:
        # Without the guard they are lost. If this ever passes, SQLite no longer needs the guard.
        assert found == 100
        assert "db-wal was removed" in alarm or "db-wal was replaced" in alarm


@pytest.mark.linux
def test_the_guard_locks_the_bytes_that_a_last_closer_needs(path: Path) -> None:
    with connected(path):
        held = FileGuard.hold(path)
        assert held.active
        assert ofd_locks(path) == [("READ", 0x40000002, 0x40000002 + 509)]
        assert ofd_locks(Path(f"{path}-shm")) == [("READ", 128, 128)]
    held.release()
    assert ofd_locks(path) == []


@pytest.mark.subprocess
def test_the_guard_disturbs_no_one(path: Path) -> None:
    with connected(path) as connection:
        held = FileGuard.hold(path)
        connection.execute("INSERT INTO row VALUES (1)")
        printed = run(
            """
            import sqlite3, sys
            database = sqlite3.connect(sys.argv[1], isolation_level=None)
            database.execute("INSERT INTO row VALUES (2)")
            print(database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone())
            database.execute("VACUUM")
            print(database.execute("PRAGMA integrity_check").fetchone())
            """,
            path,
        )
        assert printed.splitlines() == ["(0, 0, 0)", "('ok',)"]
        assert connection.execute("SELECT number FROM row ORDER BY 1").fetchall() == [(1,), (2,)]
    held.release()


@pytest.mark.linux
def test_a_second_handle_shares_the_descriptors_and_may_outlive_the_first(path: Path) -> None:
    with connected(path):
        first = FileGuard.hold(path)
        before = descriptors_of(path)
        with connected(path):
            second = FileGuard.hold(path)
            assert descriptors_of(path) == before + 1, "more than the second connection's own"
            first.release()
            assert ofd_locks(path)
        second.release()
        assert not ofd_locks(path)


@pytest.mark.linux
def test_release_keeps_the_locks_of_a_foreign_connection(path: Path) -> None:
    def posix_locks() -> int:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        inode = str(path.stat().st_ino)
        own = [words for words in lines if words[1:2] == ["POSIX"] and words[4] == str(os.getpid())]
        return sum(words[5].endswith(f":{inode}") for words in own)

    with connected(path) as stranger:
        stranger.execute("SELECT * FROM row").fetchall()
        with connected(path):
            held = FileGuard.hold(path)
        held.release()
        assert posix_locks() == 1, "closing our descriptor disarmed a connection of this process"
        again = FileGuard.hold(path)
        assert ofd_locks(path)
    again.release()
    assert descriptors_of(path) == 0


@pytest.mark.linux
def test_kept_descriptors_switch_to_the_next_shm(path: Path) -> None:
    with connected(path):
        held = FileGuard.hold(path)
        stranger = os.open(path, os.O_RDONLY)
    held.release()
    before = Path(f"{path}-shm").stat().st_ino
    with connected(path):
        pass  # the last connection without a guard removes -shm
    assert not Path(f"{path}-shm").exists()
    Path(f"{path}-new").touch()  # takes the freed inode
    with connected(path):
        assert Path(f"{path}-shm").stat().st_ino != before
        again = FileGuard.hold(path)
        assert ofd_locks(Path(f"{path}-shm")) == [("READ", 128, 128)]
        assert again.shm_fd is not None
        assert os.fstat(again.shm_fd).st_ino == Path(f"{path}-shm").stat().st_ino
    os.close(stranger)
    again.release()
    assert descriptors_of(path) == 0


@pytest.mark.linux
def test_a_failed_hold_leaves_no_share_behind(path: Path) -> None:
    with connected(path):
        Path(f"{path}-shm").rename(f"{path}-away")
        with pytest.raises(FileNotFoundError):
            FileGuard.hold(path)
        Path(f"{path}-away").rename(f"{path}-shm")
        held = FileGuard.hold(path)
        assert held.active
    held.release()
    assert held.shm_fd is None
    assert descriptors_of(path) == 0


FORKING = """
    import os, sqlite3, sys
    from pathlib import Path
    from eventproc.store.database.guard import FileGuard
    path = Path(sys.argv[1])
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = wal")
    database.execute("CREATE TABLE row (number INTEGER)")
    database.execute("INSERT INTO row VALUES (1)")
    guard = FileGuard.hold(path)
    if os.fork() == 0:
        guard.release()  # a handle of the parent does nothing here
        if sys.argv[2] == "closes":
            database.close()
        print("forked", flush=True)
        sys.stdin.read()
    else:
        os.wait()
"""


@pytest.mark.linux
@pytest.mark.subprocess
def test_a_forked_child_does_not_keep_the_guard_of_a_dead_parent(path: Path) -> None:
    with ChildProcess.running(FORKING, path, "stays") as parent:
        assert parent.hear() == "forked"
        assert ofd_locks(path)
        parent.kill()
        assert not ofd_locks(path)


@pytest.mark.linux
@pytest.mark.subprocess
def test_a_forked_child_that_closes_inherited_files_does_not_remove_the_wal(path: Path) -> None:
    with ChildProcess.running(FORKING, path, "closes") as parent:
        assert parent.hear() == "forked"
        assert Path(f"{path}-wal").stat().st_size > 0
        assert ofd_locks(path)


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a kernel that does not implement the locks."""

    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(guard, "_unsupported", set[tuple[int, int]]())


@pytest.mark.usefixtures("without_locks")
def test_a_kernel_without_the_locks_leaves_only_the_detector(path: Path) -> None:
    with connected(path):
        held = FileGuard.hold(path)
        assert not held.active
    held.release()


@pytest.mark.usefixtures("without_locks")
def test_without_kernel_locks_a_second_handle_drops_no_lock_of_the_first(path: Path) -> None:
    with connected(path):
        one = FileGuard.hold(path)
    with connected(path) as connection:
        connection.execute("SELECT * FROM row")
        before = posix_locks(path)
        two = FileGuard.hold(path)
        assert before == posix_locks(path) != 0
    two.release()
    one.release()


@pytest.mark.parametrize("suffix", FILES)
def test_the_detector_raises_only_after_a_file_was_replaced(path: Path, suffix: str) -> None:
    with connected(path) as connection:
        alarm = ReplacedFileDetector(path, SystemClock())
        connection.execute("INSERT INTO row VALUES (1)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        alarm.check()
        Path(f"{path}{suffix}").rename(f"{path}-away")
        with pytest.raises(DatabaseStopped, match=f"{path.name}{suffix} was removed by another program"):
            alarm.check()
        Path(f"{path}{suffix}").touch()
        with pytest.raises(DatabaseStopped, match=f"{path.name}{suffix} was replaced by another program"):
            alarm.check()


def test_the_detector_checks_the_files_only_after_directory_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    stat = os.stat

    def recording(what: str, **more: bool) -> os.stat_result:
        asked.append(what)
        return stat(what, **more)

    with connected(path) as connection:
        alarm = ReplacedFileDetector(path, LaterClock())
        alarm.check()
        monkeypatch.setattr(os, "stat", recording)
        for number in range(3):
            connection.execute("INSERT INTO row VALUES (?)", (number,))
            alarm.check()
        assert asked == [str(path.parent)] * 3
        changed_ns = stat(path.parent).st_ctime_ns
        while stat(path.parent).st_ctime_ns == changed_ns:  # such times come in steps
            path.with_name("another").touch()
            path.with_name("another").unlink()
        alarm.check()
        assert asked[3:] == [str(path.parent), str(path), f"{path}-wal", f"{path}-shm"]


def test_the_detector_does_not_trust_restored_times(path: Path) -> None:
    with connected(path):
        alarm = ReplacedFileDetector(path, LaterClock())
        alarm.check()
        before = path.parent.stat()
        while path.parent.stat().st_ctime_ns == before.st_ctime_ns:  # such times come in steps
            Path(f"{path}-wal").rename(f"{path}-wal-away")
            Path(f"{path}-wal").touch()
            os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(DatabaseStopped, match="db-wal was replaced by another program"):
            alarm.check()


def test_the_detector_reports_a_removed_directory(path: Path) -> None:
    with connected(path):
        alarm = ReplacedFileDetector(path, LaterClock())
        alarm.check()
        path.parent.rename(path.parent.with_name("elsewhere"))
        with pytest.raises(DatabaseStopped, match="was removed by another program"):
            alarm.check()


def test_the_detector_requires_a_wal(path: Path) -> None:
    path.touch()
    with pytest.raises(DatabaseStopped, match="is missing although the database is open"):
        ReplacedFileDetector(path, SystemClock())
