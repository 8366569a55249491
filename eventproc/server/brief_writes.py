"""Short writes of connections, for whose answer a client waits.

An append or a decision takes microseconds in its transaction. Switching to the writer's thread and back takes longer,
so the database may run it on the event loop, or let the event loop wait for the disk with the only caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from eventproc.store.database import Database, SharedSlot, Tx

T = TypeVar("T")


class _Writing:
    """How many connections of this process write now."""

    count = 0


_WRITING: Final = SharedSlot(_Writing)


async def write_briefly(db: Database, call: Callable[[Tx], T], *, size_bytes: int = 0) -> T:
    """Run `call`, which takes microseconds, in a transaction. size_bytes: what it writes."""
    writing = db.shared[_WRITING]
    writing.count += 1
    try:
        return await db.write(call, size_bytes=size_bytes, brief=True, lone=writing.count == 1)
    finally:
        writing.count -= 1
