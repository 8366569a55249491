"""The limit of a wait of a caller: its error says what was waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from eventproc.store.model.argument_checks import check_int


@contextmanager
def within(timeout_ms: int | None, undone: str, remedy: str = "it goes on, so wait again") -> Iterator[None]:
    """Limit how long the block may take. timeout_ms: None: without limit. undone, remedy: of the text of the error.

    Raises TimeoutError, and InvalidArgument for a time that is none.
    """
    if timeout_ms is not None:
        timeout_ms = check_int("timeout_ms", timeout_ms, least=0, unit="ms")
    with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000) as scope:
        yield
    if scope.cancelled_caught:
        raise TimeoutError(f"{undone} after {timeout_ms} ms; {remedy}")
