"""Kafka's clients of a store on PostgreSQL, which two servers serve."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import Producer

import eventproc
from tests.kafka.clients import PATIENCE_S, confluent_consume
from tests.kafka.group_peer import GroupPeer, assignment
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess


def test_members_and_producers_go_on_at_another_server_after_theirs_was_killed(url: str) -> None:
    with eventproc.open_blocking(url) as ep:
        ep.create_scope("shop")
        ep.create_topic("shop/orders", partitions=2)
    with ExitStack() as opened:
        one = opened.enter_context(ServerProcess(url, kafka_scope="shop"))
        two = opened.enter_context(ServerProcess(url, kafka_scope="shop"))
        write_in_transaction(one.kafka, b"first")
        first = opened.enter_context(GroupPeer(one.kafka, "shippers"))
        first.consume_alone("orders", 0, 1)
        assert first.commit("orders", {0: 1}) == [0]
        one.kill()
        again = opened.enter_context(GroupPeer(two.kafka, "shippers"))
        again.member_id, again.generation = first.member_id, first.generation
        assert again.beat() == 0
        assert again.sync() == (0, assignment("orders", 0, 1))
        assert again.commit("orders", {0: 0}) == [0]
        write_in_transaction(two.kafka, b"second")
        found = confluent_consume(two.kafka, "orders", 1, 2)
        assert [each.value for each in found] == [b"first", b"second"]
        with eventproc.open_blocking(url, host=False) as ep:
            (lagging, _) = ep.group("shop/shippers").partitions()
            assert (lagging.committed, lagging.lag) == (0, 2)


def write_in_transaction(address: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "writer", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("orders", value, partition=0)
    producer.commit_transaction(PATIENCE_S)
