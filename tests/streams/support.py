"""What tests of transactions share: their blocks in one call, and what became visible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eventproc.streams import Transaction


async def run_in(txn: Transaction[bytes], *calls: Callable[[], Awaitable[object]]) -> None:
    """Make the calls in the transaction's block."""
    async with txn:
        for call in calls:
            await call()


async def fail_in(txn: Transaction[bytes], *calls: Callable[[], Awaitable[object]]) -> None:
    """Make the calls in the transaction's block, and fail in it."""

    async def fail() -> None:
        raise ZeroDivisionError

    await run_in(txn, *calls, fail)
