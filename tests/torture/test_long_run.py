"""A slice of `make torture`: the same instances, disturbances and checks, for some seconds."""

from __future__ import annotations

from pathlib import Path

from tests.torture.long_run import LongTorture

SLICE_S = 4
STREAMS = 30


def test_four_disturbed_instances_keep_every_promise_on_many_streams(tmp_path: Path) -> None:
    torture = LongTorture(tmp_path, seed=0, streams=STREAMS)
    assert "all checks passed" in torture.run(SLICE_S)
