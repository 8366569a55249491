"""The layout of a table on a terminal: which columns it has, how wide they are, and where their cells wrap.

A cell wraps between words only, so that a name, an id or a cut stays complete and can be copied. If the columns do not
fit like that, the least important ones are left out. Widths count what a terminal shows: a character of an East Asian
script takes two cells, a combining one none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from rich.cells import cell_len

GAP: Final = "  "
"""Between two columns."""

READABLE: Final = 24
"""Cells to which a column of text may be narrowed before another column is left out. Higher: more columns are left
out. Lower: text becomes a tower of single words."""


@attrs.frozen
class Column:
    """A column of a table.

    importance: columns with the lowest importance are left out first; the first column never is.
    right: whether its cells are aligned to the right.
    """

    heading: str
    cells: Sequence[str]
    importance: int = 0
    right: bool = False


@attrs.frozen
class TableLayout:
    """The lines of a table on a terminal, and the headings of the columns that do not fit."""

    heading: list[str]
    body: list[str]
    left_out: list[str]


@attrs.frozen
class _Widths:
    """How wide a column may be: without wrapping, as narrow as is readable, and as narrow as its longest word."""

    natural: int
    readable: int
    least: int

    @classmethod
    def of(cls, column: Column) -> _Widths:
        natural = max(map(cell_len, column.cells), default=0)
        least = max(map(longest_word, (column.heading, *column.cells)))
        return cls(max(natural, cell_len(column.heading)), max(least, min(natural, READABLE)), least)


def lay_out(columns: Sequence[Column], width: int) -> TableLayout:
    """Return the layout of a table on a terminal of `width` cells."""
    measured = [_Widths.of(each) for each in columns]
    shown = list(range(len(columns)))
    while len(shown) > 1 and _total([measured[i].readable for i in shown]) > width:
        shown.remove(min(reversed(shown[1:]), key=lambda i: columns[i].importance))
    widths = _fit([measured[i] for i in shown], width)
    chosen = [columns[i] for i in shown]
    return TableLayout(
        heading=list(_lines(chosen, [each.heading for each in chosen], widths)),
        body=[
            line
            for row in zip(*(each.cells for each in chosen), strict=True)
            for line in _lines(chosen, row, widths)
        ],
        left_out=[each.heading for i, each in enumerate(columns) if i not in shown],
    )


def longest_word(text: str) -> int:
    """Return the width of the longest word."""
    return max(map(cell_len, text.split(" ")))


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` cells, broken between words. A longer word has its own line."""
    if cell_len(text) <= width:
        return [text]
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        if cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _fit(columns: Sequence[_Widths], width: int) -> list[int]:
    """Return the width of each column: the natural one, or less for the widest ones, down to their longest word."""
    widths = [each.natural for each in columns]
    for floors in ([each.readable for each in columns], [each.least for each in columns]):
        while _total(widths) > width:
            above = [i for i, floor in enumerate(floors) if widths[i] > floor]
            if not above:
                break
            widths[max(above, key=lambda i: widths[i])] -= 1
    return widths


def _lines(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of a row, whose cells may take several."""
    wrapped = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, wrapped))):
        parts: list[str] = []
        for column, lines, width in zip(columns, wrapped, widths, strict=True):
            part = lines[number] if number < len(lines) else ""
            space = " " * (width - cell_len(part))
            parts.append(space + part if column.right else part + space)
        yield GAP.join(parts).rstrip()
