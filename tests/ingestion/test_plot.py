"""The history of a supervisor's lag, and the picture of it and of the table's files."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from eventproc.errors import InvalidArgument, NotFound, NotSupported
from eventproc.ingestion.memory import LAG_STEP_MS, LAGS_KEPT, LagSample, Memory
from eventproc.ingestion.plot import check_picture, draw
from eventproc.store.model.ingestion import TableFile
from tests.ingestion.support import Bench, spec_of


async def test_lag_is_remembered_from_the_first_run_on(bench: Bench) -> None:
    supervisor = await bench.start_supervisor(start_delay_ms=0, period_ms=LAG_STEP_MS // 3)
    for _ in range(6):
        await bench.write(5)
        await bench.run_at_due()
    lags = await supervisor.lags()
    assert [each.lag for each in lags] == [0, 15, 30]
    assert all(later.at_ms - earlier.at_ms >= LAG_STEP_MS for earlier, later in pairwise(lags))


def test_history_of_the_lag_covers_everything_in_few_samples() -> None:
    memory = Memory()
    for now_ms in range(0, 100 * LAGS_KEPT * LAG_STEP_MS, LAG_STEP_MS):
        if memory.needs_lag(now_ms):
            memory = memory.with_lag(now_ms, now_ms)
    times_ms = [each.at_ms for each in memory.lags]
    assert LAGS_KEPT // 2 <= len(times_ms) < LAGS_KEPT
    assert times_ms[0] <= memory.lag_step_ms
    assert {later - earlier for earlier, later in pairwise(times_ms)} == {memory.lag_step_ms}
    assert Memory.decode(memory.encode()) == memory


@pytest.mark.subprocess  # matplotlib asks `fc-list` for the fonts when it has no list of them yet
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plot_draws_the_lag_and_the_files(tmp_path: Path, suffix: str) -> None:
    year_1_ms, year_9999_ms = -62_135_596_800_000, 253_402_300_800_000
    intervals = [(0, 10), (0, 10), (year_1_ms, year_9999_ms)]
    files = [
        TableFile(path=str(number), start_ms=start, end_ms=end, rows=3, bytes=9, min_ms=1, max_ms=2)
        for number, (start, end) in enumerate(intervals)
    ]
    picture = tmp_path / f"clicks{suffix}"
    check_picture(picture)
    draw(picture, "clicks", "clicks", [LagSample(at_ms=0, lag=5), LagSample(at_ms=1_000, lag=0)], files)
    assert picture.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


async def test_plot_names_what_is_missing(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.ep.create_stream("s/t")
    supervisor = await bench.ep.submit_supervisor(spec_of(start_delay_ms=0))
    with pytest.raises(InvalidArgument, match=r"\.png"):
        await supervisor.plot(tmp_path / "clicks.txt")
    await supervisor.terminate()
    await bench.run()
    with pytest.raises(NotFound, match="clicks"):
        await supervisor.plot(tmp_path / "clicks.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotSupported, match="plot"):
        await supervisor.plot(tmp_path / "clicks.png")
