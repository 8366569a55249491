"""The same system without `await`, for scripts and drivers: `with open_blocking("data/") as ep:`.

The async system runs on an event loop in its own thread. Every call hands one coroutine to that thread and waits, which
costs about 0.4 ms. So prefer batches: readers fetch a batch per call, and `post` fills a buffer before a call.
A twin has the methods of its async class. It is made, and its module imported, on first use: Spark's processes need the
loop alone. `__init__.pyi` is what type checkers read instead.
"""

from __future__ import annotations

_WRITTEN = {
    "BlockingEventproc": "eventproc.blocking.system",
    "BlockingGroupReader": "eventproc.blocking.reader",
    "BlockingJointTransaction": "eventproc.blocking.transaction",
    "BlockingReader": "eventproc.blocking.reader",
    "BlockingRunning": "eventproc.blocking.system",
    "BlockingStream": "eventproc.blocking.stream",
    "BlockingTopic": "eventproc.blocking.topic",
    "BlockingTransaction": "eventproc.blocking.transaction",
    "BlockingWriter": "eventproc.blocking.writer",
    "open_blocking": "eventproc.blocking.system",
}
"""Where what is written by hand is found."""

_MADE = {
    "BlockingCluster": "eventproc.cluster",
    "BlockingConsumer": "eventproc.topics",
    "BlockingDeadLetters": "eventproc.processors.dead_letters.operations",
    "BlockingGroup": "eventproc.topics",
    "BlockingJob": "eventproc.jobs.jobs",
    "BlockingJobs": "eventproc.jobs.jobs",
    "BlockingKeyStates": "eventproc.processors.key_states",
    "BlockingRequests": "eventproc.runtime.requests",
    "BlockingSchedules": "eventproc.streams.schedules",
    "BlockingShareConsumer": "eventproc.shares",
    "BlockingShareGroup": "eventproc.shares",
    "BlockingStateSynchronizer": "eventproc.store.replicated",
    "BlockingSupervisor": "eventproc.ingestion.supervisor",
    "BlockingTasks": "eventproc.runtime.tasks",
    "BlockingDelayedEvents": "eventproc.streams.delayed_events",
    "BlockingUsers": "eventproc.runtime.users",
}
"""Where the async class is found that a twin is made of; its name is what follows `Blocking`."""

_NAMES = (*_WRITTEN, *_MADE)

TYPE_CHECKING = False  # type checkers read the names in the stub
if not TYPE_CHECKING:
    __all__ = _NAMES


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _WRITTEN:
        value = getattr(import_module(_WRITTEN[name]), name)
    else:
        kind = getattr(import_module(_MADE[name]), name.removeprefix("Blocking"))
        value = import_module("eventproc.blocking.twins").make_twin(kind)
    globals()[name] = value
    return value
