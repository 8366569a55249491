"""Columns of several blobs put one after the other, without making events of them.

What many small commits left is joined behind every few hundred of them, on the thread that commits: decoding and
encoding each event again would cost every awaited write a tenth of its time.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from typing import Final

from eventproc.store.segments.block import NO_TIME, Columns, Headers

_NO_POSITION: Final = array("d", [float("nan")]).tobytes()
_NO_TIME: Final = array("q", [NO_TIME]).tobytes()


def concatenate_columns(parts: Sequence[tuple[Columns, int]], *, times: bytes) -> Columns:
    """Return the columns of `parts`, each with its number of events, as one blob stores them.

    times: append times of all events. The result is the one that `join` makes of the same events.
    """
    columns = [part for part, _ in parts]
    return Columns(
        ends=_rebased([(part.ends, len(part.data)) for part in columns]),
        keys=_keys(parts),
        positions=_fixed([(part.positions, count) for part, count in parts], _NO_POSITION),
        times=times,
        event_times=_fixed([(part.event_times, count) for part, count in parts], _NO_TIME),
        headers=_headers(parts),
        data=b"".join([part.data for part in columns]),
    )


def _rebased(parts: Sequence[tuple[bytes, int]]) -> bytes:
    """Return ends that count from the beginning of the first part; parts are (own ends, size)."""
    ends, begin = array("I"), 0
    for own, size in parts:
        ends.extend([begin + end for end in memoryview(own).cast("I")])
        begin += size
    return ends.tobytes()


def _keys(parts: Sequence[tuple[Columns, int]]) -> bytes | None:
    """Join key columns; their layout is that of `decode_keys`."""
    if all(part.keys is None for part, _ in parts):
        return None
    ends: list[tuple[bytes, int]] = []
    present, texts = [], []
    for part, count in parts:
        column = part.keys
        if column is None:
            ends.append((bytes(4 * count), 0))
            present.append(bytes(count))
            continue
        text_at = 1 + 4 * count + (count if column[0] else 0)
        ends.append((column[1 : 1 + 4 * count], len(column) - text_at))
        present.append(column[1 + 4 * count : text_at] if column[0] else b"\1" * count)
        texts.append(column[text_at:])
    all_present = all(0 not in each for each in present)
    head = b"\0" if all_present else b"\1"
    return b"".join([head, _rebased(ends), *(() if all_present else present), *texts])


def _fixed(parts: Sequence[tuple[bytes | None, int]], absent: bytes) -> bytes | None:
    if all(column is None for column, _ in parts):
        return None
    return b"".join([absent * count if column is None else column for column, count in parts])


def _headers(parts: Sequence[tuple[Columns, int]]) -> bytes | None:
    if all(part.headers is None for part, _ in parts):
        return None
    rows: list[Headers | None] = []
    for part, count in parts:
        rows.extend([None] * count if part.headers is None else json.loads(part.headers))
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
