"""A slice of `make torture-objects`: the same faults and checks, without Spark."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.support.postgres import Server
from tests.support.s3_server import S3Server, s3 as s3, s3_process as s3_process
from tests.torture.object_failures import ObjectFailures

FAILURES, STEPS = 5, 1


@pytest.mark.parametrize("form", ["directory", "server"])
def test_failing_object_storage_loses_no_event_and_shows_no_half_of_a_publication(
    request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server, form: str
) -> None:
    server: Server | None = request.getfixturevalue("server") if form == "server" else None
    torture = ObjectFailures(tmp_path / "data", s3, seed=1, server=server)
    assert "all checks passed" in anyio.run(torture.run, FAILURES, STEPS)
