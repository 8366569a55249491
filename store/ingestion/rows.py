"""Rows of ingestion: offsets, groups, tasks and sequences, read and written as values of `store/model/ingestion.py`."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final, TypeVar

import attrs

from eventproc.store.database import Tx, upsert
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ingestion import (
    IngestGroup,
    IngestGroupState,
    IngestSequence,
    IngestTask,
    PartitionKey,
    SequenceState,
    TaskState,
    TaskStats,
    decode_positions,
    encode_positions,
)
from eventproc.store.model.limits import SET_BACK_MS
from eventproc.store.model.list_pages import NO_LIMIT

_GROUP: Final = ", ".join(attrs.fields_dict(IngestGroup))
_TASK: Final = ", ".join(attrs.fields_dict(IngestTask))
_SEQUENCE: Final = ", ".join(attrs.fields_dict(IngestSequence))
_SELECT: Final = {
    IngestGroup: f"SELECT {_GROUP} FROM ingest_group WHERE ",
    IngestTask: f"SELECT {_TASK} FROM ingest_task WHERE ",
    IngestSequence: f"SELECT {_SEQUENCE} FROM ingest_sequence WHERE ",
}
_WRITE_OFFSET: Final = upsert("ingest_offset", "supervisor, stream_id, segment", '"offset", number, closed')
_WRITE_STREAM: Final = upsert("ingest_stream", "supervisor, name", "stream_id")
_WRITE_GROUP: Final = upsert("ingest_group", "base", _GROUP.removeprefix("base, "))
_WRITE_TASK: Final = upsert("ingest_task", "id", _TASK.removeprefix("id, "))
_WRITE_SEQUENCE: Final = upsert("ingest_sequence", "base, n", _SEQUENCE.removeprefix("base, n, "))

_POSITIONS: Final = ("starts", "ends", "read", "planned")
"""Columns that hold positions as JSON."""

_STATES: Final = {IngestGroup: IngestGroupState, IngestTask: TaskState, IngestSequence: SequenceState}

V = TypeVar("V", IngestGroup, IngestTask, IngestSequence)


def _value(kind: type[V], row: tuple[Any, ...]) -> V:
    """Return the value of a row, whose columns are the fields of its class, in their order."""
    fields = dict(zip(attrs.fields_dict(kind), row, strict=True))
    fields |= {name: decode_positions(fields[name]) for name in _POSITIONS if fields.get(name) is not None}
    fields["state"] = _STATES[kind](fields["state"])
    if "stats" in fields:
        fields["stats"] = TaskStats.decode(fields["stats"])
    return kind(**fields)


def _select(tx: Tx, kind: type[V], where: str, *parameters: str | int) -> list[V]:
    """Return the values whose rows meet a condition, which may end with an order. One query."""
    return [_value(kind, row) for row in tx.execute(_SELECT[kind] + where, parameters).fetchall()]


def _find(tx: Tx, kind: type[V], where: str, *parameters: str | int) -> V | None:
    """Return the value whose row meets a condition, or None."""
    return next(iter(_select(tx, kind, where, *parameters)), None)


def _row(value: IngestGroup | IngestTask | IngestSequence) -> tuple[Any, ...]:
    """Return the row of a value."""
    fields = attrs.asdict(value, recurse=False)
    fields |= {name: encode_positions(fields[name]) for name in _POSITIONS if fields.get(name) is not None}
    fields["state"] = value.state.value
    if isinstance(value, IngestTask):
        fields["stats"] = value.stats.encode()
    return tuple(fields.values())


@attrs.frozen
class IngestOffset:
    """How far the published rows of a partition go.

    number: of the event at `offset`. closed: the segment is sealed, and was published to its end.
    """

    offset: int
    number: int
    closed: bool = False


def read_offsets(tx: Tx, supervisor: str) -> dict[PartitionKey, IngestOffset]:
    """Return the committed offsets of a supervisor. One query."""
    rows = tx.execute(
        'SELECT stream_id, segment, "offset", number, closed FROM ingest_offset WHERE supervisor = ?'
        " ORDER BY stream_id, segment",
        (supervisor,),
    ).fetchall()
    return {
        (stream_id, SegmentId(segment)): IngestOffset(offset, number, bool(closed))
        for stream_id, segment, offset, number, closed in rows
    }


def find_offset(tx: Tx, supervisor: str, key: PartitionKey) -> IngestOffset | None:
    """Return the committed offset of a partition, or None."""
    row = tx.execute(
        'SELECT "offset", number, closed FROM ingest_offset WHERE supervisor = ? AND stream_id = ? AND segment = ?',
        (supervisor, *key),
    ).fetchone()
    return None if row is None else IngestOffset(row[0], row[1], bool(row[2]))


def write_offset(tx: Tx, supervisor: str, key: PartitionKey, offset: IngestOffset) -> None:
    """Set the committed offset of a partition."""
    tx.execute(
        _WRITE_OFFSET,
        (supervisor, *key, offset.offset, offset.number, int(offset.closed)),
    )


def delete_offset(tx: Tx, supervisor: str, key: PartitionKey) -> None:
    """Forget the committed offset of a partition."""
    tx.execute(
        "DELETE FROM ingest_offset WHERE supervisor = ? AND stream_id = ? AND segment = ?", (supervisor, *key)
    )


def read_streams(tx: Tx, supervisor: str) -> dict[str, int]:
    """Return the streams that a supervisor reads, {name: stream id}."""
    rows = tx.execute(
        "SELECT name, stream_id FROM ingest_stream WHERE supervisor = ? ORDER BY name", (supervisor,)
    )
    return dict(rows.fetchall())


def write_stream(tx: Tx, supervisor: str, name: str, stream_id: int) -> None:
    """Note the incarnation of a stream that a supervisor reads from now on."""
    tx.execute(
        _WRITE_STREAM,
        (supervisor, name, stream_id),
    )


def read_groups(tx: Tx, supervisor: str) -> list[IngestGroup]:
    """Return the groups of a supervisor, oldest first. One query."""
    return _select(tx, IngestGroup, "supervisor = ? ORDER BY created_ms, base", supervisor)


def find_group(tx: Tx, base: str) -> IngestGroup | None:
    """Return the group of that base name, or None if it has ended."""
    return _find(tx, IngestGroup, "base = ?", base)


def write_group(tx: Tx, group: IngestGroup) -> None:
    """Create or replace the row of a group."""
    tx.execute(_WRITE_GROUP, _row(group))


def delete_group(tx: Tx, base: str) -> None:
    """Remove a group with its sequences. Its tasks stay as history."""
    tx.execute("DELETE FROM ingest_group WHERE base = ?", (base,))
    tx.execute("DELETE FROM ingest_sequence WHERE base = ?", (base,))


def read_tasks(tx: Tx, supervisor: str, *, uncounted_only: bool = False) -> list[IngestTask]:
    """Return the tasks of a supervisor, oldest first. uncounted_only: those whose end it has not seen. One query."""
    only = " AND counted = 0" if uncounted_only else ""
    return _select(tx, IngestTask, f"supervisor = ?{only} ORDER BY created_ms, id", supervisor)


def tasks_of_group(tx: Tx, group: IngestGroup) -> list[IngestTask]:
    """Return the live tasks of a group. One query."""
    where = "supervisor = ? AND base = ? AND finished_ms IS NULL ORDER BY id"
    return _select(tx, IngestTask, where, group.supervisor, group.base)


def tasks_of_worker(tx: Tx, worker: str) -> list[IngestTask]:
    """Return the live tasks of a worker. One query."""
    where = "state = 'running' AND finished_ms IS NULL AND worker = ? ORDER BY created_ms, id"
    return _select(tx, IngestTask, where, worker)


def running_bases(tx: Tx) -> set[str]:
    """Return the groups that have a running task. One query, over the live tasks."""
    rows = tx.execute(
        "SELECT base FROM ingest_task WHERE state = 'running' AND finished_ms IS NULL"
    ).fetchall()
    return {row[0] for row in rows}


def tasks_by_worker(tx: Tx) -> dict[str, dict[str, int]]:
    """Return the running tasks of each worker, with their last reports: {worker: {task: wall ms}}. One query."""
    found: dict[str, dict[str, int]] = {}
    rows = tx.execute(
        "SELECT worker, id, seen_ms FROM ingest_task WHERE state = 'running' AND finished_ms IS NULL ORDER BY id"
    )
    for worker, task, seen_ms in rows.fetchall():
        found.setdefault(worker, {})[task] = seen_ms
    return found


def waiting_tasks(tx: Tx) -> list[IngestTask]:
    """Return the tasks that wait for a worker and may start now, oldest first. One query."""
    where = "state = 'waiting' AND finished_ms IS NULL AND not_before_ms <= ? ORDER BY created_ms, id"
    return _select(tx, IngestTask, where, tx.now_ms)


def find_task(tx: Tx, task_id: str) -> IngestTask | None:
    """Return a task, or None."""
    return _find(tx, IngestTask, "id = ?", task_id)


def write_task(tx: Tx, task: IngestTask) -> None:
    """Create or replace the row of a task whose end was not counted."""
    tx.execute(_WRITE_TASK, _row(task))


def count_task(tx: Tx, task_id: str) -> None:
    """Note that the supervisor has seen the end of a task."""
    tx.execute("UPDATE ingest_task SET counted = 1 WHERE id = ?", (task_id,))


def forget_tasks(tx: Tx, supervisor: str, *, kept: int) -> None:
    """Delete the oldest tasks whose ends were counted, beyond `kept` of them, with their logs.

    Those that ended later than now are the oldest: they ended before the wall clock was set back.
    """
    rows = tx.execute(
        "SELECT id FROM ingest_task WHERE supervisor = ? AND counted = 1"
        f" ORDER BY finished_ms > ?, finished_ms DESC, id DESC LIMIT {NO_LIMIT} OFFSET ?",
        (supervisor, tx.now_ms + SET_BACK_MS, kept),
    ).fetchall()
    for row in rows:
        tx.execute("DELETE FROM ingest_task WHERE id = ?", row)
        tx.execute("DELETE FROM ingest_log WHERE task = ?", row)


def follow_clock(tx: Tx, supervisor: str, back_ms: int) -> None:
    """Make the times of a supervisor's groups and live tasks earlier: the wall clock was set back.

    What a worker has noted since then stays.
    """
    tx.execute(
        "UPDATE ingest_group SET created_ms = created_ms - ?, deadline_ms = deadline_ms - ? WHERE supervisor = ?",
        (back_ms, back_ms, supervisor),
    )
    tx.execute(
        "UPDATE ingest_task SET created_ms = created_ms - ?, not_before_ms = not_before_ms - ?,"
        " started_ms = CASE WHEN started_ms > ? THEN started_ms - ? ELSE started_ms END,"
        " seen_ms = CASE WHEN seen_ms > ? THEN seen_ms - ? ELSE seen_ms END"
        " WHERE supervisor = ? AND finished_ms IS NULL",
        (back_ms, back_ms, tx.now_ms, back_ms, tx.now_ms, back_ms, supervisor),
    )


def read_sequences(tx: Tx, base: str) -> list[IngestSequence]:
    """Return the sequences of a group in their order. One query."""
    return _select(tx, IngestSequence, "base = ? ORDER BY n", base)


def unpublished_sequences(tx: Tx, supervisor: str) -> dict[str, list[IngestSequence]]:
    """Return the sequences of each group of a supervisor that are not published, in their order. One query."""
    where = "state <> 'published' AND base IN (SELECT base FROM ingest_group WHERE supervisor = ?) ORDER BY base, n"
    found = _select(tx, IngestSequence, where, supervisor)
    return {base: list(those) for base, those in groupby(found, key=lambda each: each.base)}


def find_sequence(tx: Tx, base: str, n: int) -> IngestSequence | None:
    """Return one sequence of a group, or None."""
    return _find(tx, IngestSequence, "base = ? AND n = ?", base, n)


def get_sequence(tx: Tx, base: str, n: int) -> IngestSequence:
    """Return one sequence of a group. Raises NotFound."""
    found = find_sequence(tx, base, n)
    if found is None:
        raise NotFound(kind="sequence", name=f"{base}/{n}")
    return found


def write_sequence(tx: Tx, sequence: IngestSequence) -> None:
    """Create or replace the row of a sequence."""
    tx.execute(_WRITE_SEQUENCE, _row(sequence))


def open_sequence(tx: Tx, base: str) -> IngestSequence | None:
    """Return the sequence of a group that has no ends yet, or None."""
    return next((each for each in read_sequences(tx, base) if each.state is SequenceState.OPEN), None)


def forget_streams(tx: Tx, supervisor: str, stream_id: int | None = None) -> None:
    """Forget what a supervisor has read: incarnations of streams, and their offsets. stream_id: only of that one."""
    where = "supervisor = ?" + ("" if stream_id is None else " AND stream_id = ?")
    parameters = (supervisor,) if stream_id is None else (supervisor, stream_id)
    for table in ("ingest_stream", "ingest_offset"):
        tx.execute(f"DELETE FROM {table} WHERE {where}", parameters)
