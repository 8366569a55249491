"""Consumer groups at the shell: members, partitions, and the forms of reset that move event numbers."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli.conftest import Cli
from tests.cli.support import GROUP, rows_of


def partitions(cli: Cli) -> list[dict[str, object]]:
    found = cli("group", "partitions", GROUP, "-o", "json").json()
    assert isinstance(found, list)
    return found


def test_partitions_show_no_lag_before_the_first_commit(billing: Cli) -> None:
    billing("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows_of(1, 2, 3)).ok()
    assert {(each["committed"], each["lag"]) for each in partitions(billing)} == {(None, None)}
    before = sum(int(str(each["events"])) for each in partitions(billing))
    billing("read", "--group", GROUP, "--max", "3").ok()
    assert sum(int(str(each["events"])) for each in partitions(billing)) == before - 3
    assert "COMMITTED" in billing("group", "partitions", GROUP).ok()


def test_members_show_the_state_and_who_owns_what(billing: Cli) -> None:
    found = billing("group", "members", GROUP, "-o", "json").json()
    assert (found["phase"], found["members"]) == ("empty", [])


@pytest.mark.subprocess
@pytest.mark.acceptance("K28")
def test_partitions_are_moved_only_without_consumers_online(
    billing: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    assert "online" in billing("group", "reset", GROUP, "--shift", "-1").refused(4)
    assert "group offline" in billing("group", "reset", GROUP, "--number", "0").refused(4)
    shown = billing("group", "reset", GROUP, "--number", "0", "--dry-run", "-o", "json").json()
    assert shown["dry_run"] is True
    billing("group", "members", GROUP).ok()


def test_partitions_are_moved_by_each_form(billing: Cli) -> None:
    billing("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows_of(1, 2, 3)).ok()
    ends = {int(str(each["partition"])): int(str(each["end"])) for each in partitions(billing)}
    for form, expected in (
        (("--to", "tail", "--partition", "shop/orders:0"), ends[0]),
        (("--shift", "-1", "--partition", "shop/orders:0"), ends[0] - 1),
        (("--number", "0"), 0),
        (("--duration", "3600"), 0),
    ):
        done = billing("group", "reset", GROUP, *form, "-o", "json").json()
        assert done["done"] == "reset"
        assert next(each for each in partitions(billing) if each["partition"] == 0)["committed"] in (
            expected,
            None,
        )
    billing("group", "reset", GROUP, "--number", "0", "--shift", "1").refused(2)
    billing("group", "reset", GROUP, "--number", "0", "--partition", "orders").refused(2)
    billing("group", "reset", GROUP, "--number", "0", "--until", "never").refused(2)
