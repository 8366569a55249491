"""Print results: aligned columns for people, JSON with stable names for programs.

The name of a field includes its unit; people see `created_ms` as a time in a column CREATED. On a terminal, sizes and
durations have units that suit them, and a table is laid out for the width of the terminal. Elsewhere they are plain
numbers, and a table is plain text in full width.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

import click

from eventproc.cli.options import TABLE, Settings, note
from eventproc.cli.output.terminal import print_columns, print_fields, print_table
from eventproc.cli.output.units import duration_text, rate_text, size_text

Row = Mapping[str, object]

TIMES: Final = frozenset(
    f"{name}_ms"
    for name in (
        *(
            "at",
            "changed",
            "created",
            "due",
            "end",
            "expires",
            "failed",
            "finished",
            "first",
            "joined",
            "last",
            "last_progress",
        ),
        *("moved", "opened", "progress", "seen", "start", "started", "submitted", "timer", "truncated"),
        "watermark",
    )
) | {"timestamp"}
"""Fields that hold a wall time in ms, beside those whose names end in `_at_ms`."""


def described(found: object) -> Row:
    """Return a description in its one JSON form: the fields that it has in Python, written as REST writes them.

    found: a description, or a row, which is returned as it is.
    """
    if isinstance(found, Mapping):
        return found
    from eventproc import to_dict

    return to_dict(found)


def show_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print a list: a table of the named columns, one JSON array, or one JSON object per line.

    columns: each a field, by its path such as "stats.rows" or "streams.name", of the rows of a field that has rows;
        or HEADING=FIELD.
    """
    if output == "json":
        click.echo(_json(list(rows), indent=2))
    elif output == "jsonl":
        for row in rows:
            click.echo(_json(row))
    else:
        _show_table(rows, columns)


def show_result(
    found: object,
    output: str,
    columns: Sequence[str] = (),
    tables: Mapping[str, Sequence[str]] = MappingProxyType({}),
    people: Callable[[Row], Any] | None = None,
) -> None:
    """Print what a command found: a description with its tables, or a list of them with these columns.

    people: returns what people see of a description: a row, a list of rows with these columns, or a text.
    """
    if isinstance(found, list):
        rows = [described(each) for each in found]
        show_rows([people(row) for row in rows] if people and output == TABLE else rows, columns, output)
        return
    row = described(found)
    seen = people(row) if people and output == TABLE else row
    if isinstance(seen, str):
        click.echo(seen)
    elif isinstance(seen, list):
        show_rows(seen, columns, output)
    else:
        show_with_tables(seen, tables, output)


def show_done(settings: Settings, row: Row, output: str, text: str) -> None:
    """Report what a command changed: `text` on stderr for people, `row` on stdout for programs."""
    if output == TABLE:
        note(settings, text)
    else:
        show_one(row, output)


def show_pending(request_id: str, output: str) -> None:
    """Print the id of a request that is not finished: alone for people and scripts, or as an object."""
    if output == TABLE:
        click.echo(request_id)
    else:
        show_one({"request_id": request_id, "status": "pending"}, output)


_CHOSEN: Final = ("config.", "options.")
"""Parts of what a person chose: what was not chosen needs no line."""


