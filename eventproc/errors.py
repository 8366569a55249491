"""Every error that eventproc raises on purpose.

Five base classes say what to do: `Retryable` (nothing changed; try again), `Pending` (it goes on; wait again),
`Rejected` (wrong in the present state), `Fenced` (a newer owner exists; stop) and `Corrupt` (the stored state needs a
person). Each concrete class is one of them. `docs/errors.md` lists all, with when each is raised and what to do.
"""

from __future__ import annotations

from eventproc.store.model.errors import (
    AlreadyExists,
    Closed,
    CommitsPending,
    Corrupt,
    CorruptRecord,
    DatabaseStopped,
    DirectoryInUse,
    DiskFull,
    EventprocError,
    Expired,
    Fenced,
    ForkedError,
    IllegalTransition,
    InProgress,
    InvalidArgument,
    InvalidCut,
    InvariantBroken,
    LockHeld,
    NotFound,
    NotSupported,
    OffsetConflict,
    OwnerFenced,
    Pending,
    Rejected,
    Retryable,
    ScaleRefused,
    ScopeNotEmpty,
    SegmentSealed,
    StillPending,
    StoreMissing,
    StoreUnusable,
    StreamNotSealed,
    StreamReplaced,
    StreamSealed,
    TransactionAborted,
    TransactionDecided,
    TransactionMovesProgress,
    TransactionNotFound,
    TransactionPending,
    Truncated,
    Unreachable,
    VersionConflict,
    WorkflowFailed,
    WriterFailed,
    WriterFenced,
)
from eventproc.store.model.group_errors import (
    AssignorDiffers,
    CheckpointPending,
    GroupNotEmpty,
    GroupStreamReplaced,
    JobCancelled,
    JobFailed,
    LockLost,
    NotAReaderGroup,
    ReaderFenced,
    ReaderOnline,
    SegmentFenced,
    ShareStreamsDeleted,
    TooManyCheckpoints,
)
from eventproc.store.model.ingestion_errors import (
    BackfillRefused,
    InvalidSpec,
    SparkEnded,
    SupervisorTerminated,
    TableBusy,
    TableChanged,
    TaskFenced,
)
from eventproc.store.model.metadata_errors import HistoryCompacted, StaleVersion

TYPE_CHECKING = False  # imported when first used: they bring the engine of the processors with them
if TYPE_CHECKING:
    from eventproc.processors.errors import (
        CallEnded,
        HandlerAbandoned,
        HandlerCancelled,
        HandlerStuck,
        HandlerTimeout,
        NotAProcessorGroup,
        PayloadUndecodable,
        ProcessorFailed,
    )

__all__ = [
    "AlreadyExists",
    "AssignorDiffers",
    "BackfillRefused",
    "CallEnded",
    "CheckpointPending",
    "Closed",
    "CommitsPending",
    "Corrupt",
    "CorruptRecord",
    "DatabaseStopped",
    "DirectoryInUse",
    "DiskFull",
    "EventprocError",
    "Expired",
    "Fenced",
    "ForkedError",
    "GroupNotEmpty",
    "GroupStreamReplaced",
    "HandlerAbandoned",
    "HandlerCancelled",
    "HandlerStuck",
    "HandlerTimeout",
    "HistoryCompacted",
    "IllegalTransition",
    "InProgress",
    "InvalidArgument",
    "InvalidCut",
    "InvalidSpec",
    "InvariantBroken",
    "JobCancelled",
    "JobFailed",
    "LockHeld",
    "LockLost",
    "NotAProcessorGroup",
    "NotAReaderGroup",
    "NotFound",
    "NotSupported",
    "OffsetConflict",
    "OwnerFenced",
    "PayloadUndecodable",
    "Pending",
    "ProcessorFailed",
    "ReaderFenced",
    "ReaderOnline",
    "Rejected",
    "Retryable",
    "ScaleRefused",
    "ScopeNotEmpty",
    "SegmentFenced",
    "SegmentSealed",
    "ShareStreamsDeleted",
    "SparkEnded",
    "StaleVersion",
    "StillPending",
    "StoreMissing",
    "StoreUnusable",
    "StreamNotSealed",
    "StreamReplaced",
    "StreamSealed",
    "SupervisorTerminated",
    "TableBusy",
    "TableChanged",
    "TaskFenced",
    "TooManyCheckpoints",
    "TransactionAborted",
    "TransactionDecided",
    "TransactionMovesProgress",
    "TransactionNotFound",
    "TransactionPending",
    "Truncated",
    "Unreachable",
    "VersionConflict",
    "WorkflowFailed",
    "WriterFailed",
    "WriterFenced",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module("eventproc.processors.errors"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
