"""Recognise what an input holds by its first bytes, so that a binary file is not written as lines of text."""

from __future__ import annotations

import json
from typing import IO, Final, cast

from eventproc.cli.input.lines import PACKED, InputFile, PeekedStream, refused

FORMATS: Final = ("lines", "jsonl", "csv", "json", "parquet", "arrow")
"""The values of --format."""

TEXT_PEEK_BYTES: Final = 1024 * 1024
"""How much of an input is read to see whether its first line is a JSON document of its own. A longer first line that
begins like an array is taken for one."""

ARROW_FILE_MAGIC: Final = b"ARROW1"

_FORMATS: Final = {b"PAR1": "parquet", ARROW_FILE_MAGIC: "arrow", b"\xff\xff\xff\xff": "arrow-stream"}

_REFUSED: Final = {
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "zstd -dc FILE | eventproc write STREAM"),
    b"\x04\x22\x4d\x18": ("compressed with lz4", "lz4 -dc FILE | eventproc write STREAM"),
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "unpack it, or save the sheet as CSV"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it"),
    b"SQLite format 3\x00": (
        "an SQLite database",
        "sqlite3 -csv -header FILE 'SELECT ...' | eventproc write STREAM --format csv",
    ),
    b"Obj\x01": ("an Avro file", "convert it to Parquet or JSON lines"),
    b"ORC": ("an ORC file", "convert it to Parquet or JSON lines"),
    b"\xff\xfe": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | eventproc write STREAM"),
    b"\xfe\xff": ("text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE | eventproc write STREAM"),
}
"""What an input may be that is not accepted, and the remedy."""

_MAGICS: Final = (*(magic for magic, _ in PACKED.values()), *_FORMATS, *_REFUSED)


def recognise(source: InputFile, guessed: str | None) -> str:
    """Return the format of an input by its content, and decompress it. Blocks until its beginning can be read.

    guessed: the format that the name suggests, None if it suggests none. It decides between formats of text.
    Raises click.ClickException, which says what the input is and what to do, if it is not accepted.
    """
    head = unpack(source)
    for magic, kind in _FORMATS.items():
        if head.startswith(magic):
            return kind
    if b"\x00" in head:
        raise refused(
            source, "not text", "convert it to text, or pass --format lines to write its bytes as lines"
        )
    if guessed is not None:
        return guessed
    return "json" if _is_json_document(source.peeked) else "lines"


def unpack(source: InputFile) -> bytes:
    """Decompress an input, also twice, and return its first bytes. Raises click.ClickException, as `recognise`."""
    while True:
        head = _head_of_magic(source.peeked)
        for magic, open_packed in PACKED.values():
            if head.startswith(magic):
                source.stream = PeekedStream(open_packed(cast("IO[bytes]", source.stream)))
                break
        else:
            break
    for magic, (what, remedy) in _REFUSED.items():
        if head.startswith(magic):
            raise refused(source, what, remedy)
    return head


def _head_of_magic(stream: PeekedStream) -> bytes:
    head = stream.peek(1)
    # A pipe may give a few bytes at a time. Text does not wait for more.
    while any(magic.startswith(head) and magic != head for magic in _MAGICS) and not stream.ended:
        head = stream.peek(len(head) + 1)
    return head


def _is_json_document(stream: PeekedStream) -> bool:
    """Return whether the text is one JSON array, or JSON documents over several lines."""
    head = stream.peek(1).lstrip()
    if head[:1] not in (b"[", b"{", b""):
        return False
    while b"\n" not in (head := stream.peek(1).lstrip()) and len(head) < TEXT_PEEK_BYTES and not stream.ended:
        stream.peek(len(stream.peek(1)) + 1)
    line, _, rest = head.partition(b"\n")
    try:
        text = line.decode().rstrip()
    except UnicodeDecodeError:
        return False
    if text[:1] not in ("[", "{"):
        return False
    try:
        json.loads(text)
    except RecursionError:
        return False
    except ValueError as why:
        is_cut = b"\n" not in head and not stream.ended
        if is_cut:
            return text.startswith("[")
        at_end = isinstance(why, json.JSONDecodeError) and why.pos >= len(text)
        return at_end and bool(rest.strip() or not stream.ended)
    if text.startswith("{"):
        return False
    # An array in a line: an array of rows, unless more lines follow, which are then JSON lines.
    while not rest.strip() and not stream.ended:
        rest = stream.peek(len(stream.peek(1)) + 1).lstrip().partition(b"\n")[2]
    return not rest.strip()
