"""The sink without Spark: a batch is in the stream completely, once and in order, whichever process dies."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.cli.main import run
from eventproc.spark.chunk_cleanup import clean_chunks
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_commit import abort, append_if
from eventproc.spark.sink_task import BLOB_BYTES, TaskOutput, write_task
from eventproc.spark.source_rows import RowLayout, read_slices
from eventproc.store.database import Tx
from eventproc.store.file_store import LocalFiles
from eventproc.store.model.errors import (
    CorruptRecord,
    InvalidArgument,
    StreamReplaced,
    StreamSealed,
    WriterFenced,
)
from eventproc.store.model.policies import ScalingPolicy
from eventproc.store.model.routing import point
from eventproc.store.segments import InlineExtentCounter
from eventproc.store.segments.extents import JOIN_EXTENTS_MAX
from tests.spark.sink_support import (
    COLUMNS,
    LARGE,
    check,
    commit_batch,
    events_of,
    files,
    numbers_of,
    rows,
    task,
)
from tests.spark.support import STREAM, free, growing


@pytest.fixture
def stream(ep: BlockingEventproc) -> BlockingStream:
    return ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(3))


@pytest.mark.hunt(seeds=6)
@pytest.mark.acceptance("Q12")
def test_batches_are_in_the_stream_once_and_in_order_despite_scales_and_reruns(
    seed: int, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    dice = random.Random(seed)
    written = 0
    for batch in range(6):
        count = dice.choice([1, 20, 400])
        size = dice.choice([6, LARGE])
        for _ in range(dice.randint(1, 2)):  # the batch runs again: the same rows, in other files
            parts = [
                task(path, *_tasks_rows(dice, range(written, written + count), each, size))
                for each in range(3)
            ]
            if dice.random() < 0.5:
                stream.split(dice.choice(stream.segments()).id)
            if not commit_batch(directory, parts, batch):
                abort(directory, parts)
        written += count
    found = events_of(stream)
    assert sorted(numbers_of(found)) == list(range(written))
    assert growing(found)
    assert len(files(path)) == directory.read(
        lambda tx: tx.execute("SELECT count(*) FROM chunk").fetchone()[0]
    )
    check(directory)


def _tasks_rows(dice: random.Random, numbers: range, index: int, size: int) -> Iterator[pa.RecordBatch]:
    """Yield a third of the rows, in two batches: a task has keys of its own, as after a repartition by key."""
    own = [each for each in numbers if each % 3 == index]
    border = dice.randint(0, len(own))
    yield from (rows(each, keys=6, size=size) for each in (own[:border], own[border:]))


def _large(path: Path, numbers: range) -> TaskOutput:
    """Write a task that makes a file."""
    found = task(path, rows(numbers, size=LARGE))
    assert found.file is not None, "it fits into a message"
    return found


def test_small_batches_are_joined_although_each_has_a_process_of_its_own(
    stream: BlockingStream, directory: PlannerDirectory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InlineExtentCounter, "note", lambda *_: None)  # it would forget, as each process does
    for batch in range(JOIN_EXTENTS_MAX + 10):
        assert commit_batch(directory, [task(path, rows([batch], keys=1))], batch)
    rows_left = directory.read(lambda tx: tx.execute("SELECT count(*) FROM extent").fetchone()[0])
    assert rows_left < 20
    assert numbers_of(events_of(stream)) == list(range(JOIN_EXTENTS_MAX + 10))
    check(directory)


def test_small_outputs_of_many_tasks_do_not_form_one_blob(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    parts = [task(path, rows(range(each, each + 60), size=LARGE)) for each in range(0, 1800, 60)]
    assert not any(each.file for each in parts)
    assert commit_batch(directory, parts, 0)
    sizes = directory.read(lambda tx: tx.execute("SELECT length(data) FROM blob").fetchall())
    assert max(sizes) <= (2 * BLOB_BYTES,)
    assert sorted(numbers_of(events_of(stream))) == list(range(1800))
    check(directory)


def test_batch_committed_by_a_dead_driver_is_not_written_again(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, [_large(path, range(100))], 0)
    again = [_large(path, range(100))]
    assert not commit_batch(directory, again, 0)
    abort(directory, again)
    assert sorted(numbers_of(events_of(stream))) == list(range(100))
    assert len(files(path)) == 1


def test_abort_after_the_commit_deletes_nothing(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    parts = [_large(path, range(100))]
    assert commit_batch(directory, parts, 0)
    abort(directory, parts)
    assert len(events_of(stream)) == 100


def test_files_of_a_failed_batch_are_deleted(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    parts = [_large(path, range(100))]
    stream.seal()
    with pytest.raises(StreamSealed):
        commit_batch(directory, parts, 0)
    abort(directory, parts)
    assert files(path) == []


def test_commit_that_found_its_files_names_none_that_an_abort_has_deleted_since(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    parts = [_large(path, range(100))]

    def write(step: Callable[[Tx], bool | None]) -> bool | None:
        abort(directory, parts)
        return directory.write(step)

    with pytest.raises(CorruptRecord, match="file not found"):
        append_if(directory, {STREAM: parts}, lambda *_: (True, True), write)
    assert events_of(stream) == [] and files(path) == []
    check(directory)


@pytest.mark.acceptance("Q15")
def test_new_checkpoint_is_a_new_run_that_fences_the_old_one(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    for batch in range(3):
        assert commit_batch(directory, [task(path, rows([batch]))], batch, run="old")
    assert commit_batch(directory, [task(path, rows([3]))], 0, run="new")
    with pytest.raises(WriterFenced):
        commit_batch(directory, [task(path, rows([4]))], 3, run="old")
    assert commit_batch(directory, [task(path, rows([4]))], 0, run="old", name="other")
    assert sorted(numbers_of(events_of(stream))) == [0, 1, 2, 3, 4]


def test_missing_task_file_fails_the_batch(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    parts = [_large(path, range(100)), _large(path, range(100, 200))]
    longer, missing = files(path)
    longer.write_bytes(longer.read_bytes() + b"x")
    with pytest.raises(CorruptRecord, match="bytes"):
        commit_batch(directory, parts, 0)
    missing.unlink()
    with pytest.raises(CorruptRecord, match="not found"):
        commit_batch(directory, parts[1:], 0)
    assert events_of(stream) == []
    check(directory)


def test_rows_without_a_key_are_spread_over_the_segments(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, [task(path, rows(range(300), keys=0))], 0)
    by_segment = Counter(event.segment for event in events_of(stream))
    assert sorted(by_segment.values()) == [100, 100, 100]


@pytest.mark.parametrize("size", [6, LARGE])
def test_rows_reach_the_partitions_of_a_topic_that_grows(
    ep: BlockingEventproc, directory: PlannerDirectory, path: Path, size: int
) -> None:
    topic = ep.create_topic(STREAM, partitions=3)
    assert commit_batch(directory, [task(path, rows(range(200), keys=50, size=size))], 0)
    before = events_of(topic)
    assert all(each.partition == int(point(str(each.key)) * 3) for each in before)
    written = [task(path, rows(range(200), keys=50, size=size))]
    topic.add_partitions(4)
    assert commit_batch(directory, written, 1)
    places = {(each.segment, each.offset) for each in before}
    after = [each for each in events_of(topic) if (each.segment, each.offset) not in places]
    assert len(after) == 200
    assert all(each.partition == int(point(str(each.key)) * 7) for each in after)
    check(directory)


@pytest.mark.parametrize("size", [6, LARGE])
def test_rows_reach_the_partitions_that_they_name_and_the_others_those_of_their_keys(
    ep: BlockingEventproc, directory: PlannerDirectory, path: Path, size: int
) -> None:
    topic = ep.create_topic(STREAM, partitions=3)
    partitions = [None, 4, 0, 2]
    named = rows(range(200), keys=50, size=size)
    named = named.append_column(
        "partition", pa.array([partitions[each % 4] for each in range(200)], pa.int32())
    )
    columns = attrs.evolve(COLUMNS, partition="partition")
    written = [task(path, named.slice(0, 90), named.slice(90), columns=columns)]
    with pytest.raises(InvalidArgument, match=r"partition '4'.*partitions 0 to 2"):
        commit_batch(directory, written, 0)
    assert events_of(topic) == []
    topic.add_partitions(2)
    assert commit_batch(directory, written, 0)
    found = events_of(topic)
    assert sorted(numbers_of(found)) == list(range(200))
    for event in found:
        by_row = partitions[int(event.payload[:6]) % 4]
        assert event.partition == (int(point(str(event.key)) * 5) if by_row is None else by_row)
    for each in range(4):  # the rows that name one partition stay in order, and so do those of a key
        numbers = [number for number in numbers_of(found) if number % 4 == each]
        assert each == 0 or numbers == sorted(numbers)
    assert growing(event for event in found if partitions[int(event.payload[:6]) % 4] is None)
    check(directory)


def test_rows_that_name_a_partition_of_a_stream_are_in_no_stream(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    named = rows(range(3)).append_column("partition", pa.array([None, 0, None], pa.int64()))
    written = [task(path, named, columns=attrs.evolve(COLUMNS, partition="partition"))]
    with pytest.raises(InvalidArgument, match="s/t is not a topic"):
        commit_batch(directory, written, 0)
    assert events_of(stream) == []


def test_blobs_in_files_are_read_without_pyarrow(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, [_large(path, range(100))], 0)
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from eventproc.blocking import open_blocking\n"
        "with open_blocking(sys.argv[1]) as ep, (stream := ep.stream('s/t')).reader() as reader:\n"
        "    print(sum(1 for _ in reader.until(stream.tail())))"
    )
    said = subprocess.check_output([sys.executable, "-c", program, str(path)], text=True, timeout=60)
    assert said == "100\n"


def test_file_is_deleted_after_its_last_event_was_truncated(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, [_large(path, range(100))], 0)
    cut = stream.tail()
    assert commit_batch(directory, [_large(path, range(100, 200))], 1)
    stream.truncate(cut)
    free(directory)
    clean_chunks(directory)
    clean_chunks(directory, unused_ms=0)
    assert len(files(path)) == 1
    assert sorted(numbers_of(events_of(stream))) == list(range(100, 200))
    check(directory)


def test_doctor_reports_missing_chunk_files(
    stream: BlockingStream, directory: PlannerDirectory, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commit_batch(directory, [_large(path, range(100))], 0)
    assert run(["-C", str(path), "doctor"]) == 0
    files(path)[0].unlink()
    capsys.readouterr()
    assert run(["-C", str(path), "doctor"]) == 1
    assert "1 files with events are missing" in capsys.readouterr().out


@pytest.mark.acceptance("Q15")
def test_run_does_not_continue_in_another_stream_of_the_same_name(
    ep: BlockingEventproc, stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, [task(path, rows([1]))], 0)
    stream.seal()
    stream.delete()
    fresh = ep.create_stream(STREAM)
    for batch in (0, 1):
        with pytest.raises(StreamReplaced):
            commit_batch(directory, [task(path, rows([2]))], batch)
    assert events_of(fresh) == []
    assert commit_batch(directory, [task(path, rows([1]))], 0, run="new")
    assert commit_batch(directory, [task(path, rows([2]))], 1, run="new")
    assert sorted(numbers_of(events_of(fresh))) == [1, 2]


def test_task_that_does_not_see_the_folder_says_what_to_share(
    stream: BlockingStream, directory: PlannerDirectory, path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="be a shared file system"):
        write_task([rows(range(100), size=LARGE)], COLUMNS, LocalFiles(path / "elsewhere"), "run")
    assert not (path / "elsewhere").exists()
    lost = [_large(path, range(100))]
    files(path)[0].unlink()
    with pytest.raises(CorruptRecord, match="be a shared file system"):
        commit_batch(directory, lost, 0)
    here = FileSlice(str(path / "elsewhere"), "1.arrow", STREAM, 0, 0, 0, 0, 1)
    with pytest.raises(FileNotFoundError, match="be a shared file system"):
        list(read_slices(RowLayout(StructType(), ("payload",)), [here]))
