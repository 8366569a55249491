"""The one retry layer of what runs in the background: a step is repeated as long as nothing but time is in its way."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from eventproc.store.model.errors import Retryable

T = TypeVar("T")

RETRY_S_MAX: Final = 5.0
"""Longest pause before a step is retried while the disk is full or a lock is held."""


async def retry_transient(step: Callable[[], Awaitable[T]], what: str, log: logging.Logger) -> T:
    """Await `step()` until it does not raise Retryable, which means that nothing changed. Raises all other errors.

    what: names in the log, at each repetition, what cannot go on.
    """
    with contextlib.suppress(Retryable):  # setting up the retries costs as much as the step itself
        return await step()

    def tell(state: RetryCallState) -> None:
        why = state.outcome.exception() if state.outcome is not None else None
        log.warning("%s cannot continue and will be retried in %.1f s: %s", what, state.upcoming_sleep, why)

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type(Retryable),
        wait=wait_random_exponential(max=RETRY_S_MAX),
        before_sleep=tell,
        reraise=True,
    ):
        with attempt:
            return await step()
    raise AssertionError("tenacity either returns or raises")
