"""The page's files over HTTP, with the headers that bind a browser: nothing from elsewhere, nothing inline, no frame.

The page calls REST, which decides what its user may do; the files are the same for everybody.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_PATH: Final = "/ui"

ASSETS: Final = Path(__file__).parent / "assets"

HEADERS: Final = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",
    }
)
"""Of each file. no-cache: a browser asks whether the file has changed, so that a new version is used at once."""


def page_routes() -> list[BaseRoute]:
    """Return the routes of the page. Its addresses are relative, so that a proxy may put it behind any prefix."""
    return [
        Route(PAGE_PATH, _lead),
        Mount(PAGE_PATH, _with_headers(StaticFiles(directory=ASSETS, html=True))),
    ]


async def _lead(_: Request) -> Response:
    return Response(status_code=307, headers={"Location": f"{PAGE_PATH.removeprefix('/')}/"})


def _with_headers(files: ASGIApp) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await files(scope, receive, send_with_headers)

    return run
