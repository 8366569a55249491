"""Changes of a share group: created, reset; within a transaction. Where it starts, in numbers of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from eventproc.groups import GROUP, GroupStart, check_start, group_name, stream_names
from eventproc.processors.dead_letters.operations import verify_letter_stream
from eventproc.store.catalog import (
    StreamRecord,
    find_stream,
    get_scope,
    get_stream,
    record_names,
    unfinished_part,
    unfinished_segments,
    verify_active,
)
from eventproc.store.catalog.cuts import head_cut, tail_cut, time_cut
from eventproc.store.database import Tx
from eventproc.store.groups import (
    SHARE,
    SHARES,
    SegmentKey,
    ShareOptions,
    ShareRecord,
    ShareStream,
    next_generation,
    read_deliveries,
    replace_share,
    share_topic,
    start_share_group,
)
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.deliveries import SegmentDeliveries
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.list_pages import COMPLETE, ListPage
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import create, find, get
from eventproc.store.segments import progress_at
from eventproc.streams.stream_cuts import frontier_at


def ensure_share_group(
    tx: Tx, name: str, streams: Sequence[str], start: GroupStart, options: ShareOptions
) -> bool:
    """Create the share group `name` ("scope/group"); return False if an equal one exists.

    start: where a new group begins.
    Raises AlreadyExists with what differs, NotFound, IllegalTransition (the scope is being deleted), InvalidArgument,
    InvalidCut, and Truncated.
    """
    name = group_name(name)
    names = stream_names(streams)
    if find(tx, GROUP, name) is not None:
        raise AlreadyExists(kind="group", name=name, differing=("kind",))
    if (found := find(tx, SHARE, name)) is not None:
        differing = []
        if {each.name for each in found.value.streams if not each.added} != set(names):
            differing.append("streams")
        if found.value.options != options:
            differing.append("options")
        if differing:
            raise AlreadyExists(kind="share group", name=name, differing=tuple(differing))
        return False
    verify_active(get_scope(tx, name.partition("/")[0]).value, "create a share group")
    starts = share_starts(tx, names, start)
    verify_letter_stream(tx, name, None, names)
    record = ShareRecord(
        name=name,
        streams=_streams_at(starts),
        generation=next_generation(tx),
        created_ms=tx.now_ms,
        options=options,
    )
    create(tx, SHARE, name, record)
    start_share_group(tx, name, {stream.stream_id: held for stream, held in starts})
    tx.wake(share_topic(name))
    tx.wake(SHARES)
    return True


def get_share_group(tx: Tx, name: str) -> ShareRecord:
    """Return the record of a share group. Raises NotFound."""
    return get(tx, SHARE, name).value


def list_share_groups(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[ShareRecord]:
    """Return the share groups of a scope, or of all scopes, sorted by scope and name. Raises NotFound (the scope)."""
    return [get_share_group(tx, name) for name in record_names(tx, SHARE, scope, page)]


def reset_share_group(
    tx: Tx, name: str, start: GroupStart = "head", *, streams: Sequence[str] | None = None
) -> None:
    """Move the group to `start`: every lock is lost, and every delivery is forgotten.

    streams: the streams to consume from now on, found by name. None: the same; those that were deleted stay in the
        group, which goes on with the next stream of the name.
    Raises NotFound, InvalidArgument, InvalidCut, Truncated.
    """
    found = get(tx, SHARE, name)
    starts = _starts_after_reset(tx, found.value, start, streams)
    deliveries = read_deliveries(tx, name)
    start_share_group(tx, name, {stream.stream_id: held for stream, held in starts}, deliveries)
    added = {each.name for each in found.value.streams if each.added}
    after = tuple(attrs.evolve(each, added=each.name in added) for each in _streams_at(starts))
    started = {each.name for each in after}
    deleted = [each for each in found.value.streams if streams is None and each.name not in started]
    record = attrs.evolve(found.value, streams=(*after, *deleted), generation=found.value.generation + 1)
    replace_share(tx, found, record)


@attrs.frozen
class ShareResetPreview:
    """A stream of a share group before and after a reset: how many events are not finished.

    events_before: None for a stream that the group does not consume now.
    """

    __repr__ = short_repr_of_fields

    stream: str
    events_before: int | None
    events_after: int


def preview_share_reset(
    tx: Tx, name: str, start: GroupStart = "head", *, streams: Sequence[str] | None = None
) -> list[ShareResetPreview]:
    """Return what `reset_share_group` would do now; changes nothing. Raises the same."""
    record = get_share_group(tx, name)
    starts = _starts_after_reset(tx, record, start, streams)
    known = {each.stream_id for each in record.streams}
    now = read_deliveries(tx, name)
    return [
        ShareResetPreview(
            stream.name,
            unfinished_events_of(tx, stream.stream_id, now) if stream.stream_id in known else None,
            sum(unfinished_part(tx, stream.stream_id, *each).events for each in held.items()),
        )
        for stream, held in starts
    ]


def unfinished_events_of(tx: Tx, stream_id: int, deliveries: Mapping[SegmentKey, SegmentDeliveries]) -> int:
    """Return how many events of a stream are not finished, in its open segments."""
    return sum(
        unfinished_part(tx, stream_id, segment, found.progress).events
        for (of_stream, segment), found in deliveries.items()
        if of_stream == stream_id
    )


def _starts_after_reset(
    tx: Tx, record: ShareRecord, start: GroupStart, streams: Sequence[str] | None
) -> list[tuple[StreamRecord, dict[SegmentId, Progress]]]:
    chosen = [each.name for each in record.streams if not each.added]
    present = [each for each in chosen if find_stream(tx, each) is not None]
    names = (present or chosen) if streams is None else stream_names(streams)
    added = [each.name for each in record.streams if each.added and find_stream(tx, each.name) is not None]
    return share_starts(tx, [*names, *(each for each in added if each not in names)], start)


def _streams_at(starts: Sequence[tuple[StreamRecord, object]]) -> tuple[ShareStream, ...]:
    return tuple(ShareStream(stream.name, stream.stream_id, stream.epoch) for stream, _ in starts)


def share_starts(
    tx: Tx, names: Sequence[str], start: GroupStart
) -> list[tuple[StreamRecord, dict[SegmentId, Progress]]]:
    """Return where a share group starts in each of the streams: the progress of each segment that it opens.

    All segments behind the start are opened together, successors too: a share group promises no order.
    Raises NotFound, InvalidArgument, InvalidCut, StreamReplaced, Truncated.
    """
    check_start(start, names)
    found: list[tuple[StreamRecord, dict[SegmentId, Progress]]] = []
    for name in names:
        stream = get_stream(tx, name).value
        cut = _cut(tx, stream, start)
        offsets = {
            segment: max(cut.offsets.get(segment, 0), 0)
            for segment in unfinished_segments(tx, stream, cut)
            if not is_reserve(segment)
        }
        held = {
            segment: progress_at(tx, stream.stream_id, segment, offset) for segment, offset in offsets.items()
        }
        found.append((stream, held))
    return found


def _cut(tx: Tx, stream: StreamRecord, start: GroupStart) -> StreamCut:
    if isinstance(start, int):
        return time_cut(tx, stream, start)
    if start == "tail":
        return tail_cut(tx, stream)
    cut: StreamCut | None = None
    if isinstance(start, Mapping):
        cut = start.get(stream.name)
    elif isinstance(start, StreamCut) and start.stream == stream.name:
        cut = start
    if cut is None:
        return head_cut(tx, stream)
    frontier_at(tx, stream, cut)  # validates the cut
    return cut
