"""Log records with fields, and measurements of a processor through OpenTelemetry.

Measurements are taken if OpenTelemetry's API is installed (the extra `otel`); otherwise nothing of it is imported and
each call does nothing. They are taken per turn and per commit, never per event. Names follow the conventions for
messaging where these define one, and otherwise begin with `eventproc.`:
https://opentelemetry.io/docs/specs/semconv/messaging/
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from eventproc._version import __version__
from eventproc.processors.errors import type_name
from eventproc.processors.tracebacks import add_user_traceback
from eventproc.store.model.ids import format_segment
from eventproc.store.segments import Event

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

Attributes: TypeAlias = dict[str, str]

LOG: Final = logging.getLogger("eventproc.processors")
LOG.addFilter(add_user_traceback)

HANDLER_LOG: Final = logging.getLogger("eventproc.processors.handler")
"""The logger behind `Context.log`: what handlers log, apart from what eventproc logs about them."""

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
GROUP: Final = "messaging.consumer.group.name"
STREAM: Final = "messaging.destination.name"
ERROR: Final = "error.type"
PROCESSOR: Final = "eventproc.processor.name"

SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bucket boundaries of the histograms, in seconds: those of the conventions, and below them 1 ms, the duration of a
commit or of an empty handler."""


class EventLog(logging.LoggerAdapter[logging.Logger]):
    """A logger whose records have fields; the `extra` of a log call is kept and takes precedence."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Add the fields to a log call. Before Python 3.13, LoggerAdapter drops the `extra` of the call."""
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def event_log(processor: str, event: Event, attempt: int) -> EventLog:
    """Return the logger of one call of a handler: `eventproc.processors.handler`, with the fields of `event_fields`."""
    return EventLog(HANDLER_LOG, event_fields(processor, event, attempt))


def event_fields(processor: str, event: Event, attempt: int) -> dict[str, object]:
    """Return the fields of log records that identify a call of a handler. About 1 us.

    They are processor, stream, segment ("0.0"), offset, number, key, attempt.
    """
    return {
        "processor": processor,
        "stream": event.stream,
        "segment": format_segment(event.segment),
        "offset": event.offset,
        "number": event.number,
        "key": event.key,
        "attempt": attempt,
    }


class Telemetry:
    """Measures one processor. Safe to call from any thread.

    This class measures nothing; it is used if OpenTelemetry is not installed. See `telemetry`.
    """

    __slots__ = ()

    def handled(self, stream: str, seconds: float) -> None:
        """Record the duration of a worker's turn: several calls one after the other, or one call with a batch."""

    def finished(self, stream: str, count: int) -> None:
        """Count events that are durably finished: handled, skipped or dead letters."""

    def failed(self, stream: str, error: BaseException, *, again: bool) -> None:
        """Count a failed call. again: it will be retried."""

    def dead_lettered(self, stream: str, count: int) -> None:
        """Count events that durably became dead letters."""

    def skipped(self, stream: str, count: int) -> None:
        """Count events that were given up without a dead letter."""

    def committed(self, seconds: float, emitted: Mapping[str, int]) -> None:
        """Record the duration of a commit, and count the events that it appended, by stream."""

    def in_flight(self, count: int) -> None:
        """Record how many events are handed out and not finished now."""

    def lag(self, stream: str, events: int) -> None:
        """Record how many events of a stream are not finished."""


NOTHING: Final = Telemetry()
"""Measures nothing."""


def telemetry(processor: str, group: str) -> Telemetry:
    """Return the measurements of a processor: NOTHING if OpenTelemetry's API is not installed."""
    try:
        from opentelemetry.metrics import get_meter
    except ImportError:
        return NOTHING
    return MeteredTelemetry(get_meter("eventproc", __version__), processor, group)


class MeteredTelemetry(Telemetry):
    """Measures through OpenTelemetry, with the provider that the program has set."""

    __slots__ = (
        "_attributes",
        "_commit_seconds",
        "_dead",
        "_emitted",
        "_failed",
        "_finished",
        "_handler_seconds",
        "_in_flight",
        "_lag",
        "_retried",
        "_skipped",
        "_streams",
    )

    def __init__(self, meter: Meter, processor: str, group: str) -> None:
        self._attributes: Attributes = {SYSTEM: "eventproc", GROUP: group, PROCESSOR: processor}
        self._streams: dict[str, Attributes] = {}
        count, gauge = meter.create_counter, meter.create_gauge
        self._finished = count("eventproc.processor.finished", "{event}", "Events finished, durably.")
        self._failed = count("eventproc.processor.failed_attempts", "{attempt}", "Attempts that failed.")
        self._retried = count(
            "eventproc.processor.retries", "{attempt}", "Failed attempts that were tried again."
        )
        self._dead = count("eventproc.processor.dead_letters", "{event}", "Events that became dead letters.")
        self._skipped = count(
            "eventproc.processor.skipped", "{event}", "Events that were given up and skipped."
        )
        self._emitted = count("eventproc.processor.emitted", "{event}", "Events that handlers emitted.")
        self._in_flight = gauge("eventproc.processor.in_flight", "{event}", "Events read and not finished.")
        self._lag = gauge("eventproc.processor.lag", "{event}", "Events of the stream not finished.")
        self._handler_seconds = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of processing operation: of a worker's turn, some calls of the handler or one batch.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self._commit_seconds = meter.create_histogram(
            "eventproc.processor.commit.duration",
            "s",
            "Duration of the transaction that makes progress durable.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )

    def handled(self, stream: str, seconds: float) -> None:
        """See `Telemetry.handled`."""
        self._handler_seconds.record(seconds, self._of(stream))

    def finished(self, stream: str, count: int) -> None:
        """See `Telemetry.finished`."""
        self._finished.add(count, self._of(stream))

    def failed(self, stream: str, error: BaseException, *, again: bool) -> None:
        """See `Telemetry.failed`."""
        where = self._of(stream)
        self._failed.add(1, {**where, ERROR: type_name(type(error))})
        if again:
            self._retried.add(1, where)

    def dead_lettered(self, stream: str, count: int) -> None:
        """See `Telemetry.dead_lettered`."""
        self._dead.add(count, self._of(stream))

    def skipped(self, stream: str, count: int) -> None:
        """See `Telemetry.skipped`."""
        self._skipped.add(count, self._of(stream))

    def committed(self, seconds: float, emitted: Mapping[str, int]) -> None:
        """See `Telemetry.committed`."""
        self._commit_seconds.record(seconds, self._attributes)
        for stream, count in emitted.items():
            where = {**self._attributes, STREAM: stream, OPERATION: "emit", OPERATION_TYPE: "send"}
            self._emitted.add(count, where)

    def in_flight(self, count: int) -> None:
        """See `Telemetry.in_flight`."""
        self._in_flight.set(count, self._attributes)

    def lag(self, stream: str, events: int) -> None:
        """See `Telemetry.lag`."""
        self._lag.set(events, self._of(stream))

    def _of(self, stream: str) -> Attributes:
        """Return the attributes for a stream; they are kept, because a processor reads few streams."""
        found = self._streams.get(stream)
        if found is None:
            operation = {OPERATION: "process", OPERATION_TYPE: "process"}
            found = self._streams[stream] = {**self._attributes, STREAM: stream, **operation}
        return found
