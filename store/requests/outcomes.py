"""Outcomes on their way to who waits for them in this process, without a read.

Memory of one opening of a database: it holds what somebody expects, from the commit that wrote the outcome until
the waiter takes it. What another process finishes never comes here; its waiter is woken by the bell and reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.errors import EventprocError


@attrs.frozen
class Outcome:
    """How a request ended.

    error: why it was rejected, None when it is done. result: what the workflow made, if it said so.
    """

    error: EventprocError | None
    finished_ms: int
    result: object = None


class Outcomes:
    """Expected outcomes by request id. On the event loop only."""

    def __init__(self) -> None:
        self._expected: Counter[str] = Counter()
        self._known: dict[str, Outcome] = {}
        self._results: dict[str, object] = {}

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
                self._results.pop(request_id, None)

    def note_result(self, request_id: str, result: object) -> None:
        """Keep what a workflow made until its outcome is delivered; an effect of the same transaction."""
        if request_id in self._expected:
            self._results[request_id] = result

    def deliver(self, request_id: str, outcome: Outcome) -> None:
        """Note an outcome that is durable now; an effect of the transaction that wrote it."""
        if request_id in self._expected:
            self._known[request_id] = attrs.evolve(outcome, result=self._results.get(request_id))

    def find(self, request_id: str) -> Outcome | None:
        """Return an expected outcome, None while it is not known here."""
        return self._known.get(request_id)


def note_result(tx: Tx, request_id: str, result: object) -> None:
    """Say what the request's workflow made: saves who waits for it in this process the read to find out.

    Not stored: whoever learns of the outcome in another way looks.
    """
    tx.after(partial(tx.shared.get(Outcomes).note_result, request_id, result))
