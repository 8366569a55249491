"""A driver with an attached directory on a standalone master, whose two workers read and write chunk files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eventproc.blocking import open_blocking
from tests.spark.cluster import standalone_cluster
from tests.spark.cluster_worker import EVENTS, OUT
from tests.tidy.source import ROOT


@pytest.mark.torture
@pytest.mark.acceptance("Q19")
def test_executors_of_a_cluster_read_and_write_and_stopping_ends_in_order(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with standalone_cluster(tmp_path, workers=2) as master:
        command = [
            sys.executable,
            "-m",
            "tests.spark.cluster_worker",
            master,
            str(data),
            str(tmp_path / "log"),
        ]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {"executors": 2, "seen": list(range(EVENTS))}
    with open_blocking(data) as ep, ep.stream(OUT).reader() as reader:
        written = [event.payload for event in reader.until(ep.stream(OUT).tail())]
    assert sorted(written) == [b"%06d" % each for each in range(EVENTS)]
