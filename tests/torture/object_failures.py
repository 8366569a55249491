"""Object storage fails while events are offloaded and read, by readers and by Spark, and while tables are published.

python -m tests.torture.object_failures FAILURES [SEED [FORM]]     `make torture-objects FAILURES=n`

FORM: "spark" (default), a store on a server, which Spark reads and ingests, too; "server", without Spark; "directory",
without tables, because those of a directory lie in it.

In each round a new host offloads by policy. Then events are written, read from the head, offloaded and truncated, and
tables are published; each operation meets faults of every kind. At each fault of a publication another engine looks at
the table. At the end everything is swept as if it were a day old: what is left is exactly what rows name.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Final
from unittest.mock import patch

import anyio
import pyarrow as pa
from anyio import to_thread
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import eventproc
from eventproc.blocking import open_blocking
from eventproc.describe import TaskInfo, TaskStatus
from eventproc.runtime import Eventproc
from eventproc.spark import session
from eventproc.spark.ingestion.worker import SETTINGS
from eventproc.spark.option_names import spark_address
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import Unreachable
from eventproc.streams import Stream
from eventproc.testing import check
from tests.cluster.support import ended_task, sweep_a_day_later
from tests.ingestion.support import HOUR_MS, publish_rows, replace_rows, sweep_tables_later
from tests.spark.conftest import CHEAP
from tests.spark.ingestion_support import (
    STREAM as CLICKS,
    create_group,
    create_task,
    expected,
    is_published,
    merged,
    positions,
    run_tasks,
    spec_of,
    worker_room,
    write_clicks,
)
from tests.support.postgres import Server, running_server
from tests.support.s3_server import S3Server, impatient_requests, new_place, objects_of, running_s3
from tests.support.torture import LOOK_S, run_torture

STREAM: Final = "s/t"
COLD, HOT = 1_600, 100
"""Events that are written before an offload, enough for a file of each segment, and after it, too few for one."""

STEPS: Final = 3
"""How often a round reads, publishes and offloads again."""

SPARK_SHARE, TRUNCATE_SHARE, REPLACE_SHARE = 0.4, 0.3, 0.2

INGESTED: Final = 500
"""Events that Spark ingests at a time."""

FAULTS: Final = ("503", "403", "cut", "lost", "stall")
ONLY: Final = ("", "", "", " PUT", " GET", " HEAD", " POST", " .arrow", " .parquet", " .avro", " .json")
"""Which requests meet a fault, by a part of their method and path."""

TABLES: Final = {"publication": "rows", "publication by Spark": "clicks"}
"""The table that an operation publishes."""

COUNTED: Final = ("offload", "read", "read by Spark", *TABLES)

DEATHS_S: Final = 300
"""How long the processes of Spark's planners may take to end on a busy machine, after its session."""

EXPORTED: Final = re.compile(r"-([0-9a-f-]{36})-\d+\.arrow")
"""The instance that put an object with events."""

RETRIES, STALLED_S = 2, 0.3
"""How this process repeats requests, so that three faults in a row are an error soon. Spark's tasks repeat as usual."""

BROKEN_S: Final = 1.0
"""How long a request stalls until its connection breaks. Spark's tasks wait for it."""


