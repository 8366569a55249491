"""Calls of Kafka's clients: each is answered by a directory in memory, or refused. See `parsers`."""

from __future__ import annotations

from eventproc.runtime import Eventproc
from eventproc.server.access.authority import TRUSTED, Caller
from eventproc.server.kafka import calls as c
from eventproc.server.kafka.administration import TopicAdministration
from eventproc.server.kafka.answers import KafkaAnswers
from eventproc.server.kafka.codec.message import KafkaRequest
from eventproc.server.kafka.fetch import PartitionReader
from eventproc.server.kafka.groups import KafkaGroups
from eventproc.server.kafka.produce import BatchAppender
from eventproc.server.kafka.recent_batches import RecentBatches
from eventproc.server.kafka.served_topics import ServedTopics
from eventproc.server.kafka.transactions import ProducerTransactions
from tests.fuzz.requests import ANSWERS


def check_call(request: KafkaRequest) -> None:
    """A call is answered; one that its connection answers is left out."""
    if isinstance(request.call, (c.ApiVersions, c.SaslHandshake, c.SaslAuthenticate, c.Produce)):
        return

    async def answer(ep: Eventproc) -> None:
        topics, recent = ServedTopics(ep.db, "s"), RecentBatches()
        groups = KafkaGroups(ep.db, topics)
        transactions = ProducerTransactions(ep.db, topics, groups)
        appender = BatchAppender(ep.db, topics, recent, transactions)
        with ep.db.subscribe() as changes:
            reader = PartitionReader(ep.db, topics, recent, changes, _caller)
            answers = KafkaAnswers(
                topics,
                TopicAdministration(ep.db, topics),
                appender,
                reader,
                groups,
                transactions,
                _caller,
                ("localhost", 1),
                "localhost",
            )
            assert await answers.answer(request, TRUSTED)

    ANSWERS.run(answer)


async def _caller() -> Caller:
    return TRUSTED
