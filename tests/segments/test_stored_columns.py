"""Stored columns, concatenated, sliced and picked from, equal the columns of the same events."""

from __future__ import annotations

from array import array
from math import nan

from hypothesis import given, strategies as st

from eventproc.store.segments.columns import Columns, EventBlock, Headers, join_blocks
from eventproc.store.segments.stored_columns import concatenate_columns, pick_events, slice_columns

Row = tuple[bytes, str | None, float, int | None, Headers | None]

ROWS = st.tuples(
    st.binary(max_size=5),
    st.sampled_from([None, "", "a", "é", "🚀key"]),
    st.floats(0, 1, exclude_max=True),
    st.none() | st.integers(-9, 9),
    st.sampled_from([None, {"a": "b"}, {"ü": ""}]),
)


def block(rows: list[Row]) -> EventBlock:
    """Return the rows as columns; one that no event uses is None."""
    payloads, keys, points, times, headers = (list(column) for column in zip(*rows, strict=True))
    keyed = any(key is not None for key in keys)
    return EventBlock(
        payloads=payloads,
        keys=keys if keyed else None,
        points=points if keyed else None,
        event_times=times if any(time is not None for time in times) else None,
        headers=headers if any(header is not None for header in headers) else None,
    )


@given(st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_concatenated_columns_are_those_of_one_write(groups: list[list[Row]]) -> None:
    encoded = [block(rows).encode() for rows in groups]
    times = array("q", range(sum(map(len, groups)))).tobytes()

    together = concatenate_columns([(join_blocks([each]), each.count) for each in encoded], times=times)

    assert together == join_blocks(encoded, times=times)


STAGED = ROWS.map(lambda row: row if row[1] is not None else (*row[:2], nan, *row[3:]))
"""As a transaction stages them: an event without a key has no point."""

LAST: Row = (b"last", "k", 0.5, 7, {"a": "b"})
"""An event that uses every column."""


def columns_of(rows: list[Row]) -> Columns:
    return join_blocks([block(rows).encode()])


def filled(columns: Columns, count: int) -> Columns:
    """Return the columns with one more event, so that a column without values looks like one that is absent."""
    return concatenate_columns([(columns, count), (columns_of([LAST]), 1)], times=b"")


@given(st.lists(STAGED, min_size=1, max_size=8), st.data())
def test_cut_and_picked_columns_are_those_of_the_events_alone(rows: list[Row], data: st.DataObject) -> None:
    columns = columns_of(rows)
    first = data.draw(st.integers(0, len(rows) - 1))
    last = data.draw(st.integers(first + 1, len(rows)))
    assert filled(slice_columns(columns, first, last), last - first) == filled(
        columns_of(rows[first:last]), last - first
    )
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    own = [rows[index] for index in chosen]
    assert filled(pick_events(columns, chosen), len(own)) == filled(columns_of(own), len(own))
