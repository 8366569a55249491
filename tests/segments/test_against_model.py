"""Segments against a naive twin: lists of events, whatever is appended, truncated, reaped, joined and read."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

import anyio
from hypothesis import given, strategies as st

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database, Tx
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.inspection.extents import blob_violations, extent_violations
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import free_step, join_step, seal_segments, segment_state, truncate_segments
from tests.segments.support import (
    ONE,
    STREAM,
    STREAM_ID,
    TWO,
    SampleEvent,
    appending,
    make_segments,
    part,
    read_runs,
    written,
)

Step: TypeAlias = tuple[str, int, int, list[SampleEvent]]


class Twin:
    """What a segment is: all events ever, and how many of them are gone."""

    def __init__(self) -> None:
        self.events: list[SampleEvent] = []
        self.head = 0

    def offset(self, number: int) -> int:
        return sum(event.size_bytes for event in self.events[:number])


_KEYS = st.sampled_from([None, "", "a", "ü🚀"])
_EVENTS = st.builds(
    SampleEvent,
    st.sampled_from([b"", b"1", b"payload", b"x" * 900, b"y" * 2500]),
    _KEYS,
    st.sampled_from([None, 0, -(2**62)]),
    st.sampled_from([None, {"h": "ü"}]),
)
_STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "many", "truncate", "free", "join", "read"]),
        st.integers(0, 1),
        st.integers(0, 1000),
        st.lists(_EVENTS, min_size=1, max_size=4),
    ),
    min_size=5,
    max_size=25,
)


@given(_STEPS)
def test_segments_answer_as_lists_do(steps: list[Step]) -> None:
    anyio.run(_run, steps)


async def _run(steps: list[Step]) -> None:
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS) as db:
        await make_segments(db)
        twins = {ONE: Twin(), TWO: Twin()}
        for kind, segment, number, events in steps:
            await _step(db, twins, kind, SegmentId(segment), number, events)
        while not await db.write(partial(free_step, stream_id=STREAM_ID, deleted=False)):
            pass
        await _verify(db, twins)
        await db.write(lambda tx: seal_segments(tx, STREAM, STREAM_ID, [ONE, TWO], sealed_epoch=None))
        await _verify(db, twins)


async def _step(
    db: Database,
    twins: dict[SegmentId, Twin],
    kind: str,
    segment: SegmentId,
    number: int,
    events: list[SampleEvent],
) -> None:
    twin = twins[segment]
    at = twin.head + number % (len(twin.events) - twin.head + 1)  # some readable event, or the tail
    match kind:
        case "append":
            await db.write(appending(part(segment, events), part(SegmentId(1 - segment), events[:1])))
            twin.events += events
            twins[SegmentId(1 - segment)].events += events[:1]
        case "many":  # a run of tiny extents, long enough to be joined
            small = [SampleEvent(b"%d" % each, event.key) for each in range(12) for event in events]
            for event in small:
                await db.write(appending(part(segment, [event])))
            twin.events += small
        case "truncate":
            heads = {segment: twin.offset(at)}
            await db.write(lambda tx: truncate_segments(tx, STREAM, STREAM_ID, heads, passed=()))
            twin.head = at
        case "free":
            await db.write(partial(free_step, stream_id=STREAM_ID, deleted=False))
        case "join":
            offset: int | None = twin.offset(at)
            while offset is not None:
                offset = await db.write(
                    partial(join_step, stream_id=STREAM_ID, segment=segment, offset=offset)
                )
        case _:
            runs = await db.read(partial(read_runs, segment=segment, offset=twin.offset(at), bytes_max=1000))
            found = written(runs)
            assert found == twin.events[at : at + len(found)]
            assert bool(found) == (at < len(twin.events)), "reading moves on"
    await _verify(db, twins)


async def _verify(db: Database, twins: dict[SegmentId, Twin]) -> None:
    def problems(tx: Tx) -> list[str]:
        found = list(blob_violations(tx))
        for segment, twin in twins.items():
            state = segment_state(tx, STREAM_ID, segment)
            assert state is not None, f"segment {segment} is gone"
            assert (state.head, state.head_number) == (twin.offset(twin.head), twin.head)
            assert (state.tail, state.tail_number) == (twin.offset(len(twin.events)), len(twin.events))
            found.extend(extent_violations(tx, STREAM_ID, {segment: (state, None)}))
            runs = read_runs(tx, segment, state.head)
            assert written(runs) == twin.events[twin.head :]
        return found

    assert await db.read(problems) == []
