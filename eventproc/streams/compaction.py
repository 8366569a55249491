"""Compacting a topic: removing older events of each key, step by step. See docs/design/compaction.md."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import attrs

from eventproc.store.catalog import get_stream
from eventproc.store.chunks.index import drop_exports
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import segment_states
from eventproc.store.segments.compaction import (
    KEYS_MAX,
    CompactionStep,
    NewestNumbers,
    collect_newest,
    compactable_until,
    plan_step,
    replace_step,
    uncompacted_from,
)


@attrs.frozen
class CompactionResult:
    """What a compaction removed: number of events, and the bytes that they took in their partitions."""

    __repr__ = short_repr_of_fields

    events: int = 0
    bytes: int = 0


CompactionWrite: TypeAlias = Callable[[Callable[[Tx], bool]], Awaitable[bool]]
"""Runs a function in a transaction, as `Database.write`."""

_REMEDY: Final = "give it a policy with `topic.alter(compaction=CompactionPolicy(min_age_ms=...))`"


async def compact_topic(
    db: Database,
    topic: str,
    stream_id: int,
    *,
    write: CompactionWrite | None = None,
    advance: Callable[[CompactionResult], None] = lambda _: None,
) -> CompactionResult:
    """Remove the events of a topic that its policy no longer keeps.

    write: runs each step; `db.write` unless given. advance: called after each step with what was removed until then.

    Raises InvalidArgument (the topic has no policy of compaction), StreamReplaced, CorruptRecord, DiskFull.
    """
    run = write or partial(db.write, step=Step.COMPACTION)
    tombstone_ms, segments = await db.read(partial(_begin, topic, stream_id))
    total = CompactionResult()
    for segment, (begin, until) in segments.items():
        while True:
            newest: NewestNumbers = {}
            collect = partial(collect_newest, stream_id=stream_id, segment=segment, newest=newest)
            end = begin
            while end < until and len(newest) < KEYS_MAX:
                end = await db.read(partial(collect, offset=end, end=until))
            plan = partial(plan_step, stream_id=stream_id, segment=segment, newest=newest, end=end)
            at = 0
            while step := await db.read(partial(plan, offset=at, tombstone_ms=tombstone_ms)):
                if step.packed is None:
                    at = step.end
                elif await run(partial(_replace, stream_id, segment, step)):
                    at = step.end
                    total = CompactionResult(total.events + step.removed, total.bytes + step.removed_bytes)
                    advance(total)
            if not begin < at < until:
                break
            begin = (
                at  # before `end` if extents were joined or held: what is left needs its own newest numbers
            )
    return total


def _begin(topic: str, stream_id: int, tx: Tx) -> tuple[int, dict[SegmentId, tuple[int, int]]]:
    """Return how long tombstones stay, and by partition where new keys begin, and where the compaction ends."""
    policy = get_stream(tx, topic, stream_id=stream_id).value.config.compaction
    if policy.min_age_ms is None:
        raise invalid_argument("topic", topic, f"it is not compacted; {_REMEDY}")
    found: dict[SegmentId, tuple[int, int]] = {}
    for segment, state in segment_states(tx, stream_id):
        if state.head < state.tail:
            until = compactable_until(tx, stream_id, segment, state, tx.now_ms - policy.min_age_ms + 1)
            found[segment] = uncompacted_from(tx, stream_id, segment, state, until), until
    return policy.tombstone_ms, found


def _replace(stream_id: int, segment: SegmentId, step: CompactionStep, tx: Tx) -> bool:
    if not replace_step(tx, stream_id, segment, step):
        return False
    drop_exports(tx, stream_id, segment, step.extents[0].start, step.end)
    return True
