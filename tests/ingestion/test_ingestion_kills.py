"""A slice of `make torture-ingestion`: the same processes and accounts, for a few kills."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.ingestion.ingestion_kills import IngestionKills


@pytest.mark.torture
def test_what_is_acknowledged_is_published_once_although_every_process_is_killed(tmp_path: Path) -> None:
    report = anyio.run(IngestionKills(tmp_path, kills=4, seed=3).run)
    assert report.kills >= 4
    assert report.events > 0
