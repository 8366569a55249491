"""`eventproc request`: show, list and wait for requests to change streams and scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eventproc.cli.options import Settings, limit_option, output_option, pass_settings, timeout_option
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.describe import Request
    from eventproc.runtime import Eventproc

request_argument = click.argument("request_id", metavar="ID")


@click.group(cls=Noun)
def request() -> None:
    """Show, list and wait for requests to change streams and scopes.

    Examples:
        eventproc request list
    """


@request.command("new-id")
def new_id_() -> None:
    """Print a new id for --request-id. A command with an id can be repeated: its change is made once.

    Keep the id until the command has ended, for at most a day. No directory is needed.

    Examples:
        eventproc request new-id
    """
    from eventproc.base.clock import SystemClock, new_id

    click.echo(new_id(SystemClock()))


@request.shows(watch=False)
@request_argument
async def show(ep: Eventproc, request_id: str) -> Row:
    """Show a request and its outcome.

    Examples:
        eventproc request show 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    return _row(await ep.requests.get(request_id))


@request.command()
@request_argument
@timeout_option
@output_option()
@pass_settings
def wait(settings: Settings, request_id: str, timeout: float, output: str) -> None:
    """Wait until a request is done. If it was refused, this command fails with the same error.

    Examples:
        eventproc request wait 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --timeout 30
    """
    from eventproc.cli import session
    from eventproc.cli.output.tables import show_one
    from eventproc.cli.submit import wait_for_outcome

    async def act(ep: Eventproc) -> Request:
        return await wait_for_outcome(settings, ep, await ep.requests.get(request_id), round(timeout * 1000))

    show_one(_row(session.run(settings, act, host=True)), output)


@request.shows(["request_id", "kind", "target", "origin", "status", "created_ms", "error"])
@limit_option(100, "Largest number of requests.")
async def list_(ep: Eventproc, limit: int) -> list[Row]:
    """List the newest requests, the newest first.

    Examples:
        eventproc request list
        eventproc request list --limit 10
    """
    return [_row(each) for each in await ep.requests.list(limit=limit)]


def _row(found: Request) -> Row:
    return {
        "request_id": found.id,
        "kind": found.kind,
        "target": found.target,
        "origin": found.origin.value,
        "status": found.status.value,
        "created_ms": found.created_ms,
        "finished_ms": found.finished_ms,
        "error": None if found.error is None else str(found.error),
    }
