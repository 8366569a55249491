"""Support for the tests of Spark: writes streams by blocking calls and reads chunk files like a task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs

from eventproc.blocking import BlockingStream
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.database import Tx
from eventproc.store.segments import Event
from eventproc.store.segments.reaper import free_step

STREAM = "s/t"


@attrs.frozen
class ReadEvent:
    """An event as a task reads it."""

    key: str | None
    payload: bytes
    segment: int
    offset: int
    number: int


def write(stream: BlockingStream, payloads: Iterable[int], *, keys: int = 7) -> None:
    """Append an event for each number, with one of so many keys: those of a key grow."""
    with stream.writer() as writer:
        for each in payloads:
            writer.post(b"%06d" % each, key=f"k{each % keys}")


def read_slices(slices: Iterable[FileSlice]) -> list[ReadEvent]:
    """Return the events of slices, in order, as a task reads them."""
    found: list[ReadEvent] = []
    for piece in slices:
        with piece.open() as reader:
            for rows in reader.rows(
                offset=piece.offset, number=piece.number, start=piece.start, end=piece.end
            ):
                columns = (
                    rows.batch.column("key").to_pylist(),
                    rows.batch.column("payload").to_pylist(),
                    [piece.segment] * rows.batch.num_rows,
                    rows.offsets().tolist(),
                    rows.numbers().tolist(),
                )
                found += [ReadEvent(*each) for each in zip(*columns, strict=True)]
    return found


def growing(events: Iterable[ReadEvent | Event]) -> bool:
    """Return whether the events of each key come in the order in which they were written."""
    last: dict[str | None, bytes] = {}
    for event in events:
        if last.get(event.key, b"") >= event.payload:
            return False
        last[event.key] = event.payload
    return True


def files(directory: Path) -> list[Path]:
    """Return the chunk files of a directory."""
    return sorted((directory / "chunks").glob("*/*/*"))


def free(directory: PlannerDirectory) -> None:
    """Let the reaper free all that it may."""

    def step(tx: Tx) -> None:
        for (stream_id,) in tx.execute("SELECT stream_id FROM reap WHERE deleted = 0").fetchall():
            free_step(tx, stream_id, deleted=False)

    for _ in range(5):
        directory.write(step)
