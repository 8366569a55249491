"""Changes of a share group: created, reset; within a transaction."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from eventproc.groups import GroupStart, describe_share_group, ensure_group, stream_names
from eventproc.groups.start_positions import start_positions_of
from eventproc.groups.updates import StartPosition
from eventproc.processors.dead_letters.operations import verify_letter_stream
from eventproc.store.catalog import find_stream, unfinished_part
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    SHARE,
    GroupRecord,
    ShareOptions,
    get_group,
    read_deliveries,
    replace_share,
    start_share_group,
)
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


@attrs.frozen
class ShareResetPreview:
    """A stream of a share group before and after a reset: how many events are not finished.

    events_before: None for a stream that the group does not consume now.
    """

    __repr__ = short_repr_of_fields

    stream: str
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
    starts = _starts_after_reset(tx, record, start, streams)
    known = {each.stream_id for each in record.streams}
    now = describe_share_group(tx, name).segments
    previews = [
        ShareResetPreview(
            each.stream.name,
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


def _starts_after_reset(
    tx: Tx, record: GroupRecord, start: GroupStart, streams: Sequence[str] | None
) -> list[StartPosition]:
    chosen = [each.name for each in record.streams if not each.added]
    present = [each for each in chosen if find_stream(tx, each) is not None]
    names = (present or chosen) if streams is None else stream_names(streams)
    added = [each.name for each in record.streams if each.added]
    kept = [each for each in added if each not in names and find_stream(tx, each) is not None]
    return start_positions_of(tx, [*names, *kept], start, added=added, kind=SHARE)
