"""Outcomes of requests on their way to who waits for them in this process, without a read."""

from __future__ import annotations

from functools import partial

import attrs

from eventproc.store.database import Tx
from eventproc.store.expected import Expected
from eventproc.store.model.errors import EventprocError


@attrs.frozen
class Outcome:
    """How a request ended.

    error: why it was rejected, None when it is done. result: what the workflow made, if it said so.
    """

    error: EventprocError | None
    finished_ms: int
    result: object = None


class Outcomes(Expected[str, Outcome]):
    """Expected outcomes by request id. On the event loop only."""

    def __init__(self) -> None:
        super().__init__()
        self._results: dict[str, object] = {}

    def note_result(self, request_id: str, result: object) -> None:
        """Keep what a workflow made until its outcome is delivered; an effect of the same transaction."""
        if self.wants(request_id):
            self._results[request_id] = result

    def deliver(self, key: str, value: Outcome) -> None:
        """Note an outcome with what the workflow made; an effect of the transaction that wrote it."""
        if self.wants(key):
            result = self._results.pop(key, None)
            super().deliver(key, Outcome(value.error, value.finished_ms, result))


def note_result(tx: Tx, request_id: str, result: object) -> None:
    """Say what the request's workflow made: saves who waits for it in this process the read to find out.

    Not stored: whoever learns of the outcome in another way looks.
    """
    tx.after(partial(tx.shared.get(Outcomes).note_result, request_id, result))
