"""Attributes of a segment: numbers under 16-byte ids, which Pravega's clients set and compare."""

from __future__ import annotations

from typing import Final

from eventproc.store.database import Tx, find_number, upsert
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.ids import SegmentId

CLIENT_ID_BYTES: Final = 16
"""Length of the ids of clients. Ids of the server have other lengths."""

ATTRIBUTES_MAX: Final = 1_000
"""Attributes that clients may set on one segment. Clients use a few. Higher: more rows that no truncation frees."""


def find_attribute(tx: Tx, stream_id: int, segment: SegmentId, attribute: bytes) -> int | None:
    """Return the value of an attribute; None if it was never set. One look-up."""
    query = "SELECT value FROM attribute WHERE stream_id = ? AND segment = ? AND id = ?"
    return find_number(tx, query, stream_id, segment, attribute)


def set_attribute(tx: Tx, stream_id: int, segment: SegmentId, attribute: bytes, value: int) -> None:
    """Set an attribute of a segment, which must exist. Raises InvalidArgument if clients set too many."""
    (count,) = tx.execute(
        "SELECT count(*) FROM attribute WHERE stream_id = ? AND segment = ? AND id <> ? AND length(id) = ?",
        (stream_id, segment, attribute, CLIENT_ID_BYTES),
    ).fetchone()
    if count >= ATTRIBUTES_MAX and len(attribute) == CLIENT_ID_BYTES:
        raise invalid_argument("attribute", attribute.hex(), f"a segment has at most {ATTRIBUTES_MAX:,}")
    tx.execute(
        upsert("attribute", "stream_id, segment, id", "value"),
        (stream_id, segment, attribute, value),
    )
