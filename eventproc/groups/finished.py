"""Whether a group has finished an event, and the wait for that: how a program reads what it has just written."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from eventproc.groups.changes import verify_streams
from eventproc.groups.describe import UnfinishedSegment, describe_group, describe_share_group
from eventproc.groups.time_limit import within
from eventproc.store.catalog import get_stream
from eventproc.store.database import Database, Tx, Watch
from eventproc.store.groups import (
    GROUP,
    SHARE,
    find_progress,
    has_finished_share,
    progress_channel,
    watch_group,
    watch_share,
)
from eventproc.store.model.argument_checks import check_instance, invalid_argument
from eventproc.store.model.ids import format_segment
from eventproc.store.records import get
from eventproc.store.segments import Event, segment_state, watch_head

_MEANT = "it must be an event, as a writer returns it"


def as_written(event: object) -> Event[Any]:
    """Return the event. Raises InvalidArgument, for a delayed one, too: it has no place yet."""
    return check_instance(Event, "event", event, _MEANT)


def has_finished(tx: Tx, group: str, event: Event[Any]) -> bool:
    """Return whether a group will not be given an event any more: it finished it, or it was truncated.

    Raises NotFound, also if the stream was deleted; InvalidArgument if the group does not read the stream of the event,
    GroupStreamReplaced if it reads a deleted one of that name.
    Cost: five look-ups; for a segment that the group does not hold, a few for each of its segments.
    """
    record = get(tx, GROUP, group).value
    read = {each.name: each.stream_id for each in (*record.dropped, *record.streams)}
    if event.stream not in read:
        raise invalid_argument("event", event.stream, f"group {group} does not read this stream")
    key = get_stream(tx, event.stream).value.stream_id, event.segment
    state = segment_state(tx, *key)
    if state is None or event.number < state.head_number:  # no reader need have come there
        return True
    if record.kind == SHARE:
        if (is_finished := has_finished_share(tx, group, key, event.number)) is not None:
            return is_finished
        left: Iterable[UnfinishedSegment] = describe_share_group(tx, group).segments
    else:
        if read[event.stream] != key[0]:  # it was created again
            if record.options.on_deleted == "error":
                verify_streams(tx, record)
            return False  # the group will read it from its head
        if (progress := find_progress(tx, group, key)) is not None:
            return progress.is_finished(event.number)
        left = describe_group(tx, group).segments
    return all((each.stream, each.segment) != (event.stream, event.segment) for each in left)


async def wait_finished(
    db: Database, groups: Iterable[str], event: Event[Any], timeout_ms: int | None
) -> None:
    """Return when each of the groups has finished the event. Raises TimeoutError, and as `has_finished`."""
    groups = tuple(groups)
    where = f"{event.stream} segment {format_segment(event.segment)} event {event.number}"
    with within(timeout_ms, f"{where} is not finished in {', '.join(groups)}"):
        for group in groups:
            look = partial(has_finished, group=group, event=event)
            if await db.read(look):
                continue
            key = await db.read(lambda tx: get_stream(tx, event.stream).value.stream_id), event.segment
            # Of its segment all progress: that of another process behind an unfinished event moves no prefix.
            progress = Watch(progress_channel(group), partial(find_progress, group=group, key=key))
            watched = [watch_group(group), watch_share(group), progress, watch_head(*key)]
            with db.subscribe(watched) as changes:
                while not await db.read(look):
                    await changes.wait()
