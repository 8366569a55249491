"""A stream's life at the shell: made, shown, scaled, truncated, sealed, deleted; requests, waited for or not."""

from __future__ import annotations

import re
import signal

import pytest

from eventproc.base.clock import SystemClock
from eventproc.store.database.instances import HeartbeatFile
from eventproc.store.database.locks import TryLock
from tests.cli.conftest import Cli
from tests.cli.support import shell, started


def test_scopes_are_made_listed_and_deleted(cli: Cli) -> None:
    cli("scope", "create", "a").ok()
    cli("scope", "create", "a").ok()  # exists: returned
    cli("scope", "create", "b").ok()
    cli("stream", "create", "b/x").ok()
    rows = cli("scope", "list", "-o", "jsonl").rows()
    assert [(row["name"], row["state"], row["streams"]) for row in rows] == [
        ("a", "active", 0),
        ("b", "active", 1),
    ]
    cli("scope", "delete", "a", "--yes").ok()
    assert "has 1 stream and 0 groups" in cli("scope", "delete", "b", "--yes").refused(4)
    cli("scope", "delete", "b", "--recursive", "--yes").ok()
    assert cli("scope", "list", "-o", "json").json() == []


def test_describe_shows_ends_sizes_and_segments(shop: Cli) -> None:
    found = shop("stream", "describe", "shop/orders", "-o", "json").json()
    assert (found["name"], found["state"], found["epoch"]) == ("shop/orders", "active", 0)
    assert found["events"] == 3
    assert found["size_bytes"] == found["segments"][0]["tail"] + found["segments"][1]["tail"]
    assert [row["id"] for row in found["segments"]] == ["0.0", "1.0"]
    text = shop("stream", "describe", "shop/orders").ok()
    assert re.search(r"^state +active$", text, re.MULTILINE)
    assert "SEGMENT  LOW  HIGH" in text


def test_a_stream_is_listed_by_its_names(shop: Cli) -> None:
    (row,) = shop("stream", "list", "shop", "-o", "json").json()
    assert (row["name"], row["events"]) == ("shop/orders", 3)
    assert shop("stream", "list").ok().split()[:2] == ["NAME", "STATE"]
    assert "no scope" in shop("stream", "list", "none").refused(3)


def test_segments_split_merge_and_scale_under_their_text_and_integer_ids(shop: Cli) -> None:
    split = shop("stream", "split", "shop/orders", "0", "-o", "json").json()
    assert [row["id"] for row in split] == ["2.1", "3.1"]
    merged = shop("stream", "merge", "shop/orders", "2.1", str(1 << 32 | 3), "-o", "json").json()
    assert [row["id"] for row in merged] == ["4.2"]
    scaled = shop(
        "stream", "scale", "shop/orders", "--seal", "4.2,1.0", "--ranges", "0-0.1,0.1-1", "-o", "jsonl"
    ).rows()
    assert [row["range"] for row in scaled] == [{"low": 0.0, "high": 0.1}, {"low": 0.1, "high": 1.0}]
    shop("stream", "update", "shop/orders", "--segments", 3).ok()
    rows = shop("stream", "segments", "shop/orders", "-o", "jsonl").rows()
    assert [row["id"] for row in rows] == ["7.4", "8.4", "9.4"]
    epochs = shop("stream", "epochs", "shop/orders", "-o", "json").json()
    assert [len(epoch["segments"]) for epoch in epochs] == [2, 3, 2, 2, 3]
    assert "7.4 [0.0-0.3" in shop("stream", "epochs", "shop/orders").ok()


def test_a_cut_that_is_printed_is_one_that_is_accepted(shop: Cli) -> None:
    head = shop("stream", "cut", "shop/orders", "--at", "head").ok().strip()
    tail = shop("stream", "cut", "shop/orders").ok().strip()
    assert head != tail
    assert shop("stream", "cut", "shop/orders", "--at", "0").ok().strip() == head
    assert shop("stream", "cut", "shop/orders", "--at", "2200-01-01T00:00Z").ok().strip() == tail
    assert shop("stream", "cut", "shop/orders", "-o", "json").json()["cut"] == tail
    shop("stream", "truncate", "shop/orders", "--cut", tail, "--yes").ok()
    assert shop("stream", "cut", "shop/orders", "--at", "head").ok().strip() == tail
    assert shop("read", "shop/orders", "--from", tail).rows() == []


