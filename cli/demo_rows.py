"""The demo's input: any CSV file, plain or compressed, checked whole before anything is made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import attrs
import click

from eventproc.cli.csv_rows import Csv
from eventproc.cli.lines import Lines, open_source


@attrs.frozen
class CsvRows:
    """A CSV file that was read once, to its end: it has a header, and `count` rows of that shape.

    key_at: index of the column that keys the rows. keys: number of different keys. payload: of a row.
    """

    path: Path
    table: Csv
    key_at: int
    count: int
    keys: int

    @property
    def payload(self) -> Callable[[list[str]], bytes]:
        """What makes the payload of a row."""
        return self.table.payload

    def chunks(self, rows_max: int) -> Iterator[list[list[str]]]:
        """Yield the rows in order, `rows_max` at a time. Raises as `scan`, for a file that changed since."""
        with open_source(str(self.path)) as source:
            rows = iter(Csv(Lines(source)))
            while chunk := list(islice(rows, rows_max)):
                yield chunk


def scan(path: Path, key: str) -> CsvRows:
    """Read the file once and return what it is.

    Raises InvalidArgument (no such column) and click.ClickException (not CSV of one shape, no rows, cannot be
    read twice), each naming the file. About 2 us per row.
    """
    with open_source(str(path)) as source:
        if source.size_bytes is None:
            raise click.ClickException(
                f"{path}: is not a file that can be read twice; write it to a disk first"
            )
        table = Csv(Lines(source))
        key_at = table.index(key)
        count, keys = 0, set[str]()
        for row in table:
            count += 1
            keys.add(row[key_at])
    if not count:
        raise click.ClickException(f"{path}: it has a header and no rows")
    return CsvRows(path, table, key_at, count, len(keys))
