"""Queries about scopes, streams and their history, as functions of a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from functools import partial
from typing import Final, Protocol, TypeVar

import attrs

from eventproc.store.catalog.stored_history import StoredHistory
from eventproc.store.catalog.stream_records import SCOPE, STREAM, Scope, StreamRecord
from eventproc.store.database import Tx, Watch
from eventproc.store.model.cuts import StreamCut, later
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import (
    CorruptRecord,
    IllegalTransition,
    NotFound,
    StreamReplaced,
    StreamSealed,
)
from eventproc.store.model.history import epoch_at
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.list_pages import (
    COMPLETE,
    NO_LIMIT,
    ListPage,
    NameFilter,
    chosen_entries,
    seen_entries,
)
from eventproc.store.model.metadata_errors import StaleVersion
from eventproc.store.model.partitions import Router
from eventproc.store.model.policies import ScalingKind
from eventproc.store.model.states import ScopeState
from eventproc.store.records import RecordKind, Versioned, count_keys, find, get, keys
from eventproc.store.segments import offset_at_time, segment_state

T = TypeVar("T")

SCOPES_A_STEP: Final = 200
"""Scopes whose names a list of all scopes reads at a time. Higher: it reads more than it needs; lower: more queries."""


def get_scope(tx: Tx, name: str) -> Versioned[Scope]:
    """Return the scope. Raises NotFound."""
    return get(tx, SCOPE, name)


def verify_active(scope: Scope, event: str) -> None:
    """Raise IllegalTransition, naming `event`, if a request is deleting the scope."""
    if scope.state is not ScopeState.ACTIVE:
        raise IllegalTransition(state=scope.state.value, event=event, name=f"scope {scope.name}")


def find_stream(tx: Tx, name: str) -> Versioned[StreamRecord] | None:
    """Return the stream named "scope/stream", or None."""
    return find(tx, STREAM, name)


def get_stream(
    tx: Tx, name: str, *, stream_id: int | None = None, if_version: int | None = None
) -> Versioned[StreamRecord]:
    """Return the stream named "scope/stream".

    stream_id: the expected incarnation; None accepts any. if_version: the expected version; None accepts any.
    Raises NotFound, naming the scope or the stream that is missing, StreamReplaced if another incarnation, or none, has
    the name now, and StaleVersion.
    """
    found = find(tx, STREAM, name)
    if stream_id is not None and (found is None or found.value.stream_id != stream_id):
        current = None if found is None else found.value.stream_id
        raise StreamReplaced(stream=name, stream_id=stream_id, current_id=current)
    if found is None:
        get_scope(tx, name.partition("/")[0])
        raise NotFound(kind="stream", name=name)
    if if_version is not None and found.version != if_version:
        raise StaleVersion(stream=name, expected=if_version, present=found.version)
    return found


def get_topic(tx: Tx, name: str) -> Versioned[StreamRecord]:
    """Return the topic named "scope/topic". Raises NotFound, also for a stream that is not a topic."""
    found = find(tx, STREAM, name)
    if found is None or not found.value.config.is_topic:
        get_scope(tx, name.partition("/")[0])
        raise NotFound(kind="topic", name=name)
    return found


def get_writable_stream(tx: Tx, name: str, *, stream_id: int | None = None) -> Versioned[StreamRecord]:
    """Return the stream if it accepts events. Raises StreamSealed, and what `get_stream` raises."""
    found = get_stream(tx, name, stream_id=stream_id)
    if not found.value.is_writable:
        raise StreamSealed(stream=name)
    return found


def list_scopes(tx: Tx, page: ListPage = COMPLETE) -> list[Scope]:
    """Return the scopes except the system's, sorted by name."""
    return [get(tx, SCOPE, name).value for name in scope_names(tx, page)]


def scope_names(tx: Tx, page: ListPage = COMPLETE) -> list[str]:
    """Return the names of the scopes except the system's, sorted. Cost with a filter: as `chosen_entries`."""

    def read(part: ListPage) -> list[str]:
        most = min(part.most, NO_LIMIT - 1) + 1  # the system's may be among them
        names = keys(tx, SCOPE, prefix=part.prefix, after=part.after or "", limit=most)
        return [name for name in names if not name.startswith("_")][: part.limit]

    return seen_entries(read, page.allows, str, page)


SCOPES: Final = ("scopes",)
"""Topic to wake when a scope was created or deleted."""

WATCH_SCOPES: Final = Watch(SCOPES, lambda tx: tuple(scope_names(tx)))
"""The subscription to scopes that come and go. Each wake-up costs one read of their names."""


