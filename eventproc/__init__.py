"""Durable, elastic streams and ordered event processing inside a Python process.

Start with `async with eventproc.open("data/") as ep:`, or `open_memory()` in a test. The parts of an ingestion's spec
are in `eventproc.ingestion`, what calls return in `eventproc.describe`, errors in `eventproc.errors`, and handles for
code without `await` in `eventproc.blocking`; docs/public-api.md lists all. Names are imported when they are first
used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from eventproc._version import __version__ as __version__

TYPE_CHECKING = False  # type checkers know the name; the module that has it costs more than all of this one
if TYPE_CHECKING:
    from eventproc.blocking import (
        open_blocking as open_blocking,
    )
    from eventproc.cluster import (
        BackupTask as BackupTask,
        Cluster as Cluster,
        CompactTask as CompactTask,
        CompactTopicTask as CompactTopicTask,
        DeleteScopeTask as DeleteScopeTask,
        OffloadTask as OffloadTask,
        VerifyTask as VerifyTask,
    )
    from eventproc.groups import (
        AssignableSegment as AssignableSegment,
        AssignmentInput as AssignmentInput,
        Assignor as Assignor,
        GroupCheckpoint as GroupCheckpoint,
        GroupReader as GroupReader,
        GroupUpdate as GroupUpdate,
    )
    from eventproc.ingestion.supervisor import Supervisor as Supervisor
    from eventproc.jobs.jobs import (
        Job as Job,
        Jobs as Jobs,
    )
    from eventproc.processors import (
        App as App,
        AppTx as AppTx,
        Context as Context,
        Directive as Directive,
        Failure as Failure,
        HandlerDecorator as HandlerDecorator,
        HandlerOptions as HandlerOptions,
        KeyState as KeyState,
        ProcessorFailed as ProcessorFailed,
        ProcessorOptions as ProcessorOptions,
        ProjectionOptions as ProjectionOptions,
        Rate as Rate,
        RetryPolicy as RetryPolicy,
        Running as Running,
        WorkerOptions as WorkerOptions,
    )
    from eventproc.processors.dead_letters.operations import (
        DeadLetters as DeadLetters,
    )
    from eventproc.processors.emit import (
        EmitTarget as EmitTarget,
    )
    from eventproc.processors.key_states import KeyStates as KeyStates
    from eventproc.runtime import (
        Eventproc as Eventproc,
        Requests as Requests,
        open as open,
        open_memory as open_memory,
    )
    from eventproc.runtime.copying import (
        copy as copy,
    )
    from eventproc.runtime.tasks import (
        Tasks as Tasks,
    )
    from eventproc.runtime.users import (
        Users as Users,
    )
    from eventproc.shares import (
        Delivery as Delivery,
        ShareConsumer as ShareConsumer,
        ShareGroup as ShareGroup,
        ShareOptions as ShareOptions,
    )
    from eventproc.store.access.permissions import (
        Grant as Grant,
        Permission as Permission,
    )
    from eventproc.store.backup.restore import (
        restore_backup as restore_backup,
    )
    from eventproc.store.database import (
        Durability as Durability,
    )
    from eventproc.store.groups import (
        GroupOptions as GroupOptions,
    )
    from eventproc.store.model.cuts import (
        StreamCut as StreamCut,
    )
    from eventproc.store.model.errors import (
        Corrupt as Corrupt,
        EventprocError as EventprocError,
        Fenced as Fenced,
        NotFound as NotFound,
        Pending as Pending,
        Rejected as Rejected,
        Retryable as Retryable,
    )
    from eventproc.store.model.ids import (
        SegmentId as SegmentId,
    )
    from eventproc.store.model.limits import (
        EVENT_BYTES_MAX as EVENT_BYTES_MAX,
    )
    from eventproc.store.model.policies import (
        CompactionPolicy as CompactionPolicy,
        OffloadPolicy as OffloadPolicy,
        Partitioning as Partitioning,
        RetentionPolicy as RetentionPolicy,
        ScalingKind as ScalingKind,
        ScalingPolicy as ScalingPolicy,
        StreamConfig as StreamConfig,
    )
    from eventproc.store.model.ranges import (
        KeyRange as KeyRange,
    )
    from eventproc.store.openable import (
        Opening as Opening,
    )
    from eventproc.store.records.plain import (
        to_dict as to_dict,
    )
    from eventproc.store.replicated import (
        ReplicatedType as ReplicatedType,
        StateSynchronizer as StateSynchronizer,
    )
    from eventproc.store.segments import (
        Event as Event,
    )
    from eventproc.store.segments.event_storage import (
        EventStorage as EventStorage,
        register_storage as register_storage,
    )
    from eventproc.streams import (
        Batch as Batch,
        Codec as Codec,
        EventWriter as EventWriter,
        JointTransaction as JointTransaction,
        NewEvent as NewEvent,
        ProgressHold as ProgressHold,
        ProgressSource as ProgressSource,
        Stream as Stream,
        StreamReader as StreamReader,
        StreamTarget as StreamTarget,
        Transaction as Transaction,
        register_codec as register_codec,
    )
    from eventproc.streams.delayed_events import (
        DelayedEvents as DelayedEvents,
    )
    from eventproc.streams.operations import (
        MergeNeighbours as MergeNeighbours,
        SplitSegment as SplitSegment,
        TruncateTo as TruncateTo,
    )
    from eventproc.streams.request_calls import (
        ChangeOptions as ChangeOptions,
        RequestOptions as RequestOptions,
    )
    from eventproc.streams.schedules import (
        Schedules as Schedules,
    )
    from eventproc.topics import (
        Consumer as Consumer,
        Group as Group,
        Partitioner as Partitioner,
        Topic as Topic,
        TopicPartition as TopicPartition,
    )
    from eventproc.topics.operations import (
        TruncatePartitions as TruncatePartitions,
    )
    from eventproc.workflows.requests import (
        PRESENT as PRESENT,
        CreateStream as CreateStream,
        DeleteScope as DeleteScope,
        DeleteStream as DeleteStream,
        Operation as Operation,
        ScaleStream as ScaleStream,
        SealStream as SealStream,
        TruncateStream as TruncateStream,
        UpdateStream as UpdateStream,
    )

_NAMES = {
    "eventproc.blocking": "open_blocking",
    "eventproc.cluster": (
        "BackupTask Cluster CompactTask CompactTopicTask DeleteScopeTask OffloadTask VerifyTask"
    ),
    "eventproc.groups": "AssignableSegment AssignmentInput Assignor GroupCheckpoint GroupReader GroupUpdate",
    "eventproc.ingestion.supervisor": "Supervisor",
    "eventproc.jobs.jobs": "Job Jobs",
    "eventproc.processors": (
        "App AppTx Context Directive Failure HandlerDecorator HandlerOptions KeyState ProcessorFailed "
        "ProcessorOptions ProjectionOptions Rate RetryPolicy Running WorkerOptions"
    ),
    "eventproc.processors.dead_letters.operations": "DeadLetters",
    "eventproc.processors.emit": "EmitTarget",
    "eventproc.processors.key_states": "KeyStates",
    "eventproc.runtime": "Eventproc Requests open open_memory",
    "eventproc.runtime.copying": "copy",
    "eventproc.runtime.tasks": "Tasks",
    "eventproc.runtime.users": "Users",
    "eventproc.shares": "Delivery ShareConsumer ShareGroup ShareOptions",
    "eventproc.store.access.permissions": "Grant Permission",
    "eventproc.store.backup.restore": "restore_backup",
    "eventproc.store.database": "Durability",
    "eventproc.store.groups": "GroupOptions",
    "eventproc.store.model.cuts": "StreamCut",
    "eventproc.store.model.errors": "Corrupt EventprocError Fenced NotFound Pending Rejected Retryable",
    "eventproc.store.model.ids": "SegmentId",
    "eventproc.store.model.limits": "EVENT_BYTES_MAX",
    "eventproc.store.model.policies": (
        "CompactionPolicy OffloadPolicy Partitioning RetentionPolicy ScalingKind ScalingPolicy StreamConfig"
    ),
    "eventproc.store.model.ranges": "KeyRange",
    "eventproc.store.openable": "Opening",
    "eventproc.store.records.plain": "to_dict",
    "eventproc.store.replicated": "ReplicatedType StateSynchronizer",
    "eventproc.store.segments": "Event",
    "eventproc.store.segments.event_storage": "EventStorage register_storage",
    "eventproc.streams": (
        "Batch Codec EventWriter JointTransaction NewEvent ProgressHold ProgressSource Stream "
        "StreamReader StreamTarget Transaction register_codec"
    ),
    "eventproc.streams.delayed_events": "DelayedEvents",
    "eventproc.streams.operations": "MergeNeighbours SplitSegment TruncateTo",
    "eventproc.streams.request_calls": "ChangeOptions RequestOptions",
    "eventproc.streams.schedules": "Schedules",
    "eventproc.topics": "Consumer Group Partitioner Topic TopicPartition",
    "eventproc.topics.operations": "TruncatePartitions",
    "eventproc.workflows.requests": (
        "CreateStream DeleteScope DeleteStream Operation PRESENT ScaleStream SealStream TruncateStream "
        "UpdateStream"
    ),
}
"""The names that each module has."""

_WHERE = dict(sorted((name, module) for module, names in _NAMES.items() for name in names.split()))
"""Where each name is found."""

if not TYPE_CHECKING:
    __all__ = ("__version__", *_WHERE)


def __getattr__(name: str) -> object:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *_WHERE]
