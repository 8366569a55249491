"""Read CSV with a header, for `write` and `demo`.

The text is UTF-8, with or without a byte order mark. Quotes follow RFC 4180. Every row has as many columns as the
header. Blank lines are skipped. An error is a `click.ClickException` that names the line in which the row begins.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring

from eventproc import EVENT_BYTES_MAX
from eventproc.base.counts import counted
from eventproc.cli.input.lines import InputLines, bad_row
from eventproc.errors import InvalidArgument


class CsvReader:
    """Iterates once over the rows of a CSV, as lists of text. Cost: about 1.2 us per row.

    columns: the names in the header, all different.
    number: of the line in which the last returned row begins, from 1.
    """

    def __init__(self, lines: InputLines) -> None:
        csv.field_size_limit(EVENT_BYTES_MAX)  # the module's own limit is 128 KiB
        self.number = 1
        self._lines = lines
        self._reader = csv.reader(_decoded(lines), strict=True)
        self.columns = self._read_header()
        names = (encode_basestring(name).replace("%", "%%") for name in self.columns)
        self._template = "{" + ",".join(f"{name}:%s" for name in names) + "}"

    def _read_header(self) -> tuple[str, ...]:
        header = next(self._rows(), None)
        if header is None:
            raise bad_row(
                self._lines, 1, "the header is missing; the first row of a CSV must name the columns"
            )
        if twice := repeated(header):
            raise bad_row(self._lines, self.number, f"two columns are named {twice[0]!r}")
        return tuple(header)

    def index(self, column: str) -> int:
        """Return the index of a column. Raises InvalidArgument, which lists the existing columns."""
        if column not in self.columns:
            reason = f"{self._lines.source.name} has {', '.join(self.columns)}"
            raise InvalidArgument(what="column", value=column, reason=reason)
        return self.columns.index(column)

    def payload(self, row: list[str]) -> bytes:
        """Return a row as a JSON object of strings, in the order of the columns.

        Twice as fast as `json.dumps` of a dict, because all rows have the same columns.
        """
        return (self._template % tuple(map(encode_basestring, row))).encode()

    def __iter__(self) -> Iterator[list[str]]:
        width = len(self.columns)
        for row in self._rows():
            if len(row) != width:
                raise bad_row(
                    self._lines, self.number, f"{counted(len(row), 'column')}, the header has {width}"
                )
            yield row

    def _rows(self) -> Iterator[list[str]]:
        """Yield the remaining rows, without blank lines."""
        reader = self._reader
        begin = reader.line_num + 1
        try:
            for row in reader:
                if row:
                    self.number = begin
                    yield row
                begin = reader.line_num + 1
        except csv.Error as why:
            raise bad_row(self._lines, begin, f"not CSV: {why}") from None


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that stand there more than once, sorted."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _decoded(lines: InputLines) -> Iterator[str]:
    for line in lines:
        try:
            text = line.decode()
        except UnicodeDecodeError as why:
            raise bad_row(lines, lines.number, not_utf8(why)) from None
        yield (text.removeprefix("\ufeff") if lines.number == 1 else text) + "\n"


def not_utf8(why: UnicodeDecodeError) -> str:
    """Return the reason why a line that is not UTF-8 is refused."""
    return f"not UTF-8 ({why.reason} at byte {why.start + 1})"
