"""The metadata of a directory as JSON lines, in one snapshot. docs/design/metadata-export.md lists the lines.

The fields of a line are those of the public value that describes the object (`StreamConfig`, `GroupOptions`,
`TaskInfo` and so on). Segments are written as text, such as "2.1", and times in ms since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Final, TypeAlias

import attrs

from eventproc._version import __version__
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import folded_state
from eventproc.store.catalog import (
    StoredHistory,
    StreamRecord,
    find_stream,
    head_offsets,
    list_scopes,
    list_streams,
    tail_offsets,
)
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    RELEASED,
    SHARE,
    GroupRecord,
    SegmentKey,
    ShareRecord,
    group_names,
    progress_by_segment,
    released_key,
    share_names,
)
from eventproc.store.ingestion import known_supervisors, spec_versions, supervisor_ids
from eventproc.store.model.argument_checks import INT_MAX
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.failures import error_to_plain
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.progress import Progress
from eventproc.store.records import find, get
from eventproc.store.replicated import named_objects
from eventproc.store.requests import Request, each_request
from eventproc.store.task_queue import list_tasks
from eventproc.store.transactions import TxnRecord, each_txn

FORMAT: Final = 1
"""Format of the lines. A field that is removed or changes its meaning makes a new one; a new field does not."""

PAGE_STREAMS: Final = 1_000
"""Streams whose records are in memory at the same time, about 1 kB each. Higher: fewer queries."""

Row: TypeAlias = dict[str, object]


def export_lines(tx: Tx, write: Callable[[str], object]) -> int:
    """Pass each line, with its line feed, to `write`; return their number. The last line tells it too."""
    count = 0
    for row in _rows(tx):
        count += 1
        write(f"{_json(row)}\n")
    write(f"{_json({'object': 'end', 'lines': count + 1})}\n")
    return count + 1


def _json(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def _rows(tx: Tx) -> Iterator[Row]:
    scopes = list_scopes(tx)  # the first query of a snapshot begins it
    yield {"object": "export", "format": FORMAT, "version": __version__, "at_ms": tx.now_ms}
    for scope in scopes:
        yield {"object": "scope", **_fields(scope)}
        after: str | None = None
        while page := list_streams(tx, scope.name, ListPage(after=after, limit=PAGE_STREAMS)):
            for stream in page:
                yield from _stream_rows(tx, stream)
            after = page[-1].name
        for name in group_names(tx, scope.name):
            yield _group_row(tx, get(tx, GROUP, name).value)
        for name in share_names(tx, scope.name):
            yield _share_row(tx, get(tx, SHARE, name).value)
        for name in named_objects(tx, scope.name):
            yield {"object": "synchronizer", "name": name}
    for request in each_request(tx):
        yield _request_row(request)
    for task in reversed(list_tasks(tx, limit=INT_MAX)):
        yield {"object": "task", **_fields(task)}
    live = frozenset(supervisor_ids(tx))
    for supervisor in known_supervisors(tx):
        for version in reversed(spec_versions(tx, supervisor)):
            spec = None if version.text is None else json.loads(version.text)
            yield {
                "object": "supervisor",
                **_fields(version, without=("text",)),
                "spec": spec,
                "live": supervisor in live,
            }


def _stream_rows(tx: Tx, stream: StreamRecord) -> Iterator[Row]:
    found = find_stream(tx, stream.name)
    assert found is not None, f"{stream.name} was listed in this snapshot"
    yield {
        "object": "stream",
        **_fields(stream, without=("head",)),
        "version": found.version,
        "head": _offsets(head_offsets(tx, stream)),
        "tail": _offsets(tail_offsets(tx, stream)),
    }
    for number in range(stream.first_epoch, stream.epoch + 1):
        yield _epoch_row(stream, StoredHistory(tx, stream, stored=True).epoch(number))
    for txn in each_txn(tx, stream.stream_id):
        yield _txn_row(txn)


def _epoch_row(stream: StreamRecord, epoch: Epoch) -> Row:
    segments = [
        {"segment": format_segment(each.id), "low": each.range.low, "high": each.range.high}
        for each in epoch.segments
    ]
    where: Row = {"object": "epoch", "stream": stream.name, "stream_id": stream.stream_id}
    return {**where, **_fields(epoch, without=("segments",)), "segments": segments}


def _txn_row(txn: TxnRecord) -> Row:
    inner = ("appended", "boot_id", "lease_until_ms", "execution_until_ms", "rows", "prepared")
    appended = [{**_fields(each), "segment": format_segment(each.segment)} for each in txn.appended]
    return {"object": "transaction", **_fields(txn, without=inner), "appended": appended}


def _group_row(tx: Tx, group: GroupRecord) -> Row:
    state = folded_state(tx, group).state
    readers = [
        {"reader": reader, **_fields(member, without=("away_since_ms",)), "away": reader not in state.present}
        for reader, member in sorted(state.members.items())
    ]
    return {
        "object": "group",
        **_fields(group, without=("log",)),
        "lost_events": state.lost_events,
        "readers": readers,
        "segments": _segments(state, progress_by_segment(tx, group.name)),
        "released": _released(tx, group),
        "ends": [{**_segment(key), "offset": offset} for key, offset in state.ends],
        "checkpoints": [
            {
                "name": each.name,
                "at_ms": each.at_ms,
                "automatic": each.automatic,
                "positions": [{**_segment(key), **_position(progress)} for key, progress in each.positions],
            }
            for each in state.checkpoints
        ],
    }


def _released(tx: Tx, group: GroupRecord) -> list[Row]:
    """Return how far a group that releases by itself has released its streams."""
    found = [
        (each.stream_id, find(tx, RELEASED, released_key(group.name, each.stream_id)))
        for each in group.streams
    ]
    return [
        {"stream_id": stream_id, "offsets": _offsets(cut.value.offsets)}
        for stream_id, cut in found
        if cut is not None
    ]


def _segments(state: GroupState, progress: Mapping[SegmentKey, Progress]) -> list[Row]:
    """Return the segments that a group reads, and those that wait for their predecessors."""
    rows: list[Row] = [
        {
            **_segment(each.key),
            "owner": each.owner,
            "owner_epoch": each.owner_epoch,
            "target": each.target,
            "waiting": [],
            **_position(progress.get(each.key, each.progress)),
        }
        for each in state.assignments
    ]
    return rows + [
        {
            **_segment(key),
            "owner": None,
            "owner_epoch": 0,
            "target": None,
            "waiting": [format_segment(each) for each in before],
            **_position(Progress()),
        }
        for key, before in state.waits
    ]


def _share_row(tx: Tx, share: ShareRecord) -> Row:
    positions = progress_by_segment(tx, share.name)
    segments = [{**_segment(key), **_position(progress)} for key, progress in sorted(positions.items())]
    return {"object": "share_group", **_fields(share), "segments": segments}


def _request_row(request: Request) -> Row:
    """Return a request; its body is in the form that the database stores."""
    inner = ("body", "deadline", "result")
    return {"object": "request", **_fields(request, without=inner), "body": json.loads(request.body)}


def _segment(key: SegmentKey) -> Row:
    stream_id, segment = key
    return {"stream_id": stream_id, "segment": format_segment(segment)}


def _position(progress: Progress) -> Row:
    return {"offset": progress.offset, "number": progress.number, "finished": _plain(progress.finished)}


def _offsets(cut: Mapping[SegmentId, int]) -> Row:
    return {format_segment(segment): offset for segment, offset in cut.items()}


def _fields(value: attrs.AttrsInstance, *, without: tuple[str, ...] = ()) -> Row:
    """Return the fields of a value by their names, in values of JSON."""
    names = [each.name for each in attrs.fields(type(value))]
    return {name: _plain(getattr(value, name)) for name in names if name not in without}


def _plain(value: object) -> object:
    if isinstance(value, EventprocError):
        return {**error_to_plain(value), "text": str(value)}
    if attrs.has(type(value)):
        return _fields(value)  # type: ignore[arg-type]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(each) for each in value]
    return value
