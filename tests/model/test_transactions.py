"""Leases of transactions: their limits, and what a ping is answered, at the borders."""

from __future__ import annotations

import pytest

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EXECUTION_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN
from eventproc.store.model.transactions import (
    PingResult,
    TxnState,
    check_lease,
    execution_ms,
    judge_ping,
    ping_interval_ms,
)

S = TxnState


@pytest.mark.parametrize("lease_ms", [LEASE_MS_MIN, LEASE_MS_MAX, None])
def test_a_lease_within_its_limits_is_kept(lease_ms: int | None) -> None:
    assert check_lease(lease_ms) == lease_ms


@pytest.mark.parametrize("lease_ms", [LEASE_MS_MIN - 1, LEASE_MS_MAX + 1, 0, -5, 1.5, True, "10"])
def test_a_lease_outside_its_limits_is_refused(lease_ms: int) -> None:
    with pytest.raises(InvalidArgument):
        check_lease(lease_ms)


def test_execution_time_is_a_thousand_leases_and_at_most_a_day() -> None:
    assert execution_ms(2_000) == 2_000_000
    assert execution_ms(86_400) == EXECUTION_MS_MAX == execution_ms(LEASE_MS_MAX)


def test_short_leases_are_pinged_more_often_in_proportion() -> None:
    assert [ping_interval_ms(lease) for lease in (1_000, 4_000, 100_000)] == [500, 2_000, 10_000]


@pytest.mark.parametrize(
    ("state", "lease_ms", "until_ms", "answer"),
    [
        (None, 1_000, 10**6, PingResult.UNKNOWN),
        (S.COMMITTING, 10**9, 0, PingResult.COMMITTED),
        (S.COMMITTED, 1_000, 10**6, PingResult.COMMITTED),
        (S.ABORTING, 10**9, 0, PingResult.ABORTED),
        (S.ABORTED, 1_000, 10**6, PingResult.ABORTED),
        (S.OPEN, LEASE_MS_MAX + 1, 0, PingResult.LEASE_TOO_LARGE),
        (S.OPEN, LEASE_MS_MAX, None, PingResult.OK),
        (S.OPEN, 1_000, 5_999, PingResult.MAX_EXECUTION_TIME_EXCEEDED),
        (S.OPEN, 1_000, 6_000, PingResult.OK),
        (S.OPEN, None, None, PingResult.OK),
        (S.OPEN, None, 5_000, PingResult.OK),
    ],
)
def test_a_ping_is_answered_by_state_then_lease_then_time(
    state: TxnState | None, lease_ms: int | None, until_ms: int | None, answer: PingResult
) -> None:
    assert judge_ping(state, lease_ms=lease_ms, now_ms=5_000, execution_until_ms=until_ms) is answer
