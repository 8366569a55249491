"""Changes of a share group: created, updated, reset, a consumer gone; within a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from eventproc.groups import GroupStart, ShareUpdate, describe_share_group, ensure_group, stream_names
from eventproc.groups.changes import check_changes
from eventproc.groups.start_positions import start_cuts, start_positions_of
from eventproc.processors.dead_letters.operations import verify_letter_stream
from eventproc.shares.delivery import end_dead_locks
from eventproc.store.catalog import find_stream, unfinished_part
from eventproc.store.database import Database, Tx
from eventproc.store.groups import (
    GROUP,
    SHARE,
    GroupRecord,
    GroupStream,
    ShareOptions,
    delete_deliveries,
    get_group,
    progress_channel,
    read_deliveries,
    read_held,
    read_taken_in,
    replace_share,
    start_share_group,
)
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import get


def ensure_share_group(
    tx: Tx, name: str, streams: Sequence[str], start: GroupStart, options: ShareOptions
) -> bool:
    """Create the share group `name` ("scope/group"); return False if an equal one exists. Raises as `ensure_group`.

    start: where a new group begins.
    """
    if not ensure_group(tx, name, streams, start, kind=SHARE, share=options):
        return False
    verify_letter_stream(tx, name, None, stream_names(streams))
    return True


def update_share_group(tx: Tx, name: str, changes: ShareUpdate) -> ShareOptions:
    """Change options of a share group, and return all of them. Does nothing if they are so already.

    Raises NotFound (also a stream), InvalidArgument.
    """
    check_changes(changes, ShareUpdate)
    record = get_group(tx, name, share=True)
    share = attrs.evolve(
        record.share,
        lock_ms=changes.get("lock_ms", record.share.lock_ms),
        deliveries_max=changes.get("deliveries_max", record.share.deliveries_max),
    )
    streams = record.streams
    if "streams" in changes:
        streams = _streams_after_update(tx, record, stream_names(changes["streams"]))
    created = record.created_share or record.share
    after = attrs.evolve(
        record, share=share, streams=streams, created_share=None if created == share else created
    )
    if after != record:
        replace_share(tx, get(tx, GROUP, name), after)
    return share


def _streams_after_update(tx: Tx, record: GroupRecord, names: Sequence[str]) -> tuple[GroupStream, ...]:
    """Open the streams that are new to the group at their heads, and forget those that it leaves."""
    verify_letter_stream(tx, record.name, None, names)
    kept = [each for each in record.streams if each.added or each.name in names]
    left = {each.stream_id for each in record.streams if each not in kept}
    known = {each.name for each in kept}
    starts = start_positions_of(tx, [each for each in names if each not in known], "head", kind=SHARE)
    delete_deliveries(tx, record.name, [key for key in read_taken_in(tx, record.name) if key[0] in left])
    start_share_group(tx, record.name, {each.stream.stream_id: dict(each.held) for each in starts})
    tx.wake(progress_channel(record.name))
    return (*kept, *(each.stream for each in starts))


def consumer_offline(tx: Tx, db: Database, name: str, consumer: str) -> tuple[int, bool]:
    """Release what a consumer holds, as if it had died; return how many events, and whether to call it again.

    Raises NotFound, and what `append_letters` raises.
    """
    get_group(tx, name, share=True)
    before = _held_by(tx, name, consumer)
    is_left = end_dead_locks(tx, db, name, offline=consumer)
    return before - _held_by(tx, name, consumer), is_left


def _held_by(tx: Tx, name: str, consumer: str) -> int:
    ranges = [each for ranges in read_held(tx, name).values() for each in ranges]
    return sum(each.high - each.low for each in ranges if each.lock and each.lock.consumer == consumer)


@attrs.frozen
class ShareResetPreview:
    """A stream of a share group before and after a reset: how many events are not finished.

    cut_after: where the reset leads. events_before: None for a stream that the group does not consume now.
    """

    __repr__ = short_repr_of_fields

    stream: str
    cut_after: StreamCut
    events_before: int | None
    events_after: int


def reset_share_group(
    tx: Tx,
    name: str,
    start: GroupStart = "head",
    *,
    streams: Sequence[str] | None = None,
    dry_run: bool = False,
) -> list[ShareResetPreview]:
    """Move the group to `start`: every lock is lost, and every delivery is forgotten.

    streams: the streams to consume from now on, found by name. None: the same; those that were deleted stay in the
        group, which goes on with the next stream of the name.
    dry_run: only return what would change.
    Raises NotFound, InvalidArgument, InvalidCut, Truncated.
    """
    record = get_group(tx, name, share=True)
    cuts = start_cuts(tx, _names_after_reset(tx, record, streams), start)
    added = [each.name for each in record.streams if each.added]
    starts = start_positions_of(tx, list(cuts), cuts, added=added, kind=SHARE)
    known = {each.stream_id for each in record.streams}
    now = describe_share_group(tx, name).segments
    previews = [
        ShareResetPreview(
            each.stream.name,
            cuts[each.stream.name],
            sum(part.events for part in now if part.stream_id == each.stream.stream_id)
            if each.stream.stream_id in known
            else None,
            sum(unfinished_part(tx, each.stream.stream_id, *held).events for held in each.held),
        )
        for each in starts
    ]
    if dry_run:
        return previews
    held = {each.stream.stream_id: dict(each.held) for each in starts}
    start_share_group(tx, name, held, read_deliveries(tx, name))
    after = tuple(each.stream for each in starts)
    started = {each.name for each in after}
    deleted = [each for each in record.streams if streams is None and each.name not in started]
    replace_share(
        tx,
        get(tx, GROUP, name),
        attrs.evolve(record, streams=(*after, *deleted), generation=record.generation + 1),
    )
    return previews


def _names_after_reset(tx: Tx, record: GroupRecord, streams: Sequence[str] | None) -> list[str]:
    chosen = [each.name for each in record.streams if not each.added]
    present = [each for each in chosen if find_stream(tx, each) is not None]
    names = (present or chosen) if streams is None else list(stream_names(streams))
    added = [each.name for each in record.streams if each.added]
    return [*names, *(each for each in added if each not in names and find_stream(tx, each) is not None)]
