"""An ingestion on a cluster, every part of which dies.

python -m tests.torture.ingestion_machines KILLS EVENTS [SEED]     `make torture-cluster-ingestion KILLS=n EVENTS=n`

The run is that of `tests.spark.spark_kills`, on seven machines with
addresses and folders of their own: a standalone master's two workers, two workers of the ingestion, two machines with
writers and hosts, and one with the driver of a streaming query from stream to stream. They share a PostgreSQL server
and object storage. Of each kind of process so many are killed, executors and their Python processes among them, and
so many times a machine is cut off, while the streams are scaled. A third supervisor makes a table of all flights of
`data`, which were written before. A machine is a network namespace. Needs root.

At the end it says how much memory the processes of each kind had, while each fifth of the events was published.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import attrs
import psutil
import pyarrow as pa
from anyio import to_thread

import eventproc.spark
from eventproc import ScalingPolicy
from eventproc.blocking import BlockingEventproc, open_blocking
from eventproc.ingestion import DataSchema, Dimension, Granularity, Metric, MetricType, TimestampSpec
from tests.spark.cluster import Machine, executors, standalone_cluster
from tests.spark.conftest import CHEAP
from tests.spark.flights_kills import flights
from tests.spark.ingestion_account import EACH, SPECS, STREAM
from tests.spark.spark_kills import (
    KillsSite,
    KindProcess,
    SparkKills,
    SparkKillsReport,
    create_streams,
    published,
    pythons_of,
)
from tests.support.postgres import Server, running_server
from tests.support.s3_server import BUCKET, running_s3
from tests.support.samples import PARTS, SamplesByPart, mebibytes
from tests.support.torture import run_torture, say
from tests.torture.two_machines import PORT, SERVICES, cluster_network, machine_of, run_command

KINDS: Final = ("writer", "host", "worker", "jvm", "executor", "python", "query", "link")
"""What is killed, or cut."""

SPARK_MACHINES, WORKER_MACHINES, HOST_MACHINES, QUERY_MACHINE = (1, 2), (3, 4), (5, 6), 7

COPY: Final = "s/copy"
"""The stream that the query writes."""

FLIGHTS, BY_DAY = "s/flights", "flights"
"""The stream of the flights, and their table."""

FLIGHTS_SPEC: Final = attrs.evolve(
    SPECS[1],
    io=attrs.evolve(SPECS[1].io, streams=(FLIGHTS,), late_message_rejection_ms=None, replicas=1),
    schema=DataSchema(
        datasource=BY_DAY,
        timestamp=TimestampSpec(column="time_hour"),
        dimensions=(Dimension(name="carrier"), Dimension(name="origin")),
        metrics=(
            Metric(name="events", type=MetricType.COUNT),
            Metric(name="distance", type=MetricType.LONG_SUM, field="distance"),
        ),
        query_granularity=Granularity.DAY,
        segment_granularity=Granularity.MONTH,
    ),
    tuning=attrs.evolve(SPECS[1].tuning, unparseable_stream=None),
)

SETTINGS: Final = {
    "spark.cores.max": "1",
    "spark.executor.memory": "512m",
    "spark.driver.defaultJavaOptions": CHEAP,
    "spark.executor.defaultJavaOptions": CHEAP,
}
"""Spark's settings for each application: one executor at a time, on any machine of the cluster."""

CLUSTER_CORES: Final = 5
"""Cores that each machine of the cluster says it has: of those who died, some are noticed late."""

SAMPLE_S: Final = 2.0


class ClusterSite(KillsSite):
    """The machines of a run, and what they share."""

    machines: Mapping[str, Sequence[Machine]] = {
        "worker": [machine_of(each) for each in WORKER_MACHINES],
        "host": [machine_of(each) for each in HOST_MACHINES],
        "writer": [machine_of(each) for each in (*HOST_MACHINES, HOST_MACHINES[0])],
        "query": [machine_of(QUERY_MACHINE)],
    }
    copies = (COPY,)
    specs = (*SPECS, FLIGHTS_SPEC)
    slots = 6

    def __init__(self, folder: Path, server: Server, master: str) -> None:
        super().__init__(folder, master=master)
        self._server = server
        self.address = f"postgresql://postgres@{SERVICES}:{PORT}/postgres?schema=cluster"
        (folder / "spark-defaults.conf").write_text(
            "".join(f"{name} {SETTINGS[name]}\n" for name in SETTINGS)
        )

    def open(self, *, host: bool = False) -> BlockingEventproc:
        """Open the store in this process, over the socket of the server."""
        return open_blocking(self._server.store("cluster"), chunks=f"s3://{BUCKET}/cluster", host=host)

    def command(self, kind: str) -> list[str]:
        """See `KillsSite`."""
        if kind == "query":
            checkpoints = str(self.folder / "checkpoints")
            return ["-m", "tests.torture.ingestion_machines", kind, self.master, self.address, checkpoints]
        return super().command(kind)

    def variables(self, machine: Machine) -> dict[str, str]:
        """See `KillsSite`."""
        own = self.folder / machine.host
        own.mkdir(exist_ok=True)
        conf = {"SPARK_CONF_DIR": str(self.folder), "SPARK_LOCAL_IP": machine.host, "TMPDIR": str(own)}
        return {"SPARK_LAUNCHER_OPTS": CHEAP, **conf}

    def processes(
        self, kind: str, workers: Iterable[KindProcess]
    ) -> list[tuple[KindProcess, psutil.Process]]:
        """See `KillsSite`. Executors belong to no worker alone: the first one is named."""
        if kind not in ("executor", "python"):
            return super().processes(kind, workers)
        owner, found = next(iter(workers)), executors()
        if kind == "python":
            found = [each for jvm in found for each in pythons_of(jvm)]
        return [(owner, each) for each in found]

    @contextmanager
    def cut(self, machine: Machine) -> Iterator[None]:
        """See `KillsSite`."""
        link = f"r{machine.host.split('.')[2]}"
        run_command(f"ip link set {link} down")
        try:
            yield
        finally:
            run_command(f"ip link set {link} up")

    def check(self, kills: SparkKills) -> None:
        """See `KillsSite`. Each day, carrier and airport has the flights of the file, and their miles."""
        found, wanted = Counter[tuple[str, str, str, str]](), Counter[tuple[str, str, str, str]]()

        def take(rows: pa.RecordBatch) -> None:
            for row in rows.to_pylist():
                _count(found, row["__time"].date().isoformat(), row, row["events"])

        kills.take_rows(BY_DAY, take)
        for flight in flights():
            _count(wanted, flight["time_hour"][:10], flight, 1)
        assert found == wanted, f"flights differ: {list((wanted - found).items())[:5]} are missing"


