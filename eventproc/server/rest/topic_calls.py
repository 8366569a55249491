"""Topics, as an operator sees and changes them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import attrs

from eventproc.runtime import Eventproc
from eventproc.server.rest.method_answers import DIRECTORY, calling, changing, listing, named
from eventproc.server.rest.routes import (
    LocalName,
    OfScope,
    RestCall,
    ScopeName,
)
from eventproc.store.model.limits import SEGMENTS_MAX
from eventproc.store.records.plain import Limits
from eventproc.store.requests import Request
from eventproc.topics import Topic, TopicDescription, TopicInfo, operations
from eventproc.workflows.requests import PRESENT

Partitions = Annotated[int, Limits(1, SEGMENTS_MAX)]


@attrs.frozen(kw_only=True)
class TopicBody:
    """A topic to create. partitioning: which partition an event without a number gets. ttl_ms: null: for ever."""

    name: str
    partitions: Partitions = 1
    partitioning: Literal["key", "round_robin"] = "key"
    ttl_ms: Annotated[int, Limits(1)] | None = None


@attrs.frozen(kw_only=True)
class AlterBody:
    """What shall change; null: as it is. partitions: how many there shall be, not fewer than now."""

    partitions: Partitions | None = None
    partitioning: Literal["key", "round_robin"] | None = None


TOPIC: Final = named(Eventproc.topic, "stream")

list_topics = listing("list_topics", Eventproc.topics, DIRECTORY, TopicInfo, scope=OfScope)
describe_topic = calling("describe_topic", Topic.describe, TOPIC, TopicDescription)


async def create_topic(call: RestCall, scope: ScopeName, body: TopicBody) -> TopicDescription:
    """Create a topic: a stream with numbered partitions."""
    found = await call.ep.create_topic(
        f"{scope}/{body.name}",
        partitions=body.partitions,
        partitioning=body.partitioning,
        ttl_ms=body.ttl_ms,
        request_id=call.request_id,
        timeout_ms=call.wait_ms,
    )
    return await found.describe()


async def alter_topic(
    call: RestCall, scope: ScopeName, stream: LocalName, body: AlterBody
) -> TopicDescription:
    """Add partitions to a topic, or change its strategy."""
    found = await call.ep.topic(f"{scope}/{stream}")
    await found.alter(
        partitions=body.partitions,
        partitioning=body.partitioning,
        request_id=call.request_id,
        timeout_ms=call.wait_ms,
    )
    return await found.describe()


async def _topic(call: RestCall, done: Request) -> TopicDescription:
    return await (await call.ep.topic(done.target)).describe()


truncate_topic = changing("truncate_topic", operations.TruncatePartitions, TopicDescription, _topic)


async def delete_topic(call: RestCall, scope: ScopeName, stream: LocalName) -> None:
    """Delete a topic with its events and transactions."""
    await operations.delete_topic(
        call.ep.db, f"{scope}/{stream}", PRESENT, request_id=call.request_id, timeout_ms=call.wait_ms
    )
