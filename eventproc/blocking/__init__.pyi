"""The blocking twin, as type checkers know it. Written by `python -m tools.blocking`."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Generic, overload

from typing_extensions import TypeVar, Unpack

from eventproc.base.clock import Clock
from eventproc.blocking.loop import Block, Loop, Opened
from eventproc.cluster import AnyTask
from eventproc.cluster.compaction import CompactResult
from eventproc.cluster.membership import ClusterChange, ClusterDescription, ClusterInstance
from eventproc.groups import (
    GroupCheckpoint,
    GroupDescription,
    GroupEnd,
    GroupInfo,
    GroupResetEnd,
    GroupStart,
    ResetPreview,
    RetainedPart,
    ShareGroupDescription,
    ShareUpdate,
    TruncatedPolicy,
)
from eventproc.groups.assignors import Assignor
from eventproc.groups.changes import GroupUpdate
from eventproc.groups.operations import GroupPartitionReset
from eventproc.groups.state import SegmentOwnership
from eventproc.ingestion import SupervisorSpec
from eventproc.ingestion.changes import PartitionReset, SpecEffect
from eventproc.ingestion.intervals import RowTime
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.status import (
    IngestTaskInfo,
    IngestWorkerInfo,
    SupervisorInfo,
    SupervisorStatus,
    SupervisorVersion,
)
from eventproc.processors import App, AppTx, ProcessorDescription
from eventproc.processors.dead_letters.dead_letter import DeadLetter
from eventproc.processors.dead_letters.operations import Ids, LetterCount
from eventproc.processors.key_state import KeyState
from eventproc.processors.key_states import KeyStatesInfo, KeyValue
from eventproc.processors.observe.status import ProcessorStatus
from eventproc.runtime.overview import Overview
from eventproc.runtime.users import NewToken, UserInfo
from eventproc.shares.changes import ShareResetPreview
from eventproc.shares.events import Delivery
from eventproc.store.access.permissions import Permission
from eventproc.store.backup.results import BackupPlan, BackupResult
from eventproc.store.catalog import StreamSize
from eventproc.store.database import Durability, SqlParameters, SqlValue
from eventproc.store.database.standalone import Advance
from eventproc.store.faults import Faults
from eventproc.store.groups import DeletedPolicy, GroupOptions, ShareOptions
from eventproc.store.ingestion.logs import IngestLogLine
from eventproc.store.model.cuts import CutOrder, StreamCut
from eventproc.store.model.delays import DelayedEvent
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ingestion import DroppedFiles, TableDescription, TableInfo
from eventproc.store.model.jobs import JobDescription, JobState
from eventproc.store.model.policies import CompactionPolicy, OffloadPolicy, RetentionPolicy, ScalingPolicy
from eventproc.store.model.time_marks import TimeWindow
from eventproc.store.replicated import ReplicatedType
from eventproc.store.requests import Request
from eventproc.store.schedules import ScheduleInfo
from eventproc.store.segments import AppendResult, Event
from eventproc.store.task_queue import TaskInfo
from eventproc.store.transactions import PingResult
from eventproc.streams import ScopeInfo, StreamInfo
from eventproc.streams.codec import Codec, PayloadCodec
from eventproc.streams.compaction import CompactionResult
from eventproc.streams.description import (
    MeasuredPart,
    PastScale,
    SegmentDescription,
    StreamDescription,
    TransactionDescription,
    TruncationDescription,
)
from eventproc.streams.joint_transaction import StreamTarget
from eventproc.streams.new_events import NewEvent
from eventproc.streams.offload import OffloadResult
from eventproc.streams.partitioners import Partitioner
from eventproc.streams.picture import StreamPicture
from eventproc.streams.queries import Moment, SegmentName
from eventproc.streams.reader import Batch
from eventproc.streams.request_calls import ChangeOptions, RequestOptions
from eventproc.streams.stream import RangeName, Start
from eventproc.topics import TopicInfo
from eventproc.topics.consumer import PartitionRef
from eventproc.topics.description import PartitionDescription, PartitionPosition, TopicDescription
from eventproc.topics.group_partitions import GroupPartition
from eventproc.topics.partition import TopicPartition
from eventproc.topics.topic import Strategy
from eventproc.workflows.preview import RequestPreview
from eventproc.workflows.requests import Operation

P = TypeVar("P", default=bytes)
R = TypeVar("R", default=bytes)
S = TypeVar("S")
T = TypeVar("T", default=bytes)
U = TypeVar("U")
V = TypeVar("V", default=bytes)

__all__: tuple[str, ...]

class _Twin:
    _loop: Loop
    _twin: Any
    def __init__(self, loop: Loop, twin: Any) -> None: ...

class BlockingEventproc(_Twin, Opened):
    requests: BlockingRequests
    cluster: BlockingCluster
    tasks: BlockingTasks
    @property
    def delayed(self) -> BlockingDelayedEvents: ...
    @overload
    def jobs(self, share_group: str, stream: str | None = None) -> BlockingJobs[bytes]: ...
    @overload
    def jobs(
        self, share_group: str, stream: str | None = None, *, payload: type[P], codec: Codec[P] | None = None
    ) -> BlockingJobs[P]: ...
    @overload
    def jobs(
        self,
        share_group: str,
        stream: str | None = None,
        *,
        payload: type[P] = ...,
        codec: Codec[P] | None = None,
        result: type[R],
    ) -> BlockingJobs[P, R]: ...
    @overload
    def state(self, group: str) -> BlockingKeyStates[bytes]: ...
    @overload
    def state(self, group: str, state: type[V] | KeyState[V]) -> BlockingKeyStates[V]: ...
    @property
    def schedules(self) -> BlockingSchedules: ...
    @property
    def users(self) -> BlockingUsers: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def durability(self) -> Durability: ...
    def query(self, sql: str, parameters: SqlParameters = ()) -> list[tuple[SqlValue, ...]]: ...
    def create_scope(self, name: str) -> None: ...
    def delete_scope(
        self, name: str, *, recursive: bool = False, **options: Unpack[RequestOptions]
    ) -> None: ...
    def scopes(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[ScopeInfo]: ...
    @overload
    def create_stream(
        self,
        name: str,
        *,
        scaling: ScalingPolicy | None = None,
        storage: str = ...,
        retention: RetentionPolicy = ...,
        offload: OffloadPolicy = ...,
        tags: Iterable[str] = (),
        id_window_ms: int = ...,
        **options: Unpack[RequestOptions],
    ) -> BlockingStream: ...
    @overload
    def create_stream(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        scaling: ScalingPolicy | None = None,
        storage: str = ...,
        retention: RetentionPolicy = ...,
        offload: OffloadPolicy = ...,
        tags: Iterable[str] = (),
        id_window_ms: int = ...,
        **options: Unpack[RequestOptions],
    ) -> BlockingStream[P]: ...
    @overload
    def stream(self, name: str) -> BlockingStream: ...
    @overload
    def stream(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingStream[P]: ...
    def transaction(
        self,
        *,
        consumer: BlockingGroupReader[Any] | BlockingConsumer[Any] | BlockingShareConsumer[Any] | None = None,
        lease_ms: int | None = ...,
    ) -> BlockingJointTransaction: ...
    def synchronizer(
        self, name: str, kind: ReplicatedType[S, U], *, initial: S | None = None
    ) -> BlockingStateSynchronizer[S, U]: ...
    def synchronizers(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[str]: ...
    def delete_synchronizer(self, name: str) -> None: ...
    @overload
    def dead_letters(self, group: str) -> BlockingDeadLetters: ...
    @overload
    def dead_letters(
        self, group: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingDeadLetters[P]: ...
    def run(self, app: App, *, grace_ms: int = ...) -> BlockingRunning: ...
    @overload
    def create_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        until: GroupEnd = None,
        patience_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
        on_deleted: DeletedPolicy = "error",
        assignor: str = ...,
        retains: RetainedPart | None = "progress",
    ) -> BlockingGroup: ...
    @overload
    def create_group(
        self,
        name: str,
        streams: Sequence[str] | Sequence[BlockingStream[P]],
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        start: GroupStart = "head",
        until: GroupEnd = None,
        patience_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
        on_deleted: DeletedPolicy = "error",
        assignor: str = ...,
        retains: RetainedPart | None = "progress",
    ) -> BlockingGroup[P]: ...
    @overload
    def group(self, name: str) -> BlockingGroup: ...
    @overload
    def group(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingGroup[P]: ...
    @overload
    def create_share_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        lock_ms: int = ...,
        deliveries_max: int = ...,
    ) -> BlockingShareGroup: ...
    @overload
    def create_share_group(
        self,
        name: str,
        streams: Sequence[str] | Sequence[BlockingStream[P]],
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        start: GroupStart = "head",
        lock_ms: int = ...,
        deliveries_max: int = ...,
    ) -> BlockingShareGroup[P]: ...
    @overload
    def share_group(self, name: str) -> BlockingShareGroup: ...
    @overload
    def share_group(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingShareGroup[P]: ...
    def streams(
        self,
        scope: str | None = None,
        *,
        tag: str | None = None,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[StreamInfo]: ...
    def topics(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[TopicInfo]: ...
    def groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[GroupInfo]: ...
    def share_groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[GroupInfo]: ...
    def processors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[ProcessorDescription]: ...
    def supervisors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[SupervisorInfo]: ...
    def tables(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[TableInfo]: ...
    def overview(self) -> Overview: ...
    def backup(self, dest: str | PathLike[str], *, advance: Advance = ...) -> BackupResult: ...
    def preview_backup(self, dest: str | PathLike[str]) -> BackupPlan: ...
    def free_bytes(self) -> int: ...
    def compact(self, *, advance: Advance = ...) -> CompactResult: ...
    def processor(self, group: str) -> ProcessorDescription: ...
    def pause_processor(self, group: str) -> None: ...
    def resume_processor(self, group: str) -> None: ...
    def change_tables(self, function: Callable[[AppTx], R]) -> R: ...
    def submit_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> BlockingSupervisor: ...
    def preview_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> SpecEffect: ...
    def supervisor(self, id: str) -> BlockingSupervisor: ...
    def ingestion_workers(
        self, *, after: str | None = None, limit: int | None = None
    ) -> list[IngestWorkerInfo]: ...
    def ingestion_log(
        self, task: str, *, after: int | None = None, limit: int | None = None
    ) -> list[IngestLogLine]: ...
    def follow_ingestion_log(self, task: str, *, after: int | None = None) -> Iterator[IngestLogLine]: ...
    def suspend_supervisors(self) -> list[str]: ...
    def resume_supervisors(self) -> list[str]: ...
    def terminate_supervisors(self) -> list[str]: ...
    def describe_table(
        self, name: str, *, start: RowTime | None = None, end: RowTime | None = None
    ) -> TableDescription: ...
    def table_version(self, name: str) -> str: ...
    def drop_table(
        self, name: str, *, start: RowTime | None = None, end: RowTime | None = None, dry_run: bool = False
    ) -> DroppedFiles: ...
    @overload
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy = "key",
        storage: str = ...,
        retention: RetentionPolicy = ...,
        offload: OffloadPolicy = ...,
        ttl_ms: int | None = None,
        id_window_ms: int = ...,
        compaction: CompactionPolicy = ...,
        **options: Unpack[RequestOptions],
    ) -> BlockingTopic: ...
    @overload
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy | Partitioner[P] = "key",
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        storage: str = ...,
        retention: RetentionPolicy = ...,
        offload: OffloadPolicy = ...,
        ttl_ms: int | None = None,
        id_window_ms: int = ...,
        compaction: CompactionPolicy = ...,
        **options: Unpack[RequestOptions],
    ) -> BlockingTopic[P]: ...
    @overload
    def topic(self, name: str) -> BlockingTopic: ...
    @overload
    def topic(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        partitioner: Partitioner[P] | None = None,
    ) -> BlockingTopic[P]: ...

class BlockingRequests(_Twin):
    def submit(
        self,
        request: Operation,
        *,
        request_id: str | None = None,
        within_ms: int | None = None,
        timeout_ms: int = ...,
    ) -> Request: ...
    def preview(self, request: Operation) -> RequestPreview: ...
    def new_id(self) -> str: ...
    def get(self, request_id: str) -> Request: ...
    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[Request]: ...
    def wait(self, request_id: str, *, timeout_ms: int = ...) -> Request: ...

class BlockingTasks(_Twin):
    def submit(self, task: AnyTask, *, task_id: str | None = None) -> TaskInfo: ...
    def get(self, task_id: str) -> TaskInfo: ...
    def list(self, *, limit: int = 100, after: str | None = None) -> builtins.list[TaskInfo]: ...
    def cancel(self, task_id: str) -> TaskInfo: ...
    def wait(self, task_id: str, *, timeout_ms: int = ...) -> TaskInfo: ...

class BlockingDelayedEvents(_Twin):
    def list(
        self, *, stream: str | None = None, after: str | None = None, limit: int = 100
    ) -> builtins.list[DelayedEvent[bytes]]: ...
    def get(self, event_id: str) -> DelayedEvent[bytes]: ...
    def cancel(self, event_id: str) -> DelayedEvent[bytes]: ...
    def move(
        self, event_id: str, *, delay_ms: int | None = None, at: datetime | int | None = None
    ) -> DelayedEvent[bytes]: ...

class BlockingKeyStates(_Twin, Generic[V]):
    def get(self, key: str | bytes) -> V | None: ...
    def find(self, key: str | bytes) -> KeyValue[V] | None: ...
    def list(
        self,
        *,
        first: str | bytes | None = None,
        last: str | bytes | None = None,
        after: str | bytes | None = None,
        limit: int = 100,
    ) -> builtins.list[KeyValue[V]]: ...
    def describe(self) -> KeyStatesInfo: ...
    def store(self, values: Mapping[str, V | None]) -> None: ...
    def restore(self, states: Iterable[KeyValue[V]]) -> None: ...
    def drop(self, keys: Iterable[str | bytes] | None = None) -> int: ...

class BlockingSchedules(_Twin):
    def create(
        self,
        name: str,
        *,
        cron: str,
        stream: str,
        tz: str = "UTC",
        payload: object = b"",
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        missed: str = ...,
        replace: bool = False,
    ) -> ScheduleInfo: ...
    def get(self, name: str) -> ScheduleInfo: ...
    def list(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> builtins.list[ScheduleInfo]: ...
    def next(self, name: str, *, count: int = 10) -> builtins.list[int]: ...
    def pause(self, name: str) -> ScheduleInfo: ...
    def resume(self, name: str) -> ScheduleInfo: ...
    def delete(self, name: str) -> None: ...

class BlockingJobs(_Twin, Generic[P, R]):
    @property
    def share_group(self) -> str: ...
    def submit(
        self,
        payload: P,
        *,
        id: str | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> BlockingJob[R]: ...
    def job(self, id: str) -> BlockingJob[R]: ...
    def list(
        self, *, state: JobState | None = None, after: str | None = None, limit: int = 100
    ) -> builtins.list[JobDescription]: ...

class BlockingJob(_Twin, Generic[R]):
    @property
    def id(self) -> str: ...
    def describe(self) -> JobDescription: ...
    def result(self, *, timeout_ms: int | None = None) -> R: ...
    def cancel(self) -> bool: ...
    def retry(self) -> bool: ...

class BlockingUsers(_Twin):
    def add(self, name: str, *, password: str | None = None, scram: bool = False) -> UserInfo: ...
    def get(self, name: str) -> UserInfo: ...
    def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> builtins.list[UserInfo]: ...
    def delete(self, name: str) -> None: ...
    def set_password(self, name: str, password: str | None, *, scram: bool = False) -> None: ...
    def grant(self, name: str, permission: Permission, pattern: str) -> UserInfo: ...
    def revoke(self, name: str, pattern: str) -> UserInfo: ...
    def add_token(self, name: str, token: str, *, life_ms: int | None = None) -> NewToken: ...
    def delete_token(self, name: str, token: str) -> None: ...

class BlockingCluster(_Twin):
    def list(self) -> builtins.list[ClusterInstance]: ...
    def describe(self) -> ClusterDescription: ...
    def changes(self) -> Iterator[ClusterChange]: ...

class BlockingStream(_Twin, Generic[T]):
    name: str
    stream_id: int
    codec: PayloadCodec[T]
    @overload
    def writer(self, *, name: str | None = None) -> BlockingWriter[T]: ...
    @overload
    def writer(
        self, *, payload: type[P] | None = None, codec: Codec[P] | None = None, name: str | None = None
    ) -> BlockingWriter[P]: ...
    @overload
    def reader(
        self, start: Start = "head", *, segments: Sequence[SegmentName] | None = None
    ) -> BlockingReader[T]: ...
    @overload
    def reader(
        self,
        start: Start = "head",
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        segments: Sequence[SegmentName] | None = None,
    ) -> BlockingReader[P]: ...
    @overload
    def transaction(self, *, lease_ms: int | None = ...) -> BlockingTransaction[T]: ...
    @overload
    def transaction(
        self, *, payload: type[P] | None = None, codec: Codec[P] | None = None, lease_ms: int | None = ...
    ) -> BlockingTransaction[P]: ...
    @overload
    def begin(self, *, lease_ms: int | None = ...) -> BlockingTransaction[T]: ...
    @overload
    def begin(
        self, *, payload: type[P] | None = None, codec: Codec[P] | None = None, lease_ms: int | None = ...
    ) -> BlockingTransaction[P]: ...
    @overload
    def transaction_of(self, txn_id: str) -> BlockingTransaction[T]: ...
    @overload
    def transaction_of(
        self, txn_id: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingTransaction[P]: ...
    def transactions(
        self, *, finished: bool = False, after: str | None = None, limit: int = ...
    ) -> list[TransactionDescription]: ...
    def update(
        self,
        *,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        offload: OffloadPolicy | None = None,
        tags: Iterable[str] | None = None,
        id_window_ms: int | None = None,
        **options: Unpack[ChangeOptions],
    ) -> None: ...
    def scale(
        self, *, seal: Sequence[SegmentName], ranges: Sequence[RangeName], **options: Unpack[ChangeOptions]
    ) -> tuple[SegmentId, ...]: ...
    def split(
        self, segment: SegmentName, into: int = 2, **options: Unpack[ChangeOptions]
    ) -> tuple[SegmentId, ...]: ...
    def merge(self, *segments: SegmentName, **options: Unpack[ChangeOptions]) -> SegmentId: ...
    def truncate(
        self,
        cut: StreamCut,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> None: ...
    def seal(self, **options: Unpack[ChangeOptions]) -> None: ...
    def delete(self, **options: Unpack[ChangeOptions]) -> None: ...
    def offload(self, *, older_than_ms: int = 0) -> OffloadResult: ...
    def describe(self) -> StreamDescription: ...
    def head(self) -> StreamCut: ...
    def tail(self) -> StreamCut: ...
    def cut_at(self, at: Moment) -> StreamCut: ...
    def segments(self, at: Moment = "tail", *, epoch: int | None = None) -> list[SegmentDescription]: ...
    def segment(self, segment: SegmentName) -> SegmentDescription: ...
    def sealed_segments(
        self, *, after: SegmentName | None = None, limit: int = ...
    ) -> list[SegmentDescription]: ...
    def successors(self, segment: SegmentName) -> dict[SegmentId, tuple[SegmentId, ...]]: ...
    def predecessors(self, segment: SegmentName) -> tuple[SegmentId, ...]: ...
    def epoch(self, number: int) -> Epoch: ...
    def epochs(self, *, after: int | None = None, limit: int | None = None) -> list[Epoch]: ...
    def scales(
        self,
        from_ms: int | None = None,
        to_ms: int | None = None,
        *,
        after: int | None = None,
        limit: int = ...,
    ) -> list[PastScale]: ...
    def plot(self, from_ms: int | None = None, to_ms: int | None = None) -> StreamPicture: ...
    def segments_between(
        self,
        from_cut: StreamCut | None = None,
        to_cut: StreamCut | None = None,
        *,
        after: SegmentName | None = None,
        limit: int = ...,
    ) -> list[SegmentDescription]: ...
    def size_before(self, cut: StreamCut) -> StreamSize: ...
    def size_between(
        self, from_cut: StreamCut | None = None, to_cut: StreamCut | None = None
    ) -> StreamSize: ...
    def measure(
        self, start: Moment | StreamCut = "head", end: Moment | StreamCut = "tail"
    ) -> MeasuredPart: ...
    def compare_cuts(self, one: StreamCut, other: StreamCut) -> CutOrder: ...
    def truncation(self) -> TruncationDescription | None: ...

class BlockingTopic(BlockingStream[T], Generic[T]):
    partitioner: Partitioner[T] | None
    @overload
    def producer(
        self, *, name: str | None = None, partitioner: Partitioner[T] | None = None
    ) -> BlockingWriter[T]: ...
    @overload
    def producer(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        name: str | None = None,
        partitioner: Partitioner[P] | None = None,
    ) -> BlockingWriter[P]: ...
    def describe(self) -> TopicDescription: ...
    def partitions(self) -> list[PartitionDescription]: ...
    def positions_at(self, at: int | Mapping[int, int]) -> list[PartitionPosition]: ...
    def read_range(
        self, partition: int, start: int = 0, end: int | None = None, *, events_max: int = ...
    ) -> list[Event[T]]: ...
    def segments_of(self, partitions: Iterable[int]) -> tuple[SegmentId, ...]: ...
    def add_partitions(self, count: int, **options: Unpack[ChangeOptions]) -> tuple[int, ...]: ...
    def alter(
        self,
        *,
        partitions: int | None = None,
        partitioning: Strategy | Partitioner[Any] | None = None,
        retention: RetentionPolicy | None = None,
        offload: OffloadPolicy | None = None,
        ttl_ms: int | None = None,
        id_window_ms: int | None = None,
        compaction: CompactionPolicy | None = None,
        **options: Unpack[ChangeOptions],
    ) -> None: ...
    def truncate(
        self,
        cut: StreamCut | None = None,
        *,
        partition: int | None = None,
        before_ms: int | None = None,
        before_number: int | None = None,
        **options: Unpack[ChangeOptions],
    ) -> None: ...
    def compact(self) -> CompactionResult: ...
    def delete(self, **options: Unpack[ChangeOptions]) -> None: ...

class BlockingWriter(_Twin, Opened, Generic[P]):
    events_written: int
    @property
    def name(self) -> str | None: ...
    @property
    def sequence(self) -> int: ...
    @overload
    def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        id: str | None = None,
        priority: int = 0,
    ) -> Event[P]: ...
    @overload
    def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        priority: int = 0,
        delay_ms: int,
    ) -> DelayedEvent[P]: ...
    @overload
    def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        priority: int = 0,
        at: datetime | int,
    ) -> DelayedEvent[P]: ...
    @overload
    def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        id: str | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> Event[P] | DelayedEvent[P]: ...
    def post(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        ttl_ms: int | None = None,
        id: str | None = None,
        priority: int = 0,
        delay_ms: int | None = None,
        at: datetime | int | None = None,
    ) -> None: ...
    def write_many(
        self, events: Iterable[NewEvent[P] | tuple[P, str | bytes | None]], *, sequence: int | None = None
    ) -> int: ...
    def flush(self) -> None: ...
    def note_time(self, time: int) -> None: ...

class BlockingReader(_Twin, Opened, Generic[P]):
    def cut(self) -> StreamCut: ...
    @property
    def offsets(self) -> Mapping[SegmentId, int]: ...
    def __iter__(self) -> Iterator[Event[P]]: ...
    def until(self, cut: StreamCut) -> Iterator[Event[P]]: ...
    def batches(self, *, until: StreamCut | None = None) -> Iterator[Batch[P]]: ...

class BlockingTransaction(_Twin, Block, Generic[P]):
    id: str
    stream: str
    @property
    def appended(self) -> tuple[AppendResult, ...]: ...
    def begin(self) -> BlockingTransaction[P]: ...
    def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    def write_many(self, events: Iterable[NewEvent[P] | tuple[P, str | bytes | None]]) -> int: ...
    def flush(self) -> None: ...
    def commit(self, *, wait: bool = True, timeout_ms: int = ...) -> None: ...
    def abort(self, *, force: bool = False) -> None: ...
    def preview_abort(self, *, force: bool = False) -> TransactionDescription: ...
    def ping(self, *, lease_ms: int | None = None) -> PingResult: ...
    def status(self) -> TransactionDescription: ...

class BlockingJointTransaction(_Twin, Block):
    id: str
    @property
    def streams(self) -> tuple[str, ...]: ...
    @property
    def appended(self) -> dict[str, tuple[AppendResult, ...]]: ...
    @overload
    def write(
        self,
        stream: str,
        payload: bytes,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    @overload
    def write(
        self,
        stream: StreamTarget[P],
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    @overload
    def write_many(
        self, stream: str, events: Iterable[NewEvent[bytes] | tuple[bytes, str | bytes | None]]
    ) -> int: ...
    @overload
    def write_many(
        self, stream: StreamTarget[P], events: Iterable[NewEvent[P] | tuple[P, str | bytes | None]]
    ) -> int: ...
    def flush(self) -> None: ...
    def commit(self, *, wait: bool = True, timeout_ms: int = ...) -> None: ...
    def abort(self) -> None: ...
    def ping(self) -> PingResult: ...
    def status(self) -> tuple[TransactionDescription, ...]: ...

class BlockingGroup(_Twin, Generic[T]):
    name: str
    @overload
    def reader(self, reader: str) -> BlockingGroupReader[T]: ...
    @overload
    def reader(
        self, reader: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingGroupReader[P]: ...
    @overload
    def consumer(
        self,
        consumer: str,
        *,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: Callable[[tuple[TopicPartition, ...]], object] | None = None,
        on_revoked: Callable[[tuple[TopicPartition, ...]], object] | None = None,
        on_lost: Callable[[tuple[TopicPartition, ...]], object] | None = None,
    ) -> BlockingConsumer[T]: ...
    @overload
    def consumer(
        self,
        consumer: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        topics: Sequence[str] | None = None,
        static_ms: int | None = None,
        assignor: Assignor | None = None,
        auto_commit: bool = True,
        on_assigned: Callable[[tuple[TopicPartition, ...]], object] | None = None,
        on_revoked: Callable[[tuple[TopicPartition, ...]], object] | None = None,
        on_lost: Callable[[tuple[TopicPartition, ...]], object] | None = None,
    ) -> BlockingConsumer[P]: ...
    def describe(self) -> GroupDescription: ...
    def cuts(self) -> dict[str, StreamCut]: ...
    def partitions(self) -> tuple[GroupPartition, ...]: ...
    def commit(self, numbers: Mapping[PartitionRef, int]) -> None: ...
    def checkpoint(self, name: str | None = None, *, timeout_ms: int = ...) -> GroupCheckpoint: ...
    def checkpoints(self) -> list[GroupCheckpoint]: ...
    def reset(
        self,
        start: GroupStart = "head",
        *,
        checkpoint: str | None = None,
        streams: Sequence[str] | None = None,
        until: GroupResetEnd = "same",
        dry_run: bool = False,
    ) -> list[ResetPreview]: ...
    def reset_partitions(
        self,
        start: Moment | None = None,
        *,
        duration_ms: int | None = None,
        number: int | None = None,
        shift: int | None = None,
        partitions: Iterable[PartitionRef] | None = None,
        dry_run: bool = False,
    ) -> tuple[GroupPartitionReset, ...]: ...
    def allow_truncation(self, cut: StreamCut) -> None: ...
    def update(self, **options: Unpack[GroupUpdate]) -> GroupOptions: ...
    def reader_offline(
        self, reader: str, position: Mapping[str, Mapping[SegmentId, int]] | None = None
    ) -> None: ...
    def delete(self, *, if_empty: bool = False) -> None: ...
    def info(self) -> GroupInfo: ...
    def wait_for(self, event: Event[Any], *, timeout_ms: int | None = None) -> None: ...

class BlockingGroupReader(_Twin, Opened, Generic[P]):
    reader: str
    @property
    def owned(self) -> tuple[SegmentOwnership, ...]: ...
    @property
    def position(self) -> dict[str, dict[SegmentId, int]]: ...
    def commit(self) -> None: ...
    def time_window(self, stream: str | None = None) -> TimeWindow: ...
    def __iter__(self) -> Iterator[Event[P]]: ...
    def until(self, cut: StreamCut | Iterable[StreamCut]) -> Iterator[Event[P]]: ...
    def batches(self, *, until: StreamCut | Iterable[StreamCut] | None = None) -> Iterator[Batch[P]]: ...

class BlockingConsumer(_Twin, Opened, Generic[P]):
    @property
    def id(self) -> str: ...
    @property
    def subscription(self) -> tuple[str, ...] | None: ...
    def subscribe(self, topics: Iterable[str]) -> None: ...
    def unsubscribe(self) -> None: ...
    def leave(self) -> None: ...
    @property
    def assignment(self) -> tuple[TopicPartition, ...]: ...
    @property
    def position(self) -> dict[TopicPartition, int]: ...
    @property
    def paused(self) -> tuple[TopicPartition, ...]: ...
    @property
    def committed(self) -> dict[TopicPartition, int]: ...
    def poll(self, events_max: int = ..., *, timeout_ms: int | None = None) -> list[Event[P]]: ...
    def __iter__(self) -> Iterator[Event[P]]: ...
    def commit(self, numbers: Mapping[PartitionRef, int] | None = None) -> None: ...
    def seek(self, partition: PartitionRef, number: int) -> None: ...
    def seek_to_beginning(self, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def seek_to_end(self, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def seek_to_time(self, time_ms: int, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def pause(self, partitions: Iterable[PartitionRef]) -> None: ...
    def resume(self, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def run(
        self, handler: Callable[[list[Event[P]]], object], *, poll_max: int = ..., parallel: int = ...
    ) -> None: ...
    def close(self) -> None: ...

class BlockingShareGroup(_Twin, Generic[T]):
    name: str
    @property
    def dead_letters(self) -> BlockingDeadLetters[T]: ...
    @overload
    def consumer(
        self, consumer: str | None = None, *, auto_accept: bool = False
    ) -> BlockingShareConsumer[T]: ...
    @overload
    def consumer(
        self,
        consumer: str | None = None,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        auto_accept: bool = False,
    ) -> BlockingShareConsumer[P]: ...
    def describe(self) -> ShareGroupDescription: ...
    def reset(
        self, start: GroupStart = "head", *, streams: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[ShareResetPreview]: ...
    def update(self, **options: Unpack[ShareUpdate]) -> ShareOptions: ...
    def consumer_offline(self, consumer: str) -> int: ...
    def delete(self) -> None: ...
    def info(self) -> GroupInfo: ...
    def wait_for(self, event: Event[Any], *, timeout_ms: int | None = None) -> None: ...

class BlockingShareConsumer(_Twin, Opened, Generic[P]):
    consumer: str
    def poll(self, events_max: int = ..., *, timeout_ms: int | None = None) -> list[Delivery[P]]: ...
    def __iter__(self) -> Iterator[Delivery[P]]: ...
    def accept(self, events: Delivery[Any] | Iterable[Delivery[Any]]) -> None: ...
    def release(self, events: Delivery[Any] | Iterable[Delivery[Any]], *, delay_ms: int = 0) -> None: ...
    def reject(self, events: Delivery[Any] | Iterable[Delivery[Any]], reason: str = "") -> None: ...
    def renew(self, events: Delivery[Any] | Iterable[Delivery[Any]]) -> None: ...
    @property
    def held_events(self) -> int: ...

class BlockingSupervisor(_Twin):
    id: str
    def spec(self) -> SupervisorSpec: ...
    def status(self) -> SupervisorStatus: ...
    def tasks(self) -> list[IngestTaskInfo]: ...
    def history(self, *, after: int | None = None, limit: int | None = None) -> list[SupervisorVersion]: ...
    def lags(self) -> list[LagSample]: ...
    def plot(self, path: str | Path) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def handoff(self, groups: Sequence[int] | None = None) -> None: ...
    def reset(self, to: StreamCut | Sequence[StreamCut] | None = None) -> None: ...
    def preview_reset(self, to: StreamCut | Sequence[StreamCut] | None = None) -> list[PartitionReset]: ...
    def backfill(self, id: str | None = None, *, task_count: int | None = None) -> BlockingSupervisor: ...
    def preview_backfill(self, id: str | None = None, *, task_count: int | None = None) -> SupervisorSpec: ...
    def terminate(self) -> None: ...

class BlockingDeadLetters(_Twin, Generic[T]):
    @property
    def group(self) -> str: ...
    def list(self, *, limit: int = ..., after: str | None = None) -> list[DeadLetter[T]]: ...
    def get(self, letter: str) -> DeadLetter[T]: ...
    def count(self, ids: Ids = "all") -> LetterCount: ...
    def redrive(self, ids: Ids) -> int: ...
    def drop(self, ids: Ids) -> int: ...

class BlockingRunning(_Twin, Opened):
    def status(self) -> list[ProcessorStatus]: ...
    def pause(self, name: str) -> None: ...
    def resume(self, name: str) -> None: ...
    def wait(self) -> None: ...
    def wait_idle(self, *, timeout_ms: int | None = None) -> None: ...
    def wait_for(self, event: Event[P], *, timeout_ms: int | None = None) -> None: ...
    @property
    def in_flight(self) -> int: ...
    def stop(self, *, grace_ms: int = ...) -> None: ...
    def cancel_now(self) -> None: ...
    def raise_failure(self) -> None: ...

class BlockingStateSynchronizer(_Twin, Generic[S, U]):
    @property
    def state(self) -> S: ...
    @property
    def revision(self) -> int: ...
    def fetch(self) -> S: ...
    def wait_change(self) -> S: ...
    def initialize(self, initial: S) -> S: ...
    def update(self, generate: Callable[[S], Sequence[U]]) -> S: ...
    def update_returning(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> R: ...
    def compact(self) -> S: ...

def open_blocking(
    path: str | PathLike[str],
    *,
    schema: str | None = None,
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = ...,
) -> BlockingEventproc: ...
