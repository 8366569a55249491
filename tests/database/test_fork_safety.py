"""Forks: a child keeps no lock of its parent, and handles of the parent raise in the child."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventproc.store.database.locks import close_private, open_private
from tests.support.child_process import run

pytestmark = pytest.mark.subprocess


def test_a_forked_child_closes_private_descriptors_and_no_other(tmp_path: Path) -> None:
    printed = run(
        """
        import os, sys
        from eventproc.store.database.locks import ProcessBound, close_private, open_private, when_forked
        private, common = open_private(sys.argv[1], os.O_RDONLY), os.open(sys.argv[1], os.O_RDONLY)
        when_forked(lambda: print("forget", flush=True))
        if os.fork() == 0:
            os.fstat(common)
            reused = os.open(sys.argv[1], os.O_RDONLY)
            assert reused == private, "it was not closed"
            close_private(private)  # must not close the descriptor of another owner
            os.fstat(reused)
            print("good", flush=True)
        else:
            assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
            os.fstat(private)
        """,
        __file__,
    )
    assert printed.split() == ["forget", "good"]


def test_private_descriptors_are_closed_once_and_not_inherited_by_programs(tmp_path: Path) -> None:
    private = open_private(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert not os.get_inheritable(private)
    close_private(private)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(private)
    close_private(private)


def test_forks_while_another_thread_opens_and_closes_leak_no_descriptor(tmp_path: Path) -> None:
    # A leak would be a descriptor that is open but not yet, or no longer, registered.
    printed = run(
        """
        import os, sys, threading
        from eventproc.store.database.locks import ProcessBound, close_private, open_private, when_forked
        path = sys.argv[1]
        ended = threading.Event()

        def churn():
            while not ended.is_set():
                close_private(open_private(path, os.O_RDWR | os.O_CREAT))

        def leaked():
            return sum(os.path.realpath(f"/proc/self/fd/{name}") == path for name in os.listdir("/proc/self/fd"))

        thread = threading.Thread(target=churn)
        thread.start()
        leaks = 0
        for _ in range(200):
            if (child := os.fork()) == 0:
                os._exit(leaked())
            leaks += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ended.set()
        thread.join()
        print(leaks)
        """,
        tmp_path / "file",
    )
    assert printed == "0"


def test_a_fork_waits_for_a_thread_that_is_inside_sqlite(tmp_path: Path) -> None:
    printed = run(
        """
        import os, sys, threading
        from pathlib import Path
        from eventproc.base.clock import SystemClock
        from eventproc.store.database.locks import WriteLock
        lock = WriteLock(Path(sys.argv[1]), SystemClock())
        inside, steps = threading.Event(), []

        def write():
            lock.acquire()
            inside.set()
            while not fork_begun.is_set():
                pass
            steps.append("written")
            lock.release()

        # Registered later, so it runs before the hook that waits.
        fork_begun = threading.Event()
        os.register_at_fork(before=fork_begun.set)
        thread = threading.Thread(target=write)
        thread.start()
        inside.wait()
        if (child := os.fork()) == 0:
            print(*steps, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
        """,
        tmp_path / "write.lock",
    )
    assert printed == "written"


def test_a_fork_does_not_deadlock_with_a_thread_that_needs_two_blockers(tmp_path: Path) -> None:
    # A checkpoint inside write.lock does. In every order of entering, some locks come before the first one.
    printed = run(
        """
        import os, signal, threading
        from eventproc.store.database.locks import ForkBlocker
        signal.alarm(20)
        first, others = ForkBlocker(), [ForkBlocker() for _ in range(30)]
        inside, fork_begun = threading.Event(), threading.Event()

        def work():
            with first:
                inside.set()
                fork_begun.wait()
                asleep = 0
                while asleep < 1000:  # the fork waits for `first` and has entered the ones before it
                    with open(f"/proc/self/task/{os.getpid()}/stat") as stat:
                        asleep = asleep + 1 if stat.read().rpartition(")")[2].split()[0] == "S" else 0
                for other in others:
                    with other:
                        pass

        os.register_at_fork(before=fork_begun.set)
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
        if (child := os.fork()) == 0:
            print("forked", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        thread.join()
        """
    )
    assert printed == "forked"
