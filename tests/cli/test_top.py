"""`eventproc top` shows the store at a glance."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.cli.support import EVENTS


def test_streams_and_groups_are_shown_in_two_tables(billing: Cli) -> None:
    shown = billing("top").ok()
    assert "shop/orders" in shown and "shop/billing" in shown, shown
    found = billing("top", "--output", "json").json()
    assert [each["name"] for each in found["streams"]] == ["shop/orders"]
    assert [(each["group"], each["events"]) for each in found["groups"]] == [("shop/billing", EVENTS)]
