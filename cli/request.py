"""`eventproc request`: show, list and wait for requests to change streams and scopes."""

from __future__ import annotations

import click

from eventproc.cli import session
from eventproc.cli.options import (
    CommandGroup,
    Settings,
    output_option,
    pass_settings,
    timeout_option,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_one, show_rows
from eventproc.cli.submit import wait_for_outcome
from eventproc.cli.watch import show_found
from eventproc.runtime import Eventproc
from eventproc.store.clock import SystemClock, new_id
from eventproc.store.requests import Request


@click.group(cls=CommandGroup)
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
    click.echo(new_id(SystemClock()))


@request.command()
@click.argument("request_id", metavar="ID")
@output_option()
@pass_settings
def show(settings: Settings, request_id: str, output: str) -> None:
    """Show a request and its outcome.

    Examples:
        eventproc request show 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    show_one(_row(session.run(settings, lambda ep: ep.requests.get(request_id))), output)


@request.command()
@click.argument("request_id", metavar="ID")
@timeout_option
@output_option()
@pass_settings
def wait(settings: Settings, request_id: str, timeout: float, output: str) -> None:
    """Wait until a request is done. If it was refused, this command fails with the same error.

    Examples:
        eventproc request wait 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --timeout 30
    """

    async def act(ep: Eventproc) -> Request:
        return await wait_for_outcome(settings, ep, await ep.requests.get(request_id), round(timeout * 1000))

    show_one(_row(session.run(settings, act, host=True)), output)


@request.command("list")
@click.option(
    "--limit", type=int, default=100, show_default=True, metavar="N", help="Largest number of requests."
)
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, limit: int, output: str) -> None:
    """List the newest requests, the newest first.

    Examples:
        eventproc request list
        eventproc request list --limit 10
    """
    columns = ["request_id", "kind", "target", "origin", "status", "created_ms", "error"]

    def show(found: list[Request]) -> None:
        show_rows([_row(each) for each in found], columns, output)

    show_found(settings, lambda ep: ep.requests.list(limit=limit), show)


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
