"""Ingest: files that Spark's sink wrote become part of a stream, in one transaction and without moving bytes.

Each record batch of a file becomes a blob, and its events of one segment become an extent that points into the file.
The same transaction records the sink's batch, so that it is in the stream exactly once. Reasons:
docs/design/spark-sink.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from eventproc.store.chunks.index import SINK_COMMIT_MS, is_marked_unused, sink_file_ms
from eventproc.store.database import SqlValue, Tx
from eventproc.store.file_store import FileStore
from eventproc.store.model.errors import CorruptRecord, StreamReplaced, WriterFenced
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import RecordKind, create, delete_all, find, get, keys, replace
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.extents import INSERT_EXTENT
from eventproc.store.segments.file_blobs import insert_file_blob
from eventproc.store.segments.state import SegmentTail, find_tail


@attrs.frozen
class SegmentSpan:
    """Events of a record batch that go to one segment.

    at, length: the bytes of their frames, within the frames of the batch. count: number of events.
    """

    segment: SegmentId
    at: int
    length: int
    count: int


@attrs.frozen
class SinkRecordBatch:
    """A record batch of a sink's file. buffers: its packed `BufferRefs`. spans: its events by segment."""

    buffers: bytes
    spans: tuple[SegmentSpan, ...]


@attrs.frozen
class SinkFile:
    """A complete, durable file of a sink. path: relative to the chunks folder. bytes, checksum: size and CRC-32."""

    path: str
    bytes: int
    checksum: int
    batches: tuple[SinkRecordBatch, ...]

    @property
    def length(self) -> int:
        """Bytes that its events take in their segments."""
        return sum(each.length for batch in self.batches for each in batch.spans)

    @property
    def count(self) -> int:
        """Number of its events."""
        return sum(each.count for batch in self.batches for each in batch.spans)


@attrs.frozen
class SinkBatch:
    """Identity of a micro-batch: the name of the sink, one run of it, and a number that grows within the run.

    offsets: where the batch ends in its sources, as JSON, if known.
    """

    name: str
    run: str
    batch: int
    offsets: str | None = None


@attrs.frozen
class SinkTarget:
    """The stream that the newest run of a sink writes to, and since when. Outlives the stream."""

    run: str
    stream_id: int
    since_ms: int


SINK_TARGET: Final = RecordKind(name="sink_target", value=SinkTarget)
"""By "scope/stream sink"."""

_REMEDY: Final = "what the query wrote before is lost with it; start the query with a new checkpoint"

TARGET_KEPT_MS: Final = 365 * 24 * 3600 * 1000
"""How long a sink's stream is remembered. A run that began earlier and whose stream was replaced is not refused."""


ALL_STREAMS: Final = 0
"""In place of a stream's id: a sink whose rows name their streams. Ids of streams begin at 1."""


_ROUTED: Final = " by column"


def record_routed_batch(tx: Tx, batch: SinkBatch, streams: Mapping[str, int]) -> bool:
    """Record that this transaction writes the batch to several streams; return False if it was written before.

    A batch that runs again may have other rows, so the streams in which it is do not decide: the sink has a record of
    its own. Those of the streams show only whether a stream was replaced. streams: {name: id}. Raises as
    `record_sink_batch`.
    """
    if not record_sink_batch(tx, "*", ALL_STREAMS, batch):
        return False
    # By another name: a write to one of these streams alone is another write, also of the same sink and batch.
    own = attrs.evolve(batch, name=f"{batch.name}{_ROUTED}")
    for name, stream_id in streams.items():
        record_sink_batch(tx, name, stream_id, own)
    return True


def record_sink_batch(tx: Tx, stream: str, stream_id: int, batch: SinkBatch) -> bool:
    """Record that this transaction writes the batch; return False if it or a later one was written before.

    The first batch of a run fences all earlier runs. Raises WriterFenced for a fenced run, and StreamReplaced for a run
    that wrote to a deleted stream of this name: what it wrote there is lost. One look-up, one row.
    """
    rows = tx.execute(
        "SELECT run, turn, batch FROM sink WHERE stream_id = ? AND name = ?", (stream_id, batch.name)
    ).fetchall()
    if not any(run == batch.run for run, _, _ in rows):
        _begin_run(tx, stream, stream_id, batch)
    newest = max((turn for _, turn, _ in rows), default=0)
    own = next(((turn, number) for run, turn, number in rows if run == batch.run), None)
    turn, last = own if own is not None else (newest + 1, -1)
    if turn < newest:
        raise WriterFenced(stream=stream, writer=batch.name)
    if batch.batch <= last:
        return False
    tx.execute(
        "INSERT INTO sink (stream_id, name, run, turn, batch, offsets) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (stream_id, name, run) DO UPDATE SET batch = excluded.batch, offsets = excluded.offsets",
        (stream_id, batch.name, batch.run, turn, batch.batch, batch.offsets),
    )
    return True


