"""Processes of an ingestion with Spark that are killed and suspended: every event is in the tables once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.spark_kills import KillsSite, run


@pytest.mark.torture
def test_every_event_is_in_both_tables_once_although_every_kind_of_process_was_killed(tmp_path: Path) -> None:
    report = run(KillsSite(tmp_path), ["writer", "host", "python", "jvm", "worker"], seed=3)
    assert report.kills.total() == 5
    assert 0 < report.acknowledged <= report.stored
    assert report.unparseable > 0
