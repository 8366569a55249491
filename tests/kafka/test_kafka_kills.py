"""Kills of a server that Kafka's clients write to and copy in; `make torture-kafka` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka import copy_kills, kafka_kills

pytestmark = [pytest.mark.subprocess, pytest.mark.torture]


def test_each_record_is_stored_once_and_in_order_while_the_server_is_killed(tmp_path: Path) -> None:
    assert kafka_kills.run(tmp_path / "served", kills=3) > 0


def test_each_record_is_copied_once_in_transactions_while_the_server_is_killed(tmp_path: Path) -> None:
    assert copy_kills.run(tmp_path / "served", kills=3) > 0
