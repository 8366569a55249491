"""The retry layer of background work, and the pauses between attempts.

The jitter of every pause comes from the injected clock's randomness, so that one seed gives one run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from eventproc.store.clock import Clock
from eventproc.store.model.errors import Retryable

T = TypeVar("T")

RETRY_MS_MAX: Final = 5_000
"""Longest pause before a step is retried while the disk is full or a lock is held."""

_DOUBLINGS_MAX: Final = 62
"""Doublings of a pause after which every limit is reached; more would overflow."""


def backoff_ms(
    clock: Clock, attempt: int, *, first_ms: int, longest_ms: int, jitter_ms: int | None = None
) -> float:
    """Return the pause after failed attempt number `attempt`, counted from 1, in ms.

    The pause doubles with each attempt, from `first_ms` to `longest_ms`.
    jitter_ms: up to this much is added at random. None: the pause is random, between 0 and what it grew to.
    """
    grown_ms: int = min(longest_ms, first_ms << min(attempt - 1, _DOUBLINGS_MAX))
    fraction = int.from_bytes(clock.random_bytes(4), "big") / 2**32
    return grown_ms * fraction if jitter_ms is None else grown_ms + jitter_ms * fraction


async def retry_transient(
    step: Callable[[], Awaitable[T]], what: str, clock: Clock, log: logging.Logger
) -> T:
    """Await `step()`, and retry it as long as it raises Retryable, which changed nothing. Raises everything else.

    what: names the step in a warning that is logged before each retry.
    clock: source of the jitter.
    """
    with contextlib.suppress(Retryable):  # setting up the retries costs as much as the step itself
        return await step()

    def wait(state: RetryCallState) -> float:
        return backoff_ms(clock, state.attempt_number, first_ms=1_000, longest_ms=RETRY_MS_MAX) / 1000

    def warn(state: RetryCallState) -> None:
        why = state.outcome.exception() if state.outcome is not None else None
        log.warning("%s cannot continue and will be retried in %.1f s: %s", what, state.upcoming_sleep, why)

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(Retryable), wait=wait, before_sleep=warn, reraise=True
    ):
        with attempt:
            return await step()
    raise AssertionError("tenacity either returns or raises")
