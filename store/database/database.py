"""The interface of a database. The form in a file and the form in memory keep the same promises.

`write` and `read` take a plain function of a `Tx`, which runs from start to end without awaiting. A transaction made of
awaits on a shared connection would see and commit the rows of other callers. Source: architecture.md section 1.
"""

from __future__ import annotations

import enum
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import attrs

from eventproc.store.clock import Clock
from eventproc.store.database.commit_batch import CommitBatch
from eventproc.store.database.locks import FORMAT_WAIT_MS_MAX
from eventproc.store.database.peers import Peers
from eventproc.store.database.shared_state import SharedState
from eventproc.store.database.subscriptions import Subscription, Subscriptions, Watch
from eventproc.store.database.tx import Tx
from eventproc.store.faults import Faults, Moment, Step, point_of
from eventproc.store.model.errors import DatabaseStopped
from eventproc.store.openable import OpenObjects

LOG = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_WAIT_MS_MAX: Final = 30_000
"""Default time that a write waits until it starts. A higher value reports a stopped process that holds the lock later;
a lower one makes writes fail during a long checkpoint on a slow disk."""


@attrs.frozen(kw_only=True)
class DatabaseTimeouts:
    """Times in ms of a database in a directory. Tests lower them."""

    format_wait_ms: int = FORMAT_WAIT_MS_MAX
    """How long opening waits for format.lock."""
    guard_wait_ms: int = 5_000
    """How long opening tries to guard a database that another program opens and closes all the time."""
    close_wait_ms: int = 5_000
    """How long closing waits for a writer that a stopped process blocks. After that a thread finishes the closing."""
    lock_warn_ms: int = 1_000
    """Waiting time for write.lock after which a warning names its holder."""
    poll_ms: int = 1_000
    """Pause between two reads of data_version. A higher value delays waiters longer after a lost notification; a lower
    one uses CPU while idle."""


class Durability(enum.StrEnum):
    """What an acknowledged write survives. A property of the directory, chosen when it is created."""

    FSYNC = "fsync"
    """Survives power loss: the log is synced before the acknowledgement."""
    OS = "os"
    """Survives the death of the process. After a power loss a consistent prefix remains."""


class Database(ABC):
    """All state of one directory, or of one database in memory.

    Open it with `open_database` or `open_memory_database`, or with `start_...` and `close`.
    """

    path: Path | None
    """The directory; None for a database in memory."""
    clock: Clock
    faults: Faults
    durability: Durability
    instance_id: str
    """Identifies this opening among those of all processes."""
    peers: Peers
    """The openings of this database, this one included."""
    shared: SharedState
    """Objects in memory for this opening, by slot."""
    handles: OpenObjects
    """The writers, readers and running apps that are open on this database."""

    def __init__(
        self,
        *,
        path: Path | None,
        clock: Clock,
        faults: Faults,
        durability: Durability,
        instance_id: str,
        peers: Peers,
        shared: SharedState | None = None,
    ) -> None:
        self.path = path
        self.clock = clock
        self.faults = faults
        self.durability = durability
        self.instance_id = instance_id
        self.peers = peers
        self.shared = SharedState() if shared is None else shared
        self.handles = OpenObjects()
        self._subscriptions = Subscriptions()
        self._refusal: Callable[[], BaseException] | None = None  # makes the error of every call

    @abstractmethod
    async def write(
        self,
        fn: Callable[[Tx], T],
        *,
        size_bytes: int = 0,
        timeout_ms: int | None = None,
        brief: bool = False,
        step: Step | None = None,
    ) -> T:
        """Run `fn` in a transaction, batched with other waiting writes, and return its result once it is durable.

        fn: must be re-runnable, short (a few milliseconds), and without side effects (use `Tx.after`). Its error is
        raised here after the commit of the batch; its changes are undone, those of other functions are kept.
        size_bytes: estimate of what it writes; counts towards the limit of a batch.
        timeout_ms: how long fn may wait until it starts. None (default): WRITE_WAIT_MS_MAX.
        brief: fn takes microseconds, so that it may run on the event loop if it waits alone and a commit need not wait
        for the disk. If it need, the event loop may wait for it, for at most 1 ms, instead of going to sleep.
        step: names the transaction for tests that inject faults. None (default): it has no name.

        If the caller is cancelled or the time is over while fn waits, fn never runs. Once fn has started, the caller
        always waits for the result. A cancellation by anyio then still returns the result, so `Cancelled` means that
        fn did not run. asyncio's `task.cancel()` is raised after the commit: the result is lost, the effects are not.
        Raises LockHeld (not started in time), DiskFull (nothing changed), DatabaseStopped, Closed, ForkedError.
        Cost: one switch to the writer's thread and back, unless it is brief, and a share of one commit.
        """

    @abstractmethod
    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on a snapshot that contains every write acknowledged before, and return its result.

        fn: cannot write, and must fetch its result completely, because no cursor outlives it.
        Raises what fn raises, Closed, ForkedError. Cost: one switch to a reader's thread and back.
        """

    @abstractmethod
    async def shorten(self) -> bool:
        """Cut the file to the length of the database; return whether it has that length.

        Only a checkpoint cuts it, which a long read may prevent. Call it after pages were returned to the file system,
        and again later if it returns False. Raises Closed, ForkedError, OSError.
        Cost: a switch to the writer's thread and back; a checkpoint if the file is longer.
        """

    @abstractmethod
    async def close(self) -> None:
        """Wait for started calls, then release everything; calls that wait for changes raise Closed.

        It must not be interrupted. A second call, or a call in a forked child, does nothing.
        """

    async def _reach_begun(self, step: Step) -> None:
        """Reach the first point of a step, and wait as the faults ask."""
        point = point_of(step, Moment.BEGUN)
        if delay_ms := self.faults.delay_ms(point):
            await anyio.sleep(delay_ms / 1000)
        self.faults.reach(point)

    async def _delay_result(self, step: Step) -> None:
        """Wait after the commit of a step as the faults ask. It is not interrupted."""
        if delay_ms := self.faults.delay_ms(point_of(step, Moment.COMMITTED)):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(delay_ms / 1000)

    def fail(self, why: BaseException) -> None:
        """Refuse every later call, and end those that wait: a task that this opening depends on has failed."""
        if self._refusal is None:
            self._refuse(partial(self._failed, why))

    def _failed(self, why: BaseException) -> DatabaseStopped:
        error = DatabaseStopped(
            path=str(self.path or ":memory:"), reason=f"a background task failed ({why!r})"
        )
        error.__cause__ = why
        return error

    def _refuse(self, refusal: Callable[[], BaseException]) -> None:
        self._refusal = refusal
        self._subscriptions.stop(refusal)

    def subscribe(self, watches: Iterable[Watch] = ()) -> Subscription:
        """Return a context manager that waits for changes; see `Subscription`."""
        return Subscription(self._subscriptions, watches)

    def _publish(self, batch: CommitBatch) -> None:
        """Apply the effects of a durable batch and wake the subscriptions on its topics."""
        for effect in batch.tx.effects:
            try:
                effect()
            except Exception:
                LOG.exception("an effect of a committed write failed")
        self._subscriptions.wake(batch.tx.topics)


def cancellation_returns() -> bool:
    """Return whether a cancellation that was just caught is delivered again at the next scheduling point.

    True for every cancellation by anyio. False for asyncio's `task.cancel()`, which is delivered once: code that
    catches it must raise it again, else the task would never end.
    """
    return anyio.current_effective_deadline() == float("-inf")
