"""`eventproc compact`: return the free bytes of the database file to the file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

import eventproc
from eventproc.cli.options import Command, Settings, background_option, output_option, pass_settings
from eventproc.cli.output.tables import described, show_done
from eventproc.cli.output.terminal import progress
from eventproc.cli.output.units import size_text

if TYPE_CHECKING:
    from eventproc.describe import CompactResult
    from eventproc.runtime import Eventproc

PERCENT: Final = 100
"""Length of the bar. How many bytes are free is not known before the first are freed."""


@click.command(cls=Command)
@background_option
@output_option()
@pass_settings
def compact(settings: Settings, background: bool, output: str) -> None:
    """Return the bytes of truncated and deleted events, and all else that is free in the file, to the file system.

    Processes that may be the host do it in the background, and leave up to 64 MiB for the next events. `eventproc
    doctor` shows how much is free. All processes go on reading and writing meanwhile. If it is interrupted, what was
    returned stays so.

    Exit codes: 2 the file cannot shrink, 6 the disk is full or fails.

    Examples:
        eventproc compact
        eventproc -C data compact --background
    """
    from eventproc.cli import session
    from eventproc.cli.submit import submit_in_background

    if background:
        submit_in_background(settings, eventproc.CompactTask(), output)
        return

    async def act(ep: Eventproc) -> tuple[str, CompactResult]:
        with progress(settings, "compacting", PERCENT) as advance:

            def show(done: int, total: int) -> None:
                advance(PERCENT * done // max(total, 1), f"{size_text(done)} of {size_text(total)}")

            return str(ep.path), await ep.compact(advance=show)

    path, made = session.run(settings, act)
    less = max(made.bytes_before - made.bytes, 0)
    text = f"the database has {size_text(made.bytes)}, {size_text(less)} less than before"
    if made.free_bytes:
        free = size_text(made.free_bytes)
        text += f"; {free} of it are free, which a read still needs or others have freed meanwhile"
    show_done(settings, {"done": "compact", "target": path, **described(made)}, output, text)
