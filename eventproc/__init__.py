"""Durable, elastic streams and ordered event processing inside a Python process.

Start with `async with eventproc.open("data/") as ep:`, or `open_memory()` in a test. Errors are in
`eventproc.errors`; docs/public-api.md lists what is public. Names are imported when they are first used, so that
importing the package costs next to nothing.
"""

from __future__ import annotations

from eventproc._version import __version__

TYPE_CHECKING = False  # type checkers know the name; the module that has it costs more than all of this one
if TYPE_CHECKING:
    from eventproc.blocking import (
        BlockingDeadLetters,
        BlockingEventproc,
        BlockingGroupReader,
        BlockingReader,
        BlockingReaderGroup,
        BlockingRequests,
        BlockingRunning,
        BlockingStream,
        BlockingTransaction,
        BlockingWriter,
        open_blocking,
    )
    from eventproc.blocking.synchronizer import BlockingStateSynchronizer
    from eventproc.groups import (
        GroupCheckpoint,
        GroupDescription,
        GroupInfo,
        GroupReader,
        ReaderGroup,
        SegmentOwnership,
    )
    from eventproc.groups.describe import MemberDescription, SegmentLag
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
    from eventproc.processors.dead_letters.operations import DeadLetter, DeadLetters, LetterCount
    from eventproc.processors.emit import EmitTarget
    from eventproc.processors.observe.status import Blocker, MemberStatus, ProcessorMember, ProcessorState
    from eventproc.runtime import Eventproc, Requests, open, open_memory
    from eventproc.store.backup.results import BackupResult
    from eventproc.store.database import Durability
    from eventproc.store.groups import GroupOptions, GroupStream
    from eventproc.store.model.cuts import StreamCut
    from eventproc.store.model.epochs import Epoch, Segment
    from eventproc.store.model.errors import Corrupt, EventprocError, Fenced, NotFound, Rejected, Retryable
    from eventproc.store.model.ids import SegmentId
    from eventproc.store.model.policies import ScalingKind, ScalingPolicy, StreamConfig
    from eventproc.store.model.progress import Progress
    from eventproc.store.model.ranges import KeyRange
    from eventproc.store.model.states import ScopeState, StreamState
    from eventproc.store.model.transactions import PingResult, TxnState
    from eventproc.store.openable import Opening
    from eventproc.store.replicated import ReplicatedType, StateSynchronizer
    from eventproc.store.requests import Request, RequestStatus
    from eventproc.store.segments import AppendResult, Event
    from eventproc.streams import (
        Batch,
        Codec,
        EventWriter,
        NewEvent,
        ScopeInfo,
        SegmentDescription,
        Stream,
        StreamDescription,
        StreamInfo,
        StreamReader,
        Transaction,
        TransactionDescription,
        register_codec,
    )
    from eventproc.streams.offload import OffloadResult
    from eventproc.workflows.requests import (
        CreateStream,
        DeleteScope,
        DeleteStream,
        ScaleStream,
        SealStream,
        TruncateStream,
        UpdateStream,
    )