def _count(sums: Counter[tuple[str, str, str, str]], day: str, row: Mapping[str, Any], events: int) -> None:
    """Add a row, or a flight, to the sums of its day, carrier and airport."""
    key = day, row["carrier"], row["origin"]
    sums[*key, "flights"] += events
    sums[*key, "miles"] += int(row["distance"])


def write_flights(ep: BlockingEventproc) -> None:
    """Create the stream of the flights, and write all of them."""
    ep.create_stream(FLIGHTS, scaling=ScalingPolicy.fixed(2))
    with ep.stream(FLIGHTS).writer() as writer:
        count = writer.write_many((json.dumps(each).encode(), each["tailnum"]) for each in flights())
    say(f"{count} flights are written")


class MemorySampler(threading.Thread):
    """Notes how much memory the processes of each kind have, and how many events are published meanwhile."""

    def __init__(self, site: KillsSite, ep: BlockingEventproc, kills: SparkKills, events: int) -> None:
        super().__init__(daemon=True)
        self._events = events
        self._site = site
        self._ep = ep
        self._kills = kills
        self._samples = SamplesByPart()
        self._ended = threading.Event()

    def run(self) -> None:
        """Take samples until `report`."""
        while not self._ended.wait(SAMPLE_S):
            part = published(self._ep, EACH) * PARTS // self._events
            for kind, found in self._processes().items():
                sizes = [size for each in found if (size := mebibytes(each))]
                if sizes:
                    self._samples.note(f"memory of a {kind} in MiB", part, max(sizes))

    def _processes(self) -> dict[str, list[int]]:
        running = {kind: [each.pid for each in found] for kind, found in list(self._kills.running.items())}
        workers = list(self._kills.running["worker"])
        inner = {
            kind: [process.pid for _, process in self._site.processes(kind, workers)]
            for kind in ("jvm", "executor", "python")
            if workers
        }
        return running | inner

    def report(self) -> None:
        """End, and say the median of the largest process of each kind, for each fifth of the events."""
        self._ended.set()
        self.join()
        for line in self._samples.lines():
            say(line)


def query(master: str, address: str, checkpoints: str) -> None:
    """Copy the stream into another one until this process is killed."""
    spark = eventproc.spark.session(master=master, conf={"spark.sql.shuffle.partitions": "2"})
    options = {"stream": STREAM, "startingOffsets": "earliest", "columns": "payload,key"}
    rows = spark.readStream.format("eventproc").options(**options, maxEventsPerTrigger="100000").load(address)
    writing = rows.writeStream.format("eventproc").options(path=address, stream=COPY)
    running = writing.option("checkpointLocation", checkpoints).trigger(processingTime="2 seconds").start()
    running.awaitTermination()


def run(folder: Path, server: Server, victims: Sequence[str], *, seed: int, events: int) -> SparkKillsReport:
    """Ingest so many events on a cluster while what is named is killed or cut, and compare."""
    spark_machines = [machine_of(each) for each in SPARK_MACHINES]
    with standalone_cluster(
        folder, spark_machines, host=SERVICES, cores=CLUSTER_CORES, memory="4g"
    ) as master:
        site = ClusterSite(folder, server, master)
        create_streams(site)
        with site.open(host=True) as creator:
            write_flights(creator)
        with site.open() as ep:
            kills = SparkKills(site, ep, seed=seed, events=events)
            memory = MemorySampler(site, ep, kills, events)
            memory.start()
            try:
                return kills.run(victims)
            finally:
                memory.report()


def main(kills: str, events: str, seed: str = "1") -> None:
    victims = list(KINDS) * int(kills)
    Random(int(seed)).shuffle(victims)
    machines = (*SPARK_MACHINES, *WORKER_MACHINES, *HOST_MACHINES, QUERY_MACHINE)
    with (
        cluster_network(machines),
        running_server(listen=SERVICES, port=PORT) as server,
        running_s3(SERVICES) as s3,
    ):
        os.environ.update(s3.environment)

        async def start(folder: Path, _: object) -> SparkKillsReport:
            return await to_thread.run_sync(
                partial(run, folder, server, victims, seed=int(seed), events=int(events))
            )

        run_torture("ingestion-machines", int(seed), 0, start)


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "query":
        query(*others)
    else:
        main(first, *others)
