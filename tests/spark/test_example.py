"""The example counts what a loop over the file counts. The second one compares itself; `tests/docs` runs it."""

from __future__ import annotations

import csv
import importlib.util
import lzma
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

import eventproc.spark
from tests.tidy.source import ROOT

EVERY = 150
"""One in so many flights: enough for each week of the larger carriers."""

WEEK = timedelta(days=7)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/examples/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def some_flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("example") / "flights.csv.xz"
    with lzma.open(ROOT / "data" / "flights.csv.xz", "rt", encoding="utf-8") as whole:
        header, *rows = whole
    with lzma.open(path, "wt", encoding="utf-8", preset=0) as some:
        some.writelines([header, *rows[::EVERY]])
    return path


def counted(path: Path) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return flights and cancelled ones of each carrier and week that is over two days before the last flight."""
    found: dict[tuple[str, datetime], list[str]] = defaultdict(list)
    last = EPOCH
    with lzma.open(path, "rt", encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows):
            at = datetime.fromisoformat(row["time_hour"])
            found[row["carrier"], EPOCH + (at - EPOCH) // WEEK * WEEK].append(row["dep_delay"])
            last = max(last, at)
    over = last - timedelta(days=2)
    return {key: (len(delays), delays.count("NA")) for key, delays in found.items() if key[1] + WEEK <= over}


@pytest.mark.parametrize("continuous", [False, True])
def test_example_counts_flights_by_carrier_and_week(
    spark: SparkSession, some_flights: Path, tmp_path: Path, continuous: bool
) -> None:
    example = loaded("carrier_delays")
    with eventproc.spark.attach(spark, tmp_path / "streams", durability="os") as ep:
        example.run(spark, ep, some_flights, tmp_path, continuous=continuous, events_max=1500)
        stored = example.stored(spark, tmp_path).collect()
        streamed = (
            example.streamed(spark, tmp_path / "streams").select("carrier", "week", "flights").collect()
        )
    weeks = {(row.carrier, row.week.astimezone(UTC)): (row.flights, row.cancelled) for row in stored}
    assert weeks == counted(some_flights)
    assert sorted(map(tuple, streamed)) == sorted((row.carrier, row.week, row.flights) for row in stored)
    if not continuous:
        example.plot(tmp_path, tmp_path / "delays.png")
        assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")
