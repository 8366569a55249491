"""A member of a group, in messages: it may be wrong, silent, or a version behind."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.kafka.peer import KafkaPeer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.admin import (
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DescribeGroupsRequest,
        DescribeGroupsResponse,
        ListGroupsRequest,
        ListGroupsResponse,
    )
    from kafka.protocol.consumer import (
        HeartbeatRequest,
        HeartbeatResponse,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        LeaveGroupResponse,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetDeleteRequest,
        OffsetDeleteResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from kafka.protocol.metadata.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

GROUP_CALLS = {8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47}
"""The numbers of the calls about groups."""


def assignment(topic: str, *partitions: int) -> bytes:
    """Return what a leader gives to a consumer, in the form of consumers."""
    numbers = b"".join(each.to_bytes(4, "big") for each in partitions)
    name = topic.encode()
    head = b"\0\0" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name
    return head + len(partitions).to_bytes(4, "big") + numbers + bytes(4)


P = TypeVar("P", bound=KafkaPeer)


@contextmanager
def connecting(kind: Callable[[str, str], P], name: str, server: str) -> Iterator[Callable[..., P]]:
    """Yield what opens connections, until the end of the block. name, server: of those that name no other ones."""
    with ExitStack() as opened:

        def connect(name: str = name, address: str = server) -> P:
            peer = kind(address, name)
            opened.enter_context(peer)
            return peer

        yield connect


class GroupPeer(KafkaPeer):
    """A member. member_id, generation: what it was told last."""

    def __init__(self, address: str, group: str, authority: Path | None = None) -> None:
        super().__init__(address, authority)
        self.group = group
        self.member_id = ""
        self.generation = -1

    def find(self, version: int = 4, kind: int = 0) -> tuple[int, str, int]:
        """Return the code, the host and the port of the server of the group."""
        if version >= 4:
            request = FindCoordinatorRequest(version=version, key_type=kind, coordinator_keys=[self.group])
            (found,) = self.ask(request, FindCoordinatorResponse, version).coordinators
        else:
            request = FindCoordinatorRequest(version=version, key=self.group, key_type=kind)
            found = self.ask(request, FindCoordinatorResponse, version)
        return found.error_code, found.host, found.port

    def join(
        self,
        version: int = 7,
        *,
        said: bytes = b"said",
        instance: str | None = None,
        session_ms: int = 10_000,
        round_ms: int = 10_000,
        name: str = "range",
    ) -> Any:
        """Join, with the id that it is given where it needs one; return the answer."""
        request = JoinGroupRequest(
            version=version,
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=round_ms,
            member_id=self.member_id,
            group_instance_id=instance if version >= 5 else None,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(version=version, name=name, metadata=said)],
        )
        found = self.ask(request, JoinGroupResponse, version)
        if found.error_code == 79:
            self.member_id = request.member_id = found.member_id
            found = self.ask(request, JoinGroupResponse, version)
        if found.error_code == 0:
            self.member_id, self.generation = found.member_id, found.generation_id
        return found

    def sync(self, given: Mapping[str, bytes] | None = None, version: int = 5) -> tuple[int, bytes]:
        """Return the code and the assignment. given: what each member gets, from the leader."""
        kind = SyncGroupRequest.SyncGroupRequestAssignment
        request = SyncGroupRequest(
            version=version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                kind(version=version, member_id=name, assignment=each) for name, each in (given or {}).items()
            ],
        )
        found = self.ask(request, SyncGroupResponse, version)
        return found.error_code, bytes(found.assignment)

    def consume_alone(self, topic: str, *partitions: int, **options: Any) -> None:
        """Join as the only member, and take these partitions."""
        assert self.join(**options).error_code == 0
        assert self.sync({self.member_id: assignment(topic, *partitions)})[0] == 0

    def beat(self, version: int = 4, *, instance: str | None = None) -> int:
        """Send a heartbeat; return the code."""
        request = HeartbeatRequest(
            version=version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=instance if version >= 3 else None,
        )
        code: int = self.ask(request, HeartbeatResponse, version).error_code
        return code

    def leave(self, version: int = 5) -> int:
        """Leave; return the code."""
        if version < 3:
            request = LeaveGroupRequest(version=version, group_id=self.group, member_id=self.member_id)
            left = self.ask(request, LeaveGroupResponse, version)
        else:
            member = LeaveGroupRequest.MemberIdentity(version=version, member_id=self.member_id)
            request = LeaveGroupRequest(version=version, group_id=self.group, members=[member])
            (left,) = self.ask(request, LeaveGroupResponse, version).members
        code: int = left.error_code
        return code

    def commit(
        self,
        topic: str,
        numbers: Mapping[int, int],
        version: int = 8,
        note: str = "",
        instance: str | None = None,
    ) -> list[int]:
        """Commit numbers of partitions; return the codes."""
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        parts = [
            of_topic.OffsetCommitRequestPartition(
                version=version, partition_index=part, committed_offset=number, committed_metadata=note
            )
            for part, number in numbers.items()
        ]
        request = OffsetCommitRequest(
            version=version,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=instance,
            topics=[of_topic(version=version, name=topic, partitions=parts)],
        )
        (found,) = self.ask(request, OffsetCommitResponse, version).topics
        return [each.error_code for each in found.partitions]

    def committed(
        self, topic: str | None, partitions: Sequence[int] = (), version: int = 8
    ) -> dict[tuple[str, int], tuple[int, str]]:
        """Return the numbers and notes of partitions; topic: None: of all in which something was committed."""
        return {
            (each.name, part.partition_index): (part.committed_offset, part.metadata)
            for each in self._offsets(topic, partitions, version, needs_stable=False)
            for part in each.partitions
        }

    def stable(self, topic: str, partition: int = 0, version: int = 8) -> tuple[int, int]:
        """Return the code and the committed number of a partition that no transaction may change."""
        (found,) = self._offsets(topic, [partition], version, needs_stable=True)
        (part,) = found.partitions
        return part.error_code, part.committed_offset

    def _offsets(
        self, topic: str | None, partitions: Sequence[int], version: int, *, needs_stable: bool
    ) -> Any:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        kind: Any = (
            of_group.OffsetFetchRequestTopics if version >= 8 else OffsetFetchRequest.OffsetFetchRequestTopic
        )
        topics: Any = None
        if topic is not None:
            topics = [kind(version=version, name=topic, partition_indexes=list(partitions))]
        if version >= 8:
            groups = [of_group(version=version, group_id=self.group, topics=topics)]
            request = OffsetFetchRequest(version=version, groups=groups, require_stable=needs_stable)
            return self.ask(request, OffsetFetchResponse, version).groups[0].topics
        request = OffsetFetchRequest(
            version=version, group_id=self.group, topics=topics, require_stable=needs_stable
        )
        return self.ask(request, OffsetFetchResponse, version).topics

    def describe(self, version: int = 5) -> Any:
        """Return the group as administrators see it."""
        request = DescribeGroupsRequest(
            version=version, groups=[self.group], include_authorized_operations=False
        )
        (found,) = self.ask(request, DescribeGroupsResponse, version).groups
        return found

    def names(self, version: int = 4, states: Sequence[str] = ()) -> list[str]:
        """Return the names of all groups."""
        request = ListGroupsRequest(version=version, states_filter=list(states))
        return [each.group_id for each in self.ask(request, ListGroupsResponse, version).groups]

    def delete(self, version: int = 2) -> int:
        """Delete the group; return the code."""
        request = DeleteGroupsRequest(version=version, groups_names=[self.group])
        (found,) = self.ask(request, DeleteGroupsResponse, version).results
        code: int = found.error_code
        return code

    def forget(self, topic: str, *partitions: int) -> tuple[int, list[int]]:
        """Forget what was committed; return the code, and those of the partitions."""
        of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        parts = [
            of_topic.OffsetDeleteRequestPartition(version=0, partition_index=each) for each in partitions
        ]
        request = OffsetDeleteRequest(
            version=0, group_id=self.group, topics=[of_topic(version=0, name=topic, partitions=parts)]
        )
        found = self.ask(request, OffsetDeleteResponse, 0)
        return found.error_code, [part.error_code for each in found.topics for part in each.partitions]
