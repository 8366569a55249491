"""`--request-id` at the shell: a command that is repeated with its id changes nothing."""

from __future__ import annotations

import re

from tests.cli.conftest import Cli


def _state(shop: Cli) -> object:
    return shop("stream", "list", "-o", "json").json(), shop("request", "list", "-o", "json").json()


def test_a_repeated_command_prints_the_same_and_changes_nothing(shop: Cli) -> None:
    new_ids = [shop("request", "new-id").ok().strip() for _ in range(4)]
    assert len(set(new_ids)) == 4
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", new_ids[0])
    split = ("stream", "split", "shop/orders", "0.0", "-o", "json", "--request-id", new_ids[0])
    first = shop(*split).json()
    update = (
        "stream",
        "update",
        "shop/orders",
        "--tag",
        "old",
        "--keep-days",
        "7",
        "--request-id",
        new_ids[1],
    )
    shop(*update).ok()
    truncate = ("stream", "truncate", "shop/orders", "--cut", "tail", "--yes", "--request-id", new_ids[2])
    shop(*truncate).ok()
    shop("write", "shop/orders", "-", stdin=b"one more\n").ok()
    shop("stream", "update", "shop/orders", "--keep-bytes", "1000000000").ok()
    shop("stream", "merge", "shop/orders", *[row["id"] for row in first]).ok()
    shop("stream", "seal", "shop/orders", "--yes").ok()
    before = _state(shop)
    assert shop(*split).json() == first
    shop(*update).ok()
    shop(*truncate).ok()
    assert _state(shop) == before
    delete = ("stream", "delete", "shop/orders", "--yes", "--request-id", new_ids[3])
    shop(*delete).ok()
    before = _state(shop)
    shop(*delete).ok()
    assert _state(shop) == before


def test_a_topic_is_altered_and_deleted_once(cli: Cli) -> None:
    cli("scope", "create", "shop").ok()
    new_ids = [cli("request", "new-id").ok().strip() for _ in range(3)]
    create = ("topic", "create", "shop/clicks", "--partitions", 2, "--request-id", new_ids[0])
    cli(*create).ok()
    alter = ("topic", "alter", "shop/clicks", "--partitions", 3, "--request-id", new_ids[1])
    cli(*alter).ok()
    assert "different request" in cli(*alter[:3], "--partitions", 4, *alter[5:]).refused(2)
    cli("topic", "alter", "shop/clicks", "--partitions", 5).ok()
    cli(*alter).ok()
    assert len(cli("topic", "describe", "shop/clicks", "-o", "json").json()["partitions"]) == 5
    delete = ("topic", "delete", "shop/clicks", "--yes", "--request-id", new_ids[2])
    cli(*delete).ok()
    assert "different request" in cli(*delete, "--if-version", 1).refused(2)
    cli(*delete).ok()
    cli(*create).ok()
    assert cli("topic", "list", "-o", "json").json() == []
    assert "--recursive" in cli("scope", "delete", "shop", "--yes", "--request-id", new_ids[2]).refused(2)


def test_a_repeated_policy_of_scaling_is_found_after_others_have_changed_it(shop: Cli) -> None:
    request_id = shop("request", "new-id").ok().strip()
    update = ("stream", "update", "shop/orders", "--bytes-per-second", "1000000")
    shop(*update, "--request-id", request_id).ok()
    shop(*update, "--segments", "3").ok()
    before = _state(shop)
    shop(*update, "--request-id", request_id).ok()
    assert _state(shop) == before
