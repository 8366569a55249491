"""A member of a group, in messages: it may be wrong, silent, or a version behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.kafka.peer import KafkaPeer

GROUP_CALLS = {8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47}
"""The numbers of the calls about groups."""


def assignment(topic: str, *partitions: int) -> bytes:
    """Return what a leader gives to a consumer, in the form of consumers."""
    numbers = b"".join(each.to_bytes(4, "big") for each in partitions)
    name = topic.encode()
    head = b"\0\0" + (1).to_bytes(4, "big") + len(name).to_bytes(2, "big") + name
    return head + len(partitions).to_bytes(4, "big") + numbers + bytes(4)


def to_commit(topic: str, numbers: Mapping[int, int], note: str = "") -> list[dict[str, Any]]:
    """Return the numbers of partitions of a topic as a request has them."""
    parts = [
        {"partition_index": part, "committed_offset": number, "committed_metadata": note}
        for part, number in numbers.items()
    ]
    return [{"name": topic, "partitions": parts}]


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
            asked = self.ask("FindCoordinator", version, key_type=kind, coordinator_keys=[self.group])
            (found,) = asked.coordinators
        else:
            found = self.ask("FindCoordinator", version, key=self.group, key_type=kind)
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
        ask = partial(
            self.ask,
            "JoinGroup",
            version,
            group_id=self.group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=round_ms,
            group_instance_id=instance if version >= 5 else None,
            protocol_type="consumer",
            protocols=[{"name": name, "metadata": said}],
        )
        found = ask(member_id=self.member_id)
        if found.error_code == 79:
            self.member_id = found.member_id
            found = ask(member_id=self.member_id)
        if found.error_code == 0:
            self.member_id, self.generation = found.member_id, found.generation_id
        return found

    def sync(self, given: Mapping[str, bytes] | None = None, version: int = 5) -> tuple[int, bytes]:
        """Return the code and the assignment. given: what each member gets, from the leader."""
        found = self.ask(
            "SyncGroup",
            version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": name, "assignment": each} for name, each in (given or {}).items()],
        )
        return found.error_code, bytes(found.assignment)

    def consume_alone(self, topic: str, *partitions: int, **options: Any) -> None:
        """Join as the only member, and take these partitions."""
        assert self.join(**options).error_code == 0
        assert self.sync({self.member_id: assignment(topic, *partitions)})[0] == 0

    def beat(self, version: int = 4, *, instance: str | None = None) -> int:
        """Send a heartbeat; return the code."""
        found = self.ask(
            "Heartbeat",
            version,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=instance if version >= 3 else None,
        )
        code: int = found.error_code
        return code

    def leave(self, version: int = 5) -> int:
        """Leave; return the code."""
        member = {"member_id": self.member_id}
        if version < 3:
            left = self.ask("LeaveGroup", version, group_id=self.group, **member)
        else:
            (left,) = self.ask("LeaveGroup", version, group_id=self.group, members=[member]).members
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
        found = self.ask(
            "OffsetCommit",
            version,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=instance,
            topics=to_commit(topic, numbers, note),
        )
        return [part.error_code for each in found.topics for part in each.partitions]

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
        topics = None
        if topic is not None:
            topics = [{"name": topic, "partition_indexes": list(partitions)}]
        group = {"group_id": self.group, "topics": topics}
        if version >= 8:
            found = self.ask("OffsetFetch", version, groups=[group], require_stable=needs_stable).groups[0]
        else:
            found = self.ask("OffsetFetch", version, **group, require_stable=needs_stable)
        return found.topics

    def describe(self, version: int = 5) -> Any:
        """Return the group as administrators see it."""
        found = self.ask("DescribeGroups", version, groups=[self.group], include_authorized_operations=False)
        (group,) = found.groups
        return group

    def names(self, version: int = 4, states: Sequence[str] = ()) -> list[str]:
        """Return the names of all groups."""
        found = self.ask("ListGroups", version, states_filter=list(states)).groups
        return [each.group_id for each in found]

    def delete(self, version: int = 2) -> int:
        """Delete the group; return the code."""
        (found,) = self.ask("DeleteGroups", version, groups_names=[self.group]).results
        code: int = found.error_code
        return code

    def forget(self, topic: str, *partitions: int) -> tuple[int, list[int]]:
        """Forget what was committed; return the code, and those of the partitions."""
        parts = [{"partition_index": each} for each in partitions]
        topics = [{"name": topic, "partitions": parts}]
        found = self.ask("OffsetDelete", 0, group_id=self.group, topics=topics)
        return found.error_code, [part.error_code for each in found.topics for part in each.partitions]
