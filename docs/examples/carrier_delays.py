"""Delays of flights by carrier and week: from a stream, through Spark, into Parquet and into another stream.

    python docs/examples/carrier_delays.py                  # read what the stream has now, then end
    python docs/examples/carrier_delays.py --continuous     # while flights are still being written

Two queries run side by side. Each reads the stream, joins the airlines and counts by window. One writes Parquet, the
other writes into the stream air/delays. When they are started again, they continue where they ended, even after a kill.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow.parquet
from pyspark.sql import (
    DataFrame,
    SparkSession,
    functions as F,  # noqa: N812 - as all of Spark's users know it
)
from pyspark.sql.streaming.query import StreamingQuery

import eventproc.spark
from eventproc import ScalingPolicy
from eventproc.spark import AttachedEventproc

DATA = Path(__file__).resolve().parents[2] / "data"
FLIGHTS, DELAYS = "air/flights", "air/delays"

FLIGHT = "carrier string, time_hour timestamp, dep_delay string"  # of a CSV file: its numbers are texts
DELAY = "carrier string, airline string, week timestamp, flights long, cancelled long, mean_delay double"

LATE = "2 days"
"""How much later than others a flight may arrive and still be counted: a stream is ordered per key only, and a batch
reads from each segment the events that are waiting there."""


def flights(path: Path) -> Iterator[tuple[bytes, str]]:
    """Yield the file's rows as JSON, keyed by aircraft, in the order of time; unknown values are left out."""
    with lzma.open(path, "rt", encoding="utf-8", newline="") as rows:
        found = sorted(
            (
                row["time_hour"],
                json.dumps({name: value for name, value in row.items() if value != "NA"}),
                row["tailnum"],
            )
            for row in csv.DictReader(rows)
        )
    for _, payload, aircraft in found:
        yield payload.encode(), aircraft


def prepare(ep: AttachedEventproc) -> None:
    """Create the streams if they do not exist."""
    ep.create_scope("air")
    ep.create_stream(FLIGHTS, scaling=ScalingPolicy.fixed(4))
    ep.create_stream(DELAYS)


def write(ep: AttachedEventproc, events: Iterator[tuple[bytes, str]]) -> int:
    """Append flights; return how many."""
    with ep.stream(FLIGHTS).writer() as writer:
        return writer.write_many(events)


def delays(spark: SparkSession, directory: Path, events_max: int) -> DataFrame:
    """Return the statistics of each carrier and week, when the week is over and LATE has passed."""
    airlines = spark.read.csv(str(DATA / "airlines.csv"), header=True).withColumnRenamed("name", "airline")
    read = spark.readStream.format("eventproc").options(
        stream=FLIGHTS, startingOffsets="earliest", maxEventsPerTrigger=events_max, schema=FLIGHT
    )
    departed = read.load(str(directory)).withWatermark("time_hour", LATE)
    return (
        departed.join(F.broadcast(airlines), "carrier")
        .groupBy("carrier", "airline", F.window("time_hour", "7 days"))
        .agg(
            F.count("*").alias("flights"),
            F.count(F.when(F.isnull("dep_delay"), 1)).alias("cancelled"),
            F.round(F.avg(F.col("dep_delay").cast("double")), 2).alias("mean_delay"),
        )
        .select(
            "carrier", "airline", F.col("window.start").alias("week"), "flights", "cancelled", "mean_delay"
        )
    )


def start(
    spark: SparkSession, directory: Path, output: Path, *, continuous: bool, events_max: int
) -> list[StreamingQuery]:
    """Start both queries. Unless they are continuous, they end when they have read what the stream has now."""
    found = delays(spark, directory, events_max)
    into = {
        "parquet": {"path": str(output / "delays.parquet")},
        "eventproc": {"path": str(directory), "stream": DELAYS, "key": "carrier"},
    }
    queries = []
    for sink, options in into.items():
        writing = found.writeStream.format(sink).options(**options).queryName(f"delays-{sink}")
        writing = writing.option("checkpointLocation", str(output / f"checkpoint-{sink}"))
        if not continuous:
            writing = writing.trigger(availableNow=True)
        queries.append(writing.start())
    return queries


