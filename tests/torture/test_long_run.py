"""A slice of `make torture`: the same instances, disturbances and checks, for some seconds."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.postgres import running_server
from tests.torture.long_run import LongTorture

SLICE_S = 4
STREAMS = 30


@pytest.mark.parametrize("form", ["directory", "server"])
def test_four_disturbed_instances_keep_every_promise_on_many_streams(tmp_path: Path, form: str) -> None:
    with running_server() if form == "server" else nullcontext() as server:
        torture = LongTorture(tmp_path, seed=0, streams=STREAMS, server=server)
        assert "all checks passed" in torture.run(SLICE_S)
