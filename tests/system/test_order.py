"""Several processes on one stream that is scaled meanwhile: nothing lost, nothing doubled, each key in its order."""

from __future__ import annotations

import pytest

import eventproc
from tests.support.child_process import ChildProcess
from tests.system.protocol import STREAM, check_rows
from tests.system.support import WorkerProcesses, hear

SCALES = 8


async def seal(ep: eventproc.Eventproc) -> None:
    await (await ep.stream(STREAM)).seal()


def followed(processes: WorkerProcesses, name: str) -> list[tuple[str | None, bytes]]:
    lines = (processes.journal / f"{name}.seen").read_bytes().splitlines()
    return [(key.decode(), payload) for key, _, payload in (line.partition(b" ") for line in lines)]


def end(*workers: ChildProcess) -> None:
    for worker in workers:
        assert worker.finish() == 0


@pytest.mark.hunt(seeds=2)
def test_two_write_and_one_follows_while_a_fourth_splits_and_merges(
    processes: WorkerProcesses, seed: int
) -> None:
    processes.found(durability="fsync" if seed % 2 else "os")
    with (
        processes.start("follow", "eve") as follower,
        processes.start("write", "ada") as ada,
        processes.start("write", "bob") as bob,
        processes.start("scale", seed, SCALES) as scaler,
    ):
        for number in range(SCALES):
            hear(follower, "seen")
            hear(scaler, f"scaled {number + 1}")
            hear(ada, "written")
            hear(bob, "written")
        end(ada, bob, scaler)
        processes.call(seal)
        hear(follower, "closed")
    written = processes.check()
    assert set(written) == {"ada", "bob"}
    assert check_rows(followed(processes, "eve"), processes.acked()) == written