def run(
    spark: SparkSession,
    ep: AttachedEventproc,
    source: Path,
    output: Path,
    *,
    continuous: bool = False,
    limit: int | None = None,
    events_max: int = 100_000,
) -> None:
    """Write the flights of the file into the stream, unless it has them already, and run the queries over them."""
    assert ep.path is not None, "a directory has a path"
    prepare(ep)
    stream = ep.stream(FLIGHTS)
    events = islice(flights(source), limit) if stream.tail() == stream.head() else iter(())
    if continuous:
        queries = start(spark, ep.path, output, continuous=True, events_max=events_max)
        write(ep, events)
        for query in queries:
            query.processAllAvailable()
            query.stop()
    else:
        write(ep, events)
        for query in start(spark, ep.path, output, continuous=False, events_max=events_max):
            query.awaitTermination()


def stored(spark: SparkSession, output: Path) -> DataFrame:
    """Return the output of the first query."""
    return spark.read.parquet(str(output / "delays.parquet"))


def streamed(spark: SparkSession, directory: Path) -> DataFrame:
    """Return the output of the second query, read from its stream."""
    return spark.read.format("eventproc").options(stream=DELAYS, schema=DELAY).load(str(directory))


def plot(output: Path, picture: Path, carriers: int = 6) -> None:
    """Draw the mean delay by week of the carriers with the most flights. Needs matplotlib."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    rows = pyarrow.parquet.read_table(output / "delays.parquet").to_pylist()
    names = {row["airline"] for row in rows}
    most = sorted(names, key=lambda name: -sum(row["flights"] for row in rows if row["airline"] == name))
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    for name in most[:carriers]:
        line = sorted((row["week"], row["mean_delay"]) for row in rows if row["airline"] == name)
        axes.plot(*zip(*line, strict=True), label=name)
    axes.set_title("Flights from New York, 2013: mean delay at departure, by week")
    axes.set_ylabel("minutes")
    axes.legend(fontsize="small", frameon=False, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Run the example, and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flights", type=Path, default=DATA / "flights.csv.xz", help="the file of flights")
    parser.add_argument("--output", type=Path, help="folder of all output; a temporary one by default")
    parser.add_argument("--continuous", action="store_true", help="run while flights are being written")
    parser.add_argument("--limit", type=int, help="largest number of flights to write")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw a picture, with matplotlib")
    arguments = parser.parse_args()
    output: Path = arguments.output or Path(tempfile.mkdtemp(prefix="carrier-delays-"))
    spark = eventproc.spark.session(conf={"spark.sql.session.timeZone": "UTC"})
    try:
        with eventproc.spark.attach(spark, output / "streams") as ep:
            choices = {"continuous": arguments.continuous, "limit": arguments.limit}
            run(spark, ep, arguments.flights, output, **choices)
            report(spark, ep, output)
        if arguments.plot is not None:
            plot(output, arguments.plot)
    finally:
        spark.stop()
        if arguments.output is None:
            shutil.rmtree(output)


def report(spark: SparkSession, ep: AttachedEventproc, output: Path) -> None:
    """Print the carriers, and whether both outputs are equal."""
    assert ep.path is not None, "a directory has a path"
    found = stored(spark, output)
    delayed = F.sum(F.col("mean_delay") * (F.col("flights") - F.col("cancelled")))
    carriers = found.groupBy("airline").agg(
        F.sum("flights").alias("flights"),
        F.sum("cancelled").alias("cancelled"),
        F.round(delayed / (F.sum("flights") - F.sum("cancelled")), 1).alias("mean_delay"),
    )
    carriers.orderBy(F.desc("flights")).show(truncate=False)
    back = streamed(spark, ep.path).select(found.columns)
    same = not found.exceptAll(back).count() and not back.exceptAll(found).count()
    sys.stdout.write(
        f"Parquet and {DELAYS}: {found.count()} rows, {'the same' if same else 'NOT the same'}\n"
    )


if __name__ == "__main__":
    main()