def show_one(row: Row, output: str, tables: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
    """Print one object: for people a line for each field, by its path; or one JSON object.

    tables: fields that are shown otherwise. Of other fields that have rows, people see those of a part, as JSON.
    """
    if output != TABLE:
        click.echo(_json(row, indent=2 if output == "json" else None))
        return
    flat = _flat(row)
    print_fields(
        [
            (_label(name), _json(value) if _is_table(value) else text(flat, name))
            for name, value in flat.items()
            if (not _is_table(value) or ("." in name and name not in tables))
            and not (value is None and name.startswith(_CHOSEN))
        ]
    )


def show_with_tables(row: Row, tables: Mapping[str, Sequence[str]], output: str) -> None:
    """Print one object; for people, also each of its tables that has rows.

    tables: the field of each, and its columns.
    """
    show_one(row, output, tables)
    flat = _flat(row)
    for name, columns in tables.items() if output == TABLE else ():
        if _is_table(flat.get(name)):
            click.echo()
            show_rows(rows_of(flat, name), columns, output)


def rows_of(row: Row, name: str) -> Sequence[Row]:
    """Return the table that a field of the row holds."""
    found = row[name]
    assert isinstance(found, list), f"{name} is {type(found).__name__}"
    return found


def text(row: Row, name: str) -> str:
    """Return a field in the form for people: on a terminal with units, elsewhere as a plain number."""
    value = row.get(name)
    outer, _, inner = name.rpartition(".")
    if value is None and isinstance(rows := row.get(outer), list):
        value = [each[inner] for each in rows]
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_time(name) and isinstance(value, int):
        return iso_time(value)
    if isinstance(value, (int, float)) and sys.stdout.isatty():
        return _with_unit(name, value)
    if _is_table(value):
        return str(len(rows_of(row, name)))
    if isinstance(value, (list, tuple)):
        return printable(" ".join(map(str, value))) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """Return the text in one line, with control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def iso_time(time_ms: int) -> str:
    """Return a wall time as ISO 8601 in UTC, or in ms if it is outside the calendar."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _flat(row: Row, prefix: str = "") -> Row:
    flat: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _is_table(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _with_unit(name: str, value: float) -> str:
    if _is_size(name):
        return size_text(value)
    if _is_duration(name):
        return duration_text(value)
    if name.endswith("_per_second"):
        return rate_text(value)
    if isinstance(value, int) and (name == "events" or name.endswith("_events")):
        return f"{value:,}"
    return str(value)


def _is_time(name: str) -> bool:
    return name.endswith("_at_ms") or name.rpartition(".")[2] in TIMES


def _is_size(name: str) -> bool:
    return name == "bytes" or name.endswith("_bytes")


def _is_duration(name: str) -> bool:
    return name.endswith("_ms") and not _is_time(name)


def _label(name: str) -> str:
    """Return the name of a field as people see it: without a unit that its text has."""
    if _is_time(name) or (_is_duration(name) and sys.stdout.isatty()):
        return name.removesuffix("_ms")
    return name


def _heading(name: str) -> str:
    return _label(name).rpartition(".")[2].replace("_per_second", "/s").replace("_", " ").upper()


LEFT_OUT_FIRST: Final = (
    *(
        "created_ms",
        "joined_at_ms",
        "finished_ms",
        "epoch",
        "redriven",
        "request_id",
        "published_at_ms",
        "segments_min",
    ),
    *("lease_left_ms", "lease_ms", "order", "number", "offset", "owner_alive", "truncated", "skipped"),
    *("restarts", "splits", "merges", "automatic", "attempts", "low", "high", "head", "tail"),
    *("cut_before", "events_before", "progress_at_ms", "lag_bytes", "size_bytes", "bytes", "pid", "kind"),
    *("waiting", "age_ms", "segments", "streams", "readers", "failed"),
)
"""Columns that a narrow terminal leaves out, the first one first. After these the last one of the table goes first."""

_RANK: Final = {name: rank for rank, name in enumerate(LEFT_OUT_FIRST)}


def _show_table(rows: Sequence[Row], columns: Sequence[str]) -> None:
    rows = [_flat(row) for row in rows]
    names = [(column.partition("=")[0], column.rpartition("=")[2]) for column in columns]
    headings = [_heading(heading) for heading, _ in names]
    cells = [[text(row, field) for row in rows] for _, field in names]
    if not sys.stdout.isatty():
        print_table(headings, [list(line) for line in zip(*cells, strict=True)])
        return
    from eventproc.cli.output.layout import Column

    print_columns(
        [
            Column(
                _heading(heading),
                texts,
                importance=_RANK.get(heading, len(_RANK)),
                right=not _is_time(field) and _are_numbers([row.get(field) for row in rows]),
            )
            for (heading, field), texts in zip(names, cells, strict=True)
        ]
    )


def _are_numbers(values: Sequence[object]) -> bool:
    """Return whether a column has numbers, and beside them only empty cells."""
    known = [value for value in values if value is not None]
    return bool(known) and all(type(value) in (int, float) for value in known)
