"""The rounds in which Kafka's clients join a group and divide its partitions, as pure functions.

A client leads each round: it assigns the partitions by what the others have said. So the group here is only the place
where they meet. A round ends when all members have joined it, or when its time is over; those that have not joined
are no members any more. Then the leader sends what each member gets. Source: docs/design/kafka-groups.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.model.short_repr import short_repr_of_fields

FIRST_ROUND_MS: Final = 300
"""How long the first round of an empty group waits for further members. Higher: a lone consumer begins later; lower:
consumers that start together divide the partitions several times."""

MEMBERS_MAX: Final = 500
"""Members of a group. Each joining rewrites the record of all."""

MEMBERS_BYTES_MAX: Final = 2**20
"""Bytes that all members of a group say and get. Higher: each round holds up other writers for longer."""

KafkaPhase: TypeAlias = Literal["empty", "joining", "syncing", "stable"]
"""What a group does: it has no members; they join a round; they wait for what its leader assigns; they consume."""


@attrs.frozen(kw_only=True)
class KafkaMember:
    """A client that is a member of a group.

    client, host: the name that it gives itself, and its address. instance: its own name for itself, which it keeps
        when it starts again (`group.instance.id`); None without one.
    session_ms: how long it may be silent. round_ms: how long it may take to join a round.
    protocols: the ways to assign that it knows, the preferred one first, each with what it says to the leader.
    joined: whether it has joined the round that is under way.
    assignment: what the leader gave it, in the client's own form. owned: the same as (stream, partition).
    """

    __repr__ = short_repr_of_fields

    client: str
    host: str
    session_ms: int
    round_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    instance: str | None = None
    joined: bool = False
    assignment: bytes = b""
    owned: tuple[tuple[str, int], ...] = ()

    @property
    def size_bytes(self) -> int:
        """What the client makes the record hold for it, apart from the assignment of its leader."""
        names = (self.client, self.host, self.instance or "", *(name for name, _ in self.protocols))
        return sum(len(each.encode()) for each in names) + sum(len(said) for _, said in self.protocols)


@attrs.frozen(kw_only=True)
class KafkaMembers:
    """The members of a group, and where they are in their rounds.

    generation: the number of the last complete round. kind: what they do with it, "consumer" for consumers.
    protocol, leader: the way to assign of that round, and the member that assigns.
    until_ms: when the round that they join ends at the latest, monotonic. lasts_ms: how long after its begin that is.
    first: it is the first one of a group that was empty, and waits for further members until then.
    """

    __repr__ = short_repr_of_fields

    generation: int = 0
    phase: KafkaPhase = "empty"
    kind: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: Mapping[str, KafkaMember] = attrs.field(factory=dict)
    until_ms: int | None = None
    lasts_ms: int = 0
    first: bool = False

    @property
    def size_bytes(self) -> int:
        """What its members say and were given."""
        return sum(each.size_bytes + len(each.assignment) for each in self.members.values())

    @property
    def owners(self) -> dict[tuple[str, int], str]:
        """The members by what they were given: {(stream, partition): member}."""
        return {where: name for name, member in self.members.items() for where in member.owned}

    def of_instance(self, instance: str | None) -> str | None:
        """Return the id of the member that has this name for itself."""
        if instance is None:
            return None
        return next((name for name, member in self.members.items() if member.instance == instance), None)


NO_MEMBERS: Final = KafkaMembers()
"""A group that never had members."""


class MemberProblem(Enum):
    """Why a member is refused, by the names of Kafka's codes."""

    ILLEGAL_GENERATION = auto()
    INCONSISTENT_GROUP_PROTOCOL = auto()
    UNKNOWN_MEMBER_ID = auto()
    REBALANCE_IN_PROGRESS = auto()
    GROUP_MAX_SIZE_REACHED = auto()
    FENCED_INSTANCE_ID = auto()


