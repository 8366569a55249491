"""A transaction's state as its handle knows it: decisions, pings, waiting for the end, and errors that name it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NoReturn

from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.faults import Step
from eventproc.store.local_results import LocalResults
from eventproc.store.model.errors import (
    IllegalTransition,
    NotFound,
    TransactionAborted,
    TransactionDecided,
    TransactionNotFound,
    TransactionPending,
)
from eventproc.store.transactions import (
    TXN_OUTCOMES,
    PingResult,
    TxnRecord,
    TxnState,
    find_txn,
    get_txn,
    ping,
    watch_txn,
)
from eventproc.streams.description import TransactionDescription, describe_txn
from eventproc.streams.request_calls import PATIENCE_MS_MAX

LOOK_MS: Final = 20
"""How long to wait for a notice of the commit before reading the database. A commit by this process needs no read."""

_ABORT: Final = frozenset({TxnState.ABORTING, TxnState.ABORTED})


class TxnClient:
    """One transaction as its handle knows it.

    decided: its record when it was first seen decided; None while it is open, as far as is known.
    """

    def __init__(self, db: Database, stream: str, stream_id: int, txn_id: str, *, known: bool) -> None:
        """known: the id was made here; False: a caller passed it, and no such transaction may exist."""
        self.decided: TxnRecord | None = None
        self._known = known
        self._db = db
        self._stream = stream
        self._stream_id = stream_id
        self._txn_id = txn_id

    @property
    def name(self) -> str:
        """The transaction, as a message names it."""
        return f"{self._stream}: transaction {self._txn_id}"

    async def ping(self, lease_ms: int | None = None) -> tuple[PingResult, TxnRecord | None]:
        """Ping; return the answer, and the transaction as it is then."""

        def renew(tx: Tx) -> tuple[PingResult, TxnRecord | None]:
            answer = ping(tx, self._stream_id, self._txn_id, instance=self._db.instance_id, lease_ms=lease_ms)
            return answer, find_txn(tx, self._stream_id, self._txn_id)

        answer, txn = await self._db.write(renew, step=Step.TRANSACTION_PING)
        if txn is not None:
            self.note(txn)
        return answer, txn

    async def look(self) -> TransactionDescription:
        """Return what the database knows. Raises TransactionNotFound."""

        def look(tx: Tx) -> tuple[TxnRecord, TransactionDescription]:
            txn = get_txn(tx, self._stream_id, self._txn_id)
            return txn, describe_txn(tx, txn, self._db.peers)

        with self.explained("status"):
            txn, described = await self._db.read(look)
        self.note(txn)
        return described

    async def verify_known(self) -> None:
        """Check, once, that a transaction of a passed id exists. Raises TransactionNotFound."""
        if not self._known:
            await self.look()
            self._known = True

    @contextmanager
    def watched(self) -> Iterator[Callable[[int], Awaitable[None]]]:
        """Yield a function that waits until the transaction, decided before or in the block, is visible."""
        endings, watch = self._db.shared[TXN_OUTCOMES], watch_txn(self._stream_id, self._txn_id)
        with endings.expecting((self._stream_id, self._txn_id)), self._db.subscribe([watch]) as changes:
            # What happened between an earlier decision and the subscription is only in the database.
            look_ms = LOOK_MS if self.decided is None else 0
            yield partial(self._wait_ended, endings, changes, look_ms)

    async def _wait_ended(
        self,
        endings: LocalResults[tuple[int, str], TxnRecord],
        changes: Subscription,
        pause_ms: int,
        timeout_ms: int,
    ) -> None:
        deadline_ms = self._db.clock.monotonic_ms() + timeout_ms
        # The first change is our own decision. It may hide one by another process, so read the database soon after.
        await changes.wait(0)
        ended = endings.find((self._stream_id, self._txn_id)) or self.decided
        while ended is None or not ended.state.is_final:
            left_ms = max(deadline_ms - self._db.clock.monotonic_ms(), 0)
            await changes.wait(min(left_ms, pause_ms))
            pause_ms = PATIENCE_MS_MAX
            if (ended := endings.find((self._stream_id, self._txn_id))) is None:
                with self.explained("commit"):
                    ended = await self._db.read(lambda tx: get_txn(tx, self._stream_id, self._txn_id))
            if not left_ms and not ended.state.is_final:
                raise TransactionPending(
                    stream=self._stream, txn=self._txn_id, waited_ms=timeout_ms, failure=ended.reason
                )
        self.decided = ended
        self.verify_commit()

    def note(self, txn: TxnRecord) -> None:
        """Remember the transaction if it is decided."""
        if txn.state is not TxnState.OPEN:
            self.decided = txn

    @property
    def is_final(self) -> bool:
        """Whether the transaction is known to be committed or aborted, not only decided."""
        return self.decided is not None and self.decided.state.is_final

    def refuse(self, event: str) -> NoReturn:
        """Raise the error that says why `event` is no longer possible."""
        assert self.decided is not None, "an open transaction refuses nothing"
        if self.decided.state in _ABORT:
            reason = self.decided.reason or ""
            raise TransactionAborted(stream=self._stream, txn=self._txn_id, reason=reason)
        state = self.decided.state.value
        raise TransactionDecided(stream=self._stream, txn=self._txn_id, state=state, event=event)

    def verify_open(self, event: str) -> None:
        """Raise the error that says why `event` is not possible, as far as is known here."""
        if self.decided is not None:
            self.refuse(event)

    def verify_commit(self) -> None:
        """Raise TransactionAborted unless it is decided to commit."""
        if self.decided is None or self.decided.state in _ABORT:
            self.refuse("commit")

    @contextmanager
    def explained(self, event: str) -> Iterator[None]:
        """Turn errors of the store into errors that name the transaction and what to do."""
        try:
            yield
        except NotFound as error:
            if error.kind != "transaction":
                raise
            raise self.not_found() from None
        except IllegalTransition as error:
            raise TransactionDecided(
                stream=self._stream, txn=self._txn_id, state=error.state, event=event
            ) from None

    def not_found(self) -> TransactionNotFound:
        """Return the error of an unknown transaction."""
        return TransactionNotFound(kind="transaction", name=self._txn_id, stream=self._stream)
