"""What a terminal shows: tables of its width, units for people, and bars that leave typed input alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from eventproc.cli.options import Settings
from eventproc.cli.output import tables
from eventproc.cli.output.layout import Column, lay_out, wrap
from eventproc.cli.output.terminal import progress
from eventproc.cli.output.units import duration_text, rate_text, size_text
from tests.cli.conftest import Cli
from tests.cli.support import GROUP, Terminal

WIDTHS = (40, 60, 80, 200)
WORDS = ("order", "überfällig", "注文", "shop/orders-of-the-month", "e\u0301te\u0301", "🚚", "-", "12")


Show = Callable[..., str]


@pytest.fixture
def terminal(billing: Cli) -> Show:
    """Runs a command on a directory with a stream and a group to its good end; returns what its terminal shows."""

    def show(*arguments: object, typed: bytes = b"", width: int = 80, **variables: str) -> str:
        command = Terminal(billing.directory, *arguments, width=width, piped=False, **variables)
        command.type(typed)
        assert command.end() == 0, command.shown
        return command.shown.decode().replace("\r\n", "\n")

    return show


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(20))
def test_table_fits_the_terminal_and_breaks_no_word(width: int, seed: int) -> None:
    chance = random.Random(seed)

    def cell() -> str:
        return " ".join(chance.choices(WORDS, k=chance.randint(1, 8)))

    columns = [
        Column(f"HEADING {n}", [cell() for _ in range(5)], importance=chance.randint(0, 9)) for n in range(6)
    ]
    table = lay_out(columns, width)
    lines = [*table.heading, *table.body]
    assert max(map(cell_len, lines)) <= width
    shown = [each for each in columns if each.heading not in table.left_out]
    assert shown[0] is columns[0]
    assert sorted(" ".join(table.body).split()) == sorted(
        word for each in shown for cell in each.cells for word in cell.split()
    )


def test_least_important_columns_are_left_out_first() -> None:
    columns = [
        Column("NAME", ["a" * 20], importance=0),
        Column("FIRST", ["b" * 20], importance=1),
        Column("LAST", ["c" * 20], importance=2),
    ]
    assert lay_out(columns, 80).left_out == []
    assert lay_out(columns, 60).left_out == ["FIRST"]
    assert lay_out(columns, 40).left_out == ["FIRST", "LAST"]


def test_name_that_is_wider_than_the_terminal_stays_complete() -> None:
    table = lay_out([Column("NAME", ["a" * 50]), Column("B", ["b"])], 40)
    assert (table.body, table.left_out) == (["a" * 50], ["B"])


def test_wide_characters_count_as_two_cells() -> None:
    assert lay_out([Column("A", ["注文", "ab"]), Column("B", ["1", "2"])], 40).body == ["注文  1", "ab    2"]
    assert wrap("注文 注文", 8) == ["注文", "注文"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_258_291, "1.2 MiB"),
        (1_048_575, "1.0 MiB"),
        (3 << 40, "3.0 TiB"),
        (5 << 60, "5,120.0 PiB"),
    ],
)
def test_size_has_the_unit_that_suits_it(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1200, "1.2 s"),
        (59_960, "1 min"),
        (184_000, "3 min 4 s"),
        (7_500_000, "2 h 5 min"),
        (180_000_000, "2 d 2 h"),
        (-1500, "-1.5 s"),
    ],
)
def test_duration_has_at_most_two_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_rate_has_a_decimal_while_it_is_small() -> None:
    assert [rate_text(each) for each in (0.0, 0.31, 99.96, 12_400.4)] == ["0.0", "0.3", "100.0", "12,400"]


@pytest.mark.subprocess
@pytest.mark.parametrize("width", WIDTHS)
def test_listing_on_a_terminal_has_its_width_and_names_what_it_leaves_out(terminal: Show, width: int) -> None:
    shown = terminal("group", "describe", GROUP, width=width, NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= width
    assert ("too narrow for:" in shown) == (width < 200)
    assert shown.count("shop/orders") == 3  # once for the stream, and for each segment


@pytest.mark.parametrize(
    "value, shown",
    [(0, "1970-01-01T00:00:00.000Z"), ("2026-01-01 00:00:00", "2026-01-01 00:00:00"), (1.5, "1.5")],
)
def test_a_field_named_after_a_time_may_hold_something_else(value: object, shown: str) -> None:
    assert tables.text({"timestamp": value}, "timestamp") == shown


@pytest.mark.subprocess
def test_terminal_shows_units_and_a_pipe_plain_numbers(terminal: Show, billing: Cli) -> None:
    billing("write", "shop/orders", stdin=b"x" * 2000 + b"\n").ok()
    on_terminal = terminal("stream", "describe", "shop/orders")
    (line,) = (each for each in on_terminal.splitlines() if each.startswith("size_bytes"))
    assert line.endswith(" KiB")
    row = billing("stream", "describe", "shop/orders", "-o", "json").json()
    assert row["size_bytes"] > 2000
    piped = billing("stream", "describe", "shop/orders").ok()
    assert f"{row['size_bytes']}\n" in piped


@pytest.mark.subprocess
def test_heading_is_bold_unless_the_terminal_or_the_user_refuses(terminal: Show) -> None:
    assert "\x1b[1mNAME" in terminal("stream", "list")
    assert "\x1b" not in terminal("stream", "list", TERM="dumb")
    assert "\x1b" not in terminal("stream", "list", NO_COLOR="1")


def test_piped_table_is_complete_at_any_width(billing: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = billing("stream", "describe", "shop/orders").ok()
    monkeypatch.setenv("COLUMNS", "20")
    assert billing("stream", "describe", "shop/orders").ok() == wide
    assert "SEGMENT  LOW" in wide


@pytest.mark.subprocess
def test_typed_rows_and_what_is_written_share_the_terminal_without_a_bar(terminal: Show) -> None:
    shown = terminal("write", "shop/orders", typed=b"one\n\x04")
    assert shown.splitlines()[0] == "one"
    assert shown.endswith("written 1\n")
    assert "\x1b" not in shown


@pytest.mark.subprocess
def test_file_is_written_with_a_bar_but_not_quietly_or_on_a_dumb_terminal(
    terminal: Show, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"n":1}\n')
    assert "writing shop/orders" in terminal("write", "shop/orders", str(file))
    assert terminal("write", "shop/orders", str(file), TERM="dumb") == "written 1\n"
    assert terminal("-q", "write", "shop/orders", str(file)) == "written 1\n"


@pytest.mark.subprocess
def test_a_long_write_shows_its_progress_beside_what_it_prints(shop: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"row\n" * 50_000)
    for piped in (True, False):
        terminal = Terminal(shop.directory, "write", "shop/orders", tmp_path / "rows", piped=piped)
        assert terminal.end() == 0
        assert b"writing shop/orders" in terminal.shown
        assert b"written 50000" in (terminal.printed if piped else terminal.shown)


@pytest.mark.subprocess
def test_a_long_read_shows_its_progress_while_its_events_go_elsewhere(shop: Cli) -> None:
    terminal = Terminal(shop.directory, "read", "shop/orders", piped=True)
    assert (terminal.end(), terminal.printed.count(b"\n")) == (0, 3)
    assert b"reading shop/orders" in terminal.shown


def test_bar_of_a_quiet_command_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    settings.quiet = True
    with progress(settings, "work", 10) as advance:
        advance(5, "half")
    assert capsys.readouterr() == ("", "")
