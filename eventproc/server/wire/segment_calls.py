"""What the segment store does to segments, as functions of a transaction: set up, append, stage, look, read."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from eventproc.server.wire.byte_streams import (
    WireState,
    event_of_offset,
    note_head,
    offset_of_next_block,
    read_wire_bytes,
    wire_state,
)
from eventproc.server.wire.commands import NO_EVENT_NUMBER, NO_VALUE, REPLACE_IF_EQUALS, MergeSegments
from eventproc.server.wire.segment_names import WireSegment
from eventproc.server.writable_streams import verify_writable
from eventproc.store.catalog import StoredHistory, find_stream, get_stream, head_offsets
from eventproc.store.client_logs import CLIENT_SEGMENT, find_client_log, truncate_client_log
from eventproc.store.database import Database, Tx
from eventproc.store.marks import is_unmarked, marked_stream
from eventproc.store.model.argument_checks import INT_MAX, invalid_argument
from eventproc.store.model.errors import IllegalTransition, NotFound, SegmentSealed, TransactionAborted
from eventproc.store.model.ids import format_segment
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import (
    EncodedBlock,
    SegmentEvents,
    WriterSequence,
    append,
    last_sequence,
    segment_state,
)
from eventproc.store.segments.attributes import find_attribute, set_attribute
from eventproc.store.transactions import get_txn, last_staged_sequence, stage
from eventproc.store.transactions.staging import flush_staging, staged_totals
from eventproc.streams.request_calls import run_request
from eventproc.workflows.requests import TruncateStream

_EMPTY: Final = WireState(0, 0, sealed=False, is_bytes=False)


@attrs.define
class WireWriter:
    """A writer of one segment, as its connection knows it.

    name: that of the table `writer`. last: sequence of its last durable event, which is the event's number + 1.
    """

    target: WireSegment
    stream_id: int
    name: str
    last: int


@attrs.frozen
class SegmentBytes:
    """Bytes of a segment from an offset on. data: empty at the tail. state: how far the segment goes."""

    stream_id: int
    state: WireState
    offset: int
    data: bytes

    @property
    def reaches_tail(self) -> bool:
        """Whether nothing follows."""
        return self.offset + len(self.data) == self.state.tail


def find_stream_id(tx: Tx, target: WireSegment) -> int:
    """Return the id of the segment's stream, or of a log of clients. Raises NotFound."""
    found = find_stream(tx, target.stream)
    return _log_id(tx, target) if found is None else found.value.stream_id


def find_writable_stream_id(tx: Tx, target: WireSegment) -> int:
    """Return the id as `find_stream_id`, if clients may write there. Raises NotFound, InvalidArgument."""
    if (found := find_stream(tx, target.stream)) is None:
        if marked_stream(target.stream) is not None:
            raise invalid_argument("segment", target.stream, "only the controller writes marks of time")
        return _log_id(tx, target)
    verify_writable(found.value)
    return found.value.stream_id


def _log_id(tx: Tx, target: WireSegment) -> int:
    log = find_client_log(tx, target.stream)
    if log is None or target.txn is not None:
        raise NotFound(kind="stream", name=target.stream)
    return log


def set_up_writer(tx: Tx, target: WireSegment, writer: bytes) -> WireWriter:
    """Return the writer with its last sequence. Call it in a write, which orders it with appends.

    Raises NotFound, and InvalidArgument for a stream that clients may not write.
    """
    stream_id, segment = find_writable_stream_id(tx, target), format_segment(target.segment)
    name = _writer_name(target, writer.hex())
    if target.txn is None:
        if segment_state(tx, stream_id, target.segment) is None:
            raise NotFound(kind="segment", name=f"{target.stream} {segment}")
        return WireWriter(target, stream_id, name, last_sequence(tx, stream_id, name))
    _verify_segment_of_txn(tx, target, target.txn)
    try:
        last = last_staged_sequence(tx, target.stream, stream_id, target.txn, name)
    except (TransactionAborted, IllegalTransition):
        last = 0  # a client that has not heard of the decision would ask without end; its append is refused
    return WireWriter(target, stream_id, name, last)


