"""The demo's input: any CSV file, plain or compressed, checked whole before anything is made of it."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, Final, cast

import attrs

from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.limits import EVENT_BYTES_MAX

_XZ: Final = b"\xfd7zXZ\x00"
_GZIP: Final = b"\x1f\x8b"

_BUFFER_BYTES: Final = 256 * 1024
"""Decompressed at once. Each piece costs a hand-over of the interpreter's lock; more is only memory."""


@attrs.frozen
class CsvRows:
    """A CSV file that was read once, to its end: it has a header, and `count` rows of that shape.

    key_at: index of the column that keys the rows. keys: number of different keys.
    """

    path: Path
    columns: tuple[str, ...]
    key_at: int
    count: int
    keys: int
    _template: str

    def chunks(self, rows_max: int) -> Iterator[list[list[str]]]:
        """Yield the rows in order, `rows_max` at a time. Raises as `scan`, for a file that changed since."""
        chunk: list[list[str]] = []
        with _readable(self.path) as file:
            rows = _rows(file, self.path)
            next(rows)
            for row in rows:
                chunk.append(row)
                if len(chunk) == rows_max:
                    yield chunk
                    chunk = []
        if chunk:
            yield chunk

    def verify_column(self, name: str) -> None:
        """Raise InvalidArgument, with the names there are, unless the file has that column."""
        _verify_column(self.columns, name, self.path)

    def payload(self, row: list[str]) -> bytes:
        """Return a row as a JSON object of strings, in the order of the columns.

        Twice as fast as `json.dumps` of a dict, because all rows have one shape.
        """
        return (self._template % tuple(map(encode_basestring, row))).encode()


def scan(path: Path, key: str) -> CsvRows:
    """Read the file once and return what it is.

    Raises NotFound (no such file) and InvalidArgument (no such column, empty, no rows, not CSV), each naming
    the file. About 2 us per row.
    """
    csv.field_size_limit(EVENT_BYTES_MAX)  # the module's own limit is 128 KiB
    with _readable(path) as file:
        rows = _rows(file, path)
        columns = tuple(next(rows, ()))
        if not columns:
            raise _refusal(path, "it is empty; the demo takes a CSV file with a header and rows")
        if len(set(columns)) < len(columns):
            raise _refusal(path, "two columns of its header have the same name")
        _verify_column(columns, key, path)
        key_at = columns.index(key)
        count, keys = 0, set[str]()
        for row in rows:
            count += 1
            keys.add(row[key_at])
    if not count:
        raise _refusal(path, "it has a header and no rows")
    names = (encode_basestring(name).replace("%", "%%") for name in columns)
    template = "{" + ",".join(f"{name}:%s" for name in names) + "}"
    return CsvRows(path, columns, key_at, count, len(keys), template)


def _verify_column(columns: tuple[str, ...], name: str, path: Path) -> None:
    if name not in columns:
        raise InvalidArgument(what="column", value=name, reason=f"{path} has {', '.join(columns)}")


def _rows(file: IO[str], path: Path) -> Iterator[list[str]]:
    """Yield the header and every row that is not blank; raises InvalidArgument for a row of another shape."""
    reader = csv.reader(file, strict=True)
    width = 0
    for row in reader:
        if not row:
            continue
        width = width or len(row)
        if len(row) != width:
            where = f"line {reader.line_num} has {len(row)} fields, its header {width}"
            raise _refusal(path, f"it is not CSV of one shape: {where}")
        yield row


@contextmanager
def _readable(path: Path) -> Iterator[IO[str]]:
    """Open the file as text, whatever it is compressed with; what is wrong with it is one clear line."""
    try:
        with path.open("rb") as raw:
            start = raw.read(len(_XZ))
            raw.seek(0)
            with _text(raw, start) as file:
                yield file
    except FileNotFoundError:
        raise NotFound(kind="file", name=str(path)) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise _refusal(path, f"it is not CSV in UTF-8: {error}") from None
    except (lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise _refusal(path, f"its compressed data are damaged: {error}") from None
    except OSError as error:
        raise _refusal(path, f"it cannot be read: {error.strerror or error}") from None


def _text(raw: IO[bytes], start: bytes) -> IO[str]:
    opened: object = raw
    if start == _XZ:
        opened = lzma.LZMAFile(raw)  # noqa: SIM115  # closed with what wraps it
    elif start.startswith(_GZIP):
        opened = gzip.GzipFile(fileobj=raw)
    # Both are what BufferedReader needs of a raw file, and are declared as something else.
    plain = io.BufferedReader(cast("io.RawIOBase", opened), _BUFFER_BYTES)
    return io.TextIOWrapper(plain, encoding="utf-8-sig", newline="")


def _refusal(path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(what="file", value=str(path), reason=reason)
