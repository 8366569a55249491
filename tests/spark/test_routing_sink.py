"""The sink whose rows name their streams: a batch is in all of them, or in none, and once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import eventproc.spark.sink_task
from eventproc.blocking import BlockingEventproc, BlockingStream
from eventproc.spark import committed
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_commit import abort, commit
from eventproc.spark.sink_options import SinkOptions, parse_sink_options
from eventproc.spark.sink_rows import EventColumns
from eventproc.spark.sink_task import TaskOutput, write_routed_task
from eventproc.store import faults
from eventproc.store.chunks.ingest import SinkBatch
from eventproc.store.file_store import LocalFiles
from eventproc.store.model.errors import InvalidArgument, NotFound, StreamReplaced, WriterFenced
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.sink_support import LARGE, check, events_of, files, numbers_of
from tests.tidy.source import ROOT

STREAMS = ("s/a", "s/b", "s/c")

SCHEMA = StructType([StructField(name, StringType()) for name in ("payload", "key", "to")])
COLUMNS = EventColumns.of(SinkOptions(address=Path(), stream_column="to"), SCHEMA)


def task(path: Path, numbers: Sequence[int], *, size: int = 6, shift: int = 0) -> list[TaskOutput]:
    """Write the rows of a task: each goes to the stream of its number, in turn."""
    (path / "chunks").mkdir(exist_ok=True)
    rows = pa.record_batch(
        {
            "payload": [f"{each:06d}".ljust(size, ".") for each in numbers],
            "key": [f"k{each % 7}" for each in numbers],
            "to": [STREAMS[(each + shift) % len(STREAMS)] for each in numbers],
        }
    )
    return list(
        write_routed_task([rows.slice(0, 20), rows.slice(20)], COLUMNS, LocalFiles(path / "chunks"), "run")
    )


def commit_batch(
    directory: PlannerDirectory, written: list[TaskOutput], batch: int, *, run: str = "run"
) -> bool:
    return commit(directory, None, written, SinkBatch("sink", run, batch))


@pytest.fixture
def streams(ep: BlockingEventproc) -> list[BlockingStream]:
    return [ep.create_stream(name, scaling=ScalingPolicy.fixed(2)) for name in STREAMS]


def numbers(streams: Sequence[BlockingStream]) -> list[list[int]]:
    return [sorted(numbers_of(events_of(each))) for each in streams]


@pytest.mark.acceptance("Q14")
def test_rows_go_to_the_streams_that_they_name_and_a_repeated_batch_to_none(
    streams: list[BlockingStream], directory: PlannerDirectory, path: Path
) -> None:
    for batch, size in enumerate((LARGE, 6)):  # files, and outputs that the driver carries
        part = range(300 * batch, 300 * (batch + 1))
        written = task(path, part, size=size)
        streams[batch].split(streams[batch].segments()[0].id)
        assert commit_batch(directory, written, batch)
        # A second run may have other rows: none of them may become visible.
        again = task(path, part, size=size, shift=1)
        assert not commit_batch(directory, again, batch)
        abort(directory, again)
    assert numbers(streams) == [list(range(first, 600, 3)) for first in range(3)]
    only = [each for each in task(path, range(600, 660)) if each.stream != "s/c"]
    assert commit_batch(directory, only, 2)
    assert [len(each) for each in numbers(streams)] == [220, 220, 200]
    alone = SinkBatch("sink", "run", 2)  # the same sink and batch, but not the same write
    rest = [attrs.evolve(each, stream=None) for each in task(path, [662])]
    assert commit(directory, "s/c", rest, alone) and not commit(directory, "s/c", rest, alone)
    assert numbers(streams)[2][-1] == 662
    assert len(files(path)) == 3
    check(directory)


def test_batch_for_a_missing_stream_is_in_no_stream(
    ep: BlockingEventproc, streams: list[BlockingStream], directory: PlannerDirectory, path: Path
) -> None:
    streams[2].seal()
    streams[2].delete()
    written = task(path, range(300), size=LARGE)
    with pytest.raises(NotFound, match="s/c"):
        commit_batch(directory, written, 0)
    abort(directory, written)
    assert numbers(streams[:2]) == [[], []] and files(path) == []
    ep.create_stream("s/c")
    assert commit_batch(directory, task(path, range(300), size=LARGE), 0)
    streams[1].seal()
    streams[1].delete()
    ep.create_stream("s/b")
    with pytest.raises(StreamReplaced, match="s/b"):
        commit_batch(directory, task(path, range(300, 310)), 1)
    assert len(numbers(streams[:1])[0]) == 100


def test_repeated_batch_is_recognised_though_one_of_its_streams_was_sealed(
    streams: list[BlockingStream], directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, task(path, range(3)), 0)
    streams[2].seal()
    assert not commit_batch(directory, task(path, range(3)), 0)
    streams[2].delete()
    assert not commit_batch(directory, task(path, range(3)), 0)
    assert commit_batch(directory, task(path, [3, 4]), 1)
    assert numbers(streams[:2]) == [[0, 3], [1, 4]]


def test_older_run_is_refused_in_a_stream_that_the_newer_one_did_not_write_to(
    streams: list[BlockingStream], directory: PlannerDirectory, path: Path
) -> None:
    assert commit_batch(directory, task(path, [0]), 0, run="old")
    assert commit_batch(directory, task(path, [1]), 0, run="new")
    with pytest.raises(WriterFenced):
        commit_batch(directory, task(path, [2]), 1, run="old")
    assert numbers(streams) == [[0], [1], []]


@pytest.mark.torture
@pytest.mark.parametrize("point", [faults.WRITE_BEGUN, faults.WRITE_COMMIT, faults.WRITE_COMMITTED])
@pytest.mark.acceptance("Q13")
def test_driver_killed_during_its_commit_leaves_the_batch_in_all_streams_or_in_none(
    point: str, streams: list[BlockingStream], directory: PlannerDirectory, path: Path
) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from eventproc.spark.planner_directory import PlannerDirectory\n"
        "from eventproc.testing import KillAt\n"
        "from tests.spark.test_routing_sink import LARGE, commit_batch, task\n"
        "path = Path(sys.argv[1])\n"
        "with PlannerDirectory(path, hold_ms=60_000, faults=KillAt(sys.argv[2], 1)) as directory:\n"
        "    commit_batch(directory, task(path, range(300), size=LARGE), 0)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path), point], cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL
    survived = point == faults.WRITE_COMMITTED
    assert [len(each) for each in numbers(streams)] == [100 * survived] * 3
    assert commit_batch(directory, task(path, range(300), size=LARGE), 0) is not survived
    assert numbers(streams) == [list(range(first, 300, 3)) for first in range(3)]
    check(directory)


def test_task_keeps_few_bytes_of_its_streams_in_memory_and_in_its_message(
    path: Path, ep: BlockingEventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    write = eventproc.spark.sink_task._write_largest

    def watched(files: Sequence[eventproc.spark.sink_task._TaskFile], bytes_max: int) -> None:
        write(files, bytes_max)
        waiting.append(sum(each.waiting_bytes for each in files))

    monkeypatch.setattr(eventproc.spark.sink_task, "_write_largest", watched)
    monkeypatch.setattr(eventproc.spark.sink_task, "SORTED_BYTES", 100 * LARGE)
    monkeypatch.setattr(eventproc.spark.sink_task, "MESSAGE_BYTES", 10 * LARGE)
    task(path, range(300), size=LARGE)  # the second part alone exceeds the memory
    assert max(waiting) < 100 * LARGE
    small = [each.small_events for each in task(path, range(15), size=LARGE)]
    assert 0 < sum(each.nbytes for each in small if each is not None) <= 10 * LARGE


def test_rows_without_a_stream_and_tasks_with_too_many_are_refused(
    path: Path, ep: BlockingEventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = pa.record_batch({"payload": ["x"], "key": ["k"], "to": pa.array([None], pa.string())})
    with pytest.raises(InvalidArgument, match=r"column to.*name its stream"):
        write_routed_task([row], COLUMNS, LocalFiles(path / "chunks"), None)
    monkeypatch.setattr(eventproc.spark.sink_task, "STREAMS_MAX", 2)
    with pytest.raises(InvalidArgument, match="at most 2 streams"):
        task(path, range(3), size=LARGE)
    assert files(path) == []


def test_sink_names_either_one_stream_or_a_column() -> None:
    both = {"path": "/d", "stream": "s/t", "streamColumn": "to"}
    with pytest.raises(InvalidArgument, match="either stream or streamColumn"):
        parse_sink_options(both, streaming=True, overwrite=False)
    neither = parse_sink_options({"path": "/d"}, streaming=True, overwrite=False)
    with pytest.raises(InvalidArgument, match=r"option stream.*streamColumn"):
        EventColumns.of(neither, SCHEMA)
    kafka = StructType([StructField(name, StringType()) for name in ("key", "value", "topic")])
    assert EventColumns.of(neither, kafka).stream == "topic"
    named = parse_sink_options({"path": "/d", "stream": "s/t"}, streaming=True, overwrite=False)
    assert EventColumns.of(named, kafka).stream is None


@pytest.mark.acceptance("Q14")
def test_query_routes_rows_as_kafkas_sink_does(
    spark: SparkSession, streams: list[BlockingStream], path: Path, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT concat('s/', substr('abc', id % 3 + 1, 1)) topic, lpad(id, 6, 0) value FROM range(90)"
    )
    frame.write.parquet(str(tmp_path / "source"))
    rows = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "source"))
    for _ in range(2):  # the second one has nothing to do
        query = rows.writeStream.format("eventproc").options(path=str(path), sink="routed")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert query.trigger(availableNow=True).start().awaitTermination(120)
    json = spark.sql("SELECT 's/a' to, id FROM range(3)").write.format("eventproc").mode("append")
    for _ in range(2):
        json.options(path=str(path), streamColumn="to", sink="named", batch="1").save()
    by_json = [event.payload for event in events_of(streams[0]) if event.payload.startswith(b"{")]
    assert sorted(by_json) == [b'{"to":"s/a","id":%d}' % each for each in range(3)]
    found = [
        sorted(int(event.payload) for event in events_of(each) if not event.payload.startswith(b"{"))
        for each in streams
    ]
    assert found == [list(range(first, 90, 3)) for first in range(3)]
    last = committed(path, None, "routed")
    assert last is not None and last["batch"] == 0 and committed(path, "s/b", "routed") is None
