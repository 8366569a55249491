"""Changes of a group: created, paused, a stream added, a reader gone, a segment ended; within a transaction."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypedDict

import attrs

from eventproc.groups.names import group_name, stream_names
from eventproc.groups.start_positions import GroupEnd, GroupStart, start_positions_of
from eventproc.groups.state import DEFAULT_OPTIONS, GroupState, begin
from eventproc.groups.stored_state import GROUP_LOG, change, refusal_of, write_segments
from eventproc.groups.updates import (
    AssignorChanged,
    OptionsChanged,
    PauseChanged,
    ReaderAway,
    ReaderLeft,
    SegmentCompleted,
    StartPosition,
    StreamAdded,
    StreamDropped,
    Update,
)
from eventproc.store.catalog import (
    StoredHistory,
    find_stream,
    get_scope,
    get_stream,
    record_names,
    verify_active,
)
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GENERATION,
    GROUP,
    GROUPS,
    OWNED,
    PRAVEGA,
    PROCESSOR,
    READERS,
    SHARE,
    GroupKind,
    GroupOptions,
    GroupRecord,
    RetainedPart,
    SegmentKey,
    ShareOptions,
    TruncatedPolicy,
    channel_of,
    get_group,
    progress_of,
    readable_group,
    replace_share,
    start_share_group,
    write_heartbeats,
)
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import AlreadyExists, NotFound
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.group_errors import GroupStreamReplaced
from eventproc.store.model.ids import SegmentId, epoch_of
from eventproc.store.model.list_pages import COMPLETE, ListPage, chosen_entries
from eventproc.store.model.partitions import is_reserve
from eventproc.store.records import counted, create, find, get
from eventproc.store.replicated import LogId, create_log, initialize
from eventproc.store.segments import segment_state
from eventproc.streams.stream_cuts import PASSED_MAX, is_over

LOG = logging.getLogger("eventproc.groups")

SHARE_DEFAULTS: Final = ShareOptions()


def ensure_group(
    tx: Tx,
    name: str,
    streams: Sequence[str],
    start: GroupStart = "head",
    *,
    until: GroupEnd = None,
    kind: GroupKind = PROCESSOR,
    options: GroupOptions = DEFAULT_OPTIONS,
    share: ShareOptions = SHARE_DEFAULTS,
) -> bool:
    """Create the group `name` ("scope/group"), reading `streams` from `start` on; return False if an equal one exists.

    until: where it ends, in the streams that have a cut there. `start` and `until` count only when the group is
        created.
    share: options of a share group.
    Raises AlreadyExists with the fields that differ, GroupStreamReplaced if one of its streams was deleted since and it
    drops none, NotFound, IllegalTransition (the scope is being deleted), InvalidArgument, InvalidCut (also if `until`
    lies before `start`), and what `frontier_at` raises.
    """
    name = group_name(name)
    names = stream_names(streams)
    if (found := find(tx, GROUP, name)) is not None:
        _verify_equal(found.value, names, kind, options, share)
        if kind != SHARE and found.value.options.on_deleted == "error":
            verify_streams(tx, found.value)
        return False
    verify_active(get_scope(tx, name.partition("/")[0]).value, "create a group")
    starts = start_positions_of(tx, names, start, until, kind=kind)
    log = None if kind == SHARE else create_log(tx)
    state = insert_group(tx, name, kind, starts, options, share=share, log=log)
    if log is None:
        start_share_group(tx, name, {each.stream.stream_id: dict(each.held) for each in starts})
    else:
        initialize(tx, log, GROUP_LOG, state)
        write_segments(tx, name, GroupState(generation=0), state)
    return True


def insert_group(
    tx: Tx,
    name: str,
    kind: GroupKind,
    starts: Sequence[StartPosition],
    options: GroupOptions,
    *,
    share: ShareOptions = SHARE_DEFAULTS,
    log: LogId | None = None,
) -> GroupState:
    """Write the record of a new group, and return its state, whose rows the caller writes. name: a valid one."""
    state = begin(counted(tx, GENERATION), starts, options)
    group = GroupRecord(
        name=name,
        streams=state.streams,
        generation=state.generation,
        reset=state.generation,
        kind=kind,
        created_ms=tx.now_ms,
        log=log,
        options=options,
        share=share,
    )
    create(tx, GROUP, name, group)
    tx.wake(channel_of(name))
    tx.wake(GROUPS)
    return state


def ensure_worker_group(
    tx: Tx,
    name: str,
    streams: Sequence[str],
    start: GroupStart,
    options: ShareOptions,
    dead_letters: str | None,
) -> None:
    """Create the share group of a worker, or give it the options that the worker declares. Raises as `ensure_group`.

    dead_letters: the stream of its dead letters. None: the default.
    """
    found = find(tx, GROUP, name)
    if found is None:
        ensure_group(tx, name, streams, start, kind=SHARE, share=options)
        found = get(tx, GROUP, name)
    before = found.value
    after = attrs.evolve(before, share=options, created_share=None, worker=True, dead_letters=dead_letters)
    if before.kind == SHARE and attrs.evolve(after, created_share=before.created_share) != before:
        replace_share(tx, found, after)
    ensure_group(tx, name, streams, start, kind=SHARE, share=options)


def _verify_equal(
    group: GroupRecord, names: Sequence[str], kind: GroupKind, options: GroupOptions, share: ShareOptions
) -> None:
    chosen = {each.name for each in (*group.streams, *group.dropped) if not each.added}
    differing = []
    if chosen != set(names):
        differing.append("streams")
    if group.kind != kind:
        differing.append("kind")
    # A program that starts again names the options of the creation, also after an operator changed them.
    if options not in (group.options, group.created_options) or share not in (
        group.share,
        group.created_share,
    ):
        differing.append("options")
    if differing:
        raise AlreadyExists(kind="group", name=group.name, differing=tuple(differing))


def verify_streams(tx: Tx, group: GroupRecord, *, may_be_gone: bool = False) -> None:
    """Raise GroupStreamReplaced if a stream of the group was deleted, even if a stream of that name exists again.

    may_be_gone: accept a deleted stream whose name is not used again.
    """
    for each in group.streams:
        found = find_stream(tx, each.name)
        current = None if found is None else found.value.stream_id
        if current != each.stream_id and not (may_be_gone and current is None):
            raise GroupStreamReplaced(
                group=group.name, stream=each.name, stream_id=each.stream_id, current_id=current
            )


def verify_readers(group: GroupRecord) -> None:
    """Raise NotAReaderGroup if the group belongs to a processor, or to clients of Kafka or Pravega."""
    if group.kind != READERS:
        raise refusal_of(group)


def verify_movable(group: GroupRecord) -> None:
    """Raise NotAReaderGroup if only the group's own clients can move it: those of Pravega know where it is."""
    if group.kind == PRAVEGA:
        raise refusal_of(group)


