"""Scale a stream: seal active segments, open others over the same key space, in one transaction.

Semantics: pravega.md 3.3 and 1.10. Every refusal is decided twice, at submit and when the workflow runs,
by the same pure function: an epoch opened in between makes the second one refuse, and changes nothing.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import STREAM, current_epoch, get_writable_stream
from eventproc.store.database import Tx
from eventproc.store.model.epochs import verify_scale
from eventproc.store.model.states import StreamEvent, advance
from eventproc.store.records import replace
from eventproc.store.requests import note_result
from eventproc.workflows.epochs import open_epoch, plan_epoch
from eventproc.workflows.requests import ScaleStream


def check(tx: Tx, request: ScaleStream) -> bool:
    """Return False: a scale is never done already. Raises the refusals of pravega.md 1.10."""
    stream = get_writable_stream(tx, request.stream, stream_id=request.stream_id).value
    verify_scale(
        current_epoch(tx, stream),
        stream=stream.name,
        seal=request.seal,
        ranges=request.ranges,
        segments_min=stream.config.scaling.segments_min,
    )
    return False


def apply(tx: Tx, request: ScaleStream, request_id: str) -> bool:
    """Publish the next epoch. One step."""
    before = get_writable_stream(tx, request.stream, stream_id=request.stream_id)
    epoch = plan_epoch(tx, before.value, seal=request.seal, ranges=request.ranges, request_id=request_id)
    scaling = advance(before.value.state, StreamEvent.SCALE, name=request.stream)
    epoch = open_epoch(tx, before.value, epoch, seal=request.seal)
    scaled = advance(scaling, StreamEvent.SCALED, name=request.stream)
    replace(tx, STREAM, before, attrs.evolve(before.value, epoch=epoch.number, state=scaled))
    note_result(tx, request_id, epoch)
    return True
