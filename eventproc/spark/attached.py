"""The runtime inside a Spark driver: a directory that is opened beside a session and closed with it.

See docs/design/spark-embedding.md.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Final

import attrs
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from eventproc.blocking import BlockingEventproc, BlockingRunning
from eventproc.blocking.loop import Loop, running_loop
from eventproc.blocking.system import open_on
from eventproc.processors import GRACE_MS, App, ProcessorFailed
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.spark.foreach_batch import BatchWriter
from eventproc.spark.queries import QueryDescription, SparkQuery, describe_queries
from eventproc.spark.query_publisher import Change, QueryListener, QueryPublisher
from eventproc.spark.sessions import register
from eventproc.store.database import Durability
from eventproc.store.model.argument_checks import check_instance
from eventproc.store.model.errors import Closed

LOG: Final = logging.getLogger("eventproc.spark")


def attach(
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
) -> AttachedEventproc:
    """Open the directory `path` in this driver until Spark is stopped, and return the blocking API on it.

    Registers the format "eventproc" with the session and publishes the status of its queries. Also usable in `with`:
    the end of the block closes the directory and leaves Spark running.

    Args:
        spark: A session of this process, not of Spark Connect.
        path: The directory.
        durability: Of a new directory; see `eventproc.open`.
        create: Whether to make a directory that does not exist.
        host: Whether this instance may run the internal processors.

    Raises:
        InvalidArgument: `spark` is not a session of this process.
        StoreMissing, StoreUnusable, NotSupported: As `eventproc.open`.
    """
    check_instance(
        SparkSession, "session", spark, "it must be a session of this process, not of Spark Connect"
    )
    register(spark)
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop())
        opening = open_directory(path, durability=durability, create=create, host=host)
        system = open_on(loop, opening)
        stack.callback(loop.call, system.close)
        attached = AttachedEventproc(loop, system, spark)
        stack.enter_context(attached._publishing())
        attached._open = stack.pop_all()
    _StopHook.of(spark.sparkContext).attached.append(attached)
    atexit.register(attached.detach)
    return attached


class AttachedEventproc(BlockingEventproc):
    """An open directory inside a Spark driver; made by `attach`, usable from any thread until it is detached."""

    def __init__(self, loop: Loop, system: Eventproc, spark: SparkSession) -> None:
        super().__init__(loop, system)
        self._spark = spark
        self._open = ExitStack()
        assert system.path is not None, "a directory has a path"
        self._path = system.path
        self._batches = BatchWriter(system.path)
        self._publisher = QueryPublisher(system.db)
        self._once = threading.Lock()

    def __enter__(self) -> AttachedEventproc:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    @property
    def spark(self) -> SparkSession:
        """The session that this directory is attached to."""
        return self._spark

    def writing(
        self, stream: str, *, key: str | None = None, event_time: str | None = None
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch` that writes each batch into `stream` once.

        Args:
            stream: The stream, "scope/stream".
            key: Column of the routing key, a string. None (default): the column `key`, if there is one.
            event_time: Column of the event time, a timestamp. None (default): the column `event_time`, if any.

        Raises:
            NotFound: The stream does not exist.
        """
        self.stream(stream)  # raises NotFound here and not later in the query
        return partial(self.write_batch, stream=stream, key=key, event_time=event_time)

    def write_batch(
        self,
        batch: DataFrame,
        batch_id: int,
        stream: str,
        *,
        key: str | None = None,
        event_time: str | None = None,
        part: str = "",
    ) -> None:
        """Write a batch into a stream from within `foreachBatch`: all rows together, once per query and batch id.

        The batch goes through the sink; docs/design/spark-sink.md says which columns it takes.

        Args:
            batch: The DataFrame that Spark passed to the function.
            batch_id: The id that Spark passed with it.
            stream: The stream, "scope/stream".
            key: Column of the routing key, a string.
            event_time: Column of the event time, a timestamp.
            part: Distinguishes several writes of one batch to one stream.

        Raises:
            InvalidArgument: A column or `part` cannot be used.
            IllegalTransition: The call is outside of `foreachBatch`.
            Closed: The directory was detached.
        """
        self._loop.check()
        self._batches.write(batch, batch_id, stream, key=key, event_time=event_time, part=part)

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors while the block runs, or until Spark is stopped. See `BlockingEventproc.run`."""
        return super().run(app, grace_ms=grace_ms)

    def start(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors until Spark is stopped or the directory is detached."""
        return self.run(app, grace_ms=grace_ms)

    def queries(self) -> list[QueryDescription]:
        """Return the Spark queries that drivers published here within a week, with the lag of each."""
        path, db = self._path, self._twin.db
        self._loop.call(self._publisher.write)  # the latest status of this driver's queries
        return self._loop.call(partial(db.read, lambda tx: describe_queries(tx, path)))

    def detach(self) -> None:
        """Drain the running processors and close the directory. Spark keeps running; a second call does nothing."""
        if self._loop.forked:
            return
        with self._once:
            stack, self._open = self._open, ExitStack()
        atexit.unregister(self.detach)
        _StopHook.forget(self._spark.sparkContext, self)
        self._drain()
        stack.close()

    def _drain(self) -> None:
        """Stop the running apps. Failures were logged when they happened."""
        for opened in reversed(list(self._loop.opened)):
            if isinstance(opened, BlockingRunning):
                with suppress(ProcessorFailed):
                    opened.close()

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        """Publish the status of the session's queries while the block runs."""
        listener = QueryListener(self._note)
        streams = self._spark.streams
        task = self._loop.start(self._publisher.run)
        streams.addListener(listener)
        try:
            yield
        finally:
            if self._spark.sparkContext._jsc is not None:
                with suppress(Exception):  # the JVM may be dead: then the listener is gone too
                    streams.removeListener(listener)
            task.cancel()
            self._loop.call(self._publisher.write)

    def _note(self, query_id: str, run_id: str, name: str | None, change: Change) -> None:
        with suppress(Closed):  # Spark may report after the directory was closed
            self._loop.start(self._publisher.note, query_id, run_id, name, change)

    def _stop_queries(self) -> None:
        """Stop the session's queries in order and publish that they ended."""
        for query in self._spark.streams.active:
            try:
                query.stop()
            except Exception as why:
                LOG.warning("query %s failed to stop: %s", query.id, why)
            self._note(str(query.id), str(query.runId), query.name, _ended)


class _StopHook:
    """Replaces the `stop` of a SparkContext, which every way of stopping Spark from Python calls."""

    def __init__(self, context: SparkContext) -> None:
        self.attached: list[AttachedEventproc] = []
        self._stop = context.stop

    @classmethod
    def of(cls, context: SparkContext) -> _StopHook:
        """Return the hook of the context, installing it if necessary."""
        found: object = context.stop
        if not isinstance(found, cls):
            found = cls(context)
            context.stop = found  # type: ignore[method-assign]
        return found

    @classmethod
    def forget(cls, context: SparkContext, attached: AttachedEventproc) -> None:
        """Remove a detached directory."""
        found: object = context.stop
        if isinstance(found, cls) and attached in found.attached:
            found.attached.remove(attached)

    def __call__(self) -> None:
        attached, self.attached = self.attached, []
        with ExitStack() as ending:  # callbacks run in reverse order, also after a failure
            for each in attached:
                ending.callback(each.detach)
            ending.callback(self._stop)
            for each in attached:
                ending.callback(each._stop_queries)
                ending.callback(each._drain)


def _ended(query: SparkQuery) -> SparkQuery:
    return attrs.evolve(query, ended=True)
