"""What clients change of topics as objects, by the operations of the library."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import ClassVar, Final, TypeVar

import attrs

from eventproc.server.access.authority import Caller
from eventproc.server.kafka.admin_calls import (
    AlterConfigs,
    ConfigResource,
    CreatePartitions,
    CreateTopics,
    DeleteRecords,
    DeleteTopics,
    DescribeConfigs,
    FirstOffset,
    GrownTopic,
    NewTopic,
    ResourceKind,
    ResourceOutcome,
    TopicOutcome,
)
from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.codec.message import NODE
from eventproc.server.kafka.kafka_errors import REFUSALS, KafkaCode, KafkaRefusal, code_of
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.server.kafka.topic_configs import (
    BROKER_CONFIGS,
    PARTITIONS,
    ConfigChange,
    ShownConfig,
    changed_config,
    resets,
    shown_configs,
)
from eventproc.store.access.permissions import Permission
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.segments import known_state
from eventproc.streams.request_calls import WAIT_MS, Patience, run_request
from eventproc.topics.operations import delete_topic, new_heads
from eventproc.workflows.preview import preview
from eventproc.workflows.requests import (
    PRESENT,
    CreateStream,
    OfStream,
    Operation,
    TruncateStream,
    UpdateStream,
    stream_of,
)

W = TypeVar("W")
R = TypeVar("R")

DELETE_MS_MIN: Final = 5_000
"""Shortest time that a deletion waits, of a topic or of its records. A client may wait for nothing. A topic would stay
sealed, and Kafka has deleted the records of its leader when it answers."""

NOT_GIVEN: Final = -1
"""In place of a number that a client leaves to the server."""

END: Final = -1
"""In place of the offset that follows the last event."""


@attrs.frozen
class AlterTopicConfigs(OfStream):
    """Change the configs of a topic. Planning raises NotFound, and InvalidArgument, which names the config."""

    kind: ClassVar[str] = UpdateStream.kind
    changes: tuple[ConfigChange, ...]

    def plan(self, tx: Tx) -> UpdateStream:
        """See `Operation`."""
        found = stream_of(tx, self)
        config, fields = changed_config(found.config, self.changes)
        return UpdateStream(found.name, found.stream_id, config, keep_segments=True, fields=fields)


@attrs.frozen
class TruncateBeforeNumbers(OfStream):
    """Remove the events of partitions before a number each. Planning raises InvalidArgument for one beyond the end."""

    kind: ClassVar[str] = TruncateStream.kind
    numbers: dict[int, int]

    def plan(self, tx: Tx) -> TruncateStream:
        """See `Operation`."""
        found = stream_of(tx, self)
        heads = new_heads(tx, found, before_numbers=self.numbers)
        return TruncateStream(found.name, found.stream_id, heads)


@contextmanager
def _refusing(code: KafkaCode) -> Iterator[None]:
    """Refuse with this code what is no valid argument."""
    try:
        yield
    except InvalidArgument as why:
        raise KafkaRefusal(code, str(why)) from None


class TopicAdministration:
    """Creates, shows, changes and deletes the topics of one scope. A topic that is refused stays as it is."""

    def __init__(self, db: Database, topics: ServedTopics) -> None:
        self._db = db
        self._topics = topics

    def _patience(self, timeout_ms: int, least_ms: int = 0) -> Patience:
        return Patience.of(self._db, min(max(timeout_ms, least_ms), WAIT_MS))

    async def _run(self, operation: Operation, patience: Patience, *, is_dry: bool) -> bool:
        """Run an operation, or only check it; return whether there was something to do."""
        if is_dry:
            return not (await self._db.read(partial(preview, operation=operation))).already_done
        remaining_ms = patience.remaining_ms(self._db)
        return (await run_request(self._db, operation, timeout_ms=remaining_ms)).is_new

    async def create(self, call: CreateTopics, caller: Caller) -> list[TopicOutcome]:
        """Create topics, one after the other."""
        patience = self._patience(call.timeout_ms)
        create = partial(self._create, caller=caller, patience=patience, is_dry=call.is_dry)
        return await _outcomes(call.topics, create, lambda each, *why: TopicOutcome(each.name, *why))

    async def _create(
        self, topic: NewTopic, caller: Caller, patience: Patience, *, is_dry: bool
    ) -> TopicOutcome:
        with _refusing(KafkaCode.INVALID_TOPIC_EXCEPTION):
            StreamName.parse(f"scope/{topic.name}")
        name = self._topics.permitted(caller, topic.name)
        count = _partitions_of(topic)
        with _refusing(KafkaCode.INVALID_PARTITIONS):
            config = StreamConfig(ScalingPolicy.partitions(count))
        with _refusing(KafkaCode.INVALID_CONFIG):
            config, _ = changed_config(config, topic.configs)
            operation = CreateStream(name, config)
        if not await self._run(operation, patience, is_dry=is_dry):
            raise KafkaRefusal(KafkaCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        return TopicOutcome(topic.name, partitions=count, configs=shown_configs(config))

    async def delete(self, call: DeleteTopics, caller: Caller) -> list[TopicOutcome]:
        """Delete topics, one after the other. None is begun after the time."""
        patience = self._patience(call.timeout_ms, DELETE_MS_MIN)
        return await _outcomes(
            call.names, partial(self._delete, caller=caller, patience=patience), TopicOutcome
        )

    async def _delete(self, topic: str, caller: Caller, patience: Patience) -> TopicOutcome:
        name = self._topics.permitted(caller, topic)
        if not (remaining_ms := patience.remaining_ms(self._db)):
            raise KafkaRefusal(KafkaCode.REQUEST_TIMED_OUT, "the time was over before its turn")
        await delete_topic(self._db, name, PRESENT, timeout_ms=remaining_ms)
        return TopicOutcome(topic)

    async def grow(self, call: CreatePartitions, caller: Caller) -> list[TopicOutcome]:
        """Add partitions to topics, one after the other."""
        patience = self._patience(call.timeout_ms)
        grow = partial(self._grow, caller=caller, patience=patience, is_dry=call.is_dry)
        return await _outcomes(call.topics, grow, lambda each, *why: TopicOutcome(each.name, *why))

    async def _grow(
        self, topic: GrownTopic, caller: Caller, patience: Patience, *, is_dry: bool
    ) -> TopicOutcome:
        name = self._topics.permitted(caller, topic.name)
        found = await self._db.read(partial(self._topics.record, topic=topic.name))
        before = found.config.scaling.segments_min
        if topic.count <= before:
            text = f"topic {name} has {before:,} partitions, and can only get more"
            raise KafkaRefusal(KafkaCode.INVALID_PARTITIONS, text)
        with _refusing(KafkaCode.INVALID_PARTITIONS):
            config = StreamConfig(ScalingPolicy.partitions(topic.count))
        if topic.assignments is not None:
            _verify_assignments(topic.assignments, topic.count - before)
        operation = UpdateStream(name, found.stream_id, config, fields=("scaling",))
        await self._run(operation, patience, is_dry=is_dry)
        return TopicOutcome(topic.name)

    async def truncate(self, call: DeleteRecords, caller: Caller) -> list[FirstOffset]:
        """Remove the oldest events of partitions: those of a topic together, and one topic after the other."""
        patience = self._patience(call.timeout_ms, DELETE_MS_MIN)
        topics: dict[str, dict[TopicPlace, int]] = {}
        for place, offset in call.firsts:
            topics.setdefault(place.topic, {})[place] = offset
        outcomes: list[FirstOffset] = []
        for topic, offsets in topics.items():
            try:
                name = self._topics.permitted(caller, topic)
                outcomes += await self._truncate(topic, name, offsets, patience)
            except REFUSALS as why:
                outcomes += [FirstOffset(each, code_of(why)) for each in offsets]
        return outcomes

    async def _truncate(
        self, topic: str, name: str, offsets: Mapping[TopicPlace, int], patience: Patience
    ) -> list[FirstOffset]:
        stream_id, firsts = await self._db.read(partial(self._firsts, topic=topic, offsets=offsets))
        moved = {
            each.place.partition: each.offset
            for each in firsts
            if each.offset > 0 and each.code == KafkaCode.NONE
        }
        if moved:
            with _refusing(KafkaCode.OFFSET_OUT_OF_RANGE):
                operation = TruncateBeforeNumbers(name, stream_id, moved)
                await self._run(operation, patience, is_dry=False)
        return firsts

    def _firsts(self, tx: Tx, topic: str, offsets: Mapping[TopicPlace, int]) -> tuple[int, list[FirstOffset]]:
        """Return the id of a topic, and where its partitions begin after a truncation."""
        found = self._topics.get(tx, topic)
        firsts: list[FirstOffset] = []
        for place, offset in offsets.items():
            try:
                state = known_state(tx, found.stream_id, found.segment(place))
            except NotFound as why:
                firsts.append(FirstOffset(place, code_of(why)))
                continue
            first = state.tail_number if offset == END else offset
            if 0 <= first <= state.tail_number:
                firsts.append(FirstOffset(place, KafkaCode.NONE, max(first, state.head_number)))
            else:
                firsts.append(FirstOffset(place, KafkaCode.OFFSET_OUT_OF_RANGE))
        return found.stream_id, firsts

    async def describe(self, call: DescribeConfigs, caller: Caller) -> list[ResourceOutcome]:
        """Return the configs of topics, and of the server."""
        return await self._db.read(partial(self._describe, call=call, caller=caller))

    def _describe(self, tx: Tx, call: DescribeConfigs, caller: Caller) -> list[ResourceOutcome]:
        outcomes: list[ResourceOutcome] = []
        for resource, names in call.resources.items():
            try:
                configs = self._configs(tx, resource, caller)
                chosen = [each for each in configs if names is None or each.name in names]
                outcomes.append(ResourceOutcome(resource, configs=chosen))
            except REFUSALS as why:
                outcomes.append(ResourceOutcome(resource, code_of(why), str(why)))
        return outcomes

    def _configs(self, tx: Tx, resource: ConfigResource, caller: Caller) -> Iterable[ShownConfig]:
        if resource.kind == ResourceKind.TOPIC:
            self._topics.verify(caller, Permission.READ, resource.name)
            return shown_configs(self._topics.record(tx, resource.name).config)
        if resource.kind == ResourceKind.BROKER and resource.name in ("", str(NODE)):
            return BROKER_CONFIGS
        text = f"only topics and broker {NODE} have configs here"
        raise KafkaRefusal(KafkaCode.INVALID_REQUEST, text)

    async def alter(self, call: AlterConfigs, caller: Caller) -> list[ResourceOutcome]:
        """Change the configs of topics, one after the other."""
        alter = partial(self._alter, call=call, caller=caller, patience=self._patience(WAIT_MS))
        return await _outcomes(call.resources, alter, lambda each, *why: ResourceOutcome(each[0], *why))

    async def _alter(
        self,
        wanted: tuple[ConfigResource, Sequence[ConfigChange]],
        call: AlterConfigs,
        caller: Caller,
        patience: Patience,
    ) -> ResourceOutcome:
        resource, changes = wanted
        if resource.kind != ResourceKind.TOPIC:
            text = "only the configs of topics can change: those of a server are options of `eventproc serve`"
            raise KafkaRefusal(KafkaCode.INVALID_REQUEST, text)
        name = self._topics.permitted(caller, resource.name)
        found = await self._db.read(partial(self._topics.record, topic=resource.name))
        every = (*(resets() if call.resets_rest else ()), *changes)
        with _refusing(KafkaCode.INVALID_CONFIG):
            operation = AlterTopicConfigs(name, found.stream_id, every)
            await self._run(operation, patience, is_dry=call.is_dry)
        return ResourceOutcome(resource)


async def _outcomes(
    wanted: Iterable[W],
    carry_out: Callable[[W], Awaitable[R]],
    refused: Callable[[W, KafkaCode, str], R],
) -> list[R]:
    """Carry out what a call wants, one after the other; return each outcome, or that it was refused."""
    outcomes: list[R] = []
    for each in wanted:
        try:
            outcomes.append(await carry_out(each))
        except REFUSALS as why:
            outcomes.append(refused(each, code_of(why), str(why)))
    return outcomes


def _partitions_of(topic: NewTopic) -> int:
    """Return how many partitions a new topic gets. Raises KafkaRefusal for replicas and brokers that do not exist."""
    if topic.replicas not in (NOT_GIVEN, 1):
        text = f"{topic.replicas} replicas: a server shows itself as the only broker"
        raise KafkaRefusal(KafkaCode.INVALID_REPLICATION_FACTOR, text)
    if not topic.assignments:
        return PARTITIONS if topic.partitions == NOT_GIVEN else topic.partitions
    count = len(topic.assignments) if topic.partitions == NOT_GIVEN else topic.partitions
    numbers = sorted(topic.assignments)
    _verify_assignments([topic.assignments[each] for each in numbers], count)
    if numbers != list(range(count)):
        text = f"the partitions of an assignment are numbered from 0 to {count - 1}"
        raise KafkaRefusal(KafkaCode.INVALID_REPLICA_ASSIGNMENT, text)
    return count


def _verify_assignments(assignments: Sequence[Sequence[int]], count: int) -> None:
    """Raise KafkaRefusal unless so many partitions are assigned to the only broker."""
    if len(assignments) != count or any(list(each) != [NODE] for each in assignments):
        text = f"an assignment of {count:,} partitions to broker {NODE} is possible, which is the only one"
        raise KafkaRefusal(KafkaCode.INVALID_REPLICA_ASSIGNMENT, text)