def _begin_run(tx: Tx, stream: str, stream_id: int, batch: SinkBatch) -> None:
    """Remember the stream that a run of a query writes to. Raises StreamReplaced if it wrote to another one before."""
    if not batch.run:
        return  # not a query: the caller numbers its batches
    key = f"{stream} {batch.name}"
    before = find(tx, SINK_TARGET, key)
    if before is None:
        if not batch.name.endswith(_ROUTED):  # that of many streams: the sink itself looks, once
            _forget_targets(tx)
        create(tx, SINK_TARGET, key, SinkTarget(batch.run, stream_id, tx.now_ms))
    elif before.value.run == batch.run and before.value.stream_id != stream_id:
        raise StreamReplaced(
            stream=stream, stream_id=before.value.stream_id, current_id=stream_id, remedy=_REMEDY
        )
    else:
        replace(tx, SINK_TARGET, before, SinkTarget(batch.run, stream_id, tx.now_ms))


def _forget_targets(tx: Tx) -> None:
    """Forget the streams of sinks that began long ago. Reads the targets of all sinks."""
    old = [
        each
        for each in keys(tx, SINK_TARGET)
        if tx.now_ms - get(tx, SINK_TARGET, each).value.since_ms > TARGET_KEPT_MS
    ]
    delete_all(tx, SINK_TARGET, old)


def find_sink_batch(tx: Tx, stream_id: int, name: str) -> SinkBatch | None:
    """Return the last batch that the newest run of a sink wrote to the stream. One look-up."""
    row = tx.execute(
        "SELECT name, run, batch, offsets FROM sink WHERE stream_id = ? AND name = ? ORDER BY turn DESC LIMIT 1",
        (stream_id, name),
    ).fetchone()
    return None if row is None else SinkBatch(*row)


def append_files(tx: Tx, stream: str, stream_id: int, files: Sequence[SinkFile]) -> None:
    """Append the events of the files, in order, to their segments.

    The caller has verified the files. Raises SegmentSealed (route the events again), NotFound, CorruptRecord if a file
    is so old that it is deleted; then nothing changed.
    Cost: one look-up per segment; one row per file, record batch and span, about 10 us each.
    """
    flush_appends(tx, stream_id)
    tails: dict[SegmentId, SegmentTail] = {}
    extents: list[tuple[SqlValue, ...]] = []
    for file in files:
        _verify_kept(tx, file.path)
        chunk = tx.execute(
            "INSERT INTO chunk (stream_id, start, length, first_number, count, path, bytes, checksum)"
            " VALUES (?, 0, ?, 0, ?, ?, ?, ?) RETURNING id",
            (stream_id, file.length, file.count, file.path, file.bytes, file.checksum),
        ).fetchone()[0]
        for batch in file.batches:
            blob = insert_file_blob(tx, stream_id, chunk, batch.buffers)
            for each in batch.spans:
                if (tail := tails.get(each.segment)) is None:
                    tail = tails[each.segment] = find_tail(tx, stream, stream_id, each.segment)
                    tail.time = max(tx.now_ms, tail.time)
                where = (stream_id, each.segment, tail.offset, each.length, tail.number, each.count)
                extents.append((*where, tail.time, tail.time, blob, each.at, None))
                tail.offset += each.length
                tail.number += each.count
    tx.executemany(INSERT_EXTENT, extents)
    if extents:
        tx.wake(("stream", stream_id))


SHARED: Final = (
    "restart the query, and if its tasks run on other machines, let the folder `chunks` of the directory be a shared"
    " file system, mounted at the same path on all of them"
)
"""What to do about files that one process wrote and another one does not find, for the texts of errors."""


def verify_file(files: FileStore, path: str, size_bytes: int) -> None:
    """Raise CorruptRecord unless the sink's file exists and has `size_bytes` bytes."""
    found = files.size(path)
    if found is None:
        raise _removed(files.show(path))
    if found != size_bytes:
        reason = f"it has {found} bytes, not {size_bytes}"
        raise CorruptRecord(key=f"file {files.show(path)} of a sink", reason=reason)


def _verify_kept(tx: Tx, path: str) -> None:
    written_ms = sink_file_ms(path)
    if is_marked_unused(tx, path) or (written_ms is not None and tx.now_ms - written_ms > SINK_COMMIT_MS):
        raise _removed(path)


def _removed(path: str) -> CorruptRecord:
    reason = "file not found: uncommitted sink files are removed after 24 h"
    return CorruptRecord(key=f"file {path} of a sink", reason=reason, remedy=SHARED)