_WHERE = {
    "eventproc.blocking": (
        "BlockingDeadLetters",
        "BlockingEventproc",
        "BlockingGroupReader",
        "BlockingReader",
        "BlockingReaderGroup",
        "BlockingRequests",
        "BlockingRunning",
        "BlockingStream",
        "BlockingTransaction",
        "BlockingWriter",
        "open_blocking",
    ),
    "eventproc.blocking.synchronizer": ("BlockingStateSynchronizer",),
    "eventproc.groups": (
        "GroupCheckpoint",
        "GroupDescription",
        "GroupInfo",
        "GroupReader",
        "ReaderGroup",
        "SegmentOwnership",
    ),
    "eventproc.groups.describe": (
        "MemberDescription",
        "SegmentLag",
    ),
    "eventproc.processors": (
        "App",
        "AppTx",
        "Context",
        "Directive",
        "Failure",
        "ProcessorDescription",
        "ProcessorFailed",
        "ProcessorStatus",
        "RetryPolicy",
        "Running",
    ),
    "eventproc.processors.dead_letters.operations": (
        "DeadLetter",
        "DeadLetters",
        "LetterCount",
    ),
    "eventproc.processors.emit": ("EmitTarget",),
    "eventproc.processors.observe.status": (
        "Blocker",
        "MemberStatus",
        "ProcessorMember",
        "ProcessorState",
    ),
    "eventproc.runtime": (
        "Eventproc",
        "Requests",
        "open",
        "open_memory",
    ),
    "eventproc.store.backup.results": ("BackupResult",),
    "eventproc.store.database": ("Durability",),
    "eventproc.store.groups": (
        "GroupOptions",
        "GroupStream",
    ),
    "eventproc.store.model.cuts": ("StreamCut",),
    "eventproc.store.model.epochs": (
        "Epoch",
        "Segment",
    ),
    "eventproc.store.model.errors": (
        "Corrupt",
        "EventprocError",
        "Fenced",
        "NotFound",
        "Rejected",
        "Retryable",
    ),
    "eventproc.store.model.ids": ("SegmentId",),
    "eventproc.store.model.policies": (
        "ScalingKind",
        "ScalingPolicy",
        "StreamConfig",
    ),
    "eventproc.store.model.progress": ("Progress",),
    "eventproc.store.model.ranges": ("KeyRange",),
    "eventproc.store.model.states": (
        "ScopeState",
        "StreamState",
    ),
    "eventproc.store.model.transactions": (
        "PingResult",
        "TxnState",
    ),
    "eventproc.store.openable": ("Opening",),
    "eventproc.store.replicated": (
        "ReplicatedType",
        "StateSynchronizer",
    ),
    "eventproc.store.requests": (
        "Request",
        "RequestStatus",
    ),
    "eventproc.store.segments": (
        "AppendResult",
        "Event",
    ),
    "eventproc.streams": (
        "Batch",
        "Codec",
        "EventWriter",
        "NewEvent",
        "ScopeInfo",
        "SegmentDescription",
        "Stream",
        "StreamDescription",
        "StreamInfo",
        "StreamReader",
        "Transaction",
        "TransactionDescription",
        "register_codec",
    ),
    "eventproc.streams.offload": ("OffloadResult",),
    "eventproc.workflows.requests": (
        "CreateStream",
        "DeleteScope",
        "DeleteStream",
        "ScaleStream",
        "SealStream",
        "TruncateStream",
        "UpdateStream",
    ),
}

__all__ = [
    "App",
    "AppTx",
    "AppendResult",
    "BackupResult",
    "Batch",
    "Blocker",
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
    "Codec",
    "Context",
    "Corrupt",
    "CreateStream",
    "DeadLetter",
    "DeadLetters",
    "DeleteScope",
    "DeleteStream",
    "Directive",
    "Durability",
    "EmitTarget",
    "Epoch",
    "Event",
    "EventWriter",
    "Eventproc",
    "EventprocError",
    "Failure",
    "Fenced",
    "GroupCheckpoint",
    "GroupDescription",
    "GroupInfo",
    "GroupOptions",
    "GroupReader",
    "GroupStream",
    "KeyRange",
    "LetterCount",
    "MemberDescription",
    "MemberStatus",
    "NewEvent",
    "NotFound",
    "OffloadResult",
    "Opening",
    "PingResult",
    "ProcessorDescription",
    "ProcessorFailed",
    "ProcessorMember",
    "ProcessorState",
    "ProcessorStatus",
    "Progress",
    "ReaderGroup",
    "Rejected",
    "ReplicatedType",
    "Request",
    "RequestStatus",
    "Requests",
    "RetryPolicy",
    "Retryable",
    "Running",
    "ScaleStream",
    "ScalingKind",
    "ScalingPolicy",
    "ScopeInfo",
    "ScopeState",
    "SealStream",
    "Segment",
    "SegmentDescription",
    "SegmentId",
    "SegmentLag",
    "SegmentOwnership",
    "StateSynchronizer",
    "Stream",
    "StreamConfig",
    "StreamCut",
    "StreamDescription",
    "StreamInfo",
    "StreamReader",
    "StreamState",
    "Transaction",
    "TransactionDescription",
    "TruncateStream",
    "TxnState",
    "UpdateStream",
    "__version__",
    "open",
    "open_blocking",
    "open_memory",
    "register_codec",
]


def __getattr__(name: str) -> object:
    module = next((module for module, names in _WHERE.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
