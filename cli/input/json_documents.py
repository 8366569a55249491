"""Read JSON that is no JSON lines: one array, whose elements are the rows, or documents over several lines.

Only the document that is being read is in memory.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Final

from eventproc import EVENT_BYTES_MAX
from eventproc.cli.input.lines import READ_BYTES, InputFile, bad_input

CUT_CHARS_MAX: Final = 12
"""Characters at the end of cut JSON in which the parser may report its error: those of a cut number or word."""

_SPACE: Final = " \t\r\n"


class JsonDocuments(Iterator[object]):
    """The elements of an array, or the documents of a text, as values. number: of the last one, from 1."""

    def __init__(self, source: InputFile) -> None:
        self.source = source
        self.number = 0
        self._decode = json.JSONDecoder(parse_constant=no_constant).raw_decode
        self._text_of = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._at = 0
        self._ended = False
        self._in_array: bool | None = None  # None: before the first character

    @property
    def ready(self) -> bool:
        """Whether the next document may be read without waiting for the writer of a pipe."""
        return self.source.size_bytes is not None or self._at < len(self._text)

    def __next__(self) -> object:
        following = self._next_character()
        if self._in_array is None:
            self._in_array = following == "["
            if self._in_array:
                self._at += 1
                if self._next_character() == "]":
                    self._end_array()
        elif self._in_array:
            if following == "]":
                self._end_array()
            elif following != ",":
                raise self._bad("a comma or ] is missing")
            self._at += 1
            self._next_character()
        elif not following:
            raise StopIteration
        if not self._next_character():
            if self._in_array:
                raise self._bad("the array has no end")
            raise StopIteration
        self.number += 1
        return self._document()

    def _end_array(self) -> None:
        self._at += 1
        if self._next_character():
            reason = "more follows the array; pass --format jsonl if each line is a document"
            raise bad_input(self.source, f"after element {self.number}", reason)
        raise StopIteration

    def _document(self) -> object:
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError as why:
                raise self._bad(f"not JSON: {why}") from None
            except ValueError as why:
                at_end = not isinstance(why, json.JSONDecodeError) or self._may_be_cut(why)
                if self._ended or not at_end or not self._read():
                    raise self._bad(f"not JSON: {why}") from None
            else:
                # A number at the end of what was read may go on.
                if end < len(self._text) or not self._read():
                    self._at = end
                    while self._at < len(self._text) and self._text[self._at] in _SPACE:
                        self._at += 1
                    return value

    def _may_be_cut(self, why: json.JSONDecodeError) -> bool:
        return why.pos >= len(self._text) - CUT_CHARS_MAX or why.msg.startswith("Unterminated")

    def _next_character(self) -> str:
        """Return the next character that is no space, without taking it; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def _read(self) -> bool:
        """Append what the input has next. Returns False at its end."""
        if self._ended:
            return False
        if len(self._text) - self._at > EVENT_BYTES_MAX:
            raise self._bad(f"it is longer than {EVENT_BYTES_MAX} bytes, the limit of an event")
        block = self.source.read(READ_BYTES, f"after element {self.number}")
        self._ended = not block
        try:
            more = self._text_of(block, final=self._ended)
        except UnicodeDecodeError as why:
            raise self._bad(f"not UTF-8 ({why.reason})") from None
        self._text, self._at = self._text[self._at :] + more, 0
        return not self._ended

    def _bad(self, reason: str) -> Exception:
        number = self.number if self._in_array is not None and self.number else 1
        return bad_input(self.source, f"{'element' if self._in_array else 'document'} {number}", reason)


def no_constant(name: str) -> object:
    """Refuse NaN and the infinities, which Python's decoder accepts. Raises ValueError."""
    raise ValueError(f"{name} is not a JSON number")
