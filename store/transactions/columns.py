"""Some events of stored columns, as columns: a slice of them, or those that go to one segment.

Without making events of them: what is prepared may be a hundred megabytes. Staged columns have no append times.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from eventproc.store.segments.block import Columns

_INT_BYTES: Final = 4


def cut(columns: Columns, first: int, last: int) -> Columns:
    """Return the events [first, last) of `columns`, at least one."""
    ends = memoryview(columns.ends).cast("I")
    if first == 0 and last == len(ends):
        return columns
    begin = ends[first - 1] if first else 0
    return Columns(
        ends=array("I", [end - begin for end in ends[first:last]]).tobytes(),
        keys=None if columns.keys is None else _pick_keys(columns.keys, len(ends), range(first, last)),
        positions=None if columns.positions is None else columns.positions[8 * first : 8 * last],
        times=None,
        event_times=None if columns.event_times is None else columns.event_times[8 * first : 8 * last],
        headers=None if columns.headers is None else _dump(json.loads(columns.headers)[first:last]),
        data=columns.data[begin : ends[last - 1]],
    )


def pick(columns: Columns, chosen: Sequence[int]) -> Columns:
    """Return the events of these indexes, which grow, at least one. About 0.3 us each, 0.5 with keys."""
    ends = memoryview(columns.ends).cast("I").tolist()
    data = columns.data
    frames = [data[ends[index - 1] if index else 0 : ends[index]] for index in chosen]
    return Columns(
        ends=array("I", accumulate(map(len, frames))).tobytes(),
        keys=None if columns.keys is None else _pick_keys(columns.keys, len(ends), chosen),
        positions=None if columns.positions is None else _pick_fixed(columns.positions, "d", chosen),
        times=None,
        event_times=None if columns.event_times is None else _pick_fixed(columns.event_times, "q", chosen),
        headers=None if columns.headers is None else _dump(_chosen(json.loads(columns.headers), chosen)),
        data=b"".join(frames),
    )


def _pick_keys(column: bytes, count: int, chosen: Sequence[int]) -> bytes:
    """Return the keys of these indexes; the layout is that of `decode_keys`."""
    ends = memoryview(column)[1 : 1 + _INT_BYTES * count].tobytes()
    borders = memoryview(ends).cast("I").tolist()
    text_at = 1 + _INT_BYTES * count + (count if column[0] else 0)
    text = column[text_at:]
    keys = [text[borders[index - 1] if index else 0 : borders[index]] for index in chosen]
    head = array("I", accumulate(map(len, keys))).tobytes()
    if not column[0]:
        return b"".join((b"\0", head, *keys))
    present = bytes(_chosen(column[1 + _INT_BYTES * count : text_at], chosen))
    return b"".join((b"\1", head, present, *keys))


def _pick_fixed(column: bytes, kind: str, chosen: Sequence[int]) -> bytes:
    values: array[Any] = array(kind)
    values.frombytes(column)
    return array(kind, _chosen(values, chosen)).tobytes()


def _chosen(values: Sequence[Any], chosen: Sequence[int]) -> tuple[Any, ...]:
    """Return the values of these indexes; in C, as far as there are several."""
    if len(chosen) == 1:
        return (values[chosen[0]],)
    found: tuple[Any, ...] = itemgetter(*chosen)(values)
    return found


def _dump(rows: Sequence[object]) -> bytes:
    return json.dumps(list(rows), separators=(",", ":"), ensure_ascii=False).encode()
