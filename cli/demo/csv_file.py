"""The demo's input: a CSV file, plain or compressed, which is checked to its end before the demo begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import attrs
import click

from eventproc.cli.input.csv_reader import CsvReader
from eventproc.cli.input.lines import InputLines, open_input


@attrs.frozen
class CsvFile:
    """A CSV file that was read once to its end.

    table: its header. key_at: index of the column with the routing key. count: number of rows. keys: number of
    different keys.
    """

    path: Path
    table: CsvReader
    key_at: int
    count: int
    keys: int

    @property
    def payload(self) -> Callable[[list[str]], bytes]:
        """The function that returns the payload of a row."""
        return self.table.payload

    def chunks(self, rows_max: int) -> Iterator[list[list[str]]]:
        """Yield the rows in order, `rows_max` at a time. Raises as `scan` does if the file has changed since."""
        with open_input(str(self.path)) as source:
            rows = iter(CsvReader(InputLines(source)))
            while chunk := list(islice(rows, rows_max)):
                yield chunk


def scan(path: Path, key: str) -> CsvFile:
    """Read the file once and return its description. Cost: about 2 us per row.

    Raises InvalidArgument (no such column) and click.ClickException (not CSV, rows of different width, no rows, or
    a file that cannot be read twice), each of which names the file.
    """
    with open_input(str(path)) as source:
        if source.size_bytes is None:
            raise click.ClickException(f"{path}: it cannot be read twice; save it as a regular file first")
        table = CsvReader(InputLines(source))
        key_at = table.index(key)
        count, keys = 0, set[str]()
        for row in table:
            count += 1
            keys.add(row[key_at])
    if not count:
        raise click.ClickException(f"{path}: it has a header, but no rows")
    return CsvFile(path, table, key_at, count, len(keys))
