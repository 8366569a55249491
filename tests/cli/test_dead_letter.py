"""Dead letters at the shell: list, show, redrive, drop."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

import eventproc
from eventproc.groups import ensure_group
from eventproc.processors.dead_letters.operations import FailedEvent, append_letters
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event
from tests.cli.conftest import Cli
from tests.cli.test_streams import everything

GROUP = "shop/billing"
HOSTILE = "no \x1b[31mmoney\n" + "x" * 300


def give_up(tx: Tx, payloads: list[bytes]) -> None:
    ensure_group(tx, GROUP, ["shop/orders"])
    letters = []
    for number, payload in enumerate(payloads):
        event = Event(
            payload, "customer-42", 1000, None, "shop/orders", SegmentId(0), 170, number, {"trace": "1"}
        )
        why = ValueError(HOSTILE)
        letters.append(FailedEvent.of(event, why, attempts=5, processor="billing", failed_ms=2000))
    append_letters(tx, GROUP, None, letters)


def with_letters(cli: Cli, *payloads: bytes) -> None:
    """Let shop/billing give up events of shop/orders."""

    async def act() -> None:
        async with eventproc.open(cli.directory, host=False) as ep:
            await ep.db.write(partial(give_up, payloads=list(payloads)))

    anyio.run(act)


@pytest.fixture
def shop(shop: Cli) -> Cli:
    with_letters(shop, b'{"n":1}', b"\xff\0", b"three")
    return shop


def ids(cli: Cli) -> list[str]:
    return [row["id"] for row in cli("dead-letter", "list", GROUP, "-o", "jsonl").rows()]


def test_letters_are_listed_with_their_origin_and_error(shop: Cli) -> None:
    first, second, _ = shop("dead-letter", "list", GROUP, "-o", "json").json()
    assert first == {
        "id": "0.0:0",
        "stream": "shop/billing-dead-letters",
        "key": "customer-42",
        "event_time": None,
        "bytes": 7,
        "timestamp": first["timestamp"],
        "origin_stream": "shop/orders",
        "origin_segment": "0.0",
        "origin_offset": 170,
        "origin_number": 0,
        "origin_timestamp": 1000,
        "processor": "billing",
        "attempts": 5,
        "redriven": 0,
        "job": None,
        "failed_ms": 2000,
        "error_type": "ValueError",
        "error": HOSTILE,
        "traceback": f"ValueError: {HOSTILE}",
    }
    assert second["bytes"] == 2
    rows = shop("dead-letter", "list", GROUP, "--after", "0.0:0", "--limit", 1, "-o", "jsonl").rows()
    assert [row["id"] for row in rows] == ["0.0:1"]


def test_a_table_shows_one_line_a_letter_and_nothing_that_a_terminal_obeys(shop: Cli) -> None:
    lines = shop("dead-letter", "list", GROUP).ok().splitlines()
    assert lines[0].split() == ["ID", "KEY", "ORIGIN", "ATTEMPTS", "REDRIVEN", "FAILED", "ERROR"]
    assert len(lines) == 4
    assert "shop/orders 0.0@170" in lines[1]
    assert "1970-01-01T00:00:02.000Z" in lines[1]
    assert "ValueError: no \\x1b[31mmoney\\nxxx" in lines[1]
    assert lines[1].endswith("x…")


def test_dead_letter_is_shown_completely(shop: Cli) -> None:
    found = shop("dead-letter", "show", GROUP, "0.0:0", "-o", "json").json()
    assert (found["payload"], found["headers"], found["error"]) == ('{"n":1}', {"trace": "1"}, HOSTILE)
    assert found["traceback"] == f"ValueError: {HOSTILE}"
    found = shop("dead-letter", "show", GROUP, "0.0:1", "-o", "json").json()
    assert found["payload_base64"] == "/wA="
    text = shop("dead-letter", "show", GROUP, "0.0:0").ok()
    assert "x" * 300 in text
    assert "\x1b" not in text
    assert text.splitlines()[-2] == "ValueError: no \\x1b[31mmoney", "the traceback keeps its lines"
    assert "headers         trace=1" in text
    assert "failed          1970-01-01T00:00:02.000Z" in text


def test_letters_are_redriven_by_id_and_all_together(shop: Cli) -> None:
    done = shop("dead-letter", "redrive", GROUP, "0.0:2", "0.0:0")
    assert (done.code, done.out, done.err) == (0, "", f"redriven: 2 dead letters of {GROUP}\n")
    assert ids(shop) == ["0.0:1"]
    again = shop("dead-letter", "redrive", GROUP, "0.0:0")
    printed = f"redriven: 0 dead letters of {GROUP}; 1 had been redriven or dropped before\n"
    assert (again.code, again.err) == (0, printed)
    assert shop("dead-letter", "redrive", GROUP, "--all").err.startswith("redriven: 1 ")
    rows = shop("read", "shop/billing-redrive").rows()
    assert [row.get("payload") for row in rows] == ['{"n":1}', "three", None]
    assert rows[0]["headers"]["ep-redriven"] == "1"


def test_letters_are_dropped_with_yes(shop: Cli) -> None:
    done = shop("dead-letter", "drop", GROUP, "0.0:1", "--yes")
    assert (done.code, done.out, done.err) == (0, "", f"dropped: 1 dead letter of {GROUP}\n")
    assert ids(shop) == ["0.0:0", "0.0:2"]
    assert "--yes" in shop("dead-letter", "drop", GROUP, "--all").refused(2)
    assert ids(shop) == ["0.0:0", "0.0:2"]
    shop("dead-letter", "drop", GROUP, "--all", "--yes").ok()
    assert ids(shop) == []


@pytest.mark.parametrize("verb", ["redrive", "drop"])
def test_dry_run_prints_the_losses_and_changes_nothing(shop: Cli, verb: str) -> None:
    before = everything(shop)
    found = shop("dead-letter", verb, GROUP, "--all", "--dry-run", "-o", "json").json()
    assert found == {
        "dry_run": True,
        "would": verb,
        "target": GROUP,
        "already_done": False,
        "letters": 3,
        "bytes": 7 + 2 + 5 + 3 * 8,
    }
    assert shop("dead-letter", verb, GROUP, "0.0:1", "--dry-run").ok()
    assert everything(shop) == before
    assert len(ids(shop)) == 3


@pytest.mark.parametrize("verb", ["redrive", "drop"])
def test_which_letters_must_be_said_once(shop: Cli, verb: str) -> None:
    for arguments in ((), ("0.0:0", "--all")):
        assert "--all" in shop("dead-letter", verb, GROUP, *arguments, "--dry-run").refused(2)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("list", "shop/none"), 3),
        (("list", "nothing"), 2),
        (("list", GROUP, "--limit", "0"), 2),
        (("list", GROUP, "--after", "x"), 2),
        (("show", GROUP, "0.0:9"), 3),
        (("show", GROUP, "9"), 2),
        (("redrive", GROUP, "0.0:0", "0.0:9"), 3),
        (("redrive", "shop/none", "--all"), 3),
        (("drop", GROUP, "1.0:0", "--yes"), 3),
        (("drop", GROUP, "0.0:9", "--dry-run"), 3),
    ],
)
def test_missing_and_invalid_objects_are_refused_in_one_line(
    shop: Cli, arguments: tuple[str, ...], code: int
) -> None:
    shop("dead-letter", *arguments).refused(code)
    assert len(ids(shop)) == 3


def test_a_redrive_stream_that_was_sealed_is_the_wrong_state(shop: Cli) -> None:
    shop("dead-letter", "redrive", GROUP, "0.0:0").ok()
    shop("stream", "seal", "shop/billing-redrive", "--yes").ok()
    assert "shop/billing-redrive is sealed" in shop("dead-letter", "redrive", GROUP, "--all").refused(4)
    assert len(ids(shop)) == 2
