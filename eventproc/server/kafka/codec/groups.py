"""The messages about groups: members, rounds, and committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from eventproc.server.kafka import group_calls as g
from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.codec.message import (
    NODE,
    PLACES_MAX,
    KafkaMessage,
    KafkaRequest,
    bounded,
    by_topic,
    encode_answer,
    place_of,
    text_of,
)
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.store.model.kafka_rounds import KafkaMembers

CONSUMER: Final = "consumer"
"""What the members of a group of consumers do, by their protocol."""


def partitions_of(assignment: bytes) -> tuple[TopicPlace, ...]:
    """Return the partitions that the leader gave to a consumer; none if it is not in the form of consumers."""
    try:
        found = ConsumerProtocolAssignment.decode(assignment)
        places = [
            TopicPlace(each.topic, number) for each in found.assigned_partitions for number in each.partitions
        ]
    except Exception:  # the library raises what its decoders meet
        return ()
    return tuple(places) if len(places) <= PLACES_MAX else ()


def _find(body: Any) -> g.FindCoordinator:
    keys = bounded(body.coordinator_keys, "groups") if body.version >= 4 else [body.key]
    return g.FindCoordinator(list(map(text_of, keys)), body.key_type in (0, 1))


def _join(body: Any) -> g.JoinGroup:
    round_ms = body.rebalance_timeout_ms if body.version >= 1 else body.session_timeout_ms
    return g.JoinGroup(
        group=text_of(body.group_id),
        member_id=text_of(body.member_id),
        instance=body.group_instance_id,
        kind=text_of(body.protocol_type),
        protocols=tuple(
            (text_of(each.name), bytes(each.metadata)) for each in bounded(body.protocols, "protocols")
        ),
        session_ms=body.session_timeout_ms,
        round_ms=round_ms,
        takes_id=body.version >= 4,
    )


def _seat(body: Any) -> g.GroupSeat:
    group, member_id = text_of(body.group_id), text_of(body.member_id)
    return g.GroupSeat(group, member_id, body.group_instance_id, body.generation_id)


def _sync(body: Any) -> g.SyncGroup:
    given = {text_of(each.member_id): bytes(each.assignment) for each in bounded(body.assignments, "members")}
    return g.SyncGroup(_seat(body), given)


def _leave(body: Any) -> g.LeaveGroup:
    group = text_of(body.group_id)
    if body.version < 3:
        return g.LeaveGroup([g.GroupSeat(group, text_of(body.member_id), None)])
    members = bounded(body.members, "members")
    return g.LeaveGroup(
        [g.GroupSeat(group, text_of(each.member_id), each.group_instance_id) for each in members]
    )


def commits_of(topics: Any) -> Sequence[g.CommittedPlace]:
    """Return what a member commits. Raises MalformedFrame."""
    commits = [
        g.CommittedPlace(
            place_of(topic.name, part.partition_index), part.committed_offset, part.committed_metadata or ""
        )
        for topic in topics
        for part in topic.partitions
    ]
    return bounded(commits)


def _commit(body: Any) -> g.OffsetCommit:
    group, member_id = text_of(body.group_id), text_of(body.member_id)
    seat = g.GroupSeat(group, member_id, body.group_instance_id, body.generation_id_or_member_epoch)
    return g.OffsetCommit(seat, commits_of(body.topics))


def _places(topics: Any) -> Sequence[TopicPlace] | None:
    if topics is None:
        return None
    return bounded([place_of(topic.name, number) for topic in topics for number in topic.partition_indexes])


def _fetch(body: Any) -> g.OffsetFetch:
    if body.version < 8:
        needs_stable = body.version >= 7 and body.require_stable
        return g.OffsetFetch([(text_of(body.group_id), _places(body.topics))], needs_stable)
    wanted = {text_of(each.group_id): _places(each.topics) for each in bounded(body.groups, "groups")}
    bounded([place for places in wanted.values() for place in places or ()])
    return g.OffsetFetch(list(wanted.items()), body.require_stable)


def _forget(body: Any) -> g.OffsetDelete:
    places = [
        place_of(topic.name, part.partition_index) for topic in body.topics for part in topic.partitions
    ]
    return g.OffsetDelete(text_of(body.group_id), bounded(places))


def _names(names: Any) -> Sequence[str]:
    return list(dict.fromkeys(map(text_of, bounded(names, "groups"))))


MESSAGES: Final = (
    KafkaMessage("FindCoordinator", 0, 4, _find),
    KafkaMessage("JoinGroup", 0, 7, _join),
    KafkaMessage("SyncGroup", 0, 5, _sync),
    KafkaMessage("Heartbeat", 0, 4, lambda body: g.GroupHeartbeat(_seat(body))),
    KafkaMessage("LeaveGroup", 0, 5, _leave),
    KafkaMessage("OffsetCommit", 2, 8, _commit),
    KafkaMessage("OffsetFetch", 1, 8, _fetch),
    KafkaMessage("OffsetDelete", 0, 0, _forget),
    KafkaMessage("DescribeGroups", 0, 5, lambda body: g.DescribeGroups(_names(body.groups))),
    KafkaMessage(
        "ListGroups",
        0,
        4,
        lambda body: g.ListGroups(bounded(body.states_filter or (), "states") if body.version >= 4 else []),
    ),
    KafkaMessage("DeleteGroups", 0, 2, lambda body: g.DeleteGroups(_names(body.groups_names))),
)


def coordinator_answer(
    request: KafkaRequest, call: g.FindCoordinator, address: tuple[str, int], code: KafkaCode
) -> bytes:
    """Return which server the members of groups ask: the one at the address."""
    (host, port), node = address, NODE
    if code is not KafkaCode.NONE:
        host, port, node = "", -1, -1
    where: dict[str, object] = {
        "node_id": node,
        "host": host,
        "port": port,
        "error_code": int(code),
        "error_message": None,
    }
    if request.version < 4:
        return encode_answer(request, **where)
    return encode_answer(request, coordinators=[{"key": each, **where} for each in call.keys])


def join_answer(request: KafkaRequest, joined: g.JoinAnswer) -> bytes:
    """Return the round that a member has joined. Only the leader gets what the others said."""
    members, known = [], joined.members
    if joined.code is KafkaCode.NONE and joined.leader == joined.member_id:
        members = [
            {
                "member_id": name,
                "group_instance_id": each.instance,
                "metadata": dict(each.protocols).get(known.protocol or "", b""),
            }
            for name, each in known.members.items()
        ]
    return encode_answer(
        request,
        error_code=int(joined.code),
        generation_id=known.generation if joined.code is KafkaCode.NONE else -1,
        protocol_type=known.kind or None,
        protocol_name=known.protocol or "",
        leader=joined.leader,
        member_id=joined.member_id,
        members=members,
    )


def sync_answer(request: KafkaRequest, code: KafkaCode, members: KafkaMembers, assignment: bytes) -> bytes:
    """Return what a member was given."""
    return encode_answer(
        request,
        error_code=int(code),
        protocol_type=members.kind or None,
        protocol_name=members.protocol,
        assignment=assignment,
    )


def leave_answer(request: KafkaRequest, left: Sequence[tuple[g.GroupSeat, KafkaCode]]) -> bytes:
    """Return which members have left."""
    if request.version < 3:
        return encode_answer(request, error_code=int(left[0][1]))
    members = [
        {"member_id": seat.member_id, "group_instance_id": seat.instance, "error_code": int(code)}
        for seat, code in left
    ]
    return encode_answer(request, error_code=0, members=members)


def commit_answer(request: KafkaRequest, done: Iterable[g.PlaceAnswer]) -> bytes:
    """Return what was committed."""
    return encode_answer(request, topics=by_topic(done))


def forget_answer(request: KafkaRequest, code: KafkaCode, done: Iterable[g.PlaceAnswer]) -> bytes:
    """Return in which partitions nothing is committed any more."""
    return encode_answer(request, error_code=int(code), topics=by_topic(done))


def committed_answer(
    request: KafkaRequest, found: Sequence[tuple[str, KafkaCode, Sequence[g.CommittedOffset]]]
) -> bytes:
    """Return what was committed in groups."""
    groups: list[dict[str, object]] = [
        {"group_id": group, "error_code": int(code), "topics": by_topic(offsets, _committed)}
        for group, code, offsets in found
    ]
    if request.version < 8:
        (only,) = groups
        return encode_answer(request, error_code=only["error_code"], topics=only["topics"])
    return encode_answer(request, groups=groups)


def _committed(each: g.CommittedOffset) -> dict[str, object]:
    return {
        "partition_index": each.place.partition,
        "committed_offset": each.number,
        "committed_leader_epoch": -1,
        "metadata": each.note,
    }


def described_answer(request: KafkaRequest, found: Iterable[g.GroupAnswer]) -> bytes:
    """Return groups with their members."""
    groups = [
        {
            "error_code": int(each.code),
            "group_id": each.name,
            "group_state": each.state,
            "protocol_type": each.members.kind,
            "protocol_data": each.members.protocol or "",
            "members": [
                {
                    "member_id": name,
                    "group_instance_id": member.instance,
                    "client_id": member.client,
                    "client_host": f"/{member.host}",
                    "member_metadata": dict(member.protocols).get(each.members.protocol or "", b""),
                    "member_assignment": member.assignment,
                }
                for name, member in each.members.members.items()
            ],
        }
        for each in found
    ]
    return encode_answer(request, groups=groups)


def listed_answer(request: KafkaRequest, found: Iterable[g.GroupAnswer]) -> bytes:
    """Return the names of groups."""
    groups = [
        {"group_id": each.name, "protocol_type": each.members.kind or CONSUMER, "group_state": each.state}
        for each in found
    ]
    return encode_answer(request, error_code=0, groups=groups)


def deleted_answer(request: KafkaRequest, done: Mapping[str, KafkaCode]) -> bytes:
    """Return which groups were deleted."""
    results = [{"group_id": name, "error_code": int(code)} for name, code in done.items()]
    return encode_answer(request, results=results)
