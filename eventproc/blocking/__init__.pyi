"""The blocking twin, as type checkers know it. Written by `python -m tools.blocking`."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from eventproc.blocking.loop import Block, Loop, Opened
from eventproc.cluster import AnyTask
from eventproc.cluster.compaction import CompactResult
from eventproc.cluster.membership import ClusterChange, ClusterDescription, ClusterInstance
from eventproc.groups import GroupEnd, GroupInfo, GroupStart, RetainedPart, TruncatedPolicy
from eventproc.groups.assignors import Assignor
from eventproc.groups.changes import Same
from eventproc.groups.describe import GroupDescription
from eventproc.groups.operations import GroupCheckpoint, OffsetReset, OffsetTarget
from eventproc.groups.start_positions import GroupResetEnd
from eventproc.groups.state import SegmentOwnership
from eventproc.ingestion import SpecEffect, SupervisorInfo, SupervisorSpec
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.status import IngestTaskInfo, SupervisorStatus, SupervisorVersion
from eventproc.processors import App, ProcessorDescription
from eventproc.processors.dead_letters.dead_letter import DeadLetter
from eventproc.processors.dead_letters.operations import Ids, LetterCount
from eventproc.processors.observe.status import ProcessorStatus
from eventproc.runtime.users import NewToken, UserInfo
from eventproc.shares import ShareGroupInfo
from eventproc.shares.describe import ShareGroupDescription
from eventproc.shares.events import SharedEvent
from eventproc.store.access.permissions import Permission
from eventproc.store.backup.results import BackupResult
from eventproc.store.catalog import StreamSize
from eventproc.store.clock import Clock
from eventproc.store.database import Durability, SqlParameters, SqlValue
from eventproc.store.faults import Faults
from eventproc.store.groups import GroupOptions
from eventproc.store.model.cuts import CutOrder, StreamCut
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import RetentionPolicy, ScalingPolicy
from eventproc.store.replicated import ReplicatedType
from eventproc.store.requests import Request
from eventproc.store.segments import AppendResult, Event
from eventproc.store.task_queue import TaskInfo
from eventproc.store.transactions import PingResult
from eventproc.streams import ScopeInfo, StreamInfo
from eventproc.streams.codec import Codec, PayloadCodec
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
from eventproc.streams.queries import Moment, SegmentName
from eventproc.streams.reader import Batch
from eventproc.streams.stream import RangeName, Start
from eventproc.topics import TopicInfo
from eventproc.topics.consumer import PartitionRef
from eventproc.topics.description import PartitionDescription, TopicDescription
from eventproc.topics.events import TopicEvent, TopicPartition
from eventproc.topics.offsets import ConsumerGroupDescription, PartitionOffsets
from eventproc.topics.topic import Strategy
from eventproc.workflows.requests import Operation

P = TypeVar("P", default=bytes)
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T", default=bytes)
U = TypeVar("U")

NAMES: frozenset[str]

class _Twin:
    _loop: Loop
    _twin: Any
    def __init__(self, loop: Loop, twin: Any) -> None: ...

class BlockingEventproc(_Twin, Opened):
    requests: BlockingRequests
    cluster: BlockingCluster
    tasks: BlockingTasks
    @property
    def users(self) -> BlockingUsers: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def durability(self) -> Durability: ...
    def query(self, sql: str, parameters: SqlParameters = ()) -> list[tuple[SqlValue, ...]]: ...
    def create_scope(self, name: str) -> None: ...
    def delete_scope(
        self, name: str, *, recursive: bool = False, request_id: str | None = None, timeout_ms: int = ...
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
        tags: Iterable[str] = (),
        request_id: str | None = None,
        timeout_ms: int = ...,
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
        tags: Iterable[str] = (),
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> BlockingStream[P]: ...
    @overload
    def stream(self, name: str) -> BlockingStream: ...
    @overload
    def stream(
        self, name: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingStream[P]: ...
    def streams(
        self,
        scope: str | None = None,
        *,
        tag: str | None = None,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[StreamInfo]: ...
    def transaction(
        self,
        *,
        consumer: BlockingGroupReader[Any] | BlockingConsumer[Any] | None = None,
        lease_ms: int | None = ...,
    ) -> BlockingJointTransaction: ...
    def create_reader_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        until: GroupEnd = None,
        lease_ms: int | None = None,
        checkpoint_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
        assignor: str = ...,
        retains: RetainedPart | None = "progress",
    ) -> BlockingReaderGroup: ...
    def reader_group(self, name: str) -> BlockingReaderGroup: ...
    def reader_groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[GroupInfo]: ...
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
    def dead_letters(self, group: str) -> BlockingDeadLetters: ...
    def run(self, app: App, *, grace_ms: int = ...) -> BlockingRunning: ...
    def create_consumer_group(
        self,
        name: str,
        topics: Sequence[str],
        *,
        assignor: str = ...,
        start: GroupStart = "head",
        lease_ms: int | None = None,
        rebalance_ms: int | None = None,
        on_truncated: TruncatedPolicy = "earliest",
    ) -> BlockingConsumerGroup: ...
    def consumer_group(self, name: str) -> BlockingConsumerGroup: ...
    def backup(self, dest: str | PathLike[str]) -> BackupResult: ...
    def compact(self) -> CompactResult: ...
    def processors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[ProcessorDescription]: ...
    def processor(self, group: str) -> ProcessorDescription: ...
    def pause_processor(self, group: str) -> None: ...
    def resume_processor(self, group: str) -> None: ...
    def create_share_group(
        self,
        name: str,
        streams: Sequence[str],
        *,
        start: GroupStart = "head",
        lock_ms: int = ...,
        deliveries_max: int = ...,
    ) -> BlockingShareGroup: ...
    def share_group(self, name: str) -> BlockingShareGroup: ...
    def share_groups(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[ShareGroupInfo]: ...
    def submit_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> BlockingSupervisor: ...
    def preview_supervisor(self, spec: SupervisorSpec | Mapping[str, object]) -> SpecEffect: ...
    def supervisor(self, id: str) -> BlockingSupervisor: ...
    def supervisors(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> list[SupervisorInfo]: ...
    @overload
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy = "key",
        storage: str = ...,
        retention: RetentionPolicy = ...,
        ttl_ms: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
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
        ttl_ms: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
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
    def topics(
        self,
        scope: str | None = None,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
    ) -> list[TopicInfo]: ...

class BlockingRequests(_Twin):
    def submit(
        self,
        request: Operation,
        *,
        request_id: str | None = None,
        within_ms: int | None = None,
        timeout_ms: int = ...,
    ) -> Request: ...
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

class BlockingUsers(_Twin):
    def add(self, name: str, *, password: str | None = None) -> UserInfo: ...
    def get(self, name: str) -> UserInfo: ...
    def list(
        self, *, prefix: str = "", after: str | None = None, limit: int | None = None
    ) -> builtins.list[UserInfo]: ...
    def delete(self, name: str) -> None: ...
    def set_password(self, name: str, password: str | None) -> None: ...
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
        tags: Iterable[str] | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> None: ...
    def scale(
        self,
        *,
        seal: Sequence[SegmentName],
        ranges: Sequence[RangeName],
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> tuple[SegmentId, ...]: ...
    def split(
        self,
        segment: SegmentName,
        into: int = 2,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> tuple[SegmentId, ...]: ...
    def merge(
        self,
        *segments: SegmentName,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> SegmentId: ...
    def truncate(
        self,
        cut: StreamCut,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> None: ...
    def seal(
        self, *, if_version: int | None = None, request_id: str | None = None, timeout_ms: int = ...
    ) -> None: ...
    def delete(
        self, *, if_version: int | None = None, request_id: str | None = None, timeout_ms: int = ...
    ) -> None: ...
    def offload(self, *, older_than_ms: int = 0) -> OffloadResult: ...
    def describe(self) -> StreamDescription: ...
    def head(self) -> StreamCut: ...
    def tail(self) -> StreamCut: ...
    def cut_at(self, time_ms: int) -> StreamCut: ...
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
    ) -> BlockingProducer[T]: ...
    @overload
    def producer(
        self,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        name: str | None = None,
        partitioner: Partitioner[P] | None = None,
    ) -> BlockingProducer[P]: ...
    def describe(self) -> TopicDescription: ...
    def partitions(self) -> list[PartitionDescription]: ...
    def segments_of(self, partitions: Iterable[int]) -> tuple[SegmentId, ...]: ...
    def add_partitions(
        self,
        count: int,
        *,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> tuple[int, ...]: ...
    def alter(
        self,
        *,
        partitions: int | None = None,
        partitioning: Strategy | Partitioner[Any] | None = None,
        retention: RetentionPolicy | None = None,
        ttl_ms: int | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> None: ...
    def truncate(
        self,
        cut: StreamCut | None = None,
        *,
        partition: int | None = None,
        before_ms: int | None = None,
        before_number: int | None = None,
        if_version: int | None = None,
        request_id: str | None = None,
        timeout_ms: int = ...,
    ) -> None: ...
    def delete(
        self, *, if_version: int | None = None, request_id: str | None = None, timeout_ms: int = ...
    ) -> None: ...

class BlockingWriter(_Twin, Opened, Generic[P]):
    events_written: int
    @property
    def name(self) -> str | None: ...
    @property
    def sequence(self) -> int: ...
    def write(
        self,
        payload: P,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    def post(
        self,
        payload: P,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    def write_many(
        self, events: Iterable[NewEvent[P] | tuple[P, str | None]], *, sequence: int | None = None
    ) -> int: ...
    def flush(self) -> None: ...

class BlockingProducer(_Twin, Opened, Generic[P]):
    @property
    def name(self) -> str | None: ...
    @property
    def sequence(self) -> int: ...
    @property
    def events_written(self) -> int: ...
    def write(
        self,
        payload: P,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None: ...
    def post(
        self,
        payload: P,
        *,
        key: str | None = None,
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None: ...
    def write_many(
        self, events: Iterable[NewEvent[P] | tuple[P, str | None]], *, sequence: int | None = None
    ) -> int: ...
    def flush(self) -> None: ...

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
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    def write_many(self, events: Iterable[NewEvent[P] | tuple[P, str | None]]) -> int: ...
    def flush(self) -> None: ...
    def commit(self, *, wait: bool = True, timeout_ms: int = ...) -> None: ...
    def abort(self, *, force: bool = False) -> None: ...
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
        key: str | None = None,
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
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None: ...
    @overload
    def write_many(
        self, stream: str, events: Iterable[NewEvent[bytes] | tuple[bytes, str | None]]
    ) -> int: ...
    @overload
    def write_many(
        self, stream: StreamTarget[P], events: Iterable[NewEvent[P] | tuple[P, str | None]]
    ) -> int: ...
    def flush(self) -> None: ...
    def commit(self, *, wait: bool = True, timeout_ms: int = ...) -> None: ...
    def abort(self) -> None: ...
    def ping(self) -> PingResult: ...
    def status(self) -> tuple[TransactionDescription, ...]: ...

class BlockingReaderGroup(_Twin):
    name: str
    @overload
    def reader(self, reader: str) -> BlockingGroupReader[bytes]: ...
    @overload
    def reader(
        self, reader: str, *, payload: type[P] | None = None, codec: Codec[P] | None = None
    ) -> BlockingGroupReader[P]: ...
    def describe(self) -> GroupDescription: ...
    def info(self) -> GroupInfo: ...
    def cuts(self) -> dict[str, StreamCut]: ...
    def checkpoint(self, name: str | None = None, *, timeout_ms: int = ...) -> GroupCheckpoint: ...
    def checkpoints(self) -> list[GroupCheckpoint]: ...
    def reset(
        self,
        start: GroupStart = "head",
        *,
        checkpoint: str | None = None,
        streams: Sequence[str] | None = None,
        until: GroupResetEnd = "same",
    ) -> None: ...
    def release(self, cut: StreamCut) -> None: ...
    def update(
        self,
        *,
        lease_ms: int | Same | None = ...,
        checkpoint_ms: int | Same | None = ...,
        rebalance_ms: int | Same | None = ...,
        on_truncated: TruncatedPolicy | None = None,
        assignor: str | None = None,
        retains: RetainedPart | Same | None = ...,
    ) -> GroupOptions: ...
    def set_assignor(self, assignor: str) -> None: ...
    def reader_offline(
        self, reader: str, position: Mapping[str, Mapping[SegmentId, int]] | None = None
    ) -> None: ...
    def delete(self) -> None: ...

class BlockingGroupReader(_Twin, Opened, Generic[P]):
    reader: str
    @property
    def owned(self) -> tuple[SegmentOwnership, ...]: ...
    @property
    def position(self) -> dict[str, dict[SegmentId, int]]: ...
    @property
    def stream(self) -> str | None: ...
    def commit(self) -> None: ...
    def __iter__(self) -> Iterator[Event[P]]: ...
    def until(self, cut: StreamCut | Iterable[StreamCut]) -> Iterator[Event[P]]: ...
    def batches(self, *, until: StreamCut | Iterable[StreamCut] | None = None) -> Iterator[Batch[P]]: ...

class BlockingConsumerGroup(_Twin):
    name: str
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
        callback_ms: int = ...,
    ) -> BlockingConsumer[bytes]: ...
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
        callback_ms: int = ...,
    ) -> BlockingConsumer[P]: ...
    def describe(self) -> ConsumerGroupDescription: ...
    def update(
        self,
        *,
        lease_ms: int | Same | None = ...,
        rebalance_ms: int | Same | None = ...,
        on_truncated: TruncatedPolicy | None = None,
        assignor: str | None = None,
        retains: RetainedPart | Same | None = ...,
    ) -> GroupOptions: ...
    def offsets(self) -> tuple[PartitionOffsets, ...]: ...
    def commit(self, offsets: Mapping[PartitionRef, int]) -> None: ...
    def reset(
        self,
        to: OffsetTarget | None = None,
        *,
        offset: int | None = None,
        shift: int | None = None,
        time_ms: int | None = None,
        duration_ms: int | None = None,
        partitions: Iterable[PartitionRef] | None = None,
        dry_run: bool = False,
    ) -> tuple[OffsetReset, ...]: ...
    def delete(self) -> None: ...

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
    def poll(self, events_max: int = ..., *, timeout_ms: int | None = None) -> list[TopicEvent[P]]: ...
    def __iter__(self) -> Iterator[TopicEvent[P]]: ...
    def commit(self, offsets: Mapping[PartitionRef, int] | None = None) -> None: ...
    def seek(self, partition: PartitionRef, offset: int) -> None: ...
    def seek_to_beginning(self, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def seek_to_end(self, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def pause(self, partitions: Iterable[PartitionRef]) -> None: ...
    def resume(self, partitions: Iterable[PartitionRef] | None = None) -> None: ...
    def run(
        self, handler: Callable[[list[TopicEvent[P]]], object], *, poll_max: int = ..., parallel: int = ...
    ) -> None: ...
    def close(self) -> None: ...

class BlockingShareGroup(_Twin):
    name: str
    @overload
    def consumer(
        self, consumer: str | None = None, *, auto_accept: bool = False
    ) -> BlockingShareConsumer[bytes]: ...
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
    def info(self) -> ShareGroupInfo: ...
    def reset(self, start: GroupStart = "head", *, streams: Sequence[str] | None = None) -> None: ...
    def delete(self) -> None: ...

class BlockingShareConsumer(_Twin, Opened, Generic[P]):
    consumer: str
    def poll(self, events_max: int = ..., *, timeout_ms: int | None = None) -> list[SharedEvent[P]]: ...
    def __iter__(self) -> Iterator[SharedEvent[P]]: ...
    def accept(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]]) -> None: ...
    def release(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]]) -> None: ...
    def reject(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]], *, error: str = "") -> None: ...
    def renew(self, events: SharedEvent[Any] | Iterable[SharedEvent[Any]]) -> None: ...
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
    def backfill(self, id: str | None = None, *, task_count: int | None = None) -> BlockingSupervisor: ...
    def preview_backfill(self, id: str | None = None, *, task_count: int | None = None) -> SupervisorSpec: ...
    def terminate(self) -> None: ...

class BlockingDeadLetters(_Twin):
    @property
    def group(self) -> str: ...
    def list(self, *, limit: int = ..., after: str | None = None) -> list[DeadLetter]: ...
    def get(self, letter: str) -> DeadLetter: ...
    def count(self, ids: Ids = "all") -> LetterCount: ...
    def redrive(self, ids: Ids) -> int: ...
    def drop(self, ids: Ids) -> int: ...

class BlockingRunning(_Twin, Opened):
    def status(self) -> list[ProcessorStatus]: ...
    def pause(self, name: str) -> None: ...
    def resume(self, name: str) -> None: ...
    def wait(self) -> None: ...
    def wait_idle(self, *, timeout_ms: int | None = None) -> None: ...
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
    durability: Durability | str | None = None,
    create: bool = True,
    host: bool = True,
    chunks: str | PathLike[str] | None = None,
    clock: Clock | None = None,
    faults: Faults = ...,
) -> BlockingEventproc: ...
