"""What stored bodies mean, for kinds whose values nobody changes.

A value is a function of its body alone. So one that was decoded, or encoded, can be given out again while the same
body is stored, whoever stored it and whatever became of the transaction. Measured: decoding a stream takes 10 us, and
a scale asks for it in two transactions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from eventproc.store.database import SharedSlot

CACHED_RECORDS_MAX: Final = 4_096
"""Values kept, about 1 kB each. More helps who works on many streams by turns; it is memory."""

BODY_BYTES_MAX: Final = 1_024
"""Longest body that is kept, for its value takes several times as much: that of a truncated stream of many segments
is decoded each time."""


class RecordCache:
    """Bodies and their values by (name of the kind, key); the first to come is the first to go.

    Used by writing transactions, on the writer's thread; a read has one of its own, and so no profit.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[bytes, object]] = OrderedDict()

    def find(self, kind: str, key: str, body: bytes) -> object | None:
        """Return the value of exactly this body, or None when it is not known."""
        known = self._known.get((kind, key))
        return known[1] if known is not None and known[0] == body else None

    def keep(self, kind: str, key: str, body: bytes, value: object) -> None:
        """Keep the value of a body, instead of what was known under the key; not that of a long one."""
        if len(body) > BODY_BYTES_MAX:
            self._known.pop((kind, key), None)
            return
        self._known[kind, key] = body, value
        if len(self._known) > CACHED_RECORDS_MAX:
            self._known.popitem(last=False)


RECORD_CACHE: Final = SharedSlot(RecordCache)
