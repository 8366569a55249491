"""Reader groups at the shell: made, shown, reset, checkpointed and deleted; and a shell that is a reader."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

import eventproc
from tests.cli.conftest import Cli
from tests.cli.shell import COMMAND, PATIENCE_S, environment, started
from tests.cli.test_streams import everything

GROUP = "shop/billing"
EVENTS = 3


@pytest.fixture
def shop(shop: Cli) -> Cli:
    """shop/orders with three events, and the group shop/billing."""
    shop("group", "create", "billing", "--stream", "shop/orders").ok()
    return shop


def numbers(rows: list[dict[str, str]]) -> list[int]:
    return [json.loads(row["payload"])["n"] for row in rows]


def append(cli: Cli, *values: int) -> None:
    rows = b"".join(b'{"k":"customer-42","n":%d}\n' % value for value in values)
    cli("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows).ok()


def left(cli: Cli) -> int:
    found = cli("group", "lag", GROUP, "-o", "json").json()["lag_events"]
    assert isinstance(found, int)
    return found


def cut(cli: Cli, at: str = "tail", stream: str = "shop/orders") -> str:
    return cli("stream", "cut", stream, "--at", at).ok().strip()


def _into(path: Path, cli: Cli, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a shell that reads as the group into a file."""
    command = [*COMMAND, "-C", str(cli.directory), "read", "--group", GROUP, *arguments]
    with path.open("wb") as out:
        return subprocess.Popen(command, stdout=out, env=environment())


def _printed(path: Path) -> list[int]:
    return numbers([json.loads(line) for line in path.read_text().splitlines()])