def stream_names(tx: Tx, scope: str, *, limit: int = NO_LIMIT) -> list[str]:
    """Return the names "scope/stream" of the scope's streams, sorted; at most `limit`."""
    return keys(tx, STREAM, prefix=f"{scope}/", limit=limit)


def list_streams(
    tx: Tx, scope: str | None = None, page: ListPage = COMPLETE, *, tag: str | None = None
) -> list[StreamRecord]:
    """Return the streams of the scope, or of all scopes except the system's, sorted by scope and name. Raises NotFound.

    tag: only streams with this tag.
    """

    def of_scope(each: str, *, prefix: str, after: str, limit: int) -> list[str]:
        if tag is None:
            return keys(tx, STREAM, prefix=prefix, after=after, limit=limit)
        return tagged_streams(tx, each, tag, prefix=prefix, after=after, limit=limit)

    return [get(tx, STREAM, name).value for name in names_in_scopes(tx, scope, page, of_scope)]


def list_topics(tx: Tx, scope: str | None = None, page: ListPage = COMPLETE) -> list[StreamRecord]:
    """Return the topics among `list_streams`. Raises NotFound. Cost: as `chosen_entries`, with streams as entries."""
    streams = partial(list_streams, tx, scope)
    return chosen_entries(streams, lambda each: each.config.is_topic, lambda each: each.name, page)


class NamesOfScope(Protocol):
    """Finds the names in a scope."""

    def __call__(self, scope: str, /, *, prefix: str, after: str, limit: int) -> list[str]:
        """Return the full names that begin with `prefix` and come after `after`, at most `limit`."""
        ...


def names_in_scopes(tx: Tx, scope: str | None, page: ListPage, of_scope: NamesOfScope) -> list[str]:
    """Return a page of the names of a scope, or of all scopes except the system's, sorted by scope and name.

    Raises NotFound (the scope); to a reader that may not know the scope, a missing one looks like one without names.
    Cost: the rows that are returned; without a scope, a query for each scope up to the last one that is needed. With a
    filter, as `chosen_entries` for each prefix that it has in each scope.
    """
    last_scope = "" if page.after is None else page.after.partition("/")[0]
    names: list[str] = []
    for each in _scopes_from(tx, last_scope) if scope is None else _one_scope(tx, scope, page):
        if each < last_scope:
            continue
        read = partial(_part_of_scope, of_scope, each)
        last = page.after if page.after is not None and each == last_scope else None
        for chosen in page.parts_of(each):
            limit = None if page.limit is None else page.limit - len(names)
            if limit == 0:
                return names
            part = attrs.evolve(chosen, after=last, limit=limit)
            names += seen_entries(read, page.allows, str, part)
    return names


def _part_of_scope(of_scope: NamesOfScope, scope: str, part: ListPage) -> list[str]:
    return of_scope(scope, prefix=f"{scope}/{part.prefix}", after=part.after or "", limit=part.most)


def _one_scope(tx: Tx, scope: str, page: ListPage) -> list[str]:
    """Return the scope in a list. Raises NotFound to a reader that may know the scope."""
    return [get_scope(tx, scope).key if page.allows(scope) else scope]


def _scopes_from(tx: Tx, first: str) -> Iterator[str]:
    """Return the names of the scopes from `first` on, sorted, SCOPES_A_STEP at a time."""
    if first and find(tx, SCOPE, first) is not None:
        yield first
    step = ListPage(after=first, limit=SCOPES_A_STEP)
    while names := scope_names(tx, step):
        yield from names
        step = attrs.evolve(step, after=names[-1])


def record_names(tx: Tx, kind: RecordKind[T], scope: str | None, page: ListPage) -> list[str]:
    """Return a page of the names of records whose keys are full names, as `names_in_scopes`. Raises NotFound."""
    return names_in_scopes(tx, scope, page, lambda _, **part: keys(tx, kind, **part))


def count_streams(tx: Tx, scope: str | None = None, readable: NameFilter | None = None) -> int:
    """Return the number of streams of the scope, or of all scopes except the system's.

    readable: which streams count; None: all.
    Cost: reads the rows, and decodes none.
    """
    if readable is not None:
        return len(record_names(tx, STREAM, scope, ListPage(readable=readable)))
    if scope is not None:
        return count_keys(tx, STREAM, prefix=f"{scope}/")
    return count_keys(tx, STREAM) - count_keys(tx, STREAM, prefix="_")


_POLICIES: Final = frozenset({"retention", "offload", "compaction"})
_RATES: Final = frozenset({ScalingKind.EVENT_RATE.value, ScalingKind.BYTE_RATE.value})


