"""Print results: aligned columns for people, JSON with stable names for programs.

The name of a field includes its unit; people see `created_ms` as a time in a column CREATED.
A table on a terminal is folded to its width (`terminal.print_table`); elsewhere it is plain text in full width.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import click

from eventproc.cli.options import TABLE, Settings, note
from eventproc.cli.output.terminal import print_table

Row = Mapping[str, object]


def show_rows(rows: Sequence[Row], columns: Sequence[str], output: str) -> None:
    """Print a list: a table of the named columns, one JSON array, or one JSON object per line."""
    if output == "json":
        click.echo(_json(list(rows), indent=2))
    elif output == "jsonl":
        for row in rows:
            click.echo(_json(row))
    else:
        _table([_heading(name) for name in columns], [[text(row, name) for name in columns] for row in rows])


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


def show_one(row: Row, output: str) -> None:
    """Print one object: a line for each field, or one JSON object."""
    if output == TABLE:
        fields = [name for name in row if not _is_table(row[name])]
        width = max(map(len, fields))
        for name in fields:
            click.echo(f"{_label(name):<{width}}  {text(row, name)}".rstrip())
    else:
        click.echo(_json(row, indent=2 if output == "json" else None))


def text(row: Row, name: str) -> str:
    """Return a field in the form for people."""
    value = row.get(name)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_time(name):
        return iso_time(int(str(value)))
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


def _is_table(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _label(name: str) -> str:
    return name.removesuffix("_ms") if _is_time(name) else name


def _is_time(name: str) -> bool:
    return name.endswith("_at_ms") or name in ("created_ms", "finished_ms", "timestamp")


def _heading(name: str) -> str:
    return _label(name).replace("_", " ").upper()


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        print_table(headings, rows)
        return
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