@pytest.fixture
def as_reader(shop: Cli) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads as "r1" and waits for more, having read all."""
    with started("-C", shop.directory, "read", "--group", GROUP, "--reader", "r1", "--follow") as reader:
        try:
            assert reader.stdout is not None
            for number in range(EVENTS):
                assert numbers([json.loads(reader.stdout.readline())]) == [number]
            yield reader
        finally:
            reader.kill()


def test_a_group_is_made_once_and_refused_when_it_differs(shop: Cli) -> None:
    done = shop("group", "create", GROUP, "--stream", "shop/orders")
    assert (done.code, done.out, done.err) == (0, "", f"{GROUP} is there\n")
    again = ("group", "create", GROUP, "--stream", "shop/orders", "--lease", 5)
    assert "options" in shop(*again).refused(4)
    assert "no stream" in shop("group", "create", "shop/x", "--stream", "shop/none").refused(3)
    assert "no scope" in shop("group", "create", "none/x", "--stream", "shop/orders").refused(3)


def test_a_group_begins_and_ends_where_it_is_told_to(shop: Cli) -> None:
    begin = cut(shop)
    append(shop, 3, 4)
    end = cut(shop)
    append(shop, 5)
    shop("group", "create", "part", "--stream", "shop/orders", "--from", begin, "--to", end).ok()
    assert numbers(shop("read", "--group", "shop/part").rows()) == [3, 4]
    assert numbers(shop("read", "--group", "shop/part", "--follow").rows()) == []  # it ends there
    shop("group", "create", "late", "--stream", "shop/orders", "--from", "tail").ok()
    append(shop, 6)
    assert numbers(shop("read", "--group", "shop/late").rows()) == [6]
    shop("group", "create", "never", "--stream", "shop/orders", "--from", "2200-01-01").ok()
    assert shop("read", "--group", "shop/never").rows() == []


def test_a_group_of_several_streams_begins_at_a_cut_of_each(shop: Cli) -> None:
    shop("stream", "create", "shop/more").ok()
    shop("write", "shop/more", stdin=b"x\ny\n").ok()
    both = ("--stream", "shop/orders", "--stream", "shop/more")
    tail, head = cut(shop), cut(shop, "head", "shop/more")
    shop("group", "create", "both", *both, "--from", head, "--from", tail).ok()
    rows = shop("read", "--group", "shop/both").rows()
    assert [(row["stream"], row["payload"]) for row in rows] == [("more", "x"), ("more", "y")]
    shop("group", "reset", "shop/both", "--to", "head", "--execute").ok()
    lines = shop("read", "--group", "shop/both", "-o", "table").ok().splitlines()
    assert sorted(line.split("  ")[1].split("@")[0] for line in lines) == [
        *["shop/more 0.0"] * 2,
        *["shop/orders 0.0"] * EVENTS,
    ]
    for wrong, why in (
        (("--from", tail, "--from", tail), "already"),
        (("--from", tail, "--from", "head"), "must be a cut"),
    ):
        assert why in shop("group", "create", "x", *both, *wrong).refused(2)
    assert "belongs to stream" in shop("group", "create", "x", *both, "--from", "99:0.0=0").refused(4)


def test_groups_are_listed_with_how_far_they_are(shop: Cli) -> None:
    shop("read", "--group", GROUP, "--max", 1).ok()
    (row,) = shop("group", "list", "-o", "json").json()
    assert row.pop("lag_ms") >= 0
    assert row.pop("progress_at_ms") > 0
    size = 8 + len('{"k":"customer-42","n":0}')
    assert row == {
        "name": GROUP,
        "kind": "readers",
        "streams": ["shop/orders"],
        "replaced": [],
        "paused": False,
        "readers": 0,
        "lag_events": 2,
        "lag_bytes": 2 * size,
        "lost_events": 0,
    }
    assert shop("group", "list", "shop").ok().splitlines()[0].split()[:4] == [
        "NAME",
        "KIND",
        "STREAMS",
        "READERS",
    ]
    assert "no scope" in shop("group", "list", "none").refused(3)
    shop("scope", "create", "empty").ok()
    assert shop("group", "list", "empty", "-o", "json").json() == []


def test_the_lag_is_told_by_segment_and_in_all(shop: Cli) -> None:
    found = shop("group", "lag", GROUP, "-o", "json").json()
    size = 8 + len('{"k":"customer-42","n":0}')
    assert (found["lag_events"], found["lag_bytes"]) == (EVENTS, EVENTS * size)
    by_segment = {row["segment"]: (row["lag_events"], row["lag_bytes"]) for row in found["segments"]}
    assert by_segment == {"0.0": (EVENTS, EVENTS * size), "1.0": (0, 0)}
    lines = shop("group", "lag", GROUP).ok().splitlines()
    assert lines[0].split() == ["STREAM", "SEGMENT", "OWNER", "LAG", "EVENTS", "LAG", "BYTES", "LAG", "S"]
    assert lines[-1].split()[:5] == ["total", "-", "-", str(EVENTS), str(EVENTS * size)]
    assert float(lines[-1].split()[5]) >= 0
    shop("read", "--group", GROUP).ok()
    assert shop("group", "lag", GROUP, "-o", "json").json()["lag_ms"] is None


def test_describe_shows_who_reads_what_and_where_the_group_stands(
    shop: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    found = shop("group", "describe", GROUP, "-o", "json").json()
    (member,) = found["members"]
    assert (member["reader"], member["pid"], member["alive"], member["segments"]) == (
        "r1",
        as_reader.pid,
        True,
        2,
    )
    assert {row["owner"] for row in found["segments"]} == {"r1"}
    assert found["on_truncated"] == "earliest"
    text = shop("group", "describe", GROUP).ok()
    assert "readers              1" in text
    assert "SEGMENT  OWNER" in text
    as_reader.kill()
    as_reader.wait()
    assert shop("group", "describe", GROUP, "-o", "json").json()["members"][0]["alive"] is False


def test_the_cut_that_is_shown_is_one_to_truncate_at(shop: Cli) -> None:
    shop("read", "--group", GROUP, "--max", 2).ok()
    (stream,) = shop("group", "describe", GROUP, "-o", "json").json()["streams"]
    shop("stream", "truncate", "shop/orders", "--cut", stream["cut"]).ok()
    assert numbers(shop("read", "--group", GROUP).rows()) == [2]


def test_a_reset_shows_what_it_would_do_and_does_it_when_told_to(shop: Cli) -> None:
    shop("read", "--group", GROUP, "--max", 2).ok()
    before = everything(shop), left(shop)
    found = shop("group", "reset", GROUP, "--to", "head", "-o", "json").json()
    (stream,) = found.pop("streams")
    assert found == {"dry_run": True, "would": "reset", "target": GROUP}
    size = 8 + len('{"k":"customer-42","n":0}')
    assert stream == {
        "stream": "shop/orders",
        "cut_before": stream["cut_before"],
        "cut_after": cut(shop, "head"),
        "events_before": 1,
        "events_after": 3,
        "bytes_before": size,
        "bytes_after": 3 * size,
    }
    assert stream["cut_before"].endswith(f"0.0={2 * size},1.0=0")
    assert "--execute" in shop("group", "reset", GROUP, "--to", "tail").err
    assert shop("group", "reset", GROUP, "--to", "tail", "--dry-run").ok()
    assert (everything(shop), left(shop)) == before
    done = shop("group", "reset", GROUP, "--to", "head", "--execute")
    assert (done.code, done.err) == (0, f"reset {GROUP}\n")
    assert left(shop) == 3
    shop("group", "reset", GROUP, "--to", "tail", "--execute").ok()
    assert left(shop) == 0
    shop("group", "reset", GROUP, "--to", stream["cut_before"], "--execute").ok()
    assert left(shop) == 1
    (row,) = shop("group", "reset", GROUP, "--to", "2200-01-01", "-o", "json").json()["streams"]
    assert (row["events_before"], row["events_after"]) == (1, 0)


def test_what_a_reset_shows_is_what_it_does_across_scales(shop: Cli) -> None:
    middle = cut(shop)
    shop("stream", "split", "shop/orders", "0.0").ok()
    append(shop, *range(3, 10))
    shop("read", "--group", GROUP).ok()
    for place in ("head", middle, "tail"):
        (row,) = shop("group", "reset", GROUP, "--to", place, "--execute", "-o", "json").json()["streams"]
        assert left(shop) == row["events_after"]
        (stream,) = shop("group", "describe", GROUP, "-o", "json").json()["streams"]
        assert stream["cut"] == row["cut_after"]
        assert stream["lag_bytes"] == row["bytes_after"]


def test_a_group_whose_stream_was_deleted_says_so_and_is_reset_by_name(shop: Cli) -> None:
    shop("stream", "seal", "shop/orders").ok()
    shop("stream", "delete", "shop/orders").ok()
    assert "group reset" in shop("read", "--group", GROUP).refused(4)
    assert shop("group", "list", "-o", "json").json()[0]["replaced"] == ["shop/orders"]
    assert shop("group", "describe", GROUP, "-o", "json").json()["streams"][0]["cut"] is None
    shop("stream", "create", "shop/orders").ok()
    append(shop, 7)
    assert "group reset" in shop("read", "--group", GROUP).refused(4)
    (row,) = shop("group", "reset", GROUP, "--to", "head", "-o", "json").json()["streams"]
    assert (row["cut_before"], row["events_before"], row["events_after"]) == (None, None, 1)
    shop("group", "reset", GROUP, "--to", "head", "--execute").ok()
    assert numbers(shop("read", "--group", GROUP).rows()) == [7]


def test_a_group_may_read_another_stream_from_a_reset_on(shop: Cli) -> None:
    shop("stream", "create", "shop/more").ok()
    shop("write", "shop/more", stdin=b"x\n").ok()
    shop("group", "reset", GROUP, "--to", "head", "--stream", "shop/more", "--execute").ok()
    assert [row["payload"] for row in shop("read", "--group", GROUP).rows()] == ["x"]
    twice = ("--stream", "shop/more", "--stream", "shop/more")
    assert "twice" in shop("group", "reset", GROUP, "--to", "head", *twice, "--execute").refused(2)


def test_a_checkpoint_is_made_listed_and_gone_back_to(shop: Cli) -> None:
    shop("read", "--group", GROUP, "--max", 1).ok()
    made = shop("group", "checkpoint", GROUP, "first", "-o", "json").json()
    assert (made["name"], made["automatic"]) == ("first", False)
    assert made["cuts"][0]["stream"] == "shop/orders"
    unnamed = shop("group", "checkpoint", GROUP).ok()
    assert unnamed.startswith("name             checkpoint-")
    assert made["cuts"][0]["cut"] in unnamed
    rows = shop("group", "checkpoints", GROUP, "-o", "jsonl").rows()
    assert rows[0] == made
    assert len(rows) == 2
    assert shop("group", "checkpoints", GROUP).ok().splitlines()[1].startswith("first  ")
    shop("read", "--group", GROUP).ok()
    shop("group", "reset", GROUP, "--checkpoint", "first", "--execute").ok()
    assert numbers(shop("read", "--group", GROUP).rows()) == [1, 2]
    assert "no checkpoint" in shop("group", "reset", GROUP, "--checkpoint", "none").refused(3)


def test_a_checkpoint_waits_for_a_reader_and_says_when_it_was_not_complete(
    shop: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    found = shop("group", "checkpoint", GROUP, "live", "-o", "json").json()
    assert found["cuts"][0]["cut"] == cut(shop)
    as_reader.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, as_reader.pid, os.WSTOPPED | os.WNOWAIT)
    line = shop("group", "checkpoint", GROUP, "slow", "--timeout", 0.05).refused(5)
    assert "checkpoint slow is not complete" in line
    as_reader.send_signal(signal.SIGCONT)
    assert shop("group", "checkpoint", GROUP, "slow", "-o", "json").json()["name"] == "slow"


def test_a_reader_that_hangs_is_declared_offline(shop: Cli, as_reader: subprocess.Popen[bytes]) -> None:
    as_reader.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, as_reader.pid, os.WSTOPPED | os.WNOWAIT)
    assert "is online in process" in shop("read", "--group", GROUP, "--reader", "r1").refused(4)
    done = shop("group", "offline", GROUP, "r1")
    assert (done.code, done.err) == (0, f"r1 is offline in {GROUP}\n")
    append(shop, 3)
    assert numbers(shop("read", "--group", GROUP, "--reader", "r2").rows())[-1] == 3


def test_a_group_is_deleted_and_before_that_it_is_said_what_goes(
    shop: Cli, as_reader: subprocess.Popen[bytes]
) -> None:
    append(shop, 3)
    assert as_reader.stdout is not None
    assert numbers([json.loads(as_reader.stdout.readline())]) == [3]
    found = shop("group", "delete", GROUP, "--dry-run", "-o", "json").json()
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
        "lag_events": 0,
        "lag_bytes": 0,
    }
    shop("group", "delete", GROUP).ok()
    _, err = as_reader.communicate(timeout=PATIENCE_S)
    assert as_reader.returncode == 3
    assert b"no group 'shop/billing'" in err
    assert "no group" in shop("group", "delete", GROUP).refused(3)
    assert len(shop("read", "shop/orders").rows()) == 4


def test_events_are_printed_as_reading_a_stream_prints_them(shop: Cli) -> None:
    rows = shop("read", "shop/orders").rows()
    assert shop("read", "--group", GROUP).rows() == rows
    assert shop("read", "--group", GROUP).rows() == []
    for form in ("json", "table"):
        shop("group", "reset", GROUP, "--to", "head", "--execute").ok()
        printed = shop("read", "--group", GROUP, "-o", form).ok()
        assert printed == shop("read", "shop/orders", "-o", form).ok()
    assert shop("read", "--group", GROUP, "-o", "json").json() == []


def test_so_many_are_read_and_the_others_stay_for_whoever_comes(shop: Cli) -> None:
    assert numbers(shop("read", "--group", GROUP, "--max", 2).rows()) == [0, 1]
    assert left(shop) == 1
    assert numbers(shop("read", "--group", GROUP, "--reader", "another").rows()) == [2]


def test_a_reader_that_follows_ends_with_its_streams(shop: Cli, as_reader: subprocess.Popen[bytes]) -> None:
    append(shop, 3)
    shop("stream", "seal", "shop/orders").ok()
    out, err = as_reader.communicate(timeout=PATIENCE_S)
    assert (as_reader.returncode, err) == (0, b"")
    assert numbers([json.loads(line) for line in out.splitlines()]) == [3]
    assert left(shop) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_printed_before_a_signal_is_finished(
    shop: Cli, as_reader: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    append(shop, 3)
    assert as_reader.stdout is not None
    assert numbers([json.loads(as_reader.stdout.readline())]) == [3]
    as_reader.send_signal(number)
    out, err = as_reader.communicate(timeout=PATIENCE_S)
    assert (as_reader.returncode, out, err) == (128 + number, b"", b"")
    assert left(shop) == 0
    assert shop("group", "describe", GROUP, "-o", "json").json()["members"] == []


def test_a_signal_in_the_midst_of_many_events_loses_and_repeats_none(shop: Cli, tmp_path: Path) -> None:
    append(shop, *range(EVENTS, 30_000))
    with _into(tmp_path / "out", shop) as reader:
        while not (tmp_path / "out").stat().st_size:
            os.sched_yield()
        reader.send_signal(signal.SIGINT)
        assert reader.wait(PATIENCE_S) == 130
    printed = _printed(tmp_path / "out")
    assert 0 < len(printed) < 30_000
    rest = shop("read", "--group", GROUP).rows()
    assert printed + numbers(rest) == list(range(30_000))


def test_what_a_broken_pipe_did_not_take_is_read_again(shop: Cli) -> None:
    append(shop, *range(EVENTS, 20_000))
    with started("-C", shop.directory, "read", "--group", GROUP) as reader:
        assert reader.stdout is not None
        taken = numbers([json.loads(reader.stdout.readline()) for _ in range(10)])
        reader.stdout.close()
        reader.stdout = None
        _, err = reader.communicate(timeout=PATIENCE_S)
    assert (reader.returncode, err) == (141, b"")
    rest = numbers(shop("read", "--group", GROUP).rows())
    assert taken == list(range(10))
    assert rest == list(range(20_000 - len(rest), 20_000))
    assert 10 < len(rest) < 20_000 - 10  # the pipe had taken some more, and not all


def test_two_shells_share_a_group_and_print_each_event_once(shop: Cli, tmp_path: Path) -> None:
    with ExitStack() as stack:
        shells = [_into(tmp_path / name, shop, "--reader", name, "--follow") for name in ("a", "b")]
        for shell in shells:
            stack.enter_context(shell)
        while len(shop("group", "describe", GROUP, "-o", "json").json()["members"]) < 2:
            pass
        rows = b"".join(b'{"k":"%d","n":%d}\n' % (number % 9, number) for number in range(EVENTS, 900))
        shop("write", "shop/orders", "--format", "jsonl", "--key", "k", stdin=rows).ok()
        shop("stream", "seal", "shop/orders").ok()
        assert [shell.wait(PATIENCE_S) for shell in shells] == [0, 0]
    printed = [_printed(tmp_path / name) for name in ("a", "b")]
    assert all(printed)
    assert sorted(printed[0] + printed[1]) == list(range(900))


def test_a_killed_shell_s_events_come_to_the_next(shop: Cli, as_reader: subprocess.Popen[bytes]) -> None:
    as_reader.kill()
    as_reader.wait()
    append(shop, 3)
    rest = numbers(shop("read", "--group", GROUP, "--reader", "r1").rows())
    assert rest[-1] == 3
    assert rest == list(range(4 - len(rest), 4))


def test_nothing_that_a_terminal_obeys_is_shown_of_a_reader(shop: Cli) -> None:
    async def look() -> str:
        async with eventproc.open(shop.directory) as ep, (await ep.reader_group(GROUP)).reader("\x1b[2J"):
            return await anyio.to_thread.run_sync(
                lambda: (
                    subprocess.run(
                        [*COMMAND, "-C", str(shop.directory), "group", "describe", GROUP],
                        capture_output=True,
                        env=environment(),
                        check=True,
                        text=True,
                    ).stdout
                )
            )

    shown = anyio.run(look)
    assert "\x1b" not in shown
    assert "\\x1b[2J" in shown


def test_completion_offers_the_commands_of_groups() -> None:
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        env=environment(
            _EVENTPROC_COMPLETE="bash_complete", COMP_WORDS="eventproc group che", COMP_CWORD="2"
        ),
        check=True,
        text=True,
    )
    assert done.stdout.split() == ["plain,checkpoint", "plain,checkpoints"]
