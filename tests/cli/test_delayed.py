"""Delayed events at the shell: written, listed, shown, moved, cancelled."""

from __future__ import annotations

import base64

import pytest

from tests.cli.conftest import Cli

FAR = "2100-01-31T08:00Z"
FAR_MS = 4_105_065_600_000


@pytest.fixture
def event(shop: Cli) -> str:
    """The id of an event of shop/orders that is due far from now."""
    shop("write", "shop/orders", "--at", FAR, "--key", "k", "--format", "jsonl", stdin=b'{"k":"ana"}\n').ok()
    (row,) = shop("delayed", "list", "--stream", "shop/orders", "-o", "json").json()
    return str(row["id"])


def test_a_written_event_is_listed_until_it_is_cancelled(shop: Cli, event: str) -> None:
    expected = {
        "id": event,
        "stream": "shop/orders",
        "due_ms": FAR_MS,
        "key": "ana",
        "event_time": None,
        "headers": {},
        "partition": None,
        "failure": None,
        "bytes": 11,
    }
    assert shop("delayed", "list", "-o", "json").json() == [expected]
    shown = shop("delayed", "show", event, "-o", "json").json()
    assert shown == {**expected, "payload": '{"k":"ana"}'}
    assert "2100-01-31" in shop("delayed", "list").ok()
    assert shop("delayed", "cancel", event, "-o", "json").json() == shown
    assert shop("delayed", "list", "-o", "json").json() == []
    assert f"no delayed event '{event}'" in shop("delayed", "show", event).refused(3)


def test_a_moved_event_is_due_at_its_new_time(shop: Cli, event: str) -> None:
    assert (
        shop("delayed", "move", event, "--at", "4105065600001", "-o", "json").json()["due_ms"] == FAR_MS + 1
    )
    assert shop("delayed", "move", event, "--delay", 60, "-o", "json").json()["due_ms"] < FAR_MS


def test_dry_run_of_a_seal_counts_what_would_never_be_appended(shop: Cli, event: str) -> None:
    assert shop("stream", "seal", "shop/orders", "--dry-run", "-o", "json").json()["delayed"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delay", "1", "--at", FAR], "one of --delay and --at"),
        (["--delay", "1", "--transaction"], "leave --delay and --at out"),
        (["--delay", "-1"], "not in the range"),
        (["--at", "tomorrow"], "tomorrow"),
    ],
)
def test_wrong_times_are_refused_and_write_nothing(shop: Cli, arguments: list[str], said: str) -> None:
    assert said in shop("write", "shop/orders", *arguments, stdin=b"1\n").refused(2)
    assert shop("delayed", "list", "-o", "json").json() == []


def test_a_move_to_no_time_is_refused_with_the_options(shop: Cli, event: str) -> None:
    assert "give --delay or --at" in shop("delayed", "move", event).refused(2)


def test_payloads_in_arguments_keep_the_bytes_that_are_not_text(shop: Cli) -> None:
    latin = "caf\udce9"  # what Python makes of the byte 0xE9 in an argument
    shop("job", "submit", "shop/mail", latin, "--stream", "shop/orders").ok()
    words = ["schedule", "create", "shop/close", "--cron", "0 18 * * *", "--stream", "shop/orders"]
    shop(*words, "--payload", latin).ok()
    found = [each for each in shop("read", "shop/orders", "-o", "json").json() if "payload_base64" in each]
    assert [base64.b64decode(each["payload_base64"]) for each in found] == [b"caf\xe9"]


@pytest.mark.parametrize(
    "words, option",
    [
        ("stream update shop/orders --tag", "--tag"),
        ("stream create shop/x --tag", "--tag"),
        ("stream describe", "SCOPE/STREAM"),
        ("schedule create shop/x --stream shop/orders --cron", "--cron"),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_its_option(shop: Cli, words: str, option: str) -> None:
    why = shop(*words.split(), "caf\udce9").refused(2)
    assert rf"'{option}': 'caf\xe9' is not UTF-8" in why
