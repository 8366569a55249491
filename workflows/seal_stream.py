"""Seal a stream: all active segments end at their present tails.

Semantics: pravega.md 3.6. For a sealed stream there is nothing to do. Open transactions are aborted. Decided ones
finish first: the first step leaves the stream in SEALING, which refuses new work, and the last step waits for them.
Without decided transactions the seal is one step.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import STREAM, current_epoch, forget_routes, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.errors import CommitsPending
from eventproc.store.model.states import StreamEvent, StreamState, advance
from eventproc.store.records import replace
from eventproc.store.segments import seal_segments
from eventproc.store.transactions import abort_open, has_decided
from eventproc.workflows.requests import SealStream

REASON: Final = "its stream is sealed"
"""Reason of the abort of open transactions."""


def check(tx: Tx, request: SealStream) -> bool:
    """Return whether the stream is sealed already. Raises NotFound, StreamReplaced."""
    stream = get_stream(tx, request.stream, stream_id=request.stream_id).value
    return stream.state is StreamState.SEALED


def apply(tx: Tx, request: SealStream, request_id: str) -> bool:
    """Do one step; return whether it was the last. Raises CommitsPending before any change."""
    before = get_stream(tx, request.stream, stream_id=request.stream_id)
    if before.value.state is StreamState.SEALED:
        return True
    forget_routes(tx, request.stream_id)
    sealing = advance(before.value.state, StreamEvent.SEAL, name=request.stream)
    if has_decided(tx, request.stream_id):
        if before.value.state is StreamState.SEALING:
            raise CommitsPending(stream=request.stream, stream_id=request.stream_id, event="its seal")
        abort_open(tx, request.stream, request.stream_id, reason=REASON)
        replace(tx, STREAM, before, attrs.evolve(before.value, state=sealing))
        return False
    abort_open(tx, request.stream, request.stream_id, reason=REASON)
    seal_segments(
        tx, request.stream, request.stream_id, current_epoch(tx, before.value).ids, sealed_epoch=None
    )
    sealed = advance(sealing, StreamEvent.SEALED, name=request.stream)
    replace(tx, STREAM, before, attrs.evolve(before.value, state=sealed))
    return True
