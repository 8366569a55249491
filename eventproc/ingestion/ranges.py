"""The ranges of a bounded supervisor: checked against its streams, and committed with its spec.

Its first offsets are the starts of its ranges. They are committed in the transaction that stores the spec, with a hold
on the events, so that neither a truncation nor a death can come between. Source: docs/design/bounded-ingestion.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventproc.ingestion.spec import SupervisorSpec
from eventproc.ingestion.spec_reader import Problems
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.ingestion.holds import held_unpublished, hold_unpublished
from eventproc.store.ingestion.rows import (
    IngestOffset,
    read_offsets,
    read_streams,
    write_offset,
    write_stream,
)
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.ids import parse_segment
from eventproc.store.model.ingestion import NO_POSITIONS, PartitionKey, Positions
from eventproc.store.segments import known_state, number_at, segment_state, verify_offset

SUPERVISOR_HOLD_MS: Final = 365 * 24 * 3_600_000
"""How long the events of a supervisor stay readable while no instance runs it, in wall ms. Retention does not wait for
them. Longer keeps nothing more, because a supervisor releases what it will not read again. Shorter loses events if the
directory stays closed for so long."""


def bounds_of(spec: SupervisorSpec, streams: Mapping[str, int]) -> dict[PartitionKey, tuple[int, int]] | None:
    """Return [start, end) of each segment that a bounded supervisor reads; None of one that is not bounded.

    streams: {name: stream id}. A stream that is missing has no bounds.
    """
    if not spec.is_bounded:
        return None
    return {
        (streams[each.stream], parse_segment(each.segment)): (each.start, each.end)
        for each in spec.io.ranges
        if each.stream in streams
    }


def ends_of(spec: SupervisorSpec, streams: Mapping[str, int]) -> Positions | None:
    """Return where a bounded supervisor ends reading; None of one that is not bounded. Parameters as `bounds_of`."""
    bounds = bounds_of(spec, streams)
    return None if bounds is None else {key: end for key, (_, end) in bounds.items()}


def check_ranges(tx: Tx, spec: SupervisorSpec, previous: SupervisorSpec | None) -> None:
    """Check the ranges of a spec against its streams, and against what its supervisor has published.

    previous: the last spec of the supervisor, which may be terminated. Raises NotFound, InvalidSpec.
    """
    problems = Problems()
    if previous is not None and previous.is_bounded != spec.is_bounded:
        problems.add("io", f"supervisor {spec.id} {_read_before(previous)}; submit the spec under another id")
        problems.check(spec.id)
    noted, offsets = read_streams(tx, spec.id), read_offsets(tx, spec.id)
    for index, found in enumerate(spec.io.ranges):
        path = f"io.ranges[{index}]"
        stream_id = get_stream(tx, found.stream).value.stream_id
        if noted.get(found.stream, stream_id) != stream_id:
            problems.add(
                f"{path}.stream",
                f"{found.stream} was deleted and made again since {spec.id} read it; submit the spec under another id",
            )
            continue
        key = stream_id, parse_segment(found.segment)
        try:
            states = [
                verify_offset(tx, StreamCut(found.stream, stream_id, {key[1]: offset}), key[1])
                for offset in (found.start, found.end)
            ]
        except InvalidCut as error:
            problems.add(path, error.reason)
            continue
        if None in states:
            problems.add(f"{path}.segment", f"segment {found.segment} of {found.stream} not found")
        committed = offsets.get(key)
        if committed is not None and not found.start <= committed.offset <= found.end:
            problems.add(
                path,
                f"{spec.id} has published up to offset {committed.offset}, outside of the range;"
                " submit the spec under another id",
            )
    problems.check(spec.id)


def _read_before(previous: SupervisorSpec) -> str:
    return "reads given ranges" if previous.is_bounded else "reads its streams without ranges"


def begin_ranges(tx: Tx, spec: SupervisorSpec, held: Positions = NO_POSITIONS) -> None:
    """Commit where the ranges of a checked spec begin, and hold their events; what is published of them stays.

    held: first bytes that another supervisor keeps readable. What this one has kept readable stays so.
    Nothing happens if the spec is not bounded. Cost: four look-ups per range.
    """
    streams = {name: get_stream(tx, name).value.stream_id for name in spec.stream_names}
    bounds = bounds_of(spec, streams)
    if bounds is None:
        return
    offsets, own = read_offsets(tx, spec.id), held_unpublished(tx, spec.id)
    starts: dict[PartitionKey, int] = {}
    ends: dict[PartitionKey, int] = {}
    for name, stream_id in streams.items():
        write_stream(tx, spec.id, name, stream_id)
    for key, (start, end) in bounds.items():
        found = offsets.get(key) or IngestOffset(start, number_at(tx, *key, start))
        # An earlier, shorter range may have closed the partition.
        write_offset(tx, spec.id, key, IngestOffset(found.offset, found.number))
        state = known_state(tx, *key)
        first = min(held.get(key, state.head), own.get(key, state.head), state.head)
        readable = max(found.offset, first)
        if readable < end:
            starts[key], ends[key] = readable, end
    hold_unpublished(tx, spec.id, starts, tx.now_ms + SUPERVISOR_HOLD_MS, ends)


def first_positions(
    tx: Tx, spec: SupervisorSpec, streams: Mapping[str, int]
) -> tuple[Positions, Positions] | None:
    """Return the starts of a bounded supervisor's ranges, and the numbers of their events; None without ranges."""
    bounds = bounds_of(spec, streams)
    if bounds is None:
        return None
    starts = {key: start for key, (start, _) in bounds.items() if segment_state(tx, *key) is not None}
    return starts, {key: number_at(tx, *key, start) for key, start in starts.items()}
