"""The messages about transactions of producers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from eventproc.server.kafka import transaction_calls as t
from eventproc.server.kafka.codec.groups import commits_of
from eventproc.server.kafka.codec.message import (
    KafkaMessage,
    KafkaRequest,
    bounded,
    by_topic,
    encode_answer,
    place_of,
    text_of,
)
from eventproc.server.kafka.group_calls import GroupSeat, OffsetCommit, PlaceAnswer
from eventproc.server.kafka.kafka_errors import KafkaCode


def _seat(body: Any) -> t.ProducerSeat:
    return t.ProducerSeat(text_of(body.transactional_id), body.producer_id, body.producer_epoch)


def _add_partitions(body: Any) -> t.AddPartitionsToTxn:
    seat = t.ProducerSeat(
        text_of(body.v3_and_below_transactional_id),
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
    )
    topics = body.v3_and_below_topics
    return t.AddPartitionsToTxn(
        seat, bounded([place_of(topic.name, part) for topic in topics for part in topic.partitions])
    )


def _commit(body: Any) -> t.TxnOffsetCommit:
    member = GroupSeat(
        text_of(body.group_id), body.member_id or "", body.group_instance_id, body.generation_id
    )
    return t.TxnOffsetCommit(_seat(body), OffsetCommit(member, commits_of(body.topics)))


MESSAGES: Final = (
    KafkaMessage("AddPartitionsToTxn", 0, 3, _add_partitions),
    KafkaMessage(
        "AddOffsetsToTxn", 0, 3, lambda body: t.AddOffsetsToTxn(_seat(body), text_of(body.group_id))
    ),
    KafkaMessage("TxnOffsetCommit", 0, 3, _commit),
    KafkaMessage("EndTxn", 0, 3, lambda body: t.EndTxn(_seat(body), body.committed)),
)


_FENCED_SINCE: Final = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""The first versions whose clients know PRODUCER_FENCED. Members of groups never learn it."""


def known_code(request: KafkaRequest, code: KafkaCode) -> int:
    """Return a code that the client knows, as a number: a client of an old version does not know PRODUCER_FENCED."""
    since = _FENCED_SINCE.get(request.message.name)
    if code is KafkaCode.PRODUCER_FENCED and (since is None or request.version < since):
        return int(KafkaCode.INVALID_PRODUCER_EPOCH)
    return int(code)


def added_answer(request: KafkaRequest, added: Iterable[PlaceAnswer]) -> bytes:
    """Return which partitions a transaction has."""
    topics = by_topic(
        added,
        names=("name", "results_by_partition"),
        code=partial(known_code, request),
        code_name="partition_error_code",
    )
    return encode_answer(request, results_by_topic_v3_and_below=topics)


def pending_answer(request: KafkaRequest, done: Iterable[PlaceAnswer]) -> bytes:
    """Return which commits are kept until the transaction ends."""
    return encode_answer(request, topics=by_topic(done, code=partial(known_code, request)))
