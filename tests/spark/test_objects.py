"""Spark's tasks and planners with object storage: what they do, in this process and with its credentials."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventproc.blocking import BlockingEventproc, BlockingStream, open_blocking
from eventproc.spark.partitioning import ChunkPartition, divide_into_partitions
from eventproc.spark.planner import Planner
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_commit import abort
from eventproc.spark.sink_task import write_task
from eventproc.spark.source_options import Positions, parse_options
from eventproc.store.file_store import open_file_store
from tests.spark.sink_support import COLUMNS, LARGE, check, commit_batch, events_of, numbers_of, rows
from tests.spark.support import STREAM, read_slices, write
from tests.support.s3_server import S3Server, s3 as s3, s3_process as s3_process, url as url

pytestmark = pytest.mark.subprocess


@pytest.fixture
def ep(path: Path, url: str) -> Iterator[BlockingEventproc]:
    with open_blocking(path, chunks=url) as ep:
        ep.create_scope("s")
        yield ep


def test_partitions_name_objects_that_a_task_reads_by_range(
    stream: BlockingStream, directory: PlannerDirectory, path: Path, s3: S3Server, url: str
) -> None:
    write(stream, range(20_000))
    stream.offload()
    write(stream, range(20_000, 20_010))
    planner = Planner(parse_options({"path": str(path), "stream": STREAM}), directory)
    start, end = planner.position(Positions("earliest")), planner.position(Positions("latest"))
    groups = planner.plan(start, end, batch="", glued=False)
    partitions: list[ChunkPartition] = pickle.loads(pickle.dumps(divide_into_partitions(groups, 2, 2, 5_000)))
    assert {piece.place for each in partitions for piece in each.slices} == {url}
    assert "hidden-secret" not in repr(pickle.dumps(partitions))
    s3.faults += ["503", "cut"]
    found = [event for each in partitions for event in read_slices(each.slices)]
    assert sorted(int(event.payload) for event in found) == list(range(20_010))


def test_sink_puts_objects_and_commits_them_once(
    stream: BlockingStream, directory: PlannerDirectory, url: str
) -> None:
    files = open_file_store(url)
    written = [write_task([rows(range(100), size=LARGE)], COLUMNS, files, "run")]
    assert events_of(stream) == []
    assert commit_batch(directory, written, 0)
    assert not commit_batch(directory, written, 0)
    assert sorted(numbers_of(events_of(stream))) == list(range(100))
    lost = [write_task([rows(range(100), size=LARGE)], COLUMNS, files, "run")]
    abort(directory, lost)
    assert len([each for each in files.paths() if each.startswith("sink/")]) == 1
    check(directory)
