"""Cache of decoded values, for kinds with immutable values.

A value depends only on its body. So a decoded or encoded value may be reused while the same body is stored, even if the
transaction that stored it was rolled back. Measured: decoding a stream takes 10 us, and a scale needs it in two
transactions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from eventproc.store.database import SharedSlot

CACHED_RECORDS_MAX: Final = 4_096
"""Values kept, about 1 kB each. Raise it if a process alternates between more streams."""

BODY_BYTES_MAX: Final = 1_024
"""Longest body that is cached, because its value takes several times as much memory. The record of a truncated stream
with many segments is decoded each time."""


class RecordCache:
    """Bodies and values by (name of the kind, key), oldest entry evicted first.

    Used by writing transactions, on the writer's thread. Every read has its own empty cache, so it does not profit.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[bytes, object]] = OrderedDict()

    def find(self, kind: str, key: str, body: bytes) -> object | None:
        """Return the value of exactly this body, or None if it is not cached."""
        known = self._known.get((kind, key))
        return known[1] if known is not None and known[0] == body else None

    def keep(self, kind: str, key: str, body: bytes, value: object) -> None:
        """Cache the value of a body and replace an older entry of the key. A long body is not cached."""
        if len(body) > BODY_BYTES_MAX:
            self._known.pop((kind, key), None)
            return
        self._known[kind, key] = body, value
        if len(self._known) > CACHED_RECORDS_MAX:
            self._known.popitem(last=False)


RECORD_CACHE: Final = SharedSlot(RecordCache)
