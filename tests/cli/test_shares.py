"""Share groups at the shell: made, listed, described, reset and deleted."""

from __future__ import annotations

from tests.cli.conftest import Cli

SHARE = "shop/work"


def test_a_share_group_lives_at_the_shell(billing: Cli) -> None:
    done = billing("share", "create", SHARE, "--stream", "shop/orders", "--lock", 5, "--deliveries", 3)
    assert done.ok() == ""
    again = billing("share", "create", SHARE, "--stream", "shop/orders", "--lock", 5, "--deliveries", 3)
    assert again.err == f"share group {SHARE} exists already\n"
    assert "options" in billing("share", "create", SHARE, "--stream", "shop/orders").refused(4)
    (row,) = billing("share", "list", "shop", "-o", "json").json()
    assert (row["name"], row["state"], row["in_flight"]) == (SHARE, "empty", 0)
    found = billing("share", "describe", SHARE, "-o", "json").json()
    assert (found["options"], found["consumers"]) == ({"lock_ms": 5_000, "deliveries_max": 3}, [])
    assert SHARE in billing("share", "describe", SHARE).ok()
    billing("share", "update", SHARE, "--lock", 6).ok()
    changed = billing(
        "share", "update", SHARE, "--deliveries", 4, "--stream", "shop/orders", "-o", "json"
    ).json()
    assert changed["options"] == {"lock_ms": 6_000, "deliveries_max": 4}
    assert "say what to change" in billing("share", "update", SHARE).refused(2)
    assert "no stream" in billing("share", "update", SHARE, "--stream", "shop/none").refused(3)
    assert billing("share", "offline", SHARE, "w", "-o", "json").json()["events"] == 0
    (preview,) = billing("share", "reset", SHARE, "--to", "tail", "--dry-run", "-o", "json").json()["streams"]
    assert preview["events_after"] == 0
    assert preview["events_before"] == found["events"] > 0
    billing("stream", "create", "shop/gone").ok()
    billing("share", "update", SHARE, "--stream", "shop/orders", "--stream", "shop/gone").ok()
    billing("stream", "seal", "shop/gone", "--yes").ok()
    billing("stream", "delete", "shop/gone", "--yes").ok()
    billing("share", "reset", SHARE, "--to", "tail").ok()
    assert billing("share", "describe", SHARE, "-o", "json").json()["deleted"] == ["shop/gone"]
    assert billing("share", "describe", SHARE, "-o", "json").json()["events"] == 0
    assert billing("dead-letter", "list", SHARE, "-o", "json").json() == []
    assert billing("share", "delete", SHARE, "--dry-run", "-o", "json").json()["would"] == "delete"
    billing("share", "delete", SHARE, "--yes").ok()
    assert "no share group" in billing("share", "describe", SHARE).refused(3)
