"""The runtime inside a Spark driver: a store that is opened beside a session and closed with it.

See docs/design/spark-embedding.md.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eventproc.blocking import BlockingEventproc, BlockingRunning
from eventproc.blocking.loop import Loop, running_loop
from eventproc.blocking.system import open_on
from eventproc.ingestion.intervals import RowTime
from eventproc.processors import GRACE_MS, App, ProcessorFailed
from eventproc.runtime import Eventproc, open as open_store
from eventproc.runtime.measures import QUERIES
from eventproc.spark.foreach_batch import BatchWriter
from eventproc.spark.ingestion.tables import Compaction, Overwriting, Tables
from eventproc.spark.option_names import path_option, spark_address
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.planner_processes import PlannerProcesses
from eventproc.spark.queries import QueryDescription, StreamLag, describe_query, lags_of
from eventproc.spark.range_reads import SegmentOffsets, checked_ranges, reading_ranges
from eventproc.spark.sessions import choose_python, register_with
from eventproc.spark.source_options import USUAL_COLUMNS, parse_options
from eventproc.store.address import StoreAddress
from eventproc.store.database import Durability
from eventproc.store.model.argument_checks import check_instance, invalid_argument
from eventproc.store.segments.holds import HOLD_MS

QUERY_STOP_S: Final = 30
"""How long stopping Spark waits for the queries whose batches do not end, unless the session sets another bound.