def add_stream(tx: Tx, group: str, stream: str) -> None:
    """Let the group read one more stream, from its tail. Does nothing if it reads it already.

    An earlier group of the name may have read what lies before. Raises NotFound, GroupStreamReplaced.
    """
    record = get_group(tx, group)
    if any(each.name == stream for each in record.streams):
        verify_streams(tx, record)
    else:
        (start,) = start_positions_of(tx, [stream], "tail", added=[stream])
        change(tx, group, StreamAdded(start))


def drop_stream(tx: Tx, group: str, stream_id: int) -> None:
    """Let the group read a stream no more that `add_stream` added. Raises NotFound."""
    change(tx, group, StreamDropped(stream_id))


def set_paused(tx: Tx, name: str, paused: bool) -> None:
    """Pause the processors, or the workers, of a group, or let them continue. Raises NotFound."""
    found = get(tx, GROUP, name)
    if found.value.paused == paused:
        return
    if found.value.kind == SHARE:
        replace_share(tx, found, attrs.evolve(found.value, paused=paused))
    else:
        change(tx, name, PauseChanged(paused))


class ShareUpdate(TypedDict, total=False):
    """The options of `ShareGroup.update`. What is missing stays as it is.

    lock_ms: how long a consumer holds an event unless it renews the lock, in ms.
    deliveries_max: after so many deliveries an event that nobody accepted becomes a dead letter.
    streams: names of the streams or topics that the group consumes from now on, "scope/stream".
    """

    lock_ms: int
    deliveries_max: int
    streams: Sequence[str]


class GroupUpdate(TypedDict, total=False):
    """Options of `Eventproc.create_group`, and of `Group.update`, where what is missing stays as it is.

    patience_ms: how long a reader may be silent or slow, in ms; None: as long as its process lives.
    checkpoint_ms: pause between automatic checkpoints, in ms; None: there are none.
    on_truncated: "earliest", "latest" or "error": what to do when unread events were truncated.
    assignor: "equal", "range", "round_robin", "lag", or the name of an own one.
    retains: what a stream with retention by consumption keeps for the group: "progress", "manual", or None for nothing.
    """

    patience_ms: int | None
    checkpoint_ms: int | None
    on_truncated: TruncatedPolicy
    assignor: str
    retains: RetainedPart | None


def check_changes(changes: Mapping[str, object], options: type[GroupUpdate | ShareUpdate]) -> None:
    """Raise InvalidArgument for a change of what is none of the `options`."""
    if unknown := sorted(changes.keys() - options.__annotations__.keys()):
        raise invalid_argument("option", unknown[0], "a group has no such option that may change")


def update_options(tx: Tx, name: str, changes: GroupUpdate) -> GroupOptions:
    """Change options of a group of readers, and return all of them. Does nothing if they are so already.

    Readers follow before their next event. Another patience counts silence from now. Raises NotFound, NotAReaderGroup,
    InvalidArgument.
    """
    check_changes(changes, GroupUpdate)
    group = get_group(tx, name)
    verify_readers(group)
    before, after = group.options, attrs.evolve(group.options, **changes)
    updates: list[Update] = []
    if attrs.evolve(after, assignor=before.assignor) != before:
        updates.append(OptionsChanged(attrs.evolve(after, assignor=before.assignor)))
    if after.assignor != before.assignor:
        updates.append(AssignorChanged(after.assignor))
    if updates:
        change(tx, name, *updates)
    if after.patience_ms is not None and after.patience_ms != before.patience_ms:
        # Readers have written heartbeats as often as the patience before demanded it, if any.
        write_heartbeats(tx, name)
    return after


