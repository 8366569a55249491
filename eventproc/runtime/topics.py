"""The topics of an open directory, by name.

What serves them is imported by the first call, because a program without topics must not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import Unpack

from eventproc.store.catalog import get_topic
from eventproc.store.database import Database
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import (
    COMPACT_NOTHING,
    DATABASE_STORAGE,
    ID_WINDOW_MS,
    KEEP_ALL,
    OFFLOAD_NOTHING,
    CompactionPolicy,
    OffloadPolicy,
    RetentionPolicy,
    ScalingPolicy,
    StreamConfig,
)
from eventproc.store.openable import Openable
from eventproc.streams import request_calls
from eventproc.streams.codec import Codec, codec_for
from eventproc.streams.request_calls import CreateOptions, RequestOptions
from eventproc.workflows.requests import CreateStream

if TYPE_CHECKING:
    from eventproc.streams.partitioners import Partitioner
    from eventproc.topics import Topic
    from eventproc.topics.topic import Strategy

P = TypeVar("P")


class TopicSystem(Openable):
    """The part of `Eventproc` that creates and finds topics and what consumes them."""

    def __init__(self, db: Database, what: str) -> None:
        super().__init__(what, is_open=True)
        self._db = db

    @overload
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy = "key",
        ttl_ms: int | None = None,
        compaction: CompactionPolicy = COMPACT_NOTHING,
        **options: Unpack[CreateOptions],
    ) -> Topic: ...
    @overload
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy | Partitioner[P] = "key",
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        ttl_ms: int | None = None,
        compaction: CompactionPolicy = COMPACT_NOTHING,
        **options: Unpack[CreateOptions],
    ) -> Topic[P]: ...
    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        partitioning: Strategy | Partitioner[Any] = "key",
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        storage: str = DATABASE_STORAGE,
        retention: RetentionPolicy = KEEP_ALL,
        offload: OffloadPolicy = OFFLOAD_NOTHING,
        ttl_ms: int | None = None,
        id_window_ms: int = ID_WINDOW_MS,
        compaction: CompactionPolicy = COMPACT_NOTHING,
        **options: Unpack[RequestOptions],
    ) -> Topic[Any]:
        """Create a topic and return its handle; returns the existing one if it has the same strategy.

        An existing topic may have more partitions, because some were added meanwhile.

        Args:
            name: "scope/topic". Topics and streams share their names, because a topic is a stream.
            partitions: how many, 1 to 1,023. Default: 1. More can be added.
            partitioning: how producers choose a partition: "key" (default), "round_robin", or a `Partitioner`. That one
                is not stored: each process gives it again.
            payload: type of the payloads, as for `create_stream`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            storage: where its events lie, as for `create_stream`. Default: "database".
            retention: how long events are kept. Default: until they are truncated.
            offload: how many of them stay in the database; older ones move into files. Default: all.
            ttl_ms: how long groups deliver an event after it was appended, in ms. Plain readers deliver every event.
                None (default): as long as it is kept.
            id_window_ms: for how long the ids of events are remembered, as for `create_stream`. Default: a day.
            compaction: whether only the newest event of each key is kept. Then every event needs a key, and one with an
                empty payload deletes its key. Default: all events are kept.
            options: see `RequestOptions`.

        Raises:
            NotFound: no such scope.
            AlreadyExists: a topic of the name exists with fewer partitions or another strategy, or a stream.
            InvalidArgument: the name, the number, a policy or the strategy is not valid, or no codec serves the type.
            NotSupported: `offload` in a system that has no place for files, as for `create_stream`.
            StillPending: the wait ended first; the creation goes on.
        """
        from eventproc.topics.topic import Topic, as_partitioning

        StreamName.parse(name)
        chosen = codec_for(payload, codec)
        strategy, own = as_partitioning(partitioning)
        config = StreamConfig(
            ScalingPolicy.partitions(partitions),
            storage,
            strategy,
            retention,
            ttl_ms,
            offload=offload,
            id_window_ms=id_window_ms,
            compaction=compaction,
        )
        request = await request_calls.run_request(self._db, CreateStream(name, config), **options)
        if isinstance(request.result, int):
            return Topic(self._db, name, request.result, chosen, own)
        return await self.topic(name, payload=payload, codec=codec, partitioner=own)

    @overload
    async def topic(self, name: str) -> Topic: ...
    @overload
    async def topic(
        self,
        name: str,
        *,
        payload: type[P] | None = None,
        codec: Codec[P] | None = None,
        partitioner: Partitioner[P] | None = None,
    ) -> Topic[P]: ...
    async def topic(
        self,
        name: str,
        *,
        payload: type[Any] | None = None,
        codec: Codec[Any] | None = None,
        partitioner: Partitioner[Any] | None = None,
    ) -> Topic[Any]:
        """Return the handle of a topic.

        Args:
            name: "scope/topic".
            payload: type of the payloads, as for `create_stream`.
            codec: object with `encode` and `decode`, used instead of the type's own codec.
            partitioner: own strategy of the producers that this handle makes. None (default): the topic's.

        Raises:
            NotFound: no such topic, or scope; also if the name is that of a stream that is not a topic.
            InvalidArgument: the name or the partitioner is not valid, or no codec serves the type.
        """
        from eventproc.topics.topic import Topic, as_partitioning

        StreamName.parse(name)
        chosen = codec_for(payload, codec)
        if partitioner is not None:
            as_partitioning(partitioner)
        record = await self._db.read(lambda tx: get_topic(tx, name))
        return Topic(self._db, name, record.value.stream_id, chosen, partitioner)
