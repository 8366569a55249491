"""The same system without `await`, for scripts and drivers: `with open_blocking("data/") as ep:`.

The async system runs on an event loop in a thread of its own; every call here hands one coroutine to that
thread and waits, which costs about 0.4 ms whatever it does. So batches are the primitive here even more
than there: readers take a batch a hand-over, and `post` fills a buffer before it hands over.
"""

from __future__ import annotations

from eventproc.blocking.group import BlockingGroupReader, BlockingReaderGroup
from eventproc.blocking.reader import BlockingReader
from eventproc.blocking.running import BlockingRunning
from eventproc.blocking.stream import BlockingStream
from eventproc.blocking.synchronizer import BlockingStateSynchronizer
from eventproc.blocking.system import (
    BlockingDeadLetters,
    BlockingEventproc,
    BlockingRequests,
    open_blocking,
)
from eventproc.blocking.transaction import BlockingTransaction
from eventproc.blocking.writer import BlockingWriter

__all__ = [
    "BlockingDeadLetters",
    "BlockingEventproc",
    "BlockingGroupReader",
    "BlockingReader",
    "BlockingReaderGroup",
    "BlockingRequests",
    "BlockingRunning",
    "BlockingStateSynchronizer",
    "BlockingStream",
    "BlockingTransaction",
    "BlockingWriter",
    "open_blocking",
]
