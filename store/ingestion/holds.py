"""Holds of ingestion: events from given positions on stay readable after a truncation, also those appended later.

A supervisor holds its events from the committed offsets on while it has groups. So a range that was read and not
published can be read again after the death of a worker. Source: docs/design/ingestion.md.
"""

from __future__ import annotations

from typing import Final

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ingestion import NO_POSITIONS, PartitionKey, Positions
from eventproc.store.segments.holds import HeldRange, end_holds, held_by_name, place_hold

SUPERVISOR_HOLDS: Final = "eventproc supervisor "
"""How the names of supervisors' holds begin. A copy of the store keeps these: what they hold is in no table yet."""

_END: Final = 2**62
"""End of a hold that has none: what is appended later is held, too."""


def hold_events(tx: Tx, name: str, starts: Positions, until_ms: int, ends: Positions = NO_POSITIONS) -> None:
    """Keep the events from `starts` on readable until a deadline: to their `ends`, or also those appended later."""
    for stream_id, offsets in positions_by_stream(starts).items():
        held = [
            [
                HeldRange(segment, start, ends.get((stream_id, segment), _END))
                for segment, start in offsets.items()
            ]
        ]
        place_hold(tx, stream_id, name, plan=name, ranges=held, until_ms=until_ms)


def hold_unpublished(
    tx: Tx, supervisor: str, starts: Positions, until_ms: int, ends: Positions = NO_POSITIONS
) -> None:
    """Make `starts`, to their `ends` if they have some, the only events that a supervisor holds. One row per stream."""
    name = _name(supervisor)
    hold_events(tx, name, starts, until_ms, ends)
    ended = {stream_id for stream_id, _ in held_by_name(tx, name)} - {stream_id for stream_id, _ in starts}
    end_holds(tx, [(stream_id, name) for stream_id in ended])


def held_unpublished(tx: Tx, supervisor: str) -> dict[PartitionKey, int]:
    """Return the first byte of each partition that a supervisor holds. One query."""
    return held_by_name(tx, _name(supervisor))


def positions_by_stream(positions: Positions) -> dict[int, dict[SegmentId, int]]:
    """Return the positions of each stream."""
    found: dict[int, dict[SegmentId, int]] = {}
    for (stream_id, segment), offset in positions.items():
        found.setdefault(stream_id, {})[segment] = offset
    return found


def _name(supervisor: str) -> str:
    return f"{SUPERVISOR_HOLDS}{supervisor}"
