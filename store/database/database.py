"""The interface of a database: one file or memory, the same promises.

`write` and `read` take a plain function of a `Tx`, which runs whole and never awaits. A transaction made of
awaits on a shared connection would see strangers' rows and commit them. Source: architecture.md section 1.
"""

from __future__ import annotations

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import anyio

from eventproc.store.clock import Clock
from eventproc.store.database.commit_batch import CommitBatch
from eventproc.store.database.shared_state import SharedState
from eventproc.store.database.subscriptions import Subscription, Subscriptions, Watch
from eventproc.store.database.tx import Tx
from eventproc.store.faults import Faults

LOG = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_WAIT_MS_MAX: Final = 30_000
"""How long a write waits to be started, unless its caller says otherwise. Higher: a stopped process that holds
the lock is noticed later; lower: a long checkpoint on a slow disk fails writes."""


class Durability(enum.StrEnum):
    """What an acknowledged write survives. A property of the directory, chosen when it is made."""

    FSYNC = "fsync"
    """Power loss: the log is synced before the acknowledgement."""
    OS = "os"
    """The death of the process; power loss keeps a consistent prefix."""


class Database(ABC):
    """All durable state of one directory, or of one memory. Open it with `open_database` and its twin."""

    path: Path | None
    """The directory; None in memory."""
    clock: Clock
    faults: Faults
    durability: Durability
    instance_id: str
    """Identifies this opening among the live ones of all processes."""
    shared: SharedState
    """What its writing transactions share in memory."""

    def __init__(
        self, *, path: Path | None, clock: Clock, faults: Faults, durability: Durability, instance_id: str
    ) -> None:
        self.path = path
        self.clock = clock
        self.faults = faults
        self.durability = durability
        self.instance_id = instance_id
        self.shared = SharedState()
        self._subscriptions = Subscriptions()

    @abstractmethod
    async def write(self, fn: Callable[[Tx], T], *, size_bytes: int = 0, timeout_ms: int | None = None) -> T:
        """Run `fn` in a transaction, together with others that wait; return its result once it is durable.

        fn: re-runnable, short (a few milliseconds), without effects of its own: see `Tx.after`. What it raises
        is raised here, after the commit of the group; its own changes are then undone, its neighbours' not.
        size_bytes: about how much it writes; counts to the limit of a group.
        timeout_ms: how long fn may wait to be started, WRITE_WAIT_MS_MAX unless given.

        Cancelled or timed out while it waits, fn never runs. Once started, the caller waits for the result
        whatever happens: cancelled through anyio it still gets it, so `Cancelled` means that fn did not run.
        (asyncio's own `task.cancel()` is raised again after the result, which is lost; effects are not.)
        Raises LockHeld (timed out), DiskFull (nothing changed), DatabaseStopped, Closed, ForkedError.
        Cost: one crossing to the writer's thread and back, shared commit.
        """

    @abstractmethod
    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on a snapshot that contains every write acknowledged before; return its result.

        fn must fetch what it returns: no cursor outlives it. It cannot write. Raises what fn raises, Closed,
        ForkedError. Cost: one crossing to a reader's thread and back.
        """

    def subscribe(self, watches: Iterable[Watch] = ()) -> Subscription:
        """Return a context manager to wait for changes with; see `Subscription`."""
        return Subscription(self._subscriptions, watches)

    def _publish(self, group: CommitBatch) -> None:
        """Apply the effects of a durable group and wake who waits for its topics."""
        for effect in group.tx.effects:
            try:
                effect()
            except Exception:
                LOG.exception("an effect of a committed write failed")
        self._subscriptions.wake(group.tx.topics)


def cancellation_returns() -> bool:
    """Whether a cancellation that was caught just now will be delivered again at the next scheduling point.

    True for every cancellation through anyio. False for asyncio's own `task.cancel()`, which comes once: whoever
    catches it must raise it again, or the task would never end.
    """
    return anyio.current_effective_deadline() == float("-inf")
