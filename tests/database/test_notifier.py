"""A notification wakes all other instances, and failures of other instances do not affect the notifier."""

from __future__ import annotations

import os
import select
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventproc.base.clock import SystemClock
from eventproc.store.database.instances import DIRECTORY, Instance
from eventproc.store.database.wake_ups import CommitNotifier, drain
from tests.database.support import LaterClock, files_at_most
from tests.support.child_process import ChildProcess, run

CLOCK = SystemClock()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Instance]:
    instance = Instance.create(tmp_path, CLOCK)
    yield instance
    instance.close()


@contextmanager
def notifying(directory: Path, own: Instance, clock: SystemClock = CLOCK) -> Iterator[CommitNotifier]:
    notifier = CommitNotifier(directory, own.id, clock)
    yield notifier
    notifier.close()


def notified(instance: Instance) -> bool:
    return bool(select.select([instance.fifo_fd], [], [], 0)[0]) and drain(instance.fifo_fd)


def test_all_other_instances_are_notified(tmp_path: Path, own: Instance) -> None:
    others = [Instance.create(tmp_path, CLOCK) for _ in range(3)]
    with notifying(tmp_path, own) as notifier:
        notifier.notify()
        notifier.notify()
        assert [notified(other) for other in others] == [True] * 3
        assert not any(notified(instance) for instance in [own, *others])
    for other in others:
        other.close()


@pytest.mark.parametrize("clock", [CLOCK, LaterClock()], ids=["just changed", "settled"])
def test_later_instances_are_notified_and_closed_ones_are_not(
    tmp_path: Path, own: Instance, clock: SystemClock
) -> None:
    with notifying(tmp_path, own, clock) as notifier:
        notifier.notify()
        late = Instance.create(tmp_path, CLOCK)
        # A file system may give both changes the same time, which another test covers.
        os.utime(tmp_path / "instances", (0, 1000))
        notifier.notify()
        assert notified(late)
        assert len(notifier._fifos) == 1
        late.close()
        notifier.notify()
        assert notifier._fifos == {}


def test_an_instance_created_within_the_file_time_of_the_last_scan_is_found(
    tmp_path: Path, own: Instance
) -> None:
    home = tmp_path / "instances"
    with notifying(tmp_path, own) as notifier:
        stamp = home.stat().st_mtime_ns
        notifier.notify()
        late = Instance.create(tmp_path, CLOCK)
        os.utime(home, ns=(stamp, stamp))
        notifier.notify()
        assert notified(late)
    late.close()


def test_a_full_fifo_still_wakes_its_instance_and_blocks_no_caller(tmp_path: Path, own: Instance) -> None:
    full, other = Instance.create(tmp_path, CLOCK), Instance.create(tmp_path, CLOCK)
    with notifying(tmp_path, own) as notifier:
        filler = os.open(tmp_path / "instances" / f"{full.id}.fifo", os.O_WRONLY | os.O_NONBLOCK)
        assert os.write(filler, bytes(1_000_000)) < 1_000_000
        os.close(filler)
        notifier.notify()
        assert notified(full)
        assert notified(other)
    full.close()
    other.close()


@pytest.mark.subprocess
def test_a_dead_instance_does_not_kill_a_notifier_with_default_sigpipe(tmp_path: Path, own: Instance) -> None:
    notify_the_dead = """
        import signal, sys
        from pathlib import Path
        from eventproc.base.clock import SystemClock
        from eventproc.store.database.wake_ups import CommitNotifier
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        notifier = CommitNotifier(Path(sys.argv[1]), "unknown", SystemClock())
        print("ready", flush=True)
        for line in sys.stdin:
            notifier.notify()
            print("notified", len(notifier._fifos), flush=True)
    """
    die = """
        import os, sys
        from pathlib import Path
        from eventproc.base.clock import SystemClock
        from eventproc.store.database.instances import Instance
        Instance.create(Path(sys.argv[1]), SystemClock())
        print("alive", flush=True)
        sys.stdin.read()
    """
    with ChildProcess.running(notify_the_dead, tmp_path) as notifier:
        assert notifier.hear() == "ready"
        with ChildProcess.running(die, tmp_path) as dying:
            assert dying.hear() == "alive"
            assert notifier.ask("notify") == "notified 2"
        assert notifier.ask("notify") == "notified 2"
        assert notified(own)


def test_draining_an_empty_fifo_returns_immediately(own: Instance) -> None:
    assert not drain(own.fifo_fd)


@pytest.mark.subprocess
def test_a_forked_child_keeps_no_fifo_open(tmp_path: Path) -> None:
    printed = run(
        """
        import os, sys
        from pathlib import Path
        from eventproc.base.clock import SystemClock
        from eventproc.store.database.wake_ups import CommitNotifier
        from eventproc.store.database.instances import Instance
        own, other = (Instance.create(Path(sys.argv[1]), SystemClock()) for _ in range(2))
        notifier = CommitNotifier(Path(sys.argv[1]), own.id, SystemClock())
        notifier.notify()
        if os.fork() == 0:
            names = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
            print(sum(name.endswith((".fifo", ".lock")) for name in names), flush=True)
        else:
            os.wait()
        """,
        tmp_path,
    )
    assert printed == "0"


def test_a_fifo_is_notified_once_descriptors_are_available_again(tmp_path: Path, own: Instance) -> None:
    other = Instance.create(tmp_path, CLOCK)
    with notifying(tmp_path, own, LaterClock()) as notifier:
        with files_at_most(0):
            notifier.notify()
        assert not notified(other)
        notifier.notify()
        assert notified(other)
    other.close()


def test_notify_works_after_all_instance_files_were_removed(tmp_path: Path, own: Instance) -> None:
    with notifying(tmp_path, own) as notifier:
        notifier.notify()
        shutil.rmtree(tmp_path / DIRECTORY)
        notifier.notify()
        (tmp_path / DIRECTORY).mkdir()
        late = Instance.create(tmp_path, CLOCK)
        notifier.notify()
        assert notified(late)
    late.close()
