"""JSON payloads as typed columns. The value of a row depends on its payload alone, never on the payloads beside it.

A block of payloads is parsed by Arrow, which is trusted only with what both parsers read alike. A block with a payload
that Arrow refuses is divided, and the small block with that payload is read one by one by `json_values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from eventproc.spark.json_values import NESTED_MAX, JsonRows, MalformedPayload, is_too_deep, read_object
from eventproc.store.model.errors import CorruptRecord

CORRUPT_RECORD: Final = "_corrupt_record"
"""A string column of a schema with this name gets the text of each malformed payload, as in Spark's JSON source."""

SINGLY_MAX: Final = 256
"""Payloads of a block that are read one by one when Arrow refuses one of them. A higher value reads more good payloads
slowly (10 us instead of 1 us); a lower one starts Arrow's parser (100 us) more often."""

BLOCK_MIN: Final = 16
"""Payloads below which starting Arrow's parser costs more than reading them one by one."""

_WRAPPED: Final = "p"
"""Each payload is wrapped as the only field of an object, so that it always parses as exactly one row."""

_ODD_NUMBER: Final = re.compile(rb"(?:Inf|-NaN)\s*[,}\]]")
"""Matches spellings of infinity and NaN that Arrow accepts and JSON parsers do not."""

_YEAR: Final = r"^(\d{3}[1-9]|\d{2}[1-9]\d|\d[1-9]\d{2}|[1-9]\d{3})"
_DAY: Final = _YEAR + r"-\d\d-\d\d$"
_MOMENT: Final = _YEAR + r"-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?$"
_ZONED: Final = _YEAR + r"-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-](0\d|1[0-7]):[0-5]\d)?$"
_ZONE: Final = r"(Z|[+-]\d\d:\d\d)$"
"""Texts of dates and times, in the years 1 to 9999, that Arrow converts as `json_values` does. It gets the others."""


@attrs.frozen
class JsonColumns:
    """Parsed payloads. columns: one for each field. kept: the rows to keep, by index; None for all."""

    columns: Sequence[pa.Array]
    kept: pa.Array | None


def parse_json(payloads: pa.Array, schema: pa.Schema, *, mode: str = "permissive") -> JsonColumns:
    """Return a column for each field of `schema`, by the rules of Spark's `from_json`.

    docs/design/spark-source.md lists the rules and the few differences.

    mode: of a malformed payload: permissive (nulls where it does not fit), dropmalformed (no row) or failfast.
    Raises CorruptRecord in failfast mode, at the first malformed payload.
    Cost: about 1 us per payload of a few fields; ten times that for a malformed one and the SINGLY_MAX around it, and
    for all payloads if the schema has a map or a binary field.
    """
    fields = pa.schema([each for each in schema if each.name != CORRUPT_RECORD])
    rows = JsonRows(fields)
    blocks = _blocks(payloads, rows, _parsed_schema(fields), mode)
    columns: list[list[pa.Array]] = [[] for _ in fields]
    malformed: list[bool] = []
    for block, wrong in blocks:
        malformed += wrong
        for column, part in zip(columns, block, strict=True):
            column.append(part)
    made = {
        field.name: pa.concat_arrays(column) if column else pa.nulls(0, field.type)
        for field, column in zip(fields, columns, strict=True)
    }
    if CORRUPT_RECORD in schema.names:
        made[CORRUPT_RECORD] = _texts(payloads, malformed)
    kept = None
    if mode == "dropmalformed" and any(malformed):
        kept = pa.array([index for index, wrong in enumerate(malformed) if not wrong], pa.int64())
    return JsonColumns([made[each.name] for each in schema], kept)


def _blocks(
    payloads: pa.Array, rows: JsonRows, parsed: pa.Schema | None, mode: str
) -> Iterator[tuple[Sequence[pa.Array], list[bool]]]:
    """Yield the columns of block after block, and whether each of its payloads is malformed."""
    count = len(payloads)
    if parsed is not None and count >= BLOCK_MIN:
        try:
            found = parse_block(payloads, parsed)
            if found is not None:
                columns = [
                    _typed(column, field.type) for column, field in zip(found, rows.fields, strict=True)
                ]
                yield columns, [False] * count
                return
        except pa.ArrowInvalid:
            pass
    if parsed is None or count <= SINGLY_MAX:
        yield _parse_singly(payloads, rows, mode)
        return
    for at in range(0, count, SINGLY_MAX):
        yield from _blocks(payloads.slice(at, SINGLY_MAX), rows, parsed, mode)


def parse_block(payloads: pa.Array, schema: pa.Schema) -> Sequence[pa.Array] | None:
    """Return the columns that Arrow reads, or None if it reads what other parsers of JSON do not.

    payloads: at least one. Raises ArrowInvalid for a misfit. Cost: about 1 us per payload of a few fields.
    """
    if _has_odd_bytes(payloads) or _has_deep_ones(payloads):
        return None
    head, tail = (pa.scalar(text, pa.binary()) for text in (f'{{"{_WRAPPED}":'.encode(), b"}\n"))
    lines = pc.call_function("binary_join_element_wise", [head, payloads, tail, pa.scalar(b"")])
    _, ends, text = lines.buffers()
    borders = memoryview(ends).cast("i")
    begin, end = borders[lines.offset], borders[lines.offset + len(lines)]
    if begin == end:
        return None
    table = pyarrow.json.read_json(
        pa.BufferReader(text.slice(begin, end - begin)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=end - begin + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field(_WRAPPED, pa.struct(list(schema)))]),
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(payloads):
        return None
    rows = table.column(_WRAPPED).combine_chunks()
    if rows.null_count:
        return None  # "null" is not an object: `json_values` decides its meaning
    columns: Sequence[pa.Array] = rows.flatten()
    return columns


