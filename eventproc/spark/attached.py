"""The runtime inside a Spark driver: a directory opened beside a session, and closed with it.

See docs/design/spark-embedding.md.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Final

import attrs
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from eventproc.blocking import BlockingEventproc, BlockingRunning
from eventproc.blocking.loop import Loop, running_loop
from eventproc.processors import GRACE_MS, App, ProcessorFailed
from eventproc.runtime import Eventproc
from eventproc.runtime import open as open_directory
from eventproc.spark.foreach_batch import BatchWriter
from eventproc.spark.queries import QueryDescription, SparkQuery, describe_queries
from eventproc.spark.query_publisher import Change, QueryListener, QueryPublisher
from eventproc.spark.sessions import register
from eventproc.store.database import Durability
from eventproc.store.model.arguments import instance_of
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
    """Open the directory `path` in this driver, until Spark is stopped, and return the blocking API on it.

    Registers the format "eventproc" with the session, and publishes what its queries say. The other arguments, and
    what is raised: see `open`. Also usable in `with`, whose end closes the directory and leaves Spark running.
    """
    instance_of(SparkSession, "session", spark, "it must be a session of this process, not of Spark Connect")
    register(spark)
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop())
        opening = open_directory(path, durability=durability, create=create, host=host)
        system = stack.enter_context(loop.entered(opening))
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
        self._running: dict[int, ExitStack] = {}  # apps, to be left by whoever comes first
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
        """The session it is attached to."""
        return self._spark

    def writing(
        self, stream: str, *, key: str | None = None, event_time: str | None = None
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for `foreachBatch`, which writes each batch into `stream` once. See `write_batch`."""
        self.stream(stream)  # there, or refused here and not in the query
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
        """Write a batch, within `foreachBatch`, into a stream: all of it together, once for each query and batch id.

        It goes through the sink (docs/design/spark-sink.md): what columns may be there, and what becomes of rows, is
        said there. key, event_time: the columns to take them from. part: tells apart what one function writes to one
        stream. Raises InvalidArgument, IllegalTransition outside of `foreachBatch`, Closed, and what Spark raises.
        """
        self._loop.check()
        self._batches.write(batch, batch_id, stream, key=key, event_time=event_time, part=part)

    def run(self, app: App, *, grace_ms: int = GRACE_MS) -> AbstractContextManager[BlockingRunning]:
        """Run the app's processors while the block does, or until Spark is stopped. See `BlockingEventproc.run`."""
        return self._run(app, grace_ms)

    def start(self, app: App, *, grace_ms: int = GRACE_MS) -> BlockingRunning:
        """Run the app's processors until Spark is stopped, or this is detached."""
        stack, running = self._entered(app, grace_ms)
        self._running[id(stack)] = stack
        return running

    def queries(self) -> list[QueryDescription]:
        """Return the queries of Spark that drivers published here within a week, and how far each lags."""
        path, db = self._path, self._system.db
        self._loop.call(self._publisher.write)  # what this driver's queries said by now
        return self._loop.call(partial(db.read, lambda tx: describe_queries(tx, path)))

    def detach(self) -> None:
        """Drain the processors that run, and close the directory; again, it does nothing. Spark goes on."""
        if self._loop.forked:
            return
        with self._once:
            stack, self._open = self._open, ExitStack()
        atexit.unregister(self.detach)
        _StopHook.forget(self._spark.sparkContext, self)
        self._drain()
        stack.close()

    def _entered(self, app: App, grace_ms: int) -> tuple[ExitStack, BlockingRunning]:
        stack = ExitStack()
        return stack, stack.enter_context(super().run(app, grace_ms=grace_ms))

    @contextmanager
    def _run(self, app: App, grace_ms: int) -> Iterator[BlockingRunning]:
        stack, running = self._entered(app, grace_ms)
        self._running[id(stack)] = stack
        try:
            yield running
        except BaseException as why:
            if self._running.pop(id(stack), None) is not None:
                stack.__exit__(type(why), why, why.__traceback__)
            raise
        if self._running.pop(id(stack), None) is not None:
            stack.close()

    def _drain(self) -> None:
        """Leave the apps that run; what failed was logged when it did."""
        while self._running:
            _, stack = self._running.popitem()
            with suppress(ProcessorFailed):
                stack.close()

    @contextmanager
    def _publishing(self) -> Iterator[None]:
        """Publish what queries of the session say, while the block runs."""
        listener = QueryListener(self._note)
        streams = self._spark.streams
        task = self._loop.start(self._publisher.run)
        streams.addListener(listener)
        try:
            yield
        finally:
            if self._spark.sparkContext._jsc is not None:
                with suppress(Exception):  # the JVM may be dead: then nobody listens
                    streams.removeListener(listener)
            task.cancel()
            self._loop.call(self._publisher.write)

    def _note(self, query_id: str, run_id: str, name: str | None, change: Change) -> None:
        with suppress(Closed):  # Spark says the last things after we are gone
            self._loop.start(self._publisher.note, query_id, run_id, name, change)

    def _stop_queries(self) -> None:
        """Stop the session's queries, so that they end in order, and note it."""
        for query in self._spark.streams.active:
            try:
                query.stop()
            except Exception as why:
                LOG.warning("query %s did not stop in order: %s", query.id, why)
            self._note(str(query.id), str(query.runId), query.name, _ended)


class _StopHook:
    """What stands in the place of a context's `stop`: all ways of stopping Spark from Python lead there."""

    def __init__(self, context: SparkContext) -> None:
        self.attached: list[AttachedEventproc] = []
        self._stop = context.stop

    @classmethod
    def of(cls, context: SparkContext) -> _StopHook:
        """Return that of the context, put there when it is not."""
        found: object = context.stop
        if not isinstance(found, cls):
            found = cls(context)
            context.stop = found  # type: ignore[method-assign]
        return found

    @classmethod
    def forget(cls, context: SparkContext, attached: AttachedEventproc) -> None:
        """Leave one out that is detached."""
        found: object = context.stop
        if isinstance(found, cls) and attached in found.attached:
            found.attached.remove(attached)

    def __call__(self) -> None:
        attached, self.attached = self.attached, []
        with ExitStack() as ending:  # run from the last to the first, also when one of them fails
            for each in attached:
                ending.callback(each.detach)
            ending.callback(self._stop)
            for each in attached:
                ending.callback(each._stop_queries)
                ending.callback(each._drain)


def _ended(said: SparkQuery) -> SparkQuery:
    return attrs.evolve(said, ended=True)
