"""What all groups of a stream have passed: the cut up to which retention by consumption may truncate it.

A reader group counts with the position that its rows hold, unless its option `retains` says otherwise. A share group
counts with the first event that it has not finished. Where groups stand in different places, the earlier one decides,
at each point of the key space by itself. A group that stands before the history that is kept stands before the head,
and counts with the head. Source: pravega.md 8.3, with the order of cuts instead of its fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream, tail_offsets
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.groups.records import (
    GROUP,
    PROCESSOR,
    READERS,
    SHARE,
    TRUNCATABLE,
    GroupRecord,
    TruncatableCut,
    get_group,
    truncatable_key,
)
from eventproc.store.groups.share_groups import followed, unopened_segments
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
from eventproc.store.records import create, find, keys_containing, replace
from eventproc.store.segments import sealed_epoch, segment_state, verify_offset


def consumed_cut(tx: Tx, stream: StreamRecord) -> StreamCut | None:
    """Return the latest cut that all groups of the stream have passed, None if no group counts.

    A group whose record is damaged counts if a row of it, or what is left of its record, names the stream.
    Raises CorruptRecord for such a group, which may need anything.
    Cost: a record for each group of the stream, and two queries, one of which looks into all records of groups, 1 us
    each.
    """
    return earliest_cut(tx, stream, (cut for _, cut in _kept_cuts(tx, stream)))


def consuming_groups(tx: Tx, stream: StreamRecord) -> list[str]:
    """Return the names of the groups that count in `consumed_cut`, sorted. Raises and costs as that."""
    return sorted({record.name for record, _ in _kept_cuts(tx, stream)})


def _kept_cuts(tx: Tx, stream: StreamRecord) -> Iterator[tuple[GroupRecord, StreamCut]]:
    for record, finished in group_cuts(tx, stream):
        if (cut := _kept_cut(tx, stream, record, finished)) is not None:
            yield record, cut


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


def allow_truncation(tx: Tx, group: str, cut: StreamCut) -> None:
    """Let retention by consumption truncate the stream up to `cut`, as far as this group is concerned.

    Raises NotFound, StreamReplaced; InvalidArgument if the group is not one with `retains="manual"`, or does not
    read the stream; InvalidCut if the cut is not one of the stream, or is before the one of the last call.
    """
    record = get_group(tx, group)
    if record.options.retains != "manual":
        reason = 'the group was not created with retains="manual"'
        raise InvalidArgument(what="truncation", value=group, reason=reason)
    if all(each.name != cut.stream for each in record.streams):
        raise InvalidArgument(what="truncation", value=cut.stream, reason=f"group {group} does not read it")
    stream = get_stream(tx, cut.stream, stream_id=cut.stream_id).value
    history = StoredHistory(tx, stream)
    verify_cut(cut, history)
    for segment in cut.offsets:
        verify_offset(tx, cut, segment)
    key, after = truncatable_key(group, stream.stream_id), TruncatableCut(dict(cut.offsets))
    before = find(tx, TRUNCATABLE, key)
    if before is None:
        create(tx, TRUNCATABLE, key, after)
        return
    last = _cut(stream, before.value.offsets)
    if not _is_after(cut, last, history):
        raise InvalidCut(
            stream=cut.stream, cut=str(cut), reason=f"group {group} has allowed truncation up to {last}"
        )
    replace(tx, TRUNCATABLE, before, after)


def group_cuts(tx: Tx, stream: StreamRecord) -> Iterator[tuple[GroupRecord, StreamCut]]:
    """Yield the groups of a stream, by name, each with the cut up to which it has finished the stream.

    Raises and costs as `consumed_cut`.
    """
    rows = tx.execute(
        'SELECT group_name, segment, "offset", waiting IS NOT NULL FROM group_segment WHERE stream_id = ?',
        (stream.stream_id,),
    )
    own: dict[str, dict[SegmentId, int]] = {}
    for group, segment, offset, waits in rows.fetchall():
        own.setdefault(group, {})[SegmentId(segment)] = NOT_REACHED if waits else offset
    # A group has no rows of a stream that was created again, until its next poll, or until a reader or its app comes.
    named = keys_containing(tx, GROUP, f'"{stream.name}"')
    for group in sorted({*own, *named}):
        if (found := find(tx, GROUP, group)) is None:
            continue
        record, offsets = found.value, own.get(group, {})
        if record.kind == SHARE:
            for cut in _share_cuts(tx, stream, record, offsets):
                yield record, cut
        elif group in own:
            yield record, _reader_cut(tx, stream, offsets)
        elif _will_read(record, stream):
            yield record, head_cut(tx, stream)


def _will_read(group: GroupRecord, stream: StreamRecord) -> bool:
    """Return whether a group read a deleted stream of this name, and will go on with this one from its head."""
    if group.kind != PROCESSOR and (group.kind != READERS or group.options.on_deleted == "error"):
        return False
    before = [each.stream_id for each in (*group.streams, *group.dropped) if each.name == stream.name]
    return bool(before) and stream.stream_id not in before


def _kept_cut(tx: Tx, stream: StreamRecord, group: GroupRecord, finished: StreamCut) -> StreamCut | None:
    """Return the cut from which on a group wants the stream to be kept; None if it wants nothing."""
    if group.kind == SHARE or group.options.retains == "progress":
        return finished
    if group.options.retains is None:
        return None
    allowed = find(tx, TRUNCATABLE, truncatable_key(group.name, stream.stream_id))
    return head_cut(tx, stream) if allowed is None else _cut(stream, allowed.value.offsets)


def _reader_cut(tx: Tx, stream: StreamRecord, offsets: Mapping[SegmentId, int]) -> StreamCut:
    try:
        return _cut(stream, with_ends(offsets, tail_offsets(tx, stream), StoredHistory(tx, stream)))
    except NotFound:  # a segment of the group lies before the oldest epoch kept
        return head_cut(tx, stream)


def _share_cuts(
    tx: Tx, stream: StreamRecord, group: GroupRecord, offsets: Mapping[SegmentId, int]
) -> Iterator[StreamCut]:
    """Yield the cut of a share group; none if it does not consume the stream any more."""
    for where in group.streams:
        if where.name == stream.name:
            unopened = unopened_segments(tx, followed(where, stream.stream_id))
            yield cut_before(tx, stream, {**offsets, **dict.fromkeys(unopened, 0)})


def _is_after(cut: StreamCut, last: StreamCut, history: StoredHistory) -> bool:
    try:
        return equal_or_after(cut, last, history)
    except InvalidCut:
        return True  # the history does not know the last one any more: it is before the head


def _cut(stream: StreamRecord, offsets: Mapping[SegmentId, int]) -> StreamCut:
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=offsets)
