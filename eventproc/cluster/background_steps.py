"""Steps of the work in the background of an open directory. Their failures never end the user's program."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from eventproc.store.model.errors import Closed, DatabaseStopped, ForkedError, Retryable

STOPPED: Final = (DatabaseStopped, Closed, ForkedError)
"""Errors that end the work. The next call on the same handle raises the same error to its user."""


async def attempt(
    step: Callable[[], Awaitable[object]],
    log: logging.Logger,
    failure: str,
    *,
    expected: tuple[type[Exception], ...] = (Retryable,),
    fatal: tuple[type[Exception], ...] = STOPPED,
) -> bool:
    """Await `step()`, log its failure, and return whether it succeeded.

    Args:
        step: A part of the work that does not depend on the others.
        log: Gets the failure.
        failure: What the log says of a failure.
        expected: Failures that are logged as a warning, without a traceback.
        fatal: Errors that are raised.
    """
    try:
        await step()
    except fatal:
        raise
    except expected as why:
        log.warning("%s: %s", failure, why)
    except Exception:
        log.exception(failure)
    else:
        return True
    return False


async def repeat_step(
    step: Callable[[], Awaitable[object]],
    pause: Callable[[], Awaitable[object]],
    log: logging.Logger,
    failure: str,
    *,
    expected: tuple[type[Exception], ...] = (Retryable,),
) -> None:
    """Await `step()` again and again until cancelled or until the database is closed. Raises none of its errors.

    Args:
        step: Waits itself for what it does next.
        pause: Awaited after a failure of `step`, so that a lasting one does not keep a processor busy.
        log: Gets each failure of `step`.
        failure: What the log says of a failure.
        expected: Failures that are logged as a warning, without a traceback.
    """
    with suppress(*STOPPED):
        while True:
            if not await attempt(step, log, failure, expected=expected):
                await pause()
