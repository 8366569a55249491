"""Planning without Spark: batches cover every event once, in order, whatever is scaled, truncated or planned again."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.spark import chunk_cleanup
from eventproc.spark.batch_cursor import BatchBudget
from eventproc.spark.chunk_cleanup import clean_chunks, try_to_clean_chunks
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.planner import Planner
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.source_options import SEGMENT_HEAD, SEGMENT_TAIL, Positions, parse_options
from eventproc.store.chunks.index import STEP_CHUNKS_MAX, mark_unused
from eventproc.store.chunks.offload import OffloadLimits
from eventproc.store.database import Tx
from eventproc.store.faults import Died
from eventproc.store.model.errors import EventprocError, InvalidArgument, StreamReplaced, Truncated
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.routing import point
from eventproc.streams.offload import offload
from tests.spark.support import STREAM, ReadEvent, files, free, growing, read_slices, write

T = TypeVar("T")

NO_LIMIT = BatchBudget()


def planner(directory: PlannerDirectory, path: Path, **options: str) -> Planner:
    named = {"stream": STREAM} if "streamPattern" not in options else {}
    return Planner(parse_options({"path": str(path), **named, **options}), directory)


EARLIEST, LATEST = Positions("earliest"), Positions("latest")


def batches(
    planner: Planner, start: dict[str, str], budget: BatchBudget = NO_LIMIT
) -> Iterator[tuple[dict[str, str], dict[str, str], list[list[FileSlice]]]]:
    """Yield batch after batch, (start, end, groups), until nothing new is there."""
    while True:
        end, _ = planner.next_position(start, budget)
        if end == start:
            return
        yield start, end, planner.plan(start, end, batch=json.dumps(end), glued=True)
        start = end


def events_of(groups: list[list[FileSlice]]) -> list[ReadEvent]:
    return [event for group in groups for event in read_slices(group)]


@pytest.mark.hunt(seeds=6)
def test_batches_read_every_event_once_and_keys_in_order_across_scales(
    seed: int, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    dice = random.Random(seed)
    written = 0
    reading = planner(directory, path)
    start = reading.position(EARLIEST)
    found: list[ReadEvent] = []
    for _ in range(6):
        for _ in range(dice.randint(0, 3)):
            more = dice.choice([1, 30, 400])
            write(stream, range(written, written + more))
            written += more
            segments = stream.segments()
            if dice.random() < 0.6:
                stream.split(dice.choice(segments).id)
            elif len(segments) > 2:
                at = dice.randrange(len(segments) - 1)
                stream.merge(segments[at].id, segments[at + 1].id)
        budget = dice.choice(
            [NO_LIMIT, BatchBudget(events=150), BatchBudget(bytes=1500), BatchBudget(bytes=3)]
        )
        for count, (begin, end, groups) in enumerate(batches(reading, start, budget)):
            events = events_of(groups)
            assert all(growing(read_slices(group)) for group in groups)
            if budget.events is not None:
                assert len(events) <= budget.events
            if budget.bytes is not None:
                assert sum(8 + len(event.payload) for event in events) <= max(budget.bytes, 14)
            assert events_of(planner(directory, path).plan(begin, end, batch="", glued=True)) == events
            found += events
            start = end
            if count == 20:
                break
    for _, _, groups in batches(reading, start):
        found += events_of(groups)
    assert sorted(event.payload for event in found) == [b"%06d" % each for each in range(written)]
    assert growing(found)
    assert len({(event.segment, event.number) for event in found}) == len(found)


@pytest.mark.parametrize("budget", [BatchBudget(events=10), BatchBudget(bytes=140)])
@pytest.mark.parametrize("small", [0, 1])
def test_a_small_segment_is_read_to_its_end_beside_a_large_one(
    small: int, budget: BatchBudget, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    segments = stream.segments()
    counts = {segments[small].id: 3, segments[1 - small].id: 5_000}
    keys = {point(f"k{number}") < segments[0].high: f"k{number}" for number in range(20)}
    for segment, count in counts.items():
        with stream.writer() as writer:
            key = keys[segment == segments[0].id]
            writer.write_many((b"%06d" % number, key) for number in range(count))
    reading = planner(directory, path)
    _, _, groups = next(batches(reading, reading.position(EARLIEST), budget))
    events = events_of(groups)
    assert sum(event.segment == segments[small].id for event in events) == 3
    assert len(events) == 10


def test_one_batch_crosses_many_small_scales(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    for index in range(5):
        write(stream, range(10 * index, 10 * index + 10))
        stream.split(stream.segments()[0].id)
    reading = planner(directory, path)
    (batch,) = batches(reading, reading.position(EARLIEST))
    assert len(events_of(batch[2])) == 50
    assert growing(events_of(batch[2]))


def test_large_successors_are_left_to_the_next_batch(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(100), keys=50)
    stream.split(stream.segments()[0].id)
    write(stream, range(100, 300), keys=50)
    reading = planner(directory, path)
    first, second = batches(reading, reading.position(EARLIEST), BatchBudget(glued_bytes_max=500))
    assert {event.payload for event in events_of(first[2])} >= {b"%06d" % each for each in range(100)}
    assert growing(events_of(first[2]) + events_of(second[2]))
    assert len(second[2]) == 2


@pytest.mark.acceptance("Q6")
def test_later_stream_of_a_pattern_is_read_from_its_head(
    ep: BlockingEventproc, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(3))
    reading = planner(directory, path, streamPattern="s/.*")
    start = reading.position(LATEST)
    write(ep.create_stream("s/later"), range(5))
    ((_, end, groups),) = batches(reading, start)
    assert sorted(end) == ["s/later", STREAM]
    assert [event.payload for event in events_of(groups)] == [b"%06d" % each for each in range(5)]


@pytest.mark.acceptance("Q5")
def test_positions_are_ends_times_and_cuts(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(5))
    reading = planner(directory, path)
    middle = reading.position(LATEST)[STREAM]
    write(stream, range(5, 9))
    groups = reading.plan(
        reading.position(Positions(middle)), reading.position(LATEST), batch="", glued=False
    )
    assert sorted(event.payload for event in events_of(groups)) == [b"%06d" % each for each in range(5, 9)]
    assert reading.position(Positions(0)) == reading.position(EARLIEST)
    assert reading.position(Positions(2**50)) == reading.position(LATEST)


@pytest.mark.acceptance("Q5")
def test_positions_by_segment_name_all_segments_of_a_cut(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    first, second = (each.id for each in stream.segments())
    reading = planner(directory, path)
    head, tail = reading.position(EARLIEST), reading.position(LATEST)
    assert reading.position(Positions({first: SEGMENT_HEAD, second: 0})) == head
    assert reading.position(Positions({first: SEGMENT_TAIL, second: SEGMENT_TAIL})) == tail
    half = reading.position(Positions({first: SEGMENT_TAIL, second: SEGMENT_HEAD}))
    groups = reading.plan(half, tail, batch="", glued=False)
    assert {event.segment for event in events_of(groups)} == {second}
    inside: dict[SegmentId, int] = {first: 1, second: 0}
    for wrong, named in (({first: 0}, "cover"), (inside, "event"), ({first: 0, SegmentId(77): 0}, "77")):
        with pytest.raises(EventprocError, match=named):
            reading.position(Positions(wrong))


@pytest.mark.acceptance("Q5")
def test_time_without_later_events_is_the_tail_or_an_error(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(3))
    given = {"startingTimestamp": str(2**50)}
    for strategy in ("latest", "error"):
        options = {**given, "startingOffsetsByTimestampStrategy": strategy}
        places = parse_options({"path": str(path), "stream": STREAM, **options}).starting
        assert places is not None
        reading = planner(directory, path, **options)
        if strategy == "latest":
            assert reading.position(places) == reading.position(LATEST)
        else:
            with pytest.raises(InvalidArgument, match="no event at or after it"):
                reading.position(places)


def test_time_behind_the_last_event_is_an_error_also_if_a_scale_came_later(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(3))
    time_ms = directory.db.clock.wall_ms() + 1
    while directory.db.clock.wall_ms() <= time_ms:
        directory.read(lambda tx: tx.now_ms)
    stream.split(stream.segments()[0].id)
    options = {"startingTimestamp": str(time_ms), "startingOffsetsByTimestampStrategy": "error"}
    places = parse_options({"path": str(path), "stream": STREAM, **options}).starting
    assert places is not None
    with pytest.raises(InvalidArgument, match="no event at or after it"):
        planner(directory, path, **options).position(places)


@pytest.mark.acceptance("Q7")
def test_batch_waits_for_its_least_number_of_events_up_to_the_delay(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(3))
    waiting = planner(directory, path, minEventsPerTrigger="10")
    eager = planner(directory, path, minEventsPerTrigger="10", maxTriggerDelay="0s")
    start = waiting.position(EARLIEST)
    first, _ = waiting.next_position(start, NO_LIMIT)
    assert first != start, "the first batch does not wait"
    eager.next_position(start, NO_LIMIT)
    write(stream, range(3, 9))
    end, tails = waiting.next_position(first, NO_LIMIT)
    assert (end, tails) == (first, waiting.position(LATEST))
    assert eager.next_position(first, NO_LIMIT)[0] == tails
    write(stream, range(9, 13))
    assert waiting.next_position(first, NO_LIMIT)[0] == waiting.position(LATEST)
    write(stream, range(13, 14))
    waiting.freeze(waiting.position(LATEST))
    assert waiting.next_position(tails, NO_LIMIT)[0] == waiting.position(LATEST), "it ends with what is there"


def test_exported_files_are_deleted_without_a_host(
    ep: BlockingEventproc, stream: BlockingStream, path: Path
) -> None:
    write(stream, range(50))
    ep.close()
    with PlannerDirectory(path, hold_ms=0) as directory:  # the hold ends with its transaction
        reading = planner(directory, path)
        reading.plan(reading.position(EARLIEST), reading.position(LATEST), batch="", glued=False)
    with PlannerDirectory(path, hold_ms=60_000) as directory:
        reading = planner(directory, path, columns="payload")
        half = reading.position(EARLIEST)
        assert len(files(path)) == 2
        clean_chunks(directory)
        groups = reading.plan(half, reading.position(LATEST), batch="", glued=False)
        assert len(files(path)) == 4
        clean_chunks(directory, unused_ms=0)
        assert len(files(path)) == 2
        assert len(events_of(groups)) == 50, "what a plan holds stays"


def test_files_that_are_due_are_all_deleted_or_left_to_the_next_batch(
    directory: PlannerDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = path / "chunks" / "1" / "0.0"
    folder.mkdir(parents=True)
    names = [f"0-{number}.arrow" for number in range(2 * STEP_CHUNKS_MAX + 1)]
    for each in names:
        (folder / each).touch()
    directory.write(partial(mark_unused, paths=[f"1/0.0/{each}" for each in names]))
    with monkeypatch.context() as patch:
        patch.setattr(chunk_cleanup, "CLEAN_MS_MAX", 0)
        assert try_to_clean_chunks(directory, unused_ms=0), "some are left"
    assert not try_to_clean_chunks(directory, unused_ms=0)
    assert not folder.exists()


def test_a_file_that_cannot_be_deleted_does_not_end_the_query(
    directory: PlannerDirectory, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = path / "chunks" / "1" / "0.0" / "0-9.arrow"
    strange.mkdir(parents=True)
    directory.write(partial(mark_unused, paths=["1/0.0/0-9.arrow"]))
    try_to_clean_chunks(directory, unused_ms=0)
    assert strange.exists()
    assert "exported files could not be deleted" in caplog.text


def test_frozen_query_reads_no_later_events(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(5))
    reading = planner(directory, path)
    reading.freeze(reading.position(LATEST))
    write(stream, range(5, 9))
    stream.split(stream.segments()[0].id)
    write(stream, range(9, 20))
    found = [
        event for _, _, groups in batches(reading, reading.position(EARLIEST)) for event in events_of(groups)
    ]
    assert sorted(event.payload for event in found) == [b"%06d" % each for each in range(5)]


def test_range_is_exported_once_for_all_queries(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(50))
    reading = planner(directory, path)
    (first,) = batches(reading, reading.position(EARLIEST))
    made = {each: each.stat().st_mtime_ns for each in files(path)}
    (again,) = batches(planner(directory, path), reading.position(EARLIEST))
    assert events_of(again[2]) == events_of(first[2])
    assert {each: each.stat().st_mtime_ns for each in files(path)} == made


def test_query_with_other_batches_exports_only_events_in_no_file(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(50))
    reading = planner(directory, path)
    start = reading.position(EARLIEST)
    next(batches(reading, start, BatchBudget(events=20)))
    sizes = sum(each.stat().st_size for each in files(path))
    (whole,) = batches(reading, start)
    assert len(events_of(whole[2])) == 50
    assert len(files(path)) == 4
    assert sum(each.stat().st_size for each in files(path)) > sizes


@pytest.mark.parametrize("harm", ["unlinked", "cut short"])
def test_missing_or_damaged_chunk_file_is_exported_again(
    harm: str, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(50))
    reading = planner(directory, path)
    (first,) = batches(reading, reading.position(EARLIEST))
    before = events_of(first[2])
    for each in files(path):
        if harm == "unlinked":
            each.unlink()
        else:
            each.write_bytes(each.read_bytes()[:-1])
    (again,) = batches(reading, reading.position(EARLIEST))
    assert events_of(again[2]) == before


def test_planned_batch_is_readable_again_after_a_truncation(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    reading = planner(directory, path)
    start = reading.position(EARLIEST)
    ((_, end, groups),) = batches(reading, start)
    before = events_of(groups)
    for _ in range(4):
        stream.split(stream.segments()[0].id)
        write(stream, range(20, 30))
    stream.truncate(stream.tail())
    free(directory)
    for each in files(path):
        each.unlink()
    assert events_of(planner(directory, path).plan(start, end, batch="", glued=True)) == before


def test_hold_ends_with_the_next_batch(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    reading = planner(directory, path)
    ((_, end, _),) = batches(reading, reading.position(EARLIEST))
    assert _holds(directory) == 1
    directory.finish(json.dumps(end))
    write(stream, range(20, 30))
    ((_, _, _),) = batches(reading, end)
    assert _holds(directory) == 1


def _holds(directory: PlannerDirectory) -> int:
    return int(directory.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()[0]))


def test_events_truncated_before_planning_fail_the_query_or_are_skipped(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    reading = planner(directory, path)
    start = reading.position(EARLIEST)
    stream.truncate(stream.tail())
    write(stream, range(20, 25))
    with pytest.raises(Truncated):
        reading.next_position(start, NO_LIMIT)
    ((_, _, groups),) = batches(planner(directory, path, failOnDataLoss="false"), start)
    assert sorted(event.payload for event in events_of(groups)) == [b"%06d" % each for each in range(20, 25)]


@pytest.mark.parametrize("freed", [True, False])
def test_events_truncated_between_planning_and_exporting_are_lost(
    freed: bool, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    reading = planner(directory, path)
    start = reading.position(EARLIEST)
    end, _ = reading.next_position(start, NO_LIMIT)
    stream.truncate(stream.tail())
    if freed:
        free(directory)
    with pytest.raises(EventprocError, match="truncated"):
        reading.plan(start, end, batch="", glued=True)
    assert planner(directory, path, failOnDataLoss="false").plan(start, end, batch="", glued=True) == []


@pytest.mark.acceptance("Q8")
def test_replaced_stream_fails_the_query_or_is_read_from_its_head(
    ep: BlockingEventproc, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    reading = planner(directory, path)
    start = reading.position(EARLIEST)
    stream.seal()
    stream.delete()
    write(ep.create_stream(STREAM), range(5))
    with pytest.raises(StreamReplaced):
        reading.next_position(start, NO_LIMIT)
    ((_, _, groups),) = batches(planner(directory, path, failOnDataLoss="false"), start)
    assert [event.payload for event in events_of(groups)] == [b"%06d" % each for each in range(5)]


def test_query_of_a_sealed_stream_reads_to_its_end_and_stays_there(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    write(stream, range(20))
    stream.seal()
    reading = planner(directory, path)
    ((_, end, groups),) = batches(reading, reading.position(EARLIEST))
    assert len(events_of(groups)) == 20
    assert reading.next_position(end, NO_LIMIT)[0] == end


class _Mortal(PlannerDirectory):
    """Dies before its n-th transaction, or right after it."""

    def __init__(self, path: Path, step: int, *, after: bool) -> None:
        super().__init__(path, hold_ms=60_000)
        self._left = step
        self._after = after

    def read(self, fn: Callable[[Tx], T]) -> T:
        return self._step(super().read, fn)

    def write(self, fn: Callable[[Tx], T]) -> T:
        return self._step(super().write, fn)

    def _step(self, run: Callable[[Callable[[Tx], T]], T], fn: Callable[[Tx], T]) -> T:
        self._left -= 1
        if not self._left and not self._after:
            raise Died
        found = run(fn)
        if not self._left:
            raise Died
        return found


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.acceptance("Q3")
def test_planner_after_a_dead_one_plans_the_same_batch(
    after: bool, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    steps = 0
    for index in range(30):
        write(stream, range(20 * index, 20 * index + 20))
        reading = planner(directory, path)
        start = reading.position(EARLIEST)
        end, _ = reading.next_position(start, NO_LIMIT)
        with _Mortal(path, index + 1, after=after) as mortal:
            try:
                planner(mortal, path).plan(start, end, batch="", glued=True)
            except Died:
                steps += 1
        events = events_of(reading.plan(start, end, batch="", glued=True))
        assert sorted(event.payload for event in events) == [
            b"%06d" % each for each in range(20 * index + 20)
        ]
        if steps <= index:
            break
    assert 4 <= steps < 30
    assert [each for each in files(path) if each.suffix == ".part"] == []


def test_offloaded_events_are_not_exported_again(
    stream: BlockingStream, directory: PlannerDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = partial(offload, limits=OffloadLimits(run_bytes_min=1))
    monkeypatch.setattr("eventproc.streams.offload.offload", small)
    write(stream, range(500))
    assert stream.offload().events == 500
    before = files(path)
    write(stream, range(500, 510))
    reading = planner(directory, path)
    ((_, _, groups),) = batches(reading, reading.position(EARLIEST))
    assert sorted(event.payload for event in events_of(groups)) == [b"%06d" % each for each in range(510)]
    assert {Path(each.place, each.path) for group in groups for each in group} > set(before)
    assert all(
        piece.size_bytes < 200
        for group in groups
        for piece in group
        if Path(piece.place, piece.path) not in before
    )
