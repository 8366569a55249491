"""Log records with fields, and measurements and spans of a processor through OpenTelemetry.

Measurements are taken if the program has imported OpenTelemetry's API (the extra `otel`), which it needs for setting a
provider; otherwise each call does nothing. They are taken per turn and per commit, never per event. Names follow the
conventions for messaging where these define one, and otherwise begin with `eventproc.`:
https://opentelemetry.io/docs/specs/semconv/messaging/
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from eventproc._version import __version__
from eventproc.base.conventions import (
    ERROR,
    LINKS_MAX,
    OPERATION,
    OPERATION_TYPE,
    STREAM,
    SYSTEM,
    TRACEPARENT,
)
from eventproc.base.durations import SECONDS
from eventproc.base.telemetry_use import NOT_TRACED, find_traces, uses_metrics
from eventproc.processors.errors import type_name
from eventproc.processors.tracebacks import add_user_traceback
from eventproc.store.model.ids import format_segment
from eventproc.store.segments import Event

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import SpanContext

    from eventproc.base.spans import Traces

Attributes: TypeAlias = dict[str, str]

LOG: Final = logging.getLogger("eventproc.processors")
LOG.addFilter(add_user_traceback)

HANDLER_LOG: Final = logging.getLogger("eventproc.processors.handler")
"""The logger behind `Context.log`: what handlers log, apart from what eventproc logs about them."""

GROUP: Final = "messaging.consumer.group.name"
PROCESSOR: Final = "eventproc.processor.name"
SEGMENT: Final = "messaging.destination.partition.id"
NUMBER: Final = "eventproc.event.number"
ATTEMPT: Final = "eventproc.attempt"
BATCH: Final = "messaging.batch.message_count"


class Instrument(NamedTuple):
    """An instrument of processors: its name, its unit, and what it measures."""

    name: str
    unit: str
    about: str


_OWN: Final = "eventproc.processor"

FINISHED: Final = Instrument(f"{_OWN}.finished", "{event}", "Events finished, durably.")
FAILED: Final = Instrument(f"{_OWN}.failed_attempts", "{attempt}", "Attempts that failed.")
RETRIES: Final = Instrument(f"{_OWN}.retries", "{attempt}", "Failed attempts that were tried again.")
DEAD_LETTERS: Final = Instrument(f"{_OWN}.dead_letters", "{event}", "Events that became dead letters.")
SKIPPED: Final = Instrument(f"{_OWN}.skipped", "{event}", "Events that were given up and skipped.")
EMITTED: Final = Instrument(f"{_OWN}.emitted", "{event}", "Events that handlers emitted.")
IN_FLIGHT: Final = Instrument(f"{_OWN}.in_flight", "{event}", "Events read and not finished.")
LAG: Final = Instrument(f"{_OWN}.lag", "{event}", "Events of the stream not finished.")
PROCESS_DURATION: Final = Instrument(
    "messaging.process.duration",
    "s",
    "Duration of processing operation: of a worker's turn, some calls of the handler or a batch. Of many turns, some.",
)
COMMIT_DURATION: Final = Instrument(
    f"{_OWN}.commit.duration", "s", "Duration of the transaction that makes progress durable."
)

TURNS_MEASURED: Final = 8
"""Turns whose durations are recorded between two commits, about. If there are more, every second, third, ... one is.
Higher: handlers that do nothing are slower, by about 10 us for each value; lower: fewer values."""

COUNTERS: Final = (FINISHED, FAILED, RETRIES, DEAD_LETTERS, SKIPPED, EMITTED)
GAUGES: Final = (IN_FLIGHT, LAG)
HISTOGRAMS: Final = (PROCESS_DURATION, COMMIT_DURATION)


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
    """Measures and traces one processor. Safe to call from any thread.

    traces: makes spans; None: the program does not trace.

    This class measures nothing; it is used if the program does not use OpenTelemetry. See `telemetry`.
    """

    __slots__ = ()

    traces: Traces | None = None

    def processing(
        self, events: Sequence[Event[Any]], attempt: int, *, is_batch: bool = False
    ) -> AbstractContextManager[object]:
        """Return the span of a call with these events, if one of them was sent in a span."""
        return NOT_TRACED

    def committing(self) -> AbstractContextManager[object]:
        """Return the span of a commit, if it makes traced calls durable."""
        return NOT_TRACED

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
    """Return the measurements of a processor: NOTHING if the program has not imported OpenTelemetry's API."""
    traces = find_traces()
    if traces is None and not uses_metrics():
        return NOTHING
    from opentelemetry.metrics import get_meter

    return MeteredTelemetry(get_meter("eventproc", __version__), processor, group, traces)