More delays the end of a program with such a query; less interrupts batches that would have finished."""

ERROR_CHARS_MAX: Final = 500
"""Longest text of an error in the log. Stack traces of the JVM take pages."""

_STOP_TIMEOUT: Final = "spark.sql.streaming.stopTimeout"

LOG: Final = logging.getLogger("eventproc.spark")


def attach(
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    schema: str | None = None,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
) -> AttachedEventproc:
    """Open the store at `path` in this driver until Spark is stopped, and return the blocking API on it.

    Registers the format "eventproc" with the session. Also usable in `with`: the end of the block closes the store and
    leaves Spark running.

    Args:
        spark: A session of this process, not of Spark Connect.
        path: The directory; or the URL of a store on a server, without a password, because Spark shows the options of
            queries. Executors need the place of its chunk files only, never the server.
        schema: Of the URL; see `eventproc.open`.
        durability: Of a new store; see `eventproc.open`.
        create: Whether to make a store that does not exist.
        host: Whether this instance may run the internal processors.
        chunks: A new or empty folder that the driver and all executors see at the same path, or a URL of object
            storage; see `eventproc.open`.

    Raises:
        InvalidArgument: `spark` is not a session of this process, `path` is no address or has a password, or `chunks`
            cannot be used.
        StoreMissing, StoreUnusable, Unreachable, NotSupported: As `eventproc.open`.
    """
    check_instance(
        SparkSession, "session", spark, "it must be a session of this process, not of Spark Connect"
    )
    address = spark_address(path, schema=schema)
    choose_python(spark.sparkContext)
    hook = _StopHook.of(spark.sparkContext)
    register_with(spark, hook.launcher)
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop())
        opening = open_store(
            path_option(address), durability=durability, create=create, host=host, chunks=chunks
        )
        system = open_on(loop, opening)
        stack.callback(loop.call, system.close)
        attached = AttachedEventproc(loop, system, spark, address)
        attached._open = stack.pop_all()
    system.db.shared[QUERIES].append(attached._running_queries)
    hook.attached.append(attached)
    atexit.register(attached.detach)
    return attached


class AttachedEventproc(BlockingEventproc):
    """An open store inside a Spark driver; made by `attach`, usable from any thread until it is detached."""

    def __init__(self, loop: Loop, system: Eventproc, spark: SparkSession, address: StoreAddress) -> None:
        super().__init__(loop, system)
        self._spark = spark
        self._open = ExitStack()
        self._address = address
        self._batches = BatchWriter(address)
        self._tables = Tables(spark, address)
        self._once = threading.Lock()

    def __enter__(self) -> AttachedEventproc:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    @property
    def spark(self) -> SparkSession:
        """The session that this store is attached to."""
        return self._spark

    def reading(
        self,
        ranges: Mapping[str, SegmentOffsets],
        *,
        columns: Sequence[str] = USUAL_COLUMNS,
        min_partitions: int | None = None,
        stream_ids: Mapping[str, int] | None = None,
        hold_ms: int = HOLD_MS,
    ) -> AbstractContextManager[DataFrame]:
        """Return a block that gives a DataFrame of exactly the events in `ranges`, in any number of its jobs.

            with ep.reading({"air/flights": {"0.0": (0, 4096), "1.0": (512, 512)}}) as frame:
                frame.write.parquet("slice")

        This driver plans the read, without another process. The events stay readable while the block runs, whatever
        is truncated meanwhile; a range that another hold keeps is readable behind the head, too. One Spark task reads
        a segment in order, unless `min_partitions` exceeds the number of segments.

        Args:
            ranges: {stream: {segment: (start, end)}}: offsets in bytes at event boundaries; a segment by its id or as
                text. The end is exclusive and at most the tail. An empty range reads nothing.
            columns: The columns, in this order; see docs/design/spark-source.md.
            min_partitions: At least about this many tasks.
            stream_ids: The ids of the streams; a stream that was deleted and created again is refused.
            hold_ms: How long the events stay readable after the death of this driver.

        Raises:
            InvalidArgument: Entering; an offset is beyond the tail or inside an event, or a column is unknown.
            NotFound: Entering; a stream or segment does not exist.
            StreamReplaced: Entering; a stream has another id.
            Truncated: Entering; events of a range were truncated and nothing holds them.
            Closed: The store was detached.

        Cost: two or three transactions, and the export of events that are in no chunk file yet.
        """
        self._loop.check()
        asked = checked_ranges(ranges, stream_ids)
        given = {
            "path": path_option(self._address),
            "stream": ",".join(each.stream for each in asked),
            "columns": ",".join(columns),
            **({} if min_partitions is None else {"minPartitions": str(min_partitions)}),
        }
        directory = PlannerDirectory.within(self._loop, self._twin.db, self._address, hold_ms=hold_ms)
        return reading_ranges(self._spark, directory, parse_options(given), asked)

    def writing(
        self,
        stream: str | None = None,
        *,
        stream_column: str | None = None,
        key: str | None = None,
        event_time: str | None = None,
        partition: str | None = None,
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch` that writes each batch once, into `stream` or where its rows say.

        Args:
            stream: The stream, "scope/stream".
            stream_column: Instead: column with the full name of each row's stream, a string.
            key: Column of the routing key, a string. None (default): the column `key`, if there is one.
            event_time: Column of the event time, a timestamp. None (default): the column `event_time`, if any.
            partition: Column of the topic's partition that takes a row, an integer. None (default): the column
                `partition` beside a payload, if any.

        Raises:
            NotFound: The stream does not exist.
            InvalidArgument: Neither `stream` nor `stream_column` is given, or both are.
        """
        _check_target(stream, stream_column)
        if stream is not None:
            self.stream(stream)  # raises NotFound here and not later in the query
        return partial(
            self.write_batch,
            stream=stream,
            stream_column=stream_column,
            key=key,
            event_time=event_time,
            partition=partition,
        )

    def write_batch(
        self,
        batch: DataFrame,
        batch_id: int,
        stream: str | None = None,
        *,
        stream_column: str | None = None,
        key: str | None = None,
        event_time: str | None = None,
        partition: str | None = None,
        part: str = "",
    ) -> None:
        """Write a batch into a stream or several within `foreachBatch`: all rows together, once per query and batch id.

        The batch goes through the sink; docs/design/spark-sink.md says which columns it takes.

        Args:
            batch: The DataFrame that Spark passed to the function.
            batch_id: The id that Spark passed with it.
            stream: The stream, "scope/stream".
            stream_column: Instead: column with the full name of each row's stream, a string.
            key: Column of the routing key, a string.
            event_time: Column of the event time, a timestamp.
            partition: Column of the topic's partition that takes a row, an integer.
            part: Distinguishes several writes of one batch to one stream.

        Raises:
            InvalidArgument: A column or `part` cannot be used; neither `stream` nor `stream_column` is given, or both.
            IllegalTransition: The call is outside of `foreachBatch`.
            Closed: The store was detached.
        """
        self._loop.check()
        _check_target(stream, stream_column)
        self._batches.write(
            batch,
            batch_id,
            stream,
            stream_column=stream_column,
            key=key,
            event_time=event_time,
            partition=partition,
            part=part,
        )

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors while the block runs, or until Spark is stopped. See `BlockingEventproc.run`."""
        return super().run(app, grace_ms=grace_ms)

    def start(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors until Spark is stopped or the store is detached."""
        return self.run(app, grace_ms=grace_ms)

    def queries(self) -> list[QueryDescription]:
        """Return the running queries of the session, with the lag of each in the streams of this store."""
        return [describe_query(each, self._lags) for each in self._spark.streams.active]

    def _running_queries(self) -> list[QueryDescription]:
        """Return the queries for a look at the store; none while Spark is being stopped."""
        try:
            return self.queries()
        except Exception as why:
            LOG.debug("the queries are not measured: %s", shortened(str(why)))
            return []

    def _lags(self, positions: Mapping[str, str]) -> tuple[StreamLag, ...]:
        return self._loop.call(partial(self._twin.db.read, partial(lags_of, positions=positions)))

    def table(
        self,
        name: str,
        *,
        start: RowTime | None = None,
        end: RowTime | None = None,
        realtime: bool = False,
        version: str | None = None,
    ) -> DataFrame:
        """Return the rows of a table that supervisors publish, as of now; read by Spark's own Parquet reader.

        The first column is the row's time, `__time`. With roll-up, rows with equal times and dimensions may still
        occur several times: aggregate again, as in `sum(clicks)`. For SQL, `createOrReplaceTempView`.

            ep.table("clicks", start="2026-01-31").groupBy("page").sum("clicks").show()

        Args:
            name: The table: the spec's `datasource`.
            start: Only rows from this time on: a datetime, a text in ISO 8601, or ms since 1970.
            end: Only rows before this time.
            realtime: Also compute the rows of all events from the committed offsets to the tails: as of one moment,
                no event is missing, and none counts twice.
            version: Only the rows that the table had at this version, to overwrite them; not with `realtime`.

        Raises:
            NotFound: No supervisor has written to a table of that name.
            InvalidArgument: `start` or `end` is not a time, or `version` is none.
            TableChanged: What the table held at `version` was compacted, overwritten or dropped.

        Cost: one read; only files with rows between `start` and `end` are listed. A file that is replaced meanwhile
        stays for a day.
        """
        return self._tables.read(name, start=start, end=end, realtime=realtime, version=version)

    def compact_table(
        self, name: str, *, start: RowTime | None = None, end: RowTime | None = None
    ) -> Compaction:
        """Rewrite the intervals of a table that lie in several files into as few as possible, rolled up again.

        An interval stays if all its files but one have 5,000,000 rows, as those of a compaction have. Queries see the
        old files or the new ones. Supervisors may publish meanwhile.

        Args:
            name: The table.
            start: Only files with rows from this time on.
            end: Only files with rows before this time.

        Returns:
            What changed; nothing if another compaction was faster.

        Raises:
            NotFound: There is no such table.
            CorruptRecord: A file is missing, or has a column of another type than the newest spec of the table.

        Cost: a job of Spark that reads and writes the files, and one transaction.
        """
        return self._tables.compact(name, start=start, end=end)

    def overwrite_table(
        self, name: str, rows: DataFrame, *, start: RowTime | None, end: RowTime | None, version: str
    ) -> Overwriting:
        """Put rows in the place of everything that a table holds in [start, end), in one transaction.

        What supervisors publish after `version` stays beside the rows, and compaction keeps both. If another call
        changed the table since, nothing is written: neither call loses what the other wrote.

            hour = {"start": "2026-01-31T10", "end": "2026-01-31T11", "version": ep.table_version("clicks")}
            people = ep.table("clicks", **hour).where("page <> 'robots'")
            ep.overwrite_table("clicks", people, **hour)

        Args:
            name: The table.
            rows: Its new rows, with the columns of the table, `__time` included; rolled up again if the table is.
            start: The beginning of an interval of the table's segment granularity; None: of all times.
            end: The end of one; None: of all times.
            version: What `table_version` returned before the rows were read.

        Returns:
            What changed.

        Raises:
            NotFound: There is no such table.
            InvalidArgument: A column or the time of a row is missing; the table does not have a column, or has it with
                a type that does not hold every value of the rows' type; a row, or an interval of the table, reaches
                beyond the bounds.
            TableChanged: What the table held at `version` was compacted, overwritten or dropped; nothing changed.

        Cost: two jobs of Spark that write the rows, one that looks at their times, and one transaction.
        """
        return self._tables.overwrite(name, rows, start=start, end=end, version=version)

    def detach(self) -> None:
        """Drain the running processors, close readers and writers, and close the store.

        Spark keeps running; a second call does nothing. Calls of other threads that still run 5 s later are cancelled:
        they raise Closed there.
        """
        if self._loop.forked:
            return
        with self._once:
            stack, self._open = self._open, ExitStack()
        atexit.unregister(self.detach)
        _StopHook.forget(self._spark.sparkContext, self)
        self._drain()
        self._tables.close()
        for opened in reversed(list(self._loop.opened)):
            with suppress(Exception):  # a writer whose stream is gone must not keep the store open
                opened.close()
        stack.close()

    def _drain(self) -> None:
        """Stop the running apps. Failures were logged when they happened."""
        for opened in reversed(list(self._loop.opened)):
            if isinstance(opened, BlockingRunning):
                with suppress(ProcessorFailed):
                    opened.close()

    def _stop_queries(self) -> None:
        """Stop the session's queries, all at the same time."""
        settings = self._spark.conf
        if settings.get(_STOP_TIMEOUT, "0") == "0":
            settings.set(_STOP_TIMEOUT, f"{QUERY_STOP_S}s")
        stopping = [
            threading.Thread(target=self._stop_query, args=[each]) for each in self._spark.streams.active
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()

    def _stop_query(self, query: StreamingQuery) -> None:
        try:
            query.stop()
        except Exception as why:
            LOG.warning(
                "query %s: its batch does not end, so it is interrupted: %s",
                query.name or query.id,
                shortened(str(why)),
            )


class _StopHook:
    """Replaces the `stop` of a SparkContext, which every way of stopping Spark from Python calls."""

    def __init__(self, context: SparkContext, planners: PlannerProcesses | None) -> None:
        self.attached: list[AttachedEventproc] = []
        self._stop = context.stop
        self._planners = planners

    @classmethod
    def of(cls, context: SparkContext) -> _StopHook:
        """Return the hook of the context, installing it if necessary."""
        found: object = context.stop
        if not isinstance(found, cls):
            found = cls(context, PlannerProcesses.begin(context))
            context.stop = found  # type: ignore[method-assign]
        return found

    @property
    def launcher(self) -> Path | None:
        """What Spark should start as the Python of streams; None: the usual one."""
        return None if self._planners is None else self._planners.launcher

    @classmethod
    def forget(cls, context: SparkContext, attached: AttachedEventproc) -> None:
        """Remove a detached store."""
        found: object = context.stop
        if isinstance(found, cls) and attached in found.attached:
            found.attached.remove(attached)

    def __call__(self) -> None:
        attached, self.attached = self.attached, []
        with ExitStack() as ending:  # callbacks run in reverse order, also after a failure
            for each in attached:
                ending.callback(each.detach)
            if self._planners is not None:
                ending.callback(self._planners.end)
            ending.callback(self._stop)
            for each in attached:
                ending.callback(each._stop_queries)
                ending.callback(each._drain)


def _check_target(stream: str | None, stream_column: str | None) -> None:
    if (stream is None) == (stream_column is None):
        raise invalid_argument("stream", stream, "give either stream or stream_column")


def shortened(error: str) -> str:
    """Return the first line that is not empty, at most ERROR_CHARS_MAX characters."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines or [""])[0][:ERROR_CHARS_MAX]
