"""Replace a stream's configuration; with a fixed policy the number of segments follows at once.

Semantics: pravega.md 3.2. When the count differs, all active segments give way to equal ranges of the
wanted count, in the same transaction as the configuration: the inline scale cannot be half done.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import STREAM, StreamRecord, current_epoch, get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.model.ranges import initial_ranges
from eventproc.store.model.states import StreamEvent, advance
from eventproc.store.records import replace
from eventproc.workflows.epochs import open_epoch, plan_epoch
from eventproc.workflows.requests import UpdateStream


def check(tx: Tx, request: UpdateStream) -> bool:
    """Return whether the stream is configured so already. Raises NotFound, StreamReplaced, StreamSealed."""
    stream = get_writable_stream(tx, request.stream, stream_id=request.stream_id).value
    return stream.config == request.config and not _count_differs(tx, stream, request)


def apply(tx: Tx, request: UpdateStream, request_id: str) -> bool:
    """Publish the configuration, and the epoch that fits it. One step."""
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
