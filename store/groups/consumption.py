"""What all groups of a stream have passed: the cut up to which retention by consumption may truncate it.

A reader group counts with the position that its rows hold, unless its option `retains` says otherwise. A share group
counts with the first event that it has not finished. Where groups stand in different places, the earlier one decides,
at each point of the key space by itself. A group that stands before the history that is kept stands before the head,
and counts with the head. Source: pravega.md 8.3, with the order of cuts instead of its fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream, tail_offsets
from eventproc.store.catalog.cuts import head_cut
from eventproc.store.database import Tx
from eventproc.store.groups.records import (
    GROUP,
    RELEASED,
    SHARE,
    ReleasedCut,
    get_group,
    group_names,
    released_key,
)
from eventproc.store.groups.share_groups import unopened_segments
from eventproc.store.model.cuts import (
    NOT_REACHED,
    StreamCut,
    divide_cut,
    earlier,
    equal_or_after,
    verify_cut,
    with_ends,
)
from eventproc.store.model.errors import InvalidArgument, InvalidCut, NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import create, find, get, replace
from eventproc.store.segments import sealed_epoch, segment_state, verify_offset


def consumed_cut(tx: Tx, stream: StreamRecord) -> StreamCut | None:
    """Return the latest cut that all groups of the stream have passed, None if no group counts.

    Cost: one query for the rows of the stream, and a record for each group of the directory.
    """
    history = StoredHistory(tx, stream)
    return earliest_cut(tx, stream, (*_reader_groups(tx, stream, history), *_share_groups(tx, stream)))


def earliest_cut(tx: Tx, stream: StreamRecord, cuts: Iterable[StreamCut]) -> StreamCut | None:
    """Return the cut that is, at each point of the key space, the earliest of `cuts`; None if there is none.

    A cut that the kept history does not know any more counts as the head.
    """
    history = StoredHistory(tx, stream)
    found: StreamCut | None = None
    for cut in cuts:
        try:
            divide_cut(cut, history)
            known = cut
        except InvalidCut:
            known = head_cut(tx, stream)
        found = known if found is None else earlier(found, known, history)
    return found


def cut_before(tx: Tx, stream: StreamRecord, unfinished: Mapping[SegmentId, int]) -> StreamCut:
    """Return the latest cut along one epoch before all unfinished events.

    unfinished: the offset of the first unfinished event of each segment; a segment that is missing was finished.
    A reader that finishes a segment before its predecessors has offsets that need not be a cut. They are one within
    the last epoch that still has the segment that was sealed first.
    """
    history = StoredHistory(tx, stream)
    last, starts = history.current, dict[SegmentId, int]()
    for segment, offset in unfinished.items():
        state = segment_state(tx, stream.stream_id, segment)
        if state is None or (state.sealed and offset >= state.tail):
            continue  # truncated, or finished
        starts[segment] = offset
        sealed = sealed_epoch(tx, stream.stream_id, segment)
        if sealed is not None:
            last = min(last, max(sealed - 1, history.first))
    offsets: dict[SegmentId, int] = {}
    for segment in history.epoch(last).ids:
        if segment in starts:
            offsets[segment] = starts[segment]
        else:
            state = segment_state(tx, stream.stream_id, segment)
            offsets[segment] = 0 if state is None else state.tail
    return _cut(stream, offsets)


def release(tx: Tx, group: str, cut: StreamCut) -> None:
    """Let retention by consumption truncate the stream up to `cut`, as far as this group is concerned.

    Raises NotFound, StreamReplaced; InvalidArgument if the group does not release by itself, or does not read the
    stream; InvalidCut if the cut is not one of the stream, or is before the one that was released last.
    """
    record = get_group(tx, group)
    if record.options.retains != "manual":
        raise InvalidArgument(
            what="release", value=group, reason='the group was not created with retains="manual"'
        )
    if all(each.name != cut.stream for each in record.streams):
        raise InvalidArgument(what="release", value=cut.stream, reason=f"group {group} does not read it")
    stream = get_stream(tx, cut.stream, stream_id=cut.stream_id).value
    history = StoredHistory(tx, stream)
    verify_cut(cut, history)
    for segment in cut.offsets:
        verify_offset(tx, cut, segment)
    key, after = released_key(group, stream.stream_id), ReleasedCut(dict(cut.offsets))
    before = find(tx, RELEASED, key)
    if before is None:
        create(tx, RELEASED, key, after)
        return
    last = _cut(stream, before.value.offsets)
    if not _is_after(cut, last, history):
        raise InvalidCut(
            stream=cut.stream, cut=str(cut), reason=f"group {group} has released the stream up to {last}"
        )
    replace(tx, RELEASED, before, after)


def _reader_groups(tx: Tx, stream: StreamRecord, history: StoredHistory) -> list[StreamCut]:
    rows = tx.execute(
        "SELECT group_name, segment, offset, waiting IS NOT NULL FROM group_segment WHERE stream_id = ?",
        (stream.stream_id,),
    )
    own: dict[str, dict[SegmentId, int]] = {}
    for group, segment, offset, waits in rows.fetchall():
        own.setdefault(group, {})[SegmentId(segment)] = NOT_REACHED if waits else offset
    cuts: list[StreamCut] = []
    for group, offsets in own.items():
        record = find(tx, GROUP, group)
        if record is None or record.value.kind == SHARE:
            continue
        if (retains := record.value.options.retains) is None:
            continue
        if retains == "manual":
            released = find(tx, RELEASED, released_key(group, stream.stream_id))
            cuts.append(head_cut(tx, stream) if released is None else _cut(stream, released.value.offsets))
        else:
            cuts.append(_reader_cut(tx, stream, offsets, history))
    return cuts


def _reader_cut(
    tx: Tx, stream: StreamRecord, offsets: Mapping[SegmentId, int], history: StoredHistory
) -> StreamCut:
    try:
        return _cut(stream, with_ends(offsets, tail_offsets(tx, stream), history))
    except NotFound:  # a segment of the group lies before the oldest epoch kept
        return head_cut(tx, stream)


def _share_groups(tx: Tx, stream: StreamRecord) -> list[StreamCut]:
    cuts: list[StreamCut] = []
    for name in group_names(tx):  # a damaged record may be that of a share group: nothing is truncated then
        record = get(tx, GROUP, name).value
        where = next((each for each in record.streams if each.name == stream.name), None)
        if where is None or record.kind != SHARE:
            continue
        if where.stream_id != stream.stream_id:  # created again; the next poll opens it from its head
            where = attrs.evolve(where, stream_id=stream.stream_id, epoch=-1)
        rows = tx.execute(
            "SELECT segment, offset FROM group_segment WHERE group_name = ? AND stream_id = ?",
            (name, stream.stream_id),
        )
        unfinished = {SegmentId(segment): offset for segment, offset in rows.fetchall()}
        unfinished |= dict.fromkeys(unopened_segments(tx, where), 0)
        cuts.append(cut_before(tx, stream, unfinished))
    return cuts


def _is_after(cut: StreamCut, last: StreamCut, history: StoredHistory) -> bool:
    try:
        return equal_or_after(cut, last, history)
    except InvalidCut:
        return True  # the history does not know the last one any more: it is before the head


def _cut(stream: StreamRecord, offsets: Mapping[SegmentId, int]) -> StreamCut:
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=offsets)
