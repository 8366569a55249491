"""What calls return: descriptions, states and results; and groups of options that several calls take.

What is returned are values, which nobody else makes. Each has one form in JSON: `eventproc.to_dict` returns it, and
`eventproc COMMAND --output json` and REST show it.
"""

from __future__ import annotations

from eventproc.cluster import (
    ClusterChange as ClusterChange,
    ClusterDescription as ClusterDescription,
    ClusterInstance as ClusterInstance,
    ClusterServer as ClusterServer,
    InstanceAdded as InstanceAdded,
    InstanceRemoved as InstanceRemoved,
)
from eventproc.cluster.compaction import CompactResult as CompactResult
from eventproc.groups import (
    GroupDescription as GroupDescription,
    GroupInfo as GroupInfo,
    SegmentOwnership as SegmentOwnership,
    SharedSegment as SharedSegment,
    ShareGroupDescription as ShareGroupDescription,
    ShareHolder as ShareHolder,
    ShareUpdate as ShareUpdate,
)
from eventproc.groups.describe import MemberDescription as MemberDescription, SegmentLag as SegmentLag
from eventproc.groups.operations import (
    GroupPartitionReset as GroupPartitionReset,
    ResetPreview as ResetPreview,
)
from eventproc.ingestion.changes import PartitionReset as PartitionReset, SpecEffect as SpecEffect
from eventproc.ingestion.health import SupervisorError as SupervisorError, SupervisorState as SupervisorState
from eventproc.ingestion.memory import LagSample as LagSample, TaskTotals as TaskTotals
from eventproc.ingestion.status import (
    IngestPartition as IngestPartition,
    IngestTaskInfo as IngestTaskInfo,
    IngestWorkerInfo as IngestWorkerInfo,
    SupervisorInfo as SupervisorInfo,
    SupervisorStatus as SupervisorStatus,
    SupervisorVersion as SupervisorVersion,
)
from eventproc.processors import (
    ProcessorDescription as ProcessorDescription,
    ProcessorStatus as ProcessorStatus,
)
from eventproc.processors.context import SegmentEnd as SegmentEnd
from eventproc.processors.dead_letters.operations import DeadLetter as DeadLetter, LetterCount as LetterCount
from eventproc.processors.key_states import KeyStatesInfo as KeyStatesInfo, KeyValue as KeyValue
from eventproc.processors.observe.call_durations import CallDurations as CallDurations
from eventproc.processors.observe.status import (
    Blocker as Blocker,
    MemberStatus as MemberStatus,
    ProcessorMember as ProcessorMember,
    ProcessorState as ProcessorState,
)
from eventproc.runtime.overview import Backlog as Backlog, Overview as Overview
from eventproc.runtime.users import NewToken as NewToken, TokenInfo as TokenInfo, UserInfo as UserInfo
from eventproc.shares import ShareResetPreview as ShareResetPreview
from eventproc.store.backup.results import (
    BackupPlan as BackupPlan,
    BackupResult as BackupResult,
    CopyResult as CopyResult,
    RestoreResult as RestoreResult,
)
from eventproc.store.catalog import StreamSize as StreamSize
from eventproc.store.groups import GroupStream as GroupStream
from eventproc.store.ingestion.logs import IngestLogLine as IngestLogLine
from eventproc.store.model.cuts import CutOrder as CutOrder
from eventproc.store.model.delays import DelayedEvent as DelayedEvent
from eventproc.store.model.epochs import Epoch as Epoch, Segment as Segment
from eventproc.store.model.ingestion import (
    DroppedFiles as DroppedFiles,
    TableColumn as TableColumn,
    TableDescription as TableDescription,
    TableInfo as TableInfo,
    TableInterval as TableInterval,
    TablePartitioning as TablePartitioning,
    TaskState as TaskState,
    TaskStats as TaskStats,
)
from eventproc.store.model.jobs import JobDescription as JobDescription, JobState as JobState
from eventproc.store.model.list_pages import PageOptions as PageOptions
from eventproc.store.model.progress import Progress as Progress
from eventproc.store.model.scaling import LoadVerdict as LoadVerdict, SegmentVerdict as SegmentVerdict
from eventproc.store.model.schedules import MissedTicks as MissedTicks
from eventproc.store.model.states import ScopeState as ScopeState, StreamState as StreamState
from eventproc.store.model.transactions import PingResult as PingResult, TxnState as TxnState
from eventproc.store.requests import (
    Request as Request,
    RequestOrigin as RequestOrigin,
    RequestStatus as RequestStatus,
)
from eventproc.store.schedules import ScheduleInfo as ScheduleInfo
from eventproc.store.segments import AppendResult as AppendResult
from eventproc.store.task_queue import TaskInfo as TaskInfo, TaskStatus as TaskStatus
from eventproc.streams import (
    MeasuredPart as MeasuredPart,
    PastScale as PastScale,
    ScopeInfo as ScopeInfo,
    SegmentDescription as SegmentDescription,
    StreamDescription as StreamDescription,
    StreamInfo as StreamInfo,
    TransactionDescription as TransactionDescription,
    TruncationDescription as TruncationDescription,
)
from eventproc.streams.compaction import CompactionResult as CompactionResult
from eventproc.streams.new_events import (
    EmitOptions as EmitOptions,
    EventOptions as EventOptions,
    WriteOptions as WriteOptions,
)
from eventproc.streams.offload import OffloadResult as OffloadResult
from eventproc.streams.picture import (
    PicturePosition as PicturePosition,
    PictureSegment as PictureSegment,
    StreamPicture as StreamPicture,
)
from eventproc.streams.request_calls import CreateOptions as CreateOptions
from eventproc.topics import (
    GroupPartition as GroupPartition,
    PartitionDescription as PartitionDescription,
    PartitionPosition as PartitionPosition,
    TopicDescription as TopicDescription,
    TopicInfo as TopicInfo,
)
from eventproc.workflows.policies import ScalingDescription as ScalingDescription
from eventproc.workflows.preview import RequestPreview as RequestPreview

TYPE_CHECKING = False
if not TYPE_CHECKING:
    __all__ = sorted(name for name in globals() if name[0].isupper() and not name.isupper())
