"""A producer with transactions, in messages: it may be late, repeat itself, or be a version behind."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.kafka.group_peer import GroupPeer
from tests.kafka.peer import InitProducerIdRequest, InitProducerIdResponse, ProduceResponse, produce_request

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.producer import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
        EndTxnRequest,
        EndTxnResponse,
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )

TRANSACTION_CALLS = {24, 25, 26, 28}
"""The numbers of the calls about transactions."""


def staged_batch(*values: bytes, producer: tuple[int, int], first: int) -> bytes:
    """Return a batch of records of a transaction."""
    builder = DefaultRecordBatchBuilder(2, 0, 1, *producer, first, 2**24)
    for number, value in enumerate(values):
        builder.append(number, 1, b"k", value, [])
    return bytes(builder.build())


class TransactionPeer(GroupPeer):
    """A producer. producer: the number and the epoch that it was told last."""

    def __init__(self, address: str, name: str) -> None:
        """name: its transactional id, and the group whose commits it makes."""
        super().__init__(address, name)
        self.name = name
        self.producer = (-1, -1)

    def begin(self, version: int = 4, *, timeout_ms: int = 60_000, known: tuple[int, int] = (-1, -1)) -> int:
        """Ask for an identity; return the code. known: the one that the producer has."""
        request = InitProducerIdRequest(
            version=version,
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        found = self.ask(request, InitProducerIdResponse, version)
        if found.error_code == 0:
            self.producer = found.producer_id, found.producer_epoch
        code: int = found.error_code
        return code

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """Add partitions to the transaction; return their codes."""
        of_topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = AddPartitionsToTxnRequest(
            version=version,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[of_topic(version=version, name=topic, partitions=list(partitions))],
        )
        found = self.ask(request, AddPartitionsToTxnResponse, version).results_by_topic_v3_and_below
        return [part.partition_error_code for each in found for part in each.results_by_partition]

    def write(self, topic: str, first: int, *values: bytes, partition: int = 0) -> int:
        """Write records of the transaction, numbered from `first` on; return the code."""
        batch = staged_batch(*values, producer=self.producer, first=first)
        request: Any = produce_request(topic, batch, partition)
        request.transactional_id = self.name
        code: int = self.ask(request, ProduceResponse, 9).responses[0].partition_responses[0].error_code
        return code

    def add_group(self, version: int = 3) -> int:
        """Add the group to the transaction; return the code."""
        request = AddOffsetsToTxnRequest(
            version=version,
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id=self.group,
        )
        code: int = self.ask(request, AddOffsetsToTxnResponse, version).error_code
        return code

    def commit_in(self, topic: str, numbers: Mapping[int, int], version: int = 3) -> list[int]:
        """Commit numbers of partitions with the transaction; return the codes."""
        of_topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        parts = [
            of_topic.TxnOffsetCommitRequestPartition(
                version=version, partition_index=part, committed_offset=number, committed_metadata=""
            )
            for part, number in numbers.items()
        ]
        member: dict[str, Any] = (
            {"member_id": self.member_id, "generation_id": self.generation} if version >= 3 else {}
        )
        request = TxnOffsetCommitRequest(
            version=version,
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            topics=[of_topic(version=version, name=topic, partitions=parts)],
            **member,
        )
        (found,) = self.ask(request, TxnOffsetCommitResponse, version).topics
        return [each.error_code for each in found.partitions]

    def end(self, version: int = 3, *, committed: bool = True) -> int:
        """Commit or abort the transaction; return the code."""
        request = EndTxnRequest(
            version=version,
            transactional_id=self.name,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=committed,
        )
        code: int = self.ask(request, EndTxnResponse, version).error_code
        return code