def test_offload_says_how_much_it_moved(shop: Cli) -> None:
    row = b'{"k":"c","n":"%s"}\n' % (b"x" * 1000)
    shop("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=row * 600).ok()
    young = shop("stream", "offload", "shop/orders", "--older-than", 1, "-o", "json").json()
    assert young == {"events": 0, "bytes": 0, "files": 0}
    moved = shop("stream", "offload", "shop/orders", "-o", "json").json()
    assert (moved["files"], moved["events"] >= 600, moved["bytes"] > 600_000) == (1, True, True)
    assert len(shop("read", "shop/orders").out.splitlines()) == 603
    assert shop("doctor", "-o", "json").json()["files_with_events"] == 1


def test_truncate_at_an_end_of_the_stream(shop: Cli) -> None:
    shop("stream", "truncate", "shop/orders", "--cut", "head", "--yes").ok()
    assert len(shop("read", "shop/orders").rows()) == 3
    shop("stream", "truncate", "shop/orders", "--cut", "tail", "--yes").ok()
    assert shop("read", "shop/orders").rows() == []


def test_a_sealed_stream_can_be_read_and_deleted(shop: Cli) -> None:
    shop("stream", "seal", "shop/orders", "--yes").ok()
    assert len(shop("read", "shop/orders", "--follow").rows()) == 3  # ends with the stream
    assert "is sealed" in shop("write", "shop/orders", stdin=b"x").refused(4)
    assert "is sealed" in shop("stream", "split", "shop/orders", "0.0").refused(4)
    shop("stream", "delete", "shop/orders", "--yes").ok()
    assert "no stream 'shop/orders'" in shop("stream", "describe", "shop/orders").refused(3)


def test_a_dry_run_is_refused_for_the_reasons_of_the_real_one(shop: Cli) -> None:
    for arguments, code in [
        (("stream", "delete", "shop/orders"), 4),
        (("scope", "delete", "shop"), 4),
        (("stream", "seal", "shop/none"), 3),
        (("stream", "truncate", "shop/orders", "--cut", "99:0.0=0,1.0=0"), 4),
        (("scope", "delete", "_system"), 2),
    ]:
        assert shop(*arguments, "--dry-run").refused(code) == shop(*arguments, "--yes").refused(code)


def test_a_request_is_submitted_now_and_waited_for_later(shop: Cli) -> None:
    request_id = shop("stream", "split", "shop/orders", "0.0", "--no-wait").ok().strip()
    shown = shop("request", "show", request_id, "-o", "json").json()
    assert (shown["kind"], shown["target"], shown["status"]) == ("scale", "shop/orders", "pending")
    waited = shop("request", "wait", request_id, "-o", "json").json()
    assert (waited["request_id"], waited["status"]) == (request_id, "done")
    newest = shop("request", "list", "--limit", 1, "-o", "json").json()
    assert [row["request_id"] for row in newest] == [request_id]
    assert len(shop("stream", "segments", "shop/orders", "-o", "jsonl").rows()) == 3


def test_a_wait_that_is_over_before_the_request_prints_its_id(shop: Cli) -> None:
    request_id = shop("stream", "seal", "shop/orders", "--no-wait", "--yes").ok().strip()
    # A live host that does nothing: no other instance may run the request.
    host = TryLock(shop.directory / "controller.lock")
    assert host.try_acquire()
    HeartbeatFile(shop.directory / "controller.beat", SystemClock()).write(owner_epoch=1)
    done = shop("stream", "seal", "shop/orders", "--timeout", 0, "--yes")
    host.close()
    assert (done.code, done.out.strip()) == (5, request_id)
    assert done.err.count("\n") == 1
    shop("request", "wait", request_id).ok()
    assert shop("stream", "list", "-o", "json").json()[0]["state"] == "sealed"


def test_waiting_for_a_request_that_was_refused_is_refused_the_same_way(shop: Cli) -> None:
    split = shop("stream", "split", "shop/orders", "0.0", "--no-wait").ok().strip()
    sealed = shop("stream", "seal", "shop/orders", "--no-wait", "--yes").ok().strip()
    # Requests of a stream run in the order in which they came: by the second one the seal has not run yet.
    late = shop("stream", "truncate", "shop/orders", "--cut", "tail", "--no-wait", "--yes").ok().strip()
    shop("request", "wait", split).ok()
    shop("request", "wait", sealed).ok()
    assert "is sealed" in shop("request", "wait", late).refused(4)
    assert "is sealed" in shop("request", "show", late, "-o", "json").json()["error"]


def test_an_unknown_request_is_not_found(cli: Cli) -> None:
    for verb in ("show", "wait"):
        assert "no request" in cli("request", verb, "01890000-0000-7000-8000-000000000000").refused(3)


@pytest.mark.subprocess
def test_global_options_may_follow_the_command(shop: Cli) -> None:
    assert len(shell("stream", "list", "-C", shop.directory, "-o", "jsonl").rows()) == 1
    done = shell("scope", "create", "quiet", "-q", "-C", shop.directory)
    assert done == (0, "", "")


@pytest.mark.subprocess
def test_commands_work_beside_a_server_which_ends_at_a_signal(shop: Cli) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with started("-C", shop.directory, "run") as server:
            try:
                assert server.stderr is not None
                line = server.stderr.readline().decode()
                assert f" INFO    eventproc.run: serving {shop.directory} " in line
                request_id = shop("stream", "split", "shop/orders", _first(shop), "--no-wait").ok().strip()
                assert shop("request", "wait", request_id, "-o", "json").json()["status"] == "done"
                shop("stream", "merge", "shop/orders", *_all(shop)[:2]).ok()
                doctor = shop("doctor", "-o", "json").json()
                assert doctor["host"] in [row["instance"] for row in doctor["instances"]]
                assert doctor["controller_lock_pids"] == [server.pid]
            finally:
                server.send_signal(number)
            _, rest = server.communicate(timeout=60)
        assert (server.returncode, rest) == (0, b"")


def everything(cli: Cli) -> list[object]:
    """Return all that the command line shows of a directory, but for the rates, which fall while nothing is written."""
    streams = cli("stream", "list", "-o", "json").json()
    for row in streams:
        del row["events_per_second"]
    shown: list[object] = [streams, cli("scope", "list", "-o", "json").json()]
    shown += [cli("stream", "describe", row["name"], "-o", "json").json() for row in streams]
    return [*shown, cli("request", "list", "-o", "json").json()]


def _all(cli: Cli) -> list[str]:
    return [row["id"] for row in cli("stream", "segments", "shop/orders", "-o", "jsonl").rows()]


def _first(cli: Cli) -> str:
    return _all(cli)[0]


def test_change_with_a_stale_version_is_refused_and_describe_shows_the_version(shop: Cli) -> None:
    version = shop("stream", "describe", "shop/orders", "-o", "json").json()["version"]
    shop("stream", "split", "shop/orders", "0.0", "--if-version", version).ok()
    name = "shop/orders"
    for command in (
        ["update", name, "--segments", 4],
        ["split", name, "1.0"],
        ["merge", name, "2.1", "3.1"],
        ["scale", name, "--seal", "1.0", "--ranges", "0.5-0.7,0.7-1"],
        ["truncate", name, "--cut", "tail", "--yes"],
        ["seal", name, "--yes"],
        ["seal", name, "--dry-run"],
        ["delete", name, "--yes"],
    ):
        line = shop("stream", *command, "--if-version", version).refused(4)
        assert f"shop/orders has version {version + 1}, not {version}" in line
    shop("stream", "seal", name, "--yes", "--if-version", version + 1).ok()


def test_people_see_in_a_table_what_a_policy_sees(shop: Cli) -> None:
    shop("stream", "create", "shop/fleet", "--events-per-second", "100").ok()
    shown = shop("stream", "describe", "shop/fleet").ok()
    assert "young: left alone" in shown
    assert "last_action" in shown
    assert "{" not in shown
    policy = shop("stream", "describe", "shop/fleet", "-o", "json").json()["scaling"]
    assert (policy["waits_for"], policy["segments"][0]["verdict"]) == (None, "young")


def test_lists_of_names_are_shown_page_by_page(cli: Cli) -> None:
    for scope in ("a", "b"):
        cli("scope", "create", scope).ok()
    cli("stream", "create", "a/x").ok()
    for name in ("a/t1", "a/t2", "b/t3"):
        cli("topic", "create", name).ok()
        cli("group", "create", f"{name}-group", "--stream", "a/x").ok()
        cli("share", "create", f"{name}-share", "--stream", "a/x").ok()
    for noun, end in (("topic", ""), ("group", "-group"), ("share", "-share")):
        first = cli(noun, "list", "--limit", 2, "-o", "json").json()
        assert [row["name"] for row in first] == [f"a/t1{end}", f"a/t2{end}"]
        (last,) = cli(noun, "list", "--after", first[-1]["name"], "-o", "json").json()
        assert last["name"] == f"b/t3{end}"
        assert cli(noun, "list", "b", "--prefix", "t1", "-o", "json").json() == []
    (row,) = cli("scope", "list", "--after", "a", "--limit", 1, "-o", "json").json()
    assert (row["name"], row["streams"]) == ("b", 1)
