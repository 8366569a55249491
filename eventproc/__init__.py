"""Durable, elastic streams and ordered event processing inside a Python process.

Start with `async with eventproc.open("data/") as ep:`, or `open_memory()` in a test. Names are imported
when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from eventproc._version import __version__

TYPE_CHECKING = False  # type checkers know the name; the module that has it costs more than all of this one
if TYPE_CHECKING:
    from eventproc.blocking import open_blocking
    from eventproc.groups import GroupReader, ReaderGroup
    from eventproc.processors import (
        App,
        AppTx,
        Context,
        Directive,
        Failure,
        ProcessorDescription,
        ProcessorFailed,
        ProcessorStatus,
        RetryPolicy,
        Running,
    )
    from eventproc.processors.dead_letters.letters import DeadLetter, DeadLetters
    from eventproc.runtime import Eventproc, open, open_memory
    from eventproc.store.database import Durability
    from eventproc.store.model.cuts import StreamCut
    from eventproc.store.model.errors import (
        Corrupt,
        EventprocError,
        Fenced,
        NotFound,
        Rejected,
        Retryable,
    )
    from eventproc.store.model.policies import ScalingPolicy
    from eventproc.store.model.transactions import PingResult, TxnState
    from eventproc.store.replicated import ReplicatedType, StateSynchronizer
    from eventproc.store.segments import Event
    from eventproc.streams import (
        Batch,
        EventWriter,
        NewEvent,
        Stream,
        StreamReader,
        Transaction,
        TransactionDescription,
    )

_WHERE = {
    "App": "eventproc.processors",
    "AppTx": "eventproc.processors",
    "Batch": "eventproc.streams",
    "Context": "eventproc.processors",
    "Corrupt": "eventproc.store.model.errors",
    "DeadLetter": "eventproc.processors.dead_letters.letters",
    "DeadLetters": "eventproc.processors.dead_letters.letters",
    "Directive": "eventproc.processors",
    "Durability": "eventproc.store.database",
    "Event": "eventproc.store.segments",
    "EventWriter": "eventproc.streams",
    "Eventproc": "eventproc.runtime",
    "EventprocError": "eventproc.store.model.errors",
    "Failure": "eventproc.processors",
    "Fenced": "eventproc.store.model.errors",
    "GroupReader": "eventproc.groups",
    "NewEvent": "eventproc.streams",
    "NotFound": "eventproc.store.model.errors",
    "PingResult": "eventproc.store.model.transactions",
    "ProcessorDescription": "eventproc.processors",
    "ProcessorFailed": "eventproc.processors",
    "ProcessorStatus": "eventproc.processors",
    "ReaderGroup": "eventproc.groups",
    "Rejected": "eventproc.store.model.errors",
    "ReplicatedType": "eventproc.store.replicated",
    "RetryPolicy": "eventproc.processors",
    "Retryable": "eventproc.store.model.errors",
    "Running": "eventproc.processors",
    "ScalingPolicy": "eventproc.store.model.policies",
    "StateSynchronizer": "eventproc.store.replicated",
    "Stream": "eventproc.streams",
    "StreamCut": "eventproc.store.model.cuts",
    "StreamReader": "eventproc.streams",
    "Transaction": "eventproc.streams",
    "TransactionDescription": "eventproc.streams",
    "TxnState": "eventproc.store.model.transactions",
    "open": "eventproc.runtime",
    "open_blocking": "eventproc.blocking",
    "open_memory": "eventproc.runtime",
}

__all__ = [
    "App",
    "AppTx",
    "Batch",
    "Context",
    "Corrupt",
    "DeadLetter",
    "DeadLetters",
    "Directive",
    "Durability",
    "Event",
    "EventWriter",
    "Eventproc",
    "EventprocError",
    "Failure",
    "Fenced",
    "GroupReader",
    "NewEvent",
    "NotFound",
    "PingResult",
    "ProcessorDescription",
    "ProcessorFailed",
    "ProcessorStatus",
    "ReaderGroup",
    "Rejected",
    "ReplicatedType",
    "RetryPolicy",
    "Retryable",
    "Running",
    "ScalingPolicy",
    "StateSynchronizer",
    "Stream",
    "StreamCut",
    "StreamReader",
    "Transaction",
    "TransactionDescription",
    "TxnState",
    "__version__",
    "open",
    "open_blocking",
    "open_memory",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