class MemberRefused(Exception):
    """A member may not do that now; nothing was changed."""

    def __init__(self, problem: MemberProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


def join(state: KafkaMembers, kind: str, member_id: str, joiner: KafkaMember, now_ms: int) -> KafkaMembers:
    """Return the group after a member joined, or joined once more. Raises MemberRefused.

    Only a member that says something else than before, and the leader, begin a new round of a stable group.
    """
    before = state.members.get(member_id)
    others = {name: each for name, each in state.members.items() if name != member_id}
    _verify_agrees(others, state.kind if others else kind, kind, joiner)
    repeats = before is not None and before.protocols == joiner.protocols
    if repeats and (state.phase == "syncing" or (state.phase == "stable" and member_id != state.leader)):
        return state
    if before is not None:
        joiner = attrs.evolve(joiner, assignment=before.assignment, owned=before.owned)
    members = {**state.members, member_id: attrs.evolve(joiner, joined=True)}
    if state.phase == "joining":
        return _ended_if_all_joined(attrs.evolve(state, members=members), now_ms)
    begun = _begin(attrs.evolve(state, kind=kind, members=members), now_ms, joined={member_id})
    return _ended_if_all_joined(begun, now_ms)


def replace_instance(
    state: KafkaMembers, kind: str, before_id: str, member_id: str, joiner: KafkaMember, now_ms: int
) -> KafkaMembers:
    """Return the group after a client that keeps its own name started again, under another id. Raises MemberRefused.

    It gets what it had, without a round, if it says what it said.
    """
    before = state.members[before_id]
    kept = attrs.evolve(joiner, assignment=before.assignment, owned=before.owned)
    members = {(member_id if name == before_id else name): each for name, each in state.members.items()}
    leader = member_id if state.leader == before_id else state.leader
    renamed = attrs.evolve(state, members={**members, member_id: kept}, leader=leader)
    if state.phase == "stable" and before.protocols == joiner.protocols:
        return renamed
    silent = attrs.evolve(renamed, members={**members, member_id: attrs.evolve(kept, protocols=())})
    return join(silent, kind, member_id, joiner, now_ms)


def _verify_agrees(others: Mapping[str, KafkaMember], kind: str, wanted: str, joiner: KafkaMember) -> None:
    if not joiner.protocols or not wanted:
        raise MemberRefused(
            MemberProblem.INCONSISTENT_GROUP_PROTOCOL, "a member names at least one way to assign"
        )
    if kind != wanted or not _common([*others.values(), joiner]):
        raise MemberRefused(
            MemberProblem.INCONSISTENT_GROUP_PROTOCOL, "it and the other members know no common way to assign"
        )
    total = sum(each.size_bytes for each in others.values()) + joiner.size_bytes
    if len(others) >= MEMBERS_MAX or total + len(wanted.encode()) > MEMBERS_BYTES_MAX:
        raise MemberRefused(
            MemberProblem.GROUP_MAX_SIZE_REACHED,
            f"a group has {MEMBERS_MAX} members and {MEMBERS_BYTES_MAX:,} bytes of what they say at most",
        )


def _common(members: Collection[KafkaMember]) -> set[str]:
    """Return the ways to assign that all members know."""
    return set.intersection(*({name for name, _ in each.protocols} for each in members))


def _begin(state: KafkaMembers, now_ms: int, joined: Collection[str] = ()) -> KafkaMembers:
    """Return the group with a new round, which some have joined."""
    members = {name: attrs.evolve(each, joined=name in joined) for name, each in state.members.items()}
    longest_ms = max(each.round_ms for each in members.values())
    is_first = state.phase == "empty"
    lasts_ms = min(FIRST_ROUND_MS, longest_ms) if is_first else longest_ms
    return attrs.evolve(
        state,
        phase="joining",
        members=members,
        until_ms=now_ms + lasts_ms,
        lasts_ms=lasts_ms,
        first=is_first,
    )


def _ended_if_all_joined(state: KafkaMembers, now_ms: int) -> KafkaMembers:
    if state.first or not all(each.joined for each in state.members.values()):
        return state
    return _end(state, now_ms)


def left_ms(state: KafkaMembers, now_ms: int) -> int | None:
    """Return how long the round still waits for members; 0 if it is over, None if there is none."""
    if state.phase != "joining" or state.until_ms is None:
        return None
    return min(max(state.until_ms - now_ms, 0), state.lasts_ms)


def end_if_due(state: KafkaMembers, now_ms: int) -> KafkaMembers:
    """Return the group after its round, if that is over.

    A round that would last for longer than a round may is given its time once more: the monotonic clock went back,
    because the machine was restarted.
    """
    if state.until_ms is not None and state.until_ms - now_ms > state.lasts_ms:
        return give_time(state, now_ms)
    return _end(state, now_ms) if left_ms(state, now_ms) == 0 else state


def give_time(state: KafkaMembers, now_ms: int) -> KafkaMembers:
    """Return the group with the full time of its round, if one is under way: its members could not join until now."""
    return state if state.until_ms is None else attrs.evolve(state, until_ms=now_ms + state.lasts_ms)


def _end(state: KafkaMembers, now_ms: int) -> KafkaMembers:
    """Return the group with those that have joined. One that keeps its own name has until its session ends."""
    members = {
        name: attrs.evolve(each, assignment=b"")
        for name, each in state.members.items()
        if each.joined or each.instance is not None
    }
    joined = [name for name, each in members.items() if each.joined]
    if not joined:
        return _begin(attrs.evolve(state, members=members), now_ms) if members else _emptied(state)
    leader = state.leader if state.leader in joined else joined[0]
    common = _common(list(members.values()))
    votes = Counter(next(name for name, _ in each.protocols if name in common) for each in members.values())
    best = max(votes.values())
    preferred = (name for name, _ in members[leader].protocols if votes[name] == best)
    return attrs.evolve(
        state,
        generation=state.generation + 1,
        phase="syncing",
        protocol=next(preferred),
        leader=leader,
        members=members,
        until_ms=None,
        lasts_ms=0,
        first=False,
    )


def _emptied(state: KafkaMembers) -> KafkaMembers:
    return KafkaMembers(generation=state.generation + 1)


def assign(state: KafkaMembers, member_id: str, given: Mapping[str, bytes]) -> KafkaMembers:
    """Return the group after its leader said what each member gets; unchanged if another member asks.

    given: in the client's own form, by member. Raises MemberRefused.
    """
    if state.phase != "syncing" or member_id != state.leader:
        return state
    if sum(map(len, given.values())) > MEMBERS_BYTES_MAX:
        raise MemberRefused(
            MemberProblem.GROUP_MAX_SIZE_REACHED, f"an assignment has {MEMBERS_BYTES_MAX:,} bytes at most"
        )
    members = {
        name: attrs.evolve(each, assignment=given.get(name, b""), owned=())
        for name, each in state.members.items()
    }
    return attrs.evolve(state, phase="stable", members=members)


def note_owned(state: KafkaMembers, owned: Mapping[str, tuple[tuple[str, int], ...]]) -> KafkaMembers:
    """Return the group with the partitions that its leader has given to each member."""
    members = {name: attrs.evolve(each, owned=owned.get(name, ())) for name, each in state.members.items()}
    return attrs.evolve(state, members=members)


def leave(state: KafkaMembers, gone: Collection[str], now_ms: int) -> KafkaMembers:
    """Return the group without some members: the others divide their partitions."""
    members = {name: each for name, each in state.members.items() if name not in gone}
    if len(members) == len(state.members):
        return state
    if not members:
        return _emptied(state)
    left = attrs.evolve(state, members=members)
    return _ended_if_all_joined(left, now_ms) if state.phase == "joining" else _begin(left, now_ms)


def verify_member(
    state: KafkaMembers, member_id: str, instance: str | None, generation: int | None = None
) -> None:
    """Raise MemberRefused unless this is a member, of this round if one is named."""
    holder = state.of_instance(instance)
    if holder is not None and holder != member_id:
        raise MemberRefused(
            MemberProblem.FENCED_INSTANCE_ID, f"another client has started as {instance!r} since"
        )
    if member_id not in state.members:
        raise MemberRefused(MemberProblem.UNKNOWN_MEMBER_ID, f"{member_id!r} is no member")
    if generation is not None and generation != state.generation:
        raise MemberRefused(
            MemberProblem.ILLEGAL_GENERATION, f"round {generation} is over; this is {state.generation}"
        )


def has_joined(state: KafkaMembers, member_id: str) -> bool:
    """Return whether the member has joined a round that is not over."""
    return state.phase == "joining" and member_id in state.members and state.members[member_id].joined


def awaits_join(state: KafkaMembers, member_id: str) -> bool:
    """Return whether a round has begun that the member has not joined."""
    return state.phase == "joining" and not state.members[member_id].joined


def overdue(state: KafkaMembers, heard: Mapping[str, int], now_ms: int) -> set[str]:
    """Return the members that were silent for longer than their session. heard: when some were heard last.

    Those that have joined a round wait for its end, and say nothing.
    """
    return {
        name
        for name, at_ms in heard.items()
        if (member := state.members.get(name)) is not None
        and now_ms - at_ms > member.session_ms
        and not has_joined(state, name)
    }
