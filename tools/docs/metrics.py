"""docs/metrics.md: every metric, from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterator

from eventproc.processors.observe.telemetry import COUNTERS, GAUGES, HISTOGRAMS, Instrument
from eventproc.runtime import measures
from eventproc.runtime.measures import MEASURES, Histogram, Measure
from eventproc.runtime.store_instruments import attribute_of

HEAD = """\
# Metrics

What `/metrics` shows to Prometheus, and what OpenTelemetry exports under the same names, with dots: [how to get
them](guide/observability.md).

`make docs` writes this page from the tables in the code; edit those.

## The state of a store

All processes that have the store open show the same values: take the maximum, not the sum. What clients sent and
consumed, and connections, watchers, strangers and containers, are of one process; add those up.

OpenTelemetry adds the attributes `messaging.system` and `eventproc.store.name` to each value.

| OpenTelemetry | Prometheus | kind | unit | labels, and their attributes | what it is |
| --- | --- | --- | --- | --- | --- |
"""

DURATIONS = """
## Durations

Of calls of one process; add those of all processes up. They are measured while `/metrics` is served or OpenTelemetry is
used, to the millisecond. `error` is the class of the error of a failed call, and empty otherwise. To OpenTelemetry goes
one value in 10 ms; Prometheus has all. Requests to object storage are those of all stores of the process.

| OpenTelemetry | Prometheus | kind | unit | labels, and their attributes | what it is |
| --- | --- | --- | --- | --- | --- |
"""

PROCESSORS = """
## Processors

Each process measures its own calls and commits, through OpenTelemetry only. Attributes: `messaging.system`,
`messaging.consumer.group.name`, `eventproc.processor.name`, `messaging.destination.name`, `messaging.operation.name`,
`messaging.operation.type`, and `error.type` of failed attempts.

| OpenTelemetry | kind | unit | what it is |
| --- | --- | --- | --- |
"""


def render() -> str:
    """Return the document as text."""
    return "".join((HEAD, *_states(), DURATIONS, *_durations(), PROCESSORS, *_processors()))


def _states() -> Iterator[str]:
    for each in MEASURES:
        kind, suffix = ("counter", "_total") if each.is_counter else ("gauge", "")
        yield _row(each, suffix, kind, each.unit)


def _durations() -> Iterator[str]:
    for each in measures.HISTOGRAMS:
        yield _row(each, "", "histogram", "s")


def _row(each: Measure | Histogram, suffix: str, kind: str, unit: str) -> str:
    labels = ", ".join(f"`{label}` `{attribute_of(label)}`" for label in each.labels)
    name = f"`{each.name}` | `{each.prometheus_name}{suffix}`"
    return f"| {name} | {kind} | `{unit}` | {labels} | {each.about} |\n"


def _processors() -> Iterator[str]:
    kinds: tuple[tuple[str, tuple[Instrument, ...]], ...] = (
        ("counter", COUNTERS),
        ("gauge", GAUGES),
        ("histogram", HISTOGRAMS),
    )
    for kind, rows in kinds:
        for each in rows:
            yield f"| `{each.name}` | {kind} | `{each.unit}` | {each.about} |\n"
