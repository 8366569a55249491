"""Every error that eventproc raises on purpose.

Five base classes say what to do: `Retryable` (nothing changed; try again), `Pending` (it goes on; wait again),
`Rejected` (wrong in the present state), `Fenced` (a newer owner exists; stop) and `Corrupt` (the stored state needs a
person). Each concrete class is one of them. `docs/errors.md` lists all, with when each is raised and what to do.
"""

from __future__ import annotations

from eventproc.store.model.errors import (
    AlreadyExists as AlreadyExists,
    Closed as Closed,
    CommitsPending as CommitsPending,
    Corrupt as Corrupt,
    CorruptRecord as CorruptRecord,
    DatabaseStopped as DatabaseStopped,
    DirectoryInUse as DirectoryInUse,
    DiskFull as DiskFull,
    EventprocError as EventprocError,
    Expired as Expired,
    Fenced as Fenced,
    ForkedError as ForkedError,
    IllegalTransition as IllegalTransition,
    InProgress as InProgress,
    InvalidArgument as InvalidArgument,
    InvalidCut as InvalidCut,
    InvariantBroken as InvariantBroken,
    LockHeld as LockHeld,
    NotFound as NotFound,
    NotSupported as NotSupported,
    OffsetConflict as OffsetConflict,
    OwnerFenced as OwnerFenced,
    Pending as Pending,
    Rejected as Rejected,
    Retryable as Retryable,
    ScaleRefused as ScaleRefused,
    ScopeNotEmpty as ScopeNotEmpty,
    SegmentSealed as SegmentSealed,
    StillPending as StillPending,
    StoreMissing as StoreMissing,
    StoreUnusable as StoreUnusable,
    StreamNotSealed as StreamNotSealed,
    StreamReplaced as StreamReplaced,
    StreamSealed as StreamSealed,
    TransactionAborted as TransactionAborted,
    TransactionDecided as TransactionDecided,
    TransactionMovesProgress as TransactionMovesProgress,
    TransactionNotFound as TransactionNotFound,
    TransactionPending as TransactionPending,
    Truncated as Truncated,
    Unreachable as Unreachable,
    VersionConflict as VersionConflict,
    WorkflowFailed as WorkflowFailed,
    WriterFailed as WriterFailed,
    WriterFenced as WriterFenced,
)
from eventproc.store.model.group_errors import (
    AssignorDiffers as AssignorDiffers,
    CheckpointPending as CheckpointPending,
    GroupNotEmpty as GroupNotEmpty,
    GroupStreamReplaced as GroupStreamReplaced,
    JobCancelled as JobCancelled,
    JobFailed as JobFailed,
    LockLost as LockLost,
    NotAReaderGroup as NotAReaderGroup,
    ReaderFenced as ReaderFenced,
    ReaderOnline as ReaderOnline,
    SegmentFenced as SegmentFenced,
    ShareStreamsDeleted as ShareStreamsDeleted,
    TooManyCheckpoints as TooManyCheckpoints,
)
from eventproc.store.model.ingestion_errors import (
    BackfillRefused as BackfillRefused,
    InvalidSpec as InvalidSpec,
    SparkEnded as SparkEnded,
    SupervisorTerminated as SupervisorTerminated,
    TableBusy as TableBusy,
    TableChanged as TableChanged,
    TaskFenced as TaskFenced,
)
from eventproc.store.model.metadata_errors import (
    HistoryCompacted as HistoryCompacted,
    StaleVersion as StaleVersion,
)

_OF_PROCESSORS = (
    *("CallEnded", "EventLate", "HandlerAbandoned", "HandlerCancelled", "HandlerStuck", "HandlerTimeout"),
    *("KeyNeeded", "NotAProcessorGroup", "PayloadUndecodable", "ProcessorFailed"),
)
"""Imported when first used: they bring the engine of the processors with them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventproc.processors.errors import (
        CallEnded as CallEnded,
        EventLate as EventLate,
        HandlerAbandoned as HandlerAbandoned,
        HandlerCancelled as HandlerCancelled,
        HandlerStuck as HandlerStuck,
        HandlerTimeout as HandlerTimeout,
        KeyNeeded as KeyNeeded,
        NotAProcessorGroup as NotAProcessorGroup,
        PayloadUndecodable as PayloadUndecodable,
        ProcessorFailed as ProcessorFailed,
    )

    __all__: list[str]

else:
    __all__ = sorted(
        (*_OF_PROCESSORS, *(name for name, value in globals().items() if isinstance(value, type)))
    )


def __getattr__(name: str) -> object:
    if name not in _OF_PROCESSORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module("eventproc.processors.errors"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_PROCESSORS})
