"""What a caller changes about supervisors: submit, suspend, resume, hand over, reset, terminate. Functions of a tx.

Each is checked in the transaction that records it; the supervisor's loop does the rest.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence

import attrs

from eventproc.ingestion.decisions import matcher
from eventproc.ingestion.memory import Memory
from eventproc.ingestion.notices import HandoffNotice, Notice, ResetNotice, encode_notice
from eventproc.ingestion.ranges import begin_ranges, bounds_of, check_ranges, first_positions
from eventproc.ingestion.spec import SupervisorSpec
from eventproc.ingestion.spec_reader import Problems
from eventproc.ingestion.table_schema import check_columns
from eventproc.store.catalog import find_stream, get_stream, list_streams
from eventproc.store.database import Tx
from eventproc.store.ingestion import (
    add_spec,
    find_spec,
    get_live_spec,
    post_notice,
    read_groups,
    spec_versions,
    supervisor_ids,
)
from eventproc.store.ingestion.rows import read_offsets, read_streams
from eventproc.store.ingestion.supervisors import read_memory, write_memory
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.ingestion import IngestGroupState, PartitionKey
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import number_at, verify_offset


class SpecEffect(enum.StrEnum):
    """What the submission of a spec does."""

    CREATE = "create"
    """A new supervisor begins, or a terminated one goes on from its offsets."""
    NONE = "none"
    """The spec is the present one; nothing changes."""
    UPDATE = "update"
    """The supervisor uses it from its next run on; its tasks go on."""
    REPLACE_TASKS = "replace_tasks"
    """What is read becomes other rows: the groups publish what they have read, and new ones go on behind it."""


def preview(tx: Tx, spec: SupervisorSpec) -> SpecEffect:
    """Return what submitting the spec would do.

    Raises NotFound if it names a stream that does not exist; InvalidSpec if a range of it cannot be read, or if it
    would change a column of the table.
    """
    for name in spec.stream_names:
        get_stream(tx, name)
    if spec.tuning.unparseable_stream is not None:
        get_stream(tx, spec.tuning.unparseable_stream)
    check_ranges(tx, spec, _newest_spec(tx, spec.id))
    problems = Problems()
    check_columns(tx, spec, problems)
    problems.check(spec.id)
    found = find_spec(tx, spec.id)
    if found is None or found.text is None:
        return SpecEffect.CREATE
    if found.text == spec.text():
        return SpecEffect.NONE
    same_rows = SupervisorSpec.parse(found.text).fingerprint == spec.fingerprint
    return SpecEffect.UPDATE if same_rows else SpecEffect.REPLACE_TASKS


def submit(tx: Tx, spec: SupervisorSpec) -> SpecEffect:
    """Store a spec, unless it is the present one. Raises NotFound, InvalidSpec."""
    effect = preview(tx, spec)
    if effect is not SpecEffect.NONE:
        begin_ranges(tx, spec)
        added = _added_streams(tx, spec, _newest_spec(tx, spec.id))
        add_spec(tx, spec.id, spec.text(), start_delay_ms=spec.io.start_delay_ms)
        memory = Memory.decode(read_memory(tx, spec.id) or "{}")
        if not added.issubset(memory.added_streams):
            every = tuple(sorted(added.union(memory.added_streams)))
            write_memory(tx, spec.id, attrs.evolve(memory, added_streams=every).encode())
    return effect


def _added_streams(tx: Tx, spec: SupervisorSpec, previous: SupervisorSpec | None) -> set[int]:
    """Return the ids of the streams that exist, that a spec reads, and that the one before it did not read."""
    if spec.is_bounded:
        return set()
    read = {stream_id for stream_id, _ in read_offsets(tx, spec.id)}
    before = () if previous is None else _streams_of(tx, previous)
    names = set(_streams_of(tx, spec)).difference(before)
    found = {stream.value.stream_id for name in names if (stream := find_stream(tx, name)) is not None}
    return found - read


def _streams_of(tx: Tx, spec: SupervisorSpec) -> Sequence[str]:
    """Return the names of the streams that a spec reads, missing ones included. With a pattern, a scan of all names."""
    pattern = matcher(spec)
    if pattern is None:
        return spec.stream_names
    return [each.name for each in list_streams(tx) if pattern.fullmatch(each.name) is not None]


def _newest_spec(tx: Tx, supervisor: str) -> SupervisorSpec | None:
    """Return the last spec of a supervisor, also of one that was terminated; None without one."""
    if find_spec(tx, supervisor) is None:
        return None
    text = next(each.text for each in spec_versions(tx, supervisor) if each.text is not None)
    return SupervisorSpec.parse(text)


def set_suspended(tx: Tx, supervisor: str, *, suspended: bool) -> bool:
    """Suspend or resume a supervisor; return whether it was not yet. Raises NotFound."""
    found = get_live_spec(tx, supervisor)
    assert found.text is not None, "a live spec has a text"
    spec = SupervisorSpec.parse(found.text)
    if spec.suspended == suspended:
        return False
    add_spec(tx, supervisor, attrs.evolve(spec, suspended=suspended).text())
    return True


def terminate(tx: Tx, supervisor: str) -> bool:
    """Terminate a supervisor: its tasks publish, and it is not run again. Returns True. Raises NotFound."""
    get_live_spec(tx, supervisor)
    add_spec(tx, supervisor, None)
    return True


def change_all(tx: Tx, change: Callable[[Tx, str], bool]) -> list[str]:
    """Change every supervisor that was not terminated; return the ids of those that were changed, sorted.

    change: `set_suspended` or `terminate`. Cost: a few statements for each supervisor.
    """
    live = [each for each in supervisor_ids(tx) if _is_live(tx, each)]
    return [each for each in live if change(tx, each)]


def _is_live(tx: Tx, supervisor: str) -> bool:
    found = find_spec(tx, supervisor)
    return found is not None and found.text is not None


def hand_off(tx: Tx, supervisor: str, groups: Sequence[int] | None) -> None:
    """Let groups publish now, None: all that read. Raises NotFound, also for a group that does not read."""
    get_live_spec(tx, supervisor)
    found = read_groups(tx, supervisor)
    reading = sorted({each.gid for each in found if each.state is IngestGroupState.ACTIVE})
    for gid in () if groups is None else sorted(set(groups).difference(reading)):
        known = (
            f"reads in groups {', '.join(map(str, reading))}" if reading else "has no group that reads now"
        )
        raise NotFound(kind=f"group of supervisor {supervisor}, which {known}", name=str(gid))
    chosen = reading if groups is None else groups
    _post(tx, supervisor, HandoffNotice(tuple(sorted(set(chosen)))))


@attrs.frozen(kw_only=True)
class PartitionReset:
    """A segment that a reset moves.

    offset: what is published; None: nothing yet. offset_after: where it is read from then; None: where a first run of
    the spec begins.
    """

    __repr__ = short_repr_of_fields

    stream: str
    segment: SegmentId
    offset: int | None
    offset_after: int | None


def reset(tx: Tx, supervisor: str, cuts: Iterable[StreamCut] | None) -> None:
    """Move the offsets of a supervisor; None: forget all, or go back to the starts of its ranges.

    Raises NotFound; InvalidCut if a cut is not one of a stream that the supervisor reads, or leaves its ranges.
    """
    _post(tx, supervisor, _reset_notice(tx, supervisor, cuts))


def preview_reset(tx: Tx, supervisor: str, cuts: Iterable[StreamCut] | None) -> list[PartitionReset]:
    """Return what `reset` would move now. Raises as `reset`."""
    notice = _reset_notice(tx, supervisor, cuts)
    stored, after = read_offsets(tx, supervisor), notice.offsets or {}
    moved = set(after) if cuts is not None else {*after, *(key for key in stored if not stored[key].closed)}
    names = {stream_id: name for name, stream_id in read_streams(tx, supervisor).items()}
    return [
        PartitionReset(
            stream=names.get(key[0], f"stream {key[0]}"),
            segment=key[1],
            offset=stored[key].offset if key in stored else None,
            offset_after=after.get(key),
        )
        for key in sorted(moved)
    ]


def _reset_notice(tx: Tx, supervisor: str, cuts: Iterable[StreamCut] | None) -> ResetNotice:
    spec = SupervisorSpec.parse(get_live_spec(tx, supervisor).text or "")
    noted = read_streams(tx, supervisor)
    bounds = bounds_of(spec, noted)
    if cuts is None:
        return ResetNotice(*(first_positions(tx, spec, noted) or (None, {})))
    offsets: dict[PartitionKey, int] = {}
    numbers: dict[PartitionKey, int] = {}
    for cut in cuts:
        if noted.get(cut.stream) != cut.stream_id:
            raise InvalidCut(
                stream=cut.stream, cut=str(cut), reason=f"supervisor {supervisor} does not read this stream"
            )
        for segment, offset in cut.offsets.items():
            state = verify_offset(tx, cut, segment)
            start, end = (0, offset) if bounds is None else bounds.get((cut.stream_id, segment), (1, 0))
            if not start <= offset <= end:
                where = f"segment {format_segment(segment)} at {offset}"
                reason = f"{where} lies outside of the ranges of supervisor {supervisor}"
                raise InvalidCut(stream=cut.stream, cut=str(cut), reason=reason)
            if state is not None:
                key = (cut.stream_id, segment)
                offsets[key] = max(offset, state.head)
                numbers[key] = number_at(tx, *key, offsets[key])
    return ResetNotice(offsets, numbers)


def _post(tx: Tx, supervisor: str, notice: Notice) -> None:
    post_notice(tx, supervisor, *encode_notice(notice))
