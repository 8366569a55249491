"""Handlers that run Spark jobs on a thread. When a call is cancelled, its jobs are cancelled too."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync
from pyspark import SparkContext
from pyspark.sql import SparkSession

from eventproc.processors import Context
from eventproc.spark.job_groups import cancel_jobs
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import IllegalTransition

_COUNT: Final = itertools.count(1)
_JOB_PROPERTIES: Final = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def job(function: Callable[[SparkSession, Any], object]) -> Callable[[Any, Context], Awaitable[None]]:
    """Turn a plain function of a session and an event (with `batch`, a list of events) into a handler.

        @app.processor("air/uploads", order=None, concurrency=2)
        @eventproc.spark.job
        def load(spark: SparkSession, event: eventproc.Event) -> None: ...

    The function runs on a thread. Its Spark jobs form one group, named after the function and the event. The group
    is cancelled when the call is cancelled: at its timeout, or at the end of the grace period. Like every handler it
    runs at least once, so a second run should overwrite the output of the first.

    Args:
        function: Called with the active session and the event.

    Raises:
        InvalidArgument: `function` is not callable.
        IllegalTransition: When the handler is called and no session is active.
    """
    if not callable(function):
        raise invalid_argument("function", function, "it must be a function of a session and an event")
    name = getattr(function, "__name__", type(function).__name__)

    @wraps(function)
    async def handler(event: Any, context: Context) -> None:
        group = f"eventproc {name} {next(_COUNT)}"
        work = partial(
            _run, function, event, group, f"{name}: {_described(event)}, attempt {context.attempt}"
        )
        try:
            await run_sync(work, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await run_sync(_cancel, group)
            raise

    del handler.__wrapped__  # App.processor inspects the handler's own parameters
    return handler


def _run(
    function: Callable[[SparkSession, Any], object], event: object, group: str, description: str
) -> None:
    if SparkContext._active_spark_context is None:
        raise IllegalTransition(name="a handler", event="running a job", state="without a session of Spark")
    spark = SparkSession.active()
    context = spark.sparkContext
    context.setJobGroup(group, description)
    try:
        function(spark, event)
    finally:
        for each in _JOB_PROPERTIES:  # the thread will serve other calls
            context.setLocalProperty(each, None)  # type: ignore[arg-type]


def _cancel(group: str) -> None:
    context = SparkContext._active_spark_context
    if context is not None:
        cancel_jobs(context, group)


def _described(event: object) -> str:
    if isinstance(event, list):
        return f"{len(event)} events from {_described(event[0])} on" if event else "no events"
    segment, number = getattr(event, "segment", "?"), getattr(event, "number", "?")
    return f"event {number} of segment {segment}"