def append_block(tx: Tx, writer: WireWriter, events: EncodedBlock, sequence: int) -> int:
    """Append or stage a block that ends with this sequence; return the length of the segment.

    Raises SegmentSealed, NotFound, WriterFenced, TransactionAborted, IllegalTransition.
    """
    identity = WriterSequence(writer.name, sequence, after=writer.last)
    return _append(tx, writer.target, writer.stream_id, events, identity, None)


def append_at(tx: Tx, writer: WireWriter, events: EncodedBlock, sequence: int, offset: int) -> int:
    """Append a block if the segment ends at `offset`. Raises OffsetConflict, and what `append_block` raises."""
    identity = WriterSequence(writer.name, sequence, after=writer.last)
    return _append(tx, writer.target, writer.stream_id, events, identity, offset)


def append_bytes(tx: Tx, writer: WireWriter, events: EncodedBlock, sequence: int, offset: int) -> int:
    """Append the block of a byte stream if its payloads end at `offset`; return where they end then.

    Raises OffsetConflict, what `append_block` raises, and InvalidArgument for a segment that holds events of others and
    for a transaction.
    """
    if writer.target.txn is not None:
        raise invalid_argument("segment", writer.target.stream, "transactions hold events, not bytes")
    identity = WriterSequence(writer.name, sequence, after=writer.last)
    at = offset_of_next_block(tx, writer.target, writer.stream_id, offset)
    _append(tx, writer.target, writer.stream_id, events, identity, at)
    return offset + events.size_bytes - FRAME_BYTES


def get_attribute(tx: Tx, target: WireSegment, attribute: bytes) -> int:
    """Return an attribute of a segment; NO_VALUE if it was never set. Raises NotFound."""
    stream_id = find_stream_id(tx, target)
    wire_state(tx, target, stream_id)
    found = find_attribute(tx, stream_id, target.segment, attribute)
    return NO_VALUE if found is None else found


def compare_and_set_attribute(
    tx: Tx, target: WireSegment, attribute: bytes, expected: int, value: int
) -> bool:
    """Set an attribute if it has the expected value; return whether it did.

    Raises NotFound, SegmentSealed, and InvalidArgument for a stream that clients may not write.
    """
    stream_id = find_writable_stream_id(tx, target)
    if wire_state(tx, target, stream_id).sealed:
        raise SegmentSealed(stream=target.stream, segment=format_segment(target.segment))
    found = find_attribute(tx, stream_id, target.segment, attribute)
    if (NO_VALUE if found is None else found) != expected:
        return False
    set_attribute(tx, stream_id, target.segment, attribute, value)
    return True


def merge_identity(target: WireSegment, command: MergeSegments) -> WriterSequence | None:
    """Return what makes a merge idempotent; None for conditions that are not served.

    A condition is the event number of a writer, as for appends. Without one, the name of the transient segment is the
    writer, and the merge its only append.
    """
    if not command.attributes:
        return WriterSequence(_writer_name(target, command.source.rpartition(".")[2]), 1)
    attribute, *more = command.attributes
    if more or attribute.kind != REPLACE_IF_EQUALS or not 0 <= attribute.new < INT_MAX:
        return None
    after = 0 if attribute.old == NO_EVENT_NUMBER else attribute.old + 1
    return WriterSequence(_writer_name(target, attribute.id.hex()), attribute.new + 1, after=after)


def append_merged(tx: Tx, target: WireSegment, events: EncodedBlock | None, identity: WriterSequence) -> int:
    """Append or stage what a client collected in a transient segment; return the length of the segment.

    events: None if the transient segment is gone, since it was merged or its connection ended.
    Raises what `append_block` raises, and InvalidArgument for a stream that clients may not write; WriterFenced if
    the condition of `identity` does not hold; NotFound with kind "transient segment" if it is gone and was not merged.
    """
    stream_id = find_writable_stream_id(tx, target)
    if target.txn is not None:
        _verify_segment_of_txn(tx, target, target.txn)
    if _last_sequence(tx, target, stream_id, identity.writer) == identity.sequence:
        return _length(tx, target, stream_id)
    if events is None:
        raise NotFound(kind="transient segment", name=f"{target.stream} {identity.writer}")
    return _append(tx, target, stream_id, events, identity, None)


