"""Seal a stream: all active segments end where they are, in one transaction.

Semantics: pravega.md 3.6. Sealing a sealed stream is what was asked for.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import STREAM, current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.states import StreamEvent, StreamState, advance
from eventproc.store.records import replace
from eventproc.store.segments import seal_segments
from eventproc.workflows.requests import SealStream


def check(tx: Tx, request: SealStream) -> bool:
    """Return whether the stream is sealed already. Raises NotFound, StreamReplaced."""
    stream = get_stream(tx, request.stream, stream_id=request.stream_id).value
    return stream.state is StreamState.SEALED


def apply(tx: Tx, request: SealStream, request_id: str) -> bool:
    """Seal the stream. One step."""
    before = get_stream(tx, request.stream, stream_id=request.stream_id)
    if before.value.state is StreamState.SEALED:
        return True
    sealing = advance(before.value.state, StreamEvent.SEAL, name=request.stream)
    seal_segments(tx, request.stream_id, current_epoch(tx, before.value).ids, sealed_epoch=None)
    sealed = advance(sealing, StreamEvent.SEALED, name=request.stream)
    replace(tx, STREAM, before, attrs.evolve(before.value, state=sealed))
    return True