class ObjectFailures:
    """A store whose files are objects, and what fails."""

    def __init__(
        self,
        folder: Path,
        s3: S3Server,
        *,
        seed: int,
        server: Server | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """server: where the store lies; None: in a folder, without tables. spark: reads and publishes, too."""
        self._address = str(folder) if server is None else server.store(server.new_schema())
        self._place = new_place()
        self._s3, self._server, self._spark = s3, server, spark
        self._random = Random(seed)
        self._doing = ""
        self._met, self._errors = list[tuple[str, str]](), Counter[str]()  # operations with their faults
        self._written, self._left = 0, set[int]()
        self._rows, self._ingested = 0, 0
        self._task: TaskInfo | None = None
        self._looker = ThreadPoolExecutor(1)
        self._looks, self._looks_count = list[Future[pa.Table]](), 0

    async def run(self, failures: int, steps: int = STEPS) -> str:
        """Let so many requests fail, check everything, and return the figures. Raises AssertionError."""
        rounds = 0
        with patch.multiple(self._s3, stall_s=BROKEN_S, on_fault=self._meet), self._looker:
            with impatient_requests(retries=RETRIES, stalled_s=STALLED_S):
                while sum(doing in COUNTED for doing, _ in self._met) < failures:
                    await self._round(steps, is_first=not rounds)
                    rounds += 1
            orphans = await self._sweep()
        by_operation, by_fault = (dict(Counter(each[at] for each in self._met)) for at in (0, 1))
        return (
            f"{sum(by_operation[each] for each in COUNTED if each in by_operation)} failures in {rounds} rounds, by"
            f" operation {by_operation}, by fault {by_fault}, of which {dict(self._errors)} became errors;"
            f" {self._written} events, {self._rows} publications, {self._ingested} events ingested by Spark,"
            f" {self._looks_count} looks in the middle of a publication; {orphans} objects swept; all checks passed"
        )

    def _fail(self, doing: str) -> None:
        """Let requests of an operation fail, one here and there, or several in a row, until `_heal`."""
        faults = ["pass"] * self._random.choice((0, 0, 1, 2, 4, 8, 16))
        for _ in range(self._random.randint(1, 3)):
            faults += [self._random.choice(FAULTS) + self._random.choice(ONLY)] * self._random.choice(
                (1, 1, 3)
            )
        if doing == "sweep":
            faults.append("403 POST")  # it makes few requests
        self._doing, self._s3.faults[:] = doing, faults

    def _heal(self) -> None:
        self._doing = ""
        self._s3.faults.clear()

    def _meet(self, request: str, fault: str) -> None:
        is_sweep = self._doing == "offload" and ("list-type" in request or request.startswith("POST"))
        self._met.append(("sweep" if is_sweep else self._doing, fault))
        if (table := TABLES.get(self._doing)) is not None:
            self._looks.append(self._looker.submit(self._look, table))
            wait(self._looks[-1:])

    async def _until_done(self, doing: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do something again until it meets no error, as a caller of what is retryable does."""
        self._fail(doing)
        while True:
            try:
                await work()
            except (Unreachable, PySparkException) as why:
                if self._place not in str(why):
                    raise
                self._errors[doing] += 1
            else:
                self._heal()
                return

    async def _round(self, steps: int, *, is_first: bool) -> None:
        if not is_first:
            self._fail("offload")  # a new owner of the stream looks at its policy immediately
        async with eventproc.open(self._address, chunks=self._place) as ep:
            stream = await self._create(ep) if is_first else await ep.stream(STREAM)
            await self._wait_offload(ep)
            for _ in range(steps):
                await self._write(stream, HOT)
                events = await self._read()
                if self._random.random() < TRUNCATE_SHARE:
                    await self._truncate(stream, events)
                if self._server is not None:
                    await self._publish(ep)
                if self._spark is not None and self._random.random() < SPARK_SHARE:
                    await self._until_done("read by Spark", partial(self._read_by_spark, self._spark))
                    await to_thread.run_sync(self._ingest, self._spark)
                await self._write(stream, COLD)
                await self._until_done("offload", stream.offload)
            await self._write(stream, COLD)

    async def _create(self, ep: Eventproc) -> Stream:
        await ep.create_scope("s")
        await ep.create_stream(CLICKS, scaling=eventproc.ScalingPolicy.fixed(2))
        stream = await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(2))
        await self._write(stream, COLD)
        self._fail("offload")
        await stream.update(offload=eventproc.OffloadPolicy(age_ms=1))
        return stream

    async def _write(self, stream: Stream, count: int) -> None:
        numbers = range(self._written, self._written + count)
        async with stream.writer() as writer:
            for number in numbers:
                await writer.post(b"%06d" % number * 100, key=f"k{number % 50}", headers={"n": str(number)})
        self._left.update(numbers)
        self._written += count

    async def _wait_offload(self, ep: Eventproc) -> None:
        """Wait for the next task of the policy."""
        self._task = await ended_task(ep, f"stream {STREAM}", after=self._task)
        assert self._task.status is TaskStatus.DONE or self._place in str(self._task.error)
        self._heal()

    async def _read(self) -> list[eventproc.Event]:
        """Read from the head in another opening, which has nothing in memory; after an error the reader goes on."""
        events, newest = list[eventproc.Event](), dict[str | None, int]()
        async with eventproc.open(self._address, host=False) as ep:
            stream = await ep.stream(STREAM)
            tail = await stream.tail()
            async with stream.reader() as reader:

                async def read_on() -> None:
                    async for event in reader.until(tail):
                        number = int(event.payload[:6])
                        assert (event.key, event.headers) == (f"k{number % 50}", {"n": str(number)})
                        assert newest.get(event.key, -1) < number, "out of order"
                        newest[event.key] = number
                        events.append(event)

                await self._until_done("read", read_on)
        assert sorted(int(each.payload[:6]) for each in events) == sorted(self._left), "lost or repeated"
        return events

    async def _read_by_spark(self, spark: SparkSession) -> None:
        source = spark.read.format("eventproc").option("stream", STREAM)
        rows = source.load(self._address).selectExpr("int(substr(string(payload), 1, 6))")
        found = await to_thread.run_sync(rows.collect)
        assert sorted(number for (number,) in found) == sorted(self._left), "lost or repeated"

    async def _truncate(self, stream: Stream, events: list[eventproc.Event]) -> None:
        tail = await stream.tail()
        heads = {
            segment: self._random.choice([each.offset for each in events if each.segment == segment])
            for segment in tail.offsets
        }
        cut = StreamCut(tail.stream, tail.stream_id, heads)
        await self._until_done("truncation", partial(stream.truncate, cut))
        self._left -= {int(each.payload[:6]) for each in events if each.offset < heads[each.segment]}

    async def _publish(self, ep: Eventproc) -> None:
        """Publish a row, or replace all by as many and one: all of it, or, if there is an error, nothing."""
        hour_ms = self._random.randrange(20) * HOUR_MS
        is_replaced = self._random.random() < REPLACE_SHARE

        async def publish() -> None:
            try:
                if is_replaced:
                    assert await replace_rows(ep.db, *[hour_ms] * (self._rows + 1), table="rows")
                else:
                    await publish_rows(ep.db, hour_ms, table="rows")
            except Unreachable:
                found = await to_thread.run_sync(self._look, "rows")
                assert found.num_rows == self._rows, "what raised was published"
                raise

        await self._until_done("publication", publish)
        self._rows += 1
        seen = await to_thread.run_sync(self._all_looks, "rows")
        assert seen[-1].num_rows == self._rows
        assert all(self._rows - each.num_rows in (0, 1) for each in seen), "half visible"

    def _ingest(self, spark: SparkSession) -> None:
        """Let tasks publish new events. One that fails is replaced, as a supervisor does."""
        spec, base = spec_of(), f"clicks-{self._ingested}"
        before, self._ingested = self._ingested, self._ingested + INGESTED
        with (
            open_blocking(self._address, host=False) as ep,
            worker_room(spark, spark_address(self._address)) as room,
        ):
            stream = ep.stream(CLICKS)
            starts = positions(stream, tail=True)
            write_clicks(stream, range(before, self._ingested))
            ends = positions(stream, tail=True)
            create_group(room.directory, spec, starts, ends, base=base)
            self._fail("publication by Spark")
            while True:
                run_tasks(room, spec)
                if is_published(room, spec, ends):
                    break
                self._errors[self._doing] += 1
                room.directory.write(partial(create_task, spec=spec, base=base, replica=self._errors.total()))
            self._heal()
        seen = [merged(_clicks(each)) for each in self._all_looks("clicks")]
        assert seen[-1] == expected(range(self._ingested)), "not published exactly once"
        assert all(each in (expected(range(before)), seen[-1]) for each in seen), "half visible"

    def _tables(self) -> SqlCatalog:
        """Open the tables as another engine does, whose requests do not fail."""
        url = self._address.replace("postgresql:", "postgresql+psycopg:", 1)
        uri = url.replace("&schema=", "&options=-csearch_path%3D")
        place = {"s3.endpoint": f"http://127.0.0.1:{self._s3.port}", "s3.region": "us-east-1"}
        return SqlCatalog("eventproc", uri=uri, init_catalog_tables="false", **place)

    def _look(self, table: str) -> pa.Table:
        """Return the rows that another engine reads."""
        catalog = self._tables()
        try:
            return catalog.load_table(f"tables.{table}").scan().to_arrow()
        except NoSuchTableError:
            return pa.table({})
        finally:
            catalog.close()

    def _all_looks(self, table: str) -> list[pa.Table]:
        """Return what another engine read in the middle of the last publication, and what it reads now."""
        seen, self._looks = [each.result() for each in self._looks], []
        self._looks_count += len(seen)
        return [*seen, self._look(table)]

    async def _sweep(self) -> int:
        """Sweep as if everything were a day old; return how many objects went. The rest is exactly what rows name."""
        await self._read()
        if self._spark is not None:
            self._spark.stop()  # and with it the instances of its planners, whose files are theirs until they die
        before = objects_of(self._place)
        instances = set(EXPORTED.findall(" ".join(before)))
        async with eventproc.open(self._address, host=False) as ep:
            await self._until_done("check", partial(check, ep.db))
            with anyio.fail_after(DEATHS_S):
                # All are asked each time: a server answers some seconds after the first question.
                while list(filter(ep.db.peers.is_alive, instances)):  # noqa: ASYNC110  # nothing announces a death
                    await anyio.sleep(LOOK_S)
            named = {"used-by.txt"}

            async def sweep() -> None:
                named.update(await sweep_a_day_later(ep.db))

            await self._until_done("sweep", sweep)
            if self._server is not None:
                await self._until_done("sweep", partial(sweep_tables_later, ep.db, 25 * HOUR_MS))
            named |= self._named()
        found = objects_of(self._place)
        assert found == named, (found - named, named - found)
        return len(before - found)

    def _named(self) -> set[str]:
        """Return the files of all tables, as another engine finds them."""
        found = set[str]()
        if self._server is not None:
            catalog = self._tables()
            for table in map(catalog.load_table, catalog.list_tables("tables")):
                found |= {
                    table.metadata_location,
                    *(each.metadata_file for each in table.metadata.metadata_log),
                }
                for snapshot in table.snapshots():
                    found.add(snapshot.manifest_list)
                    for manifest in snapshot.manifests(table.io):
                        entries = manifest.fetch_manifest_entry(table.io)
                        found |= {manifest.manifest_path, *(each.data_file.file_path for each in entries)}
            catalog.close()
        return {each.removeprefix(f"{self._place}/") for each in found}


def _clicks(rows: pa.Table) -> list[tuple[int, str, int, int]]:
    """Return rows as `expected` does."""
    return [
        (int(each["__time"].timestamp() * 1000), each["page"], each["clicks"], each["ms"])
        for each in rows.to_pylist()
    ]


def main(failures: str, seed: str = "0", form: str = "spark") -> None:
    logging.getLogger("eventproc").setLevel(logging.CRITICAL)  # it warns of each failure
    with ExitStack() as ends:
        server = None if form == "directory" else ends.enter_context(running_server())
        s3 = ends.enter_context(running_s3())
        os.environ.update(s3.environment, SPARK_LAUNCHER_OPTS=CHEAP)
        spark: SparkSession | None = None
        if form == "spark":
            conf = {**SETTINGS, "spark.driver.defaultJavaOptions": CHEAP, "spark.sql.session.timeZone": "UTC"}
            spark = session(master="local[2]", conf=conf)
            spark.sparkContext.setLogLevel("OFF")

        async def run(folder: Path, _: object) -> str:
            torture = ObjectFailures(folder / "data", s3, seed=int(seed), server=server, spark=spark)
            return await torture.run(int(failures))

        run_torture("object-failures", int(seed), 0, run)


if __name__ == "__main__":
    main(*sys.argv[1:])
