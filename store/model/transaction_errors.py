"""Errors of transactions."""

from __future__ import annotations

from eventproc.store.model.advice import Rejected, Retryable, error
from eventproc.store.model.errors import NotFound


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


@error
class TransactionDecided(Rejected):
    """The transaction was decided already, and takes no events and no other decision."""

    stream: str
    txn: str
    state: str
    event: str

    def __str__(self) -> str:
        now = f"{self.stream}: transaction {self.txn} is {self.state}"
        if self.event == "abort":
            return f"{now}: what is committed cannot be taken back"
        return f"{now}: {self.event} is not possible any more; begin a new one"


@error
class TransactionNotFound(NotFound):
    """No transaction of the stream has that id (any more)."""

    stream: str

    def __str__(self) -> str:
        return (
            f"{self.stream} has no transaction {self.name!r}: it never began, or ended more than a day ago; "
            f"`eventproc txn list {self.stream} --finished` shows which there are"
        )


@error
class TransactionPending(Retryable):
    """The wait ended before the commit did. It is decided: it will be done, and may be waited for again.

    failure: how its commit failed, if it did; then it is a person who has to look.
    """

    stream: str
    txn: str
    waited_ms: int
    failure: str | None = None

    def __str__(self) -> str:
        if self.failure is not None:
            return (
                f"{self.stream}: transaction {self.txn} is decided, but its commit fails ({self.failure}), and is tried"
                f" again; `eventproc txn abort --force {self.stream} {self.txn}` gives it up"
            )
        return (
            f"{self.stream}: transaction {self.txn} is decided, but not visible after {self.waited_ms / 1000:.1f} s; "
            f"it will be. Wait again with `eventproc txn commit {self.stream} {self.txn}`"
        )