def _has_odd_bytes(payloads: pa.Array) -> bool:
    """Return whether a payload has bytes that Arrow's parser accepts and `json_values` does not."""
    try:
        payloads.cast(pa.string())  # Arrow's parser does not look whether texts are UTF-8
    except pa.ArrowInvalid:
        return True
    _, ends, text = payloads.buffers()
    borders = memoryview(ends).cast("i")
    begin, end = borders[payloads.offset], borders[payloads.offset + len(payloads)]
    return _ODD_NUMBER.search(memoryview(text)[begin:end]) is not None


def _has_deep_ones(payloads: pa.Array) -> bool:
    """Return whether a payload is nested deeper than `json_values` reads. Arrow's parser has no limit."""
    sizes = pc.call_function("binary_length", [payloads])
    # One that is closed has two brackets for each level. Arrow refuses the others.
    long = payloads.filter(pc.call_function("greater", [sizes, pa.scalar(2 * NESTED_MAX, sizes.type)]))
    return any(map(is_too_deep, long.to_pylist()))


def _parse_singly(payloads: pa.Array, rows: JsonRows, mode: str) -> tuple[Sequence[pa.Array], list[bool]]:
    values: list[list[object]] = [[] for _ in rows.fields]
    malformed = []
    for payload in payloads.to_pylist():
        misfits: list[str] = []
        try:
            row = rows.row(read_object(payload), misfits)
        except MalformedPayload as why:
            row, misfits = [None] * len(values), [str(why)]
        if misfits and mode == "failfast":
            raise CorruptRecord(
                key=f"payload {payload[:80]!r}",
                reason=f"{misfits[0]}; mode is failfast",
                remedy='for nulls instead set mode to "permissive", to leave it out "dropmalformed"',
            )
        malformed.append(bool(misfits))
        for column, value in zip(values, row, strict=True):
            column.append(value)
    columns = [pa.array(column, field.type) for column, field in zip(values, rows.fields, strict=True)]
    return columns, malformed


def _parsed_schema(fields: pa.Schema) -> pa.Schema | None:
    """Return the types that Arrow's parser reads for these fields, or None if it cannot read one of them."""
    kinds = [_parsed_type(each.type) for each in fields]
    if None in kinds:
        return None
    return pa.schema([pa.field(each.name, kind) for each, kind in zip(fields, kinds, strict=True)])


def _parsed_type(kind: pa.DataType) -> pa.DataType | None:
    if _is_text(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        inner = [_parsed_type(each.type) for each in kind]
        if None in inner:
            return None
        return pa.struct([pa.field(each.name, one) for each, one in zip(kind, inner, strict=True)])
    if pa.types.is_list(kind):
        item = _parsed_type(kind.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        return None
    return kind


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return what Arrow parsed as `kind`. Raises ArrowInvalid if a text has to be looked at one by one."""
    if pa.types.is_struct(kind):
        parts = [
            _typed(column.field(index), each.type) for index, each in enumerate(kind)
        ]  # without the nulls of the struct, which its own mask holds
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = _typed(column.values, kind.value_type)
        made = pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
        return made.cast(kind)
    if pa.types.is_decimal(kind):
        column.validate(full=True)  # Arrow's parser does not look at the precision
    if not _is_text(kind):
        return column
    if pa.types.is_date(kind):
        return _matching(column, _DAY).cast(kind)
    if kind.tz is None:
        return _matching(column, _MOMENT).cast(kind)
    texts = _matching(column, _ZONED)
    zoned = pc.call_function("match_substring_regex", [texts], pc.MatchSubstringOptions(_ZONE))
    utc = pc.call_function("binary_join_element_wise", [texts, pa.scalar("Z"), pa.scalar("")])
    return pc.call_function("if_else", [zoned, texts, utc]).cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _matching(column: pa.Array, pattern: str) -> pa.Array:
    """Return the column if all its texts match. Raises ArrowInvalid."""
    found = pc.call_function("match_substring_regex", [column], pc.MatchSubstringOptions(pattern))
    if not pc.call_function("all", [found], pc.ScalarAggregateOptions(min_count=0)).as_py():
        raise pa.ArrowInvalid("a text is not in the usual form")
    return column


def _texts(payloads: pa.Array, malformed: Sequence[bool]) -> pa.Array:
    if not any(malformed):
        return pa.nulls(len(payloads), pa.string())
    found = [
        payload.decode(errors="replace") if wrong else None
        for payload, wrong in zip(payloads.to_pylist(), malformed, strict=True)
    ]
    return pa.array(found, pa.string())
