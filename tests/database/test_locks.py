"""The lock files between real processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventproc.base.clock import SystemClock
from eventproc.base.kernel import lock_holders
from eventproc.store.database.locks import FormatLock, LockHolder, TryLock, WriteLock
from eventproc.store.model.errors import DirectoryInUse
from tests.support.child_process import ChildProcess

pytestmark = pytest.mark.subprocess

CLOCK = SystemClock()

PEER = """
    import sys
    from pathlib import Path
    from eventproc.base.clock import SystemClock
    from eventproc.store.database.locks import FormatLock, TryLock, WriteLock
    from eventproc.store.model.errors import DirectoryInUse
    path = Path(sys.argv[2])
    lock = {"write": lambda: WriteLock(path, SystemClock()), "format": lambda: FormatLock(path),
            "try": lambda: TryLock(path)}[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            print(getattr(lock, name)(*map(int, arguments)), flush=True)
        except DirectoryInUse as why:
            print("in use by", *why.pids, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.lock"


@contextmanager
def peer(kind: str, path: Path) -> Iterator[ChildProcess]:
    with ChildProcess.running(PEER, kind, path) as child:
        assert child.hear() == "ready"
        yield child


def test_the_holder_of_write_lock_is_known_only_while_it_holds_the_lock(path: Path) -> None:
    lock = WriteLock(path, CLOCK)
    with peer("write", path) as other:
        assert lock.holder() is None
        before_ms = CLOCK.monotonic_ms()
        other.ask("acquire")
        holder = lock.holder()
        assert holder is not None
        assert holder.pid == other.pid
        assert before_ms <= holder.since_ms <= CLOCK.monotonic_ms()
        other.ask("release")
        assert lock.holder() is None
    lock.close()


def test_a_stopped_holder_is_named_and_a_killed_one_releases_the_lock(path: Path) -> None:
    lock = WriteLock(path, CLOCK)
    with peer("write", path) as other:
        other.ask("acquire")
        other.stop()
        acquired = threading.Event()
        inside: list[LockHolder | None] = []

        def wait_for_it() -> None:
            lock.acquire()
            inside.append(lock.holder())
            acquired.set()
            lock.release()

        thread = threading.Thread(target=wait_for_it)
        thread.start()
        holder = lock.holder()
        assert holder is not None
        assert holder.pid == other.pid
        assert not acquired.is_set()
        other.kill()
        assert acquired.wait(60)
        thread.join()
    assert [holder and holder.pid for holder in inside] == [os.getpid()]
    lock.close()


@pytest.mark.linux
def test_a_holder_stopped_before_writing_its_record_is_named(path: Path) -> None:
    before, lock = WriteLock(path, CLOCK), WriteLock(path, CLOCK)
    before.acquire()
    before.release()
    silent = """
        import fcntl, os, sys
        lock = os.open(sys.argv[1], os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        print("ready", flush=True)
        sys.stdin.read()
    """
    with ChildProcess.running(silent, path) as other:
        assert other.hear() == "ready"
        holder = lock.holder()
        assert holder is not None
        assert holder.pid == other.pid
    lock.close()
    before.close()


def test_two_handles_of_one_process_exclude_each_other(path: Path) -> None:
    first, second = WriteLock(path, CLOCK), WriteLock(path, CLOCK)
    inside: list[str] = []
    first.acquire()

    def follow() -> None:
        second.acquire()
        inside.append("second")
        second.release()

    thread = threading.Thread(target=follow)
    thread.start()
    inside.append("first")
    first.release()
    thread.join()
    assert inside == ["first", "second"]
    first.close()
    second.close()


def test_the_record_of_a_shorter_pid_overwrites_a_longer_one(path: Path) -> None:
    path.write_bytes(b"4194304 18446744073709551615".ljust(47) + b"\n")
    lock = WriteLock(path, CLOCK)
    lock.acquire()
    assert isinstance(lock.holder(), LockHolder)
    assert path.stat().st_size == 48
    lock.close()


@pytest.mark.linux
def test_openers_share_format_lock_and_a_migration_names_their_pids(path: Path) -> None:
    lock = FormatLock(path)
    with peer("format", path) as first, peer("format", path) as second:
        lock.acquire_exclusive()
        assert first.ask("acquire_shared 0").startswith("in use by")
        lock.downgrade()
        assert first.ask("acquire_shared") == "None"
        assert second.ask("acquire_shared") == "None"
        lock.acquire_shared()
        with pytest.raises(DirectoryInUse) as caught:
            lock.acquire_exclusive(0)
        assert caught.value.pids == tuple(sorted([first.pid, second.pid]))
        assert f"is open in process {min(first.pid, second.pid)}, " in str(caught.value)
        first.kill()
        second.kill()
        lock.acquire_exclusive(0)
    lock.close()


@pytest.mark.linux
def test_a_refused_migration_holds_nothing(path: Path) -> None:
    lock = FormatLock(path)
    with peer("format", path) as other:
        other.ask("acquire_shared")
        lock.acquire_shared()
        with pytest.raises(DirectoryInUse):
            lock.acquire_exclusive(0)
        assert lock_holders(path) == (other.pid,)
    lock.close()


def test_format_lock_is_removed_only_by_its_creator_and_only_if_unused(path: Path) -> None:
    lock = FormatLock(path)
    assert lock.made
    lock.acquire_shared()
    with peer("format", path) as other:
        other.ask("acquire_shared")
        lock.remove_unused()
        assert path.exists()
        other.kill()
    lock.remove_unused()
    assert not path.exists()
    lock.close()


def test_try_lock_has_one_holder_and_is_free_after_its_death(path: Path) -> None:
    lock = TryLock(path)
    with peer("try", path) as other:
        assert other.ask("try_acquire") == "True"
        assert other.ask("try_acquire") == "True"
        assert not lock.try_acquire()
        assert not lock.held
        other.ask("release")
        assert lock.try_acquire()
        assert other.ask("try_acquire") == "False"
        lock.release()
        assert other.ask("try_acquire") == "True"
        other.kill()
        assert lock.try_acquire()
    lock.close()
    assert lock_holders(path) == ()


FORKING = """
    import os, sys
    from pathlib import Path
    from eventproc.base.clock import SystemClock
    from eventproc.store.database.locks import FormatLock, TryLock, WriteLock
    from eventproc.store.model.errors import ForkedError
    write, format, once = [Path(argument) for argument in sys.argv[1:]]
    locks = [WriteLock(write, SystemClock()), FormatLock(format), TryLock(once)]
    locks[0].acquire()
    locks[1].acquire_shared()
    locks[2].try_acquire()
    if os.fork() == 0:
        for use in (locks[0].acquire, locks[1].acquire_shared, locks[2].try_acquire):
            try:
                use()
            except ForkedError:
                continue
            print("used in the child", flush=True)
        locks[0].release()
        locks[2].release()
        for lock in locks:
            lock.close()
        print("forked", flush=True)
        sys.stdin.read()
    else:
        os.wait()
"""


@pytest.mark.linux
def test_a_forked_child_neither_releases_nor_keeps_its_parents_locks(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("write.lock", "format.lock", "controller.lock")]
    with ChildProcess.running(FORKING, *paths) as parent:
        assert parent.hear() == "forked"
        assert [lock_holders(path) for path in paths] == [(parent.pid,)] * 3
        parent.kill()  # the child lives on
        assert [lock_holders(path) for path in paths] == [()] * 3