class MeteredTelemetry(Telemetry):
    """Measures through OpenTelemetry, with the provider that the program has set."""

    __slots__ = (
        "_attributes",
        "_calls",
        "_commit_seconds",
        "_dead",
        "_emitted",
        "_failed",
        "_finished",
        "_handler_seconds",
        "_in_flight",
        "_lag",
        "_measured_turn",
        "_retried",
        "_skipped",
        "_streams",
        "_turns",
        "traces",
    )

    def __init__(self, meter: Meter, processor: str, group: str, traces: Traces | None = None) -> None:
        self.traces = traces
        self._calls: list[SpanContext] = []  # that no commit has made durable
        self._turns = 0  # since the last commit
        self._measured_turn = 1  # one of so many
        self._attributes: Attributes = {SYSTEM: "eventproc", GROUP: group, PROCESSOR: processor}
        self._streams: dict[str, Attributes] = {}
        self._finished = meter.create_counter(*FINISHED)
        self._failed = meter.create_counter(*FAILED)
        self._retried = meter.create_counter(*RETRIES)
        self._dead = meter.create_counter(*DEAD_LETTERS)
        self._skipped = meter.create_counter(*SKIPPED)
        self._emitted = meter.create_counter(*EMITTED)
        self._in_flight = meter.create_gauge(*IN_FLIGHT)
        self._lag = meter.create_gauge(*LAG)
        self._handler_seconds, self._commit_seconds = (
            meter.create_histogram(*each, explicit_bucket_boundaries_advisory=SECONDS)
            for each in (PROCESS_DURATION, COMMIT_DURATION)
        )

    def processing(
        self, events: Sequence[Event[Any]], attempt: int, *, is_batch: bool = False
    ) -> AbstractContextManager[object]:
        """See `Telemetry.processing`."""
        if self.traces is None:
            return NOT_TRACED
        senders = [each.headers for each in events if TRACEPARENT in each.headers]
        if not senders:
            return NOT_TRACED
        return self._processing(self.traces, events, senders, attempt, is_batch)

    @contextmanager
    def _processing(
        self,
        traces: Traces,
        events: Sequence[Event[Any]],
        senders: Sequence[Mapping[str, str]],
        attempt: int,
        is_batch: bool,
    ) -> Iterator[None]:
        first = events[0]
        attributes: dict[str, str | int] = {
            GROUP: self._attributes[GROUP],
            PROCESSOR: self._attributes[PROCESSOR],
            ATTEMPT: attempt,
            **(
                {BATCH: len(events)}
                if is_batch
                else {SEGMENT: format_segment(first.segment), NUMBER: first.number}
            ),
        }
        with traces.processing(first.stream, senders, attributes, is_batch=is_batch) as span:
            yield
        if span.trace_flags.sampled and len(self._calls) < LINKS_MAX:
            self._calls.append(span)

    def committing(self) -> AbstractContextManager[object]:
        """See `Telemetry.committing`."""
        if self.traces is None or not self._calls:
            return NOT_TRACED
        calls, self._calls = self._calls, []
        attributes = {GROUP: self._attributes[GROUP], PROCESSOR: self._attributes[PROCESSOR]}
        return self.traces.committing(self._attributes[GROUP], calls, attributes)

    def handled(self, stream: str, seconds: float) -> None:
        """See `Telemetry.handled`."""
        self._turns += 1
        if self._turns % self._measured_turn == 0:
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
        self._measured_turn, self._turns = self._turns // TURNS_MEASURED + 1, 0
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
