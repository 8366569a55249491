"""Truncating one segment, as a client of the protocol asks for it: the head of its stream moves there."""

from __future__ import annotations

from functools import partial

from eventproc.server.wire.byte_streams import event_of_offset, note_head
from eventproc.server.wire.segment_calls import look_at_segment
from eventproc.server.wire.segment_names import WireSegment
from eventproc.store.catalog import get_stream, head_offsets
from eventproc.store.database import Database, Tx
from eventproc.streams.request_calls import run_request
from eventproc.workflows.requests import TruncateStream


async def truncate_segment(db: Database, target: WireSegment, offset: int) -> None:
    """Move the head of the stream to `offset` in this segment; inside an event, to the event's beginning.

    A byte stream begins at the offset for clients, and its block is freed when it has passed the whole of it. An offset
    before the head changes nothing. Raises NotFound, and the refusals of `Stream.truncate`.
    """
    if (request := await db.read(partial(_request, target=target, offset=offset))) is None:
        return
    await run_request(db, request)
    # The head for clients moves last: after a refusal, or a death before this, the client finds it where it was.
    if (await db.read(partial(look_at_segment, target=target))).is_bytes:
        await db.write(partial(note_head, target=target, stream_id=request.stream_id, offset=offset))


def _request(tx: Tx, target: WireSegment, offset: int) -> TruncateStream | None:
    state = look_at_segment(tx, target)
    if offset <= state.head:
        return None
    stream = get_stream(tx, target.stream).value
    boundary = event_of_offset(tx, target, stream.stream_id, offset)
    offsets = head_offsets(tx, stream) | {target.segment: boundary}
    return TruncateStream(stream.name, stream.stream_id, offsets)
