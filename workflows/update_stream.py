"""Replace a stream's configuration. With a fixed policy the number of segments changes in the same transaction.

Semantics: pravega.md 3.2. If the number differs, all active segments are sealed, and the new number of segments is
opened with equal key ranges. The update and its scale are one transaction, so the scale cannot be half done.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import STREAM, StreamRecord, current_epoch, get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.model.ranges import initial_ranges
from eventproc.store.model.states import StreamEvent, advance
from eventproc.store.records import replace
from eventproc.workflows.requests import UpdateStream
from eventproc.workflows.scale_stream import open_epoch, plan_epoch


def check(tx: Tx, request: UpdateStream) -> bool:
    """Return whether the stream has this configuration already. Raises NotFound, StreamReplaced, StreamSealed."""
    stream = get_writable_stream(tx, request.stream, stream_id=request.stream_id).value
    return stream.config == request.config and not _count_differs(tx, stream, request)


def apply(tx: Tx, request: UpdateStream, request_id: str) -> bool:
    """Store the configuration, and open an epoch with the new number of segments if it differs. One step."""
    before = get_writable_stream(tx, request.stream, stream_id=request.stream_id)
    stream = attrs.evolve(before.value, config=request.config)
    updating = advance(stream.state, StreamEvent.UPDATE, name=request.stream)
    if _count_differs(tx, stream, request):
        wanted = request.config.scaling.segments_min
        seal = current_epoch(tx, stream).ids
        epoch = plan_epoch(tx, stream, seal=seal, ranges=initial_ranges(wanted), request_id=request_id)
        stream = attrs.evolve(stream, epoch=open_epoch(tx, stream, epoch, seal=seal).number)
    updated = advance(updating, StreamEvent.UPDATED, name=request.stream)
    replace(tx, STREAM, before, attrs.evolve(stream, state=updated))
    return True


def _count_differs(tx: Tx, stream: StreamRecord, request: UpdateStream) -> bool:
    # A fixed policy is a count, not a minimum: pravega.md 3.2, "segment count fix-up".
    return len(current_epoch(tx, stream).segments) != request.config.scaling.segments_min
