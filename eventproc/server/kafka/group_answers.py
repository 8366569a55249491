"""The answers to the calls about groups."""

from __future__ import annotations

from typing import assert_never

from eventproc.server.access.authority import Caller
from eventproc.server.kafka import group_calls as g
from eventproc.server.kafka.codec import groups as messages
from eventproc.server.kafka.codec.message import KafkaRequest, encode_answer
from eventproc.server.kafka.groups import KafkaGroups
from eventproc.server.kafka.kafka_errors import KafkaCode
from eventproc.server.kafka.sasl import Identity


async def group_answer(
    groups: KafkaGroups,
    request: KafkaRequest,
    call: g.GroupCall,
    caller: Caller,
    *,
    who: Identity,
    address: tuple[str, int],
    peer: str,
) -> bytes:
    """Carry a call about groups out, and return its answer.

    who: returns the caller as it is later. address: of this server. peer: address of the client.
    """
    match call:
        case g.FindCoordinator(is_known=is_known):
            code = KafkaCode.NONE if is_known else KafkaCode.INVALID_REQUEST
            return messages.coordinator_answer(request, call, address, code)
        case g.JoinGroup():
            return messages.join_answer(request, await groups.join(call, who, request.client, peer))
        case g.SyncGroup():
            return messages.sync_answer(request, *await groups.sync(call, who))
        case g.GroupHeartbeat():
            return encode_answer(request, error_code=int(await groups.heartbeat(call, caller)))
        case g.LeaveGroup():
            return messages.leave_answer(request, await groups.leave(call, caller))
        case g.OffsetCommit():
            return messages.commit_answer(request, await groups.commit_offsets(call, caller))
        case g.OffsetFetch():
            return messages.committed_answer(request, await groups.committed(call, caller))
        case g.OffsetDelete():
            return messages.forget_answer(request, *await groups.forget_offsets(call, caller))
        case g.DescribeGroups():
            return messages.described_answer(request, await groups.describe_groups(call, caller))
        case g.ListGroups():
            return messages.listed_answer(request, await groups.list_groups(call, caller))
        case g.DeleteGroups():
            return messages.deleted_answer(request, await groups.delete_groups(call, caller))
    assert_never(call)
