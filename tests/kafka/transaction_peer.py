"""A producer with transactions, in messages: it may be late, repeat itself, or be a version behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tests.kafka.group_peer import GroupPeer, to_commit
from tests.kafka.peer import to_produce

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
        found = self.ask(
            "InitProducerId",
            version,
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        if found.error_code == 0:
            self.producer = found.producer_id, found.producer_epoch
        code: int = found.error_code
        return code

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[int]:
        """Add partitions to the transaction; return their codes."""
        found = self.ask(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
        ).results_by_topic_v3_and_below
        return [part.partition_error_code for each in found for part in each.results_by_partition]

    def write(self, topic: str, first: int, *values: bytes, partition: int = 0) -> int:
        """Write records of the transaction, numbered from `first` on; return the code."""
        batch = staged_batch(*values, producer=self.producer, first=first)
        fields = to_produce(topic, batch, partition=partition, name=self.name)
        code: int = self.ask("Produce", 9, **fields).responses[0].partition_responses[0].error_code
        return code

    def add_group(self, version: int = 3) -> int:
        """Add the group to the transaction; return the code."""
        return self._code("AddOffsetsToTxn", version, group_id=self.group)

    def commit_in(self, topic: str, numbers: Mapping[int, int], version: int = 3) -> list[int]:
        """Commit numbers of partitions with the transaction; return the codes."""
        member: dict[str, Any] = (
            {"member_id": self.member_id, "generation_id": self.generation} if version >= 3 else {}
        )
        topics = to_commit(topic, numbers)
        found = self._ask("TxnOffsetCommit", version, group_id=self.group, topics=topics, **member).topics
        return [part.error_code for each in found for part in each.partitions]

    def end(self, version: int = 3, *, committed: bool = True) -> int:
        """Commit or abort the transaction; return the code."""
        return self._code("EndTxn", version, committed=committed)

    def _code(self, call: str, version: int, **fields: object) -> int:
        code: int = self._ask(call, version, **fields).error_code
        return code

    def _ask(self, call: str, version: int, **fields: object) -> Any:
        identity = {"producer_id": self.producer[0], "producer_epoch": self.producer[1]}
        return self.ask(call, version, transactional_id=self.name, **identity, **fields)
