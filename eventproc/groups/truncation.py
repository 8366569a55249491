"""Where a group continues after unread events were truncated, and how many events it lost.

`behind_both` is pure; `skip` decides within a transaction. The caller logs the loss; the state of the group counts it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from eventproc.groups.cuts import end_offsets
from eventproc.groups.start_positions import start_position_at
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import change, folded_state
from eventproc.groups.updates import StreamSkipped
from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream, known_segments, unfinished_part
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GroupStream,
    TruncatedPolicy,
    get_group,
    progress_by_segment,
)
from eventproc.store.model.cuts import StreamCut, divide_cut
from eventproc.store.model.epochs import Segment
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.history import History, find_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import number_at, segment_state


def skip(
    tx: Tx,
    name: str,
    stream: GroupStream,
    policy: TruncatedPolicy,
    *,
    only: Collection[SegmentId] | None = None,
) -> int:
    """Move the group behind truncated events: to the head, and (policy "latest") to the tails of truncated segments.

    only: the segments to move. The others stay where they are, with their owners, as long as they have events. None
        (default): all of them.
    A segment that was not truncated is read on where the group stands in it, by every policy. Nothing moves backwards.
    Returns how many unfinished events are lost, as far as known. Returns 0 without a change if none are, because
    another reader has skipped them. Raises NotFound, StreamReplaced.
    """
    state = folded_state(tx, get_group(tx, name)).state
    record = get_stream(tx, stream.name, stream_id=stream.stream_id).value
    history = StoredHistory(tx, record)
    finished = _finished(tx, name, record)
    own = _frontier_of(state, stream.stream_id, finished)
    after = behind_both(own, head_cut(tx, record), history)
    if only is not None:
        after.held.update(
            (each, at) for each, at in own.held.items() if each in after.held and each not in only
        )
    if (after.held, after.waiting) == (own.held, own.waiting):
        return 0
    if policy == "latest":
        truncated = [each for each, offset in after.held.items() if offset > own.held.get(each, 0)]
        for each in truncated:
            if (end := segment_state(tx, record.stream_id, each)) is not None:
                after.advance(each, end.tail)
    kept = tuple(sorted(each for each, offset in after.held.items() if own.held.get(each) == offset))
    moved = {
        each: _moved(tx, record, each, progress, after)
        for each, progress in finished.items()
        if each in after.held
    }
    ends = end_offsets(state, stream.stream_id)
    start_position = start_position_at(tx, record, after, added=stream.added, ends=ends, finished=moved)
    lost = _lost_events(tx, record, own, finished, after, history)
    change(tx, name, StreamSkipped(attrs.evolve(start_position, stream=stream), kept, lost))
    return lost


def continued_cut(tx: Tx, name: str, stream: StreamRecord) -> StreamCut:
    """Return where the group will continue: behind what it has finished, and not before the head. Raises NotFound."""
    state = folded_state(tx, get_group(tx, name)).state
    own = _frontier_of(state, stream.stream_id, _finished(tx, name, stream))
    after = behind_both(own, head_cut(tx, stream), StoredHistory(tx, stream))
    return StreamCut(stream.name, stream.stream_id, after.offsets())


def _finished(tx: Tx, name: str, stream: StreamRecord) -> dict[SegmentId, Progress]:
    return {
        segment: progress
        for (stream_id, segment), progress in progress_by_segment(tx, name).items()
        if stream_id == stream.stream_id
    }


def _frontier_of(state: GroupState, stream_id: int, finished: Mapping[SegmentId, Progress]) -> Frontier:
    waiting = {segment: set(before) for (each, segment), before in state.waiting.items() if each == stream_id}
    return Frontier({segment: progress.offset for segment, progress in finished.items()}, waiting)


def behind_both(own: Frontier, cut: StreamCut, history: History) -> Frontier:
    """Return the position behind everything that lies before `own` or before `cut`.

    cut: valid. own: a reader's frontier; segments that the history no longer knows lie before the cut.
    """
    division = divide_cut(cut, history)
    other = Frontier.from_cut(cut, history)
    before_waiting = [each for one in (own, other) for ids in one.waiting.values() for each in ids]
    named = {*own.held, *own.waiting, *other.held, *other.waiting, *before_waiting}
    known = {each: found for each in named if (found := find_segment(history, each)) is not None}

    def is_passed(segment: SegmentId) -> bool:
        return segment not in known or division.is_behind(known[segment])

    held = {
        each: max(offset, other.held.get(each, 0)) for each, offset in own.held.items() if not is_passed(each)
    }
    waiting: dict[SegmentId, set[SegmentId]] = {}
    for each, before in own.waiting.items():
        left = {segment for segment in before if not is_passed(segment)}
        if not is_passed(each):
            waiting[each] = left
    mine = Frontier(held, waiting)
    for each, offset in other.held.items():
        if each not in held and not _is_behind(mine, known, each):
            held[each] = offset
    for each, before in other.waiting.items():
        if each in held or _is_behind(mine, known, each):
            continue
        left = {segment for segment in before if not _is_behind(mine, known, segment)}
        waiting[each] = left & waiting[each] if each in waiting else left
    opened = {each: 0 for each, left in waiting.items() if not left}
    return Frontier(
        opened | held, {each: left for each, left in waiting.items() if left and each not in held}
    )


def _is_behind(frontier: Frontier, known: Mapping[SegmentId, Segment], segment: SegmentId) -> bool:
    """Return whether the segment was read to its end. In a complete frontier one point decides for all of it."""
    if segment not in known:
        return True
    point = known[segment].range.low

    def covers(each: SegmentId) -> bool:
        return each in known and known[each].range.contains(point)

    here = [each for each in frontier.held if covers(each)]
    # A waiting segment comes next at this point only if its predecessors cover other points.
    here += [
        each for each, before in frontier.waiting.items() if covers(each) and not any(map(covers, before))
    ]
    return bool(here) and min(here) > segment


def _moved(tx: Tx, stream: StreamRecord, segment: SegmentId, before: Progress, after: Frontier) -> Progress:
    offset = after.held[segment]
    if offset <= before.offset:
        return before
    number = number_at(tx, stream.stream_id, segment, offset)
    return before.finish(before.number, number - before.number, offset)


def _lost_events(
    tx: Tx,
    stream: StreamRecord,
    own: Frontier,
    finished: Mapping[SegmentId, Progress],
    after: Frontier,
    history: History,
) -> int:
    """Return how many events before `after` were not finished, in segments that still have their rows."""
    stream_id = stream.stream_id
    known = known_segments(tx, stream_id, history)
    lost = 0
    for segment in known:
        is_passed = _is_behind(after, known, segment) and not _is_behind(own, known, segment)
        if segment in after.held:
            is_passed = after.held[segment] != own.held.get(segment)
        if not is_passed:
            continue
        progress, end = finished.get(segment, Progress()), after.held.get(segment)
        lost += unfinished_part(tx, stream_id, segment, progress, end=end, count_truncated=True).events
    return lost
