"""The same system without `await`, for scripts and drivers: `with open_blocking("data/") as ep:`.

The async system runs on an event loop in its own thread. Every call hands one coroutine to that thread and waits, which
costs about 0.4 ms. So prefer batches: readers fetch a batch per call, and `post` fills a buffer before a call.
`_generated.py` has the methods that only hand over a call: `python -m tools.blocking` writes it.
The twins of topics, share groups and supervisors have modules of their own, imported when a program uses them.
"""

from __future__ import annotations

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
