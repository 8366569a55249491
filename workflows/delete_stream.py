"""Delete a sealed stream: its name is removed in one transaction, its bytes are freed later.

Semantics: pravega.md 3.7. Rows carry the stream's id, so the remaining rows are unreachable immediately, also for a new
stream of the same name. The sweep frees them in steps.
"""

from __future__ import annotations

from eventproc.store.catalog import STREAM, change_tags, forget_routes, get_stream, note_change
from eventproc.store.database import Tx
from eventproc.store.jobs import cancel_jobs_of
from eventproc.store.model.errors import StreamNotSealed
from eventproc.store.model.states import StreamEvent, StreamState, advance
from eventproc.store.records import delete
from eventproc.store.segments import delete_segments
from eventproc.store.segments.event_storage import drop_storage
from eventproc.workflows.requests import DeleteStream


def check(tx: Tx, request: DeleteStream) -> bool:
    """Return False. Raises NotFound, StreamReplaced, StreamNotSealed."""
    stream = get_stream(tx, request.stream, stream_id=request.stream_id).value
    if stream.state is not StreamState.SEALED:
        raise StreamNotSealed(stream=request.stream)
    return False


def apply(tx: Tx, request: DeleteStream, request_id: str) -> bool:
    """Remove the stream. One step. A request for an older incarnation is refused (StreamReplaced)."""
    from eventproc.store.marks import delete_marks  # few programs need it

    check(tx, request)
    found = get_stream(tx, request.stream, stream_id=request.stream_id)
    advance(found.value.state, StreamEvent.DELETE, name=request.stream)
    delete(tx, STREAM, found)
    change_tags(tx, request.stream, found.value.config.tags, ())
    note_change(tx)
    forget_routes(tx, request.stream_id)
    drop_storage(tx, request.stream_id)
    delete_segments(tx, request.stream, request.stream_id)
    delete_marks(tx, request.stream)
    cancel_jobs_of(tx, request.stream)
    return True
