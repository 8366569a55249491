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
        ArrayStorage as ArrayStorage,
        EventStorage as EventStorage,
        LinkedListStorage as LinkedListStorage,
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

_WHERE = {
    "App": "eventproc.processors",
    "AppTx": "eventproc.processors",
    "ArrayStorage": "eventproc.store.segments.event_storage",
    "AssignableSegment": "eventproc.groups",
    "AssignmentInput": "eventproc.groups",
    "Assignor": "eventproc.groups",
    "BackupTask": "eventproc.cluster",
    "Batch": "eventproc.streams",
    "ChangeOptions": "eventproc.streams.request_calls",
    "Cluster": "eventproc.cluster",
    "Codec": "eventproc.streams",
    "CompactTask": "eventproc.cluster",
    "CompactTopicTask": "eventproc.cluster",
    "CompactionPolicy": "eventproc.store.model.policies",
    "Consumer": "eventproc.topics",
    "Context": "eventproc.processors",
    "Corrupt": "eventproc.store.model.errors",
    "CreateStream": "eventproc.workflows.requests",
    "DeadLetters": "eventproc.processors.dead_letters.operations",
    "DelayedEvents": "eventproc.streams.delayed_events",
    "DeleteScope": "eventproc.workflows.requests",
    "DeleteScopeTask": "eventproc.cluster",
    "DeleteStream": "eventproc.workflows.requests",
    "Delivery": "eventproc.shares",
    "Directive": "eventproc.processors",
    "Durability": "eventproc.store.database",
    "EVENT_BYTES_MAX": "eventproc.store.model.limits",
    "EmitTarget": "eventproc.processors.emit",
    "Event": "eventproc.store.segments",
    "EventStorage": "eventproc.store.segments.event_storage",
    "EventWriter": "eventproc.streams",
    "Eventproc": "eventproc.runtime",
    "EventprocError": "eventproc.store.model.errors",
    "Failure": "eventproc.processors",
    "Fenced": "eventproc.store.model.errors",
    "Grant": "eventproc.store.access.permissions",
    "Group": "eventproc.topics",
    "GroupCheckpoint": "eventproc.groups",
    "GroupOptions": "eventproc.store.groups",
    "GroupReader": "eventproc.groups",
    "GroupUpdate": "eventproc.groups",
    "HandlerDecorator": "eventproc.processors",
    "HandlerOptions": "eventproc.processors",
    "Job": "eventproc.jobs.jobs",
    "Jobs": "eventproc.jobs.jobs",
    "JointTransaction": "eventproc.streams",
    "KeyRange": "eventproc.store.model.ranges",
    "LinkedListStorage": "eventproc.store.segments.event_storage",
    "MergeNeighbours": "eventproc.streams.operations",
    "NewEvent": "eventproc.streams",
    "NotFound": "eventproc.store.model.errors",
    "OffloadPolicy": "eventproc.store.model.policies",
    "OffloadTask": "eventproc.cluster",
    "Opening": "eventproc.store.openable",
    "Operation": "eventproc.workflows.requests",
    "PRESENT": "eventproc.workflows.requests",
    "Partitioner": "eventproc.topics",
    "Partitioning": "eventproc.store.model.policies",
    "Pending": "eventproc.store.model.errors",
    "Permission": "eventproc.store.access.permissions",
    "ProcessorFailed": "eventproc.processors",
    "ProcessorOptions": "eventproc.processors",
    "ProgressHold": "eventproc.streams",
    "ProgressSource": "eventproc.streams",
    "ProjectionOptions": "eventproc.processors",
    "Rate": "eventproc.processors",
    "Rejected": "eventproc.store.model.errors",
    "ReplicatedType": "eventproc.store.replicated",
    "RequestOptions": "eventproc.streams.request_calls",
    "Requests": "eventproc.runtime",
    "RetentionPolicy": "eventproc.store.model.policies",
    "RetryPolicy": "eventproc.processors",
    "Retryable": "eventproc.store.model.errors",
    "Running": "eventproc.processors",
    "ScaleStream": "eventproc.workflows.requests",
    "ScalingKind": "eventproc.store.model.policies",
    "ScalingPolicy": "eventproc.store.model.policies",
    "Schedules": "eventproc.streams.schedules",
    "SealStream": "eventproc.workflows.requests",
    "SegmentId": "eventproc.store.model.ids",
    "ShareConsumer": "eventproc.shares",
    "ShareGroup": "eventproc.shares",
    "ShareOptions": "eventproc.shares",
    "SplitSegment": "eventproc.streams.operations",
    "StateSynchronizer": "eventproc.store.replicated",
    "Stream": "eventproc.streams",
    "StreamConfig": "eventproc.store.model.policies",
    "StreamCut": "eventproc.store.model.cuts",
    "StreamReader": "eventproc.streams",
    "StreamTarget": "eventproc.streams",
    "Supervisor": "eventproc.ingestion.supervisor",
    "Tasks": "eventproc.runtime.tasks",
    "Topic": "eventproc.topics",
    "TopicPartition": "eventproc.topics",
    "Transaction": "eventproc.streams",
    "TruncatePartitions": "eventproc.topics.operations",
    "TruncateStream": "eventproc.workflows.requests",
    "TruncateTo": "eventproc.streams.operations",
    "UpdateStream": "eventproc.workflows.requests",
    "Users": "eventproc.runtime.users",
    "VerifyTask": "eventproc.cluster",
    "WorkerOptions": "eventproc.processors",
    "copy": "eventproc.runtime.copying",
    "open": "eventproc.runtime",
    "open_blocking": "eventproc.blocking",
    "open_memory": "eventproc.runtime",
    "register_codec": "eventproc.streams",
    "register_storage": "eventproc.store.segments.event_storage",
    "restore_backup": "eventproc.store.backup.restore",
    "to_dict": "eventproc.store.records.plain",
}
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
