"""A cluster of Spark on two machines, for a store on a server: executors are killed while a driver works.

python -m tests.torture.cluster_machines CYCLES         `make torture-cluster CYCLES=n`

A machine is a network namespace with an address of its own. They reach the driver, the master and the object storage;
the server listens on a socket that only the driver's machine has. Needs root.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.spark.cluster import executors, standalone_cluster
from tests.spark.test_cluster import check_copying
from tests.support.postgres import running_server
from tests.support.s3_server import BUCKET, running_s3
from tests.system.protocol import say
from tests.torture.two_machines import MACHINES, SERVICES, cluster_network, machine_of

KILL_S: Final = 15
"""Pause between two deaths. Spark starts an executor in a third of it."""


@contextmanager
def dying_executors() -> Iterator[list[int]]:
    """Kill an executor now and then while the block runs. Gives their process ids."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(KILL_S):
            if found := executors():
                oldest = min(found, key=lambda each: each.create_time())
                oldest.kill()
                killed.append(oldest.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def main(cycles: str) -> None:
    with cluster_network(MACHINES), running_server() as server, running_s3(SERVICES) as s3:
        os.environ.update(s3.environment)
        machines = [machine_of(each) for each in MACHINES]
        for cycle in range(int(cycles)):
            with (
                tempfile.TemporaryDirectory() as folder,
                standalone_cluster(Path(folder), machines, host=SERVICES) as master,
                dying_executors() as killed,
            ):
                store = server.store(f"cluster_{cycle}"), f"s3://{BUCKET}/{cycle}"
                check_copying(Path(folder), *store, master=master, executors=None, host=SERVICES)
            say(f"{cycle}: every event and row once; {len(killed)} executors died")


if __name__ == "__main__":
    main(*sys.argv[1:])
