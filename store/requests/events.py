"""Posting to an internal stream: a row in the transaction that made it necessary."""

from __future__ import annotations

from eventproc.store.catalog import SYSTEM_EPOCH, SystemStream
from eventproc.store.database import Tx
from eventproc.store.model.routing import position
from eventproc.store.segments import EventBlock, SegmentEvents, append


def post(tx: Tx, stream: SystemStream, key: str, payload: bytes) -> None:
    """Append one event to an internal stream, routed by `key`, as part of `tx`.

    It exists exactly when the rest of the transaction does, so that there is no index of posted events,
    no sweeper of lost ones, and no event without its intent.
    """
    where = position(key)
    block = EventBlock(payloads=[payload], keys=[key], positions=[where])
    append(tx, stream.name, stream.stream_id, [SegmentEvents(SYSTEM_EPOCH.find(where).id, block.encode())])
