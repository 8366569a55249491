"""The same system without `await`, for scripts and drivers: `with open_blocking("data/") as ep:`.

The async system runs on an event loop in its own thread. Every call hands one coroutine to that thread and waits, which
costs about 0.4 ms. So prefer batches: readers fetch a batch per call, and `post` fills a buffer before a call.
`_generated.py` has the methods that only hand over a call: `python -m tools.blocking` writes it.
Modules are imported on first use: Spark's processes need the loop alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventproc.blocking.group import BlockingGroupReader, BlockingReaderGroup
    from eventproc.blocking.joint_transaction import BlockingJointTransaction
    from eventproc.blocking.reader import BlockingReader
    from eventproc.blocking.running import BlockingRunning
    from eventproc.blocking.stream import BlockingStream
    from eventproc.blocking.synchronizer import BlockingStateSynchronizer
    from eventproc.blocking.system import (
        BlockingCluster,
        BlockingDeadLetters,
        BlockingEventproc,
        BlockingRequests,
        BlockingTasks,
        BlockingUsers,
        open_blocking,
    )
    from eventproc.blocking.transaction import BlockingTransaction
    from eventproc.blocking.writer import BlockingWriter

_WHERE = {
    "BlockingCluster": "eventproc.blocking.system",
    "BlockingDeadLetters": "eventproc.blocking.system",
    "BlockingEventproc": "eventproc.blocking.system",
    "BlockingGroupReader": "eventproc.blocking.group",
    "BlockingJointTransaction": "eventproc.blocking.joint_transaction",
    "BlockingReader": "eventproc.blocking.reader",
    "BlockingReaderGroup": "eventproc.blocking.group",
    "BlockingRequests": "eventproc.blocking.system",
    "BlockingRunning": "eventproc.blocking.running",
    "BlockingStateSynchronizer": "eventproc.blocking.synchronizer",
    "BlockingStream": "eventproc.blocking.stream",
    "BlockingTasks": "eventproc.blocking.system",
    "BlockingTransaction": "eventproc.blocking.transaction",
    "BlockingUsers": "eventproc.blocking.system",
    "BlockingWriter": "eventproc.blocking.writer",
    "open_blocking": "eventproc.blocking.system",
}

__all__ = [
    "BlockingCluster",
    "BlockingDeadLetters",
    "BlockingEventproc",
    "BlockingGroupReader",
    "BlockingJointTransaction",
    "BlockingReader",
    "BlockingReaderGroup",
    "BlockingRequests",
    "BlockingRunning",
    "BlockingStateSynchronizer",
    "BlockingStream",
    "BlockingTasks",
    "BlockingTransaction",
    "BlockingUsers",
    "BlockingWriter",
    "open_blocking",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
