"""Several processes on one directory, killed, stopped and disturbed: what was acknowledged is there, once."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from tests.support.child_process import ChildProcess
from tests.torture.conftest import TortureProcesses, hear, wait_dead

WORKERS = 3
STEPS = 14
FORKS = 60


class Conductor:
    """Does to a group of workers what a seed says."""

    def __init__(self, processes: TortureProcesses, seed: int, cleanup: ExitStack) -> None:
        self._arena = processes
        self._random = random.Random(seed)
        self._cleanup = cleanup
        self._names = iter(f"writer-{number}" for number in range(10_000))
        self.workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> ChildProcess:
        worker = self._cleanup.enter_context(self._arena.start(next(self._names)))
        hear(worker, "rows")
        return worker

    def step(self) -> None:
        action = self._random.choice(
            [self.kill, self.stop_and_resume, self.look, self.read, self.second_library, self.fork]
        )
        action(self._random.choice(self.workers))
        hear(self._random.choice(self.workers), "rows")

    def kill(self, worker: ChildProcess) -> None:
        wait_dead(worker)
        self.workers[self.workers.index(worker)] = self._start()

    def stop_and_resume(self, worker: ChildProcess) -> None:
        worker.stop()
        self._arena.look_from_outside()
        worker.resume()

    def look(self, _: ChildProcess) -> None:
        self._arena.look_from_outside()

    def read(self, worker: ChildProcess) -> None:
        self._command(worker, "read")

    def second_library(self, worker: ChildProcess) -> None:
        self._command(worker, "library")

    def fork(self, worker: ChildProcess) -> None:
        self._command(worker, f"fork {next(self._names)}")

    def _command(self, worker: ChildProcess, line: str) -> None:
        worker.say(line)
        hear(worker, "done")

    def finish(self) -> None:
        for worker in self.workers:
            assert worker.finish() == 0


@pytest.mark.hunt(seeds=2)
def test_what_was_acknowledged_is_there_exactly_once(processes: TortureProcesses, seed: int) -> None:
    with ExitStack() as cleanup:
        conductor = Conductor(processes, seed, cleanup)
        for _ in range(STEPS):
            conductor.step()
        conductor.finish()
    processes.check()
    assert len(processes.outcomes("acked")) > WORKERS * 15


def test_all_are_killed_at_once(processes: TortureProcesses) -> None:
    for life in range(3):
        with ExitStack() as cleanup:
            workers = [
                cleanup.enter_context(processes.start(f"{life}-{number}")) for number in range(WORKERS)
            ]
            for worker in workers:
                hear(worker, "rows")
            for worker in workers:
                wait_dead(worker)
        processes.check()


def test_each_forked_child_of_a_busy_process_can_open_the_directory(processes: TortureProcesses) -> None:
    with processes.start("parent") as parent:
        for number in range(FORKS):
            parent.say(f"fork child-{number}")
            hear(parent, "done")
        assert parent.finish() == 0
    processes.check()
    forked = {name for name, _ in processes.outcomes("acked")} - {"parent"}
    assert forked == {f"child-{number}" for number in range(FORKS)}
