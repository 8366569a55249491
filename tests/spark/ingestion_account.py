"""The events that tortures of an ingestion write, and what the tables must say of them: the writers' account.

A writer numbers its events from 0. The number decides what an event is: a row of both tables, no row of one or of both,
one that is thrown away because it is late, or the same row as the event before it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from eventproc.ingestion import (
    DataSchema,
    Dimension,
    Granularity,
    IoConfig,
    Metric,
    MetricType,
    SupervisorSpec,
    TimestampSpec,
    TuningConfig,
)

STREAM: Final = "s/events"
EACH, SUMS = "each", "sums"
"""The tables: a row for each event, and sums by minute and writer of those with the field `timed`."""

ODD: Final = "s/odd"
"""The stream of the events that are no rows of a table."""

REPEATED_EVERY: Final = 13
"""One of so many events of a writer is the same row as the one before it."""

TIMELESS_EVERY: Final = 7
"""One of so many has no field `timed`: it is no row of the second table."""

LATE_EVERY: Final = 11
"""One of so many has a time long before its task's: it is thrown away."""

MALFORMED_EVERY: Final = 17
"""One of so many is no JSON: it is no row of any table."""

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

START_MS: Final = 4_102_444_800_000
"""Time of the first event: in 2100, so that the clock of the machine does not decide what is late. The late ones have
the times of 1970."""

Rows = Counter[tuple[Any, ...]]


JOB_TIMEOUT_MS: Final = 180_000
"""How long the jobs of a task may make no progress. The first one of a worker needs a minute on a busy machine."""

TASK_TIMEOUT_MS: Final = 20_000
"""How long a task may be silent."""


def _spec(
    table: str, dimensions: Iterable[str], query: Granularity, *, column: str, groups: int
) -> SupervisorSpec:
    return SupervisorSpec(
        io=IoConfig(
            streams=(STREAM,),
            task_duration_ms=6_000,
            start_delay_ms=0,
            period_ms=1_000,
            use_earliest_offset=True,
            late_message_rejection_ms=HOUR_MS,
            task_count=groups,
            replicas=2,
        ),
        schema=DataSchema(
            datasource=table,
            timestamp=TimestampSpec(column=column),
            dimensions=tuple(Dimension(name=each) for each in dimensions),
            metrics=(
                Metric(name="events", type=MetricType.COUNT),
                Metric(name="total", type=MetricType.LONG_SUM, field="row"),
            ),
            query_granularity=query,
            segment_granularity=Granularity.HOUR,
        ),
        tuning=TuningConfig(
            intermediate_handoff_ms=2_000,
            task_timeout_ms=TASK_TIMEOUT_MS,
            job_timeout_ms=JOB_TIMEOUT_MS,
            unparseable_stream=ODD,
        ),
    )


SPECS: Final = (
    _spec(EACH, ("writer", "row"), Granularity.SECOND, column="at", groups=2),
    _spec(SUMS, ("writer",), Granularity.MINUTE, column="timed", groups=1),
)


# Events.


def payload_of(writer: str, number: int) -> bytes:
    """Return the event of a number."""
    row, at_ms = row_of(number)
    timed = {"timed": at_ms} if number % TIMELESS_EVERY else {}
    payload = json.dumps({"at": at_ms, "writer": writer, "row": row, "number": number, **timed}).encode()
    return payload[:-1] if is_malformed(number) else payload


def event_of(payload: bytes) -> tuple[str, int]:
    """Return the writer and the number of an event."""
    fields = json.loads(payload if payload.endswith(b"}") else payload + b"}")
    return fields["writer"], fields["number"]


def row_of(number: int) -> tuple[int, int]:
    """Return the row that an event is, by its own number, and its time in ms."""
    row = number - 1 if number % REPEATED_EVERY == 1 else number
    return row, row * SECOND_MS + (0 if row % LATE_EVERY == 2 else START_MS)


def is_malformed(number: int) -> bool:
    """Return whether the event of a number is no JSON."""
    return number % MALFORMED_EVERY == 3


def expected(writer: str, count: int) -> tuple[Rows, Rows, Rows]:
    """Return what the first events of a writer are: rows of the tables, and (table, number) of those that are none."""
    rows: dict[tuple[int, str], tuple[int, int]] = {}
    sums: dict[tuple[int], tuple[int, int]] = {}
    odd = Rows()
    for number in range(count):
        row, at_ms = row_of(number)
        is_timed = bool(number % TIMELESS_EVERY)
        if is_malformed(number):
            odd.update([(EACH, number), (SUMS, number)])
            continue
        if not is_timed:
            odd[SUMS, number] += 1
        if at_ms < START_MS:
            continue
        _add(rows, (at_ms, str(row)), row)
        if is_timed:
            _add(sums, (at_ms // MINUTE_MS * MINUTE_MS,), row)
    return _flat(rows), _flat(sums), odd


def _add(to: dict[Any, tuple[int, int]], key: tuple[Any, ...], row: int) -> None:
    events, total = to.get(key, (0, 0))
    to[key] = events + 1, total + row


def _flat(rows: dict[Any, tuple[int, int]]) -> Rows:
    return Rows((*key, *sums) for key, sums in rows.items())


# What is stored.


def rows_of(table: pa.Table, writer: str) -> Rows:
    """Return the rows of a writer in a table; those that are equal in time and dimensions are added up."""
    of_writer = table.filter(pc.field("writer") == writer).drop_columns("writer")
    keys = [each for each in of_writer.column_names if each not in ("events", "total")]
    summed = of_writer.group_by(keys).aggregate([("events", "sum"), ("total", "sum")])
    columns = [summed[each].to_pylist() for each in (*keys, "events_sum", "total_sum")]
    return Rows(zip(*columns, strict=True))


@attrs.frozen
class UnparseableEvent:
    """What is kept of an event that is no row of a table. segment: in which it was."""

    table: str
    segment: str
    number: int


def check_writer(
    writer: str, count: int, tables: Mapping[str, pa.Table], odd: Sequence[UnparseableEvent]
) -> None:
    """Compare the first events of a writer with the tables and the unparseable events. Raises AssertionError.

    tables: their columns are the time in ms, the dimensions, and the metrics. odd: as they were kept.
    """
    each, sums, unparseable = expected(writer, count)
    _compare(f"{writer}, {EACH}", rows_of(tables[EACH], writer), each)
    _compare(f"{writer}, {SUMS}", rows_of(tables[SUMS], writer), sums)
    _compare(f"{writer}, {ODD}", Rows((event.table, event.number) for event in odd), unparseable)
    last: dict[tuple[str, str], int] = {}
    for event in odd:
        place = event.table, event.segment
        assert event.number > last.get(place, -1), f"{event} of {writer} came after {last[place]}"
        last[place] = event.number


def _compare(what: str, found: Rows, wanted: Rows) -> None:
    """Raise AssertionError if the rows differ, with some of them."""
    missing, more = wanted - found, found - wanted
    assert not missing and not more, (
        f"{what}: {missing.total()} rows are missing, such as {list(missing)[:5]}; {more.total()} are too many,"
        f" such as {list(more)[:5]}"
    )