def departure(
    tx: Tx, group: str, state: GroupState, reader: str, *, for_good: bool = False
) -> ReaderLeft | ReaderAway:
    """Return the update by which a reader owns nothing any more; its segments continue at their durable progress.

    A static reader is away, unless it was away already or leaves for good; any other one goes offline.
    """
    positions = progress_of(tx, group, state.owned_by(reader))
    member = state.members[reader]
    if for_good or member.static_ms is None or member.away_since_ms is not None:
        return ReaderLeft(reader, positions)
    return ReaderAway(reader, positions, tx.monotonic_ms)


def list_groups(
    tx: Tx,
    scope: str | None = None,
    page: ListPage = COMPLETE,
    *,
    kinds: Collection[GroupKind] = OWNED,
    workers: bool = False,
) -> list[GroupRecord]:
    """Return the groups of a scope, or of all scopes, sorted by scope and name. Raises NotFound (the scope).

    A group whose record is damaged is left out, and the log names it.
    kinds: of which kinds. Default: all but share groups. workers: those of workers, too. A reader that `page` names may
    know a group and its streams, or does not see it.
    Cost: as `chosen_entries`.
    """

    def read(part: ListPage) -> list[tuple[str, GroupRecord | None]]:
        return [(name, readable_group(tx, name)) for name in record_names(tx, GROUP, scope, part)]

    def chooses(entry: tuple[str, GroupRecord | None]) -> bool:
        name, group = entry
        if group is None:
            LOG.warning("group %s is not listed, because its record is damaged; run `eventproc doctor`", name)
            return False
        is_kind = group.kind in kinds or (workers and group.worker)
        return is_kind and page.allows(*(each.name for each in group.streams))

    return [group for _, group in chosen_entries(read, chooses, lambda each: each[0], page) if group]


def completion(tx: Tx, group: str, state: GroupState, key: SegmentKey, reader: str) -> SegmentCompleted:
    """Return the update that finishes an open segment and names its successors; none where the group ends.

    reader: as in the update. Raises StreamReplaced, and NotFound if the history no longer knows the successors.
    """
    stream_id, segment = key
    ((_, progress),) = progress_of(tx, group, [key])
    end = state.end_offsets.get(key)
    if end is not None and progress.offset >= end:
        return SegmentCompleted(reader, key, ())
    name = next(stream.name for stream in state.streams if stream.stream_id == stream_id)
    stream = get_stream(tx, name, stream_id=stream_id).value
    found = segment_state(tx, stream_id, segment)
    assert found is None or (found.sealed and progress.offset >= found.tail), (
        f"segment {segment} of {name} goes on to {found} and is finished only to {progress}"
    )
    # Of the successors, those without events need no reader: a long history of them is passed in this step.
    ends = {each for (own, each) in state.end_offsets if own == stream_id}
    waiting = {each: set(before) for (own, each), before in state.waiting.items() if own == stream_id}
    frontier = Frontier({segment: progress.offset}, waiting)

    def is_end(each: SegmentId, offset: int) -> bool:
        return each == segment or (each not in ends and is_over(tx, stream_id, each, offset))

    history = StoredHistory(tx, stream)
    try:
        entered = frontier.pass_ended(history, is_end, passed_max=PASSED_MAX)
    except NotFound:
        if not is_reserve(segment):
            raise
        entered = _successors_of_reserve(history, segment)
        frontier.complete(segment, entered)
    open_now = {**frontier.held, **frontier.waiting}
    begun = [
        (successor, before)
        for successor, before in entered.items()
        if successor in open_now and state.end_offsets.get((stream_id, successor), 1) > 0
    ]
    passed = tuple(sorted(entered.keys() - open_now.keys()))
    return SegmentCompleted(reader, key, tuple(begun), passed)


def _successors_of_reserve(
    history: StoredHistory, reserve: SegmentId
) -> dict[SegmentId, tuple[SegmentId, ...]]:
    """Return the successors of a reserve that lies before the oldest epoch kept: what that epoch has in its range.

    These are the partitions that were added since. Each is read from its beginning, where its reader finds out what
    was truncated.
    """
    added = history.epoch(history.first).ids
    return {each: (reserve,) for each in added if epoch_of(each) > epoch_of(reserve)}


def ended_reserves(tx: Tx, state: GroupState) -> list[SegmentKey]:
    """Return the reserves without an owner that were sealed: their topics grew, or were sealed. One look-up for each.

    A reserve never holds an event, so any reader of the group completes it, and none has to own it.
    """
    names = {stream.stream_id: stream.name for stream in state.streams}
    found = []
    for key in (each.key for each in state.reserves if each.owner is None):
        segment = segment_state(tx, *key)
        if segment is None:  # its row was removed since, or the topic was deleted
            stream = find_stream(tx, names[key[0]])
            if stream is not None and stream.value.stream_id == key[0]:
                found.append(key)
        elif segment.sealed:
            found.append(key)
    return found
