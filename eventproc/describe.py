"""What calls return: descriptions, states and results. They are values, and nobody else makes them.

Each has one form in JSON: `eventproc.to_dict` returns it, and `eventproc COMMAND --output json` and REST show it.
"""

from __future__ import annotations

from eventproc.cluster import (
    ClusterChange,
    ClusterDescription,
    ClusterInstance,
    ClusterServer,
    InstanceAdded,
    InstanceRemoved,
)
from eventproc.cluster.compaction import (
    CompactResult,
)
from eventproc.groups import (
    GroupDescription,
    GroupInfo,
    SegmentOwnership,
    SharedSegment,
    ShareGroupDescription,
    ShareHolder,
    ShareUpdate,
)
from eventproc.groups.describe import (
    MemberDescription,
    SegmentLag,
)
from eventproc.groups.operations import (
    GroupPartitionReset,
    ResetPreview,
)
from eventproc.ingestion.changes import PartitionReset, SpecEffect
from eventproc.ingestion.health import SupervisorError, SupervisorState
from eventproc.ingestion.memory import LagSample, TaskTotals
from eventproc.ingestion.status import (
    IngestPartition,
    IngestTaskInfo,
    IngestWorkerInfo,
    SupervisorInfo,
    SupervisorStatus,
    SupervisorVersion,
)
from eventproc.processors import (
    ProcessorDescription,
    ProcessorStatus,
)
from eventproc.processors.dead_letters.operations import (
    DeadLetter,
    LetterCount,
)
from eventproc.processors.observe.status import (
    Blocker,
    MemberStatus,
    ProcessorMember,
    ProcessorState,
)
from eventproc.runtime.users import (
    NewToken,
    TokenInfo,
    UserInfo,
)
from eventproc.shares import (
    ShareResetPreview,
)
from eventproc.store.backup.results import (
    BackupPlan,
    BackupResult,
    CopyResult,
    RestoreResult,
)
from eventproc.store.catalog import (
    StreamSize,
)
from eventproc.store.groups import (
    GroupStream,
)
from eventproc.store.ingestion.logs import IngestLogLine
from eventproc.store.model.cuts import (
    CutOrder,
)
from eventproc.store.model.delays import (
    DelayedEvent,
)
from eventproc.store.model.epochs import (
    Epoch,
    Segment,
)
from eventproc.store.model.ingestion import (
    DroppedFiles,
    TableColumn,
    TableDescription,
    TableInfo,
    TableInterval,
    TablePartitioning,
    TaskState,
    TaskStats,
)
from eventproc.store.model.jobs import (
    JobDescription,
    JobState,
)
from eventproc.store.model.progress import (
    Progress,
)
from eventproc.store.model.scaling import (
    LoadVerdict,
    SegmentVerdict,
)
from eventproc.store.model.schedules import MissedTicks
from eventproc.store.model.states import (
    ScopeState,
    StreamState,
)
from eventproc.store.model.transactions import (
    PingResult,
    TxnState,
)
from eventproc.store.requests import (
    Request,
    RequestOrigin,
    RequestStatus,
)
from eventproc.store.schedules import ScheduleInfo
from eventproc.store.segments import (
    AppendResult,
)
from eventproc.store.task_queue import (
    TaskInfo,
    TaskStatus,
)
from eventproc.streams import (
    MeasuredPart,
    PastScale,
    ScopeInfo,
    SegmentDescription,
    StreamDescription,
    StreamInfo,
    TransactionDescription,
    TruncationDescription,
)
from eventproc.streams.compaction import (
    CompactionResult,
)
from eventproc.streams.offload import (
    OffloadResult,
)
from eventproc.topics import (
    GroupPartition,
    PartitionDescription,
    TopicDescription,
    TopicInfo,
)
from eventproc.workflows.policies import (
    ScalingDescription,
)
from eventproc.workflows.preview import (
    RequestPreview,
)

__all__ = [
    "AppendResult",
    "BackupPlan",
    "BackupResult",
    "Blocker",
    "ClusterChange",
    "ClusterDescription",
    "ClusterInstance",
    "ClusterServer",
    "CompactResult",
    "CompactionResult",
    "CopyResult",
    "CutOrder",
    "DeadLetter",
    "DelayedEvent",
    "DroppedFiles",
    "Epoch",
    "GroupDescription",
    "GroupInfo",
    "GroupPartition",
    "GroupPartitionReset",
    "GroupStream",
    "IngestLogLine",
    "IngestPartition",
    "IngestTaskInfo",
    "IngestWorkerInfo",
    "InstanceAdded",
    "InstanceRemoved",
    "JobDescription",
    "JobState",
    "LagSample",
    "LetterCount",
    "LoadVerdict",
    "MeasuredPart",
    "MemberDescription",
    "MemberStatus",
    "MissedTicks",
    "NewToken",
    "OffloadResult",
    "PartitionDescription",
    "PartitionReset",
    "PastScale",
    "PingResult",
    "ProcessorDescription",
    "ProcessorMember",
    "ProcessorState",
    "ProcessorStatus",
    "Progress",
    "Request",
    "RequestOrigin",
    "RequestPreview",
    "RequestStatus",
    "ResetPreview",
    "RestoreResult",
    "ScalingDescription",
    "ScheduleInfo",
    "ScopeInfo",
    "ScopeState",
    "Segment",
    "SegmentDescription",
    "SegmentLag",
    "SegmentOwnership",
    "SegmentVerdict",
    "ShareGroupDescription",
    "ShareHolder",
    "ShareResetPreview",
    "ShareUpdate",
    "SharedSegment",
    "SpecEffect",
    "StreamDescription",
    "StreamInfo",
    "StreamSize",
    "StreamState",
    "SupervisorError",
    "SupervisorInfo",
    "SupervisorState",
    "SupervisorStatus",
    "SupervisorVersion",
    "TableColumn",
    "TableDescription",
    "TableInfo",
    "TableInterval",
    "TablePartitioning",
    "TaskInfo",
    "TaskState",
    "TaskStats",
    "TaskStatus",
    "TaskTotals",
    "TokenInfo",
    "TopicDescription",
    "TopicInfo",
    "TransactionDescription",
    "TruncationDescription",
    "TxnState",
    "UserInfo",
]