def streams_with_policies(tx: Tx, *, after: str, limit: int) -> tuple[list[str], str | None]:
    """Return those of the next streams that have a policy, or scale by rate; and the last one.

    after: only streams behind this full name. limit: how many streams to look at. The second result is the name of the
    last one of these, None behind the last stream of all. A stream that cannot be decoded is returned, too.
    Cost: one query, and 2.5 us for each stream, whose JSON is parsed but not decoded as a record.
    """
    rows = tx.execute(
        "SELECT key, body FROM record WHERE kind = ? AND key > ? ORDER BY key LIMIT ?",
        (STREAM.name, after, limit),
    ).fetchall()
    return [key for key, body in rows if _has_policy(body)], rows[-1][0] if rows else None


def _has_policy(body: bytes) -> bool:
    """Return whether a stream's stored record has a policy, or cannot be decoded."""
    try:
        config = json.loads(body.partition(b":")[2].decode())["config"]
        kind = config.get("scaling", {}).get("kind")
        return not _POLICIES.isdisjoint(config) or kind in _RATES
    except (ValueError, LookupError, TypeError, AttributeError):
        return True


def current_epoch(tx: Tx, stream: StreamRecord) -> Epoch:
    """Return the current epoch, which holds the active segments. One lookup."""
    return StoredHistory(tx, stream).epoch(stream.epoch)


def current_router(tx: Tx, stream: StreamRecord) -> Router:
    """Return what routes events in the current epoch. One lookup."""
    config = stream.config
    return Router(current_epoch(tx, stream), config.partitioning, needs_keys=config.is_compacted)


def head_offsets(tx: Tx, stream: StreamRecord) -> dict[SegmentId, int]:
    """Return the earliest readable cut: that of the last truncation, else offset 0 in the first epoch."""
    if stream.head is not None:
        return dict(stream.head)
    return dict.fromkeys(StoredHistory(tx, stream).epoch(stream.first_epoch).ids, 0)


def tail_offsets(tx: Tx, stream: StreamRecord) -> dict[SegmentId, int]:
    """Return the ends of all active segments. One lookup per segment."""
    offsets = {}
    for segment in current_epoch(tx, stream).ids:
        state = segment_state(tx, stream.stream_id, segment)
        if state is None:
            raise CorruptRecord(
                key=f"{stream.name} segment {segment}", reason="active, and its row is missing"
            )
        offsets[segment] = state.tail
    return offsets


def head_cut(tx: Tx, stream: StreamRecord) -> StreamCut:
    """Return the earliest readable cut."""
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=head_offsets(tx, stream))


def tail_cut(tx: Tx, stream: StreamRecord) -> StreamCut:
    """Return the cut after the last event, of one moment."""
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=tail_offsets(tx, stream))


def time_cut(tx: Tx, stream: StreamRecord, time_ms: int) -> StreamCut:
    """Return the cut before the first events that were appended at or after `time_ms`, in each segment.

    Where the head is later, in all of the key space or in a part of it, its offsets count. One look-up, and one per
    segment of the epoch of that time.
    """
    history = StoredHistory(tx, stream)
    offsets = {
        segment: offset_at_time(tx, stream.stream_id, segment, time_ms)
        for segment in epoch_at(history, time_ms).ids
    }
    cut = StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=offsets)
    return later(cut, head_cut(tx, stream), history)


def change_tags(tx: Tx, stream: str, before: Collection[str], after: Collection[str]) -> None:
    """Update the index for a stream, "scope/stream", whose tags change. Touches only the rows that differ."""
    scope = stream.partition("/")[0]
    tx.executemany(
        "DELETE FROM stream_tag WHERE scope = ? AND tag = ? AND stream = ?",
        [(scope, tag, stream) for tag in before if tag not in after],
    )
    tx.executemany(
        "INSERT INTO stream_tag (scope, tag, stream) VALUES (?, ?, ?)",
        [(scope, tag, stream) for tag in after if tag not in before],
    )


def tagged_streams(tx: Tx, scope: str, tag: str, *, prefix: str, after: str, limit: int) -> list[str]:
    """Return names of the scope's streams with the tag, sorted, that begin with `prefix` and sort after `after`."""
    is_behind = after >= prefix  # one lower bound, as in `keys`
    rows = tx.execute(
        "SELECT stream FROM stream_tag WHERE scope = ? AND tag = ?"
        f" AND stream {'>' if is_behind else '>='} ? AND stream < ? ORDER BY stream LIMIT ?",
        (scope, tag, after if is_behind else prefix, prefix + "\U0010ffff", limit),
    )
    return [row[0] for row in rows]
