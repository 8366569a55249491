"""The answers to the calls of a client that is known, all but those that append."""

from __future__ import annotations

import attrs

from eventproc.server.access.authority import Caller
from eventproc.server.kafka import admin_calls as a, calls as c, group_calls as g
from eventproc.server.kafka.administration import TopicAdministration
from eventproc.server.kafka.codec import administration as admin_codec, groups as group_codec
from eventproc.server.kafka.codec.message import KafkaRequest, encode_answer
from eventproc.server.kafka.codec.topics import epochs_answer, fetch_answer, metadata_answer, offsets_answer
from eventproc.server.kafka.codec.transactions import added_answer, known_code, pending_answer
from eventproc.server.kafka.fetch import PartitionReader
from eventproc.server.kafka.groups import KafkaGroups
from eventproc.server.kafka.kafka_errors import REFUSALS, KafkaCode, code_of
from eventproc.server.kafka.produce import BatchAppender
from eventproc.server.kafka.sasl import Identity
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.server.kafka.transaction_calls import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    TxnOffsetCommit,
)
from eventproc.server.kafka.transactions import ProducerTransactions


@attrs.frozen(eq=False)
class KafkaAnswers:
    """Answers one connection.

    who: returns the client as it is now. address: host and port of this server, which it learns. peer: its own host.
    """

    _topics: ServedTopics
    _administration: TopicAdministration
    _appender: BatchAppender
    _reader: PartitionReader
    _groups: KafkaGroups
    _transactions: ProducerTransactions
    _who: Identity
    _address: tuple[str, int]
    _peer: str

    async def answer(self, request: KafkaRequest, caller: Caller) -> bytes:
        """Carry a request out, and return its answer. A call that is refused changes nothing."""
        if isinstance(request.call, a.AdminCall):
            return await self._administer(request, request.call, caller)
        match request.call:
            case c.Fetch() as call:
                return fetch_answer(request, await self._reader.fetch(call, caller))
            case c.ListOffsets() as call:
                return offsets_answer(request, await self._reader.list_offsets(call, caller))
            case c.OffsetForLeaderEpoch() as call:
                return epochs_answer(request, await self._reader.epoch_ends(call, caller))
            case c.Metadata(topics):
                return metadata_answer(request, self._address, await self._topics.describe(caller, topics))
            case c.InitProducerId() as call:
                return await self._give_identity(request, call, caller)
            case c.ApiVersions() | c.SaslHandshake() | c.SaslAuthenticate() | c.Produce():
                raise AssertionError(f"{request.call} is answered by the connection")
            case AddPartitionsToTxn() as call:
                return added_answer(request, await self._transactions.add_partitions(call, caller))
            case AddOffsetsToTxn() as call:
                code = await self._transactions.add_group(call, caller)
                return encode_answer(request, error_code=known_code(request, code))
            case TxnOffsetCommit() as call:
                return pending_answer(request, await self._transactions.commit_offsets(call, caller))
            case EndTxn() as call:
                code = await self._transactions.end(call, caller)
                return encode_answer(request, error_code=known_code(request, code))
            case call:
                return await self._serve_group(request, call, caller)

    async def _serve_group(self, request: KafkaRequest, asked: g.GroupCall, caller: Caller) -> bytes:
        groups, codec = self._groups, group_codec
        match asked:
            case g.FindCoordinator() as call:
                code = KafkaCode.NONE if call.is_known else KafkaCode.INVALID_REQUEST
                return codec.coordinator_answer(request, call, self._address, code)
            case g.JoinGroup() as call:
                joined = await groups.join(call, self._who, request.client, self._peer)
                return codec.join_answer(request, joined)
            case g.SyncGroup() as call:
                return codec.sync_answer(request, *await groups.sync(call, self._who))
            case g.GroupHeartbeat() as call:
                return encode_answer(request, error_code=int(await groups.heartbeat(call, caller)))
            case g.LeaveGroup() as call:
                return codec.leave_answer(request, await groups.leave(call, caller))
            case g.OffsetCommit() as call:
                return codec.commit_answer(request, await groups.commit_offsets(call, caller))
            case g.OffsetFetch() as call:
                return codec.committed_answer(request, await groups.committed(call, caller))
            case g.OffsetDelete() as call:
                return codec.forget_answer(request, *await groups.forget_offsets(call, caller))
            case g.DescribeGroups() as call:
                return codec.described_answer(request, await groups.describe_groups(call, caller))
            case g.ListGroups() as call:
                return codec.listed_answer(request, await groups.list_groups(call, caller))
            case g.DeleteGroups() as call:
                return codec.deleted_answer(request, await groups.delete_groups(call, caller))

    async def _administer(self, request: KafkaRequest, asked: a.AdminCall, caller: Caller) -> bytes:
        administration = self._administration
        match asked:
            case a.CreateTopics() as call:
                return admin_codec.created_answer(request, await administration.create(call, caller))
            case a.DeleteTopics() as call:
                return admin_codec.deleted_answer(request, await administration.delete(call, caller))
            case a.CreatePartitions() as call:
                return admin_codec.grown_answer(request, await administration.grow(call, caller))
            case a.DeleteRecords() as call:
                return admin_codec.truncated_answer(request, await administration.truncate(call, caller))
            case a.DescribeConfigs() as call:
                described = await administration.describe(call, caller)
                return admin_codec.configs_answer(request, described, call.is_explained)
            case a.AlterConfigs() as call:
                return admin_codec.altered_answer(request, await administration.alter(call, caller))
            case a.DescribeCluster() as call:
                return admin_codec.cluster_answer(request, call, self._address)

    async def _give_identity(self, request: KafkaRequest, call: c.InitProducerId, caller: Caller) -> bytes:
        try:
            producer_id, epoch = await self._appender.new_identity(call, caller)
        except REFUSALS as why:
            code = known_code(request, code_of(why))
            return encode_answer(request, error_code=code, producer_id=-1, producer_epoch=-1)
        return encode_answer(request, error_code=0, producer_id=producer_id, producer_epoch=epoch)
