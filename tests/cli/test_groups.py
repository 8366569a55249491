"""Reader groups at the shell: made, shown, reset, checkpointed and deleted."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import anyio
import pytest

import eventproc
from tests.cli.conftest import Cli
from tests.cli.support import EVENTS, GROUP, PATIENCE_S, numbers, rows_of
from tests.cli.test_streams import everything


def append(cli: Cli, *values: int) -> None:
    cli("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows_of(*values)).ok()


def left(cli: Cli) -> int:
    found = cli("group", "lag", GROUP, "-o", "json").json()["events"]
    assert isinstance(found, int)
    return found


def cut(cli: Cli, at: str = "tail", stream: str = "shop/orders") -> str:
    return cli("stream", "cut", stream, "--at", at).ok().strip()


def test_a_group_is_made_once_and_refused_when_it_differs(billing: Cli) -> None:
    done = billing("group", "create", GROUP, "--stream", "shop/orders")
    assert (done.code, done.out, done.err) == (0, "", f"group {GROUP} exists already\n")
    again = ("group", "create", GROUP, "--stream", "shop/orders", "--patience", 5)
    assert "options" in billing(*again).refused(4)
    assert "no stream" in billing("group", "create", "shop/x", "--stream", "shop/none").refused(3)
    assert "no scope" in billing("group", "create", "none/x", "--stream", "shop/orders").refused(3)


def test_group_begins_and_ends_at_the_given_positions(billing: Cli) -> None:
    begin = cut(billing)
    append(billing, 3, 4)
    end = cut(billing)
    append(billing, 5)
    billing("group", "create", "part", "--stream", "shop/orders", "--from", begin, "--to", end).ok()
    assert numbers(billing("read", "--group", "shop/part").rows()) == [3, 4]
    assert numbers(billing("read", "--group", "shop/part", "--follow").rows()) == []  # it ends there
    billing("group", "create", "late", "--stream", "shop/orders", "--from", "tail").ok()
    append(billing, 6)
    assert numbers(billing("read", "--group", "shop/late").rows()) == [6]
    billing("group", "create", "never", "--stream", "shop/orders", "--from", "2200-01-01").ok()
    assert billing("read", "--group", "shop/never").rows() == []
    billing("group", "create", "ever", "--stream", "shop/orders", "--from", "1970-01-01").ok()
    assert numbers(billing("read", "--group", "shop/ever").rows()) == [0, 1, 2, 3, 4, 5, 6]
    assert [row["name"] for row in billing("group", "list", "-o", "json").json()] == [
        *(GROUP, "shop/ever", "shop/late", "shop/never", "shop/part")
    ]


def test_a_group_of_several_streams_begins_at_a_cut_of_each(billing: Cli) -> None:
    billing("stream", "create", "shop/more").ok()
    billing("write", "shop/more", stdin=b"x\ny\n").ok()
    both = ("--stream", "shop/orders", "--stream", "shop/more")
    tail, head = cut(billing), cut(billing, "head", "shop/more")
    billing("group", "create", "both", *both, "--from", head, "--from", tail).ok()
    rows = billing("read", "--group", "shop/both").rows()
    assert [(row["stream"], row["payload"]) for row in rows] == [("more", "x"), ("more", "y")]
    billing("group", "reset", "shop/both", "--to", "head").ok()
    lines = billing("read", "--group", "shop/both", "-o", "table").ok().splitlines()
    assert sorted(line.split("  ")[1].split("@")[0] for line in lines) == [
        *["shop/more 0.0"] * 2,
        *["shop/orders 0.0"] * EVENTS,
    ]
    for wrong, why in (
        (("--from", tail, "--from", tail), "already"),
        (("--from", tail, "--from", "head"), "must be a cut"),
    ):
        assert why in billing("group", "create", "x", *both, *wrong).refused(2)
    assert "belongs to stream" in billing("group", "create", "x", *both, "--from", "99:0.0=0").refused(4)


def test_groups_are_listed_with_how_far_they_are(billing: Cli) -> None:
    billing("read", "--group", GROUP, "--max", 1).ok()
    (row,) = billing("group", "list", "-o", "json").json()
    assert row["age_ms"] >= 0
    assert row["moved_ms"] > 0
    size = 8 + len('{"k":"customer-42","n":0}')
    names = ("name", "kind", "replaced", "paused", "members", "events", "bytes", "lost_events")
    assert [row[name] for name in names] == [GROUP, "readers", [], False, [], 2, 2 * size, 0]
    assert [each["name"] for each in row["streams"]] == ["shop/orders"]
    assert billing("group", "list", "shop").ok().splitlines()[0].split()[:4] == [
        "NAME",
        "KIND",
        "STREAMS",
        "READERS",
    ]
    assert billing("group", "list").ok().splitlines()[1].split()[:4] == [GROUP, "readers", "shop/orders", "0"]
    assert "no scope" in billing("group", "list", "none").refused(3)
    billing("scope", "create", "empty").ok()
    assert billing("group", "list", "empty", "-o", "json").json() == []


def test_lag_is_shown_by_segment_and_in_total(billing: Cli) -> None:
    found = billing("group", "lag", GROUP, "-o", "json").json()
    size = 8 + len('{"k":"customer-42","n":0}')
    assert (found["events"], found["bytes"]) == (EVENTS, EVENTS * size)
    by_segment = {row["segment"]: (row["events"], row["bytes"]) for row in found["segments"]}
    assert by_segment == {"0.0": (EVENTS, EVENTS * size), "1.0": (0, 0)}
    lines = billing("group", "lag", GROUP).ok().splitlines()
    assert lines[0].split() == ["STREAM", "SEGMENT", "OWNER", "LAG", "EVENTS", "LAG", "BYTES", "LAG", "MS"]
    assert lines[-1].split()[:5] == ["total", "-", "-", str(EVENTS), str(EVENTS * size)]
    assert float(lines[-1].split()[5]) >= 0
    billing("read", "--group", GROUP).ok()
    assert billing("group", "lag", GROUP, "-o", "json").json()["age_ms"] is None


@pytest.mark.subprocess
def test_describe_shows_readers_segments_and_positions_of_a_group(
    billing: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    found = billing("group", "describe", GROUP, "-o", "json").json()
    (member,) = found["members"]
    assert (member["reader"], member["pid"], member["alive"], member["owned"]) == (
        "r1",
        as_reader.pid,
        True,
        2,
    )
    assert {row["owner"] for row in found["segments"]} == {"r1"}
    assert found["options"]["on_truncated"] == "earliest"
    text = billing("group", "describe", GROUP).ok()
    assert "READER  PID" in text
    assert "SEGMENT  OWNER" in text
    as_reader.kill()
    as_reader.wait()
    assert billing("group", "describe", GROUP, "-o", "json").json()["members"][0]["alive"] is False


def test_the_cut_that_is_shown_is_one_to_truncate_at(billing: Cli) -> None:
    billing("read", "--group", GROUP, "--max", 2).ok()
    cuts = billing("group", "describe", GROUP, "-o", "json").json()["cuts"]
    assert cuts["shop/orders"] in billing("group", "describe", GROUP).ok()
    billing("stream", "truncate", "shop/orders", "--cut", cuts["shop/orders"], "--yes").ok()
    assert numbers(billing("read", "--group", GROUP).rows()) == [2]


def test_reset_changes_the_group_with_execute_only(billing: Cli) -> None:
    billing("read", "--group", GROUP, "--max", 2).ok()
    before = everything(billing), left(billing)
    found = billing("group", "reset", GROUP, "--to", "head", "--dry-run", "-o", "json").json()
    (stream,) = found.pop("streams")
    assert found == {"dry_run": True, "would": "reset", "target": GROUP}
    size = 8 + len('{"k":"customer-42","n":0}')
    assert stream == {
        "stream": "shop/orders",
        "cut_before": stream["cut_before"],
        "cut_after": cut(billing, "head"),
        "events_before": 1,
        "events_after": 3,
        "bytes_before": size,
        "bytes_after": 3 * size,
    }
    assert stream["cut_before"].endswith(f"0.0={2 * size},1.0=0")
    dry = billing("group", "reset", GROUP, "--to", "tail", "--dry-run")
    assert dry.err.startswith(f"nothing was changed; without --dry-run, {GROUP} is reset\n")
    assert (everything(billing), left(billing)) == before
    done = billing("group", "reset", GROUP, "--to", "head")
    assert (done.code, done.err) == (0, f"{GROUP} is reset\n")
    assert left(billing) == 3
    skipping = billing("group", "reset", GROUP, "--to", "tail")
    assert "this skips 3 unread events; a reset to the cut before returns to them" in skipping.err
    assert left(billing) == 0
    billing("group", "reset", GROUP, "--to", stream["cut_before"]).ok()
    assert left(billing) == 1
    (row,) = billing("group", "reset", GROUP, "--to", "2200-01-01", "--dry-run", "-o", "json").json()[
        "streams"
    ]
    assert (row["events_before"], row["events_after"]) == (1, 0)


def test_reset_does_what_its_preview_shows_across_scales(billing: Cli) -> None:
    middle = cut(billing)
    billing("stream", "split", "shop/orders", "0.0").ok()
    append(billing, *range(3, 10))
    billing("read", "--group", GROUP).ok()
    for place in ("head", middle, "tail"):
        (row,) = billing("group", "reset", GROUP, "--to", place, "-o", "json").json()["streams"]
        assert left(billing) == row["events_after"]
        found = billing("group", "describe", GROUP, "-o", "json").json()
        assert found["cuts"]["shop/orders"] == row["cut_after"]
        assert found["bytes"] == row["bytes_after"]


def test_group_of_a_deleted_stream_is_reported_and_reset_by_name(billing: Cli) -> None:
    billing("stream", "seal", "shop/orders", "--yes").ok()
    billing("stream", "delete", "shop/orders", "--yes").ok()
    assert "group reset" in billing("read", "--group", GROUP).refused(4)
    assert billing("group", "list", "-o", "json").json()[0]["replaced"] == ["shop/orders"]
    assert billing("group", "describe", GROUP, "-o", "json").json()["cuts"] == {}
    billing("stream", "create", "shop/orders").ok()
    append(billing, 7)
    assert "group reset" in billing("read", "--group", GROUP).refused(4)
    (row,) = billing("group", "reset", GROUP, "--to", "head", "--dry-run", "-o", "json").json()["streams"]
    assert (row["cut_before"], row["events_before"], row["events_after"]) == (None, None, 1)
    billing("group", "reset", GROUP, "--to", "head").ok()
    assert numbers(billing("read", "--group", GROUP).rows()) == [7]


def test_reset_keeps_the_end_of_a_group_unless_until_is_given(billing: Cli) -> None:
    end = cut(billing)
    append(billing, 3)
    name = "shop/ending"
    billing("group", "create", name, "--stream", "shop/orders", "--to", end).ok()
    assert len(billing("read", "--group", name, "--follow").rows()) == EVENTS
    assert "choose another end" in billing("group", "reset", name, "--to", "tail").refused(4)
    again = ("group", "reset", name, "--to", "head")
    billing(*again).ok()
    assert len(billing("read", "--group", name, "--follow").rows()) == EVENTS
    billing(*again, "--until", "never").ok()
    assert len(billing("read", "--group", name).rows()) == EVENTS + 1
    billing(*again, "--until", end).ok()
    assert len(billing("read", "--group", name, "--follow").rows()) == EVENTS
    assert "cut" in billing(*again, "--until", "tail").refused(2)


def test_a_group_may_read_another_stream_from_a_reset_on(billing: Cli) -> None:
    billing("stream", "create", "shop/more").ok()
    billing("write", "shop/more", stdin=b"x\n").ok()
    before = cut(billing, "head")
    other = ("group", "reset", GROUP, "--to", "head", "--stream", "shop/more", "-o", "json")
    new, left_behind = billing(*other).json()["streams"]
    assert (new["stream"], new["cut_before"]) == ("shop/more", None)
    assert left_behind == {"stream": "shop/orders", "cut_before": before, "events_before": EVENTS}
    assert [row["payload"] for row in billing("read", "--group", GROUP).rows()] == ["x"]
    twice = ("--stream", "shop/more", "--stream", "shop/more")
    assert "twice" in billing("group", "reset", GROUP, "--to", "head", *twice).refused(2)


def test_a_checkpoint_is_made_listed_and_gone_back_to(billing: Cli) -> None:
    billing("read", "--group", GROUP, "--max", 1).ok()
    made = billing("group", "checkpoint", GROUP, "first", "-o", "json").json()
    assert (made["name"], made["automatic"]) == ("first", False)
    unnamed = billing("group", "checkpoint", GROUP).ok()
    assert unnamed.startswith("name              checkpoint-")
    assert made["cuts"]["shop/orders"] in unnamed
    rows = billing("group", "checkpoints", GROUP, "-o", "jsonl").rows()
    assert rows[0] == made
    assert len(rows) == 2
    assert billing("group", "checkpoints", GROUP).ok().splitlines()[1].startswith("first  ")
    billing("read", "--group", GROUP).ok()
    billing("group", "reset", GROUP, "--checkpoint", "first").ok()
    assert numbers(billing("read", "--group", GROUP).rows()) == [1, 2]
    assert "no checkpoint" in billing("group", "reset", GROUP, "--checkpoint", "none").refused(3)


@pytest.mark.subprocess
def test_a_checkpoint_waits_for_a_reader_and_says_when_it_was_not_complete(
    billing: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    found = billing("group", "checkpoint", GROUP, "live", "-o", "json").json()
    assert found["cuts"]["shop/orders"] == cut(billing)
    as_reader.send_signal(signal.SIGSTOP)
    os.waitpid(as_reader.pid, os.WUNTRACED)
    line = billing("group", "checkpoint", GROUP, "slow", "--timeout", 0.05).refused(5)
    assert "checkpoint slow is not complete" in line
    as_reader.send_signal(signal.SIGCONT)
    assert billing("group", "checkpoint", GROUP, "slow", "-o", "json").json()["name"] == "slow"


@pytest.mark.subprocess
def test_a_reader_that_hangs_is_declared_offline(billing: Cli, as_reader: subprocess.Popen[bytes]) -> None:
    as_reader.send_signal(signal.SIGSTOP)
    os.waitpid(as_reader.pid, os.WUNTRACED)
    assert "is online in process" in billing("read", "--group", GROUP, "--reader", "r1").refused(4)
    done = billing("group", "offline", GROUP, "r1")
    assert (done.code, done.err) == (0, f"r1 is offline in {GROUP}\n")
    append(billing, 3)
    assert numbers(billing("read", "--group", GROUP, "--reader", "r2").rows())[-1] == 3


@pytest.mark.subprocess
def test_group_deletion_has_a_dry_run(billing: Cli, as_reader: subprocess.Popen[bytes]) -> None:
    append(billing, 3)
    assert as_reader.stdout is not None
    assert numbers([json.loads(as_reader.stdout.readline())]) == [3]
    found = billing("group", "delete", GROUP, "--dry-run", "-o", "json").json()
    assert found["lag_events"] in (
        0,
        1,
    )  # the last one is finished when the next is asked for, and durable later
    assert {**found, "lag_events": 0, "lag_bytes": 0} == {
        "dry_run": True,
        "would": "delete",
        "target": GROUP,
        "already_done": False,
        "readers": 1,
        "positions": 2,
        "checkpoints": 0,
        "lag_events": 0,
        "lag_bytes": 0,
    }
    billing("group", "delete", GROUP, "--yes").ok()
    _, err = as_reader.communicate(timeout=PATIENCE_S)
    assert as_reader.returncode == 3
    assert b"no group 'shop/billing'" in err
    assert "no group" in billing("group", "delete", GROUP, "--yes").refused(3)
    assert len(billing("read", "shop/orders").rows()) == 4


def test_control_characters_in_an_id_are_refused_and_escaped(billing: Cli) -> None:
    for arguments in [
        ("read", "--group", GROUP, "--reader", "\x1b[2J"),
        ("group", "checkpoint", GROUP, "\x1b[2J"),
        ("group", "offline", GROUP, "\x1b[2J"),
    ]:
        line = billing(*arguments).refused(2)
        assert "\x1b" not in line
        assert "\\x1b[2J" in line


def test_a_group_of_consumers_is_created_as_python_does(billing: Cli) -> None:
    made = ("group", "create", "shop/late", "--stream", "shop/orders", "--from", "tail")
    billing(*made, "--on-deleted", "drop", "--patience", 5).ok()
    shown = billing("group", "describe", "shop/late", "-o", "json").json()["options"]
    assert (shown["on_deleted"], shown["patience_ms"]) == ("drop", 5_000)

    async def again() -> None:
        async with eventproc.open(billing.directory) as ep:
            group = await ep.create_group(
                "shop/late", ["shop/orders"], start="tail", on_deleted="drop", patience_ms=5_000
            )
            assert group.name == "shop/late"

    anyio.run(again)
    assert "exists already" in billing(*made, "--on-deleted", "drop", "--patience", 5).err


def test_update_changes_the_named_options_and_describe_shows_them(billing: Cli) -> None:
    def options() -> tuple[object, ...]:
        found = billing("group", "describe", "shop/billing", "-o", "json").json()["options"]
        names = ("patience_ms", "checkpoint_ms", "on_truncated", "assignor", "retains")
        return tuple(found[name] for name in names)

    assert options() == (None, None, "earliest", "equal", "progress")
    billing("group", "update", "shop/billing", "--patience", 30, "--retains", "nothing").ok()
    assert options() == (30_000, None, "earliest", "equal", None)
    done = billing(
        *("group", "update", "shop/billing", "--patience", "none", "--checkpoint-every", 60),
        *("--on-truncated", "latest", "--assignor", "range", "-o", "json"),
    ).json()
    assert (done["done"], done["options"]["checkpoint_ms"]) == ("update", 60_000)
    assert options() == (None, 60_000, "latest", "range", None)
    assert "say what to change" in billing("group", "update", "shop/billing").refused(2)
    billing("group", "update", "shop/none", "--patience", 30).refused(3)
    billing("group", "update", "shop/billing", "--patience", 0.1).refused(2)
