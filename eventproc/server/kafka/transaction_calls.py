"""What producers with transactions ask, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import attrs

from eventproc.server.kafka.calls import TopicPlace
from eventproc.server.kafka.group_calls import OffsetCommit


class ProducerSeat(NamedTuple):
    """A producer, as it says who it is."""

    transactional_id: str
    producer_id: int
    epoch: int


@attrs.frozen
class AddPartitionsToTxn:
    """The transaction will have records in these partitions."""

    seat: ProducerSeat
    places: Sequence[TopicPlace]


@attrs.frozen
class AddOffsetsToTxn:
    """The transaction will have commits of this group."""

    seat: ProducerSeat
    group: str


@attrs.frozen
class TxnOffsetCommit:
    """What a member has processed, if the transaction is committed."""

    seat: ProducerSeat
    commit: OffsetCommit


@attrs.frozen
class EndTxn:
    """Commit the transaction, or abort it."""

    seat: ProducerSeat
    committed: bool


TransactionCall = AddPartitionsToTxn | AddOffsetsToTxn | TxnOffsetCommit | EndTxn
