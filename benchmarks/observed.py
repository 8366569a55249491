"""What observing costs: events posted and handled in one process, with OpenTelemetry and without.

Metrics are exported every 5 s, twelve times as often as by default. Traces are sampled as programs do that: a span
of the program for each event, one of 100 recorded. Their floor makes these spans too, but has no provider until writer
and processor are made, so that the ratio shows what eventproc adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from io import StringIO
from typing import Final

import anyio

import eventproc
from benchmarks.samples import KEYS_COUNT, Sample, Stopwatch, Task, keys, payloads

SEGMENTS_COUNT: Final = 4
"""Segments of the stream."""

EXPORT_MS: Final = 5_000
"""Pause between two exports of metrics."""

SAMPLED: Final = 0.01
"""Part of the program's spans that is recorded."""

_NO_SPAN: Final = nullcontext()


async def plain(task: Task) -> Sample:
    """Post keyed events, and call a handler for each, without OpenTelemetry."""
    return await _flow(task)


async def metered(task: Task) -> Sample:
    """The same, with metrics."""
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

    exporter = ConsoleMetricExporter(StringIO())
    provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=EXPORT_MS)])
    metrics.set_meter_provider(provider)
    sample = await _flow(task)
    provider.shutdown()
    return sample


async def traced(task: Task) -> Sample:
    """The same in spans of the program, one of 100 recorded, which eventproc continues."""
    begin = _sampled_spans()
    return await _flow(task, span=begin())


async def untraced(task: Task) -> Sample:
    """The same in spans of the program, which eventproc does not continue."""
    return await _flow(task, late=_sampled_spans)


def _sampled_spans() -> Callable[[], Callable[[], AbstractContextManager[object]]]:
    """Return what sets a provider of tracers, and returns what begins a span of the program."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    def begin() -> Callable[[], AbstractContextManager[object]]:
        provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(SAMPLED)))
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        trace.set_tracer_provider(provider)
        tracer = trace.get_tracer("program")
        return lambda: tracer.start_as_current_span("order")

    return begin


async def _flow(
    task: Task,
    *,
    span: Callable[[], AbstractContextManager[object]] = lambda: _NO_SPAN,
    late: Callable[[], Callable[[], Callable[[], AbstractContextManager[object]]]] | None = None,
) -> Sample:
    """Post the events, each in a span, while a processor handles them; return the rate until the last one is handled.

    late: makes the spans, once writer and processor are made.
    """
    handled, done = 0, anyio.Event()

    async def handle(_: eventproc.Event) -> None:
        nonlocal handled
        handled += 1
        if handled == task.count:
            done.set()

    app = eventproc.App()
    app.add(handle, "bench/in", name="bench", order="key")
    async with eventproc.open(task.store, durability=task.durability) as ep:
        await ep.create_scope("bench")
        stream = await ep.create_stream("bench/in", scaling=eventproc.ScalingPolicy.fixed(SEGMENTS_COUNT))
        pairs = list(zip(payloads(), keys(), strict=True))
        async with stream.writer() as writer, ep.run(app) as running:
            await running.status()
            if late is not None:
                span = late()()
            watch = Stopwatch()
            for _ in range(task.count // KEYS_COUNT):
                for payload, key in pairs:
                    with span():
                        await writer.post(payload, key=key)
            await done.wait()
            return watch.rate(task.count)
