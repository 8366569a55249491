"""Spans of OpenTelemetry, and their context in the headers of events, as the W3C's Trace Context says.

A trace begins where the program samples one: everything here happens only beneath a span that is recorded, or for an
event whose headers have a context. So the sampler of the program decides what tracing costs.
https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    get_tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

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

Headers: TypeAlias = Mapping[str, str]
Attributes: TypeAlias = Mapping[str, str | int]

COUNT_MAX: Final = 62
CHARS_MAX: Final = 15_000
"""Headers, and their characters, beyond which no context is added: an event has 64 of at most 64 KiB in UTF-8."""

EndSpan: TypeAlias = Callable[[Exception | None], None]
"""Ends a span, with the error of what it is about."""

_W3C: Final = TraceContextTextMapPropagator()


class Traces:
    """Makes spans through the provider that the program has set. Safe to call from any thread."""

    def __init__(self) -> None:
        self._tracer = get_tracer("eventproc", __version__)

    def carrying(self, headers: Headers | None) -> Headers | None:
        """Return the headers of an event with the context of the present span, if that is recorded.

        Headers that have a context, or no room for one, stay as they are. About 0.3 us without a recorded span.
        """
        span = get_current_span()
        if not (span.is_recording() and _has_room(headers)) or TRACEPARENT in (headers or ()):
            return headers
        return _with_context(headers, span)

    def begin_send(self, stream: str, headers: Headers | None) -> tuple[Headers, EndSpan] | None:
        """Begin the span of an event that is written; return its headers with the context of it, and what ends it.

        The span is a child of the one that the headers name, else of the present one; None if that is not recorded, or
        the headers have no room.
        """
        is_carried = headers is not None and TRACEPARENT in headers
        if not (is_carried or get_current_span().is_recording()) or not _has_room(headers):
            return None
        parent = _W3C.extract(headers or {}) if is_carried else None
        span = self._tracer.start_span(
            f"send {stream}", parent, SpanKind.PRODUCER, _of_stream(stream, "send", "send")
        )
        if not span.is_recording():
            return None
        return _with_context(headers, span), partial(_end, span)

    @contextmanager
    def processing(
        self, stream: str, senders: Sequence[Headers], attributes: Attributes, *, is_batch: bool
    ) -> Iterator[SpanContext]:
        """Trace a call of a handler: the block is its span, which an error of the block ends as failed.

        senders: headers of the events that have a context. The span of one event is a child of its sender's, that of a
        batch is linked to all of them.
        """
        links: list[Link] = []
        parent = Context() if is_batch else _W3C.extract(senders[0], Context())
        if is_batch:
            links = [Link(_context_of(each)) for each in senders[:LINKS_MAX]]
        with self._tracer.start_as_current_span(
            f"process {stream}",
            parent,
            SpanKind.CONSUMER,
            {**_of_stream(stream, "process", "process"), **attributes},
            links,
        ) as span:
            try:
                yield span.get_span_context()
            except BaseException as why:  # a cancelled call has not handled its events either
                span.set_attribute(ERROR, type(why).__name__)
                span.set_status(StatusCode.ERROR)
                raise

    @contextmanager
    def committing(
        self, group: str, handled: Sequence[SpanContext], attributes: Attributes
    ) -> Iterator[None]:
        """Trace a commit, linked to the calls that it makes durable."""
        links = [Link(each) for each in handled]
        with self._tracer.start_as_current_span(
            f"commit {group}", Context(), SpanKind.CLIENT, {**_of("commit", "settle"), **attributes}, links
        ):
            yield

    @contextmanager
    def committing_transaction(
        self, txn_id: str, streams: Sequence[str], senders: Iterable[Headers]
    ) -> Iterator[None]:
        """Trace the commit of a transaction, until its events are visible: a child of the present span.

        It is linked to the other spans that sent its events. It has no span if none of these is recorded.
        senders: headers of events that have a context.
        """
        present = get_current_span()
        contexts = [each for each in map(_context_of, senders) if each.trace_flags.sampled]
        links = [Link(each) for each in contexts if each.span_id != present.get_span_context().span_id]
        if not (present.is_recording() or links):
            yield
            return
        attributes = {**_of("commit", "settle"), "eventproc.transaction.id": txn_id}
        where = "transaction"
        if len(streams) == 1:
            where = attributes[STREAM] = streams[0]
        parent = None if present.is_recording() else Context()
        with self._tracer.start_as_current_span(
            f"commit {where}", parent, SpanKind.CLIENT, attributes, links
        ):
            yield

    @contextmanager
    def requesting(self, kind: str, target: str) -> Iterator[None]:
        """Trace a request, from its submission to its outcome, if the present span is recorded."""
        if not get_current_span().is_recording():
            yield
            return
        attributes = {"eventproc.request.kind": kind, "eventproc.request.target": target}
        with self._tracer.start_as_current_span(f"{kind} {target}", attributes=attributes):
            yield


def _of(operation: str, kind: str) -> dict[str, str | int]:
    return {SYSTEM: "eventproc", OPERATION: operation, OPERATION_TYPE: kind}


def _of_stream(stream: str, operation: str, kind: str) -> dict[str, str | int]:
    return {**_of(operation, kind), STREAM: stream}


def _context_of(headers: Headers) -> SpanContext:
    return get_current_span(_W3C.extract(headers, Context())).get_span_context()


def _has_room(headers: Headers | None) -> bool:
    if not headers:
        return True
    try:
        chars = sum(len(name) + len(text) for name, text in headers.items())
    except (AttributeError, TypeError):  # the call will refuse them
        return False
    return len(headers) <= COUNT_MAX and chars <= CHARS_MAX


def _with_context(headers: Headers | None, span: Span) -> Headers:
    """Return a copy, of the same type, with the context of the span."""
    carrier = copy.copy(headers) if isinstance(headers, dict) else dict(headers or {})
    _W3C.inject(carrier, set_span_in_context(span))
    return carrier


def _end(span: Span, error: Exception | None) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_attribute(ERROR, type(error).__name__)
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
