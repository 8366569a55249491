"""Workers that are killed while the stream splits and merges: every flight is published once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.ingestion_kills import run


@pytest.mark.torture
def test_flights_are_published_once_although_a_worker_and_a_host_were_killed(tmp_path: Path) -> None:
    report = run(tmp_path, kills=1, seed=3)
    assert report.different == 0
    assert report.flights == report.written
