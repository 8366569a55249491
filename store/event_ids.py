"""The ids of events: of the events of a stream that have the same id, the first one alone is appended.

A row of `event_id` says where it lies. It is written in the transaction of the append, and the commits of a stream do
not overlap, so that no two events of an id are appended within the stream's window. See docs/design/event-ids.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias

import attrs

from eventproc.store.catalog import get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.delayed_events import NewDelayedEvent, get_delayed, store_delayed
from eventproc.store.model.delays import DelayedEvent
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import (
    ID_HEADER,
    AppendResult,
    EventBlock,
    SegmentEvents,
    WriterSequence,
    append,
    next_append,
    note_sequence,
)

IDS_A_QUERY: Final = 500
"""Ids that one query looks up. SQLite takes 32,766 parameters; a few hundred make the cost of the call small."""


class EventPlace(NamedTuple):
    """Where an event lies, and when it was appended, in ms since 1970."""

    segment: SegmentId
    offset: int
    number: int
    time_ms: int


FirstEvent: TypeAlias = EventPlace | DelayedEvent[bytes]
"""The first event of an id: where it lies, or what waits to be appended."""


@attrs.frozen
class AppendedOnce:
    """What `append_once` has done.

    parts: the events that were appended. appended: where, with `times`, in ms. delayed: how many were stored.
    repeated: {segment: ascending indices of events that were not appended}. firsts: {id of one: its first event}.
    """

    parts: Sequence[SegmentEvents]
    appended: tuple[AppendResult, ...]
    times: Sequence[int]
    delayed: int
    repeated: Mapping[SegmentId, Sequence[int]]
    firsts: Mapping[str, FirstEvent]

    @property
    def count(self) -> int:
        """Number of new events."""
        return sum(part.count for part in self.appended) + self.delayed


def append_once(
    tx: Tx,
    stream: str,
    stream_id: int,
    parts: Sequence[SegmentEvents],
    delayed: Sequence[NewDelayedEvent] = (),
    *,
    identity: WriterSequence | None = None,
    guard: SegmentId | None = None,
) -> AppendedOnce | None:
    """Append, and store delayed ones of, the events whose ids the stream does not know; None for a repeated identity.

    Among the events given here no two have the same id. The other arguments, and errors, are those of `append` and
    `store_delayed`; then nothing changed.
    Cost: beside that of `append`, a look-up in one index and a row in two for each id.
    """
    window_ms = get_writable_stream(tx, stream, stream_id=stream_id).value.config.id_window_ms
    ids = [id for part in parts for _, id in _ids_of(part.events.block)]
    firsts = _find_firsts(tx, stream_id, ids + [each.own_id for each in delayed if each.own_id is not None])
    kept: list[SegmentEvents] = []
    repeated: dict[SegmentId, Sequence[int]] = {}
    for part in parts:
        block = part.events.block
        if indices := [index for index, id in _ids_of(block) if id in firsts]:
            repeated[part.segment] = indices
            if len(indices) < len(block):
                kept.append(SegmentEvents(part.segment, block.without(set(indices)).encode()))
        else:
            kept.append(part)
    appended: tuple[AppendResult, ...] = ()
    if kept:
        appended = append(tx, stream, stream_id, kept, identity=identity, guard=guard)
        if not appended:
            return None
    elif identity is not None and not note_sequence(tx, stream_id, identity):
        return None
    times = note_places(tx, stream, stream_id, kept, appended, window_ms=window_ms)
    new = [each for each in delayed if each.own_id not in firsts]
    if new:
        store_delayed(tx, stream, stream_id, new)
        waiting = [
            (stream_id, each.own_id, None, None, None, None, None, each.id) for each in new if each.own_id
        ]
        tx.executemany(_INSERT, waiting)
    return AppendedOnce(kept, appended, times, len(new), repeated, firsts)


def note_places(
    tx: Tx,
    stream: str,
    stream_id: int,
    parts: Sequence[SegmentEvents],
    appended: Sequence[AppendResult],
    *,
    window_ms: int,
) -> list[int]:
    """Note where the events with ids lie that this transaction has appended; return the time of each part, in ms.

    window_ms: for how long no other event may have these ids.
    """
    rows, times = [], []
    for part, where in zip(parts, appended, strict=True):
        _, _, time_ms = next_append(tx, stream, stream_id, part.segment)
        times.append(time_ms)
        if ids := dict(_ids_of(part.events.block)):
            offsets = accumulate(map(FRAME_BYTES.__add__, part.events.lengths), initial=where.offset)
            rows += [
                (
                    stream_id,
                    ids[index],
                    part.segment,
                    offset,
                    where.number + index,
                    time_ms,
                    time_ms + window_ms,
                    None,
                )
                for index, offset in enumerate(offsets)
                if index in ids
            ]
    tx.executemany(_INSERT, rows)
    return times


_INSERT: Final = (
    'INSERT INTO event_id (stream_id, id, segment, "offset", number, time_ms, until_ms, delayed)'
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (stream_id, id) DO UPDATE SET segment = excluded.segment,"
    ' "offset" = excluded."offset", number = excluded.number, time_ms = excluded.time_ms,'
    " until_ms = excluded.until_ms, delayed = excluded.delayed"
)
"""Replaces a row whose time is over, and that of a delayed event that is appended now."""


def _ids_of(block: EventBlock) -> Iterator[tuple[int, str]]:
    """Yield index and id of each event that has one."""
    for index, headers in enumerate(block.headers or ()):
        if headers is not None and ID_HEADER in headers:
            yield index, headers[ID_HEADER]


def _find_firsts(tx: Tx, stream_id: int, ids: Sequence[str]) -> dict[str, FirstEvent]:
    """Return the first events of those ids that the stream knows."""
    found: dict[str, FirstEvent] = {}
    for first in range(0, len(ids), IDS_A_QUERY):
        some = ids[first : first + IDS_A_QUERY]
        rows = tx.execute(
            'SELECT id, delayed, segment, "offset", number, time_ms FROM event_id WHERE stream_id = ?'
            f" AND id IN ({', '.join('?' * len(some))}) AND (until_ms > ? OR delayed IS NOT NULL)",
            (stream_id, *some, tx.now_ms),
        ).fetchall()
        for id, delayed, *place in rows:
            found[id] = EventPlace(*place) if delayed is None else get_delayed(tx, delayed)
    return found
