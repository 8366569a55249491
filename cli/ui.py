"""`eventproc ui`: a page of the store in the browser of this machine."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from eventproc.base.kernel import LINUX
from eventproc.cli.options import Command, Settings, pass_settings
from eventproc.cli.serve import PORT, verify_installed

if TYPE_CHECKING:
    from eventproc.runtime import Eventproc

GRACE_MS = 5_000


@click.command(cls=Command)
@click.option(
    "--port",
    type=PORT,
    default=0,
    show_default=True,
    metavar="PORT",
    help="Port of 127.0.0.1; 0 takes a free one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@pass_settings
def ui(settings: Settings, port: int, no_browser: bool) -> None:
    """Open a page that shows the store and changes it, until Ctrl-C.

    The address holds a token, which is another one each time: with it one may do everything, without it nothing. For
    several people, with users and permissions, use `eventproc serve --ui`. Needs the extra `server`.

    Examples:
        eventproc ui
        eventproc ui --port 8080 --no-browser
        eventproc -C postgresql://app@db.example.com/app ui
    """
    from eventproc.cli.server import DirectoryServer
    from eventproc.cli.server_log import ServerLog

    log = ServerLog(settings, None)
    with log.reporting():
        verify_installed("ui", has_rest=True)
        log.install()
        server = DirectoryServer(
            settings,
            [],
            grace_ms=GRACE_MS,
            shows_status=False,
            endpoints=lambda ep: _page(ep, port, opens=not no_browser),
        )
        server.run(host=True)


@asynccontextmanager
async def _page(ep: Eventproc, port: int, *, opens: bool) -> AsyncIterator[None]:
    from anyio import to_thread

    from eventproc.server.endpoints import serve_page

    with TemporaryDirectory(prefix="eventproc-") as private:
        async with serve_page(ep, port) as address:
            click.echo(address)
            if opens and _has_screen():
                link = _link_in(Path(private), address)
                await to_thread.run_sync(webbrowser.open, link, abandon_on_cancel=True)
            yield


def _link_in(private: Path, address: str) -> str:
    """Return the address of a new file that leads to the page.

    All users of a machine see the arguments of its programs, so that a browser must not be given the token in them.
    """
    link = private / "page.html"
    link.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n')
    return link.as_uri()


def _has_screen() -> bool:
    """Return whether a browser has a place to appear: one that runs in the terminal would take it."""
    return not LINUX or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
