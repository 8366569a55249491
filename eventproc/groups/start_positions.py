"""Where a group starts and ends in its streams: from a caller's arguments to the segments that it opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from eventproc.groups.updates import StartPosition
from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream, unfinished_segments
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.groups import READERS, SHARE, GroupKind, GroupStream
from eventproc.store.model.argument_checks import check_int, check_mapping, invalid_argument
from eventproc.store.model.cuts import StreamCut, as_cut, equal_or_after
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.segments import progress_at
from eventproc.streams.fetch import limits_of
from eventproc.streams.queries import cut_at_position
from eventproc.streams.stream_cuts import PASSED_MAX, frontier_at, is_over

GroupStart: TypeAlias = StreamCut | Mapping[str, StreamCut] | Literal["head", "tail"] | int
"""Where a group starts: an end of its streams, a time in wall ms, or cuts (a stream without one: its head)."""

GroupEnd: TypeAlias = StreamCut | Mapping[str, StreamCut] | None
"""Where a group ends: cuts. A stream without a cut is read without end."""

GroupResetEnd: TypeAlias = GroupEnd | Literal["same"]
"""Where a group ends after a reset: at other cuts, or "same", as before."""

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


def check_start(start: object, names: Sequence[str]) -> None:
    """Raise InvalidArgument unless a group of streams with these names may start there, as far as the names tell."""
    if isinstance(start, (StreamCut, Mapping)):
        _by_stream(start, "start", names)
    elif isinstance(start, str):
        if start not in ("head", "tail"):
            raise invalid_argument("start", start, "it must be 'head', 'tail', a time in ms, or a cut")
    else:
        check_int("start", start, unit="ms")


def start_positions_of(
    tx: Tx,
    names: Sequence[str],
    start: GroupStart,
    until: GroupEnd = None,
    *,
    added: Sequence[str] = (),
    kind: GroupKind = READERS,
) -> list[StartPosition]:
    """Return where a group of this kind starts in each of the streams. Raises what `ensure_group` raises."""
    cuts = start_cuts(tx, names, start)
    ends = _by_stream(until, "end", names)
    found = []
    for name, cut in cuts.items():
        stream = get_stream(tx, name).value
        if kind == SHARE:
            found.append(_share_position(tx, stream, cut, name in added))
        else:
            found.append(_start_position(tx, stream, cut, ends.get(name), name in added))
    return found


def start_cuts(tx: Tx, names: Sequence[str], start: GroupStart) -> dict[str, StreamCut]:
    """Return the cut of each of the streams at which a group starts. Raises NotFound, InvalidArgument."""
    check_start(start, names)
    by_stream = _by_stream(start, "start", names) if isinstance(start, (StreamCut, Mapping)) else {}
    end = "head" if isinstance(start, (StreamCut, Mapping)) else start
    return {
        name: by_stream.get(name) or cut_at_position(tx, get_stream(tx, name).value, end) for name in names
    }


def _by_stream(cuts: GroupEnd, what: str, names: Sequence[str]) -> dict[str, StreamCut]:
    if cuts is None:
        return {}
    shape = "it must be a stream cut, or {stream: cut}"
    by_stream = {cuts.stream: cuts} if isinstance(cuts, StreamCut) else dict(check_mapping(what, cuts, shape))
    for cut in by_stream.values():
        as_cut(cut, what)
    if strangers := sorted(by_stream.keys() - set(names)):
        raise invalid_argument(what, cuts, f"the group does not read {strangers[0]}")
    return by_stream


def _share_position(tx: Tx, stream: StreamRecord, cut: StreamCut, added: bool) -> StartPosition:
    """Return where a share group starts: all segments behind the cut are open, because it promises no order."""
    frontier_at(tx, stream, cut)  # validates the cut
    held = tuple(
        (segment, progress_at(tx, stream.stream_id, segment, cut.offsets.get(segment, 0)))
        for segment in unfinished_segments(tx, stream, cut)
        if not is_reserve(segment)
    )
    return StartPosition(GroupStream(stream.name, stream.stream_id, added, stream.epoch), held)


def _start_position(
    tx: Tx, stream: StreamRecord, cut: StreamCut, until: StreamCut | None, added: bool
) -> StartPosition:
    frontier = frontier_at(tx, stream, cut)
    if until is None:
        _pass_empty(tx, stream, frontier, NOTHING)
        return start_position_at(tx, stream, frontier, added=added)
    if until.stream_id == stream.stream_id and not equal_or_after(until, cut, StoredHistory(tx, stream)):
        raise InvalidCut(
            stream=stream.name, cut=str(until), reason=f"it ends before the start, {cut}; choose another end"
        )
    limits_of(tx, stream.name, until, frontier.held)  # validates the end
    _pass_empty(tx, stream, frontier, until.offsets)
    return start_position_at(tx, stream, frontier, added=added, ends=until.offsets)


def _pass_empty(tx: Tx, stream: StreamRecord, frontier: Frontier, ends: Mapping[SegmentId, int]) -> None:
    """Let the group begin behind empty sealed segments: each would cost its readers a commit, and wake all of them."""

    def is_end(segment: SegmentId, offset: int) -> bool:
        return segment not in ends and is_over(tx, stream.stream_id, segment, offset)

    frontier.pass_ended(StoredHistory(tx, stream), is_end, passed_max=PASSED_MAX)


def start_position_of(tx: Tx, stream: str, *, added: bool) -> StartPosition:
    """Return the start position at the head of a stream. Raises NotFound."""
    found = get_stream(tx, stream).value
    return _start_position(tx, found, head_cut(tx, found), None, added)


def start_position_at(
    tx: Tx,
    stream: StreamRecord,
    frontier: Frontier,
    *,
    added: bool = False,
    ends: Mapping[SegmentId, int] = NOTHING,
    finished: Mapping[SegmentId, Progress] = NOTHING,
) -> StartPosition:
    """Return the start position of a group at `frontier`. finished: progress that is known already.

    Segments that lie completely behind `ends` are not opened.
    """
    held = tuple(
        (segment, finished.get(segment) or progress_at(tx, stream.stream_id, segment, offset))
        for segment, offset in sorted(frontier.held.items())
        if ends.get(segment, 1) > 0
    )
    waiting = tuple(
        (segment, tuple(sorted(before)))
        for segment, before in sorted(frontier.waiting.items())
        if ends.get(segment, 1) > 0
    )
    where = GroupStream(stream.name, stream.stream_id, added)
    return StartPosition(where, held, waiting, tuple(sorted(ends.items())))
