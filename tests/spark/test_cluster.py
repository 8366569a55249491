"""A driver with an attached store, whose executors read and write chunk files only, here and on a standalone master."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eventproc.blocking import open_blocking
from tests.spark.cluster import standalone_cluster
from tests.spark.cluster_worker import EVENTS, OUT, SUNK
from tests.support.postgres import Server, server as server
from tests.support.s3_server import s3 as s3, s3_process as s3_process, url as url
from tests.tidy.source import ROOT


@pytest.mark.torture
@pytest.mark.acceptance("Q19")
def test_executors_of_a_cluster_read_and_write_and_stopping_ends_in_order(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        check_copying(tmp_path, str(tmp_path / "data"), master=master, executors=2)


@pytest.mark.torture
def test_executors_of_a_cluster_work_for_a_store_on_a_server(
    tmp_path: Path, server: Server, url: str
) -> None:
    with standalone_cluster(tmp_path) as master:
        check_copying(tmp_path, server.store("cluster"), url, master=master, executors=2)


@pytest.mark.subprocess
def test_driver_reads_and_writes_a_store_on_a_server(tmp_path: Path, server: Server, url: str) -> None:
    check_copying(tmp_path, server.store("driver"), url, master="local[2]", executors=1)


def check_copying(
    folder: Path, *store: str, master: str, executors: int | None, host: str | None = None
) -> None:
    """Let a driver copy a stream in the store, at an address and perhaps with a place for its files.

    executors: how many must have read; None: any. host: the address at which they reach the driver; None: its own.
    """
    address = store[0]
    command = [sys.executable, "-m", "tests.spark.cluster_worker"]
    arguments = [master, address, str(folder / "log"), *store[1:]]
    environment = os.environ if host is None else {**os.environ, "SPARK_LOCAL_IP": host}
    ended = subprocess.run(
        [*command, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["seen"] == list(range(EVENTS))
    assert executors in (None, said["executors"])
    with open_blocking(address) as ep:
        for name in (OUT, SUNK):
            with ep.stream(name).reader() as reader:
                written = [event.payload for event in reader.until(ep.stream(name).tail())]
            assert sorted(written) == [b"%06d" % each for each in range(EVENTS)]
