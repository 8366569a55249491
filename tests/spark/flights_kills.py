"""Flights through the source and the sink, in batch and streaming: `python -m tests.spark.flights_kills FLIGHTS`.

A batch job writes the file into a stream, another one copies the stream, and a query copies it again. Each driver is
killed once with its processes, and the streams split and merge in between. At the end each of the three streams holds
every row of the file once, and the rows of an aircraft in the order of the file.
"""

from __future__ import annotations

import csv
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import attrs

from eventproc.blocking import BlockingEventproc, BlockingStream, open_blocking
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.flights_worker import COPIED, KEY, RAW, STREAMED
from tests.tidy.source import ROOT

FLIGHTS: Final = 336_776
"""All rows of the file."""

BATCHES: Final = 8
"""Batches that the query makes of the stream."""

KILLED_AFTER: Final = {"load": "job", "copy": "job", "stream": "batch 2"}
"""By step: what the driver says before it is killed. A batch job is killed while it runs."""


@attrs.frozen
class FlightsReport:
    """What the streams hold. wrong: by stream, rows that are missing, there twice, or out of order."""

    flights: int
    kills: int
    wrong: dict[str, int]
    segments: dict[str, int]


def run(folder: Path, *, count: int) -> FlightsReport:
    """Run the three steps over the first `count` flights, each with a kill, and return the report."""
    file = folder / "flights.csv"
    expected = _extract(file, count)
    with open_blocking(folder / "data", durability="os") as ep:
        ep.create_scope("air")
        for name in (RAW, COPIED, STREAMED):
            ep.create_stream(name, scaling=ScalingPolicy.fixed(2))
        kills = 0
        for step, target in (("load", RAW), ("copy", COPIED), ("stream", STREAMED)):
            arguments = [step, str(file), str(folder / "data"), str(folder / step), str(count // BATCHES)]
            kills += _kill(arguments, KILLED_AFTER[step])
            _scale(ep.stream(target))
            _finish(arguments)
            _scale(ep.stream(RAW))
        wrong = {name: _wrong(ep, name, expected) for name in (RAW, COPIED, STREAMED)}
        segments = {name: len(ep.stream(name).segments()) for name in wrong}
    return FlightsReport(count, kills, wrong, segments)


def _extract(file: Path, count: int) -> dict[str, list[int]]:
    """Write the first flights with their numbers to `file`, and return the numbers by aircraft."""
    by_key: dict[str, list[int]] = {}
    with file.open("w", newline="") as out:
        writing = csv.DictWriter(out, ["row", *next(flights())])
        writing.writeheader()
        for number, row in enumerate(islice(flights(), count)):
            writing.writerow({"row": number, **row})
            by_key.setdefault(row[KEY], []).append(number)
    return by_key


def flights() -> Iterator[dict[str, str]]:
    """Yield the rows of the file."""
    packed = ROOT / "data" / "flights.csv.xz"
    with lzma.open(packed, "rt", encoding="utf-8", newline="") as rows:
        yield from csv.DictReader(rows)


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "tests.spark.flights_worker", *arguments]


def _kill(arguments: list[str], said: str) -> int:
    """Run a step until its driver says so, and kill it with its processes. Return the number of kills."""
    with subprocess.Popen(
        _command(arguments), cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout is not None, "it is a pipe"
        for line in driver.stdout:
            if line.strip() == said:
                os.killpg(driver.pid, signal.SIGKILL)
                return 1
    return 0


def _finish(arguments: list[str]) -> None:
    subprocess.run(_command(arguments), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def _scale(stream: BlockingStream) -> None:
    """Split one segment and merge the first two, so that a cut of before covers two epochs."""
    stream.split(stream.segments()[0].id)
    first, second, *_ = sorted(stream.segments(), key=lambda each: each.low)
    stream.merge(first.id, second.id)


def _wrong(ep: BlockingEventproc, name: str, expected: dict[str, list[int]]) -> int:
    """Return how many aircraft have other rows in the stream than in the file, or another order."""
    found: dict[str, list[int]] = {}
    stream = ep.stream(name)
    with stream.reader() as reader:
        for event in reader.until(stream.tail()):
            found.setdefault(str(event.key), []).append(int(json.loads(event.payload)["row"]))
    return sum(found.get(key) != expected.get(key) for key in found.keys() | expected.keys())


def main(count: int = FLIGHTS) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = run(Path(folder), count=count)
    sys.stdout.write(f"{report}\n")
    return 1 if any(report.wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
