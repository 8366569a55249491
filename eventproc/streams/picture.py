"""The picture of a stream as a value, and how it is drawn as SVG. Pure.

See docs/design/stream-picture.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from math import log1p
from typing import Final

import attrs

from eventproc.store.model.ids import SegmentId
from eventproc.store.model.short_repr import short_repr_of_fields

WIDTH: Final = 1000
HEIGHT: Final = 400
LEFT: Final = 48
TOP: Final = 32
RIGHT: Final = 16
BOTTOM: Final = 28
LEGEND: Final = 18
"""Height of a line of the legend. All of these are units of the picture, which may be shown in any size."""

TICKS: Final = 5
GROUPS_A_LINE: Final = 4

RATES: Final = ("#eff3ff", "#c6dbef", "#9ecae1", "#6baed6", "#3182bd", "#08519c")
"""From no event to the highest rate of the picture."""

UNKNOWN: Final = "#d9d9d9"
PALE: Final = "0.3"
THINNEST: Final = 0.5
"""Width of a segment that lived for a moment."""

GROUPS: Final = ("#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#e377c2", "#17becf", "#7f7f7f")


@attrs.frozen(kw_only=True)
class PictureSegment:
    """A segment: over the keys [low, high), from its creation to its seal.

    from_ms, to_ms: wall clock, in ms since 1970. to_ms is None as long as the segment is in the newest epoch.
    truncated_ms: until when its events are truncated; None if all can be read.
    events: how many were written to it. events_per_second: over its whole life. Both are None if nothing is left of it.
    """

    segment: SegmentId
    low: float
    high: float
    from_ms: int
    to_ms: int | None
    truncated_ms: int | None
    events: int | None
    events_per_second: float | None


@attrs.frozen(kw_only=True)
class PicturePosition:
    """Where a group is in a segment: at_ms is about when the first event that it has not finished was appended.

    Without such an event, it is the end of the segment, or now. What is truncated counts as finished.
    """

    group: str
    segment: SegmentId
    low: float
    high: float
    at_ms: int


@attrs.frozen(kw_only=True)
class StreamPicture:
    """A stream over time and keys, as `Stream.plot` returns it; everything of one moment.

    A notebook shows it, and `svg` returns it as a picture.

    from_ms, to_ms: what is shown, wall clock in ms since 1970.
    segments: by their creation. positions: of the groups that read the stream, by name.
    left_out: older segments of that time that a picture does not have room for.
    """

    __repr__ = short_repr_of_fields

    stream: str
    from_ms: int
    to_ms: int
    segments: tuple[PictureSegment, ...]
    positions: tuple[PicturePosition, ...]
    left_out: int

    def svg(self) -> str:
        """Return the picture as SVG: without scripts and styles, with the numbers of each shape in its `<title>`."""
        return _drawn(self)

    def _repr_html_(self) -> str:
        return self.svg()


def _drawn(picture: StreamPicture) -> str:
    """Return the picture as SVG. Texts have the colour of the page that holds it."""
    groups = [(name, list(found)) for name, found in groupby(picture.positions, lambda each: each.group)]
    height = HEIGHT + LEGEND * (-(-len(groups) // GROUPS_A_LINE))
    title = escape(_title(picture))
    top = max((each.high for each in picture.segments), default=1.0)
    canvas = _Canvas(picture.from_ms, picture.to_ms, top)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{title}</title>",
            '<g font-family="sans-serif" font-size="12" fill="currentColor">',
            f'<text x="{LEFT}" y="20" font-size="14">{title}</text>',
            *_axes(canvas),
            *_segments(picture, canvas),
            *_positions(groups, canvas),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _title(picture: StreamPicture) -> str:
    older = f", without {picture.left_out:,} older segments" if picture.left_out else ""
    return f"{picture.stream}, {_time(picture.from_ms)} to {_time(picture.to_ms)} UTC{older}"


@attrs.frozen
class _Canvas:
    """Where times and keys are. top: the highest key; partitions leave most of the key space to later ones."""

    from_ms: int
    to_ms: int
    top: float

    def x(self, time_ms: int) -> float:
        share = (time_ms - self.from_ms) / max(self.to_ms - self.from_ms, 1)
        return round(LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, key: float) -> float:
        return round(HEIGHT - BOTTOM - key / self.top * (HEIGHT - BOTTOM - TOP), 1)


def _axes(canvas: _Canvas) -> Iterator[str]:
    for key in (0.0, 0.25, 0.5, 0.75, 1.0) if canvas.top == 1 else ():
        yield f'<text x="{LEFT - 6}" y="{canvas.y(key) + 4}" text-anchor="end">{key:g}</text>'
    for number in range(TICKS):
        time_ms = canvas.from_ms + (canvas.to_ms - canvas.from_ms) * number // (TICKS - 1)
        anchor = {0: "start", TICKS - 1: "end"}.get(number, "middle")
        yield (
            f'<text x="{canvas.x(time_ms)}" y="{HEIGHT - 10}" text-anchor="{anchor}">{_time(time_ms)}</text>'
        )


def _segments(picture: StreamPicture, canvas: _Canvas) -> Iterator[str]:
    highest = max((each.events_per_second or 0.0 for each in picture.segments), default=0.0)
    yield '<g stroke="#ffffff" stroke-width="0.5">'
    for each in picture.segments:
        end_ms = picture.to_ms if each.to_ms is None else each.to_ms
        parts = [(each.from_ms, end_ms, "1")]
        if each.truncated_ms is not None:
            parts = [(each.from_ms, each.truncated_ms, PALE), (each.truncated_ms, end_ms, "1")]
        color, about = _color(each, highest), escape(_about(each))
        top, bottom = canvas.y(each.high), canvas.y(each.low)
        for begin_ms, until_ms, opacity in parts:
            if begin_ms < until_ms or each.from_ms == end_ms:
                left = canvas.x(begin_ms)
                right = max(canvas.x(until_ms), left + THINNEST)
                yield (
                    f'<rect x="{left}" y="{top}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
                    f' fill="{color}" fill-opacity="{opacity}"><title>{about}</title></rect>'
                )
    yield "</g>"


def _positions(groups: Sequence[tuple[str, list[PicturePosition]]], canvas: _Canvas) -> Iterator[str]:
    for number, (group, found) in enumerate(groups):
        color, corner = GROUPS[number % len(GROUPS)], "M"
        path = ""
        for each in sorted(found, key=lambda position: position.low):
            x = canvas.x(each.at_ms)
            path += f"{corner}{x} {canvas.y(each.low)} L{x} {canvas.y(each.high)} "
            corner = "L"
        yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2"><title>{escape(group)}</title></path>'
        line, column = divmod(number, GROUPS_A_LINE)
        left, y = LEFT + column * (WIDTH - LEFT - RIGHT) // GROUPS_A_LINE, HEIGHT + 8 + line * LEGEND
        yield f'<rect x="{left}" y="{y - 9}" width="10" height="10" fill="{color}"/>'
        yield f'<text x="{left + 16}" y="{y}">{escape(group)}</text>'


def _color(segment: PictureSegment, highest: float) -> str:
    if segment.events_per_second is None:
        return UNKNOWN
    if not segment.events_per_second:
        return RATES[0]
    share = log1p(segment.events_per_second) / log1p(highest)
    return RATES[1 + round(share * (len(RATES) - 2))]


def _about(segment: PictureSegment) -> str:
    written = (
        "all truncated"
        if segment.events is None
        else f"{segment.events:,} events, {segment.events_per_second:,.1f}/s"
    )
    until = "now" if segment.to_ms is None else _time(segment.to_ms)
    keys = f"[{segment.low:g}, {segment.high:g})"
    return f"{segment.segment}, keys {keys}, {_time(segment.from_ms)} to {until}: {written}"


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
