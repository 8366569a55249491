"""Columns put one after the other are those of the events written together."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from eventproc.store.segments.columns import EventBlock, Headers, join_blocks
from eventproc.store.segments.stored_columns import concatenate_columns

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
    payloads, keys, positions, times, headers = (list(column) for column in zip(*rows, strict=True))
    keyed = any(key is not None for key in keys)
    return EventBlock(
        payloads=payloads,
        keys=keys if keyed else None,
        positions=positions if keyed else None,
        event_times=times if any(time is not None for time in times) else None,
        headers=headers if any(header is not None for header in headers) else None,
    )


@given(st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=6))
def test_concatenated_columns_are_those_of_one_write(groups: list[list[Row]]) -> None:
    encoded = [block(rows).encode() for rows in groups]
    times = array("q", range(sum(map(len, groups)))).tobytes()

    together = concatenate_columns([(join_blocks([each]), each.count) for each in encoded], times=times)

    assert together == join_blocks(encoded, times=times)
