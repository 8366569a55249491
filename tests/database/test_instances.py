"""Liveness of instances: a death is visible immediately, and a live instance is never taken for dead."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventproc.base.clock import SystemClock
from eventproc.store.database.instances import Instance, is_alive, live_ids, pid_of, remove_dead
from tests.support.child_process import ChildProcess

CLOCK = SystemClock()

PEER = """
    import os, sys
    from pathlib import Path
    from eventproc.base.clock import SystemClock
    from eventproc.store.database.instances import Instance
    instance = Instance.create(Path(sys.argv[1]), SystemClock())
    if sys.argv[2:] == ["fork"] and os.fork() == 0:
        instance.close()  # an instance of the parent: does nothing
        os.write(1, b"forked\\n")  # in one write, because the parent writes simultaneously
        sys.stdin.read()
    os.write(1, instance.id.encode() + b"\\n")
    sys.stdin.read()
"""


@contextmanager
def peer(directory: Path) -> Iterator[tuple[ChildProcess, str]]:
    with ChildProcess.running(PEER, directory) as child:
        yield child, child.hear()


def files(directory: Path) -> set[str]:
    return {entry.name for entry in (directory / "instances").iterdir()}


@pytest.mark.subprocess
def test_an_instance_is_alive_until_its_process_dies_also_if_stopped(tmp_path: Path) -> None:
    with peer(tmp_path) as (process, instance_id):
        assert is_alive(tmp_path, instance_id)
        assert pid_of(tmp_path, instance_id) == process.pid
        process.stop()
        assert is_alive(tmp_path, instance_id)
        assert remove_dead(tmp_path) == []
        process.kill()
        assert not is_alive(tmp_path, instance_id)


@pytest.mark.subprocess
def test_live_ids_are_sorted_by_age_and_remove_dead_removes_the_others(tmp_path: Path) -> None:
    first = Instance.create(tmp_path, CLOCK)
    with peer(tmp_path) as (process, dead), peer(tmp_path) as (_, last):
        assert live_ids(tmp_path) == [first.id, dead, last]
        process.kill()
        assert live_ids(tmp_path) == [first.id, last]
        assert remove_dead(tmp_path) == [dead]
        assert remove_dead(tmp_path) == []
        assert files(tmp_path) == {
            f"{name}{suffix}" for name in (first.id, last) for suffix in (".lock", ".fifo")
        }
    first.close()
    assert not is_alive(tmp_path, first.id)


def test_close_leaves_nothing(tmp_path: Path) -> None:
    instance = Instance.create(tmp_path, CLOCK)
    instance.close()
    assert files(tmp_path) == set()
    assert live_ids(tmp_path) == []
    assert pid_of(tmp_path, instance.id) is None


def test_a_directory_without_instances_has_none(tmp_path: Path) -> None:
    assert live_ids(tmp_path) == remove_dead(tmp_path) == []
    assert not is_alive(tmp_path, "unknown")


@pytest.mark.subprocess
def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    with ChildProcess.running(PEER, tmp_path, "fork") as parent:
        instance_id = next(line for line in (parent.hear(), parent.hear()) if line != "forked")
        assert is_alive(tmp_path, instance_id)
        parent.kill()
        assert not is_alive(tmp_path, instance_id)


def test_remove_dead_removes_an_unfinished_instance(tmp_path: Path) -> None:
    home = tmp_path / "instances"
    home.mkdir()
    (home / "unlocked.new").touch()
    (home / "halfway.new").touch()
    os.mkfifo(home / "halfway.fifo")
    os.mkfifo(home / "fifo-only.fifo")
    assert remove_dead(tmp_path) == ["fifo-only", "halfway", "unlocked"]
    assert files(tmp_path) == set()


def test_remove_dead_keeps_an_instance_that_is_being_created(tmp_path: Path) -> None:
    home = tmp_path / "instances"
    home.mkdir()
    unfinished = os.open(home / "other.new", os.O_RDWR | os.O_CREAT)
    fcntl.flock(unfinished, fcntl.LOCK_EX)
    os.mkfifo(home / "other.fifo")
    assert remove_dead(tmp_path) == []
    assert files(tmp_path) == {"other.new", "other.fifo"}
    os.close(unfinished)


def test_concurrent_creation_and_removal_lose_no_live_instance(tmp_path: Path) -> None:
    (tmp_path / "instances").mkdir()
    ended = threading.Event()
    removed: list[str] = []

    def remove_dead_repeatedly() -> None:
        while not ended.is_set():
            removed.extend(remove_dead(tmp_path))

    removers = [threading.Thread(target=remove_dead_repeatedly) for _ in range(2)]
    for thread in removers:
        thread.start()
    try:
        for _ in range(200):
            created = Instance.create(tmp_path, CLOCK)
            assert is_alive(tmp_path, created.id)
            assert (tmp_path / "instances" / f"{created.id}.fifo").exists()
            assert created.id not in removed
            created.close()
    finally:
        ended.set()
        for thread in removers:
            thread.join()
