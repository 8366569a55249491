"""What the members of groups ask and are answered, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import attrs

from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.store.model.kafka_rounds import KafkaMembers


@attrs.frozen
class FindCoordinator:
    """Which server do members of these groups ask, or producers of these ids? is_known: whether they are such names."""

    keys: Sequence[str]
    is_known: bool


@attrs.frozen(kw_only=True)
class JoinGroup:
    """Join a group, or its next round.

    member_id: "" for a new member. takes_id: whether it may be given an id first, with which it asks again.
    kind, protocols: what the members do, and the ways to assign that the client knows, each with what it says.
    """

    group: str
    member_id: str
    instance: str | None
    kind: str
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int
    round_ms: int
    takes_id: bool


class GroupSeat(NamedTuple):
    """A member of a group in one round. generation: None where none is named."""

    group: str
    member_id: str
    instance: str | None
    generation: int | None = None


@attrs.frozen
class SyncGroup:
    """What was the member given? assignments: what the leader gives to each member."""

    seat: GroupSeat
    assignments: Mapping[str, bytes]


@attrs.frozen
class GroupHeartbeat:
    """The member is alive. Has a round begun?"""

    seat: GroupSeat


@attrs.frozen
class LeaveGroup:
    """These members leave. An id may be "" if the client's own name for itself is known."""

    seats: Sequence[GroupSeat]


class CommittedPlace(NamedTuple):
    """What a member commits: the number of the next event, and what it says about that."""

    place: TopicPlace
    number: int
    note: str


@attrs.frozen
class OffsetCommit:
    """The member has processed what lies before these numbers."""

    seat: GroupSeat
    commits: Sequence[CommittedPlace]


@attrs.frozen
class OffsetFetch:
    """What was committed last?

    wanted: groups with their partitions; None: all in which something was committed. needs_stable: only what no open
    transaction may change.
    """

    wanted: Sequence[tuple[str, Sequence[TopicPlace] | None]]
    needs_stable: bool = False


@attrs.frozen
class OffsetDelete:
    """Forget what was committed in some partitions of a group without members."""

    group: str
    places: Sequence[TopicPlace]


@attrs.frozen
class DescribeGroups:
    """Who are the members of some groups, and what do they have?"""

    groups: Sequence[str]


@attrs.frozen
class ListGroups:
    """Which groups are there? states: only those in these states; empty: all."""

    states: Sequence[str]


@attrs.frozen
class DeleteGroups:
    """Delete groups without members, and what they committed."""

    groups: Sequence[str]


GroupCall = (
    FindCoordinator
    | JoinGroup
    | SyncGroup
    | GroupHeartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroups
    | ListGroups
    | DeleteGroups
)


@attrs.frozen
class JoinAnswer:
    """The round that a member has joined, or why not. leader: the member that assigns; only it gets the others."""

    code: KafkaCode
    member_id: str
    members: KafkaMembers = attrs.field(factory=KafkaMembers)
    leader: str = ""


@attrs.frozen
class PlaceAnswer:
    """What became of one partition of a request."""

    place: TopicPlace
    code: KafkaCode


@attrs.frozen
class CommittedOffset:
    """The number of the next event to read in a partition, -1 if nothing was committed, and what was said about it."""

    place: TopicPlace
    code: KafkaCode
    number: int = -1
    note: str = ""


@attrs.frozen
class GroupAnswer:
    """A group as clients are told. kind: "consumer" for consumers. state: by Kafka's names."""

    name: str
    code: KafkaCode
    state: str = "Dead"
    members: KafkaMembers = attrs.field(factory=KafkaMembers)
