"""Groups, topics and dead letters, as an operator changes them, where it is more than a method."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import attrs

from eventproc.cluster import CompactTopicTask
from eventproc.groups import GroupStart
from eventproc.processors.dead_letters.dead_letter import DeadLetter
from eventproc.processors.key_states import KeyStates, KeyValue
from eventproc.runtime import Eventproc
from eventproc.server.rest.method_answers import (
    START,
    STREAMS_MAX,
    Position,
    Start,
    Streams,
    Text,
    creating,
    named,
    seen,
    start_of,
)
from eventproc.server.rest.problems import RETRY_AFTER_S, HttpProblem
from eventproc.server.rest.routes import (
    PAGE,
    After,
    LocalName,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.shares import ShareGroup
from eventproc.store.groups import streams_of_group
from eventproc.store.key_states import find_state
from eventproc.store.model.errors import NotFound, StillPending
from eventproc.store.model.jobs import JobDescription
from eventproc.store.records.plain import Limits
from eventproc.store.requests import Request
from eventproc.store.task_queue import TaskInfo
from eventproc.topics import Group, Topic, TopicDescription, TopicPartition, operations
from eventproc.topics.partition import parse_partition
from eventproc.workflows.requests import PRESENT, DeleteStream

IDS_MAX = 10_000
"""Dead letters that a call names by their ids; "all" names any number. Higher: longer transactions."""

LetterId: TypeAlias = Annotated[str, Limits(about="Id of the dead letter, such as 0.0:17.")]
Key: TypeAlias = Annotated[str, Limits(about="A routing key.")]
FirstKey: TypeAlias = Annotated[str | None, Limits(about="Only keys from this one on.")]
LastKey: TypeAlias = Annotated[str | None, Limits(about="Only keys before this one.")]
Partitioning: TypeAlias = Literal["key", "round_robin"]

Described = TypeVar("Described", DeadLetter, JobDescription)


async def _start(call: RestCall, group: Group | ShareGroup, texts: Sequence[str] | str) -> GroupStart:
    streams = [each.name for each in (await group.info()).streams]
    return await start_of(call, streams, (texts,) if isinstance(texts, str) else texts)


def _partitions(_: RestCall, __: Group, texts: Sequence[str]) -> list[TopicPartition]:
    return list(map(parse_partition, texts))


@attrs.frozen
class PartitionNumber:
    """A partition, and the number of the next event to read in it."""

    stream: str
    partition: Annotated[int, Limits(0)]
    number: Annotated[int, Limits(0)]


def _numbers(_: RestCall, __: Group, numbers: Sequence[PartitionNumber]) -> dict[TopicPartition, int]:
    return {TopicPartition(each.stream, each.partition): each.number for each in numbers}


NewStart: TypeAlias = Annotated[tuple[Position, ...], Text(1, STREAMS_MAX, START, read=_start)]
Partitions: TypeAlias = Annotated[
    tuple[str, ...] | None, Text(1, STREAMS_MAX, "As scope/topic:number; null: all.", read=_partitions)
]
Numbers: TypeAlias = Annotated[tuple[PartitionNumber, ...], Text(1, IDS_MAX, read=_numbers)]

GROUP: Final = seen(Eventproc.group, streams_of_group)
STATE: Final = seen(Eventproc.state, lambda tx, name: [find_state(tx, name).stream])
SHARE: Final = seen(Eventproc.share_group, streams_of_group)
DELETED_SHARE: Final = named(Eventproc.share_group)
TOPIC: Final = named(Eventproc.topic, "stream")
PROCESSOR: Final = seen(lambda ep, name: (ep, name), streams_of_group, arguments=2)


create_group = creating(
    *(Eventproc.create_group, "create_group", Group.describe),
    omitted=("until", "payload", "codec"),
    streams=Streams,
    start=Start,
)
create_share = creating(
    *(Eventproc.create_share_group, "create_share", ShareGroup.describe),
    omitted=("payload", "codec"),
    streams=Streams,
    start=Start,
)
create_topic = creating(
    *(Eventproc.create_topic, "create_topic", Topic.describe),
    submits=True,
    omitted=("payload", "codec", "storage"),
    partitioning=Partitioning,
)


async def changed_topic(call: RestCall, done: Request) -> TopicDescription:
    """Return the topic that was changed."""
    return await (await call.ep.topic(done.target)).describe()


async def compact_topic(call: RestCall, scope: ScopeName, stream: LocalName) -> TaskInfo:
    """Begin a task that removes the events of a topic that have a newer one of their key, as its policy says."""
    found = await call.ep.topic(f"{scope}/{stream}")
    return await call.ep.tasks.submit(CompactTopicTask(found.name))


async def delete_topic(call: RestCall, scope: ScopeName, stream: LocalName) -> None:
    """Delete a topic with its events and transactions."""
    name = f"{scope}/{stream}"
    try:
        await operations.delete_topic(
            call.ep.db, name, PRESENT, request_id=call.request_id, timeout_ms=call.wait_ms
        )
    except StillPending as why:
        if (await call.ep.requests.get(why.request_id)).kind == DeleteStream.kind:
            raise
        # When the request that is pending is done, nobody has asked for the deletion yet.
        detail = f"{name} is being sealed, and was not deleted: repeat the call"
        raise HttpProblem(
            HTTPStatus.SERVICE_UNAVAILABLE, detail, {"Retry-After": str(RETRY_AFTER_S)}
        ) from None


@attrs.frozen
class LettersBody:
    """Which dead letters: their ids; null: all that are pending."""

    ids: (
        Annotated[
            tuple[str, ...], Limits(1, IDS_MAX, "Their ids; null (an empty field): all that are pending.")
        ]
        | None
    )


@attrs.frozen
class LettersReport:
    """How many dead letters were pending, and are not any more."""

    letters: int


async def list_dead_letters(
    call: RestCall, scope: ScopeName, group: LocalName, after: After = None, limit: PageLimit = PAGE
) -> Page[DeadLetter]:
    """List the pending dead letters of a group, to a caller that may read the streams that hold them."""
    name = f"{scope}/{group}"
    found = await call.ep.dead_letters(name).list(limit=limit + 1, after=after)
    page = page_of(found, limit, lambda each: each.id, lambda each: each.payload)
    return Page([readable(call, name, each) for each in page.items], page.next)


async def describe_dead_letter(
    call: RestCall, scope: ScopeName, group: LocalName, letter: LetterId
) -> DeadLetter:
    """Show a dead letter: the event, its origin, and the error."""
    name = f"{scope}/{group}"
    return readable(call, name, await call.ep.dead_letters(name).get(letter))


async def redrive_dead_letters(
    call: RestCall, scope: ScopeName, group: LocalName, body: LettersBody
) -> LettersReport:
    """Let the processor handle events again, in no particular order relative to its waiting ones."""
    return LettersReport(await call.ep.dead_letters(f"{scope}/{group}").redrive(_ids(body)))


async def drop_dead_letters(
    call: RestCall, scope: ScopeName, group: LocalName, body: LettersBody
) -> LettersReport:
    """Delete dead letters permanently."""
    return LettersReport(await call.ep.dead_letters(f"{scope}/{group}").drop(_ids(body)))


def _ids(body: LettersBody) -> tuple[str, ...] | Literal["all"]:
    return "all" if body.ids is None else body.ids


def readable(call: RestCall, group: str, found: Described) -> Described:
    """Return what a group has: a dead letter or a job.

    Its payload is of a stream that the path does not name. Raises NotPermitted.
    """
    call.caller.verify_streams(group, [found.stream])
    return found


@attrs.frozen
class StatesReport:
    """How many keys had a state, and have none any more."""

    keys: int


async def list_states(
    call: RestCall,
    scope: ScopeName,
    group: LocalName,
    first: FirstKey = None,
    last: LastKey = None,
    after: After = None,
    limit: PageLimit = PAGE,
) -> Page[KeyValue[bytes]]:
    """List what a group's processor keeps by key, if anything, to a caller that may read the stream of the keys."""
    try:
        states = await _readable_states(call, f"{scope}/{group}")
        found = await states.list(first=first, last=last, after=after, limit=limit + 1)
    except NotFound:
        await call.ep.group(f"{scope}/{group}")  # raises NotFound, if that is what is missing
        found = []
    return page_of(found, limit, lambda each: each.key, lambda each: each.value)


async def describe_key_state(call: RestCall, scope: ScopeName, group: LocalName, key: Key) -> KeyValue[bytes]:
    """Show the state of a key, to a caller that may read the stream of the keys."""
    found = await (await _readable_states(call, f"{scope}/{group}")).find(key)
    if found is None:
        raise NotFound(kind=f"state of {scope}/{group}", name=key)
    return found


async def drop_states(call: RestCall, scope: ScopeName, group: LocalName) -> StatesReport:
    """Delete the states of all keys, while the processor does not run."""
    return StatesReport(await call.ep.state(f"{scope}/{group}").drop())


async def drop_key_state(call: RestCall, scope: ScopeName, group: LocalName, key: Key) -> StatesReport:
    """Delete the state of a key, while the processor does not run."""
    return StatesReport(await call.ep.state(f"{scope}/{group}").drop([key]))


async def _readable_states(call: RestCall, group: str) -> KeyStates[bytes]:
    """Return the states of a group. They are made of the events of a stream. Raises NotFound, NotPermitted."""
    record = await call.ep.db.read(partial(find_state, group=group))
    call.caller.verify_streams(group, [record.stream])
    return call.ep.state(group)
