"""An S3 server for the tests of object storage, one for each process that runs tests."""

from __future__ import annotations

from tests.support.s3_server import s3 as s3, s3_process as s3_process, url as url  # fixtures
