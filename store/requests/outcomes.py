"""Outcomes on their way to who waits for them in this process, without a read.

Memory of one opening of a database: it holds what somebody expects, from the commit that wrote the outcome until
the waiter takes it. What another process finishes never comes here; its waiter is woken by the bell and reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from eventproc.store.model.errors import EventprocError


@attrs.frozen
class Outcome:
    """How a request ended: `error` is why it was rejected, None when it is done."""

    error: EventprocError | None
    finished_ms: int


class Outcomes:
    """Expected outcomes by request id. On the event loop only."""

    def __init__(self) -> None:
        self._expected: Counter[str] = Counter()
        self._known: dict[str, Outcome] = {}

    @contextmanager
    def expecting(self, request_id: str) -> Iterator[None]:
        """Keep the request's outcome, if it is written while the block runs, until the end of the block."""
        self._expected[request_id] += 1
        try:
            yield
        finally:
            self._expected[request_id] -= 1
            if not self._expected[request_id]:
                del self._expected[request_id]
                self._known.pop(request_id, None)

    def deliver(self, request_id: str, outcome: Outcome) -> None:
        """Note an outcome that is durable now; an effect of the transaction that wrote it."""
        if request_id in self._expected:
            self._known[request_id] = outcome

    def find(self, request_id: str) -> Outcome | None:
        """Return an expected outcome, None while it is not known here."""
        return self._known.get(request_id)
