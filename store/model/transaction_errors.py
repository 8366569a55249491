"""Errors of transactions."""

from __future__ import annotations

from eventproc.store.model.advice import Rejected, Retryable, error


@error
class TransactionAborted(Rejected):
    """The transaction was aborted, or is being: none of its events will ever be seen."""

    stream: str
    txn: str
    reason: str

    def __str__(self) -> str:
        return f"{self.stream}: transaction {self.txn} was aborted ({self.reason}); begin a new one"


@error
class CommitsPending(Retryable):
    """Something that has to wait until the stream's decided transactions are committed."""

    stream: str
    stream_id: int
    event: str

    def __str__(self) -> str:
        return f"{self.stream}: {self.event} waits until its decided transactions are committed"
