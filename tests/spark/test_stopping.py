"""Stopping Spark while threads, handlers, batches and jobs of an attached session never end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

PATIENCE_S = 120


@pytest.mark.acceptance("Q18")
def test_stopping_spark_ends_what_never_ends(path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.stopping_driver", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("\n")
    assert {"thread Closed", "batch Closed", "handler Closed", "directory Closed", "stopped"} <= set(said), (
        said
    )
    assert any(line.startswith("job ") for line in said), "the job was cancelled"
    assert "its batch does not end, so it is interrupted" in done.stderr
