"""Metrics of the streaming queries of a driver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.tidy.source import ROOT

PATIENCE_S = 120


def test_a_driver_exports_the_batch_and_the_lag_of_its_queries(path: Path) -> None:
    command = [sys.executable, "-m", "tests.spark.measured_driver", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    points = {
        metric["name"]: metric["data"]["data_points"]
        for resource in json.loads(done.stdout)["resource_metrics"]
        for scope in resource["scope_metrics"]
        for metric in scope["metrics"]
        if metric["name"].startswith("eventproc.query.")
    }
    assert {each["attributes"]["eventproc.query"] for found in points.values() for each in found} == {"copy"}
    values = {name: [each["value"] for each in found] for name, found in points.items()}
    assert values.pop("eventproc.query.batch") in ([0], [1]), "a trigger that finds nothing has a number, too"
    assert values == {"eventproc.query.lag_events": [2], "eventproc.query.lag_bytes": [2 * 9]}
