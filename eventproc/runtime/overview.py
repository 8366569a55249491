"""A store at a glance: what flows, which groups are behind, and what waits."""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.groups import PROCESSOR, describe_group, describe_share_group, list_groups
from eventproc.groups.describe import DescribedGroup
from eventproc.processors.dead_letters.operations import count_letters
from eventproc.processors.observe.call_durations import CallDurations
from eventproc.processors.observe.status import oldest_commit, published_statuses, slowest
from eventproc.store.catalog import list_streams
from eventproc.store.database import Tx
from eventproc.store.groups import OWNED, SHARE, GroupKind, GroupRecord
from eventproc.store.model.list_pages import ListPage, NameFilter
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.requests import pending_requests
from eventproc.store.segments import write_rate, written_streams
from eventproc.store.transactions import count_open
from eventproc.streams.description import StreamInfo

SHOWN: Final = 20
"""Streams and groups of an overview. Higher: more than a terminal has room for."""

GROUPS_MAX: Final = 200
"""Groups whose backlog is looked at, the first ones by name. Each takes a few look-ups for each of its segments."""


@attrs.frozen(kw_only=True)
class Backlog:
    """What a group has not finished.

    kind: "readers", "processor", "share", "kafka" or "pravega".
    members: readers, consumers or processes that take part.
    events, bytes: what is not finished. age_ms: time since the oldest of it was appended; None without one.
    dead_letters: events that it gave up and that nobody has decided about.
    calls, commit_age_ms: of a processor or a worker, as in `ProcessorDescription`; None of others.
    """

    group: str
    kind: GroupKind
    paused: bool
    members: int
    events: int
    bytes: int
    age_ms: int | None
    dead_letters: int
    calls: CallDurations | None = None
    commit_age_ms: int | None = None


@attrs.frozen(kw_only=True)
class Overview:
    """A store at one moment, as `ep.overview()` returns it.

    streams_count: all streams and topics. events_per_second: what was written to them in the last minute.
    unfinished_events, dead_letters: of the first GROUPS_MAX groups by name.
    unfinished_age_ms: time since the oldest of these events was appended; None without one.
    requests_pending: changes of streams and scopes that wait or run. transactions_open: those that are not decided.
    streams: the busiest ones, first the one with the most events in the last minute.
    groups: those that are most behind of the first GROUPS_MAX by name; first the one with the most unfinished events.
    """

    __repr__ = short_repr_of_fields

    streams_count: int
    events_per_second: float
    unfinished_events: int
    unfinished_age_ms: int | None
    dead_letters: int
    requests_pending: int
    transactions_open: int
    streams: tuple[StreamInfo, ...]
    groups: tuple[Backlog, ...]


def overview_of(tx: Tx, readable: NameFilter | None = None) -> Overview:
    """Return the overview, of what a reader may know. readable: which names that are; None: all.

    Cost: a look-up for each stream, one for each segment of the store, a few more for the streams that are written or
    shown, and those of `backlogs`.
    """
    streams = list_streams(tx, page=ListPage(readable=readable))
    written = written_streams(tx)
    rates = {
        each: write_rate(tx, each) for each in (stream.stream_id for stream in streams) if each in written
    }
    busiest = sorted(streams, key=lambda each: -rates.get(each.stream_id, 0))[:SHOWN]
    groups = backlogs(tx, readable)
    return Overview(
        streams_count=len(streams),
        events_per_second=round(sum(rates.values()), 3),
        unfinished_events=sum(each.events for each in groups),
        unfinished_age_ms=max((each.age_ms for each in groups if each.age_ms is not None), default=None),
        dead_letters=sum(each.dead_letters for each in groups),
        requests_pending=pending_requests(tx, readable),
        transactions_open=count_open(
            tx, None if readable is None else frozenset(each.stream_id for each in streams)
        ),
        streams=tuple([StreamInfo.of(tx, each) for each in busiest]),
        groups=tuple(sorted(groups, key=lambda each: -each.events)[:SHOWN]),
    )


def backlogs(tx: Tx, readable: NameFilter | None = None) -> list[Backlog]:
    """Return what groups have not finished, the first GROUPS_MAX by name that a reader may know."""
    found = list_groups(tx, page=ListPage(limit=GROUPS_MAX, readable=readable), kinds=(*OWNED, SHARE))
    return [_backlog(tx, each) for each in found]


def _backlog(tx: Tx, group: GroupRecord) -> Backlog:
    found: DescribedGroup
    if group.kind == SHARE:
        found = share = describe_share_group(tx, group.name)
        members = len(share.consumers)
    else:
        found = owned = describe_group(tx, group.name)
        members = len(owned.members)
    gives_up = group.kind in (SHARE, PROCESSOR)
    published = published_statuses(tx, group.name) if group.kind == PROCESSOR or group.worker else []
    return Backlog(
        group=group.name,
        kind=group.kind,
        paused=group.paused,
        members=members,
        events=found.events,
        bytes=found.bytes,
        age_ms=found.age_ms,
        dead_letters=count_letters(tx, group.name, "all").letters if gives_up else 0,
        calls=slowest(published),
        commit_age_ms=oldest_commit(published),
    )
