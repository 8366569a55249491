"""A program around us that opens, closes and forks without knowing us: every acknowledged event is there."""

from __future__ import annotations

from tests.support.child_process import ChildProcess
from tests.system.support import WorkerProcesses, hear

FORKS = 8

OUTSIDER = """
import sqlite3, sys, threading
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
turns = 0
while not ended.is_set():
    database = sqlite3.connect(sys.argv[1], timeout=30)
    database.execute("SELECT count(*) FROM extent").fetchall()
    database.close()
    turns += 1
print(f"turns {turns}", flush=True)
"""


def test_everything_at_once_loses_nothing(processes: WorkerProcesses) -> None:
    processes.found(durability="os")
    database = processes.directory / "eventproc.db"
    with (
        processes.start("disturbed", "parent") as parent,
        processes.start("write", "neighbour") as neighbour,
        processes.start("scale", 1, 1000) as scaler,
        ChildProcess.running(OUTSIDER, database) as outsider,
    ):
        for number in range(FORKS):
            parent.say(f"fork child-{number}")
            hear(parent, "forked")
            hear(neighbour, "written")
            hear(scaler, "scaled")
        scaler.kill()
        assert parent.finish() == 0
        assert neighbour.finish() == 0
        outsider.finish()
        assert int(hear(outsider, "turns").split()[1]) > FORKS
    written = processes.check()
    assert set(written) == {"parent", "neighbour", *(f"child-{number}" for number in range(FORKS))}


def test_the_last_one_to_leave_may_be_disturbed_and_killed(processes: WorkerProcesses) -> None:
    processes.found(durability="os")
    for life in range(2):
        with processes.start("disturbed", f"parent-{life}") as parent:
            parent.say(f"fork child-{life}")
            hear(parent, "forked")
            for _ in range(3):
                hear(parent, "written")
            parent.kill()
        processes.check()
