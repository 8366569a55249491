"""Retries: the policy for failing handlers, the loop for background steps, and the pauses of both.

The jitter of every pause comes from the injected clock's randomness, so that one seed gives one run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import attrs
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from eventproc.base.clock import Clock
from eventproc.store.model.argument_checks import check_instance, check_int, invalid_argument
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


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often a failing call is retried. Its key is held meanwhile: later events of the key wait (of a worker, none).

    Attributes:
        attempts: Calls in all, at least 1. None: unlimited, except for errors in `permanent`.
        wait_ms: Pause after the first failed call, in ms. It doubles with each further one.
        wait_ms_max: Longest pause, in ms, before jitter is added.
        jitter_ms: Up to so many ms are added at random, so that calls that failed together are not retried together.
        permanent: Errors that no retry can help; they spend all attempts immediately, also inside of an exception
            group.
        frees_key: Set a failing event aside: the later events of its key, or of its segment with order="segment", go
            on meanwhile, also at the same time as its next attempt. The order of the key is given up for this event.
            Default: False.

    Raises:
        InvalidArgument: A value is of the wrong type or out of range.
    """

    attempts: int | None = 5
    wait_ms: int = 100
    wait_ms_max: int = 10_000
    jitter_ms: int = 100
    permanent: tuple[type[Exception], ...] = ()
    frees_key: bool = False

    def __attrs_post_init__(self) -> None:
        if self.attempts is not None:
            check_int("retry.attempts", self.attempts, least=1)
        check_instance(bool, "retry.frees_key", self.frees_key, "it must be True or False")
        check_int("retry.wait_ms", self.wait_ms, least=0)
        check_int("retry.wait_ms_max", self.wait_ms_max, least=0)
        if self.wait_ms > self.wait_ms_max:
            reason = f"it must be at most wait_ms_max, which is {self.wait_ms_max}; raise that, too"
            raise invalid_argument("retry.wait_ms", str(self.wait_ms), reason)
        check_int("retry.jitter_ms", self.jitter_ms, least=0)
        reason = "it must be a tuple of exception classes"
        for kind in check_instance(tuple, "retry.permanent", self.permanent, reason):
            if not isinstance(kind, type) or not issubclass(kind, Exception):
                raise invalid_argument("retry.permanent", self.permanent, reason)

    def pause_ms(self, attempt: int, clock: Clock) -> int:
        """Return the pause after failed attempt number `attempt`, counted from 1. clock: source of the jitter."""
        pause_ms = backoff_ms(
            clock, attempt, first_ms=self.wait_ms, longest_ms=self.wait_ms_max, jitter_ms=self.jitter_ms
        )
        return round(pause_ms)

    def is_spent(self, attempt: int, error: Exception) -> bool:
        """Return whether attempt number `attempt`, which ended in `error`, was the last."""
        if (self.attempts is not None and attempt >= self.attempts) or isinstance(error, self.permanent):
            return True
        return isinstance(error, ExceptionGroup) and error.subgroup(self.permanent) is not None

    def attempt_text(self, attempt: int) -> str:
        """Return "attempt 2 of 5" for log lines."""
        return f"attempt {attempt} of {'unlimited' if self.attempts is None else self.attempts}"


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
