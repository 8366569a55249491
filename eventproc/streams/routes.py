"""Where a writer stands on its stream: the epoch that routes its events, and how far its name has come."""

from __future__ import annotations

from eventproc.store.catalog import current_epoch, get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch
from eventproc.store.segments import last_sequence


def find_route(tx: Tx, stream: str, stream_id: int, writer: str | None) -> tuple[Epoch, int]:
    """Return the current epoch of the stream, and the last sequence of the writer's name on it; 0 without a name.

    Raises StreamSealed when nothing can be written any more, NotFound, StreamReplaced. Three look-ups.
    """
    found = get_writable_stream(tx, stream, stream_id=stream_id).value
    sequence = 0 if writer is None else last_sequence(tx, stream_id, writer)
    return current_epoch(tx, found), sequence
