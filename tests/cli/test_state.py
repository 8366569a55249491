"""The states of a processor at the shell: shown, exported, imported, dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eventproc
from eventproc.describe import KeyValue
from tests.cli.conftest import Cli
from tests.cli.support import GROUP

FAR_MS = 4_105_065_600_000
STATES = {
    "binary": b"\xff",
    "json": b'{"count":3,"names":["\xc3\xa9"]}',
    "number": b"007",
    "spaced": b'{"count": 3}',
    "text": b"hi\n",
    "infinite": b"1e400",
    "twice": b'{"a":1,"a":2}',
}
LINES = [
    {"key": "binary", "value_base64": "/w==", "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
    {"key": "infinite", "value_text": "1e400", "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
    {"key": "json", "value": {"count": 3, "names": ["é"]}, "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
    {"key": "number", "value_text": "007", "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
    {"key": "spaced", "value_text": '{"count": 3}', "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
    {"key": "text", "value_text": "hi\n", "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
    {"key": "twice", "value_text": '{"a":1,"a":2}', "version": 2, "expires_ms": FAR_MS, "timer_ms": 5},
]


def restore(directory: Path, *states: KeyValue[bytes]) -> None:
    with eventproc.open_blocking(directory, host=False) as ep:
        ep.state(GROUP).restore(states)


def found(directory: Path) -> list[KeyValue[bytes]]:
    with eventproc.open_blocking(directory, host=False) as ep:
        return ep.state(GROUP).list(limit=10_000)


@pytest.fixture
def total(billing: Cli) -> Cli:
    """The directory of `billing`, whose group keeps STATES."""
    states = [
        KeyValue(key=key, value=STATES[key], version=2, expires_ms=FAR_MS, timer_ms=5) for key in STATES
    ]
    restore(billing.directory, *states)
    return billing


def test_what_is_exported_is_imported_with_the_same_bytes_versions_and_expiry(total: Cli) -> None:
    lines = total("state", "export", GROUP).ok()
    assert list(map(json.loads, lines.splitlines())) == LINES
    before = found(total.directory)
    assert total("state", "drop", GROUP, "--yes", "-o", "json").json()["keys"] == len(STATES)
    assert total("state", "import", GROUP, stdin=lines.encode()).err == f"imported 7 states of {GROUP}\n"
    assert found(total.directory) == before
    assert total("state", "export", GROUP).ok() == lines


def test_all_pages_are_exported_and_imported(billing: Cli) -> None:
    restore(
        billing.directory, *[KeyValue(key=f"{number:05}", value=b"1", version=1) for number in range(2_500)]
    )
    lines = billing("state", "export", GROUP).ok()
    assert lines.count("\n") == 2_500
    billing("state", "drop", GROUP, "--yes").ok()
    done = billing("state", "import", GROUP, "-o", "json", stdin=lines.encode()).json()
    assert (done["keys"], len(found(billing.directory))) == (2_500, 2_500)


def test_show_counts_the_keys_and_lists_some_of_them(total: Cli) -> None:
    shown = total("state", "show", GROUP, "--first", "n", "--last", "tw", "--limit", 2, "-o", "json").json()
    assert {name: shown[name] for name in ("group", "stream", "keys", "versions")} == {
        "group": GROUP,
        "stream": "shop/orders",
        "keys": 7,
        "versions": [2],
    }
    assert shown["value_bytes"] == sum(map(len, STATES.values()))
    assert shown["states"] == LINES[3:5]
    assert [
        each["key"]
        for each in total("state", "show", GROUP, "--after", "text", "-o", "json").json()["states"]
    ] == ["twice"]
    for people in (total("state", "show", GROUP).ok(), total("state", "show", GROUP, "json").ok()):
        assert '{"count":3,"names":["é"]}' in people
        assert "2100-01-31" in people


def test_show_finds_the_state_of_one_key(total: Cli) -> None:
    assert total("state", "show", GROUP, "json", "-o", "json").json() == LINES[2]
    assert "base64:/w==" in total("state", "show", GROUP, "binary").ok()
    why = total("state", "show", GROUP, "jso").refused(3)
    assert f"no state 'jso' of {GROUP}; `eventproc state show {GROUP}` lists what exists" in why
    assert "leave --first" in total("state", "show", GROUP, "json", "--first", "a").refused(2)


def test_drop_says_before_what_it_would_drop_and_drops_some_keys_or_all(total: Cli) -> None:
    assert "--yes" in total("state", "drop", GROUP).refused(2)
    would = total("state", "drop", GROUP, "--dry-run", "-o", "json").json()
    assert (would["keys"], would["readers"]) == (7, 0)
    would = total("state", "drop", GROUP, "text", "none", "text", "--dry-run", "-o", "json").json()
    assert (would["keys"], would["bytes"]) == (1, 3)
    assert total("state", "drop", GROUP, "text", "none", "--yes").err == f"dropped 1 state of {GROUP}\n"
    assert [each.key for each in found(total.directory)] == sorted(STATES.keys() - {"text"})
    total("state", "drop", GROUP, "--yes").ok()
    why = total("state", "show", GROUP).refused(3)
    assert f"no state by key '{GROUP}'; `eventproc processor list` lists what exists" in why


@pytest.mark.parametrize("command", [("show",), ("export",), ("import",), ("drop", "--yes")])
def test_an_unknown_group_is_named(total: Cli, command: tuple[str, ...]) -> None:
    why = total("state", command[0], "shop/biling", *command[1:], stdin=b'{"key":"a","value":1}\n').refused(3)
    assert "no group 'shop/biling'; did you mean 'shop/billing'?" in why


def test_states_are_changed_only_while_nobody_reads(total: Cli) -> None:
    with (
        eventproc.open_blocking(total.directory, host=False) as ep,
        ep.group(GROUP).reader("r1"),
    ):
        done = total("state", "import", GROUP, stdin=b'{"key":"a","value":1}\n').refused(4)
        assert "storing its state" in done
        assert "dropping its state" in total("state", "drop", GROUP, "--yes").refused(4)
        assert total("state", "drop", GROUP, "--dry-run", "-o", "json").json()["readers"] == 1
    assert len(found(total.directory)) == len(STATES)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "not JSON: Expecting value"),
        ("[]", "an object with a key"),
        ('{"value": 1}', "an object with a key"),
        ('{"key": "a"}', "one of value, value_text, value_base64"),
        ('{"key": "a", "value": 1, "value_text": "1"}', "one of value, value_text, value_base64"),
        ('{"key": "a", "value": NaN}', "NaN is not a JSON number"),
        ('{"key": "a", "value": 1e400}', "not JSON compliant"),
        ('{"key": "a", "value": "\\ud800"}', "surrogates not allowed"),
        ('{"key": "a", "value_text": 1}', "value_text must be a text"),
        ('{"key": "a", "value_base64": "_"}', "base64"),
        ('{"key": "a", "value": 1, "version": 0}', "version must be an int, at least 1"),
        ('{"key": "a", "value": 1, "version": null}', "version must be an int, at least 1"),
        ('{"key": "a", "value": 1, "expires_ms": "soon"}', "expires_ms must be an int, or null"),
        ('{"key": "a", "value": 1, "timer_ms": 1.5}', "timer_ms must be an int, or null"),
        ('{"key": "a", "value": 1, "count": 1}', "unknown field 'count'"),
    ],
)
def test_a_line_that_is_no_state_is_named_and_stores_nothing(total: Cli, line: str, said: str) -> None:
    before = found(total.directory)
    why = total("state", "import", GROUP, stdin=f'{{"key":"b","value":1}}\n\n{line}\n'.encode()).refused(1)
    assert "standard input: line 3: " in why
    assert said in why
    assert found(total.directory) == before
