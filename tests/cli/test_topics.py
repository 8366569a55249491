"""`eventproc topic`, and writing and reading partitions, as commands."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


def partitions(cli: Cli) -> list[tuple[int, int, int]]:
    """Return number, first and end of each partition of shop/clicks."""
    found = cli("topic", "describe", "shop/clicks", "-o", "json").json()
    return [(each["number"], each["first"], each["end"]) for each in found["partitions"]]


def test_a_topic_is_created_listed_and_described(shop: Cli) -> None:
    made = shop("topic", "create", "shop/clicks", "--partitions", "3", "-o", "json").json()
    assert made["created"] is True
    again = shop("topic", "create", "shop/clicks", "-o", "json").json()
    assert again["created"] is False
    (row,) = shop("topic", "list", "-o", "json").json()
    assert (row["name"], row["partitions"], row["partitioning"]) == ("shop/clicks", 3, "key")
    listed = {
        each["name"]: each["config"]["scaling"]["kind"]
        for each in shop("stream", "list", "-o", "json").json()
    }
    assert listed == {"shop/clicks": "partitions", "shop/orders": "fixed"}
    assert partitions(shop) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert "partitioning" in shop("topic", "describe", "shop/clicks").ok()


def test_rows_are_written_to_a_partition_and_read_from_it(shop: Cli) -> None:
    shop("topic", "create", "shop/clicks", "--partitions", "3").ok()
    shop("write", "shop/clicks", "--partition", "2", stdin=b"a\nb\n").ok()
    shop("write", "shop/clicks", "--partition", "0", "--transaction", stdin=b"c\n").ok()
    assert partitions(shop) == [(0, 0, 1), (1, 0, 0), (2, 0, 2)]
    read = [each["payload"] for each in shop("read", "shop/clicks", "--partition", "2").rows()]
    assert read == ["a", "b"]
    both = shop("read", "shop/clicks", "--partition", "2", "--partition", "0").rows()
    assert {each["payload"] for each in both} == {"a", "b", "c"}
    assert "has the partitions 0 to 2" in shop("read", "shop/clicks", "--partition", "3").refused(2)
    assert "1 to 1023" in shop("topic", "create", "shop/none", "--partitions", "0").refused(2)
    assert "is not a topic" in shop("write", "shop/orders", "--partition", "0", stdin=b"x\n").refused(2)


def test_altering_a_topic_says_that_keys_move(shop: Cli) -> None:
    shop("topic", "create", "shop/clicks", "--partitions", "2").ok()
    done = shop("topic", "alter", "shop/clicks", "--partitions", "4")
    assert done.code == 0 and "keys go to other partitions from now on" in done.err
    assert len(partitions(shop)) == 4
    assert "can be added, and never removed" in shop(
        "topic", "alter", "shop/clicks", "--partitions", "1"
    ).refused(4)
    assert "say what to change" in shop("topic", "alter", "shop/clicks").refused(2)


def test_one_partition_is_truncated_by_number(shop: Cli) -> None:
    shop("topic", "create", "shop/clicks", "--partitions", "2").ok()
    shop("write", "shop/clicks", "--partition", "1", stdin=b"a\nb\nc\n").ok()
    limit = ("--partition", "1", "--number", "2")
    planned = shop("topic", "truncate", "shop/clicks", *limit, "--dry-run", "-o", "json").json()
    assert (planned["events"], partitions(shop)[1]) == (2, (1, 0, 3))
    shop("topic", "truncate", "shop/clicks", *limit, "--yes").ok()
    assert partitions(shop)[1] == (1, 2, 3)
    assert "exactly one" in shop("topic", "truncate", "shop/clicks", "--yes").refused(2)
    assert "needs --partition" in shop("topic", "truncate", "shop/clicks", "--number", "1").refused(2)


@pytest.mark.parametrize("limit", [("--cut", "tail"), ("--before", "2100-01-01T00:00:00Z")], ids="_".join)
def test_a_stream_that_is_no_topic_is_not_truncated(shop: Cli, limit: tuple[str, str]) -> None:
    before = shop("read", "shop/orders").rows()
    assert before
    assert "no topic 'shop/orders'" in shop("topic", "truncate", "shop/orders", *limit, "--yes").refused(3)
    assert shop("read", "shop/orders").rows() == before


def test_a_topic_is_deleted_with_one_command(shop: Cli) -> None:
    shop("topic", "create", "shop/clicks").ok()
    shop("topic", "delete", "shop/clicks", "--yes").ok()
    assert shop("topic", "list", "-o", "json").json() == []


def test_a_mistyped_topic_gets_a_suggestion(shop: Cli) -> None:
    shop("topic", "create", "shop/clicks").ok()
    done = shop("topic", "describe", "shop/clics")
    assert done.code == 3 and "did you mean 'shop/clicks'?" in done.err
    assert shop("topic", "describe", "shop/orders").code == 3


@pytest.mark.parametrize("kind", ["stream", "topic"])
def test_how_long_events_are_kept_is_chosen_and_changed_one_limit_at_a_time(shop: Cli, kind: str) -> None:
    change = {"stream": "update", "topic": "alter"}[kind]
    shop(kind, "create", "shop/kept", "--keep-days", "7").ok()
    assert _limits(shop, kind) == (7 * 24 * 3_600_000, None)
    shop(kind, change, "shop/kept", "--keep-bytes", "1000").ok()
    assert _limits(shop, kind) == (7 * 24 * 3_600_000, 1000)
    shop(kind, change, "shop/kept", "--keep-all").ok()
    assert _limits(shop, kind) == (None, None)
    shop(kind, change, "shop/kept", "--offload-days", "0.5").ok()
    shop(kind, change, "shop/kept", "--offload-bytes", "1000", "--keep-days", "7").ok()
    assert _limits(shop, kind, "offload") == (12 * 3_600_000, 1000)
    shop(kind, change, "shop/kept", "--no-offload").ok()
    assert _limits(shop, kind, "offload") == (None, None)
    assert _limits(shop, kind) == (7 * 24 * 3_600_000, None)
    shop(kind, "create", "shop/cold", "--offload-bytes", "1000").ok()
    assert "exists already" in shop(kind, "create", "shop/cold", "--offload-bytes", "1000").err
    assert "offload" in shop(kind, "create", "shop/cold", "--offload-bytes", "2000").refused(4)
    assert "say what to change" in shop(kind, change, "shop/kept").refused(2)


def _limits(shop: Cli, kind: str, policy: str = "retention") -> tuple[int | None, int | None]:
    found = shop(kind, "describe", "shop/kept", "-o", "json").json()["config"][policy]
    return found["age_ms"], found["size_bytes"]


def test_the_time_to_live_of_a_topic_is_set_changed_and_shown(shop: Cli) -> None:
    shop("topic", "create", "shop/clicks", "--ttl", "0.5").ok()
    for ttl, shown in ((None, 500), ("3600", 3_600_000), ("0", None)):
        if ttl is not None:
            shop("topic", "alter", "shop/clicks", "--ttl", ttl).ok()
        found = shop("topic", "describe", "shop/clicks", "-o", "json").json()
        assert found["config"]["ttl_ms"] == shown


def test_a_topic_is_compacted_by_its_policy_and_by_a_command(shop: Cli) -> None:
    shop("topic", "create", "shop/prices", "--compact-after", "0", "--tombstones", "3600").ok()
    rows = b'{"k": "tea", "n": 1}\n{"k": "tea", "n": 2}\n{"k": "milk", "n": 3}\n'
    shop("write", "shop/prices", "--format", "jsonl", "--key", "k", stdin=rows).ok()
    assert "every event needs one" in shop("write", "shop/prices", stdin=b"x\n").refused(2)
    done = shop("topic", "compact", "shop/prices", "-o", "json")
    assert done.json()["events"] == 1
    assert [each["number"] for each in shop("read", "shop/prices").rows()] == [1, 2]
    shop("topic", "compact", "shop/prices", "--background").ok()
    policy = shop("topic", "describe", "shop/prices", "-o", "json").json()["config"]["compaction"]
    assert policy == {"min_age_ms": 0, "tombstone_ms": 3_600_000}
    both = shop("topic", "alter", "shop/prices", "--no-compact", "--compact-after", "0").refused(2)
    assert "--no-compact ends the compaction" in both
    shop("topic", "alter", "shop/prices", "--tombstones", "60").ok()
    shop("topic", "alter", "shop/prices", "--no-compact").ok()
    for command in (("alter", "shop/prices"), ("create", "shop/other")):
        assert "--compact-after begins" in shop("topic", *command, "--tombstones", "60").refused(2)
    assert "it is not compacted; give it a policy" in shop("topic", "compact", "shop/prices").refused(2)
