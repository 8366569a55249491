"""The rules of transactions: states, leases, what a ping answers. Pure.

A transaction is open until its writer, its timer or the seal of its stream decides it. The decision is final, and is
carried out later: committing becomes committed, aborting becomes aborted. Only a person can revert a decision, by
giving up a commit that fails repeatedly. The self-loops let a caller repeat a decision if it does not know whether the
first call succeeded.
Source: reference pravega.md 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import sqrt
from types import MappingProxyType
from typing import Final

from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.errors import IllegalTransition
from eventproc.store.model.limits import (
    EXECUTION_MS_MAX,
    EXECUTION_PER_LEASE_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
)


class TxnState(StrEnum):
    """What may happen to a transaction now."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"

    @property
    def is_final(self) -> bool:
        """Whether the state can no longer change."""
        return self in (TxnState.COMMITTED, TxnState.ABORTED)


class TxnEvent(StrEnum):
    """What happens to a transaction: the verb decides, the participle ends what was decided.

    GIVE_UP: a person aborts a transaction whose decided commit cannot be carried out.
    """

    COMMIT = "commit"
    COMMITTED = "committed"
    ABORT = "abort"
    ABORTED = "aborted"
    GIVE_UP = "give up"


class PingResult(StrEnum):
    """The answer to a ping. Pravega's DISCONNECTED (no timer runs) has no meaning here: the lease is stored with its
    transaction, so the next host enforces it."""

    OK = "ok"
    LEASE_TOO_LARGE = "lease_too_large"
    MAX_EXECUTION_TIME_EXCEEDED = "max_execution_time_exceeded"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


TXN_NEXT: Final[Mapping[TxnState, Mapping[TxnEvent, TxnState]]] = MappingProxyType(
    {
        TxnState.OPEN: MappingProxyType(
            {TxnEvent.COMMIT: TxnState.COMMITTING, TxnEvent.ABORT: TxnState.ABORTING}
        ),
        TxnState.COMMITTING: MappingProxyType(
            {
                TxnEvent.COMMIT: TxnState.COMMITTING,
                TxnEvent.COMMITTED: TxnState.COMMITTED,
                TxnEvent.GIVE_UP: TxnState.ABORTING,
            }
        ),
        TxnState.COMMITTED: MappingProxyType({TxnEvent.COMMIT: TxnState.COMMITTED}),
        TxnState.ABORTING: MappingProxyType(
            {TxnEvent.ABORT: TxnState.ABORTING, TxnEvent.ABORTED: TxnState.ABORTED}
        ),
        TxnState.ABORTED: MappingProxyType({TxnEvent.ABORT: TxnState.ABORTED}),
    }
)
"""All legal transitions of a transaction; all others are refused."""


def advance_txn(state: TxnState, event: TxnEvent, *, name: str = "") -> TxnState:
    """Return the state of a transaction after `event`; `name` is for the error's text. Raises IllegalTransition."""
    try:
        return TXN_NEXT[state][event]
    except KeyError:
        raise IllegalTransition(state=state.value, event=event.value, name=name) from None


def check_lease(lease_ms: int | None) -> int | None:
    """Return a valid lease; None lasts as long as the process of the transaction lives. Raises InvalidArgument."""
    if lease_ms is None:
        return None
    return check_int("lease_ms", lease_ms, least=LEASE_MS_MIN, most=LEASE_MS_MAX, unit="ms")


def execution_ms(lease_ms: int) -> int:
    """Return how long a transaction that begins with this lease may stay open, however often it is pinged."""
    return min(EXECUTION_PER_LEASE_MAX * lease_ms, EXECUTION_MS_MAX)


def ping_interval_ms(lease_ms: int) -> int:
    """Return how often its owner should ping: twice in a short lease, ten times in one of 100 s.

    As Pravega's clients do, lease / sqrt(lease in seconds), except for leases shorter than theirs can be.
    """
    return round(lease_ms / max(2.0, sqrt(lease_ms / 1000)))


def judge_ping(
    state: TxnState | None, *, lease_ms: int | None, now_ms: int, execution_until_ms: int | None
) -> PingResult:
    """Return the answer to a ping; only OK extends the lease.

    state: None if the transaction is unknown or was forgotten.
    lease_ms: as requested; None lasts as long as the process lives.
    now_ms, execution_until_ms: monotonic, of one boot; the latter None if its time is not limited.
    """
    match state:
        case None:
            return PingResult.UNKNOWN
        case TxnState.COMMITTING | TxnState.COMMITTED:
            return PingResult.COMMITTED
        case TxnState.ABORTING | TxnState.ABORTED:
            return PingResult.ABORTED
        case TxnState.OPEN:
            pass
    if lease_ms is not None and lease_ms > LEASE_MS_MAX:
        return PingResult.LEASE_TOO_LARGE
    if execution_until_ms is not None and now_ms + (lease_ms or 0) > execution_until_ms:
        return PingResult.MAX_EXECUTION_TIME_EXCEEDED
    return PingResult.OK
