"""Backfill: a supervisor goes on from now, and a bounded one publishes what it left behind. Functions of a transaction.

Everything happens in one transaction: the supervisor's groups go, its offsets move to the tails, and the bounded
supervisor begins at the old offsets with a hold on the events. So each event belongs to exactly one of both, at any
moment. Source: docs/design/bounded-ingestion.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from eventproc.ingestion.actions import apply_actions
from eventproc.ingestion.changes import preview
from eventproc.ingestion.decisions import handle
from eventproc.ingestion.loop import get_situation
from eventproc.ingestion.notices import RESET, ResetNotice
from eventproc.ingestion.ranges import begin_ranges
from eventproc.ingestion.spec import SegmentRange, SupervisorSpec
from eventproc.ingestion.working_state import Situation
from eventproc.store.database import Tx
from eventproc.store.ingestion import add_spec, find_spec, get_live_spec, waiting_notices
from eventproc.store.ingestion.supervisors import write_memory
from eventproc.store.ingestion.unpublished import unpublished_ranges
from eventproc.store.model.ids import format_segment
from eventproc.store.model.ingestion import PartitionKey, Positions
from eventproc.store.model.ingestion_errors import BackfillRefused
from eventproc.store.segments import number_at

SUFFIX: Final = "backfill"
"""Part of a backfill's id behind that of its supervisor, before a number that makes it unique."""


@attrs.frozen
class _Gap:
    """What a supervisor has not published, and the spec of the supervisor that will."""

    situation: Situation
    ends: Positions
    spec: SupervisorSpec


def preview_backfill(
    tx: Tx, supervisor: str, is_alive: Callable[[str], bool], id: str | None, task_count: int | None
) -> SupervisorSpec:
    """Return the spec of the bounded supervisor that `backfill` would begin now. Raises as `backfill`."""
    return _gap(tx, supervisor, is_alive, id, task_count).spec


def backfill(
    tx: Tx, supervisor: str, is_alive: Callable[[str], bool], id: str | None, task_count: int | None
) -> str:
    """Let a supervisor go on at the tails, begin a bounded one for what it has not published, and return the id.

    Raises NotFound, BackfillRefused, InvalidSpec. Cost: some look-ups per segment with unpublished events.
    """
    gap = _gap(tx, supervisor, is_alive, id, task_count)
    begin_ranges(tx, gap.spec, gap.situation.view.held)
    numbers = {key: number_at(tx, *key, end) for key, end in gap.ends.items()}
    decision = handle(ResetNotice(gap.ends, numbers), gap.situation)
    write_memory(tx, supervisor, decision.memory.encode(), decision.due_ms)
    apply_actions(tx, supervisor, decision.actions)
    add_spec(tx, gap.spec.id, gap.spec.text(), start_delay_ms=gap.spec.io.start_delay_ms)
    return gap.spec.id


def _gap(
    tx: Tx, supervisor: str, is_alive: Callable[[str], bool], id: str | None, task_count: int | None
) -> _Gap:
    get_live_spec(tx, supervisor)
    situation = get_situation(tx, supervisor, is_alive)
    spec = situation.spec
    if spec.is_bounded:
        raise BackfillRefused(supervisor=supervisor, reason="it reads given ranges, and is completed then")
    if spec.suspended:
        raise BackfillRefused(supervisor=supervisor, reason="it is suspended; resume it first")
    if any(each.kind == RESET for each in waiting_notices(tx, supervisor)):
        raise BackfillRefused(supervisor=supervisor, reason="its reset has not happened yet; repeat the call")
    streams, behind, ends = unpublished_ranges(tx, supervisor)
    # A stream that the spec no longer names has offsets, too, but neither supervisor is to read it.
    read = {situation.view.found.get(name) for name in situation.view.wanted}
    starts = {key: start for key, start in behind.items() if key[0] in read}
    ends = {key: ends[key] for key in starts}
    if not starts:
        raise BackfillRefused(supervisor=supervisor, reason="everything that it found is published")
    chosen = _free_id(tx, supervisor) if id is None else id
    if find_spec(tx, chosen) is not None:
        raise BackfillRefused(supervisor=supervisor, reason=f"supervisor {chosen} exists; choose another id")
    bounded = _bounded(spec, chosen, task_count, _ranges(streams, starts, ends)).validate()
    preview(tx, bounded)
    return _Gap(situation, ends, bounded)


def _free_id(tx: Tx, supervisor: str) -> str:
    number = 1
    while find_spec(tx, found := f"{supervisor}-{SUFFIX}-{number}") is not None:
        number += 1
    return found


def _ranges(
    streams: Mapping[int, str], starts: Positions, ends: Mapping[PartitionKey, int]
) -> tuple[SegmentRange, ...]:
    return tuple(
        SegmentRange(stream=streams[key[0]], segment=format_segment(key[1]), start=start, end=ends[key])
        for key, start in sorted(starts.items())
    )


def _bounded(
    spec: SupervisorSpec, id: str, task_count: int | None, ranges: tuple[SegmentRange, ...]
) -> SupervisorSpec:
    """Return the spec that makes the same rows of ranges. The retention of the table stays with the supervisor."""
    io = attrs.evolve(
        spec.io,
        streams=(),
        pattern=None,
        ranges=ranges,
        task_count=spec.first_task_count if task_count is None else task_count,
        idle_after_ms=None,
        autoscaler=None,
    )
    return attrs.evolve(spec, id=id, io=io, retention_ms=None, compact_after_ms=None)
