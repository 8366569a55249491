"""An S3 server for the tests of object storage, one for each process that runs tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventproc.store.clock import SystemClock, new_id
from tests.support.s3_server import BUCKET, S3Server, running_s3


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """An S3 server, whose credentials are in the environment."""
    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    s3_process.faults.clear()
    s3_process.requests.clear()
    return s3_process


@pytest.fixture
def url(s3: S3Server) -> str:
    """A place that no other test uses."""
    return f"s3://{BUCKET}/{new_id(SystemClock())}"
