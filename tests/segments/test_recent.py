"""What readers of the same process get from memory is what they would read, and takes no more than it may."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventproc.store.database import Database, Tx
from eventproc.store.segments import RECENT_EVENTS, Event, EventRun, RecentEvents, append, truncate_segments
from eventproc.store.segments.append import RUN_BYTES_MAX
from eventproc.store.segments.recent import RECENT_BYTES_MAX, RUN_OVERHEAD_BYTES
from tests.segments.support import (
    ONE,
    STREAM,
    STREAM_ID,
    TWO,
    SampleEvent,
    appending,
    make_segments,
    part,
    payloads,
    read_runs,
)

MIXED: Sequence[Sequence[SampleEvent]] = (
    [SampleEvent(b"plain")],
    [SampleEvent(b"keyed", "k"), SampleEvent(b"", "ü")],
    [SampleEvent(b"timed", None, 7)],
    [SampleEvent(b"headed", "k", None, {"a": "🚀"}), SampleEvent(b"plain again")],
)


async def recent_runs(db: Database, appends: Sequence[Sequence[SampleEvent]]) -> list[EventRun]:
    """Append all in one commit, to two segments by turns; return what memory holds of the first one."""
    recent = db.shared[RECENT_EVENTS]

    def fn(tx: Tx) -> None:
        for events in appends:
            for segment in (ONE, TWO):
                append(tx, STREAM, STREAM_ID, [part(segment, events)])

    with recent.watching(STREAM_ID):
        await db.write(fn)
        runs: list[EventRun] = []
        while (run := recent.find(STREAM_ID, ONE, runs[-1].end if runs else 0)) is not None:
            runs.append(run)
    return runs


async def stored(db: Database) -> list[Event]:
    return [event for run in await db.read(partial(read_runs, segment=ONE)) for event in run.events(STREAM)]


async def test_small_appends_of_one_commit_come_as_one_run(db: Database) -> None:
    await make_segments(db)
    (run,) = await recent_runs(db, MIXED)
    assert list(run.events(STREAM)) == await stored(db)


async def test_large_append_between_small_ones_becomes_a_run_of_its_own(db: Database) -> None:
    await make_segments(db)
    runs = await recent_runs(db, [*MIXED, [SampleEvent(b"x" * RUN_BYTES_MAX, "k")], *MIXED])
    assert len(runs) == 3
    assert [event for run in runs for event in run.events(STREAM)] == await stored(db)


async def test_many_small_appends_of_a_commit_come_as_few_runs(db: Database) -> None:
    await make_segments(db)
    runs = await recent_runs(db, [[SampleEvent(b"x" * 1016)]] * 130)
    assert [len(run) for run in runs] == [64, 64, 2]
    assert [event for run in runs for event in run.events(STREAM)] == await stored(db)


async def test_a_truncation_drops_what_memory_holds_of_the_stream(db: Database) -> None:
    await make_segments(db)
    recent = db.shared[RECENT_EVENTS]
    with recent.watching(STREAM_ID):
        await db.write(appending(payloads("a", "b")))
        assert recent.find(STREAM_ID, ONE, 0) is not None
        await db.write(lambda tx: truncate_segments(tx, STREAM, STREAM_ID, {ONE: 9}, passed=()))
        assert recent.find(STREAM_ID, ONE, 0) is None


def test_many_runs_of_one_small_event_take_no_more_than_they_may() -> None:
    recent = RecentEvents()
    with recent.watching(STREAM_ID):
        kept_max = RECENT_BYTES_MAX // (8 + RUN_OVERHEAD_BYTES)
        for number in range(kept_max + 1):
            recent.add(STREAM_ID, [EventRun(ONE, 8 * number, 8 * (number + 1), number, 0, [b""])])
        assert recent.find(STREAM_ID, ONE, 0) is None
        assert recent.find(STREAM_ID, ONE, 8) is not None
        assert recent.find(STREAM_ID, ONE, 8 * kept_max) is not None
