"""Files full of events become part of a stream: index rows that point into them, in one transaction; no bytes move.

Each record batch of a file is a blob, and what of it goes to one segment an extent. A batch of a sink is remembered
in the same transaction, so that it is in the stream once. Why it is made so: docs/design/spark-sink.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from eventproc.store.database import SqlValue, Tx
from eventproc.store.model.errors import CorruptRecord, WriterFenced
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.extents import INSERT_EXTENT
from eventproc.store.segments.file_blobs import insert_file_blob
from eventproc.store.segments.state import SegmentTail, find_tail


@attrs.frozen
class SegmentSpan:
    """`count` events of a record batch that go to one segment; their frames take [at, at + length) of the batch's."""

    segment: SegmentId
    at: int
    length: int
    count: int


@attrs.frozen
class SinkRecordBatch:
    """A record batch: where its buffers lie, packed, and which of its events go where."""

    places: bytes
    stretches: tuple[SegmentSpan, ...]


@attrs.frozen
class SinkFile:
    """A file, whole and durable. path: relative to the folder. bytes, checksum: size and CRC-32."""

    path: str
    bytes: int
    checksum: int
    batches: tuple[SinkRecordBatch, ...]

    @property
    def length(self) -> int:
        """Bytes that its events take in their segments."""
        return sum(each.length for batch in self.batches for each in batch.stretches)

    @property
    def count(self) -> int:
        """Its events."""
        return sum(each.count for batch in self.batches for each in batch.stretches)


@attrs.frozen
class SinkBatch:
    """What identifies a batch: the sink's name, one run of it, and the batch's number, which grows within a run.

    offsets: where it ends in its sources, as JSON, if that is known.
    """

    name: str
    run: str
    batch: int
    offsets: str | None = None


def record_sink_batch(tx: Tx, stream: str, stream_id: int, batch: SinkBatch) -> bool:
    """Remember that a batch is written with this transaction; return False if it, or a later one, was written before.

    The first batch of a run ends the runs before it. Raises WriterFenced for a run that was ended. One look-up, one
    row.
    """
    rows = tx.execute(
        "SELECT run, turn, batch FROM sink WHERE stream_id = ? AND name = ?", (stream_id, batch.name)
    ).fetchall()
    newest = max((turn for _, turn, _ in rows), default=0)
    own = next(((turn, number) for run, turn, number in rows if run == batch.run), None)
    turn, last = own if own is not None else (newest + 1, -1)
    if turn < newest:
        raise WriterFenced(stream=stream, writer=batch.name)
    if batch.batch <= last:
        return False
    tx.execute(
        "INSERT INTO sink (stream_id, name, run, turn, batch, offsets) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET batch = excluded.batch, offsets = excluded.offsets",
        (stream_id, batch.name, batch.run, turn, batch.batch, batch.offsets),
    )
    return True


def find_sink_batch(tx: Tx, stream_id: int, name: str) -> SinkBatch | None:
    """Return the last batch that the newest run of a sink wrote to the stream. One look-up."""
    row = tx.execute(
        "SELECT name, run, batch, offsets FROM sink WHERE stream_id = ? AND name = ? ORDER BY turn DESC LIMIT 1",
        (stream_id, name),
    ).fetchone()
    return None if row is None else SinkBatch(*row)


def append_files(tx: Tx, folder: Path, stream: str, stream_id: int, files: Sequence[SinkFile]) -> None:
    """Make the events of the files readable, in order, at the tails of their segments.

    Raises SegmentSealed (route anew), NotFound, CorruptRecord when a file is not there as it was written; then nothing
    changed. Cost: a look-up a segment; a row a file, a record batch and a stretch, about 10 us each.
    """
    flush_appends(tx, stream_id)
    tails: dict[SegmentId, SegmentTail] = {}
    extents: list[tuple[SqlValue, ...]] = []
    for file in files:
        verify_file(folder / file.path, file.bytes)
        chunk = tx.execute(
            "INSERT INTO chunk (stream_id, start, length, first_number, count, path, bytes, checksum)"
            " VALUES (?, 0, ?, 0, ?, ?, ?, ?)",
            (stream_id, file.length, file.count, file.path, file.bytes, file.checksum),
        ).lastrowid
        assert chunk is not None, "an insert has a row id"
        for batch in file.batches:
            blob = insert_file_blob(tx, stream_id, chunk, batch.places)
            for each in batch.stretches:
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


def verify_file(path: Path, size_bytes: int) -> None:
    """Raise CorruptRecord unless a file of a sink is there, with so many bytes."""
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        reason = "it is not there: a day after it was written it counts as left behind"
        raise CorruptRecord(key=f"file {path} of a sink", reason=reason) from None
    if found != size_bytes:
        raise CorruptRecord(key=f"file {path} of a sink", reason=f"it has {found} bytes, not {size_bytes}")
