"""The events that tortures of an ingestion write, and what the tables must say of them: the writers' account.

A writer numbers its events from 0. The number decides what an event is: a row of both tables, no row of one or of both,
one that is thrown away because it is late, or the same row as the event before it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

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
DAY_MS: Final = 86_400_000

START_MS: Final = 4_102_444_800_000
"""Time of the first event: in 2100, so that the clock of the machine does not decide what is late. The late ones have
the times of 1970."""

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


# The account.


class IngestionAccount:
    """Sums over the rows of tables and the unparseable events, for each writer and day.

    Equal rows have equal sums, in any order, and also if a row is split into several ones with its time and dimensions.
    Each sum exists a second time with a weight, the hash of time and dimensions: so a row in place of another one
    differs too. No row is kept.
    """

    def __init__(self) -> None:
        self.unparseable = 0
        self._sums: defaultdict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0] * 4)
        self._last: dict[tuple[str, str, str], int] = {}

    def take_event(self, writer: str, number: int) -> None:
        """Count what the event of a number is: a row of the tables, or of one, or none."""
        row, at_ms = row_of(number)
        is_timed = bool(number % TIMELESS_EVERY)
        if is_malformed(number):
            self._take_odd(EACH, writer, number)
        if is_malformed(number) or not is_timed:
            self._take_odd(SUMS, writer, number)
        if is_malformed(number) or at_ms < START_MS:
            return
        self._add(EACH, writer, (at_ms, str(row)), 1, row)
        if is_timed:
            self._add(SUMS, writer, (at_ms // MINUTE_MS * MINUTE_MS,), 1, row)

    def take_rows(self, table: str, rows: pa.RecordBatch) -> None:
        """Count rows of a table. Their columns are the time, the dimensions, and the metrics."""
        at_ms = rows.column(0).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        names = [each for each in rows.schema.names[1:] if each not in ("writer", "events", "total")]
        keys = zip(*[each.to_pylist() for each in (at_ms, *map(rows.column, names))], strict=True)
        others = (rows.column(each).to_pylist() for each in ("writer", "events", "total"))
        for key, writer, events, total in zip(keys, *others, strict=True):
            self._add(table, writer, key, events, total)

    def take_unparseable(self, table: str, segment: str, writer: str, number: int) -> None:
        """Count an event that is no row of a table. segment: in which it was. Raises AssertionError out of order."""
        place = table, segment, writer
        last = self._last.get(place, -1)
        assert number > last, f"event {number} of {writer}, no row of {table}, came after {last} in {segment}"
        self._last[place] = number
        self._take_odd(table, writer, number)

    def compare(self, wanted: IngestionAccount) -> None:
        """Raise AssertionError if the sums differ, with some of them."""
        days = sorted(self._sums.keys() | wanted._sums.keys())
        wrong = [
            f"{table} of {writer}, day {day}: {found[:2]} events and total, not {right[:2]}"
            for table, writer, day in days
            if (found := self._sums[table, writer, day]) != (right := wanted._sums[table, writer, day])
        ]
        assert not wrong, f"{len(wrong)} days of writers differ, in number or in rows, such as {wrong[:5]}"

    def _take_odd(self, table: str, writer: str, number: int) -> None:
        self.unparseable += 1
        self._add(f"{ODD}, {table}", writer, (number * SECOND_MS,), 1, 0)

    def _add(self, table: str, writer: str, key: tuple[Any, ...], events: int, total: int) -> None:
        sums, weight = self._sums[table, writer, key[0] // DAY_MS], hash(key)
        sums[0] += events
        sums[1] += total
        sums[2] += events * weight
        sums[3] += total * weight


def account_of(counts: Mapping[str, int]) -> IngestionAccount:
    """Return the account of the first events of writers: so many of each."""
    account = IngestionAccount()
    for writer, count in counts.items():
        for number in range(count):
            account.take_event(writer, number)
    return account
