"""The topics of one scope: partition p of a topic is its segment number p, and an offset the number of an event."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

import attrs

from eventproc.server.access.authority import Caller
from eventproc.server.kafka.calls import TopicAnswer, TopicPlace
from eventproc.server.kafka.kafka_errors import KafkaCode, KafkaRefusal
from eventproc.store.access.permissions import Permission
from eventproc.store.catalog import StreamRecord, current_epoch, get_scope, get_topic, list_topics
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.names import check_stream_name
from eventproc.store.model.partitions import partition_ids


@attrs.frozen
class ServedTopic:
    """A topic. segments: its partitions, by number. ttl_ms: the time to live of its events. needs_keys: of each."""

    stream: str
    stream_id: int
    segments: tuple[SegmentId, ...]
    ttl_ms: int | None
    needs_keys: bool

    def segment(self, place: TopicPlace) -> SegmentId:
        """Return the segment of a partition. Raises NotFound."""
        if not 0 <= place.partition < len(self.segments):
            raise NotFound(kind="partition", name=f"{self.stream} {place.partition}")
        return self.segments[place.partition]


class ServedTopics:
    """The topics of one scope, by the names that clients know: those without the scope."""

    def __init__(self, db: Database, scope: str) -> None:
        self._db = db
        self.scope = scope

    async def verify_scope(self) -> None:
        """Raise InvalidArgument unless the scope exists."""
        try:
            await self._db.read(partial(get_scope, name=self.scope))
        except NotFound:
            remedy = f"create it with `eventproc scope create {self.scope}`, or name another one with --kafka-scope"
            raise invalid_argument("scope", self.scope, f"it does not exist; {remedy}") from None

    def verify(self, caller: Caller, permission: Permission, topic: str) -> None:
        """Raise NotPermitted unless the caller has the permission on a topic."""
        caller.verify(permission, self._full_name(topic))

    def get(self, tx: Tx, topic: str) -> ServedTopic:
        """Return a topic. Raises NotFound, also for a stream: its segments are not partitions."""
        return _served(tx, self.record(tx, topic))

    def record(self, tx: Tx, topic: str) -> StreamRecord:
        """Return what is stored of a topic. Raises NotFound as `get`."""
        return get_topic(tx, self._full_name(topic)).value

    def permitted(self, caller: Caller, topic: str) -> str:
        """Return the name of a topic in the library. Raises NotPermitted unless the caller may change it."""
        self.verify(caller, Permission.READ_UPDATE, topic)
        return self._full_name(topic)

    async def describe(self, caller: Caller, topics: Sequence[str] | None) -> list[TopicAnswer]:
        """Return what there is of some topics; None: of all that the caller may read."""
        return await self._db.read(partial(self._describe, caller=caller, topics=topics))

    def _describe(self, tx: Tx, caller: Caller, topics: Sequence[str] | None) -> list[TopicAnswer]:
        if topics is None:
            names = [each.name.partition("/")[2] for each in list_topics(tx, self.scope)]
            topics = [each for each in names if caller.may(Permission.READ, self._full_name(each))]
        return [self._describe_one(tx, caller, each) for each in dict.fromkeys(topics)]

    def _describe_one(self, tx: Tx, caller: Caller, topic: str) -> TopicAnswer:
        try:
            check_stream_name(topic)
            if not caller.may(Permission.READ, self._full_name(topic)):
                return TopicAnswer(topic, 0, KafkaCode.TOPIC_AUTHORIZATION_FAILED)
            found = self.record(tx, topic)
            incarnation = UUID(int=found.created_ms << 64 | found.stream_id)
            return TopicAnswer(topic, len(_served(tx, found).segments), incarnation=incarnation)
        except InvalidArgument:  # producers refuse their records at once: no such topic will ever exist
            return TopicAnswer(topic, 0, KafkaCode.INVALID_TOPIC_EXCEPTION)
        except NotFound:
            return TopicAnswer(topic, 0, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _full_name(self, topic: str) -> str:
        if "/" in topic:  # no such name exists; it must not look like another one
            raise KafkaRefusal(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic!r} is no name of a topic")
        return f"{self.scope}/{topic}"


def _served(tx: Tx, stream: StreamRecord) -> ServedTopic:
    config = stream.config
    segments = partition_ids(current_epoch(tx, stream))
    return ServedTopic(stream.name, stream.stream_id, segments, config.ttl_ms, config.is_compacted)
