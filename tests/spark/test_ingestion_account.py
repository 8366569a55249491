"""The account of an ingestion finds each row and event that is missing, doubled or another one, and keeps none."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest

from tests.spark.ingestion_account import (
    EACH,
    MINUTE_MS,
    START_MS,
    SUMS,
    TIMELESS_EVERY,
    IngestionAccount,
    account_of,
    is_malformed,
    row_of,
)

WRITER, COUNT = "w0", 2000

Row = tuple[int, int, int, int]
"""Time, row, events and total."""


def rows(count: int, *, timed: bool = False) -> Iterator[Row]:
    """Yield the row of each event, in the order in which they were written; timed: only of those with that field."""
    for number in range(count):
        row, at_ms = row_of(number)
        if not is_malformed(number) and at_ms >= START_MS and (not timed or number % TIMELESS_EVERY):
            yield at_ms, row, 1, row


def batch(found: Iterable[Row], *, by_minute: bool = False) -> pa.RecordBatch:
    """Return rows as a table stores them; by_minute: as a table with sums by minute does."""
    at_ms, row, events, total = zip(*found, strict=True)
    times = [each // MINUTE_MS * MINUTE_MS for each in at_ms] if by_minute else list(at_ms)
    dimensions = {"writer": [WRITER] * len(times)} | ({} if by_minute else {"row": list(map(str, row))})
    time = pa.array(times, pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_pydict({"time": time, **dimensions, "events": events, "total": total})


def odd(count: int) -> list[tuple[str, int]]:
    """Return (table, number) of each event that is no row of a table."""
    numbers = range(count)
    return [(EACH, each) for each in numbers if is_malformed(each)] + [
        (SUMS, each) for each in numbers if is_malformed(each) or not each % TIMELESS_EVERY
    ]


def found_account(each: list[Row], sums: list[Row], unparseable: list[tuple[str, int]]) -> IngestionAccount:
    found = IngestionAccount()
    half = len(each) // 2
    for part in (each[half:], each[:half]):  # files are in no order
        found.take_rows(EACH, batch(part))
    found.take_rows(SUMS, batch(sums, by_minute=True))
    for table, number in unparseable:
        found.take_unparseable(table, "0", WRITER, number)
    return found


def test_tables_with_what_was_written_are_right_also_if_rows_are_added_up() -> None:
    each = list(rows(COUNT))
    groups = [list(group) for _, group in itertools.groupby(each, key=lambda row: row[:2])]
    summed = [(*group[0][:2], len(group), sum(row[3] for row in group)) for group in groups]
    assert len(summed) < len(each)
    for written in (each, summed):
        found_account(written, list(rows(COUNT, timed=True)), odd(COUNT)).compare(account_of({WRITER: COUNT}))


def replaced(found: list[Row], index: int, row: Row) -> list[Row]:
    return [*found[:index], row, *found[index + 1 :]]


WRONG: dict[str, Callable[[list[Row]], list[Row]]] = {
    "missing": lambda found: found[:5] + found[6:],
    "twice": lambda found: [*found, found[5]],
    "another time": lambda found: replaced(found, 5, (found[5][0] + MINUTE_MS, *found[5][1:])),
    "another total": lambda found: replaced(found, 5, (*found[5][:3], found[5][3] + 1)),
    "another number of events": lambda found: replaced(found, 5, (*found[5][:2], 2, found[5][3])),
    "one for another": lambda found: replaced(found, 5, found[500]),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("table", [EACH, SUMS])
def test_wrong_row_is_found(wrong: str, table: str) -> None:
    each, sums = list(rows(COUNT)), list(rows(COUNT, timed=True))
    if table == EACH:
        each = WRONG[wrong](each)
    else:
        sums = WRONG[wrong](sums)
    with pytest.raises(AssertionError, match=f"{table} of w0"):
        found_account(each, sums, odd(COUNT)).compare(account_of({WRITER: COUNT}))


def test_unparseable_event_that_is_missing_or_out_of_order_is_found() -> None:
    each, sums, unparseable = list(rows(COUNT)), list(rows(COUNT, timed=True)), odd(COUNT)
    with pytest.raises(AssertionError, match="s/odd, sums of w0"):
        found_account(each, sums, unparseable[:-1]).compare(account_of({WRITER: COUNT}))
    with pytest.raises(AssertionError, match="came after"):
        found_account(each, sums, [*unparseable[1:], unparseable[0]])


def test_account_of_eight_times_as_many_events_holds_no_more_of_them() -> None:
    peaks = []
    for count in (4_000, 32_000):
        tracemalloc.start()
        try:
            found, written = IngestionAccount(), rows(count)
            while part := list(itertools.islice(written, 1000)):
                found.take_rows(EACH, batch(part))
            account_of({WRITER: count})
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], peaks
