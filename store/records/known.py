"""What stored bodies mean, for kinds whose values nobody changes.

A value is a function of its body alone. So one that was decoded, or encoded, can be given out again while the same
body is stored, whoever stored it and whatever became of the transaction. Measured: decoding a stream takes 10 us, and
a scale asks for it in two transactions.
"""

from __future__ import annotations

from typing import Final

VALUES_KNOWN_MAX: Final = 4_096
"""Values kept, about 1 kB each. More helps who works on many streams by turns; it is memory."""


class KnownValues:
    """Bodies and their values by (name of the kind, key); the first to come is the first to go. For one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[bytes, object]] = {}

    def find(self, kind: str, key: str, body: bytes) -> object | None:
        """Return the value of exactly this body, or None when it is not known."""
        known = self._known.get((kind, key))
        return known[1] if known is not None and known[0] == body else None

    def keep(self, kind: str, key: str, body: bytes, value: object) -> None:
        """Keep the value of a body, instead of what was known under the key."""
        if (kind, key) not in self._known and len(self._known) >= VALUES_KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[kind, key] = body, value