def _verify_segment_of_txn(tx: Tx, target: WireSegment, txn_id: str) -> None:
    """Raise NotFound unless the transaction exists, and its epoch has the segment: its events belong to that range."""
    stream = get_stream(tx, target.stream).value
    epoch = get_txn(tx, stream.stream_id, txn_id).epoch
    StoredHistory(tx, stream).epoch(epoch).segment(target.segment, stream=stream.name)


def _writer_name(target: WireSegment, writer: str) -> str:
    return f"{format_segment(target.segment)}/{writer}"


def _last_sequence(tx: Tx, target: WireSegment, stream_id: int, writer: str) -> int:
    if target.txn is None:
        return last_sequence(tx, stream_id, writer)
    return last_staged_sequence(tx, target.stream, stream_id, target.txn, writer)


def _length(tx: Tx, target: WireSegment, stream_id: int) -> int:
    if target.txn is not None:
        flush_staging(tx)
        return staged_totals(tx, stream_id, target.txn).size_bytes
    return wire_state(tx, target, stream_id).tail


def _append(
    tx: Tx,
    target: WireSegment,
    stream_id: int,
    events: EncodedBlock,
    identity: WriterSequence | None,
    offset: int | None,
) -> int:
    part = SegmentEvents(target.segment, events)
    if target.txn is not None:
        stage(tx, target.stream, stream_id, target.txn, [part], identity=identity, bound=True)
        return events.size_bytes
    (done,) = append(tx, target.stream, stream_id, [part], identity=identity, expected_offset=offset)
    return done.offset + events.size_bytes


def look_at_segment(tx: Tx, target: WireSegment) -> WireState:
    """Return how far the segment goes: the marks of a stream that has none are empty. Raises NotFound."""
    if target.segment == CLIENT_SEGMENT and target.txn is None and is_unmarked(tx, target.stream):
        return _EMPTY
    return wire_state(tx, target, find_stream_id(tx, target))


def read_segment(tx: Tx, target: WireSegment, offset: int, bytes_max: int) -> SegmentBytes:
    """Return bytes from `offset` on, none if it is outside of [head, tail). Raises NotFound."""
    stream_id = find_stream_id(tx, target)
    state = wire_state(tx, target, stream_id)
    data = b""
    if state.head <= offset < state.tail:
        data = read_wire_bytes(tx, target, stream_id, offset, bytes_max)
    return SegmentBytes(stream_id, state, offset, data)


async def truncate_segment(db: Database, target: WireSegment, offset: int) -> None:
    """Move the head of the stream to `offset` in this segment; inside an event, to the event's beginning.

    A byte stream begins at the offset for clients, and its block is freed when it has passed the whole of it. An offset
    before the head changes nothing. Raises NotFound, and the refusals of `Stream.truncate`.
    """
    if await db.read(partial(find_client_log, name=target.stream)) is not None:
        await db.write(partial(_truncate_log, target=target, offset=offset))
    elif (request := await db.read(partial(_request, target=target, offset=offset))) is not None:
        await run_request(db, request)
        # The head for clients moves last: after a refusal, or a death before this, the client finds it where it was.
        if (await db.read(partial(look_at_segment, target=target))).is_bytes:
            await db.write(partial(note_head, target=target, stream_id=request.stream_id, offset=offset))


def _truncate_log(tx: Tx, target: WireSegment, offset: int) -> None:
    if offset > look_at_segment(tx, target).head:
        truncate_client_log(
            tx, target.stream, event_of_offset(tx, target, find_writable_stream_id(tx, target), offset)
        )


def _request(tx: Tx, target: WireSegment, offset: int) -> TruncateStream | None:
    state = look_at_segment(tx, target)
    if offset <= state.head:
        return None
    stream = get_stream(tx, target.stream).value
    boundary = event_of_offset(tx, target, stream.stream_id, offset)
    offsets = head_offsets(tx, stream) | {target.segment: boundary}
    return TruncateStream(stream.name, stream.stream_id, offsets)
