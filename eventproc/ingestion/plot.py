"""Draws a supervisor: its lag over time, and the files of its table over the timeline. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventproc.ingestion.memory import LagSample
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.ingestion import TableFile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".png", ".svg", ".pdf")
"""Formats of pictures."""

DAY_MS: Final = 86_400_000
COLORS: Final = ("#4c78a8", "#9ecae9")
"""Of the files of an interval, in turn, so that each can be seen."""


def check_picture(path: Path) -> None:
    """Raise InvalidArgument if the path has not the suffix of a picture, NotSupported without matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        raise invalid_argument("path", str(path), f"it must end with one of {', '.join(SUFFIXES)}")
    try:
        import matplotlib as mpl  # an extra: who draws nothing need not install it
    except ImportError as error:
        raise NotSupported(
            what="a plot without matplotlib", remedy="run `pip install 'eventproc[plot]'`"
        ) from error
    mpl.use("agg")


def draw(
    path: Path, supervisor: str, table: str, lags: Sequence[LagSample], files: Sequence[TableFile]
) -> None:
    """Write the picture. lags: the oldest first. files: those of the table."""
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, figsize=(9, 6), layout="constrained")
    try:
        above.set_title(f"Supervisor {supervisor}: events behind")
        above.plot([each.at_ms / DAY_MS for each in lags], [each.lag for each in lags], color=COLORS[0])
        above.set_ylim(bottom=0)
        below.set_title(f"Table {table}: rows by interval; each box is a file")
        _draw_files(below, files)
        for axes in (above, below):
            axes.xaxis_date()
            axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=110)
    finally:
        pyplot.close(figure)


def _draw_files(axes: Axes, files: Sequence[TableFile]) -> None:
    """Draw each file as a box of its interval, as high as it has rows, on top of the others of the interval."""
    for start_ms, those in sorted(_by_interval(files).items()):
        # An interval may be longer than all times that a picture can show.
        left_ms = max(start_ms, min(each.min_ms for each in those))
        right_ms = min(those[0].end_ms, max(each.max_ms for each in those) + 1)
        bottom = 0
        for number, each in enumerate(those):
            color = COLORS[number % len(COLORS)]
            width = (right_ms - left_ms) / DAY_MS
            axes.bar(left_ms / DAY_MS, each.rows, width, bottom, align="edge", color=color, edgecolor="white")
            bottom += each.rows


def _by_interval(files: Sequence[TableFile]) -> Mapping[int, list[TableFile]]:
    found: dict[int, list[TableFile]] = {}
    for each in files:
        found.setdefault(each.start_ms, []).append(each)
    return found
