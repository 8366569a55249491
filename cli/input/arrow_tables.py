"""Read the rows of Parquet and Arrow files as JSON objects, batch by batch. Needs pyarrow.

Text, numbers, booleans and null stay as they are. JSON has no form for other types:

timestamp, date, time  text in ISO 8601              decimal  text
duration               text in ISO 8601, `PT1.5S`    binary   text in base 64
struct, map            object                        list     array
NaN and infinities     null
"""

from __future__ import annotations

import base64
import json
import math
import tempfile
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from eventproc.cli.input.csv_reader import repeated
from eventproc.cli.input.lines import READ_BYTES, InputFile, PeekedStream, refused, unreadable
from eventproc.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS: Final = 4096
"""Rows that are converted together. More: memory; fewer: time, because each batch costs a call per column."""

Convert = Callable[[Any], Any]


class ArrowRows(Iterator[dict[str, Any]]):
    """The rows of an input as dicts of what JSON has. number: of the last row, from 1.

    kind: "parquet", "arrow" (the file format) or "arrow-stream".
    """

    def __init__(self, source: InputFile, kind: str) -> None:
        self.number = 0
        self._source = source
        try:
            import_module("pyarrow")
        except ImportError:
            what = "Parquet" if kind == "parquet" else "Arrow"
            raise refused(source, what, "install what reads it: pip install 'eventproc[arrow]'") from None
        try:
            file = _AsFile(source.stream) if kind == "arrow-stream" else _with_random_access(source)
            if file is not source.raw:
                weakref.finalize(self, file.close)
            schema, self._batches = _open(file, kind)
        except (OSError, ValueError) as why:
            raise unreadable(source, "at its beginning", why) from why
        self.columns = tuple(schema.names)
        if twice := repeated(self.columns):
            raise click.ClickException(f"{source.name}: two columns are named {twice[0]!r}")
        self._converts = {field.name: found for field in schema if (found := _converter(field.type))}
        self._rows: list[dict[str, Any]] = []  # of the current batch, reversed

    @property
    def ready(self) -> bool:
        """Whether the next row is available without waiting for the writer of a pipe."""
        return bool(self._rows) or self._source.size_bytes is not None

    def check_column(self, column: str) -> None:
        """Raise InvalidArgument, which lists the existing columns, for another one."""
        if column not in self.columns:
            reason = f"{self._source.name} has {', '.join(self.columns)}"
            raise InvalidArgument(what="column", value=column, reason=reason)

    def __next__(self) -> dict[str, Any]:
        while not self._rows:
            try:
                self._rows = next(self._batches).to_pylist()[::-1]
            except (OSError, ValueError) as why:
                raise unreadable(self._source, f"after row {self.number}", why) from why
        self.number += 1
        row = self._rows.pop()
        for name, convert in self._converts.items():
            if (value := row[name]) is not None:
                row[name] = convert(value)
        return row


def payload_of(row: object) -> bytes:
    """Return the JSON of a row."""
    return _encode(row).encode()


_encode: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _open(file: Any, kind: str) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    if kind == "arrow-stream":
        from pyarrow import ipc

        stream = ipc.open_stream(file)
        return stream.schema, _parts(iter(stream))
    if kind == "parquet":
        from pyarrow import parquet

        table = parquet.ParquetFile(file, memory_map=False, buffer_size=READ_BYTES, pre_buffer=False)
        return table.schema_arrow, table.iter_batches(BATCH_ROWS)
    from pyarrow import ipc

    reader = ipc.open_file(file)
    batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
    return reader.schema, _parts(batches)


def _parts(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _with_random_access(source: InputFile) -> Any:
    """Return the input as a file: the file itself, or a temporary one for a pipe and for what is compressed."""
    inner = source.stream
    if source.size_bytes is not None and isinstance(inner, PeekedStream) and inner.is_of(source.raw):
        source.raw.seek(0)
        return source.raw
    spooled = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the rows
    while block := source.read(READ_BYTES, "completely"):
        spooled.write(block)
    spooled.seek(0)
    return spooled


class _AsFile:
    """A stream as pyarrow reads it: `read(n)` returns n bytes unless the stream ends."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        missing = size
        while size < 0 or missing:
            block = self._stream.read1(READ_BYTES if size < 0 else missing)
            if not block:
                break
            parts.append(block)
            missing -= len(block)
        return b"".join(parts)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing: the command closes its input."""


def _converter(kind: pyarrow.DataType) -> Convert | None:
    """Return what converts a value of a type, None if it stays as it is."""
    from pyarrow import types

    if types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else None
    if types.is_decimal(kind):
        return str
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return lambda value: value.isoformat()
    if types.is_duration(kind):
        from eventproc.streams.payloads.kinds import duration_text

        return duration_text
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if types.is_dictionary(kind):
        return _converter(kind.value_type)
    if types.is_struct(kind):
        fields = {field.name: found for field in kind.fields if (found := _converter(field.type))}
        return _of_fields(fields) if fields else None
    if types.is_map(kind):
        return _of_pairs(_converter(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = _converter(kind.value_type)
        return None if element is None else lambda value: [_maybe(element, each) for each in value]
    return None


def _maybe(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _of_fields(fields: dict[str, Convert]) -> Convert:
    return lambda value: {name: _maybe(fields.get(name), each) for name, each in value.items()}


def _of_pairs(convert: Convert | None) -> Convert:
    return lambda value: {str(key): _maybe(convert, each) for key, each in value}
